"""The outbox: facts on their way from one thread to another, delivered once even if the process dies in between.

An event may bring facts for other threads (`deliveries`). They are rows of the outbox from the commit of
the event on; the engine's relay dispatches each to its thread under an id derived from the event, and
records its arrival. The next process that opens the store delivers the remaining ones: the derived id makes
a second attempt idempotent.

Other parts derive event ids in the same way (see `derived_id`), so that their second attempts are idempotent too.
"""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.delivery import Delivering, Delivery, Destination, FactsDelivered, Withdrawing
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.ids import check_identifier
from memory_engine.core.records import RecordedEvent
from memory_engine.errors import EventDecodeError, InvalidEvent
from memory_engine.projections.base import ProjectionMode, Rows, seq_key


class OutboxFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact for another thread. `seq` and `event_id` are of the event that brought it.

    `id` is its place in the thread, `arrival` the id under which it is dispatched: made of the event's hash,
    so that forks, which share the hash, bring it once. `sources` are the ids of the events behind it.
    """

    id: str
    arrival: str
    destination: Destination
    type: str
    seq: int
    event_id: str
    sources: tuple[str, ...] = ()


class WaitingFact(msgspec.Struct, frozen=True):
    """A fact that has not arrived yet, with the event to dispatch."""

    fact: OutboxFact
    version: int
    payload: msgspec.Raw

    def decode(self, registry: EventRegistry) -> Event:
        """The event to dispatch. Raises `EventDecodeError` where this process does not know its type."""
        event = registry.decode(self.fact.type, self.version, bytes(self.payload))
        if isinstance(event, UnknownEvent):
            raise EventDecodeError(self.fact.type, self.version, "this process does not know it")
        return event


def check_destinations(event: Event, tenant_id: str) -> None:
    """Raise `InvalidEvent` where a fact would leave its thread's tenant, `InvalidIdentifier` for no thread's id.

    The only events that leave a tenant deliver to an industry: approved patterns, and their end.
    """
    for delivery in event.deliveries() if isinstance(event, Delivering) else ():
        check_identifier(f"{delivery.destination.kind} id", delivery.destination.id)
        if delivery.destination.kind == "industry" and event.event_delivers != "industry":
            raise _strays(event.event_type, delivery.destination, tenant_id)
        check_destination(event.event_type, delivery.destination, tenant_id)


def check_destination(event_type: str, destination: Destination, tenant_id: str) -> None:
    """Raise `InvalidEvent` where a fact of a thread of this tenant would leave it, other than for an industry."""
    if not is_within(destination, tenant_id):
        raise _strays(event_type, destination, tenant_id)


def is_within(destination: Destination, tenant_id: str) -> bool:
    """Whether facts of a tenant's threads may go there: to threads of the same tenant, and from a tenant to a pool."""
    if destination.kind == "industry":
        return bool(tenant_id) and not destination.tenant_id
    return tenant_id == (destination.id if destination.kind == "tenant" else destination.tenant_id)


def _strays(event_type: str, destination: Destination, tenant_id: str) -> InvalidEvent:
    if destination.kind == "industry":
        why = f"it is for industry {destination.id!r}; nothing but a tenant's approved patterns goes there"
    else:
        to = destination.id if destination.kind == "tenant" else destination.tenant_id
        why = f"it is for tenant {to!r}, its thread belongs to tenant {tenant_id!r}; facts stay within a tenant"
    return InvalidEvent(event_type, "destination", why)


class OutboxFold:
    """The facts that have not arrived yet, by id."""

    name = "outbox"
    survives_clear = True
    version = 1
    mode: ProjectionMode = "inline"
    row = WaitingFact
    lazy = False

    def __init__(self, delivering: Iterable[str] = ()) -> None:
        """Make it for an engine whose events that bring facts are of these types."""
        self.event_type_names = frozenset((*delivering, FactsDelivered.event_type))

    def apply(self, rows: Rows[WaitingFact], event: RecordedEvent) -> None:
        """Add the facts of an event; drop those that arrived, and those forgotten before they left."""
        body = event.event
        if isinstance(body, FactsDelivered):
            for fact_id in (*body.facts, *(refused.id for refused in body.refused)):
                rows.drop(fact_id)
        if isinstance(body, Withdrawing):
            withdrawn = body.withdrawn()
            for fact_id in [key for key, waiting in rows.items() if waiting.fact.seq in withdrawn]:
                rows.drop(fact_id)
        for delivery, fact in _facts(event):
            payload = msgspec.Raw(msgspec.json.encode(delivery.event))
            rows.put(fact.id, WaitingFact(fact, delivery.event.event_version, payload))


class FactsFold:
    """Every fact that left a thread, by id: a forgetting must reach the threads that they went to."""

    name = "facts"
    survives_clear = True
    version = 1
    mode: ProjectionMode = "inline"
    row = OutboxFact
    lazy = False

    def __init__(self, delivering: Iterable[str] = ()) -> None:
        """Make it for an engine whose events that bring facts are of these types."""
        self.event_type_names = frozenset(delivering)

    def apply(self, rows: Rows[OutboxFact], event: RecordedEvent) -> None:
        """Note the facts of an event."""
        for _, fact in _facts(event):
            rows.put(fact.id, fact)


def _facts(event: RecordedEvent) -> list[tuple[Delivery, OutboxFact]]:
    if not isinstance(event.event, Delivering):
        return []
    sources = tuple(getattr(event.event, "sources", ()))
    found = []
    for n, delivery in enumerate(event.event.deliveries()):
        fact = OutboxFact(
            id=f"{seq_key(event.seq)}.{n}",
            arrival=f"fact:{_arrival(event.hash, delivery.destination)}.{n}",
            destination=delivery.destination,
            type=delivery.event.event_type,
            seq=event.seq,
            event_id=event.id,
            sources=sources,
        )
        found.append((delivery, fact))
    return found


def _arrival(event_hash: str, destination: Destination) -> str:
    """The parts of an arrival's id. An industry does not learn hashes of a tenant's log."""
    if destination.kind == "industry":
        return sha256(f"{destination.kind} {event_hash}".encode()).hexdigest()[:32]
    return event_hash[:32]


OUTBOX = OutboxFold()
FACTS = FactsFold()
"""The projections to ask a thread's rows for. `folds_of` gives those of an engine, which know its events."""


def folds_of(registry: EventRegistry) -> tuple[OutboxFold, FactsFold]:
    """The folds of an engine that knows these events."""
    return OutboxFold(registry.delivering()), FactsFold(registry.delivering())


def derived_id(purpose: str, *parts: str) -> str:
    """The id of a purpose and its parts: different ones never share an id. Parts may be texts of any length."""
    digest = sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return f"{purpose}:{digest.hexdigest()[:40]}"
