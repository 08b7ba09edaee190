"""An agent's memory in one conversation: its people's words are kept for their user, not for others.

The agent's memory serves every user. Reads see what the agent found out and what this conversation's user said; what
a person said is written to that user's memory, or stays in a conversation without a user.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from attrs import frozen

from memory_engine.agents.people import people_in
from memory_engine.context.ownership import Viewer
from memory_engine.core.origins import Speaker, at_least, origin_since_spoken
from memory_engine.errors import UnknownMemory
from memory_engine.events import Destination, Layer, MemoryAppended, MemoryShared
from memory_engine.recall.trust import origins_of
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.scopes import Agent, User
from memory_engine.thread import Thread, handle_of
from memory_engine.views.layers.entries import KnowledgeEntry, MemoryEntry, MemoryHit, check_layers
from memory_engine.views.layers.keywords import MemoryQuery, search_memories
from memory_engine.views.layers.origin import FROM_TOOLS
from memory_engine.views.layers.view import Memory

LONG_AGO = datetime.min.replace(tzinfo=UTC)


@frozen(kw_only=True)
class Remembering:
    """The memory of `owner`, and with it that of the user whose `conversation` an agent works in."""

    owner: Thread
    conversation: Thread
    viewer: Viewer | None = None
    """Whom it is shown to; `None`: the conversation's user. Without a conversation yet, that is the owner."""
    min_trust: Speaker | None = None
    """The lowest origin of an entry that is shown; `None`: any."""

    @property
    def is_shared(self) -> bool:
        """Whether the memory is an agent's that works in a conversation: in others it serves other users."""
        return isinstance(self.owner, Agent) and (self.conversation is not self.owner or self.viewer is not None)

    async def search(self, layer: "Layer | None", query: str, limit: int) -> list[MemoryHit]:
        """Like `Memory.search`, in both memories together."""
        viewer, user = await self._viewer_and_user()
        wanted = MemoryQuery(query=query, limit=limit, viewer=viewer)
        layers = check_layers(layer)
        sought: list[tuple[Thread, Sequence[Layer]]] = [(self.owner, layers)]
        sought += [(thread, _lasting(layers)) for thread in self._beside(user)]
        return await search_memories([(handle_of(thread), some) for thread, some in sought if some], wanted)

    async def latest(self, layer: "Layer | None", last: int) -> list[MemoryHit]:
        """The latest entries of both memories, oldest first."""
        shared, *own = await self._memories()
        hits = await shared.search(layer, last=last)
        layers = _lasting(check_layers(layer))
        for memory in own if layers else ():
            hits += await memory.search(layers, last=last)
        return sorted(hits, key=lambda hit: hit.entry.timestamp or LONG_AGO)[-last:] if own else hits

    async def recall(self, key: str) -> KnowledgeEntry | None:
        """The fact under a key, that of the user before the agent's."""
        found = [fact for memory in await self._memories() if (fact := await memory.recall(key)) is not None]
        return found[-1] if found else None

    async def open(self, entry_id: str) -> list[MemoryEntry]:
        """See `Memory.open`. Raises `UnknownMemory`."""
        for memory in await self._memories():
            try:
                return await memory.open(entry_id)
            except UnknownMemory:
                continue
        raise UnknownMemory(self.owner.id, entry_id)

    async def trusted(self, hits: Sequence[MemoryHit], limit: int) -> tuple[list[MemoryHit], int]:
        """The first hits whose words have at least the origin asked for, and how many before the last do not."""
        if self.min_trust is None:
            return list(hits[:limit]), 0
        kept = await self.trusted_ids([hit.entry.event_id for hit in hits])
        shown = [hit for hit in hits if hit.entry.event_id in kept][:limit]
        seen = hits.index(shown[-1]) + 1 if len(shown) == limit else len(hits)
        return shown, seen - len(shown)

    async def trusted_ids(self, event_ids: Sequence[str]) -> frozenset[str]:
        """The events of both memories, among these, whose words have at least the origin asked for."""
        if self.min_trust is None:
            return frozenset(event_ids)
        _, user = await self._viewer_and_user()
        kept: set[str] = set()
        for thread in (self.owner, *(self._beside(user) if self.is_shared else ())):
            handle = handle_of(thread)
            rows = await handle.kernel.store.find(handle.id, list(event_ids)) if await handle.exists() else ()
            origins = await origins_of(handle.kernel, handle.id, [row.seq for row in rows])
            kept.update(row.id for row in rows if at_least(origins.get(row.seq, Speaker.TOOL), self.min_trust))
        return frozenset(kept)

    async def keep(self, layer: Layer, content: str, *, key: str = "", condition: str = "") -> str:
        """Add an entry where it belongs, and return its id.

        An entry of the working layer is the agent's. Where no one's words are known, only this user will see it.
        """
        if not self.is_shared or layer == "working":
            metadata = await self._origin() if layer != "working" else None
            return (await self.owner.memory.append(layer, content, key=key, condition=condition, metadata=metadata)).id
        people = await people_in(self.conversation)
        _, user = await self._viewer_and_user()
        if people.said(key, content, ()):
            sources = people.repeated(content) or ()
            metadata = {} if sources else await self._origin()
            said = MemoryAppended(layer=layer, content=content, key=key, condition=condition, metadata=metadata)
            return await self._keep_for(user, said, sources)
        unknown = self.conversation.id if user is not None and not people.spoke else ""
        entry = MemoryEntry(content=content, source_thread=unknown, metadata=await self._origin())
        return (await self.owner.memory.append(layer, entry, key=key, condition=condition)).id

    async def _origin(self) -> dict[str, object]:
        """The origin of what an agent keeps, as metadata: a tool's, if it read one since a person last spoke."""
        state = await self.conversation.state()
        read = origin_since_spoken(state.newest())
        return {} if at_least(read, Speaker.AGENT) else {"origin": FROM_TOOLS}

    async def own(self, layer: Layer) -> Memory | None:
        """The memory of a layer that is this user's alone; `None` if the owner's is no one else's either.

        Working notes are the agent's, of the task at hand.
        """
        _, user = await self._viewer_and_user()
        return user.memory if user is not None and layer != "working" else None

    async def _keep_for(self, user: User | None, entry: MemoryAppended, sources: tuple[str, ...]) -> str:
        """Bring an entry to the user's memory, from the events of the conversation that it repeats."""
        if user is None:
            receipt = await self.conversation.dispatch(entry)
            return receipt.event_id
        entry_id = handle_of(self.conversation).kernel.new_id()
        shared = MemoryShared(
            destination=Destination("user", user.scope_id, user.tenant_id),
            layer=entry.layer,
            content=entry.content,
            key=entry.key,
            condition=entry.condition,
            metadata=entry.metadata,
            entry_id=entry_id,
            source_thread=self.conversation.id,
            sources=sources,
        )
        await self.conversation.dispatch(shared)
        await self.conversation.views.delivered()
        return entry_id

    async def _memories(self) -> list[Memory]:
        """The memory in use, and with an agent's the one that holds people's words of this conversation."""
        viewer, user = await self._viewer_and_user()
        if viewer is None:
            return [self.owner.memory]
        return [Memory(handle_of(self.owner), viewer=viewer), *(thread.memory for thread in self._beside(user))]

    def _beside(self, user: User | None) -> list[Thread]:
        """The thread whose memory holds the words of this conversation's people, next to the shared one."""
        beside = user or self.conversation
        return [] if beside is self.owner else [beside]

    async def _viewer_and_user(self) -> tuple[Viewer | None, User | None]:
        if not self.is_shared:
            return None, None
        viewer, tenant_id = self.viewer, self.owner.tenant_id if isinstance(self.owner, Agent) else ""
        if viewer is None:
            info = await self.conversation.info()
            viewer, tenant_id = Viewer(info.user_id, info.id), info.tenant_id
        if not viewer.user_id:
            return viewer, None
        return viewer, User(ScopeHandle(handle_of(self.owner).kernel, "user", viewer.user_id, tenant_id))


def _lasting(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers that a conversation's own memory adds: its working notes are of the task at hand."""
    return tuple(layer for layer in layers if layer != "working")
