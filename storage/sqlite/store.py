"""The SQLite store: `memory_engine.store.protocol.Store` over one file."""

import asyncio
import logging
import math
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from memory_engine.core.lazy import lazy_modules
from memory_engine.errors import MemoryEngineError, StorageFailed
from memory_engine.storage.driver import StoreFile, size_of
from memory_engine.storage.passage_rows import forget_texts
from memory_engine.storage.sqlite import reads
from memory_engine.storage.sqlite.connection import Connection, Readers
from memory_engine.storage.sqlite.file import (
    NoWriter,
    as_schema_error,
    checked_file,
    make,
    on_the_loop,
    prepare,
    whole,
)
from memory_engine.storage.sqlite.locking import FileLock, Generation, Leases
from memory_engine.storage.sqlite.tables import TableStore
from memory_engine.storage.sqlite.transactions import Transactions
from memory_engine.storage.sqlite.writer import WAL_BYTES, Writer
from memory_engine.store.protocol import (
    Backup,
    CommitUnit,
    Copied,
    Migrated,
    StoredText,
    StoreStats,
    Traces,
)

if TYPE_CHECKING:
    from memory_engine.storage.sqlite import backup, erasing, reading, texts
    from memory_engine.storage.sqlite import faults as faulty
    from memory_engine.storage.sqlite.faults import FaultPlan
    from memory_engine.store.keys import Key
else:
    backup, erasing, faulty, reading, texts = lazy_modules(
        "memory_engine.storage.sqlite", "backup erasing faults reading texts"
    )

T = TypeVar("T")

_log = logging.getLogger("memory_engine.storage")

Durability = Literal["normal", "full"]
SHORTEN_S = 0.25
"""Seconds between two tries to empty the write-ahead log."""
MEASURE_S = 0.01
"""Seconds between two looks at its size: where other threads are at work, each call of the system may cost a turn."""
AT_ONCE_MAX = 8
"""Commits in a round of the loop that are tried at once; those of more threads share transactions."""
SMALL_BYTES, FIRST_READS = 1024 * 1024, 32
"""In a file up to this size, in bytes, the connection that writes runs the first queries, until it has written: a
process that opens the file, dispatches and closes it need not open another, which takes longer than to write."""
QUIET_S = 0.5
"""Seconds that reads which begin wait at most for those under way, so that it can be emptied."""
QUIET_POLL_S = 0.002
SPILL_BYTES = 64 * 1024
"""Payloads over this size are kept apart, once for each content."""


class SQLiteStore(TableStore):
    """One file; several processes may share it.

    A commit survives the death of the process at any moment; with `durability="full"`, also a power failure.
    """

    def __init__(
        self,
        file: StoreFile,
        writer: Writer | NoWriter,
        readers: "Readers | reading.FileReaders",
        transactions: Transactions,
        timeout_s: float,
    ) -> None:
        self._file, self._path = file, file.path
        self._writer = writer
        self._readers = readers
        self._transactions = transactions
        self._busy_timeout_s = timeout_s
        self._generation = Generation(file.path)
        self._generation_now: int | None = None
        self._generation_before = 0
        self._in_round = 0
        self._round_will_end = False
        self._first_reads = 0
        """How many queries more need no reader."""
        self._leases = Leases(file.path)
        self._quiet: asyncio.Future[None] | None = None
        self._shortening: asyncio.Task[None] | None = None
        self._shortened_s = self._measured_s = 0.0
        file.opened()

    @classmethod
    async def open(  # noqa: PLR0913 - what a file is opened with, by keyword
        cls,
        path: str,
        *,
        durability: Durability = "normal",
        busy_timeout_s: float = 5.0,
        readers: int = 2,
        key: "Key | None" = None,
        faults: "FaultPlan | None" = None,
        migrated: Migrated | None = None,
    ) -> "SQLiteStore":
        """Open or create the file, bringing its schema up to date; `migrated` is called with each migration.

        With a `key` it is encrypted. `faults` is for tests: it is called at every write.

        Raises `SchemaError` for a file of another program or of a newer version, `StorageFailed` where it cannot be
        opened, `StorageBusy` past the timeout, and what `StoreFile.check` raises.
        """
        file = await checked_file(path, key)
        try:
            lock = FileLock(path, busy_timeout_s) if faults is None else faulty.ToldLock(path, busy_timeout_s, faults)
        except OSError as error:
            raise StorageFailed(path, str(error)) from error
        return await whole(
            cls._prepared(file, lock, durability, busy_timeout_s, readers, faults=faults, migrated=migrated)
        )

    @classmethod
    async def open_read_only(
        cls, path: str, *, busy_timeout_s: float = 5.0, readers: int = 2, key: "Key | None" = None
    ) -> "SQLiteStore":
        """Open a file that is only read: it may be read-only, and its directory too. Every write raises `ReadOnly`.

        Nothing is written to it or next to it (see `reading`); one of an older schema is read from a copy in the
        temporary folder. Raises `StorageFailed` for a file that is not there, and `SchemaError` as `open` does.
        """
        return await whole(cls._to_be_read(path, busy_timeout_s, readers, key))

    @classmethod
    async def _to_be_read(cls, path: str, busy_timeout_s: float, readers: int, key: "Key | None") -> "SQLiteStore":
        file = await checked_file(path, key)
        if not await asyncio.to_thread(Path(path).is_file):
            raise StorageFailed(path, "the file does not exist, and an engine that only reads makes none")
        found = await reading.FileReaders.open(file, busy_timeout_s, readers)
        return cls(file, NoWriter(), found, Transactions(SPILL_BYTES, path), busy_timeout_s)

    @classmethod
    async def _prepared(  # noqa: PLR0913 - what `open` is given
        cls,
        file: StoreFile,
        lock: FileLock,
        durability: Durability,
        busy_timeout_s: float,
        readers: int,
        *,
        faults: "FaultPlan | None",
        migrated: Migrated | None,
    ) -> "SQLiteStore":
        connection, path = None, file.path
        try:
            if file.is_encrypted:
                await asyncio.to_thread(make, file, lock)
            if size_of(path):
                lock.watch()  # before it is opened: another key puts another file in its place
            factory = None if faults is None else faulty.connecting(faults, file.kind)
            connection = await Connection.writer(file, busy_timeout_s, factory)
            told = on_the_loop(migrated)
            is_settled = await connection.run(lambda raw: prepare(raw, lock, path, durability == "full", told))
        except BaseException:  # after any error no thread of a connection may stay behind; it goes on to the caller
            if connection is not None:
                await connection.close()
            lock.close()
            raise
        transactions = Transactions(SPILL_BYTES, path)
        writer = Writer(connection, lock, transactions, file, busy_timeout_s, syncs=durability == "full")
        found = Readers(Connection.readers(file, busy_timeout_s, readers))
        store = cls(file, writer, found, transactions, busy_timeout_s)
        store._first_reads = FIRST_READS if faults is None and size_of(path) <= SMALL_BYTES else 0
        store._is_settled = is_settled
        return store

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Queue a unit, to be committed together with those of other threads that wait."""
        now = time.monotonic()
        if now > self._measured_s + MEASURE_S and now > self._shortened_s + SHORTEN_S:
            self._measured_s = now
            if size_of(self._path + "-wal") > WAL_BYTES:
                self._shortened_s = math.inf  # until this one has ended
                self._shortening = asyncio.get_running_loop().create_task(self._shorten())
        if not self._in_round:
            self._hear_of_the_next_round()
        self._in_round += 1
        return self._writer.submit(unit, at_once=self._in_round <= AT_ONCE_MAX)

    def check_writable(self) -> None:
        """Raise the `StorageFailed` after which this file must be opened again, or `EngineClosed`."""
        if self._writer.failed is not None:
            raise self._writer.failed

    async def _shorten(self) -> None:
        """Empty the write-ahead log. This process begins no read before that, and waits for those under way."""
        async with self._without_reads():
            with suppress(MemoryEngineError):
                await self._writer.shorten()
        self._shortened_s = time.monotonic()

    @asynccontextmanager
    async def _without_reads(self) -> AsyncIterator[None]:
        """A block before which no further read begins; it waits a moment for those under way."""
        while self._quiet is not None:
            await asyncio.shield(self._quiet)
        self._quiet = asyncio.get_running_loop().create_future()
        until = time.monotonic() + QUIET_S
        try:
            while self._readers.at_work and time.monotonic() < until:  # noqa: ASYNC110 - bounded, and rare
                await asyncio.sleep(QUIET_POLL_S)
            yield
        finally:
            self._quiet.set_result(None)
            self._quiet = None

    async def wipe(self) -> bool:
        """Zero what deleted and erased rows have left in the file; whether no reader of old pages was in the way."""
        return await self._writer.wipe()

    @property
    def is_large(self) -> bool:
        """Whether reading the whole file takes longer than a moment, and a part of it can be told apart."""
        return size_of(self._path) > erasing.WHOLE_MAX and not self._file.is_encrypted

    @contextmanager
    def noting(self, pages: set[int]) -> Iterator[None]:
        """A block in which the pages that jobs write to the file are added to a set."""
        note = erasing.noting(self._path, pages)
        self._writer.noting += (note,)
        try:
            yield
        finally:
            self._writer.noting = tuple(other for other in self._writer.noting if other is not note)

    async def wipe_part(self, pages: Collection[int]) -> bool:
        """Zero what such rows have left in these pages and in free ones; whether no reader was in the way."""
        return await self._writer.wipe(pages)

    async def traces_in_part(self, pieces: Sequence[bytes], unique: Sequence[bytes], pages: Collection[int]) -> Traces:
        """Look for pieces in some pages, free ones and the write-ahead log; for `unique` ones also in a sample."""
        return await asyncio.to_thread(erasing.find_bytes_in_part, self._path, pieces, unique, pages)

    async def left_in_index(self, thread_ids: Collection[str], texts: Sequence[Sequence[str]]) -> Sequence[str]:
        """The entries of the full-text index of these threads that hold all words of a text and have no passage."""
        return await self._read(lambda raw: erasing.left_in_index(raw, thread_ids, texts))

    def texts_of(self, thread_ids: Collection[str]) -> AsyncIterator[Sequence[StoredText]]:
        """The values of these threads, and of the acts."""
        return texts.stored_texts(self._read, thread_ids)

    def moved(self) -> None:
        """Go on on the running event loop: nothing that the one before was to call will be called."""
        self._round_will_end, self._generation_now, self._in_round = False, None, 0
        self._quiet, self._shortening, self._shortened_s = None, None, 0.0
        self._writer.moved()

    @property
    def is_of_one_loop(self) -> bool:
        """Its connections have threads of their own."""
        return False

    @property
    def generation(self) -> int:
        """The number of acts that have deleted or erased something: the length of the generation file.

        It is read once in a round of the loop, so a deletion by another process becomes known in the next round.
        """
        if self._generation_now is None:
            self._generation_now = self._generation.number
            if self._generation_now != self._generation_before:
                self._generation_before = self._generation_now
                forget_texts()
            self._hear_of_the_next_round()
        return self._generation_now

    def _hear_of_the_next_round(self) -> None:
        if not self._round_will_end:
            self._round_will_end = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._round_will_end = False
        self._generation_now = None
        self._in_round = 0

    async def lease(self, thread_id: str) -> bool | None:
        """Take a thread for work that one engine at a time should do; `None` where the system has no such locks."""
        return None if isinstance(self._writer, NoWriter) else self._leases.take(thread_id)

    async def release(self, thread_id: str) -> None:
        """Give a thread back."""
        self._leases.release(thread_id)

    async def traces(self, pieces: Sequence[bytes]) -> Traces:
        """Look for pieces in the database, its write-ahead log and its files of vectors."""
        found = await asyncio.to_thread(erasing.find_bytes, self._path, pieces)
        if self._file.is_encrypted:
            places = await self._read(lambda raw: erasing.find_in_rows(raw, pieces))
            found = msgspec.structs.replace(found, places={**found.places, **places}, how=erasing.THROUGH_THE_KEY)
        return found

    async def backup(self, path: str, copied: Copied, *, key: "Key | None" = None, plain: bool = False) -> Backup:
        """Copy the database of this moment to a new file, which is checked before it gets its name."""
        target = await asyncio.to_thread(backup.target_of, self._file, path, key, plain=plain)
        only_reads = isinstance(self._writer, NoWriter)
        return await backup.back_up_file(self._file, target, self._busy_timeout_s, copied, writes_nothing=only_reads)

    async def rekey(self, key: "Key | None", copied: Copied) -> Backup:
        """Rewrite the file with another key, or none, and continue with it. Reads and commits wait meanwhile."""
        made = await asyncio.to_thread(self._file.rekeyed, key, backup.part_of(self._path))
        async with self._without_reads():
            await self._readers.rest()
            return await self._writer.rekey(made, copied)

    async def stats(self) -> StoreStats:
        """Totals; `bytes` is the size of the database and its write-ahead log."""
        found = await self._read(reads.totals)
        return msgspec.structs.replace(found, bytes=found.bytes + size_of(self._path + "-wal"))

    async def flush(self) -> None:
        """Make every acknowledged commit survive a power failure: checkpoint and sync the write-ahead log."""
        await self._writer.checkpoint("FULL")

    async def close(self) -> None:
        """Commit the units taken, close the readers, checkpoint the log, close the writer."""
        self._leases.disown()
        if self._shortening is not None:
            await asyncio.wait([self._shortening])
        await self._readers.close()
        await self._writer.close()
        self._file.closed()

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._writer.run(work)

    async def _administer(self, work: Callable[[sqlite3.Connection], None]) -> None:
        await self._writer.administer(work)

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        while self._quiet is not None:
            await asyncio.shield(self._quiet)
        with as_schema_error(self._path):
            if self._first_reads and self._writer.is_unused:
                self._first_reads -= 1
                return await self._writer.read(query)
            return await self._readers.run(query)
