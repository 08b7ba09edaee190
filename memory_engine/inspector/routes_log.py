"""Routes about a log: pages of events, its outline, what is found in it, one event and its change."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import UnknownEvent
from memory_engine.core.json_form import as_data
from memory_engine.core.records import RecordedEvent, StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.errors import IntegrityError
from memory_engine.inspector.answers import Inspection, Query, Route
from memory_engine.inspector.differences import difference
from memory_engine.inspector.offload import beside
from memory_engine.inspector.outlines import chunk_row, compaction_row, event_row, operation_lines
from memory_engine.inspector.states import Seen
from memory_engine.replay.data import chunk_as_data, event_as_data
from memory_engine.replay.withheld import standing_in
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.protocol import Store, ThreadFilter
from memory_engine.store.rewinds import shown_at

EVENTS_AT_ONCE_MAX = 1_000
ROWS_LEAST = 16
ROWS_MOST = 512
"""Rows that are read at a time."""
PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of payloads beyond which fewer rows are read next time."""
PAYLOAD_LONG = 100_000
"""Bytes of a payload that is taken apart in a turn of its own."""
SCANNED_MAX = 20_000
SCANNED_BYTES_MAX = 64 * 1024 * 1024
"""Events, and bytes of their payloads, that one search looks at."""
FOUND_MAX = 500
EVENT_CHUNKS_MAX = 200
"""Chunks of one event that are given whole; of the others, the beginnings."""


async def timeline(inspection: Inspection, query: Query) -> object:
    """Events after a seq, in order."""
    thread_id = query.text("thread")
    after, limit = query.number("after", 0), query.number("limit", 200, least=1, most=EVENTS_AT_ONCE_MAX)
    reader = kernel_of(inspection.engine).reader
    head = await kernel_of(inspection.engine).store.head(thread_id)
    upto = min(head.seq, after + limit)
    events: list[dict[str, object]] = []
    async for page in _pages(kernel_of(inspection.engine).store, thread_id, after, upto):
        for stored in page:
            events.append(event_row(reader, thread_id, stored))
            if len(stored.payload) > PAYLOAD_LONG:
                await asyncio.sleep(0)
    return {"head": head.seq, "events": events}


async def _pages(
    store: Store, thread_id: str, after: int, upto: int, types: Collection[str] | None = None
) -> AsyncIterator[Sequence[StoredEvent]]:
    """Rows with `after` < seq <= `upto`, in order: the fewer at a time the more bytes their payloads take."""
    rows = ROWS_LEAST
    while after < upto:
        page = await store.read(thread_id, after=after, upto=upto, limit=rows, types=types)
        if not page:
            return
        yield page
        is_light = sum(len(stored.payload) for stored in page) < PAGE_BYTES
        rows = min(rows * 2, ROWS_MOST) if is_light else max(ROWS_LEAST, rows // 2)
        after = page[-1].seq


async def outline(inspection: Inspection, query: Query) -> object:
    """The outline of a log: compactions, forks, ranges of events that were taken back, its first and last time."""
    thread_id = query.text("thread")
    store = kernel_of(inspection.engine).store
    head = await store.head(thread_id)
    ((record, _),) = await store.threads(ThreadFilter(id=thread_id))
    compactions = await inspection.outlines.compactions(thread_id, head)
    forks = []
    for fork_id in await store.forks(thread_id):
        for record, _ in await store.threads(ThreadFilter(id=fork_id)):
            if record.forked_from is not None:
                forks.append({"thread_id": fork_id, "seq": record.forked_from.seq})
    ends = [to_datetime(row.recorded_at_us).isoformat() for row in await store.read_at(thread_id, [1, head.seq])]
    return {
        "head": head.seq,
        "kind": record.kind,
        "status": head.status,
        "compactions": as_data([compaction_row(one) for one in compactions]),
        "forks": forks,
        "quarantines": await _quarantined(kernel_of(inspection.engine), thread_id),
        "taken_back": list((await shown_at(inspection.engine.reader, thread_id, head.seq, head)).gaps),
        "first_at": ends[0] if ends else None,
        "last_at": ends[-1] if ends else None,
    }


async def _quarantined(kernel: Kernel, thread_id: str) -> list[dict[str, object]]:
    """The quarantines in force, each with the seqs of the events that it hides."""
    found: list[dict[str, object]] = []
    for one in (await standing_in(kernel, thread_id)).values():
        hidden = await kernel.store.find(thread_id, sorted(one.hidden))
        (begun,) = await kernel.store.read_at(thread_id, [one.seqs[0]])
        found.append(
            {
                "source": one.source,
                "of": one.of,
                "by": one.by,
                "reason": one.reason,
                "since": to_datetime(begun.recorded_at_us).isoformat(),
                "seqs": sorted(stored.seq for stored in hidden),
            }
        )
    return found


async def find(inspection: Inspection, query: Query) -> object:
    """Events after a seq that hold a text, are of a type, or both; `next` is where to go on, `null` at the end."""
    thread_id, kind = query.text("thread"), query.text("type", "")
    wanted = _PayloadFilter(query.text("q", ""))
    after, limit = query.number("after", 0), query.number("limit", 50, least=1, most=FOUND_MAX)
    reader = kernel_of(inspection.engine).reader
    head = await kernel_of(inspection.engine).store.head(thread_id)
    events: list[dict[str, object]] = []
    scanned = taken = 0
    types = {kind} if kind else None
    async for page in _pages(kernel_of(inspection.engine).store, thread_id, after, head.seq, types):
        for stored in await beside(partial(wanted.among, page, limit - len(events))):
            events.append(event_row(reader, thread_id, stored))
            if len(events) == limit:
                return {"events": events, "next": stored.seq if stored.seq < head.seq else None}
        scanned += len(page)
        taken += sum(len(stored.payload) for stored in page)
        if scanned >= SCANNED_MAX or taken >= SCANNED_BYTES_MAX:
            return {"events": events, "next": page[-1].seq if page[-1].seq < head.seq else None}
    return {"events": events, "next": None}


class _PayloadFilter:
    """A text to be found in payloads, in any case of letters: first in the bytes, then in the decoded values."""

    def __init__(self, text: str) -> None:
        self._text = text.casefold()
        self._bytes = msgspec.json.encode(text.lower())[1:-1] if text.isascii() else b""

    def among(self, page: Sequence[StoredEvent], at_most: int) -> list[StoredEvent]:
        """The rows that hold it, the first `at_most` of them."""
        found: list[StoredEvent] = []
        for stored in page:
            if len(found) == at_most:
                break
            if not self._text or self._is_in(stored.payload):
                found.append(stored)
        return found

    def _is_in(self, payload: bytes) -> bool:
        if self._bytes and self._bytes not in payload.lower():
            return False
        try:
            return any(self._text in text.casefold() for text in _payload_texts(msgspec.json.decode(payload)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return bool(self._bytes)


def _payload_texts(value: object) -> Iterator[str]:
    """The texts and numbers in a payload; not the names of its fields."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        match one:
            case str():
                yield one
            case dict():
                waiting += one.values()
            case list():
                waiting += one
            case int() | float() if not isinstance(one, bool):
                yield str(one)


async def event(inspection: Inspection, query: Query) -> object:
    """One event: its payload, its operations, and the difference that it made.

    With `quick`, an event of a long log comes at once, without the difference: `is_later`, it can be asked for.
    """
    past = await inspection.past(query, least=1)
    reader = kernel_of(inspection.engine).reader
    recorded = reader.decode(past.id, (await reader.rows_at(past.id, {past.seq}))[past.seq])
    whole, others = recorded.chunks[:EVENT_CHUNKS_MAX], recorded.chunks[EVENT_CHUNKS_MAX:]
    told = {
        **_event_as_data(recorded),
        "operations": operation_lines(recorded),
        "chunks": [*map(chunk_as_data, whole), *map(chunk_row, others)],
    }
    if query.number("quick", 0, most=1) and not await inspection.states.is_at_hand(past.id, past.seq):
        return told | {"change": None, "is_later": True}
    return told | {"change": await _change(inspection.seen(past.id, past.seq - 1), past)}


def _event_as_data(recorded: RecordedEvent) -> dict[str, object]:
    try:
        return event_as_data(recorded)
    except (ValueError, RecursionError):  # an unknown type whose payload is not readable JSON: shown as text
        raw = recorded.event.raw if isinstance(recorded.event, UnknownEvent) else b""
        readable = replace(recorded, event=UnknownEvent(recorded.type, recorded.version, b"null"))
        return event_as_data(readable) | {"payload": raw.decode("utf-8", "replace")}


async def _change(before: Seen, after: Seen) -> object:
    try:
        return await difference(before, after)
    except IntegrityError as error:  # the event itself can be read, and is shown
        return {"error": {"type": type(error).__name__, "message": str(error)}}


LOG_ROUTES = (
    Route.of("timeline", "thread after limit", timeline),
    Route.of("outline", "thread", outline),
    Route.of("find", "thread q type after limit", find),
    Route.of("event", "thread seq quick", event),
)
