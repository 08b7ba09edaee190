"""Records as events: what every reader of records gives, and records that are events already.

A record becomes events whose ids are the same whenever the file is read again. It may be an event as JSON: written
by hand or by a program, or printed by `memory-engine log --json`.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Protocol

from attrs import frozen

from memory_engine.core.clock import checked_us, to_us
from memory_engine.core.events.base import Event
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.recordings import Record
from memory_engine.core.records import NewEvent
from memory_engine.errors import EventDecodeError
from memory_engine.formats.values import kind_of

NAMESPACE = uuid.UUID("6b0c1f0e-3c56-5d4e-9a53-0f1a7c2d8e41")
"""The namespace of the event ids (version 5 UUIDs). Never change it: known events would be ingested again as new."""


IDS_KEPT = 256
"""Ids of the newest records: most are asked for twice, the second time as what the next record follows."""


class UnusableRecord(Exception):
    """A record that cannot become an event; the text says why."""


@frozen
class RecordReading:
    """The events of one record. `seq`: the place in its log that the record claims, if it claims one."""

    events: Sequence[NewEvent]
    seq: int | None = None


class Translator(Protocol):
    """Turns the records of one thread, in their order, into events."""

    def take(self, record: Record) -> RecordReading:
        """The events of a record. Raises `UnusableRecord`, and then has not taken the record."""
        ...

    def refused(self) -> None:
        """Forget the record read last: the engine has not taken its events."""
        ...

    def copy(self, thread_id: str = "") -> "Translator":
        """Another one that knows what this one does now, for another thread if one is named."""
        ...


@lru_cache(maxsize=IDS_KEPT)
def event_id(thread_id: str, number: int | str, part: int = 0) -> str:
    """The id of an event of a thread's record, by its number or its key: the same whenever the file is ingested again.

    `part` 0 is the message itself, 1 the reasoning before it.
    """
    return str(uuid.uuid5(NAMESPACE, f"{number}.{part} {thread_id}"))


class EventReader:
    """Turns objects `{"type", "version"?, "payload", "id"?, "occurred_at"?, "seq"?, …}` into events.

    Without a `version` the newest is meant; without an `id` it follows from the thread and
    the place in the file. A `seq` claims the event's place in its log (see `Ingestion`).
    Other keys, which a printed log has around the event, are ignored.
    """

    def __init__(self, thread_id: str, registry: EventRegistry) -> None:
        self._thread_id = thread_id
        self._registry = registry
        self._versions = {cls.event_type: cls.event_version for cls in registry.classes()}

    def take(self, record: Record) -> RecordReading:
        """The event of a record. Raises `UnusableRecord`."""
        return self.read(record.value, record.number)

    def read(self, value: object, number: int) -> RecordReading:
        """The event of record `number` (from 1). Raises `UnusableRecord`."""
        if not isinstance(value, Mapping):
            raise UnusableRecord(f"an event is an object, this is {kind_of(value)}")
        new = NewEvent(
            self._event(value),
            id=record_text(value, "id") or event_id(self._thread_id, number),
            occurred_at=_iso_moment(value, "occurred_at"),
            causation_id=record_text(value, "causation_id"),
            correlation_id=record_text(value, "correlation_id"),
        )
        return RecordReading((new,), seq=_positive_number(value, "seq"))

    def refused(self) -> None:
        """Nothing to forget: every event is complete."""

    def copy(self, thread_id: str = "") -> "EventReader":
        """The same: every event is complete."""
        return EventReader(thread_id, self._registry) if thread_id else self

    def _event(self, value: Mapping[str, object]) -> Event:
        name = record_text(value, "type")
        if name not in self._versions:
            raise UnusableRecord(f"the event type {name[:60]!r} is not known here; open the engine with its plug-in")
        newest = self._versions[name]
        version = _positive_number(value, "version") or newest
        payload = value.get("payload")
        if not isinstance(payload, Mapping):
            raise UnusableRecord(f"the payload of an event is an object, this is {kind_of(payload)}")
        try:
            event = self._registry.decode(name, version, json.dumps(payload).encode())
        except EventDecodeError as error:
            raise UnusableRecord(f"the payload does not fit {name}: {error.why}") from None
        if not isinstance(event, Event):
            raise UnusableRecord(f"version {version} of {name} is not known here, {newest} is the newest")
        unknown = set(payload) - set(event.__struct_fields__) if version == newest else set()
        if unknown:
            raise UnusableRecord(f"the payload of {name} has no {', '.join(sorted(unknown))[:60]!r}")
        return event


def record_text(value: Mapping[str, object], key: str) -> str:
    """The text under a key, empty without one. Raises `UnusableRecord` for any other value."""
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise UnusableRecord(f"{key} is a text, this is {kind_of(found)}")
    return found


def _positive_number(value: Mapping[str, object], key: str) -> int | None:
    found = value.get(key)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise UnusableRecord(f"{key} is a whole number from 1 on")
    return found


def _iso_moment(value: Mapping[str, object], key: str) -> datetime | None:
    text = record_text(value, key)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UnusableRecord(f"{key} is a moment in ISO 8601, not {text[:60]!r}") from None
    if moment.tzinfo is None:
        raise UnusableRecord(f"{key} has no time zone: {text[:60]!r}")
    try:
        checked_us(to_us(moment))
    except ValueError as error:
        raise UnusableRecord(f"{key} is not a time that could be kept: {error}") from None
    return moment
