"""Sessions of the Claude Agent SDK in this memory: each transcript entry unchanged, and as events of a thread.

    from memory_engine.integrations.claude_agent import MemoryEngineSessionStore

    async with memory_engine.open("agent.db") as engine:
        options = ClaudeAgentOptions(session_store=MemoryEngineSessionStore(engine))
        async for message in query(prompt="Hello", options=options):
            ...

Needs the extra `claude-agent`. A session is a thread (see `thread_id`) and each of its sub-agents a child thread, so
that contexts, search, compaction and the inspector work on them.
"""

# pyright: reportMissingImports=false
# claude-agent-sdk is in the environment of its tests alone

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from msgspec.structs import replace

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import EventsErased, MemoryForget
from memory_engine.core.events.messages import LlmTextResponse, ParentAgentMessage, UserMessage
from memory_engine.core.records import NewEvent
from memory_engine.core.threads import ThreadInfo
from memory_engine.engine import Engine
from memory_engine.errors import Conflict, MissingExtra, ThreadNotFound
from memory_engine.integrations.claude_agent_entries import (
    Entry,
    answers_only,
    claude_message_text,
    is_prompt,
    message_of,
    strings,
    uuid_of,
    without,
)
from memory_engine.integrations.entries import OwnMessage, entry_events
from memory_engine.integrations.home import HomeLoop
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.projections.outbox import derived_id
from memory_engine.runtime.life import forgetting
from memory_engine.thread import Thread, handle_of
from memory_engine.views.sessions.fold import SessionEntryRow
from memory_engine.views.sessions.view import Session

if TYPE_CHECKING:
    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

MARK = "claude-agent"
"""The key in the metadata of threads that are made here: `session` or `subagent`."""
LEFT = "the session left this branch"
"""The reason of forgettings whose messages the session itself keeps."""
_LOOK = 16
"""Entries in which the parent of a prompt is looked for first."""
_SUMMARIES_MAX = 1_024


class MemoryEngineSessionStore:
    """A `SessionStore` in an engine's threads. Make it on the loop that the engine was opened on; await it on any.

    The first entry of a key makes its thread, with these scopes; methods raise `ThreadDiffers` for the thread of
    another user or tenant, and do not list it. An append is one commit, checked against concurrent ones. A prompt that
    continues from an earlier entry takes the messages after that out of contexts and search; the session keeps them.
    """

    def __init__(self, engine: Engine, *, user_id: str = "", tenant_id: str = "", agent_id: str = "") -> None:
        self.engine = engine
        self._owner = partial(OwnedThreads, engine=engine, user_id=user_id, tenant_id=tenant_id, agent_id=agent_id)
        self._home = HomeLoop()
        self._summaries: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()

    def thread_id(self, key: "SessionKey | SessionListSubkeysKey") -> str:
        """The id of the thread that holds a key's entries."""
        names = (key["project_key"], key["session_id"], *filter(None, [key.get("subpath")]))
        return "/".join(("claude", *(quote(str(name), safe="@+ ") for name in names)))

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        """Add entries, and record each as messages of the thread. One whose `uuid` is there is not added again."""
        await self._home.run(self._append(key, cast("list[Entry]", entries)))

    async def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        """The entries of a key, equal as JSON to those that were added; `None` without any.

        Entries whose messages were forgotten or erased are left out, with the calls that they answer and the results
        of their calls; what follows them continues from what is before them.
        """
        return cast("list[SessionStoreEntry] | None", await self._home.run(self._load(key)))

    async def list_sessions(self, project_key: str) -> "list[SessionStoreListEntry]":
        """The sessions of a project, each with the time of its last change."""
        found = await self._home.run(self._sessions(project_key))
        return [{"session_id": info.metadata["session_id"], "mtime": _mtime(info)} for info in found]

    async def list_session_summaries(self, project_key: str) -> "list[SessionSummaryEntry]":
        """The summaries of a project's sessions, as the SDK makes them of what `load` gives."""
        return cast("list[SessionSummaryEntry]", await self._home.run(self._summed_up(project_key)))

    async def delete(self, key: "SessionKey") -> None:
        """Destroy what a key holds and everything derived from it; with a session, what its sub-agents hold."""
        await self._home.run(self._delete(key))

    async def list_subkeys(self, key: "SessionListSubkeysKey") -> list[str]:
        """The subpaths of a session's sub-agents."""
        return [info.metadata["subpath"] for info in await self._home.run(self._children(key))]

    # on the engine's loop

    def _threads(self, key: "SessionKey | SessionListSubkeysKey") -> OwnedThreads:
        subpath = str(key.get("subpath") or "")
        metadata = {MARK: "session", "project_key": key["project_key"], "session_id": key["session_id"]}
        if not subpath:
            return self._owner(metadata=metadata)
        session: SessionListSubkeysKey = {"project_key": key["project_key"], "session_id": key["session_id"]}
        return self._owner(
            metadata=metadata | {MARK: "subagent", "subpath": subpath}, parent_id=self.thread_id(session)
        )

    async def _append(self, key: "SessionKey", entries: Sequence[Entry]) -> None:
        for run in _runs(entries):
            await self._keep(key, run)

    async def _keep(self, key: "SessionKey", run: Sequence[Entry]) -> None:
        threads, of_agent = self._threads(key), bool(key.get("subpath"))
        while True:
            thread = await threads.open(self.thread_id(key))
            seq = await handle_of(thread).last_seq()
            new = await _unknown(thread, run)
            if not new:
                return
            own = [_claude_entry(thread, entry, of_agent=of_agent) for entry in new]
            said = await entry_events(handle_of(thread), own, time.time(), format="anthropic")
            events = [*await _left(thread, new[0]), *(map(_as_agents, said) if of_agent else said)]
            try:
                await thread.dispatch_all(events, expected_seq=seq)
            except Conflict:  # another has written meanwhile
                await asyncio.sleep(0)
                continue
            return

    async def _load(self, key: "SessionKey") -> list[Entry] | None:
        thread = await self._threads(key).find(self.thread_id(key))
        if thread is not None:
            with suppress(ThreadNotFound):
                return await _loaded(thread) or None
        return None

    async def _sessions(self, project_key: str) -> list[ThreadInfo]:
        found = await self._owner(metadata={MARK: "session", "project_key": project_key}).list()
        return [info for info in found if info.events]

    async def _children(self, key: "SessionKey | SessionListSubkeysKey") -> list[ThreadInfo]:
        names = {"project_key": key["project_key"], "session_id": key["session_id"]}
        found = await self._owner(metadata={MARK: "subagent", **names}).list()
        return [info for info in found if info.events]

    async def _summed_up(self, project_key: str) -> list[dict[str, Any]]:
        try:
            from claude_agent_sdk import fold_session_summary
        except ImportError:
            raise MissingExtra("summaries of the Claude Agent SDK's sessions", "claude-agent") from None
        found = []
        for info in await self._sessions(project_key):
            key: SessionKey = {"project_key": project_key, "session_id": info.metadata["session_id"]}
            known, data = self._summaries.get(info.id, ("", {}))
            if known != info.head_hash:
                entries = await self._load(key) or []
                data = fold_session_summary(None, key, cast("list[SessionStoreEntry]", entries))["data"]
                self._summaries[info.id] = info.head_hash, data
                if len(self._summaries) > _SUMMARIES_MAX:
                    self._summaries.popitem(last=False)
            found.append({"session_id": key["session_id"], "mtime": _mtime(info), "data": dict(data)})
        return found

    async def _delete(self, key: "SessionKey") -> None:
        children = [] if key.get("subpath") else [info.id for info in await self._children(key)]
        for thread_id in (*children, self.thread_id(key)):
            thread = await self._owner().find(thread_id)
            if thread is not None:
                with suppress(ThreadNotFound):
                    await thread.admin.delete(reason="its session was deleted")


def _mtime(info: ThreadInfo) -> int:
    return int(info.updated_at.timestamp() * 1_000)


def _event_id(thread: Thread, uuid: str) -> str:
    return derived_id(MARK, thread.id, uuid)


def _runs(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The entries in runs: each but the first begins with a prompt that does not continue from the one before it."""
    run: list[Entry] = []
    for entry in entries:
        if run and is_prompt(entry) and entry.get("parentUuid") != uuid_of(run[-1]):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


async def _unknown(thread: Thread, run: Sequence[Entry]) -> list[Entry]:
    """The entries that are not stored yet, each once."""
    ids = [_event_id(thread, uuid_of(entry)) if uuid_of(entry) else "" for entry in run]
    there = {stored.id for stored in await handle_of(thread).kernel.store.find(thread.id, list(filter(None, ids)))}
    new = []
    for entry, event_id in zip(run, ids, strict=True):
        if event_id not in there:
            new.append(entry)
            there.update(filter(None, [event_id]))
    return new


def _claude_entry(thread: Thread, entry: Entry, *, of_agent: bool) -> OwnMessage:
    uuid, message = uuid_of(entry), message_of(entry, of_agent=of_agent)
    name = _event_id(thread, uuid) if uuid else handle_of(thread).kernel.new_id()
    return OwnMessage(
        id=uuid or name,
        entry=entry,
        messages=[] if message is None else [message],
        texts={} if message is None else strings(entry),
        said=None if message is None else _claude_event(message),
        name=name,
        event_id=name,
    )


def _claude_event(message: Entry) -> Event | None:
    text = claude_message_text(message)
    if not text:
        return None
    if message["role"] == "assistant":
        return LlmTextResponse(content=text)
    return UserMessage(content=text, origin="tool" if answers_only({"message": message}) else "")


def _as_agents(new: NewEvent) -> NewEvent:
    """A sub-agent's questions come from the agent that started it, not from a person."""
    match new.event:
        case UserMessage(content=content, origin="", native=native):
            return replace(new, event=ParentAgentMessage(content=content, native=native))
    return new


async def _left(thread: Thread, first: Entry) -> list[NewEvent]:
    """The event that forgets the messages after the entry that a prompt continues from, if there are any.

    Results of parallel calls are siblings: they are not a branch that was left.
    """
    if not is_prompt(first) or "parentUuid" not in first:
        return []
    at, parent = 0, first["parentUuid"]
    if parent is not None:
        found = await handle_of(thread).kernel.store.find(thread.id, [_event_id(thread, str(parent))])
        if not found:
            return []
        at = found[0].seq
    session = Session(handle_of(thread))
    rows = await session.entry_rows(_LOOK)
    if len(rows) == _LOOK and rows[0].seq > at:
        rows = await session.entry_rows()
    later = [row for row in rows if row.seq > at and row.messages]
    if all(answers_only(one.entry) for one in await session.entries(later)):
        return []
    seqs = {seq for row in later for seq in _said_at(row)}
    ids = await handle_of(thread).kernel.reader.ids_at(thread.id, seqs)
    return [NewEvent(await forgetting(handle_of(thread), event_ids=list(ids), reason=LEFT))]


def _said_at(row: SessionEntryRow) -> range:
    """The seqs of the events of an entry's message."""
    return range(row.seq - row.messages, row.seq)


async def _loaded(thread: Thread) -> list[Entry]:
    session = Session(handle_of(thread))
    rows = await session.entry_rows()
    entries: list[Entry] = [one.entry for one in await session.entries(rows)]
    seqs = await _gone(thread)
    gone = {n for n, row in enumerate(rows) if not seqs.isdisjoint(_said_at(row))} if seqs else set[int]()
    return without(entries, gone) if gone else entries


async def _gone(thread: Thread) -> Set[int]:
    """The seqs of events that were forgotten or erased, but for those of branches that the session left."""
    reader, seqs = handle_of(thread).kernel.reader, set[int]()
    for recorded in (await reader.forgotten(thread.id)).events:
        if isinstance(recorded.event, MemoryForget) and recorded.event.reason != LEFT:
            seqs |= recorded.event.origins()
    mark = (await reader.head(thread.id)).marks.get(EventsErased.event_type, 0)
    async for _, act in reader.events_of(EventsErased, thread.id, upto=mark):
        seqs.update(row.seq for row in act.rows)
    return seqs
