"""The data of the storage contract: plain rows, and short functions to commit and read them."""

from collections.abc import Mapping, Sequence

import msgspec

from memory_engine.core.events.messages import UserMessage
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ForkPoint, Head, LiveChunk, ThreadRecord
from memory_engine.store.protocol import CommitUnit, ProjectionChange, Store

HOSTILE = (
    "plain",
    "PLAIN",
    "%",
    "_",
    "*",
    "plai_",
    "pl%",
    "?",
    "[a-z]",
    "'",
    '"',
    "' OR '1'='1",
    "x'; DROP TABLE threads; --",
    "../../etc/passwd",
    "C:\\temp",
    "tab\there",
    "line\nbreak",
    " plain",
    "naïve",
    "nai\u0308ve",
    "👩‍👩‍👧",
    "0",
    "00",
    "NULL",
)
"""Values that a careless query takes for patterns, paths, SQL, numbers, or for one another."""

IDS = (
    "0190a8f2-7c1e-7abc-8def-0123456789ab",
    "0190A8F2-7C1E-7ABC-8DEF-0123456789AB",
    "0190a8f27c1e7abc8def0123456789ab",
    *HOSTILE,
    "é" * 2048,
    "x" * 4096,
)
"""Ids that are all different: UUIDs in three spellings, texts, and 4 KB."""


def event(seq: int, payload: bytes = b"{}", *, id: str = "", record: bytes = b"") -> StoredEvent:
    """A row of the log at `seq`; its id is `e<seq>` if none is given."""
    return StoredEvent(
        seq=seq,
        id=id or f"e{seq}",
        type=UserMessage.event_type,
        version=1,
        recorded_at_us=1_000_000 + seq,
        occurred_at_us=None,
        causation_id="",
        correlation_id="",
        payload=payload,
        record=record,
        salt=bytes([seq % 256]) * 16,
        hash=bytes([seq % 256]) * 32,
        previous=head_at(seq - 1).hash,
    )


def head_at(seq: int, *, epoch: int = 0) -> Head:
    """The head after the event at `seq`."""
    return Head(seq=seq, hash=bytes([seq % 256]) * 32 if seq else b"", epoch=epoch)


def unit(
    thread_id: str,
    *events: StoredEvent,
    after: Head = Head(),  # noqa: B008 - frozen
    live: Mapping[str, LiveChunk | None] | None = None,
    projections: Sequence[ProjectionChange] = (),
) -> CommitUnit:
    """A commit of these events after the head `after`."""
    last = events[-1].seq if events else after.seq
    head = msgspec.structs.replace(head_at(last), epoch=after.epoch)
    return CommitUnit(
        thread_id=thread_id,
        expected=after,
        head=head,
        events=events,
        live=live or {},
        projections=projections,
    )


async def filled(store: Store, thread_id: str, count: int) -> Head:
    """Make a thread with `count` events, `e1` and so on; return its head."""
    await store.create(ThreadRecord(id=thread_id), Head(), ())
    await store.commit(unit(thread_id, *map(event, range(1, count + 1))))
    return head_at(count)


async def forked(store: Store, thread_id: str, parent: str, at: int, own: int = 0) -> Head:
    """Fork a thread at `at` and give the fork `own` events, with ids `<thread_id>-<seq>`; return its head."""
    await store.create(ThreadRecord(id=thread_id, forked_from=ForkPoint(parent, at)), head_at(at), ())
    rows = [event(seq, id=f"{thread_id}-{seq}") for seq in range(at + 1, at + own + 1)]
    if rows:
        await store.commit(unit(thread_id, *rows, after=head_at(at)))
    return head_at(at + own)


async def ids_of(store: Store, thread_id: str) -> list[str]:
    """The ids of a thread's events, in order."""
    return [stored.id for stored in await store.read(thread_id, after=0, upto=1 << 30, limit=1 << 30)]
