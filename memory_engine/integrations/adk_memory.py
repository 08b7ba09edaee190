"""A memory service for ADK: what its apps add to the memory of a user."""

# pyright: reportMissingImports=false
# google-adk fits with few others: it is in the environment of its tests alone

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from memory_engine.core.records import NewEvent
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import MissingExtra, ThreadNotFound
from memory_engine.integrations.adk_events import MARK, adk_texts, said_by, thread_id_of
from memory_engine.integrations.home import HomeLoop
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.projections.outbox import derived_id
from memory_engine.thread import handle_of
from memory_engine.views.records import as_json
from memory_engine.views.sessions.events import SessionEntryKept
from memory_engine.views.sessions.fold import SessionEntryRow
from memory_engine.views.sessions.view import Session

try:
    from google.adk.events.event import Event
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.platform import time as platform_time
    from google.adk.platform import uuid as platform_uuid
    from google.adk.sessions.session import Session as AdkSession
except ImportError:
    raise MissingExtra("ADK's memory", "adk") from None

FOUND_MAX = 10
"""How many memories a search gives."""
_PASSAGES = 4
"""How many passages are read for each memory: a long one has several."""


class MemoryEngineMemoryService(BaseMemoryService):
    """Memories that apps add for a user, in a separate thread. It outlives its sessions.

    Make it on the event loop that the engine was opened on. A deleted memory is not added again.
    """

    def __init__(self, engine: Engine, *, tenant_id: str = "") -> None:
        self.engine = engine
        self._tenant_id = tenant_id
        self._home = HomeLoop()

    async def add_session_to_memory(self, session: AdkSession) -> None:
        """Add the events of a session that are new."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add events that have text, except those that were added before."""
        metadata = dict(custom_metadata or {}) | ({"session_id": session_id} if session_id else {})
        memories = [
            (
                MemoryEntry(
                    id=event.id,
                    content=event.content,
                    author=event.author,
                    timestamp=_iso(event.timestamp),
                    custom_metadata=metadata,
                ),
                event.timestamp,
            )
            for event in events
            if event.content is not None and event.content.parts and not event.partial
        ]
        await self._home.run(self._add(app_name, user_id, memories))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add memories unchanged; one without an id gets one."""
        now = platform_time.get_time()
        given = [
            one.model_copy(
                update={
                    "id": one.id or platform_uuid.new_uuid(),
                    "custom_metadata": {**(custom_metadata or {}), **one.custom_metadata},
                }
            )
            for one in memories
        ]
        await self._home.run(self._add(app_name, user_id, [(one, now) for one in given]))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """The memories of a user that match a question best, best first, at most ten."""
        return await self._home.run(self._search(app_name, user_id, query))

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Forget a memory by its id from a search. The log keeps it until its event is erased."""
        if memory_id:
            await self._home.run(self._forget(app_name, user_id, memory_id))

    # on the engine's loop

    def _owned(self, app_name: str, user_id: str) -> OwnedThreads:
        return OwnedThreads(
            engine=self.engine,
            user_id=user_id,
            tenant_id=self._tenant_id,
            agent_id=app_name,
            metadata={MARK: "memory"},
        )

    def _id(self, app_name: str, user_id: str) -> str:
        return thread_id_of("memory", self._tenant_id, app_name, user_id)

    async def _add(self, app_name: str, user_id: str, memories: Sequence[tuple[MemoryEntry, float]]) -> None:
        thread = await self._owned(app_name, user_id).open(self._id(app_name, user_id))
        wanted = {derived_id("adk", thread.id, memory.id or ""): (memory, at) for memory, at in memories}
        known = {stored.id for stored in await kernel_of(self.engine).store.find(thread.id, list(wanted))}
        for event_id, (memory, at) in wanted.items():
            texts = adk_texts(memory.content)
            if event_id in known or not texts:
                continue
            said = said_by(memory.content, memory.author or "", "\n".join(texts.values()))
            beside = [NewEvent(said, f"{event_id}.said", datetime.fromtimestamp(at, UTC))]
            entry = memory.model_dump_json(by_alias=True, exclude_defaults=True)
            kept = SessionEntryKept(id=memory.id or "", entry=entry, timestamp=at)
            await Session(handle_of(thread)).keep(NewEvent(kept, event_id), beside, texts)

    async def _search(self, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        thread = await self._owned(app_name, user_id).find(self._id(app_name, user_id))
        if thread is None:
            return SearchMemoryResponse(memories=[])
        kept, rows = Session(handle_of(thread)), dict[int, SessionEntryRow]()
        if query.strip():
            with suppress(ThreadNotFound):
                for hit in await thread.search(query, limit=FOUND_MAX * _PASSAGES):
                    rows |= {row.seq: row for row in await kept.entry_rows_from(hit.seq)}
        found = await kept.entries(list(rows.values())[:FOUND_MAX])
        memories = [MemoryEntry.model_validate_json(as_json(entry.entry)) for entry in found]
        return SearchMemoryResponse(memories=memories)

    async def _forget(self, app_name: str, user_id: str, memory_id: str) -> None:
        thread = await self._owned(app_name, user_id).find(self._id(app_name, user_id))
        if thread is None:
            return
        event_id = derived_id("adk", thread.id, memory_id)
        with suppress(ThreadNotFound):
            for stored in await kernel_of(self.engine).store.find(thread.id, [event_id]):
                if stored.seq in {row.seq for row in await Session(handle_of(thread)).entry_rows_from(stored.seq)}:
                    await thread.forget(event_ids=[event_id, f"{event_id}.said"], reason="the memory was deleted")


def _iso(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat()
