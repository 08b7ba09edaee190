"""Events given as mappings, as a program that reads JSON has them: `{"type": "user_message", "content": "Hi"}`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches

import msgspec

from memory_engine.core.codec import split_place
from memory_engine.core.events.base import Event, meant
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.records import NewEvent
from memory_engine.errors import InvalidEvent

MS_LEAST = 100_000_000_000
"""A timestamp from here on is in milliseconds. As seconds it is in the year 5138; as milliseconds, in 1973."""


def event_of(given: Mapping[str, object], registry: EventRegistry) -> NewEvent:
    """The event that a mapping describes: its `type` is the event's name, the other keys are the event's fields.

    A `timestamp` (milliseconds or seconds since 1970, or a `datetime`) says when it occurred, unless the event has a
    field of this name. Raises `InvalidEvent` for an unknown type or key, and for values that do not fit.
    """
    cls = _class_of(given, registry)
    fields = {name: value for name, value in given.items() if name != "type" or "type" in cls.__struct_fields__}
    occurred_at = None
    if "timestamp" in fields and "timestamp" not in cls.__struct_fields__:
        occurred_at = _parse_timestamp(cls.event_type, fields.pop("timestamp"))
    for name in fields:
        if name not in cls.__struct_fields__:
            why = f"the event has no such field ({meant(str(name), cls.__struct_fields__)})"
            raise InvalidEvent(cls.event_type, f"$.{name}", why)
    try:
        return NewEvent(msgspec.convert(fields, cls), occurred_at=occurred_at)
    except msgspec.ValidationError as error:
        raise InvalidEvent(cls.event_type, *split_place(str(error))) from None


def _class_of(given: Mapping[str, object], registry: EventRegistry) -> type[Event]:
    """The class of the event's name, which may be written in capitals, as an enumeration's member is."""
    name = given.get("type")
    if not isinstance(name, str) or not name:
        why = 'a dict needs a `type`, the name of an event: {"type": "user_message", "content": "Hello"}'
        raise InvalidEvent(type(given).__qualname__, "dispatch", why)
    known = {cls.event_type: cls for cls in registry.classes()}
    found = known.get(name) or known.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), known, n=1)
        which = f"did you mean {near[0]!r}?" if near else "`memory_engine.events` lists them; plug-ins bring others"
        raise InvalidEvent(name, "$.type", f"no event has this name ({which})")
    return found


def _parse_timestamp(event_type: str, given: object) -> datetime:
    if isinstance(given, datetime):
        return given
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InvalidEvent(event_type, "$.timestamp", "give milliseconds or seconds since 1970, or a datetime")
    try:
        return datetime.fromtimestamp(given / 1000 if given >= MS_LEAST else given, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidEvent(event_type, "$.timestamp", str(error)) from None
