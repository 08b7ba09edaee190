"""Reads a thread's talk: once from the log, later only new events; and the talk of the agent that started the thread.

Nothing is written or stored. The talk is cached in memory with its thread, and another process reads it from the log
again. Only the events of people and the agent's own words and calls are decoded; of all others only the hashes are
checked.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from attrs import Factory, define

from memory_engine.core.aside import aside
from memory_engine.core.chain import check_hash
from memory_engine.core.clock import to_datetime
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import ThreadNotFound
from memory_engine.runtime.handle import PastHandle, ThreadHandle
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import ThreadFilter
from memory_engine.store.reader import LogReader, seq_of
from memory_engine.views.brief.standing import settle
from memory_engine.views.brief.talk import TYPES, Talk

_log = logging.getLogger("memory_engine.brief")
TALKS_MAX = 256
"""Maximum number of threads whose talk is cached."""
PAST_MAX = 4
"""Maximum number of earlier moments of one thread whose talk is cached."""
UNREAD_MAX = 4_000
"""Up to this many unread events are read before a context is built. A longer log is read in the background."""
WAIT_S = 1.0
"""Maximum number of seconds that contexts wait for the background reading."""
PARENTS_MAX = 8
"""Maximum number of ancestors whose briefs an agent inherits."""
_TYPES = frozenset(cls.event_type for cls in TYPES)


@define(eq=False)
class TalkCache:
    """The cached talk of a thread: up to now, and up to the earlier moments that were requested last."""

    now: Talk = Factory(Talk)
    past: dict[int, Talk] = Factory(dict)
    lock: asyncio.Lock = Factory(asyncio.Lock)
    reading: asyncio.Task[None] | None = None
    until_s: float = 0.0
    """Time of the event loop after which contexts stop waiting for `reading`."""


async def is_read(thread: ThreadHandle, seq: int) -> bool:
    """Return True once a thread's current talk is read up to `seq`, or is short enough to be read right away.

    The first call for a long log starts a background task, once per process. Until it finishes, contexts wait at most
    `WAIT_S` seconds in all and then leave the brief out; one line in Python's log says so.
    """
    kept = thread.kernel.caches.made(thread.id, "talk", TalkCache, at_most=TALKS_MAX)
    if kept.reading is None and seq - kept.now.seq <= UNREAD_MAX:
        return True
    if kept.reading is None:
        _log.info("thread %r: reading what people said in %d events, before contexts show it", thread.id, seq)
        kept.reading = thread.kernel.tasks.spawn(_read_all(thread, kept, seq), until_close=True)
        kept.until_s = asyncio.get_running_loop().time() + WAIT_S
    await asyncio.wait([kept.reading], timeout=max(0.0, kept.until_s - asyncio.get_running_loop().time()))
    return kept.reading is None


async def _read_all(thread: ThreadHandle, kept: TalkCache, seq: int) -> None:
    try:
        await talk_of(thread, seq)
    finally:
        kept.reading = None


async def talk_of(thread: ThreadHandle, seq: int) -> Talk:
    """Return a thread's talk up to the event at `seq`.

    The talk is shared and later reads extend it: use it before you await anything else.
    """
    kept = thread.kernel.caches.made(thread.id, "talk", TalkCache, at_most=TALKS_MAX)
    async with kept.lock:
        if seq >= kept.now.seq:
            await _read_on(thread, kept.now, seq)
            return kept.now
        talk = kept.past.pop(seq, None)
        if talk is None:
            talk = Talk()
            await _read_on(thread, talk, seq)
        kept.past[seq] = talk
        while len(kept.past) > PAST_MAX:
            del kept.past[next(iter(kept.past))]
        return talk


async def _read_on(thread: ThreadHandle, talk: Talk, seq: int) -> None:
    reader = thread.kernel.reader
    async for page in reader.pages(thread.id, after=talk.seq, upto=seq):  # all rows: a spoilt type would hide one
        await aside(partial(_take, talk, reader, thread.id, page), items=4 * len(page))
    talk.seq = max(talk.seq, seq)


def _take(talk: Talk, reader: LogReader, thread_id: str, page: Sequence[StoredEvent]) -> None:
    for stored in page:
        if stored.type not in _TYPES:
            check_hash(thread_id, stored)
            continue
        talk.take(stored.seq, reader.decode(thread_id, stored).event)
        settle(talk)


async def record_of(thread: ThreadHandle) -> ThreadRecord | None:
    """Return the record of a thread; `None` if it was deleted."""
    runtime = thread.kernel[OpenThreads].get(thread.id)
    if runtime is not None:
        return runtime.record
    found = await thread.kernel.store.threads(ThreadFilter(id=thread.id))
    return found[0][0] if found else None


async def parents_of(thread: ThreadHandle) -> list[PastHandle]:
    """Return the ancestors of a thread, the nearest first, each as of the moment when it started the next.

    The list ends before the first ancestor that was deleted or belongs to another tenant or user.
    """
    found: list[PastHandle] = []
    seen = {thread.id}
    record = await record_of(thread)
    while record is not None and record.parent_id and record.parent_id not in seen and len(found) < PARENTS_MAX:
        seen.add(record.parent_id)
        try:
            seq = await seq_of(thread.kernel.store, record.parent_id, to_datetime(record.created_at_us))
        except ThreadNotFound:
            break
        parent = PastHandle(thread.kernel, record.parent_id, seq)
        child, record = record, await record_of(parent)
        if record is None or record.tenant_id != child.tenant_id or child.user_id not in ("", record.user_id):
            break
        found.append(parent)
    return found
