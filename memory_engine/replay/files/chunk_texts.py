"""Recorded chunks with their texts taken out."""

from collections.abc import Callable

import msgspec

from memory_engine.chunks import Chunk
from memory_engine.events.base import Content, SummaryLine, TextPart, ToolCall
from memory_engine.replay.files.payloads import Hide, Walk
from memory_engine.replay.files.texts import Kind


def chunk_without(chunk: Chunk, walk: Walk, hide: Hide, is_told: Callable[[SummaryLine], bool]) -> Chunk:
    """A chunk as its event, which has gone its `walk` already, is to hold it. Of a summary those lines go that tell."""
    return msgspec.structs.replace(
        chunk,
        content=_content(chunk.content, walk, hide),
        calls=tuple(_call(call, walk, hide) for call in chunk.calls),
        lines=tuple(line_without(line, walk, Hide.TEXTS if hide or is_told(line) else hide) for line in chunk.lines),
        label=_label(chunk.label, walk, hide),
        name=_name(chunk.name, walk),
        status=walk.text(chunk.status, Kind.STATUS, hide),
        call_id=_id(chunk.call_id, walk),
        response_id=_id(chunk.response_id, walk),
    )


def line_without(line: SummaryLine, walk: Walk, hide: Hide) -> SummaryLine:
    """A line of a summary."""
    sources = tuple(walk.text(source, Kind.CHUNK, Hide.MATCHES) for source in line.sources)
    return SummaryLine(line.section, walk.text(line.text, Kind.TEXT, hide), sources)


def _content(content: Content, walk: Walk, hide: Hide) -> Content:
    if isinstance(content, str):
        return walk.text(content, Kind.TEXT, hide)
    return tuple(
        TextPart(walk.text(part.text, Kind.TEXT, hide))
        if isinstance(part, TextPart)
        else msgspec.structs.replace(
            part, url=walk.text(part.url, Kind.TEXT, hide), alt=walk.text(part.alt, Kind.TEXT, hide)
        )
        for part in content
    )


def _call(call: ToolCall, walk: Walk, hide: Hide) -> ToolCall:
    return msgspec.structs.replace(
        call,
        id=_id(call.id, walk),
        name=_id(call.name, walk),
        arguments=walk.text(call.arguments, Kind.JSON, hide),
    )


def _id(text: str, walk: Walk) -> str:
    """An id, or the other one that the event has for it now."""
    return walk.renamed.get(text) or walk.text(text, Kind.ID, Hide.MATCHES)


def _label(label: str, walk: Walk, hide: Hide) -> str:
    """A label is a name or an id that the event has, or words."""
    if label in walk.renamed:
        return walk.renamed[label]
    return label if label in walk.kept else walk.text(label, Kind.TEXT, hide)


def _name(name: str, walk: Walk) -> str:
    """What a chunk goes by is often made of what the event calls something: `environment:weather`."""
    for old, new in walk.renamed.items():
        if name == old or name.endswith(f":{old}"):
            return name.removesuffix(old) + new
    return walk.scrubber.named(name)
