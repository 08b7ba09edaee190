"""Users, tenants, agents and industries: threads that outlive conversations, found by whom they are about."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memory_engine.core.lazy import lazy_modules
from memory_engine.core.records import Receipt
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.thread import Thread

if TYPE_CHECKING:
    from memory_engine.events import Layer
    from memory_engine.views.documents import view as documents
    from memory_engine.views.layers import shared_memory
    from memory_engine.views.patterns import view as patterns
    from memory_engine.views.playbooks import view as playbooks
    from memory_engine.views.preferences import view as preferences
    from memory_engine.views.promotion import agent_md
else:
    agent_md, playbooks, documents, shared_memory, patterns, preferences = lazy_modules(
        "memory_engine.views",
        "promotion.agent_md",
        "playbooks.view",
        "documents.view",
        "layers.shared_memory",
        "patterns.view",
        "preferences.view",
    )


class Scope(ScopeHandle, Thread):
    """A thread that is made by the first event for it; until then its views are empty."""


class User(Scope):
    """What outlives a user's conversations: preferences, playbooks, memory."""

    @property
    def preferences(self) -> "preferences.Preferences":
        """Values and rules that change how agents behave towards this user."""
        return preferences.Preferences(self)

    @property
    def playbooks(self) -> "playbooks.Playbooks":
        """Flows that went well."""
        return playbooks.Playbooks(self)


class Tenant(Scope):
    """What an organisation's agents share."""

    @property
    def agent_md(self) -> "agent_md.AgentMd":
        """The tenant's `agent.md`."""
        return agent_md.AgentMd(self)

    @property
    def patterns(self) -> "patterns.Patterns":
        """What the tenant shares with others of its industries, and what they share with it."""
        return patterns.Patterns(self)

    @property
    def documents(self) -> "documents.Documents":
        """What the organisation wrote, said and was sent: papers, mails, chats, calls."""
        return documents.Documents(self)


class Industry(Scope):
    """The patterns of an industry, of whichever tenants: redacted, approved, without their names."""


class Agent(Scope):
    """What an agent keeps from run to run, and what it lets others see of it."""

    async def share_with(self, agent_id: str, *, layers: "Layer | Sequence[Layer]", write: bool = False) -> Receipt:
        """Let another agent of this tenant read layers of this one's memory, and with `write` append to them.

        It takes the place of what that agent was granted before.
        """
        return await shared_memory.share_with(self, agent_id, layers, write=write)

    async def revoke(self, agent_id: str, *, reason: str = "") -> Receipt:
        """End what was granted to an agent, at once."""
        return await shared_memory.revoke(self, agent_id, reason)

    async def grants(self, *, at: int | None = None) -> "list[shared_memory.Grant]":
        """What other agents may see of this one's memory."""
        return await shared_memory.grants_of(self, at)

    def shared(self, agent_id: str) -> "shared_memory.SharedMemory":
        """The memory of another agent of this tenant, as far as it is granted to this one."""
        return shared_memory.SharedMemory(self, ScopeHandle(self.kernel, "agent", agent_id, self.tenant_id))
