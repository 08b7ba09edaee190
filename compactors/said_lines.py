"""The words of people that a summary keeps: by the engine itself, word for word, never by a model."""

from collections.abc import Sequence

from memory_engine.compaction.base import CompactionContext
from memory_engine.compactors.embedded import entries_of, utf8_length
from memory_engine.compactors.extractive import extractor
from memory_engine.context.invariants import SPOKEN
from memory_engine.core.chunks import RECALLED, Chunk, ChunkType
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.slices import in_slices
from memory_engine.core.tokens import estimate_text

SAID = "said"
"""The section of lines that hold a person's words."""


async def said_lines(chunks: Sequence[Chunk], context: CompactionContext, room: int) -> list[SummaryLine]:
    """What people said in these chunks, and in earlier summaries, that the brief does not hold.

    Whole messages where they fit `room` (estimated tokens), else the sentences worth most. Each line cites its chunk.
    """
    held = " ".join(" ".join(text.split()) for text in context.brief)
    earlier = [line for line in context.earlier if line.section == SAID and _words(line.text) not in held]
    spoken = [chunk for chunk in chunks if chunk.type in SPOKEN and chunk.status != RECALLED and chunk.text.strip()]
    spoken = [chunk for chunk in spoken if " ".join(chunk.text.split()) not in held]
    whole = [SummaryLine(SAID, f"{_speaker(chunk)}: {' '.join(chunk.text.split())}", (chunk.id,)) for chunk in spoken]
    if _tokens([*earlier, *whole]) <= room:
        return [*earlier, *whole]
    kept = _newest(earlier, room // 2)
    room -= _tokens(kept)
    entries = [entry for chunk in spoken for entry in entries_of(chunk, "")]
    found = await in_slices(extractor.extracting(entries, room, size=utf8_length), context.pause)
    lines = [SummaryLine(SAID, line.text, line.sources) for line in found if _words(line.text) not in held]
    place = {chunk.id: n for n, chunk in enumerate(spoken)}
    return [*kept, *sorted(lines, key=lambda line: min((place.get(source, 0) for source in line.sources), default=0))]


def _speaker(chunk: Chunk) -> str:
    return chunk.label or ("Parent agent" if chunk.type == ChunkType.PARENT_MESSAGE else "User")


def _words(line: str) -> str:
    """A line without its speaker."""
    return " ".join(line.partition(": ")[2].split()) or line


def _newest(lines: Sequence[SummaryLine], room: int) -> list[SummaryLine]:
    """The last lines that fit."""
    kept: list[SummaryLine] = []
    for line in reversed(lines):
        room -= _tokens([line])
        if room < 0:
            break
        kept.insert(0, line)
    return kept


def _tokens(lines: Sequence[SummaryLine]) -> int:
    return sum(estimate_text(line.text) + 1 for line in lines)
