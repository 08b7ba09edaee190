"""Event ids: UUIDv7 (RFC 9562), sortable by the millisecond they were made in."""

import os
from typing import Protocol

from memory_engine.errors import InvalidIdentifier

ID_BYTES_MAX = 4096
_DRAWN = 256


class IdSource(Protocol):
    """The source of new event ids and salts: the engine's only randomness."""

    def event_id(self, now_us: int) -> str:
        """A new event id for the time `now_us` (microseconds since 1970, UTC)."""
        ...

    def salt(self) -> bytes:
        """16 fresh bytes."""
        ...


class RandomIds:
    """UUIDv7 ids and salts from the operating system.

    They are drawn many at a time: a call of the system lets another thread go on, and may wait milliseconds for its
    turn. A process that is forked off draws its own.
    """

    def __init__(self) -> None:
        self._drawn: list[bytes] = []
        self._pid = os.getpid()

    def _draw(self) -> bytes:
        """16 bytes that were given to nobody."""
        if self._pid != (pid := os.getpid()):
            self._pid, self._drawn = pid, []
        try:
            return self._drawn.pop()
        except IndexError:
            fresh = os.urandom(_DRAWN * 16)
            self._drawn.extend(fresh[at : at + 16] for at in range(16, len(fresh), 16))
            return fresh[:16]

    def event_id(self, now_us: int) -> str:
        """A UUIDv7 in canonical form."""
        return uuid7(now_us // 1000, self._draw()[:10])

    def salt(self) -> bytes:
        """16 bytes from the operating system."""
        return self._draw()


def uuid7(unix_ms: int, random: bytes) -> str:
    """The canonical text of a UUIDv7 of this millisecond and 10 random bytes."""
    digits = random.hex()
    moment = f"{unix_ms & 0xFFFFFFFFFFFF:012x}"
    variant = "89ab"[random[2] & 3]
    return f"{moment[:8]}-{moment[8:]}-7{digits[:3]}-{variant}{digits[5:8]}-{digits[8:]}"


def check_identifier(what: str, value: str) -> str:
    """`value`, if every store can hold and compare it exactly.

    Raises `InvalidIdentifier` for an empty text, a NUL, a lone surrogate, more than 4,096 bytes, or another type.
    """
    try:
        size = len(value.encode())
    except AttributeError:  # `None`, most often: a user without an id
        raise InvalidIdentifier(what, repr(value), "it is not a text") from None
    except UnicodeEncodeError:
        raise InvalidIdentifier(what, ascii(value), "it holds a lone surrogate") from None
    if not value:
        raise InvalidIdentifier(what, value, "it is empty")
    if size > ID_BYTES_MAX:
        raise InvalidIdentifier(what, value, f"it takes {size} bytes; the limit is {ID_BYTES_MAX}")
    if "\x00" in value:
        raise InvalidIdentifier(what, value, "it holds a NUL character")
    return value
