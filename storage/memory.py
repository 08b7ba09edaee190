"""The in-memory store: the same contract without a disk, for tests and for memory that may be lost.

Passages are kept by the same SQL as in a file, on a database in memory.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import DELETED, SCOPE_EPOCHS, Head, LiveChunk, LoadedThread, ThreadRecord, is_scope_id
from memory_engine.errors import (
    BackupFailed,
    EngineClosed,
    EventIdTaken,
    HeadMoved,
    IntegrityError,
    ThreadExists,
    ThreadHasForks,
    ThreadNotFound,
)
from memory_engine.storage.memory_passages import MemoryPassages
from memory_engine.storage.passage_rows import forget_texts
from memory_engine.store import broken
from memory_engine.store.acts import Act
from memory_engine.store.keys import Key
from memory_engine.store.passages import Threads
from memory_engine.store.protocol import (
    BROKEN_ROWS,
    KEPT_ROWS,
    Backup,
    CommitUnit,
    Copied,
    ProjectionChange,
    RowSpan,
    StoredText,
    StoreStats,
    ThreadFilter,
    Traces,
)

if TYPE_CHECKING:
    pass


class _Kept:
    """One thread's rows. A fork keeps only its own events."""

    def __init__(self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk]) -> None:
        self.record = record
        self.head = head
        self.events: list[StoredEvent] = []
        self.by_id: dict[str, StoredEvent] = {}
        self.live: dict[str, LiveChunk] = {row.chunk_id: row for row in live}

    @property
    def updated_us(self) -> int:
        """When its last event was recorded; a thread without one of its own was made then."""
        return self.events[-1].recorded_at_us if self.events else self.record.created_at_us

    @property
    def first_seq(self) -> int:
        return (self.record.forked_from.seq if self.record.forked_from is not None else 0) + 1


class MemoryStore:
    """See `memory_engine.store.protocol.Store`. Everything is gone when it is."""

    def __init__(self) -> None:
        self._all: dict[str, _Kept] = {}
        self._closed = False
        self._generation = 0
        self._acts: dict[str, Act] = {}
        self._rows: dict[tuple[str, int, str], dict[str, bytes]] = {}
        self._checkpoints: dict[tuple[str, int, str], int] = {}
        self.passages = MemoryPassages(self._record_and_seq, self._records_of)

    async def create(
        self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk], *, origin: ThreadRecord | None = None
    ) -> None:
        """Make a thread. Raises `ThreadExists`, `ThreadNotFound`."""
        if origin is not None and self._thread(origin.id).record.created_at_us != origin.created_at_us:
            raise ThreadNotFound(origin.id)
        self._make(record, head, live)

    def _make(self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk]) -> None:
        known, count = self._threads.get(record.id), len(self._threads)
        if known is not None and known.head.status != DELETED:
            raise ThreadExists(record.id)
        if record.forked_from is not None:
            self._thread(record.forked_from.thread_id)
        if known is not None:  # it was deleted, and its id can be borne again
            self._threads[f"\0{count}"] = self._threads.pop(record.id)
        if known is not None or is_scope_id(record.id):
            head = msgspec.structs.replace(head, epoch=(count + 1) * SCOPE_EPOCHS)
        self._threads[record.id] = _Kept(_copied(record), head, live)

    async def put_record(self, record: ThreadRecord) -> None:
        """Replace a thread's record. Raises `ThreadNotFound`."""
        self._thread(record.id).record = _copied(record)

    async def load(self, thread_id: str, *, sources: bool = True) -> LoadedThread:
        """A thread's live state, in order of keys, with the events behind it. Raises `ThreadNotFound`."""
        kept = self._thread(thread_id)
        live = sorted(kept.live.values(), key=lambda row: (row.container, row.key))
        seqs = sorted({int(row.chunk_id.partition(".")[0]) for row in live}) if sources else ()
        behind = {seq: self._event(kept, seq) for seq in seqs}
        noted = self._rows.get((BROKEN_ROWS, broken.VERSION, thread_id), {})
        is_indexed = self.passages.has(thread_id)
        return LoadedThread(_copied(kept.record), kept.head, live, behind, is_indexed, noted.get(broken.KEY))

    async def head(self, thread_id: str) -> Head:
        """A thread's head. Raises `ThreadNotFound`."""
        return self._thread(thread_id).head

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Take a unit; the future is done at once."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._apply(unit)
        except (HeadMoved, EventIdTaken, ThreadNotFound, ThreadExists) as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def check_writable(self) -> None:
        """Memory fails no commit for good."""

    def _apply(self, unit: CommitUnit) -> None:
        if unit.makes is not None:
            self._make(unit.makes, unit.expected, ())
            unit = _begun_at(unit, self._thread(unit.thread_id).head.epoch)
        kept = self._thread(unit.thread_id)
        if (kept.head.seq, kept.head.epoch) != (unit.expected.seq, unit.expected.epoch):
            raise HeadMoved
        ids = [stored.id for stored in unit.events]
        if len(set(ids)) < len(ids) or any(event_id in kept.by_id for event_id in ids):
            raise EventIdTaken
        for stored in unit.events:
            kept.events.append(stored)
            kept.by_id[stored.id] = stored
        for chunk_id, row in unit.live.items():
            if row is None:
                kept.live.pop(chunk_id, None)
            else:
                kept.live[chunk_id] = LiveChunk(chunk_id, row.key, row.container)
        kept.head = unit.head
        if unit.record is not None:
            changed = _copied(unit.record)
            kept.record = msgspec.structs.replace(kept.record, metadata=changed.metadata, policy=changed.policy)
        for change in unit.projections:
            self._project(unit.thread_id, change)
        if unit.passages is not None:
            self.passages.apply(unit.thread_id, unit.passages)

    async def find(self, thread_id: str, event_ids: Sequence[str]) -> Sequence[StoredEvent]:
        """Those of the events that the thread's log (shared past included) holds."""
        kept, upto = self._thread(thread_id), 1 << 62
        found: list[StoredEvent] = []
        while True:
            found += [e for i in event_ids if (e := kept.by_id.get(i)) is not None and e.seq <= upto]
            if kept.record.forked_from is None:
                return found
            upto = min(upto, kept.record.forked_from.seq)
            kept = self._threads[kept.record.forked_from.thread_id]

    async def read(
        self, thread_id: str, *, after: int, upto: int, limit: int, types: Collection[str] | None = None
    ) -> Sequence[StoredEvent]:
        """At most `limit` events with `after` < seq <= `upto`, in order, through shared pasts."""
        kept = self._thread(thread_id)
        last = min(upto, kept.head.seq)
        if types is None:
            return [self._event(kept, seq) for seq in range(after + 1, min(last, after + limit) + 1)]
        found = (self._event(kept, seq) for seq in range(after + 1, last + 1))
        return list(islice((stored for stored in found if stored.type in types), limit))

    async def seq_at(self, thread_id: str, recorded_at_us: int) -> int:
        """The seq of the last event that was recorded at this time or before it."""
        kept = self._thread(thread_id)
        seqs = range(kept.head.seq, 0, -1)
        return next((seq for seq in seqs if self._event(kept, seq).recorded_at_us <= recorded_at_us), 0)

    async def correlated(
        self, correlation_id: str, *, limit: int | None = None, tenant_id: str | None = None
    ) -> Sequence[tuple[str, StoredEvent]]:
        """The events that bear a correlation id, each with its thread's id."""
        found = [
            (kept.record.id, stored)
            for kept in self._threads.values()
            if kept.head.status != DELETED and tenant_id in (None, kept.record.tenant_id)
            for stored in kept.events
            if correlation_id and stored.correlation_id == correlation_id
        ]
        found.sort(key=lambda one: one[1].recorded_at_us)
        return found if limit is None else found[max(0, len(found) - limit) :]

    def _event(self, kept: _Kept, seq: int) -> StoredEvent:
        thread_id = kept.record.id
        while seq < kept.first_seq and kept.record.forked_from is not None:
            kept = self._threads[kept.record.forked_from.thread_id]
        at = bisect_left(kept.events, seq, key=lambda stored: stored.seq)
        if at == len(kept.events) or kept.events[at].seq != seq:
            raise IntegrityError(thread_id, seq, "the log has a gap")
        return kept.events[at]

    async def read_at(self, thread_id: str, seqs: Sequence[int]) -> Sequence[StoredEvent]:
        """The events at these seqs that there are, in order, through shared pasts."""
        kept = self._thread(thread_id)
        return [self._event(kept, seq) for seq in sorted(set(seqs)) if 0 < seq <= kept.head.seq]

    async def threads(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head]]:
        """The threads that match, in the order of `ThreadFilter`."""
        return [(record, head) for record, head, _ in await self.listed(where)]

    async def listed(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head, int]]:
        """The same, with the time of each one's last event."""
        by_update = where.order == "updated"
        among: Mapping[str, _Kept] = self._threads
        if where.id is not None and not where.after:  # one thread: no other is looked at
            among = {where.id: among[where.id]} if where.id in among else {}
        places = {
            thread_id: (kept.updated_us if by_update else 0, n) for n, (thread_id, kept) in enumerate(among.items())
        }
        begin: tuple[int, int] | None = None
        if where.after:
            if where.after not in places:
                raise ThreadNotFound(where.after)
            begin = places[where.after]
            if by_update and where.after_us is not None:
                begin = (where.after_us, begin[1])
        newest_first = where.is_newest_first
        matching = [
            (places[thread_id], kept)
            for thread_id, kept in among.items()
            if kept.head.status != DELETED and _thread_matches(kept, where)
        ]
        found = [
            (_copied(kept.record), kept.head, kept.updated_us)
            for place, kept in sorted(matching, key=lambda one: one[0], reverse=newest_first)
            if begin is None or (place < begin if newest_first else place > begin)
        ]
        return where.ordered(found[: where.limit])

    async def taken(self) -> Sequence[str]:
        """The ids of deleted threads that no live thread uses now."""
        return [
            thread_id
            for thread_id, kept in self._threads.items()
            if kept.head.status == DELETED and not is_scope_id(kept.record.id) and not thread_id.startswith("\0")
        ]

    async def forks(self, thread_id: str) -> Sequence[str]:
        """The ids of the threads that share this thread's past."""
        self._thread(thread_id)
        return [
            kept.record.id
            for kept in self._threads.values()
            if kept.head.status != DELETED
            and kept.record.forked_from is not None
            and kept.record.forked_from.thread_id == thread_id
        ]

    async def delete(self, thread_id: str) -> None:
        """Destroy a thread's log and state; another can be made of its id."""
        kept = self._thread(thread_id)
        if forks := await self.forks(thread_id):
            raise ThreadHasForks(thread_id, tuple(forks))
        gone = _Kept(ThreadRecord(id=thread_id), Head(status=DELETED, epoch=kept.head.epoch + 1), ())
        self._drop_derived(thread_id)
        self._threads[thread_id] = gone
        self._generation += 1
        forget_texts()

    async def erase(self, unit: CommitUnit, rows: Sequence[StoredEvent]) -> None:
        """Commit a unit, with these rows in the place of the thread's own of the same seqs and hashes."""
        kept = self._thread(unit.thread_id)
        places = {stored.seq: n for n, stored in enumerate(kept.events)}
        for row in rows:
            if row.seq not in places or kept.events[places[row.seq]].hash != row.hash:
                raise IntegrityError(unit.thread_id, row.seq, "the row to erase is another one")
        self._apply(unit)
        for row in rows:
            kept.events[places[row.seq]] = kept.by_id[row.id] = row
        self._drop_derived(unit.thread_id, KEPT_ROWS)
        self._generation += 1
        forget_texts()

    async def wipe(self) -> bool:
        """Nothing is left behind in memory that could be read."""
        return True

    def moved(self) -> None:
        """Nothing here waits on a loop."""

    @property
    def is_of_one_loop(self) -> bool:
        """It awaits nothing."""
        return False

    @property
    def generation(self) -> int:
        """Another number whenever something was deleted or erased."""
        return self._generation

    async def lease(self, thread_id: str) -> bool | None:
        """Nobody knows: engines that share it live and die with one process."""
        return None

    async def release(self, thread_id: str) -> None:
        """Nothing was taken."""

    async def traces(self, pieces: Sequence[bytes]) -> Traces:
        """There are no files."""
        return Traces()

    async def texts(self) -> AsyncIterator[Sequence[StoredText]]:
        """The values of events, views and threads."""
        for thread_id, kept in list(self._threads.items()):
            for stored in list(kept.events):
                payload = StoredText(
                    "events.payload", thread_id, stored.payload, stored.seq, stored.type, stored.version
                )
                yield (payload, StoredText("events.record", thread_id, stored.record or b"", stored.seq))
            yield (StoredText("threads.metadata", thread_id, msgspec.json.encode(kept.record.metadata)),)
        for (_, _, thread_id), rows in list(self._rows.items()):
            yield [StoredText("projection_rows.value", thread_id, value) for value in rows.values()]
            yield [StoredText("projection_rows.key", thread_id, key.encode()) for key in rows]
        yield [StoredText("acts.reason", "", act.reason.encode()) for act in self._acts.values()]

    async def mentions(self, words: Sequence[str]) -> Sequence[str]:
        """Nothing: the index holds no words but those of the events."""
        return ()

    async def backup(self, path: str, copied: Copied, *, key: Key | None = None, plain: bool = False) -> Backup:
        """Refused: there is nothing on a disk to copy."""
        raise BackupFailed(path, "a store in memory has no file to copy; export its threads")

    async def put_act(self, act: Act) -> None:
        """Keep an administrative act."""
        self._acts[act.id] = act

    async def acts(self, *, pending: bool = False) -> Sequence[Act]:
        """The administrative acts, oldest first."""
        acts = sorted(self._acts.values(), key=lambda act: (act.asked_at_us, act.id))
        return [act for act in acts if not (pending and act.done_at_us)]

    def _drop_derived(self, thread_id: str, kept: Collection[str] = ()) -> None:
        self.passages.destroy(thread_id)
        for key in [key for key in self._checkpoints if key[2] == thread_id and key[0] not in kept]:
            del self._checkpoints[key]
            self._rows.pop(key, None)

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """A projection's checkpoint (0: none) and rows for a thread."""
        self._thread(thread_id)
        key = (projection, version, thread_id)
        return self._checkpoints.get(key, 0), dict(self._rows.get(key, {}))

    async def checkpoint(self, projection: str, version: int, thread_id: str) -> int:
        """The seq up to which a projection has read a thread (0: none)."""
        self._thread(thread_id)
        return self._checkpoints.get((projection, version, thread_id), 0)

    async def rows_between(
        self, projection: str, version: int, thread_id: str, span: RowSpan
    ) -> Sequence[tuple[str, bytes]]:
        """The rows of a span, in order of keys."""
        self._thread(thread_id)
        rows = self._rows.get((projection, version, thread_id), {})
        keys = sorted(key for key in rows if span.first <= key and (span.last is None or key < span.last))
        if span.limit is not None:
            keys = keys[max(0, len(keys) - span.limit) :] if span.latest else keys[: span.limit]
        return [(key, rows[key]) for key in keys]

    async def measure_rows(self, projection: str, version: int, thread_id: str) -> tuple[int, int]:
        """How many rows there are and how many bytes their values take."""
        self._thread(thread_id)
        rows = self._rows.get((projection, version, thread_id), {})
        return len(rows), sum(map(len, rows.values()))

    async def holders(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads for which a projection has rows."""
        return [t for (name, v, t), rows in self._rows.items() if rows and (name, v) == (projection, version)]

    async def write_projection(self, thread_id: str, change: ProjectionChange, *, replace: bool = False) -> None:
        """Write an asynchronous projection's rows and checkpoint."""
        self._thread(thread_id)
        if replace:
            self._rows.pop((change.projection, change.version, thread_id), None)
        self._project(thread_id, change)

    def _project(self, thread_id: str, change: ProjectionChange) -> None:
        key = (change.projection, change.version, thread_id)
        rows = self._rows.setdefault(key, {})
        for first, last in change.ranges:
            for name in [name for name in rows if first <= name < last]:
                del rows[name]
        for name, value in change.rows.items():
            if value is None:
                rows.pop(name, None)
            else:
                rows[name] = value
        self._checkpoints[key] = change.checkpoint

    async def faults(self, thread_id: str) -> Mapping[str, Sequence[str]]:
        """None: state in memory has no second copy that could differ."""
        self._thread(thread_id)
        return {}

    async def behind(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads whose head is past the projection's checkpoint."""
        return [
            thread_id
            for thread_id, kept in self._threads.items()
            if kept.head.status != DELETED
            and kept.head.seq > self._checkpoints.get((projection, version, thread_id), 0)
        ]

    async def stats(self) -> StoreStats:
        """Totals; `bytes` counts payloads and records."""
        alive = [kept for kept in self._threads.values() if kept.head.status != DELETED]
        events = [stored for kept in alive for stored in kept.events]
        payloads = sum(len(stored.payload) for stored in events)
        return StoreStats(
            threads=len(alive),
            events=len(events),
            chunks=sum(kept.head.chunks for kept in alive),
            tokens=sum(kept.head.tokens for kept in alive),
            payload_bytes=payloads,
            bytes=payloads + sum(len(stored.record) for stored in events),
        )

    async def flush(self) -> None:
        """Nothing outlives the process anyway. Raises `EngineClosed` after `close`."""
        _ = self._threads

    async def close(self) -> None:
        """Refuse further use, as a store with a file does."""
        self._closed = True
        self.passages.close()

    @property
    def _threads(self) -> dict[str, _Kept]:
        if self._closed:
            raise EngineClosed
        return self._all

    def _record_and_seq(self, thread_id: str) -> tuple[ThreadRecord, int]:
        kept = self._thread(thread_id)
        return kept.record, kept.head.seq

    def _records_of(self, threads: Threads) -> list[ThreadRecord]:
        """The records of a query's threads: in the order of its names, or else in order of creation."""
        if threads.thread_ids is not None:
            return [self._thread(thread_id).record for thread_id in threads.thread_ids]
        standing = [kept.record for kept in self._threads.values() if kept.head.status != DELETED]
        return [record for record in standing if threads.matches(record)]

    def _thread(self, thread_id: str) -> _Kept:
        kept = self._threads.get(thread_id)
        if kept is None or kept.head.status == DELETED:
            raise ThreadNotFound(thread_id)
        return kept


def _begun_at(unit: CommitUnit, epoch: int) -> CommitUnit:
    """A unit whose epochs begin at that of the thread that it has made."""
    head = msgspec.structs.replace(unit.head, epoch=unit.head.epoch - unit.expected.epoch + epoch)
    return msgspec.structs.replace(unit, head=head, expected=msgspec.structs.replace(unit.expected, epoch=epoch))


def _copied(record: ThreadRecord) -> ThreadRecord:
    """The record with a copy of its metadata, so that changing one copy does not change another."""
    return msgspec.structs.replace(record, metadata=dict(record.metadata))


def _thread_matches(kept: _Kept, where: ThreadFilter) -> bool:
    return where.has_metadata(kept.record) and all(
        (kept.head.status if name == "status" else getattr(kept.record, name)) == value for name, value in where.exact()
    )
