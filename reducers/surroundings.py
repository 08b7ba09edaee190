"""Reducers for what comes from outside, for the agent loop, and for sessions."""

from memory_engine.chunks import Category, Chunk, ChunkType, Retention
from memory_engine.events import (
    EnvironmentChange,
    ExecutionPause,
    ExecutionResume,
    ExecutionRetry,
    ExternalInject,
    ExternalTimer,
    SessionEnded,
    SessionStarted,
)
from memory_engine.operations import Add, Delete, Update
from memory_engine.reducers.conversation import appended
from memory_engine.reducing import NOTHING, ReduceContext, Reduction
from memory_engine.state import StateView


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
    """The environment as it is now: a change under a known key updates that chunk. It goes with the session."""
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
    current = view.named(name)
    operation = Add(chunk.id) if current is None else Update(current.id, chunk.id)
    return Reduction(operations=(operation,), chunks=(chunk,))


def reduce_execution_retry(_view: StateView, event: ExecutionRetry, ctx: ReduceContext) -> Reduction:
    """That a step is tried again is worth knowing for a while."""
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


def reduce_session_started(_view: StateView, event: SessionStarted, ctx: ReduceContext) -> Reduction:
    """The session's instructions, if it has any."""
    if not event.content:
        return NOTHING
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.SYSTEM,
            content=event.content,
            retention=Retention.CRITICAL,
            category=Category.SYSTEM,
            label=event.session_id,
        )
    )


def reduce_session_ended(view: StateView, _event: SessionEnded, _ctx: ReduceContext) -> Reduction:
    """EPHEMERAL chunks go, wherever they stand; what goes with a container needs no word of its own."""
    gone: list[str] = []
    for chunk in view.chunks():
        if chunk.retention is Retention.EPHEMERAL:
            gone.append(chunk.id)
        else:
            gone += [child.id for child in view.children(chunk.id) if child.retention is Retention.EPHEMERAL]
    return Reduction(operations=tuple(Delete(chunk_id) for chunk_id in gone))
