"""Sessions of Strands Agents in this memory: each message unchanged, and as events of a thread.

    from memory_engine import sync
    from memory_engine.integrations.strands import MemoryEngineSessionManager

    with sync.open("agent.db") as engine:
        agent = Agent(session_manager=MemoryEngineSessionManager("chat", engine))

Needs the extra `strands`. A session is the engine's thread of the same id, which holds its default agent; each other
agent of it has a child thread. Contexts, search, compaction and the inspector work on them.
"""

# pyright: reportMissingImports=false
# strands-agents is in the environment of its tests alone

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from memory_engine import sync
from memory_engine.core.events.base import Event
from memory_engine.core.events.messages import LlmTextResponse, UserMessage
from memory_engine.core.records import NewEvent
from memory_engine.engine import Engine
from memory_engine.errors import MissingExtra, ThreadNotFound
from memory_engine.integrations.entries import OwnMessage, entry_events
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.integrations.strands_messages import anthropic_of, strands_text, strands_texts
from memory_engine.integrations.strands_storage import MemoryEngineStorage
from memory_engine.runtime.life import forgetting
from memory_engine.thread import Thread, handle_of
from memory_engine.views.records import as_json
from memory_engine.views.sessions.events import SessionEntryKept
from memory_engine.views.sessions.fold import SessionEntryRow
from memory_engine.views.sessions.view import Session as Entries

try:
    from strands.session.repository_session_manager import RepositorySessionManager
    from strands.session.session_repository import SessionRepository
    from strands.types.exceptions import SessionException
    from strands.types.session import Session, SessionAgent, SessionMessage, encode_bytes_values
except ImportError:
    raise MissingExtra("sessions of Strands Agents", "strands") from None

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase

__all__ = ["MemoryEngineSessionManager", "MemoryEngineSessionRepository", "MemoryEngineStorage"]

MARK = "strands"
"""The key in the metadata of threads that are made here: `session` or `agent`."""
DEFAULT_AGENT = "default"
"""The framework's id of an agent without one."""
_SESSION, _AGENT, _TOGETHER = "session", "agent", "multi_agent:"
"""Keys of a thread's state: its session, its agent, and what several agents have together."""


class MemoryEngineSessionRepository(SessionRepository):
    """A `SessionRepository` in the threads of an engine that `memory_engine.sync.open` opened; any thread may call it.

    New threads get the scopes; methods raise `ThreadDiffers` for a session of another user or tenant. A message that is
    updated (as a guardrail does that redacts it) replaces the earlier one, which is forgotten.
    """

    def __init__(self, engine: sync.Engine, *, user_id: str = "", tenant_id: str = "", agent_id: str = "") -> None:
        self._engine = engine
        self._owner = partial(OwnedThreads, user_id=user_id, tenant_id=tenant_id, agent_id=agent_id)

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Make a session's thread. Raises `SessionException` if it is there."""

        async def create(engine: Engine) -> None:
            thread = await self._threads(engine, session.session_id).open(session.session_id)
            if await Entries(handle_of(thread)).value(_SESSION) is not None:
                raise SessionException(f"Session {session.session_id} already exists")
            await _set(thread, _SESSION, session.to_dict())

        self._engine.call(create)
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        """A session, or `None`."""
        found = self._value(session_id, DEFAULT_AGENT, _SESSION)
        return None if found is None else Session.from_dict(found)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Destroy a session, all its agents, and everything derived from them. Raises `SessionException`."""

        async def delete(engine: Engine) -> None:
            owned = self._threads(engine, session_id)
            if await owned.find(session_id) is None:
                raise SessionException(f"Session {session_id} does not exist")
            children = self._owner(engine=engine, metadata={MARK: "agent", "session_id": session_id})
            for thread_id in (*[info.id for info in await children.list()], session_id):
                thread = await owned.find(thread_id)
                if thread is not None:
                    with suppress(ThreadNotFound):
                        await thread.admin.delete(reason="its session was deleted")

        self._engine.call(delete)

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Keep an agent's state; any but the default agent gets a thread."""

        async def create(engine: Engine) -> None:
            thread_id = _thread_id(session_id, session_agent.agent_id)
            thread = await self._threads(engine, session_id, session_agent.agent_id).open(thread_id)
            await _set(thread, _AGENT, session_agent.to_dict())

        self._engine.call(create)

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        """An agent's state, or `None`."""
        found = self._value(session_id, agent_id, _AGENT)
        return None if found is None else SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Keep an agent's new state. Raises `SessionException` if the agent is not there."""
        agent_id = session_agent.agent_id
        before = self.read_agent(session_id, agent_id)
        if before is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        session_agent.created_at = before.created_at
        self._engine.call(lambda engine: self._set(engine, session_id, agent_id, _AGENT, session_agent.to_dict()))

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Store a message, and record it as messages of its agent's thread, in one commit."""

        async def create(engine: Engine) -> None:
            thread = await self._agents_thread(engine, session_id, agent_id)
            await thread.dispatch_all(await _events(thread, session_message))

        self._engine.call(create)

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        """A message, or `None`."""

        async def read(engine: Engine) -> SessionMessage | None:
            thread = await self._find(engine, session_id, agent_id)
            rows = (
                []
                if thread is None
                else [one for one in await _message_rows(thread) if _message_number(one) == message_id]
            )
            return (await _session_messages(thread, rows[-1:]))[0] if thread is not None and rows else None

        return self._engine.call(read)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Put a message in the place of the one with its number, which is forgotten. Raises `SessionException`."""
        number = session_message.message_id

        async def update(engine: Engine) -> None:
            thread = await self._agents_thread(engine, session_id, agent_id)
            rows = [row for row in await _message_rows(thread) if _message_number(row) == number]
            if not rows:
                raise SessionException(f"Message {number} of agent {agent_id} in session {session_id} does not exist")
            session_message.created_at = (await _session_messages(thread, rows[-1:]))[0].created_at
            seqs = {seq for row in rows for seq in range(row.seq - row.messages, row.seq + 1)}
            ids = await handle_of(thread).kernel.reader.ids_at(thread.id, seqs)
            forget = await forgetting(handle_of(thread), event_ids=list(ids), reason="its session replaced it")
            await thread.dispatch_all([NewEvent(forget), *await _events(thread, session_message)])

        self._engine.call(update)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """An agent's messages from the number `offset` on, in their order. Raises `SessionException`."""

        async def read(engine: Engine) -> list[SessionMessage]:
            thread = await self._agents_thread(engine, session_id, agent_id)
            rows = sorted(
                (row for row in await _message_rows(thread) if _message_number(row) >= offset), key=_message_number
            )
            return await _session_messages(thread, rows[:limit])

        return self._engine.call(read)

    def create_multi_agent(self, session_id: str, multi_agent: "MultiAgentBase", **kwargs: Any) -> None:
        """Keep the state of a graph or a swarm of agents in the session's thread."""
        self.update_multi_agent(session_id, multi_agent)

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        """That state, or `None`."""
        return self._value(session_id, DEFAULT_AGENT, _TOGETHER + multi_agent_id)

    def update_multi_agent(self, session_id: str, multi_agent: "MultiAgentBase", **kwargs: Any) -> None:
        """Keep its new state."""
        key, state = _TOGETHER + multi_agent.id, encode_bytes_values(multi_agent.serialize_state())
        self._engine.call(lambda engine: self._set(engine, session_id, DEFAULT_AGENT, key, state))

    # on the engine's loop

    def _threads(self, engine: Engine, session_id: str, agent_id: str = DEFAULT_AGENT) -> OwnedThreads:
        if agent_id == DEFAULT_AGENT:
            return self._owner(engine=engine, metadata={MARK: "session"})
        metadata = {MARK: "agent", "session_id": session_id, "agent": agent_id}
        return self._owner(engine=engine, metadata=metadata, parent_id=session_id)

    async def _find(self, engine: Engine, session_id: str, agent_id: str) -> Thread | None:
        return await self._threads(engine, session_id, agent_id).find(_thread_id(session_id, agent_id))

    async def _agents_thread(self, engine: Engine, session_id: str, agent_id: str) -> Thread:
        thread = await self._find(engine, session_id, agent_id)
        if thread is None or await Entries(handle_of(thread)).value(_AGENT) is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        return thread

    def _value(self, session_id: str, agent_id: str, key: str) -> Any:
        async def read(engine: Engine) -> Any:
            thread = await self._find(engine, session_id, agent_id)
            return None if thread is None else await Entries(handle_of(thread)).value(key)

        return self._engine.call(read)

    async def _set(self, engine: Engine, session_id: str, agent_id: str, key: str, value: object) -> None:
        thread = await self._find(engine, session_id, agent_id)
        if thread is None:
            raise SessionException(f"Session {session_id} does not exist")
        await _set(thread, key, value)


class MemoryEngineSessionManager(RepositorySessionManager):
    """A session manager on a `MemoryEngineSessionRepository`. Making it makes the session, if it is not there."""

    def __init__(
        self, session_id: str, engine: sync.Engine, *, user_id: str = "", tenant_id: str = "", agent_id: str = ""
    ) -> None:
        repository = MemoryEngineSessionRepository(engine, user_id=user_id, tenant_id=tenant_id, agent_id=agent_id)
        super().__init__(session_id, repository)


def _thread_id(session_id: str, agent_id: str) -> str:
    return session_id if agent_id == DEFAULT_AGENT else f"{session_id}/{quote(agent_id, safe='@+ ')}"


async def _set(thread: Thread, key: str, value: object) -> None:
    await thread.dispatch(SessionEntryKept(id="", entry="{}", timestamp=time.time(), state=as_json({key: value})))


async def _message_rows(thread: Thread) -> list[SessionEntryRow]:
    """The rows of the messages: each has its number in `invocation`, which what sets a state has not."""
    with suppress(ThreadNotFound):
        return [row for row in await Entries(handle_of(thread)).entry_rows() if row.invocation]
    return []


def _message_number(row: SessionEntryRow) -> int:
    return int(row.invocation)


async def _session_messages(thread: Thread, rows: Sequence[SessionEntryRow]) -> list[SessionMessage]:
    return [SessionMessage.from_dict(one.entry) for one in await Entries(handle_of(thread)).entries(rows)]


async def _events(thread: Thread, message: SessionMessage) -> list[NewEvent]:
    entry: dict[str, Any] = message.to_dict()
    shown = entry["redact_message"] or entry["message"]
    read, name = anthropic_of(shown), handle_of(thread).kernel.new_id()
    own = OwnMessage(
        id=name,
        entry=entry,
        messages=[] if read is None else [read],
        texts=strands_texts(entry),
        said=_strands_event(shown),
        name=name,
        before=str(message.message_id),
    )
    return await entry_events(handle_of(thread), [own], datetime.now(UTC).timestamp(), format="anthropic")


def _strands_event(message: dict[str, Any]) -> Event | None:
    text = strands_text(message)
    if not text:
        return None
    if message["role"] == "assistant":
        return LlmTextResponse(content=text)
    is_result = any("toolResult" in block for block in message["content"])
    return UserMessage(content=text, origin="tool" if is_result else "")
