"""The writer: one task, one connection. Takes units, commits many in one transaction, answers each."""

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from memory_engine.errors import MemoryEngineError, StorageFailed
from memory_engine.persistence import CommitUnit
from memory_engine.storage.sqlite.connection import Connection
from memory_engine.storage.sqlite.locking import FileLock
from memory_engine.storage.sqlite.transactions import Transactions

T = TypeVar("T")

UNITS_MAX = 64
"""Units in one transaction. More would let the first wait for the last."""
IDLE_S = 1.0
"""After this long without a commit the log file is folded into the database."""


class Writer:
    """Owns the write connection. `submit` and `run` may be called from the event loop only."""

    def __init__(self, connection: Connection, lock: FileLock, transactions: Transactions, path: str) -> None:
        self._connection = connection
        self._lock = lock
        self._transactions = transactions
        self._path = path
        self._waiting: deque[tuple[CommitUnit, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._failed: StorageFailed | None = None
        self._commits = 0
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._work())
        self._idle_task = loop.create_task(self._fold_when_idle())

    def submit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Queue a unit; it is committed with the others that wait."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._failed is not None:
            future.set_exception(self._failed)
        else:
            self._waiting.append((unit, future))
            self._wake.set()
        return future

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a transaction of its own between those of the units; it is rolled back if it raises."""
        if self._failed is not None:
            raise self._failed
        return await self._hop(lambda raw: self._in_transaction(raw, work))

    async def checkpoint(self, mode: str) -> None:
        """Fold the write-ahead log into the database, under the lock. `mode`: PASSIVE, FULL or TRUNCATE."""
        await self._hop(lambda raw: self._checkpoint(raw, mode))

    async def close(self) -> None:
        """Commit what waits, fold the log, and close, in the lock: closing the last connection checkpoints."""
        self._idle_task.cancel()
        while self._waiting and not self._task.done():
            await asyncio.wait([self._waiting[-1][1]])
        self._task.cancel()
        await asyncio.wait([self._task, self._idle_task])
        async with self._turn:
            if self._failed is None:
                with contextlib.suppress(MemoryEngineError):
                    await self._connection.run(lambda raw: self._checkpoint(raw, "TRUNCATE"))
            await self._connection.close()
        self._lock.close()

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch = [self._waiting.popleft() for _ in range(min(UNITS_MAX, len(self._waiting)))]
            units = [unit for unit, _ in batch]
            try:
                outcomes = await self._hop(lambda raw, units=units: self._commit(raw, units))  # type: ignore[misc]
            except MemoryEngineError as error:
                outcomes = [error] * len(batch)
            self._commits += 1
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.done():
                    continue
                if outcome is None:
                    future.set_result(None)
                else:
                    future.set_exception(outcome)

    async def _hop(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run on the connection's thread; a disk that fails makes the store read-only for good."""
        async with self._turn:
            try:
                return await self._connection.run(work)
            except StorageFailed as error:
                self._failed = error
                raise

    def _commit(self, raw: sqlite3.Connection, units: Sequence[CommitUnit]) -> list[MemoryEngineError | None]:
        with self._lock:
            return self._transactions.commit(raw, units)

    def _in_transaction(self, raw: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            raw.execute("BEGIN IMMEDIATE")
            try:
                result = work(raw)
                raw.execute("COMMIT")
            except BaseException:
                roll_back(raw)
                raise
            return result

    def _checkpoint(self, raw: sqlite3.Connection, mode: str) -> None:
        with self._lock:
            raw.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    async def _fold_when_idle(self) -> None:
        seen = folded = 0
        while True:
            await asyncio.sleep(IDLE_S)
            if self._commits == seen and folded != seen and self._failed is None:
                folded = seen
                with contextlib.suppress(MemoryEngineError):
                    await self.checkpoint("PASSIVE")
            seen = self._commits


def roll_back(raw: sqlite3.Connection) -> None:
    """End the transaction, if SQLite has not ended it itself."""
    if raw.in_transaction:
        raw.execute("ROLLBACK")
