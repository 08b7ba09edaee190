"""The outbox: facts on their way from this thread to another."""

from memory_engine.events.base import Event, event


@event("facts_delivered", tracked=True)
class FactsDelivered(Event):
    """Facts (by their ids) arrived in their threads."""

    facts: tuple[str, ...]
