"""Sessions and memory of Google's Agent Development Kit in this memory.

    from memory_engine.integrations.adk import MemoryEngineMemoryService, MemoryEngineSessionService

    async with memory_engine.open("agent.db") as engine:
        runner = Runner(app_name="shop", agent=agent, session_service=MemoryEngineSessionService(engine),
                        memory_service=MemoryEngineMemoryService(engine))

Needs the extra `adk`. A session is a thread of the engine: each event of ADK is kept unchanged, and its messages
are events too, so that contexts, search, compaction and the inspector work on it.
"""

# pyright: reportMissingImports=false
# google-adk fits with few others: it is in the environment of its tests alone

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from memory_engine.core.events.delivery import Destination
from memory_engine.core.records import NewEvent
from memory_engine.core.threads import ThreadInfo
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import Conflict, MissingExtra, ThreadNotFound
from memory_engine.integrations.adk_events import (
    KINDS,
    MARK,
    adk_texts,
    dumped,
    event_again,
    event_of,
    messages_of,
    prefixed,
    shown_in,
    state_of,
    thread_id_of,
)
from memory_engine.integrations.adk_memory import MemoryEngineMemoryService
from memory_engine.integrations.brief import brief_of
from memory_engine.integrations.home import HomeLoop
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.integrations.recalled import RECALL_TOKENS, recall_tokens_of, recalled
from memory_engine.projections.outbox import derived_id
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.life import forgetting
from memory_engine.thread import Thread, handle_of
from memory_engine.views.records import as_json
from memory_engine.views.sessions.events import SessionBegun, SessionEntryKept, SharedState
from memory_engine.views.sessions.fold import SessionEntryRow, SessionHead
from memory_engine.views.sessions.view import Session, Shared

try:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.adk.models.llm_request import LlmRequest
    from google.adk.platform import time as platform_time
    from google.adk.platform import uuid as platform_uuid
    from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.session import Session as AdkSession
    from google.genai.types import Content, Part
except ImportError:
    raise MissingExtra("ADK's sessions", "adk") from None

__all__ = ["MARK", "MemoryEngineMemoryService", "MemoryEngineSessionService"]

_SESSION = {MARK: "session"}


class MemoryEngineSessionService(BaseSessionService):
    """Keeps the sessions of ADK in an engine's threads. Make it on the event loop that the engine was opened on.

    Await it on any event loop. A session's user is the thread's user, its app the thread's agent. State of the
    user (`user:`) is kept in the user's own thread, state of the app (`app:`) in the agent's; it gets there through the
    outbox, in the commit of the event that sets it. `recall` is for `show_recall`.
    """

    def __init__(
        self, engine: Engine, *, tenant_id: str = "", recall: bool = False, recall_tokens: int = RECALL_TOKENS
    ) -> None:
        self.engine = engine
        self._tenant_id = tenant_id
        self._recall_tokens = recall_tokens_of(recall, recall_tokens)
        self._home = HomeLoop()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> AdkSession:
        """Make a session, with a new id unless one is given. Raises `AlreadyExistsError`."""
        return await self._home.run(self._create(app_name, user_id, state or {}, session_id))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> AdkSession | None:
        """A session with its events, or the latest that `config` asks for; `None` if there is no such session."""
        return await self._home.run(self._get(app_name, user_id, session_id.strip(), config or GetSessionConfig()))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all users, without their events; the most recent one last."""
        return await self._home.run(self._list(app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Destroy a session and everything derived from it. State of its user and app stays."""
        await self._home.run(self._delete(app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """State of a user in an app, its keys without `user:`."""
        return await self._home.run(self._shared_state("user", app_name, user_id))

    async def append_event(self, session: AdkSession, event: Event) -> Event:
        """Store an event, its messages and the state that it sets, in one commit; then update the session.

        An event that was appended before is not stored again; a partial one never is. Raises `StaleSessionError` if
        another has continued the session, `SessionNotFoundError`.
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
        """Events are stored already; wait until state of users and apps has arrived."""
        await self._home.run(self._settle())

    async def show_brief(self, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Put the brief of the session in front of a request: an agent takes this as its `before_model_callback`.

        It holds people's statements that still apply, without those in the request. The session does not change.
        """
        session, beside = callback_context.session, _request_texts(llm_request)
        owned = self._owned(session.app_name, session.user_id)
        thread_id = self._id(session.app_name, session.user_id, session.id)
        text = await self._home.run(brief_of(owned, thread_id, beside=beside))
        if text:
            llm_request.contents.insert(0, Content(role="user", parts=[Part(text=text)]))

    async def show_recall(self, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Put what is recalled before the user's newest message: an agent takes this as its `before_model_callback`.

        With `recall=True` it says what the user's other sessions in the app, and events of this one that the request
        lacks, hold on that message, in at most `recall_tokens` tokens. It is the same for all calls until the user's
        next message. The session does not change.
        """
        session = callback_context.session
        said = next(
            (event for event in reversed(session.events) if event.author == "user" and _adk_text(event.content)), None
        )
        if said is None or not self._recall_tokens:
            return
        query = _adk_text(said.content)
        text = await self._home.run(
            recalled(
                self._owned(session.app_name, session.user_id),
                self._id(session.app_name, session.user_id, session.id),
                query,
                max_tokens=self._recall_tokens,
                beside=_request_texts(llm_request),
                request=said.id,
            )
        )
        contents = llm_request.contents
        at = next((n for n in reversed(range(len(contents))) if _adk_text(contents[n]) == query), 0)
        if text:
            contents.insert(at, Content(role="user", parts=[Part(text=text)]))

    # on the engine's loop

    def _owned(self, app_name: str, user_id: str, metadata: Mapping[str, str] = _SESSION) -> OwnedThreads:
        return OwnedThreads(
            engine=self.engine,
            user_id=user_id,
            tenant_id=self._tenant_id,
            agent_id=app_name,
            metadata=metadata,
        )

    def _id(self, app_name: str, user_id: str, session_id: str) -> str:
        return thread_id_of("session", self._tenant_id, app_name, user_id, session_id)

    async def _thread(self, app_name: str, user_id: str, session_id: str) -> Thread | None:
        """The thread of a session, or `None`. Raises `ThreadDiffers` for one that others made under its id."""
        return await self._owned(app_name, user_id).find(self._id(app_name, user_id, session_id))

    async def _create(self, app_name: str, user_id: str, state: dict[str, Any], session_id: str | None) -> AdkSession:
        session_id = (session_id or "").strip() or platform_uuid.new_uuid()
        owned = self._owned(app_name, user_id, {**_SESSION, "session_id": session_id})
        thread = await owned.open(self._id(app_name, user_id, session_id))
        own, shared = self._scoped(thread.id, app_name, user_id, EventActions(state_delta=state))
        begun = SessionBegun(timestamp=platform_time.get_time(), state=own, shared=shared)
        head = await handle_of(thread).last_seq()
        try:
            if await Session(handle_of(thread)).head() is None:
                await Session(handle_of(thread)).begin(begun, expected_seq=head)
                await self._settle()
                found = await self._get(app_name, user_id, session_id, GetSessionConfig(num_recent_events=0))
                if found is not None:
                    return found
        except Conflict:
            pass
        raise AlreadyExistsError(f"Session with id {session_id} already exists.")

    async def _get(self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig) -> AdkSession | None:
        thread = await self._thread(app_name, user_id, session_id)
        kept = None if thread is None else Session(handle_of(thread))
        head = None if kept is None else await kept.head()
        if kept is None or head is None:
            return None
        shared = await self._all_shared(app_name, user_id)
        rows = [row for row in await kept.entry_rows(config.num_recent_events) if row.seq <= head.seq]
        found = _session(app_name, user_id, session_id, head)
        found.events = [event_of(entry) for entry in await kept.entries(_since(rows, config.after_timestamp))]
        found.state = await kept.state() | shared
        return found

    async def _list(self, app_name: str, user_id: str | None) -> ListSessionsResponse:
        threads = await self._sessions(app_name, user_id)
        shared = {one: await self._all_shared(app_name, one) for one in {info.user_id for info in threads}}
        found: list[AdkSession] = []
        for info in threads:
            thread = await self._owned(app_name, info.user_id).find(info.id)
            if thread is None:
                continue
            kept = Session(handle_of(thread))
            with suppress(ThreadNotFound):  # it was deleted meanwhile
                head, state = await kept.head(), await kept.state()
                if head is not None:
                    one = _session(app_name, info.user_id, info.metadata["session_id"], head)
                    one.state = state | shared[info.user_id]
                    found.append(one)
        found.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=found)

    async def _sessions(self, app_name: str, user_id: str | None) -> Sequence[ThreadInfo]:
        return await self._owned(app_name, user_id or "").list(every_user=user_id is None)

    async def _delete(self, app_name: str, user_id: str, session_id: str) -> None:
        thread = await self._thread(app_name, user_id, session_id)
        if thread is None:
            return
        with suppress(ThreadNotFound):
            await thread.views.delivered()
            for kind in KINDS.values():
                await self._outlive(Shared(handle_of(self._scope(kind, app_name, user_id)), app_name), thread.id)
            await thread.admin.delete(reason="its session was deleted")

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
        return await Shared(handle_of(self._scope(kind, app_name, user_id)), app_name).state()

    async def _all_shared(self, app_name: str, user_id: str) -> dict[str, Any]:
        await self._settle()
        return prefixed({kind: await self._shared_state(kind, app_name, user_id) for kind in KINDS.values()})

    async def _settle(self) -> None:
        """Wait for state under way; a paused thread gets its state when it resumes."""
        await kernel_of(self.engine)[Relay].settle()

    def _scoped(
        self, thread_id: str, app_name: str, user_id: str, actions: EventActions
    ) -> tuple[str, tuple[SharedState, ...]]:
        """State that an event sets: of the session, and of its user and app."""
        owners = {"agent": app_name, "user": user_id}
        found: dict[str, dict[str, Any]] = {kind: {} for kind in ("", *owners)}
        for key, value in state_of(actions).items():
            kind = next((kind for prefix, kind in KINDS.items() if key.startswith(prefix)), "")
            found[kind][key.partition(":")[2] if kind else key] = value
        shared = [
            SharedState(Destination(kind, owners[kind], self._tenant_id), app_name, as_json(found[kind]), thread_id)
            for kind in KINDS.values()
            if found[kind]
        ]
        return as_json(found[""]), tuple(shared)

    async def _append(self, session: AdkSession, event: Event) -> int | None:
        """Store an event; returns the seq of its entry, or `None` if it was stored before."""
        async with self._locks.setdefault(self._id(session.app_name, session.user_id, session.id), asyncio.Lock()):
            thread = await self._thread(session.app_name, session.user_id, session.id)
            if thread is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            kept = Session(handle_of(thread))
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

    async def _checked(self, session: AdkSession, kept: Session) -> SessionHead:
        """The head of the stored session. Raises `StaleSessionError` if it differs from the given one's."""
        head = await kept.head()
        if head is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        marker = session._storage_update_marker
        if (int(marker) != head.seq) if marker else (session.last_update_time < head.timestamp):
            raise StaleSessionError(
                f"session {session.id!r} was continued after this object was read (thread {kept.thread.id!r} is at seq "
                f"{head.seq}); nothing was written: get the session again, and append to that"
            )
        return head

    async def _known(self, kept: Session, event: Event) -> tuple[bool, str]:
        """Whether an event was stored before, and the id to store it under, if its own is taken."""
        event_id = derived_id("adk", kept.thread.id, event.id)
        for stored in await kernel_of(self.engine).store.find(kept.thread.id, [event_id]):
            [same] = await kept.entries(await kept.entry_rows_from(stored.seq))
            return event_of(same) == event_again(event), kernel_of(self.engine).new_id()
        return False, event_id

    async def _keep(self, session: AdkSession, kept: Session, event: Event, event_id: str, expected: int) -> int:
        thread = kept.thread
        own, shared = self._scoped(thread.id, session.app_name, session.user_id, event.actions)
        entry = SessionEntryKept(
            id=event.id,
            entry=as_json(dumped(event)),
            timestamp=event.timestamp,
            invocation=event.invocation_id,
            state=own,
            shared=shared,
        )
        beside = await messages_of(thread, event, event_id)
        return await kept.keep(
            NewEvent(entry, event_id),
            beside,
            adk_texts(event.content),
            after=await self._rewound(kept, event.actions.rewind_before_invocation_id),
            expected_seq=expected,
        )

    async def _rewound(self, kept: Session, invocation_id: str | None) -> list[NewEvent]:
        """The event that forgets the messages that a rewind takes back. The session keeps its events, as in ADK."""
        rows = await kept.entry_rows() if invocation_id else []
        begin = next((n for n, row in enumerate(rows) if row.invocation == invocation_id), len(rows))
        seqs = {seq for row in rows[begin:] for seq in range(row.seq - row.messages, row.seq)}
        if not seqs:
            return []
        ids = await kernel_of(self.engine).reader.ids_at(kept.thread.id, seqs)
        return [NewEvent(await forgetting(kept.thread, event_ids=list(ids), reason="the session was rewound"))]


def _adk_text(content: Content | None) -> str:
    return "\n".join(adk_texts(content).values())


def _request_texts(llm_request: LlmRequest) -> list[str]:
    return [text for content in llm_request.contents for text in shown_in(content)]


def _session(app_name: str, user_id: str, session_id: str, head: SessionHead) -> AdkSession:
    found = AdkSession(id=session_id, app_name=app_name, user_id=user_id, last_update_time=head.timestamp)
    found._storage_update_marker = str(head.seq)
    return found


def _since(rows: Sequence[SessionEntryRow], timestamp: float | None) -> Sequence[SessionEntryRow]:
    """The rows after the last older one."""
    older = [n for n, row in enumerate(rows) if timestamp is not None and row.timestamp < timestamp]
    return rows[older[-1] + 1 :] if older else rows
