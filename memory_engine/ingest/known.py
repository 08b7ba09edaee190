"""Dispatching records of which an earlier reading may be in the thread, in the form that it had then."""

import json
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.messages import as_sent
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.errors import IdempotencyConflict
from memory_engine.formats.native import without_native
from memory_engine.formats.origin import without_origin
from memory_engine.thread import Thread


async def dispatched(events: Sequence[NewEvent], thread: Thread) -> tuple[Receipt, ...]:
    """Dispatch a record's events; one ingested before origins, or before `native` was kept, is known without it."""
    try:
        return await thread.dispatch_all(events)
    except IdempotencyConflict:
        for without in (without_origin, _comparable_event):
            known = [msgspec.structs.replace(new, event=without(new.event)) for new in events]
            if known != list(events):
                with suppress(IdempotencyConflict):
                    return await thread.dispatch_all(known)
        return await _dispatched_grown(events, thread)


async def _dispatched_grown(events: Sequence[NewEvent], thread: Thread) -> tuple[Receipt, ...]:
    """Dispatch a record's events, where those that are known may have had more, or less, of their response around them.

    A response that was ingested while it was being written had its usage on an earlier event.
    """
    events = list(events)
    has_response = any('"response":' in getattr(new.event, "native", "") for new in events)
    for _ in range(len(events)):
        try:
            return await thread.dispatch_all(events)
        except IdempotencyConflict as error:
            at = next((n for n, new in enumerate(events) if new.id == error.event_id), -1)
            async for there in thread.events(after=error.seq - 1, upto=error.seq):
                if (
                    at < 0
                    or not isinstance(there.event, Event)
                    or not _differ_in_response(there.event, events[at].event, has_response=has_response)
                ):
                    raise
                events[at] = msgspec.structs.replace(events[at], event=as_sent(there.event, there.version))
    return await thread.dispatch_all(events)


def _differ_in_response(one: Event, other: Event, *, has_response: bool) -> bool:
    """Return True if two events are equal except for the values around their responses."""
    has_response = has_response or '"response":' in getattr(one, "native", "")
    return has_response and type(one) is type(other) and _without_response(one) == _without_response(other)


def _without_response(event: Event) -> tuple[Event, object]:
    native = getattr(event, "native", "")
    kept = json.loads(native) if native.startswith("{") else {}
    said = [value.get("message") for value in kept.values() if isinstance(value, dict)]
    bare = without_native(event)
    if getattr(bare, "response_id", ""):
        bare = msgspec.structs.replace(bare, response_id="")
    return bare, [one for one in said if one is not None]


def _comparable_event(event: Event) -> Event:
    return without_origin(without_native(event))
