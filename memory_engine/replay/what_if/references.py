"""References from event to event: seqs and chunk ids that payloads name, kept right where a rerun moves events."""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeVar, cast

import msgspec

from memory_engine.core.events.roles import Reference, roles_of
from memory_engine.core.lazy import regex

_CHUNK = regex(r"([1-9][0-9]{0,17})\.(0|[1-9][0-9]*)")
_FACT = regex(r"([0-9]{10,18})\.(0|[1-9][0-9]*)")
_NUMBER = regex(r"[1-9][0-9]{0,17}")

S = TypeVar("S", bound=msgspec.Struct)


class Places:
    """The places of a log's events in its rerun: each at its old seq, or shifted, or nowhere."""

    def __init__(self, upto: int = 0) -> None:
        """Events up to `upto` keep their places."""
        self._last = upto
        self._starts = [0]
        self._shifts = [0]
        self._gone: set[int] = set()

    @property
    def are_same(self) -> bool:
        """Whether every event keeps its place."""
        return len(self._starts) == 1 and not self._gone

    def put(self, old: int, new: int) -> None:
        """The next event, at `old` in the log, is at `new`."""
        self._last = old
        if new - old != self._shifts[-1]:
            self._starts.append(old)
            self._shifts.append(new - old)

    def drop(self, old: int) -> None:
        """The next event has no place in the rerun."""
        self._last = old
        self._gone.add(old)

    def seq(self, old: int) -> int:
        """The place of an event; 0 for none: it was left out, or there was no such event yet."""
        return 0 if old in self._gone or not 0 < old <= self._last else old + self._shift(old)

    def floor(self, old: int) -> int:
        """The place of the last event at `old` or before it that has one."""
        old = min(old, self._last)
        while old in self._gone:
            old -= 1
        return old + self._shift(old) if old > 0 else old

    def chunk(self, chunk_id: str) -> str:
        """The chunk's id in the rerun, empty if it has none; a text that is not a chunk id does not change."""
        return self._numbered(_CHUNK, chunk_id, 1)

    def fact(self, fact_id: str) -> str:
        """The same for the id of a fact in an outbox."""
        return self._numbered(_FACT, fact_id, 10)

    def number(self, text: str) -> str:
        """The same for a seq that is written as text."""
        return str(self.seq(int(text)) or "") if _NUMBER.fullmatch(text) else text

    def _numbered(self, shape: re.Pattern[str], value: str, digits: int) -> str:
        found = shape.fullmatch(value)
        if found is None:
            return value
        seq = self.seq(int(found[1]))
        return f"{seq:0{digits}d}.{found[2]}" if seq else ""

    def _shift(self, old: int) -> int:
        return self._shifts[bisect_right(self._starts, old) - 1]


Refer = Callable[[Places, object, int], object]
"""A reference for the rerun; falsy for one whose event has no place there. The int is the event's seq."""


def _chunk(places: Places, value: object, _seq: int) -> object:
    return places.chunk(value) if isinstance(value, str) else value


def _moved_seq(places: Places, value: object, _own: int) -> object:
    return places.seq(value) if isinstance(value, int) else value


def _bound(places: Places, value: object, _own: int) -> object:
    """A seq up to which something was read: any event may have it, also one that is left out."""
    return places.floor(value) if isinstance(value, int) else value


def _counted_back(places: Places, value: object, own: int) -> object:
    """A seq, or (negative) how many before the event's own: unchanged while that still leads to the same event."""
    if not isinstance(value, int) or value >= 0:
        return _moved_seq(places, value, own)
    if own == 0:
        return value
    there = places.seq(own + value)
    return value if there and there - places.seq(own) == value else there


def _fact(places: Places, value: object, _seq: int) -> object:
    return places.fact(value) if isinstance(value, str) else value


def _moved_number(places: Places, value: object, _seq: int) -> object:
    return places.number(value) if isinstance(value, str) else value


def _unchecked(_places: Places, _value: object, _seq: int) -> object:
    """In a rerun an undoing needs not come directly after what it had seen: nothing happens at the same time."""
    return 0


_REFER: Mapping[Reference, Refer] = {
    Reference.CHUNK: _chunk, Reference.FACT: _fact, Reference.SEQ: _moved_seq, Reference.WRITTEN: _moved_number,
    Reference.BACK: _counted_back, Reference.BOUND: _bound, Reference.SEEN: _unchecked,
}  # fmt: skip
_USUAL: Mapping[str, Refer] = {
    "chunk_id": _chunk, "chunk_ids": _chunk, "seq": _moved_seq, "seqs": _moved_seq, "drawn_from": _moved_seq,
}  # fmt: skip
"""The names of such fields in events of plug-ins."""


@cache
def references_of(cls: type[msgspec.Struct]) -> Mapping[str, Refer]:
    """The fields of an event's class, or of a struct inside events, that name events of the same log."""
    roles = roles_of(cls)
    is_own = cls.__module__.partition(".")[0] == "memory_engine"
    found = {} if is_own else {name: _USUAL[name] for name in cls.__struct_fields__ if name in _USUAL}
    for name, role in roles.items():
        found.pop(name, None)
        if role.reference is not Reference.NONE:
            found[name] = _REFER[role.reference]
    return found


def renumbered(event: S, places: Places, seq: int) -> S:
    """The event that stood at `seq`, naming what it names by its place in the rerun; the very same where none moved.

    `seq` 0: it was nowhere, and seqs counted back from itself do not change.
    A reference without a place there is left out of a list; a field that holds a single reference then is empty, or 0.
    """
    return event if places.are_same else _struct(event, places, seq)


def _struct(value: S, places: Places, seq: int) -> S:
    refers = references_of(type(value))
    changes: dict[str, object] = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        new = _referred(old, refers[name], places, seq) if name in refers else _inside(old, places, seq)
        if new is not old and new != old:
            changes[name] = new
    return msgspec.structs.replace(value, **changes) if changes else value


def _referred(value: object, refer: Refer, places: Places, seq: int) -> object:
    if isinstance(value, tuple | list):
        moved = [(one, refer(places, one, seq)) for one in value]
        return type(value)(new for old, new in moved if new or not old)
    return refer(places, value, seq)


def _inside(value: object, places: Places, seq: int) -> object:
    match value:
        case msgspec.Struct():
            return _struct(value, places, seq)
        case tuple() | list() if value and not isinstance(value[0], str | int):
            items = cast("tuple[object, ...]", value)
            return type(items)(_inside(one, places, seq) for one in items)
    return value
