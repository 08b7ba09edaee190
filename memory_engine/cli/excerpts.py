"""Events and chunks in a few words."""

from collections.abc import Sequence

import msgspec

from memory_engine.chunks import Chunk, content_text
from memory_engine.cli.text import counted, number
from memory_engine.events.base import Event, ToolCall, UnknownEvent
from memory_engine.events.compaction import CompactionCompleted, CompactionStarted, CompactionUndone


def of_event(event: Event | UnknownEvent) -> str:
    """What an event says."""
    match event:
        case UnknownEvent():
            return f"(version {event.version} is not known here)"
        case CompactionStarted():
            return f"{event.trigger}: {counted(len(event.chunk_ids), 'chunk')} to {event.compactor}"
        case CompactionCompleted():
            covered = sum(len(replacement.covers) for replacement in event.replacements)
            tokens = f"{number(event.tokens_before)} → {number(event.tokens_after)} tokens"
            return f"{event.trigger}: {counted(covered, 'chunk')}, {tokens}, by {event.compactor}"
        case CompactionUndone():
            why = f": {event.reason}" if event.reason else ""
            back = f"{counted(len(event.restored), 'chunk')} back"
            return f"the compaction of event {event.completed}, {back}{why}"
    body = event.bodies()[0] if event.bodies() else None
    said = " ".join(filter(None, (content_text(body.content), of_calls(body.calls)))) if body else ""
    if said:
        return said
    fields = msgspec.to_builtins(event)
    return ", ".join(f"{name} {value}" for name, value in fields.items())


def of_calls(calls: Sequence[ToolCall]) -> str:
    """Calls as a programmer writes them."""
    return " ".join(f"{call.name}({call.arguments})" for call in calls)


def of_chunk(chunk: Chunk) -> str:
    """What a chunk says."""
    said = " ".join(filter(None, (chunk.text, of_calls(chunk.calls))))
    if chunk.call_id:
        said = f"← {chunk.label or chunk.call_id}: {said}"
    return f"{chunk.status}: {said}" if chunk.status in ("failed", "completed", "in_progress") else said


def parents(chunk: Chunk) -> str:
    """Which chunks it came from: all of few, first and last of many."""
    ids = chunk.parent_ids
    return " ".join(ids) if len(ids) <= 2 else f"{ids[0]}…{ids[-1]}"
