"""Events and chunks as plain JSON values: an object of what they are, with the payload as the log has it."""

import msgspec

from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import UnknownEvent
from memory_engine.core.json_form import as_data, named
from memory_engine.core.records import RecordedEvent


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
    return {
        **named(recorded, "thread_id seq id type"),
        "version": version,
        "recorded_at": as_data(recorded.recorded_at),
        "payload": payload,
        "chunks": [chunk.id for chunk in recorded.chunks],
        "hash": recorded.hash,
        **{name: as_data(value) for name in _IF_KNOWN if (value := getattr(recorded, name))},
    }


_IF_KNOWN = ("occurred_at", "causation_id", "correlation_id")


def chunk_as_data(chunk: Chunk, container: str = "") -> dict[str, object]:
    """A chunk with every field that a reader asks for first, then what else it has."""
    first = named(chunk, "id type retention category tokens text parent_ids") | {"container": container}
    rest: dict[str, object] = msgspec.to_builtins(chunk)
    return first | rest
