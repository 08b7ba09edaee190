"""Events as JSON: written by hand or by a program, or printed by `memory-engine log --json`."""

import json
from collections.abc import Mapping
from datetime import datetime

from memory_engine.errors import EventDecodeError
from memory_engine.events.base import Event
from memory_engine.events.registry import EventRegistry
from memory_engine.ingest.readings import Reading, Unusable, event_id, kind_of
from memory_engine.records import NewEvent


class EventReader:
    """Turns objects `{"type", "version"?, "payload", "id"?, "occurred_at"?, "seq"?, …}` into events.

    Without a `version` the newest is meant; without an `id` it follows from the thread and
    the place in the file. A `seq` claims the event's place in its log (see `Ingestion`).
    Other keys are what a log says about an event beyond it, and are passed over.
    """

    def __init__(self, thread_id: str, registry: EventRegistry) -> None:
        self._thread_id = thread_id
        self._registry = registry
        self._versions = {cls.event_type: cls.event_version for cls in registry.classes()}

    def read(self, value: object, number: int) -> Reading:
        """The event of record `number` (from 1). Raises `Unusable`."""
        if not isinstance(value, Mapping):
            raise Unusable(f"an event is an object, this is {kind_of(value)}")
        new = NewEvent(
            self._event(value),
            id=_text(value, "id") or event_id(self._thread_id, number),
            occurred_at=_moment(value, "occurred_at"),
            causation_id=_text(value, "causation_id"),
            correlation_id=_text(value, "correlation_id"),
        )
        return Reading((new,), seq=_number(value, "seq"))

    def refused(self) -> None:
        """Nothing to forget: every event stands for itself."""

    def _event(self, value: Mapping[str, object]) -> Event:
        name = _text(value, "type")
        if name not in self._versions:
            raise Unusable(f"the event type {name[:60]!r} is not known here")
        newest = self._versions[name]
        version = _number(value, "version") or newest
        payload = value.get("payload")
        if not isinstance(payload, Mapping):
            raise Unusable(f"the payload of an event is an object, this is {kind_of(payload)}")
        try:
            event = self._registry.decode(name, version, json.dumps(payload).encode())
        except EventDecodeError as error:
            raise Unusable(f"the payload does not fit {name}: {error.why}") from None
        if not isinstance(event, Event):
            raise Unusable(f"version {version} of {name} is not known here, {newest} is the newest")
        unknown = set(payload) - set(event.__struct_fields__) if version == newest else set()
        if unknown:
            raise Unusable(f"the payload of {name} has no {', '.join(sorted(unknown))[:60]!r}")
        return event


def _text(value: Mapping[str, object], key: str) -> str:
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise Unusable(f"{key} is a text, this is {kind_of(found)}")
    return found


def _number(value: Mapping[str, object], key: str) -> int | None:
    found = value.get(key)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise Unusable(f"{key} is a whole number from 1 on")
    return found


def _moment(value: Mapping[str, object], key: str) -> datetime | None:
    text = _text(value, key)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Unusable(f"{key} is a moment in ISO 8601, not {text[:60]!r}") from None
    if moment.tzinfo is None:
        raise Unusable(f"{key} has no time zone: {text[:60]!r}")
    return moment
