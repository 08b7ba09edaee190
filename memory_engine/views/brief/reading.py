"""Reads a thread's talk: once from the log, later only new events; and the talk of the agent that started the thread.

The talk is cached in memory with its thread. From time to time it is stored with the log, as views are for their past
(see `store.snapshots`), so that another process continues from there: a stored talk is used only if it is whole and the
log still has the event that it was read up to. Only the events of people and the agent's own words and calls are
decoded; of all others only the hashes are checked.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.aside import aside
from memory_engine.core.chain import check_hash
from memory_engine.core.clock import to_datetime
from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import Head, ThreadRecord
from memory_engine.errors import ThreadNotFound
from memory_engine.runtime.handle import PastHandle, ThreadHandle
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import ThreadFilter
from memory_engine.store.reader import seq_of
from memory_engine.store.snapshots import rewound_at
from memory_engine.views.brief.standing import settle
from memory_engine.views.brief.talk import TYPES, Talk

if TYPE_CHECKING:
    from memory_engine.core.rewinding import ShownEvents
    from memory_engine.store import rewinds
else:
    rewinds = lazy_module("memory_engine.store.rewinds")

_log = logging.getLogger("memory_engine.brief")
TALKS_MAX = 256
"""Maximum number of threads whose talk is cached."""
PAST_MAX = 4
"""Maximum number of earlier moments of one thread whose talk is cached."""
UNREAD_MAX = 4_000
"""Up to this many unread events are read before a context is built. A longer log is read in the background."""
WAIT_S = 1.0
"""Maximum number of seconds that contexts wait for the background reading."""
STORED_EVERY = 1_000
"""A talk is stored again after this many events, or a quarter of those that the last one was read from, if more."""
VIEW = "talk/3"
"""Name and version of stored talks. Increase the version when the same events give another talk."""
PARENTS_MAX = 8
"""Maximum number of ancestors whose briefs an agent inherits."""
_TYPES = frozenset(cls.event_type for cls in TYPES)
_DECODER = msgspec.msgpack.Decoder(Talk)


class TalkCache(msgspec.Struct, eq=False):
    """The cached talk of a thread: up to now, and up to the earlier moments that were requested last."""

    now: Talk = msgspec.field(default_factory=Talk)
    stored_at: int = 0
    """The seq of the latest stored talk."""
    past: dict[int, Talk] = msgspec.field(default_factory=dict)
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    reading: asyncio.Task[None] | None = None
    until_s: float = 0.0
    """Time of the event loop after which contexts stop waiting for `reading`."""


async def is_read(thread: ThreadHandle, seq: int) -> bool:
    """Return True once a thread's current talk is read up to `seq`, or is short enough to be read right away.

    The first call for a long log starts a background task, once per process. Until it finishes, contexts wait at most
    `WAIT_S` seconds in all and then leave the brief out; one line in Python's log says so.
    """
    kept = _cache_of(thread)
    if kept.reading is None and seq - kept.now.seq > UNREAD_MAX:
        async with kept.lock:
            await _skip(thread, kept, seq)
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


def _cache_of(thread: ThreadHandle) -> TalkCache:
    return thread.kernel.caches.made(thread.id, "talk", TalkCache, at_most=TALKS_MAX)


async def talk_of(thread: ThreadHandle, seq: int, *, is_past: bool = False) -> Talk:
    """Return a thread's talk up to the event at `seq`; of a moment in the past, without what was forgotten since.

    The talk is shared and later reads extend it: use it before you await anything else.
    """
    gone = (await thread.kernel.reader.forgotten(thread.id)).origins if is_past else frozenset[int]()
    talk = await _read_up_to(thread, seq)
    if gone:
        talk.forget(gone)
    return talk


async def _read_up_to(thread: ThreadHandle, seq: int) -> Talk:
    kept = _cache_of(thread)
    async with kept.lock:
        if (rewound := rewound_at(await _head_of(thread))) and kept.now.seq < rewound <= seq:
            kept.now, kept.stored_at = Talk(), 0
        if seq >= kept.now.seq:
            await _skip(thread, kept, seq)
            await _read_on(thread, kept.now, seq, partial(_store, thread, kept))
            return kept.now
        talk = kept.past.pop(seq, None)
        if talk is None:
            talk = await _stored(thread, seq) or Talk()
            await _read_on(thread, talk, seq)
        kept.past[seq] = talk
        while len(kept.past) > PAST_MAX:
            del kept.past[next(iter(kept.past))]
        return talk


async def _head_of(thread: ThreadHandle) -> Head:
    runtime = thread.kernel[OpenThreads].get(thread.id)
    return runtime.head if runtime is not None else await thread.kernel.reader.head(thread.id)


async def _read_on(thread: ThreadHandle, talk: Talk, seq: int, advanced: Callable[[bytes], None] | None = None) -> None:
    """Extend a talk up to `seq`. Calls `advanced` with an event's hash whenever the talk covers all events up to it."""

    async def advance(page: Sequence[StoredEvent]) -> None:
        talk.seq = page[-1].seq
        if advanced is not None:
            advanced(page[-1].hash)

    head = await _head_of(thread)
    shown = await rewinds.shown_at(thread.kernel.reader, thread.id, seq, head) if rewound_at(head) else None
    walk = thread.kernel.reader.walk(thread.id, after=talk.seq, upto=seq)  # all rows: a spoilt type would hide one
    await walk.feed(partial(_take, talk, thread, shown), items=lambda page: 4 * len(page), then=advance)
    talk.seq = max(talk.seq, seq)


async def _skip(thread: ThreadHandle, kept: TalkCache, seq: int) -> None:
    """Go on from the latest stored talk up to `seq` if many events were not read yet."""
    if seq - kept.now.seq > STORED_EVERY and (talk := await _stored(thread, seq)) and talk.seq > kept.now.seq:
        kept.now, kept.stored_at = talk, talk.seq


async def _stored(thread: ThreadHandle, seq: int) -> Talk | None:
    """Return the latest stored talk up to `seq` that fits the log."""
    at, rows = await thread.kernel.reader.snapshots.nearest_rows(thread.id, VIEW, seq)
    encoded = rows.get("talk", b"")
    if not at or rows.get("digest") != blake2b(encoded).digest():
        return None
    if rewound_at(head := await _head_of(thread)):
        known = await rewinds.rewinds_of(thread.kernel.reader, thread.id, head)
        if known.at(at).upto(at) != known.at(seq).upto(at):  # of what was taken back since
            return None
    row = (await thread.kernel.reader.rows_at(thread.id, {at})).get(at)
    if row is None or row.hash != rows.get("hash"):
        return None
    try:
        talk = await aside(partial(_DECODER.decode, encoded), items=len(encoded) // 1_000)
    except msgspec.MsgspecError:
        return None
    return talk if talk.seq == at else None


def _store(thread: ThreadHandle, kept: TalkCache, digest: bytes) -> None:
    """Store a talk in the background, if it is time, and if it cannot hold a word of what was forgotten."""
    talk = kept.now
    if talk.forgot or talk.seq - kept.stored_at < max(STORED_EVERY, kept.stored_at // 4):
        return
    kept.stored_at = talk.seq
    encoded = msgspec.msgpack.encode(talk)
    rows = {"talk": encoded, "digest": blake2b(encoded).digest(), "hash": digest}
    thread.kernel.tasks.spawn(thread.kernel.reader.snapshots.keep_rows(thread.id, VIEW, talk.seq, rows))


def _take(talk: Talk, thread: ThreadHandle, shown: "ShownEvents | None", stored: StoredEvent) -> None:
    if stored.type not in _TYPES or (shown is not None and not shown.shows(stored)):
        check_hash(thread.id, stored)
        return
    talk.take(stored.seq, thread.kernel.reader.decode(thread.id, stored).event)
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
