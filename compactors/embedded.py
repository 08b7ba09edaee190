"""The compactor that needs no model and no key: the extractive algorithm over chunks."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from memory_engine.compaction.base import CompactionContext, CompactionResult
from memory_engine.compactors.extractive.entries import Entry, EntryKind
from memory_engine.core.chunks import RECALLED, Category, Chunk, ChunkType
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.lazy import lazy_module, lazy_modules, regex
from memory_engine.core.sections import SECTION_ORDER
from memory_engine.core.slices import Steps, in_slices

if TYPE_CHECKING:
    from memory_engine.compactors.extractive import extractor, focus, words
    from memory_engine.language import sentences
else:
    sentences = lazy_module("memory_engine.language.sentences")
    extractor, focus, words = lazy_modules("memory_engine.compactors.extractive", "extractor focus words")

_KINDS: Mapping[str, EntryKind] = {
    ChunkType.SYSTEM: "system",
    ChunkType.USER_MESSAGE: "user",
    ChunkType.PARENT_MESSAGE: "task",
    ChunkType.AGENT_RESPONSE: "assistant",
    ChunkType.THINKING: "thinking",
    ChunkType.AGENT_ACTION: "tool_call",
    ChunkType.ACTION_RESULT: "tool_result",
    ChunkType.OBSERVATION: "tool_result",
    ChunkType.NOTICE: "notice",
    ChunkType.FOREIGN_SUMMARY: "summary",
    ChunkType.CLARIFICATION: "question",
    ChunkType.ERROR: "error",
    ChunkType.TASK: "task",
    ChunkType.TODO_ITEM: "todo",
    ChunkType.COMPACTED: "summary",
}

_SPEAKERS: Mapping[str, str] = {ChunkType.PARENT_MESSAGE: "Parent agent"}
_TAG = regex(r"<[^<>]{0,200}>")
READ_CHARS_MAX = 32_000
"""Maximum number of characters read of one text: a megabyte takes seconds, and its middle seldom matters."""
NOTHING_FITS = "{count} entries, none of them short enough to be quoted here"


class EmbeddedCompactor:
    """Extracts rare and specific facts, in whole lines that cite their chunks. Deterministic.

    The default where no model is configured, and the fallback where one fails.
    """

    name = "embedded"
    categories = (Category.WORKING_FLOW,)
    works_ahead = True
    _is_warm = False

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Return `True`: it takes any chunks."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Return the lines that fit `context.budget_tokens`. Runs in slices, so the event loop is never blocked.

        Lines about `context.focus`, and less about `context.instructions`, rank higher within the same budget.
        Recalled chunks are left out, so that nothing is learned from memory a second time. Of a text over 32,000
        characters only the beginning and the end are read.
        """
        if not EmbeddedCompactor._is_warm:
            await asyncio.to_thread(_warm)
            EmbeddedCompactor._is_warm = True
        return CompactionResult(lines=await in_slices(_extracted_lines(chunks, context), context.pause))


def _warm() -> None:
    """Load the extractor with its word lists and expressions, which takes a tenth of a second."""
    extractor.extract([Entry(id="", kind="user", text="But if it was sent, I will call. Was it? Done.")], 400)


def _extracted_lines(chunks: Sequence[Chunk], context: CompactionContext) -> Steps[tuple[SummaryLine, ...]]:
    """Extract the lines, measured as the engine counts tokens; if none is short enough, return a line saying so."""
    entries: list[Entry] = []
    for chunk in chunks:
        if chunk.status != RECALLED:
            entries += entries_of(chunk, context.recorded_at.get(chunk.id, ""))
            yield
    earlier = [
        line if line.section in SECTION_ORDER else msgspec.structs.replace(line, section="key_information")
        for line in context.earlier
    ]
    priorities = focus.Priorities(context.focus, context.instructions)
    lines = yield from extractor.extracting(
        entries, context.budget_tokens, earlier=earlier, size=utf8_length, priorities=priorities
    )
    sources = tuple(chunk.id for chunk in chunks if chunk.status != RECALLED)
    if sources and not lines:
        lines = (SummaryLine("key_information", NOTHING_FITS.format(count=len(sources)), sources),)
    return tuple(lines)


def _tells(notice: str) -> bool:
    """Return True if a notice holds a value: a number, a name, a path. Its tags are not its words."""
    return any(map(words.is_specific, sentences.words(_TAG.sub(" ", _within_reach(notice)))))


def utf8_length(text: str) -> int:
    """Return the text's size in bytes; the engine's estimate counts four bytes to a token."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def entries_of(chunk: Chunk, at: str) -> list[Entry]:
    """Return the chunk as the extractor's entries: its text, and one entry for each call it makes.

    A notice of the client software without a value, such as that a response was interrupted, is none: what was said
    before and after it belongs together.
    """
    if chunk.type == ChunkType.NOTICE and not _tells(chunk.text):
        return []
    if not chunk.calls:
        return [
            Entry(
                id=chunk.id,
                kind=_KINDS.get(chunk.type, "other"),
                text=_within_reach(chunk.text),
                speaker=_SPEAKERS.get(chunk.type, "") or (chunk.label if chunk.type == ChunkType.USER_MESSAGE else ""),
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
    """Return the text, or its beginning and end with a mark between, each cut at the end of a line or sentence."""
    if len(text) <= READ_CHARS_MAX:
        return text
    head, tail = text[: READ_CHARS_MAX * 2 // 3], text[-READ_CHARS_MAX // 3 :]
    stop = max(map(head.rfind, _STOPS))
    start = min((at for at in map(tail.find, _STOPS) if at >= 0), default=-1)
    head = head[: stop + 1] if stop > 0 else f"{head} {sentences.GAP}"
    tail = tail[start + 1 :] if start >= 0 else f"{sentences.GAP} {tail}"
    return f"{head}\n\n{tail}"


_STOPS = ("\n", ". ", "。")
"""Separators at which a long text is cut, in order of preference."""


EMBEDDED = EmbeddedCompactor()
"""The one that engines fall back on."""
