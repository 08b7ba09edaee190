"""Facts for other threads: whom they are for, and what is dispatched there."""

from typing import Literal

import msgspec

from memory_engine.events.base import Event


class Destination(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user, tenant or agent: whose thread a fact goes to. An industry: where patterns go, and nothing else."""

    kind: Literal["user", "tenant", "agent", "industry"]
    id: str
    tenant_id: str = ""


class Delivery(msgspec.Struct, frozen=True):
    """An event for the thread of a user, tenant, agent or industry."""

    destination: Destination
    event: Event
