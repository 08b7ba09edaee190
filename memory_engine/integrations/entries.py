"""A framework's own messages in a thread, each byte for byte after the events of its messages."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.records import NewEvent
from memory_engine.errors import Conflict, ThreadNotFound
from memory_engine.formats.detection import Format
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.life import forgetting
from memory_engine.runtime.messages import groups_as_events
from memory_engine.thread import Thread, handle_of
from memory_engine.views.records import as_json
from memory_engine.views.sessions.events import SessionEntryKept
from memory_engine.views.sessions.fold import SessionEntryRow
from memory_engine.views.sessions.view import Session, quoting

Json = Mapping[str, object]


class OwnMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to store: as its framework writes it, and as messages of a provider (of chat completions, mostly).

    `texts` are those in `entry`, by their paths; `said` is the event of its text alone, for when its calls and
    results are out of order. `name` makes the ids of its messages' events: the same name is recorded once.
    """

    id: str
    entry: Json
    messages: Sequence[Json]
    texts: Mapping[str, str]
    said: Event | None
    name: str
    event_id: str = ""
    before: str = ""


async def entry_events(
    thread: ThreadHandle, entries: Sequence[OwnMessage], at: float, *, format: Format = "openai.chat"
) -> list[NewEvent]:
    """The events of entries: for each its messages, then itself, without repeating them. `at`: Unix seconds."""
    groups = [entry.messages for entry in entries]
    said = await groups_as_events(thread, groups, [entry.name for entry in entries], format=format)
    events: list[NewEvent] = []
    for entry, read in zip(entries, said, strict=True):
        text = [] if entry.said is None else [NewEvent(entry.said, f"{entry.name}.said")]
        beside = text if read is None else read
        kept = SessionEntryKept(id=entry.id, entry=as_json(entry.entry), timestamp=at, invocation=entry.before)
        events += [*beside, quoting(NewEvent(kept, entry.event_id or thread.kernel.new_id()), beside, entry.texts)]
    return events


class EntryList:
    """The entries of one thread, in their order. The thread is made with the first, and must be the owner's."""

    def __init__(self, threads: OwnedThreads, thread_id: str) -> None:
        self._threads = threads
        self._thread_id = thread_id

    async def thread(self) -> Thread | None:
        """The thread, or `None`. Raises `ThreadDiffers` for another owner's."""
        return await self._threads.find(self._thread_id)

    async def get(self, limit: int | None = None) -> list[Json]:
        """The entries, or the last `limit`; none if there is no thread. Raises `ThreadDiffers`."""
        thread = await self.thread()
        if thread is None or limit == 0:
            return []
        session = Session(handle_of(thread))
        with suppress(ThreadNotFound):
            return [one.entry for one in await session.entries(await session.entry_rows(limit))]
        return []

    async def change(
        self,
        draft: "Callable[[Sequence[Json]], tuple[Sequence[int], Sequence[OwnMessage]]]",
        *,
        limit: int | None = None,
        reason: str = "",
    ) -> None:
        """Drop and add entries in one commit, as `draft` decides from the existing ones (the last `limit`).

        It returns the places of those to drop, and those to add; it is called again if others have written meanwhile.
        Dropped entries are forgotten, with their messages. Raises `ThreadDiffers`, and what `dispatch` raises.
        """
        while True:
            thread = await self.thread()
            seq, rows, there = 0, list[SessionEntryRow](), list[Json]()
            if thread is not None:
                with suppress(ThreadNotFound):
                    session = Session(handle_of(thread))
                    seq = await session.thread.last_seq()
                    rows = await session.entry_rows(limit) if limit != 0 else []
                    there = [one.entry for one in await session.entries(rows)]
            gone, added = draft(there)
            if not gone and not added:
                return
            if thread is None or not seq:
                thread = await self._threads.open(self._thread_id)
                seq = await handle_of(thread).last_seq()
                if seq:
                    continue
            events = await _forgotten(thread, [rows[at] for at in gone], reason)
            events += await entry_events(handle_of(thread), added, time.time())
            try:
                await thread.dispatch_all(events, expected_seq=seq)
            except Conflict:
                await asyncio.sleep(0)
                continue
            return


async def _forgotten(thread: Thread, rows: Sequence[SessionEntryRow], reason: str) -> list[NewEvent]:
    seqs = {seq for row in rows for seq in range(row.seq - row.messages, row.seq + 1)}
    ids = await handle_of(thread).kernel.reader.ids_at(thread.id, seqs) if seqs else ()
    return [NewEvent(await forgetting(handle_of(thread), event_ids=list(ids), reason=reason))] if seqs else []


def loaded(text: str) -> Json:
    """An entry from the JSON that its framework writes."""
    found: Json = json.loads(text)
    return found


def recordable(message: dict[str, Any]) -> dict[str, Any]:
    """A message with `?` in place of halves of surrogate pairs, which a cut by UTF-16 leaves and no event can hold."""
    text = json.dumps(message, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        found: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
        return found
    return message
