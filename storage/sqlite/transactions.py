"""Transactions of units, each whole or not at all. They run on the writer's thread: no await, no user code."""

import hashlib
import logging
import math
import sqlite3
from collections.abc import Sequence
from itertools import repeat

import msgspec

from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import (
    DELETED,
    SCOPE_EPOCHS,
    Head,
    LiveChunk,
    ThreadRecord,
    encode_metadata,
    encode_policy,
    is_scope_id,
)
from memory_engine.errors import (
    EventIdTaken,
    HeadMoved,
    IntegrityError,
    MemoryEngineError,
    StorageBusy,
    StorageRefused,
    ThreadExists,
    ThreadNotFound,
)
from memory_engine.storage import passages
from memory_engine.storage.driver import errors
from memory_engine.storage.passage_rows import WAITING_MIN, words_prefix
from memory_engine.storage.sqlite.connection import is_failing, storage_error
from memory_engine.storage.sqlite.schema import HEAD_NAMES, head_to_row, id_to_row, position, with_id
from memory_engine.store.protocol import CommitUnit, ProjectionChange

_log = logging.getLogger("memory_engine.storage")

_bound, _NULL = bytearray, math.nan
"""Bytes and NULL as SQLite's driver takes them at once; of `bytes` and of `None` it looks for an adapter each time,
which costs more than all else that it does for a value. SQLite binds NaN as NULL."""
_INSERT_EVENT = (
    "INSERT INTO events (pos, tid, id, type, version, recorded_at_us, occurred_at_us, causation_id, correlation_id, "
    "salt, hash, payload, spilled, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_MOVE_HEAD = (
    "UPDATE heads SET seq = ?, hash = ?, epoch = ?, status = ?, open_compaction = ?, chunks = ?, tokens = ?, "
    "marks = ?, checksum = ? WHERE tid = ? AND seq = ? AND epoch = ?"
)
_PUT_BLOB = "INSERT OR IGNORE INTO blobs (tid, digest, body) VALUES (?, ?, ?)"
_PUT_LIVE = "INSERT OR REPLACE INTO live (tid, seq, n, key, container) VALUES (?, ?, ?, ?, ?)"
_DROP_LIVE = "DELETE FROM live WHERE tid = ? AND seq = ? AND n = ?"

HERE_BYTES = 32 * 1024
"""Bytes of events that are committed on the event loop's own thread at most."""
HERE_ROWS = 16
"""Rows besides."""
UNINDEXED_MAX = 8_192
"""The most passages of a thread that wait for the writer to be idle."""
_ID_TAKEN, _PLACE_TAKEN = (f"UNIQUE constraint failed: events.{key}" for key in ("id, events.tid", "pos"))
"""SQLite's messages for an event whose id, or whose place, is taken: not every driver has a code for each."""
_REFUSALS = (HeadMoved, EventIdTaken, ThreadNotFound, ThreadExists, IntegrityError)
"""Errors that concern one unit only."""


class Transactions:
    """Writes units. Payloads over `spill_bytes` go to `blobs`, once for each content of a thread."""

    def __init__(self, spill_bytes: int, path: str) -> None:
        self._spill_bytes = spill_bytes
        self._path = path
        self._tids: dict[str, int] = {}
        self._unindexed: dict[int, int] = {}
        self.full: set[int] = set()
        """Threads with very many passages that wait to be indexed."""
        self.bytes = 0
        """Bytes of events that were written in all."""

    def commit(self, raw: sqlite3.Connection, units: Sequence[CommitUnit]) -> list[MemoryEngineError | None]:
        """Write the units in one transaction. Returns for each the error that refused it, or `None`.

        All of them in one go where nothing refuses one: a statement for each table. Else
        again from the start, with a savepoint for each unit.
        """
        try:
            raw.execute("BEGIN IMMEDIATE")
            outcomes: list[MemoryEngineError | None] = [None] * len(units)
            try:
                self.write(raw, units)
            except _refusing() as error:
                if not isinstance(error, MemoryEngineError) and not _is_of_a_unit(raw, error):
                    raise
                raw.execute("ROLLBACK")
                raw.execute("BEGIN IMMEDIATE")
                outcomes = [self._one(raw, unit) for unit in units]
            raw.execute("COMMIT")
        except BaseException:  # after any error the transaction must not stay open; it goes on to the caller
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            raise
        return outcomes

    def _one(self, raw: sqlite3.Connection, unit: CommitUnit) -> MemoryEngineError | None:
        refused = self._tried(raw, unit)
        if isinstance(refused, StorageRefused) and unit.passages is not None:
            # the thread's index may be damaged: it derives from the log, and must not stop an event
            _log.warning("the search index of thread %r is dropped, to be made again: %s", unit.thread_id, refused.why)
            refused = self._tried(raw, unit, without_index=True)
        return refused

    def _tried(
        self, raw: sqlite3.Connection, unit: CommitUnit, *, without_index: bool = False
    ) -> MemoryEngineError | None:
        raw.execute("SAVEPOINT unit")
        try:
            if without_index:
                passages.clear(raw, self.tid(raw, unit.thread_id))
            self.write(raw, (unit,))
        except _refusing() as error:
            if not isinstance(error, MemoryEngineError) and not _is_of_a_unit(raw, error):
                raise
            raw.execute("ROLLBACK TO unit")
            raw.execute("RELEASE unit")
            return error if isinstance(error, MemoryEngineError) else StorageRefused(self._path, str(error))
        raw.execute("RELEASE unit")
        return None

    def write(self, raw: sqlite3.Connection, units: Sequence[CommitUnit]) -> None:
        """Compare and set the heads, then write everything else. Raises the error that refuses any of the units."""
        tids: list[int] = []
        heads: list[tuple[object, ...]] = []
        events: list[tuple[object, ...]] = []
        gone: list[tuple[object, ...]] = []
        placed: list[tuple[object, ...]] = []
        for unit in units:
            # the row id of a thread that is made now is not kept: the commit may not happen
            tid, epoch = (self.tid(raw, unit.thread_id), 0) if unit.makes is None else _make_thread(raw, unit)
            tids.append(tid)
            heads.append(_head_row(tid, unit, epoch))
            events += map(self._event_row, repeat(raw), repeat(tid), unit.events)
            if not unit.head.chunks and _empties(unit):
                raw.execute("DELETE FROM live WHERE tid = ?", (tid,))
                continue
            for chunk_id, row in unit.live.items():
                seq, _, n = chunk_id.partition(".")
                if row is None:
                    gone.append((tid, int(seq), int(n)))
                else:
                    placed.append((tid, int(seq), int(n), _bound(row.key), row.container))
        if raw.executemany(_MOVE_HEAD, heads).rowcount != len(units):
            self.forget(*(unit.thread_id for unit in units))  # another process may have made one again, in another row
            raise HeadMoved
        try:
            raw.executemany(_INSERT_EVENT, events)
        except errors(sqlite3.IntegrityError) as error:
            refusal = _refusal(error, units[0])
            if refusal is None:
                raise
            raise refusal from error
        if gone:
            raw.executemany(_DROP_LIVE, gone)
        raw.executemany(_PUT_LIVE, placed)
        for tid, unit in zip(tids, units, strict=True):
            if unit.projections or unit.passages is not None or unit.record is not None:
                self._write_derived(raw, tid, unit)

    def _write_derived(self, raw: sqlite3.Connection, tid: int, unit: CommitUnit) -> None:
        """Write rows of views, passages, and what has changed in the thread's record."""
        for change in unit.projections:
            write_projection(raw, tid, change)
        if unit.passages is not None and unit.passages.afresh:
            begin_passages(raw, tid, afresh=True)
        if unit.passages is not None and passages.write(raw, tid, unit.passages):
            self._bring(tid, sum(len(step.rows) for step in unit.passages.steps))
        if unit.record is not None:
            metadata, policy, _ = _facts(unit.record)
            raw.execute("UPDATE threads SET metadata = ?, policy = ? WHERE tid = ?", (metadata, policy, tid))

    def _bring(self, tid: int, passages_count: int) -> None:
        waiting = self._unindexed[tid] = self._unindexed.get(tid, 0) + passages_count
        if waiting >= UNINDEXED_MAX:
            self.full.add(tid)

    def to_index(self, *, is_idle: bool) -> list[int]:
        """The threads whose passages should be indexed: those with very many waiting ones, or all with enough.

        Each comes once. The cost grows with the threads returned, not with the thousands that may have a few.
        """
        found = [tid for tid, n in self._unindexed.items() if n >= WAITING_MIN] if is_idle else list(self.full)
        for tid in found:
            del self._unindexed[tid]
        self.full.clear()
        return found

    def tid(self, raw: sqlite3.Connection, thread_id: str) -> int:
        """The row id of a thread. Raises `ThreadNotFound`."""
        tid = self._tids.get(thread_id)
        if tid is None:
            tid = self._tids[thread_id] = find_tid(raw, thread_id)
        return tid

    def forget(self, *thread_ids: str) -> None:
        """Read again the row ids of threads that may have been deleted; without any, those of all."""
        for thread_id in thread_ids or tuple(self._tids):
            self._tids.pop(thread_id, None)

    def insert(self, raw: sqlite3.Connection, tid: int, stored: StoredEvent) -> None:
        """Write one event of a thread."""
        raw.execute(_INSERT_EVENT, self._event_row(raw, tid, stored))

    def _event_row(self, raw: sqlite3.Connection, tid: int, stored: StoredEvent) -> tuple[object, ...]:
        self.bytes += len(stored.payload) + len(stored.record)
        payload: object = _NULL
        spilled: object = _NULL
        if len(stored.payload) > self._spill_bytes:
            spilled = hashlib.sha256(stored.payload).digest()
            raw.execute(_PUT_BLOB, (tid, spilled, stored.payload))
        else:
            payload = _bound(stored.payload)
        return (
            position(tid, stored.seq),
            tid,
            id_to_row(stored.id),
            stored.type,
            stored.version,
            stored.recorded_at_us,
            _NULL if stored.occurred_at_us is None else stored.occurred_at_us,
            stored.causation_id or _NULL,
            stored.correlation_id or _NULL,
            _bound(stored.salt),
            _bound(stored.hash),
            payload,
            spilled,
            _bound(stored.record),
        )


def _refusing() -> tuple[type[MemoryEngineError | sqlite3.Error | OverflowError], ...]:
    """The errors that may concern one unit only."""
    return (*_REFUSALS, *errors(), OverflowError)


def _make_thread(raw: sqlite3.Connection, unit: CommitUnit) -> tuple[int, int]:
    """Make the thread of a unit: its row id, and the epoch that all its epochs begin at."""
    assert unit.makes is not None, "nothing is to be made"
    return create(raw, unit.makes, unit.expected, ())


def _refusal(error: BaseException, first: CommitUnit) -> MemoryEngineError | None:
    """The error of a unit some of whose events cannot be inserted; `None` for what says nothing of that."""
    if str(error) == _ID_TAKEN:
        # The sender may be a retry whose first try was committed by a process that died before its receipt:
        # the runtime looks the id up and gives that receipt, or `IdempotencyConflict` for another event.
        return EventIdTaken()
    if str(error) == _PLACE_TAKEN:
        return IntegrityError(first.thread_id, first.expected.seq + 1, "its log goes on past its head")
    return None


def is_small(unit: CommitUnit) -> bool:
    """Whether it is a matter of microseconds to write it."""
    rows = len(unit.events) + len(unit.live)
    for change in unit.projections:
        rows += len(change.rows)
    steps = unit.passages.steps if unit.passages is not None else ()
    if rows + len(steps) > HERE_ROWS:  # before a look at each of very many
        return False
    for step in steps:
        rows += len(step.rows)
    size = 0
    for stored in unit.events:
        size += len(stored.payload) + len(stored.record)
    return rows <= HERE_ROWS and size <= HERE_BYTES


def _empties(unit: CommitUnit) -> bool:
    """Whether a unit leaves nothing of the state: one by one, its 100,000 rows would take a tenth of a second."""
    return bool(unit.live) and not any(unit.live.values())


def begin_passages(raw: sqlite3.Connection, tid: int, *, afresh: bool) -> None:
    """Make an empty index of a thread's passages, unless there is one of this version; with `afresh` in any case."""
    (tenant_id,) = raw.execute("SELECT tenant_id FROM threads WHERE tid = ?", (tid,)).fetchone()
    passages.begin(raw, tid, words_prefix(tenant_id), afresh=afresh)


def find_tid(raw: sqlite3.Connection, thread_id: str) -> int:
    """The row id of a thread that is there. Raises `ThreadNotFound`, and `IntegrityError` where it has no head."""
    condition, values = with_id(thread_id)
    row = raw.execute(
        f"SELECT t.tid FROM threads t JOIN heads h ON h.tid = t.tid WHERE {condition} AND h.status <> ?",
        (*values, DELETED),
    ).fetchone()
    if row is None:
        raise without_head(raw, thread_id)
    return int(row[0])


def without_head(raw: sqlite3.Connection, thread_id: str) -> MemoryEngineError:
    """The error for a thread that has no head, or no such status: it was never made, was deleted, or is damaged."""
    condition, values = with_id(thread_id)
    lost = raw.execute(
        f"SELECT 1 FROM threads t LEFT JOIN heads h ON h.tid = t.tid WHERE {condition} AND h.tid IS NULL", values
    ).fetchone()
    return ThreadNotFound(thread_id) if lost is None else IntegrityError(thread_id, 0, "the row of its head is gone")


def _is_of_a_unit(raw: sqlite3.Connection, error: sqlite3.Error | OverflowError) -> bool:
    """Whether an error is one of a statement or a row, and the transaction can continue."""
    busy = isinstance(storage_error("", error), StorageBusy)
    return raw.in_transaction and not busy and not is_failing(error)


def create(
    raw: sqlite3.Connection,
    record: ThreadRecord,
    head: Head,
    live: Sequence[LiveChunk],
    origin: ThreadRecord | None = None,
) -> tuple[int, int]:
    """Make a thread; its row id, and the epoch that it begins at where a deleted one may have borne its id.

    Raises `ThreadExists`, and `ThreadNotFound` for a fork of an unknown thread, or of one that is not `origin`.
    """
    forked = record.forked_from
    if origin is not None:
        _check_made(raw, origin)
    is_again = raw.execute(_RELEASE, (record.id, DELETED)).rowcount > 0
    if raw.execute("SELECT 1 FROM threads WHERE id = ?", (record.id,)).fetchone() is not None:
        raise ThreadExists(record.id)
    tid: int = raw.execute(
        "INSERT INTO threads (id, kind, user_id, tenant_id, agent_id, parent_id, metadata, policy, created_at_us, "
        "forked_tid, forked_seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING tid",
        (
            *_stored(record),
            find_tid(raw, forked.thread_id) if forked is not None else None,
            forked.seq if forked is not None else None,
        ),
    ).fetchone()[0]
    epoch = tid * SCOPE_EPOCHS if is_again or is_scope_id(record.id) else 0
    if epoch:
        head = msgspec.structs.replace(head, epoch=epoch)
    raw.execute(
        f"INSERT INTO heads (tid, {HEAD_NAMES}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (tid, *head_to_row(head))
    )
    put_live(raw, tid, live)
    return tid, epoch


def _check_made(raw: sqlite3.Connection, record: ThreadRecord) -> None:
    """Raise `ThreadNotFound` where a thread is not the one of this record, but one made later under its id."""
    made = raw.execute("SELECT created_at_us FROM threads WHERE tid = ?", (find_tid(raw, record.id),)).fetchone()
    if made[0] != record.created_at_us:
        raise ThreadNotFound(record.id)


_RELEASE = (
    "UPDATE threads SET id = char(0) || tid WHERE id = ? "
    "AND EXISTS (SELECT 1 FROM heads h WHERE h.tid = threads.tid AND h.status = ?)"
)
"""A new thread may take the id of a deleted one, in another row: the old row gets an id that no caller can use."""


def put_record(raw: sqlite3.Connection, record: ThreadRecord) -> None:
    """Replace a thread's record. Without an origin, the thread is not a fork. Raises `ThreadNotFound`."""
    tid = find_tid(raw, record.id)
    raw.execute(
        "UPDATE threads SET id = ?, kind = ?, user_id = ?, tenant_id = ?, agent_id = ?, parent_id = ?, metadata = ?, "
        "policy = ?, created_at_us = ? WHERE tid = ?",
        (*_stored(record), tid),
    )
    if record.forked_from is None:
        raw.execute("UPDATE threads SET forked_tid = NULL, forked_seq = NULL WHERE tid = ?", (tid,))


def _stored(record: ThreadRecord) -> tuple[object, ...]:
    names = (record.id, record.kind, record.user_id, record.tenant_id, record.agent_id, record.parent_id)
    return (*names, *_facts(record))


def _facts(record: ThreadRecord) -> tuple[str, str | None, int]:
    policy = encode_policy(record.policy) if record.policy is not None else None
    return encode_metadata(record.metadata), policy, record.created_at_us


def _head_row(tid: int, unit: CommitUnit, epoch: int) -> tuple[object, ...]:
    head, expected = unit.head, unit.expected
    if epoch:
        head = msgspec.structs.replace(head, epoch=epoch + head.epoch - expected.epoch)
    return (head.seq, _bound(head.hash), *head_to_row(head)[2:], tid, expected.seq, epoch or expected.epoch)


def put_live(raw: sqlite3.Connection, tid: int, rows: Sequence[LiveChunk]) -> None:
    """Write rows of the state."""
    if rows:
        raw.executemany(_PUT_LIVE, [(tid, *_live_row_key(row.chunk_id), row.key, row.container) for row in rows])


def write_projection(raw: sqlite3.Connection, tid: int, change: ProjectionChange) -> None:
    """Write a projection's rows and its checkpoint."""
    name, version = change.projection, change.version
    for first, last in change.ranges:
        raw.execute(
            "DELETE FROM projection_rows WHERE projection = ? AND version = ? AND tid = ? AND key >= ? AND key < ?",
            (name, version, tid, first, last),
        )
    for key, value in change.rows.items():
        if value is None:
            raw.execute(
                "DELETE FROM projection_rows WHERE projection = ? AND version = ? AND tid = ? AND key = ?",
                (name, version, tid, key),
            )
        else:
            raw.execute(
                "INSERT OR REPLACE INTO projection_rows (projection, version, tid, key, value) VALUES (?, ?, ?, ?, ?)",
                (name, version, tid, key, value),
            )
    raw.execute(
        "INSERT OR REPLACE INTO checkpoints (projection, version, tid, seq) VALUES (?, ?, ?, ?)",
        (name, version, tid, change.checkpoint),
    )


def _live_row_key(chunk_id: str) -> tuple[int, int]:
    seq, _, n = chunk_id.partition(".")
    return int(seq), int(n)
