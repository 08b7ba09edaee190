"""The outbox: facts on their way from this thread to another."""

import msgspec

from memory_engine.events.base import Event, event


class RefusedFact(msgspec.Struct, frozen=True):
    """A fact (by its id) that can never arrive, and why."""

    id: str
    reason: str


@event("facts_delivered", tracked=True)
class FactsDelivered(Event):
    """Facts (by their ids) arrived in their threads; those `refused` never will."""

    facts: tuple[str, ...]
    refused: tuple[RefusedFact, ...] = ()
