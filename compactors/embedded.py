"""The compactor that needs no model and no key: the extractive algorithm over chunks."""

from collections.abc import Mapping, Sequence
from typing import get_args

from memory_engine.compaction.base import CompactionContext, CompactionResult
from memory_engine.compactors.extractive.entries import Entry, EntryKind, Line, Section
from memory_engine.compactors.extractive.extractor import extract
from memory_engine.core.chunks import RECALLED, Chunk, ChunkType
from memory_engine.core.events.base import SummaryLine

_KINDS: Mapping[str, EntryKind] = {
    ChunkType.SYSTEM: "system",
    ChunkType.USER_MESSAGE: "user",
    ChunkType.PARENT_MESSAGE: "user",
    ChunkType.AGENT_RESPONSE: "assistant",
    ChunkType.THINKING: "thinking",
    ChunkType.AGENT_ACTION: "tool_call",
    ChunkType.ACTION_RESULT: "tool_result",
    ChunkType.CLARIFICATION: "question",
    ChunkType.ERROR: "error",
    ChunkType.TASK: "task",
    ChunkType.TODO_ITEM: "todo",
    ChunkType.COMPACTED: "summary",
}

READ_CHARS_MAX = 32_000
"""Characters read of one text: a megabyte takes seconds, and its middle seldom matters."""
_SECTIONS: Mapping[str, Section] = {section: section for section in get_args(Section)}


class EmbeddedCompactor:
    """Extracts rare and specific facts, in whole lines that cite their chunks. Deterministic.

    The default where no model is configured, and the fallback where one fails.
    """

    name = "embedded"

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Return `True`: it takes any chunks."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """The lines that fit `context.budget_tokens`. Runs in a worker thread, so the event loop goes on.

        It leaves out recalled chunks, since nothing is learned from memory a second time. Of a text over
        32,000 characters the beginning and the end are read.
        """
        fresh = [chunk for chunk in chunks if chunk.status != RECALLED]
        entries = [entry for chunk in fresh for entry in entries_of(chunk, context.recorded_at.get(chunk.id, ""))]
        earlier = [
            Line(section=_SECTIONS.get(line.section, "key_information"), text=line.text, sources=line.sources)
            for line in context.earlier
        ]
        import anyio.to_thread  # loads a back end with it, and most engines that open never compact

        lines = await anyio.to_thread.run_sync(lambda: extract(entries, context.budget_tokens, earlier=earlier))
        return CompactionResult(
            lines=tuple(SummaryLine(section=line.section, text=line.text, sources=line.sources) for line in lines)
        )


def entries_of(chunk: Chunk, at: str) -> list[Entry]:
    """The chunk as the extractor reads it: a chunk with calls gives its text and one entry for each call."""
    if not chunk.calls:
        return [
            Entry(
                id=chunk.id,
                kind=_KINDS.get(chunk.type, "other"),
                text=_within_reach(chunk.text),
                speaker=chunk.label if chunk.type == ChunkType.USER_MESSAGE else "",
                name=chunk.label,
                call_id=chunk.call_id,
                failed=chunk.status == "failed",
                at=at,
            )
        ]
    said = _within_reach(chunk.text)
    entries = [Entry(id=chunk.id, kind="assistant", text=said, at=at)] if said else []
    entries += [
        Entry(id=chunk.id, kind="tool_call", text="", name=c.name, call_id=c.id, arguments=c.arguments, at=at)
        for c in chunk.calls
    ]
    return entries


def _within_reach(text: str) -> str:
    if len(text) <= READ_CHARS_MAX:
        return text
    return f"{text[: READ_CHARS_MAX * 2 // 3]}\n{text[-READ_CHARS_MAX // 3 :]}"
