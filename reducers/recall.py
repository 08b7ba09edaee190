"""Reducers for memory put before the model, and for large results that leave the context."""

import msgspec

from memory_engine.chunks import RECALLED, Chunk, ChunkType, Retention, content_text
from memory_engine.events import MemoryRecalled, ResultsOffloaded
from memory_engine.events.base import Content, ImagePart, TextPart
from memory_engine.operations import Operation, Update
from memory_engine.reducers.conversation import appended
from memory_engine.reducing import ReduceContext, Reduction
from memory_engine.state import StateView


def reduce_memory_recalled(_view: StateView, event: MemoryRecalled, ctx: ReduceContext) -> Reduction:
    """A note that says it comes out of memory: the first to go, and nothing is learned from it again."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.RECALLED,
            content=event.content,
            retention=Retention.DISPOSABLE,
            status=RECALLED,
        )
    )


def reduce_results_offloaded(view: StateView, event: ResultsOffloaded, ctx: ReduceContext) -> Reduction:
    """A beginning and a reference in place of each text. A chunk that is not in the state, or short, is let be."""
    operations: list[Operation] = []
    chunks: list[Chunk] = []
    for chunk_id in dict.fromkeys(event.chunk_ids):
        chunk = view.get(chunk_id)
        if chunk is None:
            continue
        shorter = _shortened(chunk, event.keep_chars)
        if len(content_text(shorter)) < len(content_text(chunk.content)):
            kept = msgspec.structs.replace(chunk, id=ctx.new_id(), content=shorter, parent_ids=())
            chunks.append(kept)
            operations.append(Update(chunk_id, kept.id))
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


def _shortened(chunk: Chunk, keep_chars: int) -> Content:
    """The beginning of the text with where to read on; images stay."""
    images: tuple[ImagePart, ...] = ()
    if isinstance(chunk.content, str):
        text = chunk.content
    else:
        text = "\n".join(part.text for part in chunk.content if isinstance(part, TextPart))
        images = tuple(part for part in chunk.content if isinstance(part, ImagePart))
    left = len(text) - max(0, keep_chars)
    if left <= 0:
        return chunk.content
    beginning = f'{text[: max(0, keep_chars)]}\n[… {left:,} more characters: open("{chunk.id}")]'
    return (TextPart(beginning), *images) if images else beginning
