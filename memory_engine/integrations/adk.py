"""Sessions and memory of Google's Agent Development Kit in this memory.

    from memory_engine.integrations.adk import MemoryEngineMemoryService, MemoryEngineSessionService

    async with memory_engine.open("agent.db") as engine:
        runner = Runner(app_name="shop", agent=agent, session_service=MemoryEngineSessionService(engine),
                        memory_service=MemoryEngineMemoryService(engine))

Needs the extra `adk`. A session is a thread of the engine: each event of ADK is kept as it was given, and its messages
are events beside it, so that contexts, search, compaction and the inspector work on it.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote
from weakref import WeakValueDictionary

from memory_engine.core.events.delivery import Destination
from memory_engine.core.events.messages import LlmTextResponse, UserMessage
from memory_engine.core.records import NewEvent
from memory_engine.core.threads import ThreadInfo
from memory_engine.engine import Engine
from memory_engine.errors import Conflict, InvalidMessage, MissingExtra, ThreadNotFound
from memory_engine.integrations.home import HomeLoop
from memory_engine.projections.outbox import derived_id
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.life import forgetting
from memory_engine.runtime.messages import as_events
from memory_engine.thread import Thread
from memory_engine.views.sessions.events import SessionBegun, SessionEntryKept, SharedState
from memory_engine.views.sessions.fold import EntryRow, SessionRow
from memory_engine.views.sessions.view import Entry, Session, Shared, as_json

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.platform import time as platform_time
    from google.adk.platform import uuid as platform_uuid
    from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.session import Session as AdkSession
    from google.adk.sessions.state import State
    from google.genai import types
except ImportError:
    raise MissingExtra("ADK's sessions", "adk") from None

MARK = "adk"
"""The key in the metadata of threads that are made here: `session` or `memory`."""
_KINDS: dict[str, Literal["agent", "user"]] = {State.APP_PREFIX: "agent", State.USER_PREFIX: "user"}
"""By the prefix of a key the kind of the thread in which such state lives."""
_KEYS = "stateKeys"
"""Where an entry has the keys of its event's state, in their order."""
FOUND_MAX = 10
"""Memories that a search gives."""
_PASSAGES = 4
"""Passages that are looked at for each memory: a long one has several."""
_log = logging.getLogger("memory_engine.integrations.adk")


class MemoryEngineSessionService(BaseSessionService):
    """Keeps the sessions of ADK in an engine's threads. To be made where the engine was opened.

    It may be awaited on any event loop. A session's user is the thread's user, its app the thread's agent. State of the
    user (`user:`) lives in the user's own thread, state of the app (`app:`) in the agent's; it gets there through the
    outbox, in the commit of the event that sets it.
    """

    def __init__(self, engine: Engine, *, tenant_id: str = "") -> None:
        self.engine = engine
        self._tenant_id = tenant_id
        self._home = HomeLoop()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> AdkSession:
        """Make a session, with an id of its own if none is given. Raises `AlreadyExistsError`."""
        return await self._home.run(self._create(app_name, user_id, state or {}, session_id))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> AdkSession | None:
        """A session with its events, or the latest of them that `config` asks for; `None` for none."""
        return await self._home.run(self._get(app_name, user_id, session_id.strip(), config or GetSessionConfig()))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all users, without their events; the one that went on last stands last."""
        return await self._home.run(self._list(app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Destroy a session and all that came of it. State of its user and app stays."""
        await self._home.run(self._delete(app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """State of a user in an app, its keys without `user:`."""
        return await self._home.run(self._shared_state("user", app_name, user_id))

    async def append_event(self, session: AdkSession, event: Event) -> Event:
        """Keep an event, its messages and the state that it sets, in one commit; then change the session by it.

        An event that was appended before is not kept again; a partial one never is. Raises `StaleSessionError` where
        the stored session went on without this one, `SessionNotFoundError`.
        """
        if event.partial:
            return event
        try:
            at = await self._home.run(self._append(session, event))
        except ThreadNotFound:
            raise SessionNotFoundError(f"Session {session.id} not found.") from None
        if at is None:
            return event
        await super().append_event(session=session, event=event)
        session.last_update_time = event.timestamp
        session._storage_update_marker = str(at)
        return event

    async def flush(self) -> None:
        """What was appended is kept already; wait until state of users and apps has arrived."""
        await self._home.run(self._settle())

    # on the engine's loop

    def _thread(self, app_name: str, user_id: str, session_id: str) -> Thread:
        return self.engine.thread(_thread_id("session", self._tenant_id, app_name, user_id, session_id))

    async def _create(self, app_name: str, user_id: str, state: dict[str, Any], session_id: str | None) -> AdkSession:
        session_id = (session_id or "").strip() or platform_uuid.new_uuid()
        thread = await self.engine.open_thread(
            self._thread(app_name, user_id, session_id).id,
            user_id=user_id,
            tenant_id=self._tenant_id,
            agent_id=app_name,
            metadata={MARK: "session", "session_id": session_id},
        )
        own, shared = self._scoped(thread.id, app_name, user_id, EventActions(state_delta=state))
        begun = SessionBegun(timestamp=platform_time.get_time(), state=own, shared=shared)
        head = await thread.last_seq()
        try:
            if await Session(thread).head() is None:
                await Session(thread).begin(begun, expected_seq=head)
                await self._settle()
                found = await self._get(app_name, user_id, session_id, GetSessionConfig(num_recent_events=0))
                if found is not None:
                    return found
        except Conflict:
            pass
        raise AlreadyExistsError(f"Session with id {session_id} already exists.")

    async def _get(self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig) -> AdkSession | None:
        kept = Session(self._thread(app_name, user_id, session_id))
        head = await kept.head()
        if head is None:
            return None
        shared = await self._all_shared(app_name, user_id)
        rows = [row for row in await kept.entry_rows(config.num_recent_events) if row.seq <= head.seq]
        found = _session(app_name, user_id, session_id, head)
        found.events = [_event(entry) for entry in await kept.entries(_since(rows, config.after_timestamp))]
        found.state = await kept.state() | shared
        return found

    async def _list(self, app_name: str, user_id: str | None) -> ListSessionsResponse:
        threads = await self._sessions(app_name, user_id)
        shared = {one: await self._all_shared(app_name, one) for one in {info.user_id for info in threads}}
        found: list[AdkSession] = []
        for info in threads:
            kept = Session(self.engine.thread(info.id))
            with suppress(ThreadNotFound):  # it was deleted meanwhile
                head, state = await kept.head(), await kept.state()
                if head is not None:
                    one = _session(app_name, info.user_id, info.metadata["session_id"], head)
                    one.state = state | shared[info.user_id]
                    found.append(one)
        found.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=found)

    async def _sessions(self, app_name: str, user_id: str | None) -> Sequence[ThreadInfo]:
        return await self.engine.threads(
            agent_id=app_name, user_id=user_id, tenant_id=self._tenant_id, metadata={MARK: "session"}
        )

    async def _delete(self, app_name: str, user_id: str, session_id: str) -> None:
        thread = self._thread(app_name, user_id, session_id)
        with suppress(ThreadNotFound):
            await thread.delivered()
            for kind in _KINDS.values():
                await self._outlive(Shared(self._scope(kind, app_name, user_id), app_name), thread.id)
            await thread.delete(reason="its session was deleted")

    async def _outlive(self, shared: Shared, thread_id: str) -> None:
        while True:
            with suppress(Conflict):  # another session has set some: look again
                await shared.outlive(thread_id)
                return

    def _scope(self, kind: str, app_name: str, user_id: str) -> Thread:
        if kind == "user":
            return self.engine.user(user_id, tenant_id=self._tenant_id)
        return self.engine.agent(app_name, tenant_id=self._tenant_id)

    async def _shared_state(self, kind: str, app_name: str, user_id: str) -> dict[str, Any]:
        return await Shared(self._scope(kind, app_name, user_id), app_name).state()

    async def _all_shared(self, app_name: str, user_id: str) -> dict[str, Any]:
        await self._settle()
        return _prefixed({kind: await self._shared_state(kind, app_name, user_id) for kind in _KINDS.values()})

    async def _settle(self) -> None:
        """Wait for state under way; what a paused thread is to get waits for its end."""
        await self.engine.kernel[Relay].settle()

    def _scoped(
        self, thread_id: str, app_name: str, user_id: str, actions: EventActions
    ) -> tuple[str, tuple[SharedState, ...]]:
        """State that an event sets: of the session, and of its user and app."""
        owners = {"agent": app_name, "user": user_id}
        found: dict[str, dict[str, Any]] = {"": {}} | {kind: {} for kind in owners}
        for key, value in _state_of(actions).items():
            kind = next((kind for prefix, kind in _KINDS.items() if key.startswith(prefix)), "")
            found[kind][key.partition(":")[2] if kind else key] = value
        shared = [
            SharedState(Destination(kind, owners[kind], self._tenant_id), app_name, as_json(found[kind]), thread_id)
            for kind in _KINDS.values()
            if found[kind]
        ]
        return as_json(found[""]), tuple(shared)

    async def _append(self, session: AdkSession, event: Event) -> int | None:
        """Keep an event; the seq of its entry, or `None` where it was kept before."""
        kept = Session(self._thread(session.app_name, session.user_id, session.id))
        async with self._locks.setdefault(kept.thread.id, asyncio.Lock()):
            expected = int(session._storage_update_marker or 0)
            head = await self._checked(session, kept) if not expected else None
            expected = head.seq if head is not None else expected
            known, event_id = await self._known(kept, event)
            if known:
                return None
            while True:
                try:
                    at = await self._keep(session, kept, event, event_id, expected)
                except Conflict as conflict:  # of this session, or of what else was written to its thread?
                    await self._checked(session, kept)
                    expected = conflict.head
                else:
                    await self._settle()
                    return at

    async def _checked(self, session: AdkSession, kept: Session) -> SessionRow:
        """The head of the stored session. Raises `StaleSessionError` where it is not the given one's."""
        head = await kept.head()
        if head is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        marker = session._storage_update_marker
        if (int(marker) != head.seq) if marker else (session.last_update_time < head.timestamp):
            raise StaleSessionError(
                f"session {session.id!r} went on since this object was read (the thread {kept.thread.id!r} is at seq "
                f"{head.seq}); nothing was written: get the session again, and append to that"
            )
        return head

    async def _known(self, kept: Session, event: Event) -> tuple[bool, str]:
        """Whether an event was kept before, and the id to keep it under: another one under that of a kept event."""
        event_id = derived_id("adk", kept.thread.id, event.id)
        for stored in await self.engine.store.find(kept.thread.id, [event_id]):
            [same] = await kept.entries(await kept.entry_rows_from(stored.seq))
            return _event(same) == _event_again(event), self.engine.kernel.new_id()
        return False, event_id

    async def _keep(self, session: AdkSession, kept: Session, event: Event, event_id: str, expected: int) -> int:
        thread = kept.thread
        own, shared = self._scoped(thread.id, session.app_name, session.user_id, event.actions)
        entry = SessionEntryKept(
            id=event.id,
            entry=as_json(_dumped(event)),
            timestamp=event.timestamp,
            invocation=event.invocation_id,
            state=own,
            shared=shared,
        )
        beside = await _messages(thread, event, event_id)
        return await kept.keep(
            NewEvent(entry, event_id),
            beside,
            _texts(event.content),
            after=await self._rewound(kept, event.actions.rewind_before_invocation_id),
            expected_seq=expected,
        )

    async def _rewound(self, kept: Session, invocation_id: str | None) -> list[NewEvent]:
        """What forgets the messages that a rewind takes back. The session goes on holding its events, as ADK has it."""
        rows = await kept.entry_rows() if invocation_id else []
        begin = next((n for n, row in enumerate(rows) if row.invocation == invocation_id), len(rows))
        seqs = {seq for row in rows[begin:] for seq in range(row.seq - row.messages, row.seq)}
        if not seqs:
            return []
        ids = await self.engine.reader.ids_at(kept.thread.id, seqs)
        return [NewEvent(await forgetting(kept.thread, event_ids=list(ids), reason="the session was rewound"))]


class MemoryEngineMemoryService(BaseMemoryService):
    """What apps add to the memory of a user, in a thread of its own. To be made where the engine was opened.

    It outlives the sessions that it came from. A memory that was deleted is not added again.
    """

    def __init__(self, engine: Engine, *, tenant_id: str = "") -> None:
        self.engine = engine
        self._tenant_id = tenant_id
        self._home = HomeLoop()

    async def add_session_to_memory(self, session: AdkSession) -> None:
        """Add the events of a session that were not added yet."""
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
        """Add events that say something; those that were added before are left out."""
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
        """Add memories as they are; one without an id gets one."""
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
        """The memories of a user that say most about a question, best first, ten at most."""
        return await self._home.run(self._search(app_name, user_id, query))

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Forget a memory, by the id that a search gives it. The log keeps it until its event is erased."""
        if memory_id:
            await self._home.run(self._forget(self._thread(app_name, user_id), memory_id))

    # on the engine's loop

    def _thread(self, app_name: str, user_id: str) -> Thread:
        return self.engine.thread(_thread_id("memory", self._tenant_id, app_name, user_id))

    async def _add(self, app_name: str, user_id: str, memories: Sequence[tuple[MemoryEntry, float]]) -> None:
        thread = await self.engine.open_thread(
            self._thread(app_name, user_id).id,
            user_id=user_id,
            tenant_id=self._tenant_id,
            agent_id=app_name,
            metadata={MARK: "memory"},
        )
        wanted = {derived_id("adk", thread.id, memory.id or ""): (memory, at) for memory, at in memories}
        known = {stored.id for stored in await self.engine.store.find(thread.id, list(wanted))}
        for event_id, (memory, at) in wanted.items():
            texts = _texts(memory.content)
            if event_id in known or not texts:
                continue
            said = _said(memory.content, memory.author or "", "\n".join(texts.values()))
            beside = [NewEvent(said, f"{event_id}.said", datetime.fromtimestamp(at, UTC))]
            entry = memory.model_dump_json(by_alias=True, exclude_defaults=True)
            kept = SessionEntryKept(id=memory.id or "", entry=entry, timestamp=at)
            await Session(thread).keep(NewEvent(kept, event_id), beside, texts)

    async def _search(self, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        thread = self._thread(app_name, user_id)
        kept, rows = Session(thread), dict[int, EntryRow]()
        if query.strip():
            with suppress(ThreadNotFound):
                for hit in await thread.search(query, limit=FOUND_MAX * _PASSAGES):
                    rows |= {row.seq: row for row in await kept.entry_rows_from(hit.seq)}
        found = await kept.entries(list(rows.values())[:FOUND_MAX])
        memories = [MemoryEntry.model_validate_json(as_json(entry.entry)) for entry in found]
        return SearchMemoryResponse(memories=memories)

    async def _forget(self, thread: Thread, memory_id: str) -> None:
        event_id = derived_id("adk", thread.id, memory_id)
        with suppress(ThreadNotFound):
            for stored in await self.engine.store.find(thread.id, [event_id]):
                if stored.seq in {row.seq for row in await Session(thread).entry_rows_from(stored.seq)}:
                    await thread.forget(event_ids=[event_id, f"{event_id}.said"], reason="the memory was deleted")


# events of ADK and their messages


def _thread_id(what: str, tenant_id: str, *names: str) -> str:
    """The id of a thread: names are quoted, so that no two threads share one."""
    every = (tenant_id, *names) if tenant_id else names
    return "/".join((f"adk-{what}", *(quote(name, safe="@+ ") for name in every)))


def _session(app_name: str, user_id: str, session_id: str, head: SessionRow) -> AdkSession:
    found = AdkSession(id=session_id, app_name=app_name, user_id=user_id, last_update_time=head.timestamp)
    found._storage_update_marker = str(head.seq)
    return found


def _since(rows: Sequence[EntryRow], timestamp: float | None) -> Sequence[EntryRow]:
    """The rows after the last one that is older."""
    older = [n for n, row in enumerate(rows) if timestamp is not None and row.timestamp < timestamp]
    return rows[older[-1] + 1 :] if older else rows


def _state_of(actions: EventActions) -> dict[str, Any]:
    """The state that an event sets and that lasts, as JSON has it: ADK writes what is not JSON as text."""
    state = json.loads(actions.model_dump_json(include={"state_delta"}))["state_delta"]
    return {key: value for key, value in state.items() if not key.startswith(State.TEMP_PREFIX)}


def _dumped(event: Event) -> dict[str, Any]:
    """An event but for the values of its state. `None` in what is not a field of ADK's stays."""
    exclude = {"actions": {"state_delta"}}
    found: dict[str, Any] = json.loads(event.model_dump_json(by_alias=True, exclude_defaults=True, exclude=exclude))
    if state := _state_of(event.actions):
        found[_KEYS] = list(state)
    return found


def _event(entry: Entry) -> Event:
    """The event that an entry keeps."""
    keys = entry.entry.pop(_KEYS, ())
    found = Event.model_validate_json(as_json(entry.entry))
    state = entry.state | _prefixed(entry.shared)
    found.actions.state_delta = {key: state[key] for key in keys if key in state}
    return found


def _prefixed(shared: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Shared state by the kinds of its owners, as ADK has it in one."""
    return {prefix + key: value for prefix, kind in _KINDS.items() for key, value in shared.get(kind, {}).items()}


def _event_again(event: Event) -> Event:
    """An event as it comes back."""
    found = Event.model_validate_json(as_json(_dumped(event)))  # which ignores the keys
    found.actions.state_delta = _state_of(event.actions)
    return found


def _texts(content: types.Content | None) -> dict[str, str]:
    """The texts of a content, by where they stand in what is around it."""
    parts = content.parts or [] if content is not None else []
    return {f"content/parts/{n}/text": part.text for n, part in enumerate(parts) if part.text}


def _is_users(content: types.Content, author: str) -> bool:
    return content.role == "user" if content.role else author == "user"


def _said(content: types.Content, author: str, text: str) -> UserMessage | LlmTextResponse:
    return UserMessage(content=text) if _is_users(content, author) else LlmTextResponse(content=text)


async def _messages(thread: Any, event: Event, event_id: str) -> list[NewEvent]:
    """The events of the messages of an event; one that breaks the order of calls and results as what it says."""
    content = event.content
    if content is None or not content.parts:
        return []
    messages = _openai(content, _is_users(content, event.author))
    try:
        names = [f"{event_id} {n}" for n in range(len(messages))]
        return await as_events(thread, messages, names, format="openai.chat")
    except InvalidMessage as error:
        _log.info("event %r of thread %r is kept as text: %s", event.id, thread.id, error)
        text = "\n".join(filter(None, map(_as_text, content.parts)))
        return [NewEvent(_said(content, event.author, text), f"{event_id}.said")] if text else []


def _openai(content: types.Content, is_users: bool) -> list[dict[str, Any]]:
    """A content as messages of chat completions: results first, then what was said with them."""
    parts = content.parts or []
    results = [
        {
            "role": "tool",
            "tool_call_id": one.id or "",
            "name": one.name or "",
            "content": as_json(_jsonable(one.response)),
        }
        for part in parts
        if (one := part.function_response) is not None
    ]
    said = [found for part in parts if not part.thought and (found := _part(part)) is not None]
    calls = [
        {
            "id": one.id or "",
            "type": "function",
            "function": {"name": one.name or "", "arguments": as_json(_jsonable(one.args or {}))},
        }
        for part in parts
        if (one := part.function_call) is not None
    ]
    thoughts = "\n".join(part.text for part in parts if part.thought and part.text)
    message: dict[str, Any] = {"role": "user" if is_users else "assistant"}
    if said:
        alone = len(said) == 1 and said[0]["type"] == "text"
        message["content"] = said[0]["text"] if alone else said
    if calls:
        message["tool_calls"] = calls
    if thoughts:
        message["reasoning_content"] = thoughts
    return [*results, message] if len(message) > 1 else results


def _part(part: types.Part) -> dict[str, Any] | None:
    """A part as chat completions has it; `None` for what has no place there."""
    if part.text:
        return {"type": "text", "text": part.text}
    data, file = part.inline_data, part.file_data
    if data is not None and (data.mime_type or "").startswith("image/"):
        dumped = data.model_dump(mode="json")["data"].translate(_STANDARD)
        return {"type": "image_url", "image_url": {"url": f"data:{data.mime_type};base64,{dumped}"}}
    if file is not None and (file.mime_type or "").startswith("image/"):
        return {"type": "image_url", "image_url": {"url": file.file_uri or ""}}
    text = _as_text(part)
    return {"type": "text", "text": text} if text and not (part.function_call or part.function_response) else None


_STANDARD = str.maketrans("-_", "+/")


def _as_text(part: types.Part) -> str:
    """A part as text."""
    if part.text:
        return part.text
    if (call := part.function_call) is not None:
        return f"{call.name}({as_json(_jsonable(call.args or {}))})"
    if (result := part.function_response) is not None:
        return f"{result.name}: {as_json(_jsonable(result.response))}"
    if (code := part.executable_code) is not None:
        return code.code or ""
    if (ran := part.code_execution_result) is not None:
        return ran.output or ""
    data = part.inline_data or part.file_data
    if data is None:
        return ""
    return f"[{data.display_name or getattr(data, 'file_uri', None) or data.mime_type or 'a file'}]"


def _jsonable(value: object) -> object:
    """A value of a call or a result, as JSON has it."""
    return json.loads(EventActions(agent_state={"value": value}).model_dump_json())["agent_state"]["value"]


def _iso(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat()
