"""Serialized values cut into pieces, so that what two of them share is kept once: bytes in, the same bytes out.

Values come as a serializer gave them, with the name of its form. Of MessagePack, lists and objects are cut at their
elements, whose bytes do not change; any other form is one piece.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from memory_engine.views.checkpoints.events import ItemSpan
from memory_engine.views.checkpoints.pieces import JSON, Packed, PiecePlace, Quote, to_text

Form = tuple[str, bytes]
"""A value as its serializer gave it: the name of its form, and its bytes."""
MSGPACK = "msgpack"
PIECE_MIN = 64
"""Bytes from which on a part of a value is a piece of its own, which later values may name."""
_AHEAD = 8
"""Events among which the text of a piece is looked for."""
_HEAD_MAX = 5
"""Bytes before the elements of a serialized list or object."""
_DEPTH = 2
_ARRAY = msgspec.msgpack.Decoder(list[msgspec.Raw])
_MAP = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


class Sheet:
    """The pieces of one event. A piece of an earlier event is named by its place."""

    def __init__(self, known: Mapping[bytes, PiecePlace]) -> None:
        self.pieces: list[bytes] = []
        self.own: dict[bytes, int] = {}
        self._known = known

    def place(self, piece: bytes, digest: bytes) -> PiecePlace:
        """The place of a piece, here unless an earlier event has it."""
        known = self._known.get(digest)
        if known is not None:
            return known
        index = self.own.get(digest)
        if index is None:
            index = self.own[digest] = len(self.pieces)
            self.pieces.append(piece)
        return PiecePlace(0, index)

    def packed(self, value: Form) -> Packed:
        """A value, its larger parts as pieces."""
        form, data = value
        if form == JSON:
            return Packed(form, (data.decode(),))
        parts: list[str | PiecePlace] = []
        literal = b""
        for part in _split_value(data, _DEPTH) if form == MSGPACK else (data,):
            if len(part) < PIECE_MIN:
                literal += part
                continue
            if literal:
                parts.append(to_text(literal))
            literal = b""
            parts.append(self.place(part, piece_digest(part)))
        return Packed(form, (*parts, to_text(literal)) if literal else tuple(parts))


def quoted(pieces: Sequence[bytes], texts: Sequence[str]) -> list[str | Quote]:
    """Pieces as text, those that hold one of the texts as a quote: of the events right before their own, in order."""
    found: list[str | Quote] = []
    at = 0
    for piece in pieces:
        for n in range(at, min(at + _AHEAD, len(texts))):
            text = texts[n].encode("utf-8", "surrogatepass")
            head, middle, tail = piece.partition(text) if len(text) >= PIECE_MIN else (piece, b"", b"")
            if middle:
                found.append(Quote(to_text(head), n - len(texts), zlib.crc32(text), to_text(tail)))
                at = n + 1
                break
        else:
            found.append(to_text(piece))
    return found


class ItemList(NamedTuple):
    """A serialized list: how many of its items are those that it was compared with, the others, and all their bytes."""

    kept: int
    items: list[bytes]
    body: bytes


def split(value: Form, count: int = 0, before: bytes = b"") -> ItemList | None:
    """The items of a serialized list, byte for byte; `None` for anything else, and where they are small.

    A list that begins with the `count` items whose bytes are `before` is taken apart only after them.
    """
    form, data = value
    if form != MSGPACK or len(data) < PIECE_MIN or not _is_array(data):
        return None
    width = {0xDC: 2, 0xDD: 4}.get(data[0], 0)
    total = int.from_bytes(data[1 : 1 + width], "big") if width else data[0] & 0x0F
    head = _array_head(total)
    if not data.startswith(head) or len(data) < PIECE_MIN * total:
        return None
    body = data[len(head) :]
    kept = count if count <= total and before and body.startswith(before) else 0
    rest = body[len(before) :] if kept else body
    return ItemList(kept, [bytes(item) for item in _ARRAY.decode(_array_head(total - kept) + rest)], body)


def array_form(count: int, body: bytes) -> Form:
    """A list of `count` items, from their bytes."""
    return MSGPACK, _array_head(count) + body


def runs(numbers: Iterable[int], before: Sequence[ItemSpan] = ()) -> tuple[ItemSpan, ...]:
    """Numbers as runs, after those before them; of new items (0) a run is their count."""
    spans = list(before)
    for number in numbers:
        add_run(spans, ItemSpan(number, 1))
    return tuple(spans)


def add_run(spans: list[ItemSpan], span: ItemSpan) -> None:
    """Add a run to others, as a part of the last one where it goes on from there."""
    last = spans[-1] if spans else None
    if last is not None and span.first == (last.first + last.count if last.first else 0):
        spans[-1] = ItemSpan(last.first, last.count + span.count)
    else:
        spans.append(span)


def numbers_of(spans: Iterable[ItemSpan]) -> list[int]:
    """The numbers in runs, but for new items."""
    return [number for span in spans if span.first for number in range(span.first, span.first + span.count)]


def piece_digest(piece: bytes) -> bytes:
    """The digest by which a piece is known again."""
    return blake2b(piece, digest_size=16).digest()


def _split_value(data: bytes, depth: int) -> Iterator[bytes]:
    """A serialized value cut at the elements of its lists and objects; put together again, the same bytes."""
    if depth and len(data) >= 2 * PIECE_MIN and (_is_array(data) or _is_map(data)):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            parts = [bytes(one) for one in _ARRAY.decode(data)] if _is_array(data) else list(_map_parts(data))
            head = len(data) - sum(map(len, parts))
            if 0 < head <= _HEAD_MAX and b"".join(parts) == data[head:]:
                yield data[:head]
                for part in parts:
                    yield from _split_value(part, depth - 1)
                return
    yield data


def _map_parts(data: bytes) -> Iterator[bytes]:
    for key, value in _MAP.decode(data).items():
        yield msgspec.msgpack.encode(key)
        yield bytes(value)


def _array_head(count: int) -> bytes:
    if count < 1 << 4:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


def _is_array(data: bytes) -> bool:
    return 0x90 <= data[0] <= 0x9F or data[0] in (0xDC, 0xDD)


def _is_map(data: bytes) -> bool:
    return 0x80 <= data[0] <= 0x8F or data[0] in (0xDE, 0xDF)
