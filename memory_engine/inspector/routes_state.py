"""Routes about a thread at a seq: its state, its context, its chunks, the originals of summaries, its views."""

from functools import partial
from typing import cast

import msgspec

from memory_engine.context.budget import DEFAULT_POLICY
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.context import Context
from memory_engine.context.live import covered_originals
from memory_engine.context.recall import RecallRequest, recalled_context
from memory_engine.context.rendering import Message, message_tokens
from memory_engine.context.thread_context import standing_blocks
from memory_engine.context.unsaid import with_unsaid
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.json_form import as_data, named
from memory_engine.core.tokens import TokenCounter
from memory_engine.engine import kernel_of
from memory_engine.errors import UnknownView
from memory_engine.inspector.answers import Inspection, Query, Route
from memory_engine.inspector.offload import apart, beside
from memory_engine.inspector.outlines import chunk_row
from memory_engine.projections.base import Projection, event_types
from memory_engine.projections.inline import last_of
from memory_engine.recall.hits import Found, Hit
from memory_engine.recall.search import Asked
from memory_engine.recall.service import Recall, checked_query
from memory_engine.replay.data import chunk_as_data
from memory_engine.views.brief.view import BriefView

CHUNKS_MAX = 2_000
ROWS_MAX = 1_000
HITS = 20
HITS_MAX = 100
MESSAGES_MAX = 1_000
"""How many messages of a context are given, the last ones; `earlier` counts those before them."""
STATEMENTS_MAX = 1_000
"""How many statements of a brief are given, the latest ones."""
MESSAGE_MAX = 20_000
"""How many characters of a message's text are given; `chars` is its length."""


async def state(inspection: Inspection, query: Query) -> object:
    """A page of the state's chunks at a seq, in order; the totals are over all."""
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
    """The context that a model would be sent after a seq, and what a question (`query`) recalls into it.

    Raises `ContextBudgetError`.
    """
    past, max_tokens = await inspection.past(query), query.number_if_given("max_tokens", least=1)
    question = query.text("query", "")
    whole = await past.state()
    kernel = kernel_of(inspection.engine)
    builder = kernel[ContextBuilder]
    standing = await standing_blocks(past, whole, DEFAULT_POLICY, query=question or None, at=past.seq)
    covered = await covered_originals(past, whole, max_tokens, at=past.seq)
    if question:
        wanted = RecallRequest(
            query=question, max_tokens=max_tokens, at=past.seq, policy=DEFAULT_POLICY, covered=covered
        )
        recall, make = kernel[Recall], partial(recalled_context, past, whole, wanted, standing)
        by_words = recall.embedder is None and recall.reranker is None
        built = await (apart(kernel, make) if by_words else make())  # a model may belong to this very loop
    else:
        built = await beside(lambda: builder.build(whole, past.id, max_tokens, standing=standing, covered=covered))
    return await beside(lambda: _context_as_data(with_unsaid(built, standing), max_tokens, builder.counter))


async def recall(inspection: Inspection, query: Query) -> object:
    """The finds of memory for a question, as of a seq, best first, with each signal's part of a hit's score."""
    past, kernel = await inspection.past(query), kernel_of(inspection.engine)
    question = checked_query(query.text("query"))
    limit = query.number("limit", HITS, least=1, most=HITS_MAX)
    service = kernel[Recall]
    asked = Asked(query=question, limit=limit, upto=past.seq, explain=True)

    async def searched() -> Found:
        return await service.search((past.id,), asked) if past.seq else Found(query=question)

    by_words = service.embedder is None and service.reranker is None
    found = await (apart(kernel, searched) if by_words else searched())
    hits = [_hit_row(hit) | {"parts": as_data(hit.parts), "about": hit.about} for hit in found]
    return {**named(found, "query how failure waiting unindexed"), "hits": hits}


def _context_as_data(built: Context, max_tokens: int | None, counter: TokenCounter) -> dict[str, object]:
    return {
        "messages": [message_row(message, counter) for message in built.messages[-MESSAGES_MAX:]],
        "earlier": max(0, len(built.messages) - MESSAGES_MAX),
        "tokens": built.tokens,
        "max_tokens": max_tokens,
        **named(built, "tokens_exact tokenizer"),
        **named(built, "spent included excluded shortened recall_failure"),
        "recalled": [_hit_row(hit) for hit in built.recalled],
        "stood": _stood(built),
    }


def _stood(built: Context) -> list[dict[str, object]]:
    """The statements of the brief that a context has to show, in the order of time, and which of them it lacks."""
    missing = {one.place for one in built.unsaid}
    stood = sorted(built.stood, key=lambda one: (one.thread_id == built.thread_id, one.seq, one.n))
    return [
        named(one, "thread_id seq n speaker request binds pinned")
        | {"text": one.text[:MESSAGE_MAX], "missing": one.place in missing}
        for one in stood[-STATEMENTS_MAX:]
    ]


def _hit_row(hit: Hit) -> dict[str, object]:
    """A recalled passage as the context shows it, with its place and why it was chosen."""
    row = named(hit, "seq kind role speaker at event_id event_type score why")
    return {**row, "text": hit.text[:MESSAGE_MAX]}


def message_row(message: Message, counter: TokenCounter) -> dict[str, object]:
    """A message of a context; its text is cut, `chars` is its length."""
    text = _content_text(message.get("content"))
    row: dict[str, object] = {
        "role": message.get("role"),
        "content": text[:MESSAGE_MAX],
        "chars": len(text),
        "tool_calls": message.get("tool_calls") or [],
        "tokens": message_tokens(message, counter),
    }
    return row | {name: message[name] for name in ("name", "tool_call_id") if name in message}


def _content_text(content: object) -> str:
    """The text of a message's content; an image becomes `[image]`."""
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, object]]", content or [])
    return "\n".join(str(part["text"]) if part.get("type") == "text" else "[image]" for part in parts)


async def chunk(inspection: Inspection, query: Query) -> object:
    """A chunk with its whole text, even if a compaction covers it."""
    thread_id, chunk_id = query.text("thread"), query.text("id")
    return chunk_as_data(await inspection.engine.thread(thread_id).replay.chunk(chunk_id))


async def originals(inspection: Inspection, query: Query) -> object:
    """The chunks that a summary was made of, in order; for a summary among them, ask again."""
    thread_id, chunk_id = query.text("thread"), query.text("chunk")
    summary = await inspection.engine.thread(thread_id).replay.chunk(chunk_id)
    chunks = await inspection.states.chunks(thread_id, summary.parent_ids[:CHUNKS_MAX])
    return {"total": len(summary.parent_ids), "chunks": [chunk_row(one) for one in chunks.values()]}


async def brief(inspection: Inspection, query: Query) -> object:
    """People's statements up to a seq, in the order of time, and the fate of each; and the pins."""
    past = await inspection.past(query)
    found = await BriefView(past).read(at=past.seq)
    ordered = sorted(found, key=lambda one: (one.origin != "parent", one.seq, one.n))
    return {
        "seq": found.seq,
        "total": len(found),
        "standing": len(found.standing),
        "statements": [
            msgspec.structs.asdict(one) | {"text": one.text[:MESSAGE_MAX]} for one in ordered[-STATEMENTS_MAX:]
        ],
    }


async def views(inspection: Inspection, query: Query) -> object:
    """The views that have rows at a seq: those in use, in order of registration, then the others.

    A view is in use once one of its own events has happened; sessions, clearing and forgetting occur in every log.
    """
    past = await inspection.past(query)
    head = await kernel_of(inspection.engine).store.head(past.id)
    common = {cls.event_type for cls in inspection.engine.events.classes() if cls.__module__ == MemoryForget.__module__}
    found: list[dict[str, object]] = []
    for projection in kernel_of(inspection.engine).projections:
        types = event_types(projection)
        if types is not None and not last_of(head, types):
            continue  # nothing that it reads has ever happened in this thread
        if rows := len(await past.rows(projection)):
            is_used = types is None or bool(last_of(head, types - common))
            found.append({"name": projection.name, "rows": rows, "used": is_used})
    return {"views": sorted(found, key=lambda row: not row["used"])}


async def view(inspection: Inspection, query: Query) -> object:
    """A page of one view's rows at a seq, by key."""
    past = await inspection.past(query)
    projection = _projection(inspection, query.text("name"))
    offset, limit = query.number("offset", 0), query.number("limit", 200, least=1, most=ROWS_MAX)
    rows = (await past.rows(projection)).encoded()
    page = list(rows.items())[offset : offset + limit]
    return {"total": len(rows), "rows": [{"key": key, "value": msgspec.Raw(value)} for key, value in page]}


def _projection(inspection: Inspection, name: str) -> Projection[object]:
    known = {projection.name: projection for projection in kernel_of(inspection.engine).projections}
    if name not in known:
        raise UnknownView(name, tuple(known))
    return known[name]


STATE_ROUTES = (
    Route.of("state", "thread seq offset limit", state),
    Route.of("context", "thread seq max_tokens query", context),
    Route.of("recall", "thread seq query limit", recall),
    Route.of("chunk", "thread id", chunk),
    Route.of("originals", "thread chunk", originals),
    Route.of("brief", "thread seq", brief),
    Route.of("views", "thread seq", views),
    Route.of("view", "thread seq name offset limit", view),
)
