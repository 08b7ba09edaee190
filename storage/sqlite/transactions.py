"""What one transaction writes: units, each whole or not at all. Runs on the writer's thread; no await, no user code."""

import hashlib
import sqlite3
from collections.abc import Sequence

from memory_engine.errors import MemoryEngineError, ThreadNotFound
from memory_engine.persistence import DELETED, CommitUnit, EventIdTaken, Head, HeadMoved, LiveChunk, ProjectionChange
from memory_engine.records import StoredEvent
from memory_engine.storage.sqlite.rows import id_to_row, position

_INSERT_EVENT = (
    "INSERT INTO events (pos, tid, id, type, version, recorded_at_us, occurred_at_us, causation_id, correlation_id, "
    "salt, hash, payload, spilled, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_MOVE_HEAD = (
    "UPDATE heads SET seq = ?, hash = ?, epoch = ?, status = ?, open_compaction = ?, chunks = ?, tokens = ? "
    "WHERE tid = ? AND seq = ? AND epoch = ?"
)
_PUT_LIVE = "INSERT OR REPLACE INTO live (tid, seq, n, key, container) VALUES (?, ?, ?, ?, ?)"
_DROP_LIVE = "DELETE FROM live WHERE tid = ? AND seq = ? AND n = ?"

_REFUSALS = (HeadMoved, EventIdTaken, ThreadNotFound)
"""What is wrong with one unit only."""


class Transactions:
    """Writes units. Payloads over `spill_bytes` go to `blobs`, once for each content."""

    def __init__(self, spill_bytes: int) -> None:
        self._spill_bytes = spill_bytes
        self._tids: dict[str, int] = {}

    def commit(self, raw: sqlite3.Connection, units: Sequence[CommitUnit]) -> list[MemoryEngineError | None]:
        """Write the units in one transaction, with a savepoint each where they are several; say for each what refused it, if anything."""
        outcomes: list[MemoryEngineError | None] = [None]
        raw.execute("BEGIN IMMEDIATE")
        try:
            if len(units) == 1:
                self._write(raw, units[0])
            else:
                outcomes = [self._one(raw, unit) for unit in units]
            raw.execute("COMMIT")
        except BaseException as error:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            if isinstance(error, _REFUSALS):
                return [error]
            raise
        return outcomes

    def _one(self, raw: sqlite3.Connection, unit: CommitUnit) -> MemoryEngineError | None:
        raw.execute("SAVEPOINT unit")
        try:
            self._write(raw, unit)
        except _REFUSALS as error:
            raw.execute("ROLLBACK TO unit")
            raw.execute("RELEASE unit")
            return error
        raw.execute("RELEASE unit")
        return None

    def _write(self, raw: sqlite3.Connection, unit: CommitUnit) -> None:
        tid = self.tid(raw, unit.thread_id)
        move_head(raw, tid, unit.expected, unit.head)
        try:
            raw.executemany(_INSERT_EVENT, [self._event_row(raw, tid, stored) for stored in unit.events])
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
                raise EventIdTaken from error
            raise
        gone = [chunk_id for chunk_id, row in unit.live.items() if row is None]
        if gone:
            raw.executemany(_DROP_LIVE, [(tid, *_place(chunk_id)) for chunk_id in gone])
        put_live(raw, tid, [row for row in unit.live.values() if row is not None])
        for change in unit.projections:
            write_projection(raw, tid, change)

    def tid(self, raw: sqlite3.Connection, thread_id: str) -> int:
        """The row id of a thread. Raises `ThreadNotFound`."""
        tid = self._tids.get(thread_id)
        if tid is None:
            tid = self._tids[thread_id] = find_tid(raw, thread_id)
        return tid

    def forget(self, thread_id: str) -> None:
        """The thread was deleted."""
        self._tids.pop(thread_id, None)

    def _event_row(self, raw: sqlite3.Connection, tid: int, stored: StoredEvent) -> tuple[object, ...]:
        payload: bytes | None = stored.payload
        spilled = None
        if len(stored.payload) > self._spill_bytes:
            spilled = hashlib.sha256(stored.payload).digest()
            payload = None
            raw.execute("INSERT OR IGNORE INTO blobs (digest, body) VALUES (?, ?)", (spilled, stored.payload))
        return (
            position(tid, stored.seq),
            tid,
            id_to_row(stored.id),
            stored.type,
            stored.version,
            stored.recorded_at_us,
            stored.occurred_at_us,
            stored.causation_id or None,
            stored.correlation_id or None,
            stored.salt,
            stored.hash,
            payload,
            spilled,
            stored.record,
        )


def find_tid(raw: sqlite3.Connection, thread_id: str) -> int:
    """The row id of a thread that is not deleted. Raises `ThreadNotFound`."""
    row = raw.execute(
        "SELECT t.tid FROM threads t JOIN heads h ON h.tid = t.tid WHERE t.id = ? AND h.status <> ?",
        (thread_id, DELETED),
    ).fetchone()
    if row is None:
        raise ThreadNotFound(thread_id)
    return int(row[0])


def move_head(raw: sqlite3.Connection, tid: int, expected: Head, head: Head) -> None:
    """Compare and set: raises `HeadMoved` if (seq, epoch) are not the expected ones."""
    moved = raw.execute(
        _MOVE_HEAD,
        (
            head.seq,
            head.hash,
            head.epoch,
            head.status,
            head.open_compaction,
            head.chunks,
            head.tokens,
            tid,
            expected.seq,
            expected.epoch,
        ),
    )
    if moved.rowcount == 0:
        raise HeadMoved


def put_live(raw: sqlite3.Connection, tid: int, rows: Sequence[LiveChunk]) -> None:
    """Write rows of the state."""
    if rows:
        raw.executemany(_PUT_LIVE, [(tid, *_place(row.chunk_id), row.key, row.container) for row in rows])


def write_projection(raw: sqlite3.Connection, tid: int, change: ProjectionChange) -> None:
    """Write a projection's rows and its checkpoint."""
    name, version = change.projection, change.version
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


def _place(chunk_id: str) -> tuple[int, int]:
    seq, _, n = chunk_id.partition(".")
    return int(seq), int(n)
