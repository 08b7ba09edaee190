"""Routes that explain: where a chunk comes from, how two points differ, and what broke the prompt cache."""

from memory_engine.core.chain import decode_row
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.inspector.answers import Inspection, Query, Route, TooMuch, WrongQuery
from memory_engine.inspector.differences import difference
from memory_engine.inspector.offload import apart
from memory_engine.inspector.states import Seen
from memory_engine.replay.cache_breaks import Runs
from memory_engine.replay.ledger import cache_ledger
from memory_engine.replay.why import why as explain

CALLS = 200
"""How many model calls a ledger covers by default."""
LEDGER_EVENTS_MAX = 5_000
LEDGER_CHUNKS_MAX = 2_000_000
"""The most chunks in all contexts of a ledger, which bound its time."""
COUNTED_EVENTS_MAX = 20_000
"""The most events of a log whose calls are counted."""
LEDGER_STATE_CHUNKS_MAX = 10_000
"""The most chunks of a state for a ledger."""
_WINDOW = 512


async def why(inspection: Inspection, query: Query) -> object:
    """The explanation of a chunk, or a view's row (`view:NAME/KEY`): a tree that ends at events."""
    thread_id, chunk_id = query.text("thread"), query.text("chunk")
    head = await kernel_of(inspection.engine).store.head(thread_id)
    past = await inspection.seen(thread_id, head.seq).held()

    async def explained() -> dict[str, object]:
        return (await explain(past, chunk_id)).as_data()

    return await apart(kernel_of(inspection.engine), explained)


async def diff_of_points(inspection: Inspection, query: Query) -> object:
    """The changes from one seq to another, or from a seq of this thread to one of another (`other`)."""
    a = await inspection.past(query, "a")
    return await difference(a, await inspection.past(query, "b", thread=query.text("other", "")))


async def ledger(inspection: Inspection, query: Query) -> object:
    """Which events broke the prompt cache between two seqs; by default over the latest calls before `upto`."""
    engine, thread_id = inspection.engine, query.text("thread")
    head = await kernel_of(engine).store.head(thread_id)
    if head.chunks > LEDGER_STATE_CHUNKS_MAX:
        raise TooMuch("the cache ledger", head.chunks)
    upto = inspection.seen(thread_id, head.seq) if not query.text("upto", "") else await inspection.past(query, "upto")
    most = max(1, min(LEDGER_EVENTS_MAX, LEDGER_CHUNKS_MAX // (head.chunks + 1)))
    after = query.number_if_given("after")
    if after is None:
        after = await _calls_ago(inspection, upto, min(CALLS, most))
    elif after > upto.seq:
        raise WrongQuery("after", str(after), f"it is after `upto`, which is {upto.seq}")
    begin = inspection.seen(thread_id, max(after, upto.seq - most))
    max_tokens = query.number_if_given("max_tokens", least=1)

    async def kept() -> dict[str, object]:
        return (await cache_ledger(begin, upto, max_tokens)).as_data()

    all_calls = await _calls_in_all(inspection, upto)
    return {"after": begin.seq, "upto": upto.seq, "all_calls": all_calls, **await apart(kernel_of(engine), kept)}


async def _calls_in_all(inspection: Inspection, upto: Seen) -> int | None:
    """The number of model calls up to a seq; `None` if the log is too long to count them for a page."""
    if upto.seq > COUNTED_EVENTS_MAX:
        return None
    reader, count = kernel_of(inspection.engine).reader, 0
    runs = Runs(inspection.engine.events)

    def step(stored: StoredEvent) -> None:
        nonlocal count
        _, is_new = runs.next(decode_row(upto.id, stored, reader.registry)[0], stored.id)
        count += is_new

    await reader.walk(upto.id, upto=upto.seq).feed(step)
    return count


async def _calls_ago(inspection: Inspection, upto: Seen, calls: int) -> int:
    """The seq before a model's latest answers, or as far back as a ledger goes."""
    reader, registry = kernel_of(inspection.engine).reader, inspection.engine.events
    types = {cls.event_type for cls in registry.classes() if cls.event_role == "assistant"}
    last, found, least = upto.seq, 0, max(0, upto.seq - LEDGER_EVENTS_MAX)
    while last > least:
        first = max(least, last - _WINDOW)
        rows = await reader.walk(upto.id, after=first, upto=last, types=types, raw=True).all()
        if found + len(rows) >= calls:
            return rows[found + len(rows) - calls].seq - 1
        found, last = found + len(rows), first
    return least


REPLAY_ROUTES = (
    Route.of("why", "thread chunk", why),
    Route.of("diff", "thread a b other", diff_of_points),
    Route.of("ledger", "thread after upto max_tokens", ledger),
)
