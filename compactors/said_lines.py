"""The words of people that a summary keeps: by the engine itself, word for word, never by a model."""

from collections.abc import Sequence

from msgspec.structs import replace

from memory_engine.compaction.base import CompactionContext
from memory_engine.compactors.embedded import entries_of, utf8_length
from memory_engine.compactors.extractive import extractor
from memory_engine.core.chunks import RECALLED, Chunk
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.origins import PEOPLE, SPOKEN
from memory_engine.core.slices import in_slices
from memory_engine.core.tokens import recorded_tokens

SAID = "said"
"""The section of lines that hold a person's words."""


async def said_lines(chunks: Sequence[Chunk], context: CompactionContext, room: int) -> list[SummaryLine]:
    """People's words in these chunks, and in earlier summaries, that the brief does not hold.

    Whole messages where they fit `room` (estimated tokens), else the sentences worth most. Each line cites its chunk.
    """
    held = sorted({_one_spaced(text) for text in context.brief} - {""}, key=len, reverse=True)
    everything = " ".join(held)
    earlier = [
        line
        for line in context.earlier
        if line.section == SAID and _one_spaced(line.text.partition(": ")[2]) not in everything
    ]
    spoken = [chunk for chunk in chunks if chunk.type in SPOKEN and chunk.status != RECALLED]
    rest = {chunk.id: _remove_statements(_one_spaced(chunk.text), held) for chunk in spoken}
    spoken = [replace(chunk, content=rest[chunk.id]) for chunk in spoken if rest[chunk.id]]
    whole = [_spoken_line(chunk, f"{_speaker(chunk)}: {rest[chunk.id]}", (chunk.id,)) for chunk in spoken]
    if _tokens([*earlier, *whole]) <= room:
        return [*earlier, *whole]
    kept = _newest(earlier, room // 2)
    room -= _tokens(kept)
    entries = [entry for chunk in spoken for entry in entries_of(chunk, "")]
    found = await in_slices(extractor.extracting(entries, room, size=utf8_length), context.pause)
    by_id = {chunk.id: chunk for chunk in spoken}
    place = {chunk_id: n for n, chunk_id in enumerate(by_id)}
    lines = [
        _spoken_line(by_id[line.sources[0]], line.text, line.sources) for line in found if line.sources[0] in by_id
    ]
    return [*kept, *sorted(lines, key=lambda line: place[line.sources[0]])]


def _one_spaced(text: str) -> str:
    return " ".join(text.split())


def _spoken_words(line: SummaryLine) -> str:
    """Return a line without its speaker."""
    return _one_spaced(line.text.partition(": ")[2]) or line.text


def _remove_statements(text: str, held: Sequence[str]) -> str:
    """Return a text without the statements that are kept elsewhere."""
    for statement in held:
        text = text.replace(statement, " ")
    return _one_spaced(text) if any(map(str.isalnum, text)) else ""


def _spoken_line(chunk: Chunk, text: str, sources: tuple[str, ...]) -> SummaryLine:
    """Build a line of a person's words; a parent agent's words are not a person's."""
    return SummaryLine(SAID if chunk.type in PEOPLE else "key_information", text, sources)


def _speaker(chunk: Chunk) -> str:
    return chunk.label or ("User" if chunk.type in PEOPLE else "Parent agent")


def _newest(lines: Sequence[SummaryLine], room: int) -> list[SummaryLine]:
    """Return the last lines that fit."""
    kept: list[SummaryLine] = []
    for line in reversed(lines):
        room -= _tokens([line])
        if room < 0:
            break
        kept.insert(0, line)
    return kept


def _tokens(lines: Sequence[SummaryLine]) -> int:
    return sum(recorded_tokens(line.text) + 1 for line in lines)
