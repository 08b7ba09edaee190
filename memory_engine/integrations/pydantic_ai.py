"""Conversations of Pydantic AI in this memory: each message byte for byte, and as events of a thread.

    from memory_engine.integrations.pydantic_ai import MemoryEngineConversationStore

    async with memory_engine.open("agent.db") as engine:
        store = MemoryEngineConversationStore(engine)
        conversation = await store.load("chat") or Conversation(conversation_id="chat")
        await store.save(await agent.run("Hello", conversation=conversation))

Needs the extra `pydantic-ai`. A conversation is the engine's thread of the same id, so that contexts, search,
compaction and the inspector work on it.
"""

# pyright: reportMissingImports=false
# pydantic-ai is in the environment of its tests alone

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Self, cast

import msgspec

from memory_engine.context.builder import ContextBuilder
from memory_engine.context.context import Context
from memory_engine.core.events.messages import LlmThinking
from memory_engine.core.records import NewEvent
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import Conflict, ContextBudgetError, MissingExtra, ThreadDiffers, ThreadNotFound
from memory_engine.integrations.entries import OwnMessage, entry_events
from memory_engine.integrations.home import HomeLoop
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.integrations.pydantic_ai_messages import (
    dumped,
    dumped_texts,
    fallback_event,
    from_openai,
    loaded,
    message_texts,
    openai,
    preceded,
    prompted,
)
from memory_engine.integrations.pydantic_ai_scopes import ScopedCalls
from memory_engine.integrations.recalled import RECALL_TOKENS, recall_tokens_of, recalled
from memory_engine.projections.outbox import derived_id
from memory_engine.runtime.life import forgetting
from memory_engine.thread import Thread, handle_of
from memory_engine.views.records import as_json
from memory_engine.views.sessions.events import SessionEntryKept
from memory_engine.views.sessions.fold import SessionEntryRow
from memory_engine.views.sessions.view import Session, SessionEntry

try:
    from pydantic import TypeAdapter
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import ModelRequestContext
except ImportError:
    raise MissingExtra("Pydantic AI's conversations", "pydantic-ai") from None

MARK = "pydantic-ai"
"""The key in the metadata of threads that are made here."""
_RECORD = "record"
"""The key of a thread's state for the record of its conversation."""
_RECORDS: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)
_HOMES_MAX = 4_096
_TRIES = 4
"""How often a history is cut again if it takes more tokens than its context counted."""


class _Line(msgspec.Struct, frozen=True):
    """An entry of a history: its place in its thread, and its content."""

    row: SessionEntryRow
    kept: SessionEntry

    def entry(self) -> ConversationEntry:
        [message] = loaded([self.kept.entry["message"]])
        return ConversationEntry(id=self.kept.id, parent_id=self.row.invocation or None, message=message)

    @property
    def said(self) -> range:
        """The seqs of the events of its message."""
        return range(self.row.seq - self.row.messages, self.row.seq)


class MemoryEngineConversationStore(ScopedCalls):
    """A `ConversationStore` in an engine's threads. Make it on the loop that the engine was opened on; await it on any.

    A conversation's scope is its thread's user. A call that names no scope is of `user_id`: without one, it reaches
    conversations that have no scope. By another one's id it raises `ThreadDiffers`; if it names a scope, it gets the
    framework's answer for a conversation that the store does not have. A save is one commit, checked against the
    conversation's revision. A fork has the shared messages in its own thread too, so deleting a conversation destroys
    all of it and nothing of its forks.
    """

    def __init__(self, engine: Engine, *, user_id: str = "", tenant_id: str = "", agent_id: str = "") -> None:
        self.engine = engine
        self._user_id = user_id
        self._names_scope = False
        self._owner = partial(
            OwnedThreads, engine=engine, tenant_id=tenant_id, agent_id=agent_id, metadata={MARK: "conversation"}
        )
        self._home = HomeLoop()
        self._homes: OrderedDict[str, str] = OrderedDict()

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation, or `None`."""
        return await self._home.run(self._stored(conversation_id))

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """The records of a scope (without one, of the store's user), most recently saved first."""
        return await self._home.run(self._records(scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and new entries, all or none. Raises `ConversationConflict`."""
        await self._home.run(self._write(record, new_entries, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Destroy a conversation and everything derived from it. Raises `ConversationConflict`."""
        await self._home.run(self._delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """An entry by its id. Raises `KeyError`."""
        [found] = await self._home.run(self._history(entry_id, 1))
        return found

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to one, in order; with a limit, the last ones. Raises `KeyError`."""
        return await self._home.run(self._history(head_id, limit))

    # on the engine's loop

    def _of(self, scope: str | None) -> Self:
        if scope is None:
            return self
        named = copy(self)
        named._user_id, named._names_scope = scope, True
        return named

    def _threads(self, scope: str | None = None) -> OwnedThreads:
        return self._owner(user_id=self._user_id if scope is None else scope)

    async def _session(self, conversation_id: str) -> Session | None:
        """The session of a conversation, or `None`. Raises `ThreadDiffers`."""
        try:
            thread = await self._threads().find(conversation_id)
        except ThreadDiffers as error:
            if not self._is_of_another_scope(error):
                raise
            return None
        return None if thread is None else Session(handle_of(thread))

    def _is_of_another_scope(self, error: ThreadDiffers) -> bool:
        """Whether a thread differs only in the scope that a call named: the framework does not show it then."""
        return self._names_scope and [name for name, *_ in error.differences] == ["user_id"]

    async def _stored(self, conversation_id: str) -> ConversationRecord | None:
        session = await self._session(conversation_id)
        return None if session is None else await self._record(session)

    async def _record(self, session: Session) -> ConversationRecord | None:
        value = await session.value(_RECORD)
        if value is None:
            return None
        record = _RECORDS.validate_json(json.dumps(value))
        for entry_id in (*record.branches, record.head_id):
            self._know(entry_id, session.thread.id)
        return record

    def _know(self, entry_id: str | None, thread_id: str) -> None:
        if entry_id is not None:
            self._homes[entry_id] = thread_id
            self._homes.move_to_end(entry_id)
            if len(self._homes) > _HOMES_MAX:
                self._homes.popitem(last=False)

    async def _records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        owned = self._threads(scope)
        threads = [await owned.find(info.id) for info in await owned.list()]
        read = [await self._record(Session(handle_of(thread))) for thread in threads if thread is not None]
        found = [one for one in read if one is not None and (scope is None or one.scope == scope)]
        found.sort(key=lambda one: one.updated_at, reverse=True)
        return found[:limit]

    async def _history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        if head_id is None or limit == 0:
            return []
        session = await self._where(head_id, [])
        return [one.entry() for one in await _entries_up_to(session, head_id, limit)]

    async def _where(self, entry_id: str, at_hand: Sequence[Session]) -> Session:
        """A session of the call's scope, or one at hand, that has an entry. Raises `KeyError`."""
        for session in at_hand:
            if await self._holds(session.thread.id, entry_id):
                return session
        known, owned = self._homes.get(entry_id), self._threads()
        for thread_id in [*([known] if known else ()), *[info.id for info in await owned.list()]]:
            with suppress(ThreadDiffers):
                thread = await owned.find(thread_id)
                if thread is not None and await self._holds(thread_id, entry_id):
                    self._know(entry_id, thread_id)
                    return Session(handle_of(thread))
        raise KeyError(entry_id)

    async def _holds(self, thread_id: str, entry_id: str) -> bool:
        with suppress(ThreadNotFound):
            return bool(await kernel_of(self.engine).store.find(thread_id, [_event_id(thread_id, entry_id)]))
        return False

    async def _write(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], expected_revision: str | None
    ) -> None:
        record = replace(record, scope=record.scope if record.scope is not None else self._user_id or None)
        while True:
            session, seq = await self._checked(record, expected_revision)
            stored = await self._record(session)
            events = await self._events(session, stored, record, new_entries)
            try:
                await session.thread.dispatch_all(events, expected_seq=seq)
            except Conflict:  # of this conversation, or of what else was written to its thread?
                continue
            self._know(record.head_id, session.thread.id)
            return

    async def _checked(self, record: ConversationRecord, expected_revision: str | None) -> tuple[Session, int]:
        """The session and its last seq, if the stored record is the expected one; makes the thread if necessary."""
        owned = self._threads(record.scope)
        try:
            thread = (
                await owned.open(record.conversation_id)
                if expected_revision is None
                else await owned.find(record.conversation_id)
            )
        except ThreadDiffers as error:
            if not self._is_of_another_scope(error):
                raise
            raise ConversationConflict(record.conversation_id) from error
        if thread is None:
            raise ConversationConflict(record.conversation_id)
        session = Session(handle_of(thread))
        seq = await _last_seq(session)
        stored = await self._record(session)
        if (stored.revision if stored is not None else None) != expected_revision:
            raise ConversationConflict(record.conversation_id)
        if stored is None and seq and await session.has(_RECORD):  # a deletion that was killed half-way
            await thread.admin.delete(reason="its conversation was deleted")
            return await self._checked(record, expected_revision)
        return session, seq

    async def _events(
        self,
        session: Session,
        stored: ConversationRecord | None,
        record: ConversationRecord,
        new_entries: Sequence[ConversationEntry],
    ) -> list[NewEvent]:
        """The events of a save: forgettings of dropped entries, then entries with their messages, then the record."""
        thread_id = session.thread.id
        base = new_entries[0].parent_id if new_entries else record.head_id
        old = stored.head_id if stored is not None else None
        left, again = await self._moved(session, old, base, record) if base != old else ([], [])
        entries = [*again, *new_entries]
        held = {entry.id for entry in again if await self._holds(thread_id, entry.id)}
        events: list[NewEvent] = []
        if left:
            ids = await kernel_of(self.engine).reader.ids_at(thread_id, {seq for one in left for seq in one.said})
            if ids:
                forget = await forgetting(session.thread, event_ids=list(ids), reason="the conversation left it")
                events.append(NewEvent(forget))
        at = record.updated_at.timestamp()
        kept = [
            _own_entry(entry, thread_id, kernel_of(self.engine).new_id() if entry.id in held else "")
            for entry in entries
        ]
        events += await entry_events(session.thread, kept, at)
        state = as_json({_RECORD: json.loads(_RECORDS.dump_json(record))})
        events.append(NewEvent(SessionEntryKept(id="", entry="{}", timestamp=at, state=state)))
        return events

    async def _moved(
        self, session: Session, old: str | None, base: str | None, record: ConversationRecord
    ) -> tuple[list[_Line], list[ConversationEntry]]:
        """The entries that a history which ended at `old` and continues after `base` drops, and those it gets back."""
        was = await _entries_up_to(session, old)
        try:
            now = await _entries_up_to(await self._where(base, [session]), base) if base is not None else []
        except KeyError:
            raise ConversationConflict(record.conversation_id) from None
        kept, before = {one.kept.id for one in now}, {one.kept.id for one in was}
        again = [one.entry() for one in now if one.kept.id not in before]
        return [one for one in was if one.kept.id not in kept], again

    async def _delete(self, conversation_id: str, expected_revision: str) -> None:
        while True:
            thread = await self._threads().find(conversation_id)
            session = None if thread is None else Session(handle_of(thread))
            record = None if session is None else await self._record(session)
            if thread is None or session is None or record is None or record.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            gone = SessionEntryKept(id="", entry="{}", timestamp=0, state=as_json({_RECORD: None}))
            seq = await session.thread.last_seq()
            if (record := await self._record(session)) is None or record.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            with suppress(Conflict):
                await thread.dispatch(gone, expected_seq=seq)
                await thread.admin.delete(reason="its conversation was deleted")
                return


async def _last_seq(session: Session) -> int:
    """The last seq of a thread; 0 if it does not exist."""
    with suppress(ThreadNotFound):
        return await session.thread.last_seq()
    return 0


def _event_id(thread_id: str, entry_id: str) -> str:
    return derived_id(MARK, thread_id, entry_id)


def _own_entry(entry: ConversationEntry, thread_id: str, again: str) -> OwnMessage:
    """An entry to store; one that the thread already has is stored again, under another name."""
    message = dumped(entry.message)
    return OwnMessage(
        id=entry.id,
        entry={"message": message, "kind": entry.kind},
        messages=openai(entry.message),
        texts=dumped_texts(message),
        said=fallback_event(entry.message),
        name=again or f"{MARK} {entry.id}",
        event_id=again or _event_id(thread_id, entry.id),
        before=entry.parent_id or "",
    )


async def _entries_up_to(session: Session, head_id: str | None, limit: int | None = None) -> list[_Line]:
    """The entries up to one, in order; with a limit, the last ones. Raises `KeyError`.

    Erased entries, and forgotten ones, are skipped.
    """
    count = None if limit is None else 2 * limit + 8  # records are between entries
    while True:
        rows = await session.entry_rows(count)
        lines = (_Line(row, kept) for row, kept in zip(rows, await session.entries(rows), strict=True))
        by_id = {one.kept.id: one for one in lines}  # the last of those kept again
        found: list[_Line] = []
        at = head_id or ""
        while at and len(found) != limit:
            if at in by_id:
                found.append(by_id[at])
                at = found[-1].row.invocation
            elif count is None:
                at = await _preceding_entry(session, at)
            else:
                break
        if not at or len(found) == limit:
            return found[::-1]
        count = None


async def _preceding_entry(session: Session, entry_id: str) -> str:
    """The entry before one that no longer has a row. Raises `KeyError`."""
    kernel, thread_id = session.thread.kernel, session.thread.id
    for stored in await kernel.store.find(thread_id, [_event_id(thread_id, entry_id)]):
        event = kernel.reader.decode(thread_id, stored).event
        return event.invocation if isinstance(event, SessionEntryKept) else ""
    raise KeyError(entry_id)


@dataclass
class MemoryEngineHistory(AbstractCapability[Any]):
    """Shows a model as much of a stored conversation as fits `max_tokens`, with all messages of the run.

    First come the summary of what was compacted and what is known of the user, then the latest messages as they
    were, calls with their results and thoughts. The run's own history does not change, only each request. The
    conversation is one of `scope`; without it, of the store's user. With `recall`, a part before the newest prompt says
    what the user's other conversations, and messages of this one that do not fit, hold on it, in at most
    `recall_tokens` of the budget (half of it at most): the same for all requests that answer the prompt.
    """

    store: MemoryEngineConversationStore
    _: KW_ONLY
    max_tokens: int
    scope: str | None = None
    recall: bool = False
    recall_tokens: int = RECALL_TOKENS

    def __post_init__(self) -> None:
        recall_tokens_of(self.recall, self.recall_tokens)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """The request with the messages that fit.

        Raises `ContextBudgetError` if the run's own do not, `ThreadDiffers` for a conversation of another scope.
        """
        messages, owned = request_context.messages, self.store._threads(self.scope)
        most = min(recall_tokens_of(self.recall, self.recall_tokens), self.max_tokens // 2)
        shown = partial(_with_recall, most=most) if most else _fitted
        fitted = await self.store._home.run(shown(owned, ctx.conversation_id or "", messages, self.max_tokens))
        return replace(request_context, messages=fitted)


async def _with_recall(
    owned: OwnedThreads, thread_id: str, messages: list[ModelMessage], max_tokens: int, *, most: int
) -> list[ModelMessage]:
    """The messages that fit, with what is recalled for the newest prompt before it, if there is room for that."""
    try:
        fitted = await _fitted(owned, thread_id, messages, max_tokens - most)
    except ContextBudgetError:
        return await _fitted(owned, thread_id, messages, max_tokens)
    prompt = next((one for one in reversed(messages) if prompted(one)), None)
    at = next((n for n in reversed(range(len(fitted))) if fitted[n] == prompt), None)
    if prompt is None or at is None:
        return fitted
    text = await recalled(
        owned,
        thread_id,
        prompted(prompt),
        max_tokens=most,
        beside=[text for message in fitted for text in message_texts(message)],
        request=sha256(as_json(dumped(prompt)).encode()).hexdigest(),
    )
    return [*fitted[:at], preceded(prompt, text), *fitted[at + 1 :]] if text else fitted


async def _fitted(
    owned: OwnedThreads, thread_id: str, messages: list[ModelMessage], max_tokens: int
) -> list[ModelMessage]:
    thread = await owned.find(thread_id)
    if thread is None:
        return messages
    session = Session(handle_of(thread))
    record = cast("Mapping[str, Any] | None", await session.value(_RECORD))
    if record is None:
        return messages
    line = await _entries_up_to(session, record["head_id"])
    stored = {as_json(one.kept.entry["message"]): one for one in line}
    new = [message for message in messages if as_json(dumped(message)) not in stored]
    builder = handle_of(thread).kernel[ContextBuilder]

    def tokens(of: Sequence[ModelMessage]) -> int:
        return builder.tokens([part for message in of for part in openai(message)])

    reserve, shown = tokens(new), list[ModelMessage]()
    for attempt in range(_TRIES):
        context = await thread.context(max_tokens, reserve=reserve)
        shown = _shown_messages(context, await _whole_entries(thread, context, line) if attempt < _TRIES - 1 else [])
        over = tokens([*shown, *new]) - max_tokens
        if over <= 0:
            break
        reserve += over
    return [*shown, *new]


async def _whole_entries(thread: Thread, context: Context, line: Sequence[_Line]) -> list[_Line]:
    """The entries that a context shows whole. Their thoughts need not be shown: they come with their message."""
    shown = {piece.chunk.said_at for piece in context.pieces if not piece.shortened}
    begun = [one for one in line if not shown.isdisjoint(one.said)]
    lacking = {seq for one in begun for seq in one.said if seq not in shown}
    rows = await handle_of(thread).kernel.reader.rows_at(thread.id, lacking)
    shown |= {seq for seq, row in rows.items() if row.type == LlmThinking.event_type}
    return [one for one in begun if shown.issuperset(one.said)]


def _shown_messages(context: Context, line: Sequence[_Line]) -> list[ModelMessage]:
    """The entries of a context: these unchanged, else its own messages."""
    of_seq = {seq: one for one in line for seq in one.said}
    found: list[ModelMessage] = []
    given: set[str] = set()
    loose: list[dict[str, Any]] = []
    for piece in context.pieces:
        one = of_seq.get(piece.chunk.said_at)
        if one is None:
            loose += [dict(message) for message in piece.messages]
        elif one.kept.id not in given:
            given.add(one.kept.id)
            found += [*from_openai(loose), one.entry().message]
            loose = []
    return [*found, *from_openai(loose)]
