"""Facts for other threads: whom they are for, what is dispatched there, and that they arrived."""

from typing import Literal

import msgspec

from memory_engine.core.events.base import Event, event


class Destination(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user, tenant or agent: whose thread a fact goes to. An industry: where patterns go, and nothing else."""

    kind: Literal["user", "tenant", "agent", "industry"]
    id: str
    tenant_id: str = ""


class Delivery(msgspec.Struct, frozen=True):
    """An event for the thread of a user, tenant, agent or industry."""

    destination: Destination
    event: Event


class RefusedFact(msgspec.Struct, frozen=True):
    """A fact (by its id) that can never arrive, and why."""

    id: str
    reason: str


@event("facts_delivered", tracked=True)
class FactsDelivered(Event):
    """Facts (by their ids) arrived in their threads; those `refused` never will."""

    facts: tuple[str, ...]
    refused: tuple[RefusedFact, ...] = ()
