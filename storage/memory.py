"""The in-memory store: SQLite without a file, for tests and for memory that may be lost.

Every call runs at once, on the caller's thread: there is nothing to wait for, neither a lock nor a disk.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from memory_engine.core.cancellation import settle
from memory_engine.errors import BackupFailed
from memory_engine.storage.sqlite import reads
from memory_engine.storage.sqlite.connection import HereConnection, storage_error
from memory_engine.storage.sqlite.file import as_schema_error, check_sqlite_min
from memory_engine.storage.sqlite.in_memory import PLACE, empty_database, in_transaction
from memory_engine.storage.sqlite.tables import TableStore
from memory_engine.storage.sqlite.transactions import Transactions
from memory_engine.store.keys import Key
from memory_engine.store.protocol import Backup, CommitUnit, Copied, StoreStats, Traces

T = TypeVar("T")

_SPILL_BYTES = 1 << 62
"""A payload is kept apart so that others are read without it from a disk. There is none."""


class MemoryStore(TableStore):
    """See `memory_engine.store.protocol.Store`. Everything is gone when it is."""

    def __init__(self) -> None:
        """Raises `SchemaError` where SQLite is too old."""
        check_sqlite_min(PLACE, sqlite3)
        self._connection = HereConnection(PLACE, empty_database)
        self._transactions = Transactions(_SPILL_BYTES, PLACE)
        self._generation = 0
        self._is_settled = True

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Take a unit; the future is done at once."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        outcome: BaseException | None
        try:
            (outcome,) = self._connection.here(lambda raw: self._transactions.commit(raw, (unit,)))
        except Exception as error:  # whatever it is, it is the outcome of the unit
            outcome = storage_error(PLACE, error) if isinstance(error, sqlite3.Error | OverflowError) else error
        settle(done, outcome)
        return done

    def check_writable(self) -> None:
        """Memory fails no commit for good."""

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

    async def backup(self, path: str, copied: Copied, *, key: Key | None = None, plain: bool = False) -> Backup:
        """Refused: there is nothing on a disk to copy."""
        raise BackupFailed(path, "a store in memory has no file to copy; export its threads")

    async def stats(self) -> StoreStats:
        """Totals; `bytes` is the size of the database."""
        return await self._read(reads.totals)

    async def flush(self) -> None:
        """Nothing outlives the process anyway. Raises `EngineClosed` after `close`."""
        self._connection.here(lambda _: None)

    async def close(self) -> None:
        """Refuse further use, as a store with a file does."""
        await self._connection.close()

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        await asyncio.sleep(0)  # long work comes in parts: others have a turn between them
        return await self._connection.run(partial(in_transaction, work))

    async def _administer(self, work: Callable[[sqlite3.Connection], None]) -> None:
        await self._write(work)
        self._generation += 1

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        with as_schema_error(PLACE):
            return await self._connection.run(query)
