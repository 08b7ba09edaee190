"""What one commit is about to make true: events reduced onto a state, and the rows they become."""

from collections.abc import Callable

import msgspec

from memory_engine.events.base import Event
from memory_engine.log import chain_hash
from memory_engine.persistence import Head, LiveChunk
from memory_engine.queue import Prepared, Request
from memory_engine.recall.passages import PassageStep
from memory_engine.records import Receipt, StoredEvent
from memory_engine.reducing import Reduction
from memory_engine.state import State


class Reduced(msgspec.Struct, frozen=True, gc=False):
    """An event that was reduced: its row, its value, and what it does."""

    stored: StoredEvent
    event: Event
    reduction: Reduction


class Attempt:
    """What one commit is about to make true."""

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

    def settle(self, receipt_of: Callable[[Reduced, State], Receipt]) -> None:
        """Make the receipts. Done while the store is at work: nobody waits for them yet."""
        for request, reduced, state in self.requests:
            for step in reduced:
                request.settled[step.stored.id] = receipt_of(step, state)

    def unsettle(self) -> None:
        """The commit did not happen: the receipts are void."""
        for request, reduced, _ in self.requests:
            for step in reduced:
                request.settled.pop(step.stored.id, None)


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
    return StoredEvent(*header, payload, record, salt, digest)
