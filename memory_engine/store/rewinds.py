"""Reads the rewinds of logs, for those who derive something from one."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

from memory_engine.core.chain import decode_event
from memory_engine.core.events.compaction import SourceQuarantined, ThreadRewound
from memory_engine.core.events.delivery import FactsRewound
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.records import RecordedEvent
from memory_engine.core.rewinding import ALL_SHOWN, REWINDING, Rewind, Rewinds, ShownEvents
from memory_engine.core.threads import Head
from memory_engine.store.snapshots import Snapshots, rewound_at
from memory_engine.store.walk import LogWalk

_ONE_BY_ONE = (FactsRewound, SourceQuarantined)
THREADS_MAX = 512
"""Threads whose rewinds are held in memory."""


class ReadsLogs(Protocol):
    """What is needed of a `LogReader`."""

    snapshots: Snapshots
    registry: EventRegistry

    async def head(self, thread_id: str) -> Head:
        """A thread's position."""
        ...

    def walk(self, thread_id: str, *, after: int = 0, upto: int, types: Collection[str] | None = None) -> LogWalk:
        """A walk of rows."""
        ...

    def events(self, thread_id: str, *, after: int, upto: int) -> AsyncIterator[RecordedEvent]:
        """Decoded events, in order."""
        ...


async def rewinds_of(reader: ReadsLogs, thread_id: str, head: Head | None = None) -> Rewinds:
    """The rewinds of a thread. Reads the log only if there are some that were not read yet."""
    mark = rewound_at(head if head is not None else await reader.head(thread_id))
    kept = reader.snapshots.rewinds
    found = kept.get(thread_id)
    if found is None or found[0] != mark:
        found = mark, await read_rewinds(reader, thread_id, mark)
        if len(kept) >= THREADS_MAX:
            kept.clear()
        kept[thread_id] = found
    return found[1]


async def shown_at(reader: ReadsLogs, thread_id: str, seq: int, head: Head | None = None) -> ShownEvents:
    """The events that are shown after the one at a seq. `head` saves reading it."""
    head = head if head is not None else await reader.head(thread_id)
    return (await rewinds_of(reader, thread_id, head)).at(seq) if rewound_at(head) else ALL_SHOWN


async def shown_events(reader: ReadsLogs, thread_id: str, *, after: int = 0, upto: int) -> AsyncIterator[RecordedEvent]:
    """The events with `after` < seq <= `upto` that are shown after the one at `upto`, in order."""
    shown = await shown_at(reader, thread_id, upto)
    async for event in reader.events(thread_id, after=after, upto=upto):
        if shown.shows(event):
            yield event


async def read_rewinds(reader: ReadsLogs, thread_id: str, upto: int) -> Rewinds:
    """The rewinds of a thread up to a seq, read from the log."""
    rows = [
        (stored.seq, decode_event(thread_id, stored, reader.registry))
        async for stored in reader.walk(thread_id, upto=upto, types=REWINDING)
    ]
    known = {one for _, event in rows if isinstance(event, _ONE_BY_ONE) for one in (*event.hidden, *event.shown)}
    seqs = await reader.snapshots.seqs_of(thread_id, sorted(known))

    def here(ids: Sequence[str]) -> tuple[int, ...]:
        return tuple(seqs[one] for one in ids if one in seqs)

    found: list[Rewind] = []
    for seq, event in rows:
        if isinstance(event, ThreadRewound):
            found.append(Rewind(seq, min(event.to, seq - 1)))
        elif isinstance(event, _ONE_BY_ONE):
            found.append(Rewind(seq, hidden=here(event.hidden), shown=here(event.shown)))
    return Rewinds(found)
