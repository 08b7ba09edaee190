"""Routes about a log: pages of events, its outline, one event and its change, lineage, differences, the cache ledger.

The difference of two very large states tells the changed chunks only.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import UnknownEvent
from memory_engine.core.json_form import as_data
from memory_engine.core.records import RecordedEvent, StoredEvent
from memory_engine.core.state import Placed, State
from memory_engine.errors import IntegrityError
from memory_engine.inspector.answers import Inspection, Query, Route, TooMuch, WrongQuery
from memory_engine.inspector.offload import apart, beside
from memory_engine.inspector.outlines import chunk_row, event_row, operation_lines
from memory_engine.inspector.states import Laid, Seen
from memory_engine.replay.data import chunk_as_data, event_as_data
from memory_engine.replay.diff import ContextDiff, Diff, Point, diff
from memory_engine.replay.ledger import cache_ledger
from memory_engine.replay.lineage import shared_seq
from memory_engine.replay.matching import Side, match
from memory_engine.replay.why import why as explain
from memory_engine.store.protocol import Store, ThreadFilter
from memory_engine.thread import Past

WHOLE_MAX = 2_000
"""Up to this many chunks in a state, contexts and views are compared too: beyond, that takes too long for a page."""
DIFFERENT_MAX = 2_000
"""Chunks of either side that are compared of larger states."""


async def difference(a: Seen, b: Seen) -> dict[str, object]:
    """The difference as data (see `replay.diff.Diff`).

    Of larger states `context` and `views` are `None`, and `left_out` counts the chunks of either side, the oldest,
    that differ and were not compared.
    """
    one, other = await a.laid(), await b.laid()
    if max(len(one), len(other)) <= WHOLE_MAX:
        before, after = await a.held(), await b.held()
        return await apart(a.kernel, lambda: _whole(before, after))
    shared = await shared_seq(a.kernel, (a.id, a.seq), (b.id, b.seq))
    only_one, only_other, moved = await beside(lambda: _different(one, other, shared))
    is_forward = (a.seq, a.id) <= (b.seq, b.id)
    left, right = Side(a, await _narrowed(a, only_one)), Side(b, await _narrowed(b, only_other))
    found = await (match(left, right, shared) if is_forward else match(right, left, shared))
    chunks = found if is_forward else found.mirrored()
    whole = Diff(
        a=Point(a.id, a.seq, len(one), one.state.tally.tokens),
        b=Point(b.id, b.seq, len(other), other.state.tally.tokens),
        added=chunks.added,
        removed=chunks.removed,
        changed=chunks.changed,
        moved=tuple(moved),
        compacted=chunks.compacted,
        restored=chunks.restored,
        context=ContextDiff(tokens=(0, 0), bytes=(0, 0), kept_bytes=0, lines=()),
    )
    left_out = [max(0, len(only) - DIFFERENT_MAX) for only in (only_one, only_other)]
    return whole.as_data() | {"context": None, "views": None, "left_out": left_out}


async def _whole(a: Past, b: Past) -> dict[str, object]:
    return (await diff(a, b)).as_data()


def _different(one: Laid, other: Laid, shared: int) -> tuple[Sequence[Placed], Sequence[Placed], Sequence[str]]:
    """The chunks that stand on one side only, in its order, and the ids of those that stand elsewhere.

    A chunk made after the shared part of two logs is never the same as one of the other log, even with the same id.
    """
    before = {placed.chunk.id: placed for placed in one.placed if placed.chunk.seq <= shared}
    after = {placed.chunk.id: placed for placed in other.placed if placed.chunk.seq <= shared}
    moved = [
        chunk_id
        for chunk_id, placed in after.items()
        if (old := before.get(chunk_id)) is not None and (old.key, old.container) != (placed.key, placed.container)
    ]
    return _without(one.placed, after), _without(other.placed, before), moved


def _without(placed: Sequence[Placed], common: Collection[str]) -> Sequence[Placed]:
    return [place for place in placed if place.chunk.id not in common]


async def _narrowed(past: Seen, placed: Sequence[Placed]) -> State:
    """A flat state of the latest of these chunks alone, with their contents."""
    some = placed[-DIFFERENT_MAX:]
    chunks = await past.chunks([place.chunk.id for place in some])
    draft = State().draft()
    for n, place in enumerate(some):
        draft.insert(Placed(chunks[place.chunk.id], n.to_bytes(8, "big"), ""))
    return draft.freeze(past.seq)


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
    reader = inspection.engine.reader
    head = await inspection.engine.store.head(thread_id)
    upto = min(head.seq, after + limit)
    events: list[dict[str, object]] = []
    async for page in _pages(inspection.engine.store, thread_id, after, upto):
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
    """The outline of a log: compactions, forks, its first and last time."""
    thread_id = query.text("thread")
    store = inspection.engine.store
    head = await store.head(thread_id)
    compactions = await inspection.outlines.compactions(thread_id, head)
    forks = []
    for fork_id in await store.forks(thread_id):
        for record, _ in await store.threads(ThreadFilter(id=fork_id)):
            if record.forked_from is not None:
                forks.append({"thread_id": fork_id, "seq": record.forked_from.seq})
    ends = [to_datetime(row.recorded_at_us).isoformat() for row in await store.read_at(thread_id, [1, head.seq])]
    return {
        "head": head.seq,
        "status": head.status,
        "compactions": as_data(compactions),
        "forks": forks,
        "first_at": ends[0] if ends else None,
        "last_at": ends[-1] if ends else None,
    }


async def find(inspection: Inspection, query: Query) -> object:
    """Events after a seq that hold a text, are of a type, or both; `next` is where to go on, `null` at the end."""
    thread_id, kind = query.text("thread"), query.text("type", "")
    wanted = _PayloadFilter(query.text("q", ""))
    after, limit = query.number("after", 0), query.number("limit", 50, least=1, most=FOUND_MAX)
    reader = inspection.engine.reader
    head = await inspection.engine.store.head(thread_id)
    events: list[dict[str, object]] = []
    scanned = taken = 0
    types = {kind} if kind else None
    async for page in _pages(inspection.engine.store, thread_id, after, head.seq, types):
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
            return any(self._text in text.casefold() for text in _texts(msgspec.json.decode(payload)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return bool(self._bytes)


def _texts(value: object) -> Iterator[str]:
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
    """One event: its payload, its operations, and the difference that it made."""
    past = await inspection.past(query, least=1)
    reader = inspection.engine.reader
    recorded = reader.decode(past.id, (await reader.rows_at(past.id, {past.seq}))[past.seq])
    whole, others = recorded.chunks[:EVENT_CHUNKS_MAX], recorded.chunks[EVENT_CHUNKS_MAX:]
    return {
        **_event_as_data(recorded),
        "operations": operation_lines(recorded),
        "chunks": [*map(chunk_as_data, whole), *map(chunk_row, others)],
        "change": await _change(inspection.seen(past.id, past.seq - 1), past),
    }


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
    Route.of("event", "thread seq", event),
)


CALLS = 200
"""Model calls that a ledger looks at unless it is told where to begin."""
LEDGER_EVENTS_MAX = 5_000
LEDGER_CHUNKS_MAX = 2_000_000
"""Chunks in the contexts of a ledger, all together: they bound the time that it takes."""
LEDGER_STATE_CHUNKS_MAX = 10_000
"""Chunks of a state beyond which no ledger is made."""
_WINDOW = 512


async def why(inspection: Inspection, query: Query) -> object:
    """The explanation of a chunk, or a view's row (`view:NAME/KEY`): a tree that ends at events."""
    thread_id, chunk_id = query.text("thread"), query.text("chunk")
    head = await inspection.engine.store.head(thread_id)
    past = await inspection.seen(thread_id, head.seq).held()

    async def explained() -> dict[str, object]:
        return (await explain(past, chunk_id)).as_data()

    return await apart(inspection.engine.kernel, explained)


async def diff_of_points(inspection: Inspection, query: Query) -> object:
    """The difference from one seq to another, or from a seq of this thread to one of another (`other`)."""
    a = await inspection.past(query, "a")
    return await difference(a, await inspection.past(query, "b", thread=query.text("other", "")))


async def ledger(inspection: Inspection, query: Query) -> object:
    """Which events broke the prompt cache between two seqs; by default over the latest calls before `upto`."""
    engine, thread_id = inspection.engine, query.text("thread")
    head = await engine.store.head(thread_id)
    if head.chunks > LEDGER_STATE_CHUNKS_MAX:
        raise TooMuch("the cache ledger", head.chunks)
    upto = inspection.seen(thread_id, head.seq) if not query.text("upto", "") else await inspection.past(query, "upto")
    most = max(1, min(LEDGER_EVENTS_MAX, LEDGER_CHUNKS_MAX // (head.chunks + 1)))
    after = query.number_if_given("after")
    if after is None:
        after = await _calls_ago(inspection, upto, min(CALLS, most))
    elif after > upto.seq:
        raise WrongQuery("after", str(after), f"it is past `upto`, which is {upto.seq}")
    begin = inspection.seen(thread_id, max(after, upto.seq - most))
    max_tokens = query.number_if_given("max_tokens", least=1)

    async def kept() -> dict[str, object]:
        return (await cache_ledger(begin, upto, max_tokens)).as_data()

    return {"after": begin.seq, "upto": upto.seq, **await apart(engine.kernel, kept)}


async def _calls_ago(inspection: Inspection, upto: Seen, calls: int) -> int:
    """The seq before the last so many answers of a model, or as far back as a ledger goes."""
    store, registry = inspection.engine.store, inspection.engine.events
    types = {cls.event_type for cls in registry.classes() if cls.event_role == "assistant"}
    last, found, least = upto.seq, 0, max(0, upto.seq - LEDGER_EVENTS_MAX)
    while last > least:
        first = max(least, last - _WINDOW)
        page = await store.read(upto.id, after=first, upto=last, limit=_WINDOW, types=types)
        if found + len(page) >= calls:
            return page[found + len(page) - calls].seq - 1
        found, last = found + len(page), first
    return least


REPLAY_ROUTES = (
    Route.of("why", "thread chunk", why),
    Route.of("diff", "thread a b other", diff_of_points),
    Route.of("ledger", "thread after upto max_tokens", ledger),
)
