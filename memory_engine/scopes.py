"""Users, tenants and agents: threads that outlive conversations, found by the id of whom they are about."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, TypeVar
from urllib.parse import quote

from memory_engine.errors import ThreadExists, ThreadNotFound, WrongThreadKind
from memory_engine.events.base import Event
from memory_engine.ids import check_identifier
from memory_engine.moments import Moment
from memory_engine.persistence import ThreadFilter
from memory_engine.pools import INDUSTRY, check_pooled
from memory_engine.projections.base import Projection, ReadableRows, Rows
from memory_engine.projections.outbox import check_destinations
from memory_engine.recall.found import Found
from memory_engine.recall.indexing import Progress
from memory_engine.records import NewEvent, Receipt
from memory_engine.thread import Thread

if TYPE_CHECKING:
    from memory_engine.engine import Engine
    from memory_engine.events import Layer
    from memory_engine.projections.agent_md import AgentMd
    from memory_engine.projections.documents.view import Documents
    from memory_engine.projections.layers.sharing import Grant, SharedMemory
    from memory_engine.projections.patterns.view import Patterns
    from memory_engine.projections.playbooks import Playbooks
    from memory_engine.projections.preferences.view import Preferences

V = TypeVar("V")


class Scope(Thread):
    """A thread that is made by the first event for it; until then its views are empty."""

    kind: ClassVar[str]

    def __init__(self, engine: "Engine", scope_id: str, tenant_id: str = "") -> None:
        check_identifier(f"{self.kind} id", scope_id)
        if tenant_id:
            check_identifier("tenant id", tenant_id)
        super().__init__(engine, scope_thread_id(self.kind, scope_id, tenant_id))
        self.scope_id = scope_id
        self.tenant_id = tenant_id

    def __repr__(self) -> str:
        tenant = f", tenant_id={self.tenant_id!r}" if self.tenant_id else ""
        return f"{type(self).__name__}({self.scope_id!r}{tenant})"

    async def dispatch(
        self,
        event: Event | NewEvent,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
    ) -> Receipt:
        """Append one event, making the thread if this is its first. Raises what `Engine.dispatch` raises."""
        await self._made(event)
        return await super().dispatch(
            event,
            event_id=event_id,
            occurred_at=occurred_at,
            causation_id=causation_id,
            correlation_id=correlation_id,
        )

    async def dispatch_all(self, events: Sequence[Event | NewEvent]) -> tuple[Receipt, ...]:
        """Append events in order, all or none, making the thread if these are its first."""
        if events:
            await self._made(*events)
        return await super().dispatch_all(events)

    async def rows(self, projection: Projection[V], *, at: Moment | None = None) -> ReadableRows[V]:
        """The rows of a projection; none if nothing was ever dispatched here."""
        await self._engine.relay.recover()
        if not await self._exists():
            return Rows(projection.row, {})
        return await super().rows(projection, at=at)

    async def tail(self, projection: Projection[V], limit: int) -> list[tuple[str, V]]:
        """The last rows of a projection by key, in order, straight from the store."""
        await self._engine.relay.recover()
        return await super().tail(projection, limit) if await self._exists() else []

    async def search(  # noqa: PLR0913 - what narrows a search, by keyword
        self,
        query: str,
        *,
        limit: int = 10,
        kinds: Sequence[str] = (),
        at: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        explain: bool = False,
    ) -> Found:
        """See `Thread.search`; nothing is found if nothing was ever dispatched here."""
        await self._engine.relay.recover()
        if not await self._exists():
            return Found(query=query)
        return await super().search(query, limit=limit, kinds=kinds, at=at, since=since, until=until, explain=explain)

    async def prepare_search(self, progress: Progress | None = None) -> None:
        """See `Thread.prepare_search`."""
        if await self._exists():
            await super().prepare_search(progress)

    async def measure(self, projection: Projection[V]) -> tuple[int, int]:
        """How many rows a projection has and how many bytes their JSON takes."""
        await self._engine.relay.recover()
        return await super().measure(projection) if await self._exists() else (0, 0)

    @property
    def _tenant(self) -> str:
        return self.scope_id if self.kind == "tenant" else self.tenant_id

    async def _exists(self) -> bool:
        """Whether the thread is there. Raises `WrongThreadKind` for one that somebody made under its id by hand."""
        if self.id in self._engine.scopes_seen:
            return True
        found = await self._engine.store.threads(ThreadFilter(id=self.id))
        if not found:
            return False
        record = found[0][0]
        if (record.kind, record.tenant_id) != (self.kind, self._tenant):
            raise WrongThreadKind(self.id, record.kind, self.kind)
        self._engine.scopes_seen.add(self.id)
        return True

    async def _made(self, *events: Event | NewEvent) -> None:
        """Make the thread, unless its first events will be refused."""
        if await self._exists():
            return
        self._engine.request(events)
        bare = [event.event if isinstance(event, NewEvent) else event for event in events]
        for event in bare:
            check_destinations(event, self._tenant)
            if self.kind == INDUSTRY:
                check_pooled(event)
        self._engine.try_first(self.id, bare[0])
        try:
            await self._engine.create_thread(
                self.id,
                kind=self.kind,
                user_id=self.scope_id if self.kind == "user" else "",
                agent_id=self.scope_id if self.kind == "agent" else "",
                tenant_id=self._tenant,
            )
        except ThreadExists:  # another task or process was first
            if not await self._exists():
                raise ThreadNotFound(self.id) from None  # it was deleted: its id stays taken
        self._engine.scopes_seen.add(self.id)


class User(Scope):
    """What outlives a user's conversations: preferences, playbooks, memory."""

    kind = "user"

    @property
    def preferences(self) -> "Preferences":
        """Values and rules that change how agents behave towards this user."""
        from memory_engine.projections.preferences.view import Preferences

        return Preferences(self)

    @property
    def playbooks(self) -> "Playbooks":
        """Flows that went well."""
        from memory_engine.projections.playbooks import Playbooks

        return Playbooks(self)


class Tenant(Scope):
    """What an organisation's agents share."""

    kind = "tenant"

    @property
    def agent_md(self) -> "AgentMd":
        """The tenant's `agent.md`."""
        from memory_engine.projections.agent_md import AgentMd

        return AgentMd(self)

    @property
    def patterns(self) -> "Patterns":
        """What the tenant shares with others of its industries, and what they share with it."""
        from memory_engine.projections.patterns.view import Patterns

        return Patterns(self, self._engine.parts.redactor)

    async def delete(self) -> None:
        """Withdraw what the tenant shares with industries, then destroy the log and the state. See `Thread.delete`."""
        from memory_engine.projections.patterns.withdrawing import withdraw_all

        if await self._exists():
            await withdraw_all(self)
        await super().delete()

    @property
    def documents(self) -> "Documents":
        """What the organisation wrote, said and was sent: papers, mails, chats, calls."""
        from memory_engine.projections.documents.view import Documents

        return Documents(self)


class Industry(Scope):
    """The patterns of an industry, of whichever tenants: redacted, approved, without their names."""

    kind = INDUSTRY


class Agent(Scope):
    """What an agent keeps from run to run, and what it lets others see of it."""

    kind = "agent"

    async def share_with(self, agent_id: str, *, layers: "Layer | Sequence[Layer]", write: bool = False) -> Receipt:
        """Let another agent of this tenant read layers of this one's memory, and with `write` append to them.

        It takes the place of what that agent was granted before.
        """
        from memory_engine.projections.layers.sharing import share_with

        return await share_with(self, agent_id, layers, write=write)

    async def revoke(self, agent_id: str, *, reason: str = "") -> Receipt:
        """End what was granted to an agent, at once."""
        from memory_engine.projections.layers.sharing import revoke

        return await revoke(self, agent_id, reason)

    async def grants(self, *, at: int | None = None) -> "list[Grant]":
        """What other agents may see of this one's memory."""
        from memory_engine.projections.layers.sharing import grants_of

        return await grants_of(self, at)

    def shared(self, agent_id: str) -> "SharedMemory":
        """The memory of another agent of this tenant, as far as it is granted to this one."""
        from memory_engine.projections.layers.sharing import SharedMemory

        return SharedMemory(self, Agent(self._engine, agent_id, self.tenant_id))


def scope_thread_id(kind: str, scope_id: str, tenant_id: str = "") -> str:
    """The id of the thread: different for any two different (kind, tenant, id)."""
    mine = quote(scope_id, safe=_SAFE)
    return f"{kind}:{quote(tenant_id, safe=_SAFE)}/{mine}" if tenant_id else f"{kind}:{mine}"


_SAFE = "".join(chr(n) for n in range(33, 127) if chr(n) not in "%/")
"""Kept as they are, so that ids stay readable; what separates and what escapes are not among them."""
