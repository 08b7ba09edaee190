"""The tokens of a text by classes of its characters: fast, without a tokenizer's tables, and on the safe side.

Tokenizers split texts between classes of characters, and know common sequences: "eat" is part of many tokens, "vq" of
none. So each byte of a text in UTF-8 costs by its own class and that of the byte before it, in sixteenths of a token.
Characters beyond ASCII also cost by their block of 256 code points, which shows their script. The costs are fitted
(`benchmarks/token_fit.py`) so that of each kind of text 1.0 to 1.4 times the tokens are counted that OpenAI's o200k
makes; `python -m benchmarks tokens` measures that.

All is done by operations on whole texts: two classes fit into one byte, a table maps it to a byte in which as many bits
are set as it costs, and the bits are counted.
"""

BLOCK_BYTES = 1 << 14
"""Bytes that are counted at once: what is made of them on the way stays in the processor's cache."""
BYTES_TO_ONE = 48
"""The bytes of a long run of one character, such as a ruler of dashes, that make a token."""
COST_MAX = 24
"""The highest cost that a byte can say: four bits of one, four of five."""

CLASSES = (
    b"\r\n",
    b"",
    b"eai",
    b"ou",
    b"tnsr",
    b"ldhcm",
    b"pgbfy",
    b"vkwjqxz",
    b"AEIOU",
    b"BCDFGHJKLMNPQRSTVWXYZ",
    b"-=_*#.",
    b"0123456789",
    b" \t",
    bytes(range(0xC2, 0xCB)),
    bytes([*range(0x80, 0xC2), *range(0xCB, 0x100)]),
)
"""The bytes of each class. The second has those that no other names: brackets, quotes, other signs. The last two are
the first bytes of Latin letters beyond ASCII, and all other bytes beyond it."""

COSTS = (
    (2, 3, 17, 17, 17, 12, 16, 18, 17, 4, 13, 11, 7, 14, 10),
    (10, 5, 5, 8, 14, 16, 22, 15, 0, 3, 15, 15, 7, 22, 18),
    (24, 15, 2, 0, 1, 0, 0, 8, 0, 4, 16, 8, 10, 3, 0),
    (22, 24, 0, 0, 0, 2, 1, 0, 0, 2, 3, 18, 2, 0, 0),
    (21, 12, 2, 1, 0, 0, 0, 13, 11, 2, 3, 14, 1, 17, 0),
    (19, 11, 1, 0, 4, 10, 6, 23, 0, 13, 0, 16, 1, 8, 0),
    (19, 5, 3, 0, 0, 0, 4, 18, 13, 5, 0, 15, 1, 11, 0),
    (21, 5, 5, 0, 16, 16, 8, 24, 12, 21, 0, 19, 9, 21, 0),
    (23, 22, 21, 2, 7, 20, 16, 20, 2, 0, 5, 24, 18, 14, 2),
    (23, 19, 7, 0, 6, 0, 14, 24, 0, 16, 6, 17, 4, 8, 0),
    (0, 19, 9, 2, 12, 15, 5, 19, 0, 6, 0, 17, 12, 19, 0),
    (20, 12, 14, 17, 20, 23, 16, 24, 20, 13, 17, 6, 16, 24, 22),
    (9, 10, 11, 13, 11, 11, 11, 13, 6, 1, 9, 23, 1, 8, 11),
    (15, 12, 7, 5, 8, 9, 9, 17, 6, 7, 6, 17, 7, 13, 3),
    (13, 8, 16, 0, 0, 0, 0, 20, 7, 10, 3, 24, 1, 0, 0),
)
"""The cost of a byte: a row for the class of the byte before it, a column for its own. A text begins as a line does."""

OTHER_SCRIPT = 24
BLOCK_COSTS = (
    (0x00, 0x01, 0),  # Latin: the costs of pairs suffice
    (0x01, 0x03, 1),  # Latin with rarer marks
    (0x03, 0x04, 4),  # Greek
    (0x04, 0x05, 3),  # Cyrillic
    (0x05, 0x06, 5),  # Hebrew, Armenian
    (0x06, 0x08, 3),  # Arabic
    (0x09, 0x0A, 4),  # Devanagari, Bengali
    (0x0A, 0x0B, 9),  # Gurmukhi, Gujarati
    (0x0B, 0x0C, 10),  # Tamil, Odia
    (0x0C, 0x0E, 9),  # Telugu, Kannada, Malayalam, Sinhala
    (0x0E, 0x0F, 7),  # Thai, Lao
    (0x10, 0x12, 8),  # Burmese, Georgian
    (0x17, 0x18, 10),  # Khmer
    (0x1E, 0x1F, 4),  # Latin with two marks: Vietnamese
    (0x1F, 0x20, 8),  # Greek with marks
    (0x20, 0x21, 5),  # dashes, quotes, bullets
    (0x21, 0x25, 18),  # arrows, signs of mathematics
    (0x25, 0x26, 13),  # lines of boxes
    (0x26, 0x2C, 18),  # pictures and signs
    (0x30, 0x31, 14),  # Japanese syllables
    (0x31, 0xA0, 13),  # Chinese characters
    (0xAC, 0xD8, 10),  # Korean
    (0xD8, 0xE0, 16),  # a half of a character beyond 65,536: emoji
    (0xF9, 0x100, 17),  # signs of full width
)
"""First block, the block after the last, and the cost of each of their characters; of others `OTHER_SCRIPT`."""

_FIVES = int.from_bytes(b"\xf0" * BLOCK_BYTES, "little")


def _coded(cost: int) -> int:
    """A byte that says a cost: bits of one in its lower half, bits of five in its upper half."""
    fives, ones = divmod(cost, 5)
    return ((1 << ones) - 1) | ((1 << fives) - 1) << 4


def _class_table() -> bytes:
    table = bytearray(b"\x01" * 256)
    for number, members in enumerate(CLASSES):
        for byte in members:
            table[byte] = number
    return bytes(table)


def _pair_table() -> bytes:
    table = bytearray(256)
    for before, row in enumerate(COSTS):
        for own, cost in enumerate(row):
            table[before << 4 | own] = _coded(cost)
    return bytes(table)


def _block_table() -> bytes:
    table = bytearray([_coded(OTHER_SCRIPT)] * 256)
    for first, end, cost in BLOCK_COSTS:
        table[first:end] = bytes([_coded(cost)]) * (end - first)
    return bytes(table)


_CLASS, _PAIR, _SCRIPT = _class_table(), _pair_table(), _block_table()


def count_by_classes(text: str) -> int:
    """The tokens of a text, at least one if there is a character. The same on every machine; O(n), 6 µs a kilobyte.

    The count of two texts together differs from the sum of both by four tokens at most, and one more for every
    `BLOCK_BYTES`.
    """
    data = text.encode("utf-8", "surrogatepass")
    starts = range(0, len(data), BLOCK_BYTES)
    cost = sum([_sum(_pairs(data[at : at + BLOCK_BYTES])) for at in starts])
    if len(data) != len(text):
        blocks = text.encode("utf-16-le", "surrogatepass")[1::2].translate(_SCRIPT)
        cost += sum([_sum(blocks[at : at + BLOCK_BYTES]) for at in range(0, len(blocks), BLOCK_BYTES)])
    return (cost * (BYTES_TO_ONE // 16) + len(data) + BYTES_TO_ONE - 1) // BYTES_TO_ONE


def _pairs(data: bytes) -> bytes:
    """The cost of each byte, coded."""
    classes = int.from_bytes(data.translate(_CLASS), "little")
    pairs = classes | classes << 12  # each byte: its class in the lower half, the one before it in the upper half
    return pairs.to_bytes(len(data) + 2, "little")[: len(data)].translate(_PAIR)


def _sum(coded: bytes) -> int:
    """The sum of the costs that bytes say."""
    bits = int.from_bytes(coded, "little")
    return bits.bit_count() + 4 * (bits & _FIVES).bit_count()
