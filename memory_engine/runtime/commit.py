"""A commit in the making: events reduced onto a state, and the rows they become.

Events are encoded when their sender hands them over, so that waiting cannot change them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from memory_engine.core.chain import chain_hash
from memory_engine.core.clock import Clock, checked_us, to_us
from memory_engine.core.codec import encode_event
from memory_engine.core.events.base import Event
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.ids import IdSource, check_identifier
from memory_engine.core.records import NewEvent, Receipt, StoredEvent
from memory_engine.core.reduction import Reduction
from memory_engine.core.state import State
from memory_engine.core.threads import Head, LiveChunk
from memory_engine.errors import EventTooLarge, InvalidEvent
from memory_engine.runtime.correlation import current_links
from memory_engine.runtime.queue import Prepared, Request
from memory_engine.store.passages import PassageStep


class Reduced(msgspec.Struct, frozen=True, gc=False):
    """A reduced event: its row, its value, and its reduction."""

    stored: StoredEvent
    event: Event
    reduction: Reduction


class Attempt:
    """A commit in the making."""

    __slots__ = ("head", "live", "passages", "reduced", "requests", "state")

    def __init__(self, state: State, head: Head) -> None:
        self.state = state
        self.head = head
        self.requests: list[tuple[Request, list[Reduced], State]] = []
        self.reduced: list[Reduced] = []
        self.live: dict[str, LiveChunk | None] = {}
        self.passages: list[PassageStep] = []

    def holds(self, request: Request) -> bool:
        """Whether an event of the request is in here already: the same id sent twice at once."""
        if not self.requests or not request.has_callers_ids:
            return False
        ids = {event.id for event in request.events}
        return any(step.stored.id in ids for step in self.reduced)

    def make_receipts(self, receipt_of: Callable[[Reduced, State], Receipt]) -> None:
        """Done while the store is at work: nobody waits for them yet."""
        for request, reduced, state in self.requests:
            for step in reduced:
                request.receipts[step.stored.id] = receipt_of(step, state)

    def void_receipts(self) -> None:
        """Void the receipts: the commit did not happen."""
        for request, reduced, _ in self.requests:
            for step in reduced:
                request.receipts.pop(step.stored.id, None)


def linked_row(prepared: Prepared, record: bytes, head: Head, now_us: int) -> StoredEvent:
    """The row of an event, linked to the one before."""
    event, salt, payload = prepared.event, prepared.salt, prepared.payload
    header = (
        head.seq + 1,
        prepared.id,
        event.event_type,
        event.event_version,
        now_us,
        prepared.occurred_at_us,
        prepared.causation_id,
        prepared.correlation_id,
    )
    digest = chain_hash(head.hash, header, salt, payload, record)
    return StoredEvent(*header, payload, record, salt, digest, head.hash)


class Preparer(msgspec.Struct, frozen=True):
    """Encodes and checks events, and gives them ids."""

    events: EventRegistry
    ids: IdSource
    clock: Clock
    bytes_max: int

    def all(self, events: Sequence[Event | NewEvent]) -> list[Prepared]:
        """Several events of one call. Raises `InvalidEvent` also where two different ones have the same id."""
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
        """One event from its parts: see `one`. Missing causes come from the surrounding block."""
        payload, recorded = encode_event(event, self.events)
        if len(payload) > self.bytes_max:
            raise EventTooLarge(recorded.event_type, len(payload), self.bytes_max)
        for what, value in (
            ("event id", event_id), ("causation id", causation_id), ("correlation id", correlation_id)
        ):  # fmt: skip
            if value != "":
                check_identifier(what, value)
        links = current_links()
        return Prepared(
            event=recorded,
            payload=payload,
            id=event_id or self.ids.event_id(self.clock.now_us()),
            id_is_callers=bool(event_id),
            salt=self.ids.salt(),
            occurred_at_us=occurred_us(recorded, occurred_at),
            causation_id=causation_id or links.causation_id,
            correlation_id=correlation_id or links.correlation_id,
            links_are_callers=bool(causation_id or correlation_id),
        )


def occurred_us(event: Event, occurred_at: datetime | None) -> int | None:
    """The time of an event as its row holds it. Raises `InvalidEvent` for what is not a time of the years 1 to 9999."""
    if occurred_at is None:
        return None
    try:
        return checked_us(to_us(occurred_at))
    except ValueError as error:
        raise InvalidEvent(event.event_type, "occurred_at", str(error)) from None
