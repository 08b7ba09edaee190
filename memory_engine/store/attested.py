"""The stand-ins of redacted rows that the log's own events confirm: rows without their texts can hold nothing else.

The hash of a redacted row covers commitments to the recorded texts, so it does not tell stand-ins apart. The
act that removed the texts was recorded as an event of the same log, which names the digests of the stand-ins. Rows
that were redacted in an imported file have no such event: the file vouches for them, and `verify` counts them.

Which events of a thread came from a file is kept in the store, as rows of a projection that folds nothing, written by
the transaction of the events: the facts that they have for others were delivered where they came from. The rows go
with their thread, and a rebuild does not touch them.
"""

from collections.abc import Container, Mapping, Sequence

import msgspec

from memory_engine.core.chain import decode_row, is_redacted, stand_in_digest
from memory_engine.core.events.memory import EventsErased
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import Head, ThreadRecord
from memory_engine.store.protocol import ProjectionChange, Store, ThreadFilter

_ALL = 1 << 32


class Attested(msgspec.Struct, frozen=True):
    """The digests of a thread's stand-ins that acts in the logs it shares name, each with the act's seq."""

    digests: Mapping[int, tuple[str, int]] = {}

    def digest(self, seq: int) -> str:
        """The digest that an act names for a row; empty: none does."""
        return self.digests.get(seq, ("", 0))[0]

    def vouches(self, stored: StoredEvent, imported: Container[int]) -> bool:
        """Whether a row is as an act has left it, or as the file had it where it was `imported` after that act."""
        if not is_redacted(stored):
            return True
        digest, act = self.digests.get(stored.seq, ("", 0))
        came_so = stored.seq in imported and (not act or act in imported)
        return digest == stand_in_digest(stored) or came_so


async def attested_of(store: Store, registry: EventRegistry, thread_id: str) -> Attested:
    """The digests that hold for a thread. An act is recorded where its rows are: in the thread, or where it forked."""
    digests: dict[int, tuple[str, int]] = {}
    for record, head, last in await lineage(store, thread_id):
        first = record.forked_from.seq + 1 if record.forked_from is not None else 1
        upto = head.marks.get(EventsErased.event_type, 0)
        for stored in await _acts(store, record.id, upto):
            event, _ = decode_row(record.id, stored, registry)
            if stored.seq >= first and isinstance(event, EventsErased):
                digests.update((row.seq, (row.digest, stored.seq)) for row in event.rows if first <= row.seq <= last)
    return Attested(digests)


async def acts_in(store: Store, thread_id: str) -> tuple[tuple[int, int], ...]:
    """For each thread that a log is made of, when it was made, and the seq of the last act on it.

    While this is the same, no one has exchanged a row of the log, nor made another thread by its id.
    """
    parts = await lineage(store, thread_id)
    return tuple((record.created_at_us, head.marks.get(EventsErased.event_type, 0)) for record, head, _ in parts)


async def _acts(store: Store, thread_id: str, upto: int) -> Sequence[StoredEvent]:
    if not upto:
        return ()
    return await store.read(thread_id, after=0, upto=upto, limit=_ALL, types=(EventsErased.event_type,))


async def lineage(store: Store, thread_id: str) -> list[tuple[ThreadRecord, Head, int]]:
    """The threads that a log is made of, each with its head and its last seq in that log; the oldest first."""
    parts: list[tuple[ThreadRecord, Head, int]] = []
    at, last = thread_id, _ALL
    while at:
        found = await store.threads(ThreadFilter(id=at))
        if not found:
            break
        record, head = found[0]
        parts.append((record, head, last))
        origin = record.forked_from
        at, last = (origin.thread_id, min(last, origin.seq)) if origin is not None else ("", last)
    return parts[::-1]


PROJECTION = "imported"
VERSION = 1


class Imported(msgspec.Struct, frozen=True):
    """The events of a thread, its shared past included, that came from files: those after one seq up to another."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and any(after < seq <= upto for after, upto in self.ranges)


def imported(after: int, upto: int) -> ProjectionChange:
    """The change that notes that the events after one seq up to another came from a file."""
    return ProjectionChange(PROJECTION, VERSION, {f"{after:010d}": str(upto).encode()}, upto)


async def imported_of(store: Store, thread_id: str) -> Imported:
    """The ranges of events that came from files. Raises `ThreadNotFound`."""
    ranges: list[tuple[int, int]] = []
    for record, _, last in await lineage(store, thread_id):
        _, rows = await store.rows(PROJECTION, VERSION, record.id)
        ranges += ((int(after), min(int(upto), last)) for after, upto in rows.items())
    return Imported(tuple(ranges))
