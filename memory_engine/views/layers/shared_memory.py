"""Memory shared between agents of one tenant: the owner grants layers, the other reads them, and writes if it may.

A grant is a fact in the owner's log, and is looked up there at every call: a revocation holds at once. The
other agent's entries are facts in its own log first, and arrive in the owner's memory once, with their provenance.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from memory_engine.core.arguments import checked_type
from memory_engine.core.events.delivery import Destination
from memory_engine.core.records import Receipt
from memory_engine.errors import NotGranted
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.views.layers.entries import (
    KnowledgeEntry,
    MemoryEntry,
    MemoryHit,
    ProceduralRule,
    SearchMode,
    appended_event,
    check_layer,
    check_layers,
    knowledge_event,
    moment_of,
    shared_event,
)
from memory_engine.views.layers.events import Layer, MemoryGranted, MemoryRevoked, MemoryShared
from memory_engine.views.layers.grants import GRANTS, grant_key
from memory_engine.views.layers.keywords import MemoryQuery, search_layers
from memory_engine.views.layers.view import Memory


class Grant(msgspec.Struct, frozen=True):
    """Lets an agent of the same tenant read layers, and with `write` append to them. `event_id` granted it."""

    agent_id: str
    layers: tuple[Layer, ...]
    write: bool
    event_id: str


async def share_with(owner: ScopeHandle, agent_id: str, layers: "Layer | Sequence[Layer]", *, write: bool) -> Receipt:
    """Grant layers to an agent of the same tenant, in place of its former grant."""
    checked_type("layers", layers, Collection, give="a layer's name, or several: nobody grants all of them unnamed")
    event = MemoryGranted(grantee=_agent(owner, agent_id), layers=check_layers(layers), write=write)
    return await owner.dispatch(event)


async def also_share(owner: ScopeHandle, agent_id: str, layers: Sequence[Layer], *, write: bool) -> None:
    """Grant further layers, in addition to those granted."""
    held = next((grant for grant in await grants_of(owner, None) if grant.agent_id == agent_id), None)
    former = held.layers if held is not None else ()
    could_write = held is not None and held.write
    wanted = tuple(dict.fromkeys((*former, *layers)))
    if wanted != former or (write and not could_write):
        await share_with(owner, agent_id, wanted, write=write or could_write)


async def revoke(owner: ScopeHandle, agent_id: str, reason: str) -> Receipt:
    """End the grant to an agent."""
    return await owner.dispatch(MemoryRevoked(grantee=_agent(owner, agent_id), reason=reason))


async def grants_of(owner: ScopeHandle, at: int | None) -> list[Grant]:
    """The grants that hold, by agent."""
    rows = await owner.rows(GRANTS, at=at)
    return [Grant(row.grantee.id, row.layers, row.write, row.event_id) for _, row in rows.items()]


def _agent(owner: ScopeHandle, agent_id: str) -> Destination:
    return Destination(kind="agent", id=agent_id, tenant_id=owner.tenant_id)


class SharedMemory:
    """Another agent's memory, within its grants to this one. Every call checks the grant again."""

    def __init__(self, reader: ScopeHandle, owner: ScopeHandle) -> None:
        self._reader = reader
        self._owner = owner

    async def granted(self) -> Grant | None:
        """The current grant."""
        row = (await self._owner.rows(GRANTS)).get(grant_key(_agent(self._owner, self._reader.scope_id)))
        return Grant(row.grantee.id, row.layers, row.write, row.event_id) if row is not None else None

    async def search(
        self,
        layer: "Layer | Sequence[Layer] | None",
        query: str,
        limit: int = 10,
        *,
        mode: SearchMode = "hybrid",
    ) -> list[MemoryHit]:
        """Like `Memory.search`; `None` searches all granted layers. Raises `NotGranted` for any other layer."""
        layers = check_layers(layer) if layer is not None else tuple((await self._allowed(None)).layers)
        for one in layers:
            await self._allowed(one)
        return await search_layers(self._owner, layers, MemoryQuery(query=query, limit=limit, mode=mode))

    async def recall(self, key: str) -> KnowledgeEntry | None:
        """The owner's knowledge under a key. Raises `NotGranted`."""
        await self._allowed("semantic")
        return await Memory(self._owner).recall(key)

    async def rules(self) -> list[ProceduralRule]:
        """The owner's rules. Raises `NotGranted`."""
        await self._allowed("procedural")
        return await Memory(self._owner).rules()

    async def append(  # noqa: PLR0913 - what an entry holds, by keyword
        self,
        layer: Layer,
        entry: "str | MemoryEntry | Mapping[str, object]",
        *,
        metadata: Mapping[str, object] | None = None,
        key: str = "",
        condition: str = "",
        timestamp: datetime | float | None = None,
        recalled: bool = False,
    ) -> Receipt:
        """Add an entry to the owner's memory: recorded here, and delivered there when this returns.

        Raises `NotGranted`, and the errors of `Memory.append`.
        """
        await self._allowed(check_layer(layer), write=True)
        given = MemoryEntry(
            content="",
            metadata={} if metadata is None else metadata,
            key=key,
            condition=condition,
            timestamp=moment_of(timestamp),
            recalled=recalled,
        )
        capacity = self._reader.kernel.config.working_entries_max
        event = appended_event(layer, entry, given, capacity)
        return await self._send(shared_event(event, _agent(self._owner, self._owner.scope_id), self._reader.id))

    async def learn(self, key: str, value: str) -> Receipt:
        """Add a fact to the owner's memory. Raises `NotGranted`, and the errors of `Memory.learn`."""
        await self._allowed("semantic", write=True)
        event = knowledge_event(key, value, recalled=False)
        return await self._send(shared_event(event, _agent(self._owner, self._owner.scope_id), self._reader.id))

    async def _send(self, event: MemoryShared) -> Receipt:
        receipt = await self._reader.dispatch(event)
        await self._reader.kernel[Relay].deliver(self._reader.id)
        return receipt

    async def _allowed(self, layer: Layer | None, *, write: bool = False) -> Grant:
        grant = await self.granted()
        if grant is None or (layer is not None and layer not in grant.layers) or (write and not grant.write):
            owner, reader = self._owner, self._reader
            raise NotGranted(owner.scope_id, reader.scope_id, owner.tenant_id, layer or "semantic", write)
        return grant
