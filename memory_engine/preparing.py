"""Events as they come from a sender, encoded so that waiting cannot change them."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from memory_engine.clock import Clock, to_us
from memory_engine.codec import encode_event
from memory_engine.correlation import current_links
from memory_engine.errors import EventTooLarge, InvalidEvent
from memory_engine.events.base import Event
from memory_engine.events.registry import EventRegistry
from memory_engine.ids import IdSource, check_identifier
from memory_engine.queue import Prepared
from memory_engine.records import NewEvent


class Preparer(msgspec.Struct, frozen=True):
    """Encodes and checks events, and gives them ids."""

    events: EventRegistry
    ids: IdSource
    clock: Clock
    bytes_max: int

    def all(self, events: Sequence[Event | NewEvent]) -> list[Prepared]:
        """Several events of one call. Raises `InvalidEvent` also where two different ones bear one id."""
        prepared = [self.one(e if isinstance(e, NewEvent) else NewEvent(e)) for e in events]
        seen: dict[str, bytes] = {}
        for one in prepared:
            if seen.setdefault(one.id, one.payload) != one.payload:
                raise InvalidEvent(one.event.event_type, f"event id {one.id!r}", "two events of the call bear this id")
        return prepared

    def one(self, new: NewEvent) -> Prepared:
        """One event. Raises `InvalidEvent`, `EventTooLarge`, `UndeclaredEvent`, `InvalidIdentifier`."""
        return self.parts(new.event, new.id, new.occurred_at, new.causation_id, new.correlation_id)

    def parts(
        self,
        event: Event,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
    ) -> Prepared:
        """One event from its parts: see `one`. Causes that are not given are those of the block around."""
        payload, recorded = encode_event(event, self.events)
        if len(payload) > self.bytes_max:
            raise EventTooLarge(recorded.event_type, len(payload), self.bytes_max)
        for what, value in (
            ("event id", event_id), ("causation id", causation_id), ("correlation id", correlation_id)
        ):  # fmt: skip
            if value:
                check_identifier(what, value)
        links = current_links()
        return Prepared(
            event=recorded,
            payload=payload,
            id=event_id or self.ids.event_id(self.clock.now_us()),
            id_is_callers=bool(event_id),
            salt=self.ids.salt(),
            occurred_at_us=_moment(recorded, occurred_at) if occurred_at is not None else None,
            causation_id=causation_id or links.causation_id,
            correlation_id=correlation_id or links.correlation_id,
            links_are_callers=bool(causation_id or correlation_id),
        )


def _moment(event: Event, occurred_at: datetime) -> int:
    try:
        return to_us(occurred_at)
    except ValueError as error:
        raise InvalidEvent(event.event_type, "occurred_at", str(error)) from None
