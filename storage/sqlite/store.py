"""The SQLite store: `memory_engine.store.protocol.Store` over one file."""

import asyncio
import contextlib
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from memory_engine.core.cancellation import finished
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import Head, LiveChunk, LoadedThread, ThreadRecord, encode_policy
from memory_engine.errors import MemoryEngineError, SchemaError, StorageFailed, ThreadExists
from memory_engine.storage.sqlite import erasing, reads
from memory_engine.storage.sqlite.checks import faults_of
from memory_engine.storage.sqlite.connection import Connection, FileLock, Generation, Leases
from memory_engine.storage.sqlite.passages import SQLitePassages
from memory_engine.storage.sqlite.schema import check_version, marks_to_row, migrate
from memory_engine.storage.sqlite.transactions import (
    Transactions,
    find_tid,
    put_live,
    write_projection,
)
from memory_engine.storage.sqlite.writer import WAL_BYTES, Writer, size_of
from memory_engine.store.protocol import Act, CommitUnit, ProjectionChange, StoreStats, ThreadFilter, Traces

T = TypeVar("T")

_log = logging.getLogger("memory_engine.storage")

Durability = Literal["normal", "full"]
SQLITE_MIN = (3, 37, 0)
SQLITE_SAFE_WAL = (3, 51, 3)
SHORTEN_S = 0.25
"""Seconds between two tries to empty the write-ahead log."""
QUIET_S = 0.5
"""Seconds that reads which begin wait at most for those under way, so that it can be emptied."""
QUIET_POLL_S = 0.002
SPILL_BYTES = 64 * 1024
"""Payloads over this size are kept apart, once for each content."""


class SQLiteStore:
    """One file; several processes may share it.

    `durability="normal"`: a commit survives the death of the process at any moment; a power
    failure may take the latest ones, never half of one. `"full"`: it survives that too, for
    an fsync a commit.
    """

    def __init__(self, path: str, writer: Writer, readers: Sequence[Connection], transactions: Transactions) -> None:
        self._path = path
        self._writer = writer
        self._readers = readers
        self._transactions = transactions
        self._turn = 0
        self._generation = Generation(path)
        self._leases = Leases(path)
        self._reading = 0
        self._quiet: asyncio.Future[None] | None = None
        self._shortening: asyncio.Task[None] | None = None
        self._shortened_s = 0.0
        self.passages = SQLitePassages(writer, self._read)

    @classmethod
    async def open(
        cls, path: str, *, durability: Durability = "normal", busy_timeout_s: float = 5.0, readers: int = 2
    ) -> "SQLiteStore":
        """Open or make the file, bringing its schema up to date.

        Raises `SchemaError` for a file of another program or of a newer version,
        `StorageFailed` where it cannot be opened, `StorageBusy` past the timeout.
        """
        check_sqlite_version(path)
        _check_place(path)
        lock = FileLock(path, busy_timeout_s)
        opening = asyncio.ensure_future(cls._prepared(path, lock, durability, busy_timeout_s, readers))
        try:
            return await finished(opening)
        except asyncio.CancelledError:
            if not opening.cancelled() and opening.exception() is None:
                await finished(opening.result().close())
            raise

    @classmethod
    async def _prepared(
        cls, path: str, lock: FileLock, durability: Durability, busy_timeout_s: float, readers: int
    ) -> "SQLiteStore":
        opened: list[Connection] = []
        try:
            opened.append(await Connection.writer(path, busy_timeout_s))
            await opened[0].run(lambda raw: _prepare(raw, lock, path, durability))
            opened.extend([await Connection.reader(path, busy_timeout_s) for _ in range(readers)])
        except BaseException:  # after any error no thread of a connection may stay behind; it goes on to the caller
            for connection in opened:
                await connection.close()
            lock.close()
            raise
        transactions = Transactions(SPILL_BYTES)
        writer = Writer(opened[0], lock, transactions, path)
        return cls(path, writer, opened[1:], transactions)

    async def create(self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk]) -> None:
        """Make a thread. Raises `ThreadExists`."""
        await self._writer.run(lambda raw: _create(raw, record, head, live))

    async def load(self, thread_id: str) -> LoadedThread:
        """A thread's live state, in order of keys. Raises `ThreadNotFound`."""
        return await self._read(lambda raw: reads.load(raw, thread_id))

    async def head(self, thread_id: str) -> Head:
        """A thread's head. Raises `ThreadNotFound`."""
        return await self._read(lambda raw: reads.head(raw, thread_id))

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Take a unit; it is committed together with those of other threads that wait."""
        if size_of(self._path + "-wal") > WAL_BYTES and time.monotonic() > self._shortened_s + SHORTEN_S:
            self._shortened_s = math.inf  # until this one has ended
            self._shortening = asyncio.get_running_loop().create_task(self._shorten())
        return self._writer.submit(unit)

    async def _shorten(self) -> None:
        """Empty the write-ahead log. This process begins no read before that, and waits for those under way."""
        self._quiet = asyncio.get_running_loop().create_future()
        until = time.monotonic() + QUIET_S
        try:
            while self._reading and time.monotonic() < until:  # noqa: ASYNC110 - bounded, and rare
                await asyncio.sleep(QUIET_POLL_S)
            with contextlib.suppress(MemoryEngineError):
                await self._writer.shorten()
        finally:
            self._quiet.set_result(None)
            self._quiet = None
            self._shortened_s = time.monotonic()

    async def find(self, thread_id: str, event_ids: Sequence[str]) -> Sequence[StoredEvent]:
        """Those of the events that the thread's log (shared past included) holds."""
        return await self._read(lambda raw: reads.find(raw, thread_id, event_ids)) if event_ids else ()

    async def read(
        self, thread_id: str, *, after: int, upto: int, limit: int, types: Collection[str] | None = None
    ) -> Sequence[StoredEvent]:
        """At most `limit` events with `after` < seq <= `upto`, in order, through shared pasts."""
        if types is not None:
            return await self._read(lambda raw: reads.read_types(raw, thread_id, (after, upto), limit, types))
        return await self._read(lambda raw: reads.read(raw, thread_id, after, upto, limit))

    async def seq_at(self, thread_id: str, recorded_at_us: int) -> int:
        """The seq of the last event that was recorded at this time or before it."""
        return await self._read(lambda raw: reads.seq_at(raw, thread_id, recorded_at_us))

    async def correlated(self, correlation_id: str, *, limit: int | None = None) -> Sequence[tuple[str, StoredEvent]]:
        """The events that bear a correlation id, each with its thread's id."""
        return await self._read(lambda raw: reads.correlated(raw, correlation_id, limit))

    async def read_at(self, thread_id: str, seqs: Sequence[int]) -> Sequence[StoredEvent]:
        """The events at these seqs that there are, in order, through shared pasts."""
        return await self._read(lambda raw: reads.read_at(raw, thread_id, seqs)) if seqs else ()

    async def threads(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head]]:
        """The threads that match, oldest first; with a limit the latest N."""
        return await self._read(lambda raw: reads.threads(raw, where))

    async def forks(self, thread_id: str) -> Sequence[str]:
        """The ids of the threads that share this thread's past."""
        return await self._read(lambda raw: reads.forks(raw, thread_id))

    async def delete(self, thread_id: str) -> None:
        """Delete a thread's log and state; its id stays taken."""
        await self._writer.administer(lambda raw: erasing.delete(raw, thread_id))

    async def erase(self, unit: CommitUnit, rows: Sequence[StoredEvent]) -> None:
        """Commit a unit, with these rows in the place of the thread's own of the same seqs and hashes."""
        await self._writer.administer(lambda raw: erasing.erase(raw, self._transactions, unit, rows))

    async def wipe(self) -> bool:
        """Zero what deleted and erased rows have left in the file; whether no reader of old pages was in the way."""
        return await self._writer.wipe()

    @property
    def generation(self) -> int:
        """The number of acts that have deleted or erased something: the length of the file beside the database."""
        return self._generation.number

    def lease(self, thread_id: str) -> bool | None:
        """Take a thread for work that one engine at a time should do; `None` where the system has no such locks."""
        return self._leases.take(thread_id)

    def release(self, thread_id: str) -> None:
        """Give a thread back."""
        self._leases.release(thread_id)

    async def traces(self, pieces: Sequence[bytes], texts: Collection[bytes]) -> Traces:
        """Look for pieces in the database, its write-ahead log and the vectors beside it."""
        found = await asyncio.to_thread(erasing.find_bytes, self._path, pieces)
        wanted = [piece for piece in found.places if piece in texts]
        said = await self._read(lambda raw: erasing.said(raw, wanted))
        return msgspec.structs.replace(found, said=said)

    async def put_act(self, act: Act) -> None:
        """Keep an administrative act."""
        await self._writer.run(lambda raw: erasing.put_act(raw, act))

    async def acts(self, *, pending: bool = False) -> Sequence[Act]:
        """The administrative acts, oldest first; with `pending` those that may not be finished."""
        return await self._read(lambda raw: erasing.acts(raw, pending=pending))

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """A projection's checkpoint (0: none) and rows for a thread."""
        return await self._read(lambda raw: reads.projection_rows(raw, projection, version, thread_id))

    async def checkpoint(self, projection: str, version: int, thread_id: str) -> int:
        """The seq up to which a projection has read a thread (0: none)."""
        return await self._read(lambda raw: reads.checkpoint(raw, projection, version, thread_id))

    async def last_rows(self, projection: str, version: int, thread_id: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """The `limit` rows with the greatest keys, in order of keys."""
        return await self._read(lambda raw: reads.last_rows(raw, projection, version, thread_id, limit))

    async def row_upto(
        self, projection: str, version: int, thread_id: str, between: tuple[str, str]
    ) -> tuple[str, bytes] | None:
        """The row with the greatest key between the two."""
        return await self._read(lambda raw: reads.row_upto(raw, projection, version, thread_id, between))

    async def measure_rows(self, projection: str, version: int, thread_id: str) -> tuple[int, int]:
        """How many rows there are and how many bytes their values take."""
        return await self._read(lambda raw: reads.measure_rows(raw, projection, version, thread_id))

    async def holders(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads for which a projection has rows."""
        return await self._read(lambda raw: reads.holders(raw, projection, version))

    async def write_projection(self, thread_id: str, change: ProjectionChange, *, replace: bool = False) -> None:
        """Write an asynchronous projection's rows and checkpoint."""

        def write(raw: sqlite3.Connection) -> None:
            tid = find_tid(raw, thread_id)
            if replace:
                raw.execute(
                    "DELETE FROM projection_rows WHERE projection = ? AND version = ? AND tid = ?",
                    (change.projection, change.version, tid),
                )
            write_projection(raw, tid, change)

        await self._writer.run(write)

    async def faults(self, thread_id: str) -> Mapping[str, Sequence[str]]:
        """What the indexes of ids, words and vectors say otherwise than the rows they stand for."""
        return await self._read(lambda raw: faults_of(raw, thread_id))

    async def behind(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads whose head is past the projection's checkpoint."""
        return await self._read(lambda raw: reads.behind(raw, projection, version))

    async def stats(self) -> StoreStats:
        """Totals; `bytes` is the size of the database and its write-ahead log."""
        threads, events, chunks, tokens, payloads, size = await self._read(reads.totals)
        size += size_of(self._path + "-wal")
        return StoreStats(
            threads=threads, events=events, chunks=chunks, tokens=tokens, payload_bytes=payloads, bytes=size
        )

    async def flush(self) -> None:
        """Make every acknowledged commit survive a power failure: checkpoint and sync the write-ahead log."""
        await self._writer.checkpoint("FULL")

    async def close(self) -> None:
        """Commit the units taken, close the readers, checkpoint the log, close the writer."""
        self._leases.disown()
        if self._shortening is not None:
            await asyncio.wait([self._shortening])
        for reader in self._readers:
            await reader.close()
        await self._writer.close()

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        while self._quiet is not None:
            await asyncio.shield(self._quiet)
        self._turn = (self._turn + 1) % len(self._readers)
        self._reading += 1
        try:
            return await self._readers[self._turn].run(query)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, MemoryEngineError):
                raise
            why = f"a row cannot be read ({error}); run `memory-engine verify`, or put a backup back"
            raise SchemaError(self._path, why) from error
        finally:
            self._reading -= 1


def _check_place(path: str) -> None:
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise StorageFailed(path, f"the directory {folder} does not exist; create it")
    if Path(path).is_dir():
        raise StorageFailed(path, "it is a directory; give the path of a file")


def check_sqlite_version(path: str) -> None:
    """Refuse an SQLite without STRICT tables; warn once of one that has the write-ahead log bug.

    SQLite before 3.51.3 can lose pages when two connections write or checkpoint at one
    instant (https://sqlite.org/wal.html#walresetbug). The lock beside the file keeps this
    package's processes from that; other programs that write to the file do not take it.
    """
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        raise SchemaError(path, f"Python's SQLite is {version}; 3.37 or newer is needed")
    if sqlite3.sqlite_version_info < SQLITE_SAFE_WAL:
        _log.info("SQLite %s: let no other program write to or checkpoint %s (fixed in 3.51.3)", version, path)


def _prepare(raw: sqlite3.Connection, lock: FileLock, path: str, durability: Durability) -> None:
    """Settings of the connection, and the schema. In the lock: several processes may open a new file at once."""
    with lock:
        check_version(raw, path)  # before anything is changed: the file may be another program's
        raw.execute("PRAGMA journal_mode = WAL").fetchone()
        raw.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
        raw.execute("PRAGMA wal_autocheckpoint = 1000")
        raw.execute("PRAGMA secure_delete = OFF")
        migrate(raw, path)
        lock.watch()


def _create(raw: sqlite3.Connection, record: ThreadRecord, head: Head, live: Sequence[LiveChunk]) -> None:
    forked = record.forked_from
    try:
        tid = raw.execute(
            "INSERT INTO threads (id, kind, user_id, tenant_id, agent_id, parent_id, metadata, policy, created_at_us, "
            "forked_tid, forked_seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING tid",
            (
                record.id,
                record.kind,
                record.user_id,
                record.tenant_id,
                record.agent_id,
                record.parent_id,
                msgspec.json.encode(record.metadata).decode(),
                encode_policy(record.policy) if record.policy is not None else None,
                record.created_at_us,
                find_tid(raw, forked.thread_id) if forked is not None else None,
                forked.seq if forked is not None else None,
            ),
        ).fetchone()[0]
    except sqlite3.IntegrityError:
        raise ThreadExists(record.id) from None
    raw.execute(
        "INSERT INTO heads (tid, seq, hash, epoch, status, open_compaction, chunks, tokens, marks) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            tid,
            head.seq,
            head.hash,
            head.epoch,
            head.status,
            head.open_compaction,
            head.chunks,
            head.tokens,
            marks_to_row(head),
        ),
    )
    put_live(raw, tid, live)
