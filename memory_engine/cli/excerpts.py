"""Events, chunks and hits: in a few words, and as JSON."""

from collections.abc import Sequence

import msgspec

from memory_engine.chunks import Chunk, content_text
from memory_engine.cli.text import counted, number
from memory_engine.events.base import Event, ToolCall, UnknownEvent
from memory_engine.events.compaction import CompactionCompleted, CompactionStarted
from memory_engine.recall.found import Hit
from memory_engine.records import RecordedEvent


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


def event_as_json(recorded: RecordedEvent) -> dict[str, object]:
    """An event as `log --json` prints it, and as `ingest --format events` reads it back.

    The payload is that of the newest schema version, which `version` names.
    """
    event = recorded.event
    payload: object
    if isinstance(event, UnknownEvent):
        version, payload = event.version, msgspec.json.decode(event.raw)
    else:
        version, payload = event.event_version, msgspec.to_builtins(event)
    shown: dict[str, object] = {
        "thread_id": recorded.thread_id,
        "seq": recorded.seq,
        "id": recorded.id,
        "type": recorded.type,
        "version": version,
        "recorded_at": recorded.recorded_at.isoformat(),
        "payload": payload,
        "chunks": [chunk.id for chunk in recorded.chunks],
        "hash": recorded.hash,
    }
    if recorded.occurred_at is not None:
        shown["occurred_at"] = recorded.occurred_at.isoformat()
    for name in ("causation_id", "correlation_id"):
        if value := getattr(recorded, name):
            shown[name] = value
    return shown


def chunk_as_json(chunk: Chunk, container: str) -> dict[str, object]:
    """A chunk with every field that a reader asks for first, then what else it has."""
    first = {
        "id": chunk.id,
        "type": chunk.type,
        "retention": chunk.retention.value,
        "category": chunk.category.value,
        "tokens": chunk.tokens,
        "text": chunk.text,
        "parent_ids": list(chunk.parent_ids),
        "container": container,
    }
    rest: dict[str, object] = msgspec.to_builtins(chunk)
    return first | rest


def hit_as_json(hit: Hit) -> dict[str, object]:
    """A passage that was found, with every field that a program may want."""
    return {
        "text": hit.text,
        "kind": hit.kind,
        "role": hit.role,
        "speaker": hit.speaker,
        "about": hit.about,
        "at": hit.at.isoformat(),
        "thread_id": hit.thread_id,
        "seq": hit.seq,
        "event_id": hit.event_id,
        "event_type": hit.event_type,
        "key": hit.key,
        "score": hit.score,
        "why": hit.why,
        "parts": dict(hit.parts),
        "alike": list(hit.alike),
    }
