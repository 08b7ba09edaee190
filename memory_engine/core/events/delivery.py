"""Facts for other threads: their destinations, the events dispatched there, and the notes of their arrival."""

from collections.abc import Collection
from typing import Literal, Protocol, runtime_checkable

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import ChunkId, FactId, Id


class Destination(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owner of the thread that a fact goes to: a user, tenant or agent; for patterns alone, an industry."""

    kind: Literal["user", "tenant", "agent", "industry"]
    id: Id
    tenant_id: Id = ""


class Delivery(msgspec.Struct, frozen=True):
    """An event for the thread of a user, tenant, agent or industry."""

    destination: Destination
    event: Event


@runtime_checkable
class Delivering(Protocol):
    """An event that brings facts for other threads: one that is declared with `delivers`."""

    def deliveries(self) -> tuple[Delivery, ...]:
        """The events to dispatch to other threads: always the same for the same event."""
        ...


@runtime_checkable
class Withdrawing(Protocol):
    """An event that takes facts back which have not left yet."""

    def withdrawn(self) -> Collection[int]:
        """The seqs of the events that brought them."""
        ...


@event("facts_rewound", tracked=True, role="memory", chunks="own", delivers="ending")
class FactsRewound(Event):
    """Events of this thread (by their ids) are hidden from its views and its search, or shown again.

    They came from a thread that was rewound, or repeat what it said. The log keeps them. Chunks of such copies go
    (`removed`).
    """

    hidden: tuple[Id, ...] = ()
    shown: tuple[Id, ...] = ()
    removed: tuple[ChunkId, ...] = ()
    reason: str = ""

    def in_few_words(self) -> str:
        """How many events, and why."""
        parts = [f"{len(ids)} {how}" for ids, how in ((self.hidden, "hidden"), (self.shown, "shown again")) if ids]
        return f"{', '.join(parts)}{f': {self.reason}' if self.reason else ''}"


class RefusedFact(msgspec.Struct, frozen=True):
    """A fact (by its id) that can never arrive, and the reason."""

    id: FactId
    reason: str


@event("facts_delivered", tracked=True, role="memory", chunks="none", upkeep=True)
class FactsDelivered(Event):
    """Facts (by their ids) arrived in their threads; those `refused` never will."""

    facts: tuple[FactId, ...]
    refused: tuple[RefusedFact, ...] = ()
