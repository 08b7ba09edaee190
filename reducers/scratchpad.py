"""Reducers for the scratchpad: a container in the state, its snippets in the order of their use."""

from memory_engine.chunks import RECALLED, Category, Chunk, ChunkType, Retention
from memory_engine.events import ScratchpadRemoved, ScratchpadWritten
from memory_engine.operations import Add, Delete, Operation, Reorder
from memory_engine.reducing import ReduceContext, Reduction
from memory_engine.state import StateView

SCRATCHPAD = "scratchpad"


def reduce_scratchpad_written(view: StateView, event: ScratchpadWritten, ctx: ReduceContext) -> Reduction:
    """Snippets that were read move to the end, the new one follows, and those used longest ago make room."""
    operations: list[Operation] = []
    chunks: list[Chunk] = []
    container = view.named(SCRATCHPAD)
    order = dict.fromkeys(child.id for child in view.children(container.id)) if container is not None else {}
    if container is None:
        container = _kept(Chunk(id=ctx.new_id(), type=ChunkType.SCRATCHPAD, name=SCRATCHPAD, is_container=True))
        chunks.append(container)
        operations.append(Add(container.id))
    for chunk_id in event.read:
        if chunk_id in order:
            del order[chunk_id]
            order[chunk_id] = None
            operations.append(Reorder(chunk_id))
    snippet = _kept(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.SNIPPET,
            content=event.content,
            label=event.flow,
            status=RECALLED if event.recalled else "",
        )
    )
    chunks.append(snippet)
    operations.append(Add(snippet.id, container=container.id))
    excess = len(order) + 1 - max(1, event.cap)
    operations += [Delete(chunk_id) for chunk_id in list(order)[: max(0, excess)]]
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


def reduce_scratchpad_removed(view: StateView, event: ScratchpadRemoved, _ctx: ReduceContext) -> Reduction:
    """Snippets go; those that are gone already are let be."""
    container = view.named(SCRATCHPAD)
    if container is None:
        return Reduction()
    there = [child.id for child in view.children(container.id)]
    gone = there if event.all else [chunk_id for chunk_id in there if chunk_id in event.chunk_ids]
    return Reduction(operations=tuple(Delete(chunk_id) for chunk_id in gone))


def _kept(chunk: Chunk) -> Chunk:
    """The chunk as one that no compaction takes: only use, or its absence, removes a snippet."""
    return Chunk(
        id=chunk.id,
        type=chunk.type,
        content=chunk.content,
        retention=Retention.COMPRESSIBLE,
        category=Category.SCRATCHPAD,
        name=chunk.name,
        label=chunk.label,
        status=chunk.status,
        is_container=chunk.is_container,
    )
