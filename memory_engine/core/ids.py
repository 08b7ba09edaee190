"""Event ids: UUIDv7 (RFC 9562), sortable by the millisecond they were made in."""

import os
import struct
from collections.abc import Iterator
from typing import Protocol
from weakref import WeakSet

from memory_engine.errors import InvalidIdentifier

ID_BYTES_MAX = 4096
_DRAWN = 4096


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
        self._drawn: Iterator[tuple[bytes]] = iter(())
        _DRAWING.add(self)

    def forget(self) -> None:
        """Draw again: the drawn ones belong to the process that this one was forked from."""
        self._drawn = iter(())

    def event_id(self, now_us: int) -> str:
        """A UUIDv7 in canonical form."""
        return uuid7(now_us // 1000, self.salt()[:10])

    def salt(self) -> bytes:
        """16 bytes from the operating system that no other id has."""
        try:
            return next(self._drawn)[0]
        except StopIteration:
            self._drawn = struct.iter_unpack("16s", os.urandom(_DRAWN))
            return next(self._drawn)[0]


_DRAWING: "WeakSet[RandomIds]" = WeakSet()


def _forget_the_parents() -> None:
    for ids in list(_DRAWING):
        ids.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parents)


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
