"""A working history as XML for a model: the context it stands in, and its entries, numbered."""

import html
import textwrap
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from memory_engine.chunks import RECALLED, Chunk, ChunkType
from memory_engine.compaction.base import CompactionContext, render_lines
from memory_engine.regex import regex
from memory_engine.tokens import estimate_text

FRAME_TOKENS = 25
"""What the tags around an entry take."""
ENTRY_TOKENS_MIN = 32
"""An entry is never cut below this, however many there are."""
_NOT_XML = regex("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, and the chunks that it stands for."""

    type: str
    text: str
    at: str = ""
    sources: tuple[str, ...] = ()


def entries_of(chunks: Sequence[Chunk], context: CompactionContext) -> list[Entry]:
    """The lines of earlier summaries first, each with the sources that it had, then the chunks in order."""
    earlier = [Entry(type=ChunkType.COMPACTED, text=line.text, sources=line.sources) for line in context.earlier]
    return earlier + [
        Entry(type=chunk.type, text=_text(chunk), at=context.recorded_at.get(chunk.id, ""), sources=(chunk.id,))
        for chunk in chunks
        if chunk.status != RECALLED  # nothing is learned from memory a second time
    ]


def _text(chunk: Chunk) -> str:
    """What a chunk says, with who said it and what it calls or answers."""
    if chunk.lines:
        return render_lines(chunk.lines, title="")
    head = chunk.label
    if chunk.call_id:
        head = f"{chunk.label or chunk.call_id} {'failed' if chunk.status == 'failed' else 'returned'}"
        head += "" if chunk.final else ", not finished"
    text = f"{head}: {chunk.text}" if head else chunk.text
    calls = [f"{call.name}({call.arguments})" for call in chunk.calls]
    return "\n".join([*([text] if text else []), *calls])


def fitted(entries: Sequence[Entry], entry_tokens_max: int, room: int) -> list[Entry] | None:
    """The entries, the longest shortened so that all take about `room` tokens; `None` where they cannot.

    One limit for all: what is below it stays whole, so that a single huge result costs the
    others nothing.
    """
    sizes = sorted(min(estimate_text(entry.text), entry_tokens_max) for entry in entries)
    room -= FRAME_TOKENS * len(sizes)
    limit = entry_tokens_max
    if sum(sizes) > room:
        for n, size in enumerate(sizes):
            limit = room // (len(sizes) - n)
            if size > limit:
                break
            room -= size
        if limit < ENTRY_TOKENS_MIN:
            return None
    return [replace(entry, text=shortened(entry.text, limit)) for entry in entries]


def shortened(text: str, tokens: int) -> str:
    """The text, or its head and tail in about so many (estimated) tokens, saying how much is left out."""
    size = estimate_text(text)
    if size <= tokens:
        return text
    keep = max(len(text) * tokens // size, 1)
    head, tail = text[: keep * 2 // 3], text[len(text) - keep // 3 :]
    return f"{head} [… {len(text) - len(head) - len(tail)} characters left out …] {tail}"


def render_input(entries: Sequence[Entry], context: CompactionContext, *, part_tokens_max: int) -> str:
    """The two blocks. Each part of the context takes at most about `part_tokens_max` tokens."""
    parts = (
        ("task_goal", context.task_goal),
        ("progress_summary", context.progress_summary),
        ("system_context", context.system_context),
    )
    lines = ["<context>"]
    lines += [f"  <{name}>{escaped(shortened(text, part_tokens_max))}</{name}>" for name, text in parts]
    lines += ["</context>", "", "<working_history_to_compact>"]
    for index, entry in enumerate(entries, start=1):
        kind, at = escaped(entry.type.upper(), quote=True), escaped(entry.at, quote=True)
        lines += [f'  <entry index="{index}" type="{kind}" timestamp="{at}">']
        lines += [textwrap.indent(escaped(entry.text), "    "), "  </entry>"]
    return "\n".join([*lines, "</working_history_to_compact>"])


def escaped(text: str, *, quote: bool = False) -> str:
    """The text as XML may hold it: marks as entities, what XML forbids (NUL, lone surrogates) as U+FFFD."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return html.escape(_NOT_XML.sub("\ufffd", text), quote=quote)
