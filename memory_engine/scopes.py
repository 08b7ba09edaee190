"""Users, tenants, agents and industries: threads that outlive conversations, found by the id of their owner."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import Receipt
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import ThreadFilter
from memory_engine.thread import Thread

if TYPE_CHECKING:
    from memory_engine.administration import erasing
    from memory_engine.events import Layer
    from memory_engine.views.documents import view as documents
    from memory_engine.views.layers import shared_memory
    from memory_engine.views.patterns import view as patterns
    from memory_engine.views.playbooks import view as playbooks
    from memory_engine.views.preferences import view as preferences
    from memory_engine.views.promotion import agent_md
else:
    erasing = lazy_module("memory_engine.administration.erasing")
    documents = lazy_module("memory_engine.views.documents.view")
    shared_memory = lazy_module("memory_engine.views.layers.shared_memory")
    patterns = lazy_module("memory_engine.views.patterns.view")
    playbooks = lazy_module("memory_engine.views.playbooks.view")
    preferences = lazy_module("memory_engine.views.preferences.view")
    agent_md = lazy_module("memory_engine.views.promotion.agent_md")


class Scope(Thread):
    """A thread that its first event creates; until then its views are empty."""

    def __init__(self, handle: ScopeHandle) -> None:
        super().__init__(handle)
        self.scope_id: str = handle.scope_id
        self.tenant_id: str = handle.tenant_id
        self._scope = handle

    def __repr__(self) -> str:
        tenant = f", tenant_id={self.tenant_id!r}" if self.tenant_id else ""
        return f"{type(self).__name__}({self.scope_id!r}{tenant})"

    async def exists(self) -> bool:
        """Whether anything was dispatched here, including facts on their way from other threads.

        Raises `WrongThreadKind` for a thread created under this id by hand.
        """
        return await self._scope.exists()


class User(Scope):
    """A user's thread, which outlives conversations: preferences, playbooks, memory."""

    @property
    def preferences(self) -> "preferences.Preferences":
        """Values and rules that change how agents behave towards this user."""
        return preferences.Preferences(self._handle)

    async def erase_all(self, *, by: str = "", reason: str = "", dry_run: bool = False) -> "erasing.ErasureReport":
        """Destroy everything of this user: this thread, all conversations, and what they became in other threads.

        See `Admin.erase`. Raises `ThreadHasForks` for a fork that belongs to someone else.
        """
        where = ThreadFilter(user_id=self.scope_id, tenant_id=self.tenant_id)
        return await _erase_all(self._handle, where, by, reason, dry_run=dry_run)

    @property
    def playbooks(self) -> "playbooks.Playbooks":
        """The flows that went well, for reuse."""
        return playbooks.Playbooks(self._handle)


class Tenant(Scope):
    """A tenant's thread: the memory that an organisation's agents share."""

    async def erase_all(self, *, by: str = "", reason: str = "", dry_run: bool = False) -> "erasing.ErasureReport":
        """Destroy everything of this tenant: all its threads, its users', and what it shared with industries.

        See `Admin.erase`.
        """
        return await _erase_all(self._handle, ThreadFilter(tenant_id=self.scope_id), by, reason, dry_run=dry_run)

    @property
    def agent_md(self) -> "agent_md.AgentMd":
        """The tenant's `agent.md`."""
        return agent_md.AgentMd(self._handle)

    @property
    def patterns(self) -> "patterns.Patterns":
        """The patterns that this tenant shares with others in its industries, and those that they share."""
        return patterns.Patterns(self._scope)

    @property
    def documents(self) -> "documents.Documents":
        """The organisation's documents: papers, mails, chats, transcripts of calls."""
        return documents.Documents(self._scope)


class Industry(Scope):
    """An industry's thread: patterns from all its tenants, redacted, approved, without tenants' names."""


class Agent(Scope):
    """An agent's thread: the memory that it keeps across runs, and its grants to other agents."""

    async def share_with(self, agent_id: str, *, layers: "Layer | Sequence[Layer]", write: bool = False) -> Receipt:
        """Let another agent of this tenant read layers of this agent's memory and, with `write`, append to them.

        This grant replaces earlier ones to that agent.
        """
        return await shared_memory.share_with(self._scope, agent_id, layers, write=write)

    async def revoke(self, agent_id: str, *, reason: str = "") -> Receipt:
        """End the grant to an agent immediately."""
        return await shared_memory.revoke(self._scope, agent_id, reason)

    async def grants(self, *, at: int | None = None) -> "list[shared_memory.Grant]":
        """This agent's grants of its memory to others."""
        return await shared_memory.grants_of(self._scope, at)

    def shared(self, agent_id: str) -> "shared_memory.SharedMemory":
        """The memory of another agent of this tenant, as far as it grants access to this one."""
        return shared_memory.SharedMemory(
            self._scope, ScopeHandle(self._scope.kernel, "agent", agent_id, self.tenant_id)
        )


async def _erase_all(
    scope: ThreadHandle, where: ThreadFilter, by: str, reason: str, *, dry_run: bool
) -> "erasing.ErasureReport":
    scope.check_present("erasing")
    for arrive in scope.kernel[OpenThreads].before_scopes:
        await arrive()
    found = [record.id for record, _ in await scope.kernel.store.threads(where)]
    return await erasing.delete(scope.kernel, found, by=by, reason=reason, dry_run=dry_run)
