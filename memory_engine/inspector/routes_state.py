"""Routes about the store and its threads, and about a thread at a seq: its state, context, chunks, views."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import cast

import msgspec
from attrs import frozen

from memory_engine.context.builder import Context, ContextBuilder
from memory_engine.context.rendering import Message, message_tokens
from memory_engine.core.json_form import as_data, named
from memory_engine.core.threads import Head, ThreadInfo, ThreadRecord
from memory_engine.core.tokens import TokenCounter
from memory_engine.errors import UnknownView
from memory_engine.inspector.answers import Inspection, Query, Route
from memory_engine.inspector.offload import beside
from memory_engine.inspector.outlines import chunk_row
from memory_engine.projections.base import Projection, event_types
from memory_engine.projections.inline import last_of
from memory_engine.replay.data import chunk_as_data
from memory_engine.store.protocol import ThreadFilter

CHUNKS_MAX = 2_000
ROWS_MAX = 1_000
MESSAGE_MAX = 20_000
"""Characters of a message's text that are given; `chars` is how long it is."""


async def state(inspection: Inspection, query: Query) -> object:
    """The chunks of the state at a seq, in order, a page of them; the totals are over all."""
    past = await inspection.past(query)
    offset, limit = (
        query.number("offset", 0),
        query.number("limit", CHUNKS_MAX, least=1, most=CHUNKS_MAX),
    )
    laid = await past.laid()
    page = laid.placed[offset : offset + limit]
    chunks = await inspection.states.chunks(past.id, [placed.chunk.id for placed in page])
    return {
        "seq": past.seq,
        "tokens": laid.state.tally.tokens,
        "total": len(laid.placed),
        "offset": offset,
        "limit": limit,
        "chunks": [chunk_row(chunks[placed.chunk.id], placed.container) for placed in page],
        "by_type": as_data(laid.by_type),
    }


async def context(inspection: Inspection, query: Query) -> object:
    """The context that a model would have been sent after a seq. Raises `ContextBudgetError`."""
    past, max_tokens = await inspection.past(query), query.number_if_given("max_tokens", least=1)
    whole = await past.state()
    builder = inspection.engine.kernel[ContextBuilder]

    def build() -> dict[str, object]:
        return _context_as_data(builder.build(whole, past.id, max_tokens), max_tokens, builder.counter)

    return await beside(build)


def _context_as_data(built: Context, max_tokens: int | None, counter: TokenCounter) -> dict[str, object]:
    return {
        "messages": [_message_row(message, counter) for message in built.messages],
        "tokens": built.tokens,
        "max_tokens": max_tokens,
        **named(built, "tokens_exact tokenizer"),
        **named(built, "spent included excluded shortened"),
    }


def _message_row(message: Message, counter: TokenCounter) -> dict[str, object]:
    text = _text_of(message.get("content"))
    row: dict[str, object] = {
        "role": message.get("role"),
        "content": text[:MESSAGE_MAX],
        "chars": len(text),
        "tool_calls": message.get("tool_calls") or [],
        "tokens": message_tokens(message, counter),
    }
    return row | {name: message[name] for name in ("name", "tool_call_id") if name in message}


def _text_of(content: object) -> str:
    """The text of a message's content; an image stands as `[image]`."""
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, object]]", content or [])
    return "\n".join(str(part["text"]) if part.get("type") == "text" else "[image]" for part in parts)


async def chunk(inspection: Inspection, query: Query) -> object:
    """A chunk with its whole text, also one that a compaction covers."""
    thread_id, chunk_id = query.text("thread"), query.text("id")
    return chunk_as_data((await inspection.engine.reader.chunks(thread_id, [chunk_id]))[chunk_id])


async def originals(inspection: Inspection, query: Query) -> object:
    """The chunks that a summary was made of, in order; of a summary among them the originals can be asked in turn."""
    thread_id, chunk_id = query.text("thread"), query.text("chunk")
    reader = inspection.engine.reader
    summary = (await reader.chunks(thread_id, [chunk_id]))[chunk_id]
    chunks = await inspection.states.chunks(thread_id, summary.parent_ids[:CHUNKS_MAX])
    return {"total": len(summary.parent_ids), "chunks": [chunk_row(one) for one in chunks.values()]}


async def views(inspection: Inspection, query: Query) -> object:
    """The views that have rows at a seq, in the order in which they are registered."""
    past = await inspection.past(query)
    head = await inspection.engine.store.head(past.id)
    found = []
    for projection in inspection.engine.kernel.projections:
        types = event_types(projection)
        if types is not None and not last_of(head, types):
            continue  # nothing that it reads has ever happened in this thread
        if rows := len(await past.rows(projection)):
            found.append({"name": projection.name, "rows": rows})
    return {"views": found}


async def view(inspection: Inspection, query: Query) -> object:
    """The rows of one view at a seq, by key, a page of them."""
    past = await inspection.past(query)
    projection = _projection(inspection, query.text("name"))
    offset, limit = query.number("offset", 0), query.number("limit", 200, least=1, most=ROWS_MAX)
    rows = (await past.rows(projection)).encoded()
    page = list(rows.items())[offset : offset + limit]
    return {"total": len(rows), "rows": [{"key": key, "value": msgspec.Raw(value)} for key, value in page]}


def _projection(inspection: Inspection, name: str) -> Projection[object]:
    known = {projection.name: projection for projection in inspection.engine.kernel.projections}
    if name not in known:
        raise UnknownView(name, tuple(known))
    return known[name]


STATE_ROUTES = (
    Route.of("state", "thread seq offset limit", state),
    Route.of("context", "thread seq max_tokens", context),
    Route.of("chunk", "thread id", chunk),
    Route.of("originals", "thread chunk", originals),
    Route.of("views", "thread seq", views),
    Route.of("view", "thread seq name offset limit", view),
)


ThreadsFound = Sequence[tuple[ThreadRecord, Head]]

THREADS_AT_ONCE_MAX = 1_000
FORKS_MAX = 2_000
"""Threads of one tree that are shown; of a larger one, `cut` says so."""


async def store(inspection: Inspection, _query: Query) -> object:
    """Totals over the store; of a large one, those of a moment ago."""
    totals = await inspection.totals.now()
    return {
        "path": inspection.path,
        "read_only": inspection.engine.config.read_only,
        "version": _version(),
        **named(totals),
    }


def _version() -> str:
    """The installed version; empty in a checkout that is not installed."""
    try:
        return version("memory-engine")
    except PackageNotFoundError:
        return ""


async def threads(inspection: Inspection, query: Query) -> object:
    """Threads that match, newest first, and which kinds and statuses there are at all."""
    wanted = _ThreadFilter(
        query.text("q", "").casefold(),
        {name: query.text(name, "") for name in ("kind", "user", "tenant", "agent", "status")},
    )
    offset, limit = query.number("offset", 0), query.number("limit", 200, least=1, most=THREADS_AT_ONCE_MAX)
    found = await inspection.engine.store.threads(ThreadFilter())
    return await beside(lambda: _listed(found, wanted, offset, limit))


@frozen
class _ThreadFilter:
    """The values that the threads of a list must match."""

    text: str
    exactly: dict[str, str]

    def takes(self, record: ThreadRecord, head: Head) -> bool:
        values = {
            "kind": record.kind,
            "user": record.user_id,
            "tenant": record.tenant_id,
            "agent": record.agent_id,
            "status": head.status,
        }
        if any(value and values[name] != value for name, value in self.exactly.items()):
            return False
        if not self.text:
            return True
        said = (record.id, record.user_id, record.tenant_id, record.agent_id)
        metadata = (text for pair in record.metadata.items() for text in (*pair, "=".join(pair)))
        return any(self.text in text.casefold() for text in (*said, *metadata))


def _listed(found: ThreadsFound, wanted: _ThreadFilter, offset: int, limit: int) -> dict[str, object]:
    matching = [(record, head) for record, head in reversed(found) if wanted.takes(record, head)]
    return {
        "total": len(matching),
        "threads": [_thread_row(record, head) for record, head in matching[offset : offset + limit]],
        "kinds": sorted({record.kind for record, _ in found}),
        "statuses": sorted({head.status for _, head in found}),
    }


def _thread_row(record: ThreadRecord, head: Head) -> dict[str, object]:
    row = ThreadInfo.of(record, head).as_data()
    del row["head_hash"]
    return row


async def forks(inspection: Inspection, query: Query) -> object:
    """The whole tree of forks that a thread is in, from the thread that was there before all others."""
    record, head = await _one(inspection, query.text("thread"))
    while record.forked_from is not None:
        record, head = await _one(inspection, record.forked_from.thread_id)
    root = _fork(record, head)
    waiting, count = [root], 1
    while waiting:
        parent = waiting.pop()
        for fork_id in await inspection.engine.store.forks(parent.id):
            if count == FORKS_MAX:
                return root.data | {"cut": True}
            fork = _fork(*await _one(inspection, fork_id))
            parent.children.append(fork.data)
            waiting.append(fork)
            count += 1
    return root.data


@frozen
class _Fork:
    """A thread of a tree, as data; append its forks to `children`."""

    id: str
    data: dict[str, object]
    children: list[object]


def _fork(record: ThreadRecord, head: Head) -> _Fork:
    seq = record.forked_from.seq if record.forked_from is not None else None
    children: list[object] = []
    return _Fork(record.id, {"id": record.id, "seq": seq, "events": head.seq, "children": children}, children)


async def _one(inspection: Inspection, thread_id: str) -> tuple[ThreadRecord, Head]:
    """A thread as the store keeps it. Raises `ThreadNotFound`."""
    found = await inspection.engine.store.threads(ThreadFilter(id=thread_id))
    if not found:
        await inspection.engine.store.head(thread_id)
    return found[0]


STORE_ROUTES = (
    Route.of("store", "", store),
    Route.of("threads", "q kind status user tenant agent offset limit", threads),
    Route.of("forks", "thread", forks),
)
