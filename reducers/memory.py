"""Reducers for memory and compactions, for sessions and the agent loop, and for events from outside."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from memory_engine.core.chunks import (
    FURTHER,
    INSTRUCTIONS,
    OF_REQUEST,
    RECALLED,
    Category,
    Chunk,
    ChunkType,
    Retention,
    is_of_session,
)
from memory_engine.core.forgetting import Targets, remainders
from memory_engine.core.operations import Add, BatchReplace, Delete, Operation, Update
from memory_engine.core.reduction import NOTHING, ReduceContext, Reduction, appended
from memory_engine.core.state import Mark, StateView
from memory_engine.errors import StaleEvent, UnknownChunk
from memory_engine.events import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    CompactionUndone,
    ContextRecalled,
    EnvironmentChange,
    EventsErased,
    ExecutionPause,
    ExecutionResume,
    ExecutionRetry,
    ExternalInject,
    ExternalTimer,
    FactsRewound,
    MemoryForget,
    MemoryMarkCritical,
    RestoredChunk,
    SessionEnded,
    SessionStarted,
    SourceQuarantined,
    ThreadCleared,
    ThreadRereduced,
    ThreadRewound,
    ThreadSeeded,
    ThreadUpdated,
)

IN_ORDER_MAX = 64
"""Maximum number of consecutive chunks that are restored one after the other."""
UNKEYED_MAX = 16
"""Changes of the environment without a key that are kept at once. Another number needs a new version of the event."""


def reduce_thread_seeded(_view: StateView, event: ThreadSeeded, ctx: ReduceContext) -> Reduction:
    """The chunks that a thread starts with."""
    chunks = tuple(
        Chunk(
            id=ctx.new_id(),
            type=seed.type,
            content=seed.content,
            retention=Retention(seed.retention),
            category=Category.SYSTEM if seed.type == ChunkType.SYSTEM else Category.WORKING_FLOW,
            name=seed.name,
        )
        for seed in event.chunks
    )
    return Reduction(operations=tuple(Add(chunk.id) for chunk in chunks), chunks=chunks)


def reduce_memory_mark_critical(view: StateView, event: MemoryMarkCritical, ctx: ReduceContext) -> Reduction:
    """Replace the chunks by CRITICAL versions. Raises `UnknownChunk`."""
    operations: list[Operation] = []
    chunks: list[Chunk] = []
    for chunk_id in dict.fromkeys(event.chunk_ids):
        chunk = view.get(chunk_id)
        if chunk is None and not event.lenient:
            raise UnknownChunk("MARK CRITICAL", chunk_id)
        if chunk is None or chunk.retention is Retention.CRITICAL:
            continue
        marked = msgspec.structs.replace(chunk, id=ctx.new_id(), retention=Retention.CRITICAL, parent_ids=())
        chunks.append(marked)
        operations.append(Update(chunk_id, marked.id))
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


def reduce_memory_forget(view: StateView, event: MemoryForget, ctx: ReduceContext) -> Reduction:
    """Remove the chunks. Summaries lose the lines that cite them, or are removed whole if their lines cite nothing."""
    targets = Targets(event)
    operations: list[Operation] = []
    chunks: list[Chunk] = []
    for chunk, kept in remainders(view, targets):
        if kept is None:
            operations.append(Delete(chunk.id))
        else:
            shorter = msgspec.structs.replace(kept, id=ctx.new_id(), parent_ids=())
            chunks.append(shorter)
            operations.append(Update(chunk.id, shorter.id))
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


def reduce_context_recalled(view: StateView, event: ContextRecalled, ctx: ReduceContext) -> Reduction:
    """The text before its request's message, in place of what was recalled for earlier ones.

    It changes nothing where that message is no longer in the state: the next context recalls again.
    """
    if view.get(event.request) is None:
        return NOTHING
    operations: list[Operation] = [Delete(gone) for gone in dict.fromkeys(event.leaving) if view.get(gone) is not None]
    if not event.content:
        return Reduction(tuple(operations))
    chunk = Chunk(
        id=ctx.new_id(),
        type=ChunkType.RECALLED,
        content=event.content,
        retention=Retention.DISPOSABLE,
        name=f"{FURTHER if event.at_end else OF_REQUEST}{ctx.seq}",
        status=RECALLED,
    )
    return Reduction((*operations, Add(chunk.id, before="" if event.at_end else event.request)), (chunk,))


def reduce_compaction_completed(_view: StateView, event: CompactionCompleted, ctx: ReduceContext) -> Reduction:
    """Each replacement as a BATCH_REPLACE: the recorded result, never made again."""
    operations: list[Operation] = []
    chunks: list[Chunk] = []
    for replacement in event.replacements:
        summary: tuple[Chunk, ...] = ()
        if replacement.lines:
            summary = (
                Chunk(
                    id=ctx.new_id(),
                    type=ChunkType.COMPACTED,
                    lines=replacement.lines,
                    retention=Retention(replacement.retention),
                    category=Category.MEMORY,
                ),
            )
        chunks += summary
        operations.append(BatchReplace(replacement.covers, tuple(chunk.id for chunk in summary)))
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


def reduce_compaction_undone(_view: StateView, event: CompactionUndone, ctx: ReduceContext) -> Reduction:
    """Restore each chunk at its place, then remove the summaries. Refused if other events came before it."""
    return _brought(event, event.summaries, ctx)


def reduce_thread_rereduced(_view: StateView, event: ThreadRereduced, ctx: ReduceContext) -> Reduction:
    """Restore each chunk at its place, then remove those that are gone. Refused if other events came before it."""
    return _brought(event, event.removed, ctx)


def reduce_thread_rewound(_view: StateView, event: ThreadRewound | SourceQuarantined, ctx: ReduceContext) -> Reduction:
    """Restore each chunk at its place, then remove those taken back or hidden. Refused if other events came before."""
    return _brought(event, event.removed, ctx)


def reduce_facts_rewound(view: StateView, event: FactsRewound, _ctx: ReduceContext) -> Reduction:
    """Remove the copies that are still there."""
    return Reduction(tuple(Delete(chunk_id) for chunk_id in event.removed if view.get(chunk_id) is not None))


def _brought(
    event: CompactionUndone | ThreadRereduced | ThreadRewound | SourceQuarantined,
    gone: Sequence[str],
    ctx: ReduceContext,
) -> Reduction:
    """Add the chunks that the event carries, and remove those that they replace."""
    if event.seen and event.seen != ctx.seq - 1:
        raise StaleEvent(event.seen, ctx.seq)
    ids = {one.original: ctx.new_id() for one in event.restored}
    chunks = tuple(_restored(one, ids[one.original]) for one in event.restored)
    operations: list[Operation] = []
    for row in _adjacent_rows(event.restored):
        container, before, after = (ids.get(at, at) for at in (row[0].container, row[0].before, row[0].after))
        first = Add(ids[row[0].original], container, before, after, first=not (before or after))
        operations += _place_row([ids[one.original] for one in row], first)
    operations += [Delete(chunk_id) for chunk_id in gone]
    return Reduction(operations=tuple(operations), chunks=chunks)


def _adjacent_rows(restored: Sequence[RestoredChunk]) -> list[list[RestoredChunk]]:
    """Split the chunks into rows, in which each chunk directly follows the one before it."""
    rows: list[list[RestoredChunk]] = []
    ends: dict[str, list[RestoredChunk]] = {}
    for one in restored:
        row = ends.pop(one.after, None) if one.after else None
        if row is None:
            row = []
            rows.append(row)
        row.append(one)
        ends[one.original] = row
    return rows


def _place_row(ids: Sequence[str], where: Add) -> Iterator[Add]:
    """Place a row in order; a long one from the middle, lest order keys grow with every place between two."""
    if len(ids) <= IN_ORDER_MAX:
        yield msgspec.structs.replace(where, chunk=ids[0])
        for before, chunk_id in pairwise(ids):
            yield Add(chunk_id, where.container, after=before)
        return
    middle = len(ids) // 2
    yield msgspec.structs.replace(where, chunk=ids[middle])
    yield from _place_row(ids[:middle], Add("", where.container, before=ids[middle]))
    yield from _place_row(ids[middle + 1 :], Add("", where.container, after=ids[middle]))


def _restored(one: RestoredChunk, chunk_id: str) -> Chunk:
    return Chunk(
        id=chunk_id,
        type=one.type,
        content=one.content,
        retention=Retention(one.retention),
        category=Category(one.category),
        name=one.name,
        label=one.label,
        calls=one.calls,
        call_id=one.call_id,
        final=one.final,
        response_id=one.response_id,
        status=one.status,
        native=one.native,
        native_tokens=one.native_tokens,
        lines=one.lines,
        parent_ids=one.parent_ids,
        is_container=one.is_container,
    )


def reduce_events_erased(_view: StateView, _event: EventsErased, _ctx: ReduceContext) -> Reduction:
    """Change nothing: what was erased had been forgotten."""
    return NOTHING


def reduce_compaction_protocol(
    _view: StateView, _event: CompactionStarted | CompactionFailed | CompactionAbandoned, _ctx: ReduceContext
) -> Reduction:
    """Change nothing: the event is only recorded."""
    return NOTHING


def reduce_external_inject(_view: StateView, event: ExternalInject, ctx: ReduceContext) -> Reduction:
    """Injected content, kept as its sender says. Under the source `system` it is instructions."""
    system = event.source == "system"
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.SYSTEM if system else ChunkType.EXTERNAL,
            content=event.content,
            retention=Retention(event.retention),
            category=Category.SYSTEM if system else Category.WORKING_FLOW,
            label=event.source,
            native=event.native,
        )
    )


def reduce_external_timer(_view: StateView, event: ExternalTimer, ctx: ReduceContext) -> Reduction:
    """A timer's word, soon disposable."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.EXTERNAL,
            content=event.content or "timer",
            retention=Retention.DISPOSABLE,
            label=event.timer_id,
        )
    )


def reduce_environment_change(view: StateView, event: EnvironmentChange, ctx: ReduceContext) -> Reduction:
    """The current environment: a change under a known key updates that chunk. It ends with the session.

    Changes without a key are kept in order, the newest `UNKEYED_MAX` of them: no compaction takes EPHEMERAL chunks, and
    a session may never end.
    """
    name = f"environment:{event.key}"
    chunk = Chunk(
        id=ctx.new_id(),
        type=ChunkType.ENVIRONMENT,
        content=event.content,
        retention=Retention.EPHEMERAL,
        category=Category.ENVIRONMENT,
        name=name,
        label=event.key,
    )
    current = view.bearers(name)
    if not (event.key or event.single):
        gone = current[: max(0, len(current) + 1 - UNKEYED_MAX)]
        return Reduction(operations=(*(Delete(old.id) for old in gone), Add(chunk.id)), chunks=(chunk,))
    operation = Update(current[-1].id, chunk.id) if current else Add(chunk.id)
    return Reduction(operations=(operation,), chunks=(chunk,))


def reduce_execution_retry(_view: StateView, event: ExecutionRetry, ctx: ReduceContext) -> Reduction:
    """A note that a step is tried again, worth knowing for a while."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.EXECUTION,
            content=event.content or f"retry, attempt {event.attempt}",
            retention=Retention.DISPOSABLE,
            status="retry",
        )
    )


def reduce_execution_flow(_view: StateView, _event: ExecutionPause | ExecutionResume, _ctx: ReduceContext) -> Reduction:
    """Pausing and resuming concern the queue, not the state."""
    return NOTHING


def reduce_thread_cleared(view: StateView, _event: ThreadCleared, _ctx: ReduceContext) -> Reduction:
    """Remove every chunk, with those inside containers."""
    return Reduction(operations=tuple(Delete(chunk.id) for chunk in view.chunks()))


def reduce_thread_updated(_view: StateView, _event: ThreadUpdated, _ctx: ReduceContext) -> Reduction:
    """The thread's record holds metadata and policy; the same commit writes it."""
    return NOTHING


def reduce_session_started(view: StateView, event: SessionStarted, ctx: ReduceContext) -> Reduction:
    """The session's instructions, if it has any, in the place of those of the session before."""
    if not event.content:
        return NOTHING
    chunk = Chunk(
        id=ctx.new_id(),
        type=ChunkType.SYSTEM,
        content=event.content,
        retention=Retention.CRITICAL,
        category=Category.SYSTEM,
        name="" if event.beside else INSTRUCTIONS,
        label=event.session_id,
        native=event.native,
    )
    if event.beside:
        return appended(chunk)
    named = view.named(INSTRUCTIONS)
    earlier = [named] if named is not None else [old for old in view.chunks() if is_of_session(old)]
    if not earlier:
        return appended(chunk)
    gone = (Delete(old.id) for old in earlier[1:])  # version 1 kept several
    return Reduction(operations=(Update(earlier[0].id, chunk.id), *gone), chunks=(chunk,))


def reduce_session_ended(view: StateView, _event: SessionEnded, _ctx: ReduceContext) -> Reduction:
    """Remove EPHEMERAL chunks wherever they are, with those inside a container."""
    gone: list[str] = []
    ephemeral = {chunk.id for chunk in view.bearers(Mark.EPHEMERAL)}
    for chunk_id in view.in_order((*ephemeral, *view.derived())):  # containers are among the derived ones
        if chunk_id in ephemeral:
            gone.append(chunk_id)
        else:
            gone += [child.id for child in view.children(chunk_id) if child.id in ephemeral]
    return Reduction(operations=tuple(Delete(chunk_id) for chunk_id in gone))
