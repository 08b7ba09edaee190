"""Reruns: what a log that was run again under a change says of what it left out."""

from memory_engine.events.base import Event, event


@event("event_skipped")
class EventSkipped(Event):
    """The place of an event of the original log that a rerun leaves out: its seq stays taken, and nothing comes of it.

    So the chunk ids of all later events stay as they were. `skipped_type` and `skipped_id` are the event's.
    """

    skipped_type: str
    skipped_id: str
    reason: str = ""
