"""Order keys: byte strings between which there is always another, so that a move writes one row.

A key is an integer part (a length byte, then the big-endian digits, so that appending
gives keys of constant length for a long time) and a fraction that never ends in zero.
Compared as bytes. The scheme is fractional indexing (D. Greenspan, "Implementing
Fractional Indexing", 2020) over base 256.
"""

ZERO = b"\x80"
"""The first key of an empty sequence: integer 0, no fraction."""


_OFFSETS: tuple[int, ...] = tuple((256**size - 1) // 255 for size in range(10))
"""How many numbers take fewer than `size` digit bytes: 0, 1, 257, …"""


def key_after(key: bytes) -> bytes:
    """The next integer key: shorter than a key between, and the one appending needs."""
    if len(key) == key[0] - 0x7F > 1 and key[-1] < 0xFF:
        return key[:-1] + bytes((key[-1] + 1,))  # a whole number whose last digit has room: almost always
    return _encode(_integer(key)[0] + 1)


def key_before(key: bytes) -> bytes:
    """The integer key before `key`."""
    number, size = _integer(key)
    return _encode(number) if len(key) > size else _encode(number - 1)


def key_between(low: bytes | None, high: bytes | None) -> bytes:
    """A key strictly between; `None` is an open end. Needs low < high."""
    if low is None:
        return ZERO if high is None else key_before(high)
    if high is None:
        return key_after(low)
    number, size = _integer(low)
    following = _encode(number + 1)
    if following < high:
        return following
    high_number, high_size = _integer(high)
    fraction = high[high_size:] if high_number == number else b""
    return low[:size] + _middle(low[size:], fraction)


def _integer(key: bytes) -> tuple[int, int]:
    """The integer part's value and its length in bytes."""
    head = key[0]
    size = abs(head - 0x80)
    digits = int.from_bytes(key[1 : 1 + size], "big")
    if head >= 0x80:
        return digits + _OFFSETS[size], 1 + size
    return digits - 256**size + 1 - _OFFSETS[size], 1 + size


def _encode(number: int) -> bytes:
    magnitude, size = abs(number), 0
    while magnitude >= _OFFSETS[size + 1]:
        size += 1
    if number >= 0:
        return bytes([0x80 + size]) + (number - _OFFSETS[size]).to_bytes(size, "big")
    digits: int = 256**size - 1 + number + _OFFSETS[size]
    return bytes([0x80 - size]) + digits.to_bytes(size, "big")


def _middle(low: bytes, high: bytes) -> bytes:
    """A fraction strictly between two fractions; an empty `high` is one."""
    digits = bytearray()
    at = 0
    while True:
        a = low[at] if at < len(low) else 0
        b = high[at] if high and at < len(high) else 256
        if b - a > 1:
            digits.append((a + b) // 2)
            return bytes(digits)
        digits.append(a)
        if b > a:
            high = b""
        at += 1
