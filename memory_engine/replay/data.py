"""Events, chunks and hits as plain JSON values: for programs, files and pages."""

import msgspec

from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import UnknownEvent
from memory_engine.core.records import RecordedEvent
from memory_engine.recall.hits import Hit


def event_as_data(recorded: RecordedEvent) -> dict[str, object]:
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


def chunk_as_data(chunk: Chunk, container: str = "") -> dict[str, object]:
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


def hit_as_data(hit: Hit) -> dict[str, object]:
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
