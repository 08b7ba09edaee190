"""Reducers for what is said about memory, and for compactions."""

import msgspec

from memory_engine.chunks import REDACTED, Category, Chunk, ChunkType, Retention
from memory_engine.events import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    MemoryForget,
    MemoryMarkCritical,
    ThreadSeeded,
)
from memory_engine.events.base import SummaryLine
from memory_engine.operations import Add, BatchReplace, Delete, Operation, Update
from memory_engine.reducing import NOTHING, ReduceContext, Reduction
from memory_engine.state import StateView

WITHHELD = "(withheld: a source of this summary was forgotten)"


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
    """New versions of the chunks, CRITICAL. What is not in the state is let be."""
    operations: list[Operation] = []
    chunks: list[Chunk] = []
    for chunk_id in dict.fromkeys(event.chunk_ids):
        chunk = view.get(chunk_id)
        if chunk is None or chunk.retention is Retention.CRITICAL:
            continue
        marked = msgspec.structs.replace(chunk, id=ctx.new_id(), retention=Retention.CRITICAL, parent_ids=())
        chunks.append(marked)
        operations.append(Update(chunk_id, marked.id))
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


def reduce_memory_forget(view: StateView, event: MemoryForget, ctx: ReduceContext) -> Reduction:
    """The chunks go; summaries lose the lines that cite them, or are withheld where no line says what it cites."""
    targets = _Targets(event)
    operations: list[Operation] = []
    chunks: list[Chunk] = []
    for chunk in list(view.chunks()):
        shared = chunk.category is Category.SCRATCHPAD  # it came with the first snippet, and holds those of others
        if not shared and (targets.match(chunk.id) or (not chunk.lines and targets.brought(chunk))):
            operations.append(Delete(chunk.id))
        elif chunk.lines:
            kept = targets.lines_kept(chunk)
            if kept != chunk.lines or targets.concern(chunk):
                shorter = msgspec.structs.replace(chunk, id=ctx.new_id(), lines=kept, parent_ids=(), status=REDACTED)
                chunks.append(shorter)
                operations.append(Update(chunk.id, shorter.id))
        else:
            operations += [Delete(child.id) for child in view.children(chunk.id) if targets.brought(child)]
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


class _Targets:
    """What is to be forgotten."""

    def __init__(self, event: MemoryForget) -> None:
        self._ids = frozenset(event.chunk_ids)
        self._seqs = frozenset(map(str, event.seqs))
        self._summaries = frozenset(event.summaries)

    def match(self, chunk_id: str) -> bool:
        # compared as text: what a compactor gave for a source may be no chunk id at all
        return chunk_id in self._ids or chunk_id.partition(".")[0] in self._seqs

    def brought(self, chunk: Chunk) -> bool:
        """Whether the chunk, or an older version of it, is among them."""
        return self.match(chunk.id) or any(map(self.match, chunk.parent_ids))

    def concern(self, summary: Chunk) -> bool:
        """Whether a summary stands for something forgotten, itself or through a summary that it covers."""
        return summary.id in self._summaries or any(map(self._reach, summary.parent_ids))

    def _reach(self, chunk_id: str) -> bool:
        return chunk_id in self._summaries or self.match(chunk_id)

    def lines_kept(self, chunk: Chunk) -> tuple[SummaryLine, ...]:
        """The lines that cite nothing forgotten. A line without citations may hold anything that is covered."""
        cited = [line for line in chunk.lines if not any(map(self._reach, line.sources))]
        if self.concern(chunk):
            cited = [line for line in cited if line.sources]
        return tuple(cited) or (SummaryLine(section="current_state", text=WITHHELD),)


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
                    retention=Retention.COMPRESSIBLE,
                    category=Category.MEMORY,
                ),
            )
        chunks += summary
        operations.append(BatchReplace(replacement.covers, tuple(chunk.id for chunk in summary)))
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


def reduce_compaction_protocol(
    _view: StateView, _event: CompactionStarted | CompactionFailed | CompactionAbandoned, _ctx: ReduceContext
) -> Reduction:
    """Recorded for the record: the state stays as it is."""
    return NOTHING
