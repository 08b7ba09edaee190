"""A connection whose thread runs whole closures, and the one table from SQLite's errors to ours."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import aiosqlite

from memory_engine.errors import StorageBusy, StorageError, StorageFailed

T = TypeVar("T")

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Connection:
    """One SQLite connection on a thread of its own.

    A closure runs to its end there, whatever becomes of the task that awaits it: a
    cancelled await can so never leave a transaction open.
    """

    def __init__(self, connection: aiosqlite.Connection, path: str) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    async def writer(cls, path: str, busy_timeout_s: float) -> "Connection":
        """The connection that writes."""
        return cls(await _connect(path, path, busy_timeout_s), path)

    @classmethod
    async def reader(cls, path: str, busy_timeout_s: float) -> "Connection":
        """A connection that cannot write."""
        uri = Path(path).resolve().as_uri() + "?mode=ro"
        connection = cls(await _connect(uri, path, busy_timeout_s), path)
        await connection.run(lambda raw: raw.execute("PRAGMA query_only = 1"))
        return connection

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a closure on the connection's thread: one hop, however many statements.

        Raises the `StorageError` that SQLite's error stands for.
        """
        raw: sqlite3.Connection = self._connection._conn
        try:
            return await self._connection._execute(work, raw)
        except sqlite3.Error as error:
            raise storage_error(self._path, error) from error

    async def close(self) -> None:
        """Close it and end its thread."""
        await self._connection.close()


async def _connect(target: str, path: str, busy_timeout_s: float) -> aiosqlite.Connection:
    try:
        return await aiosqlite.connect(
            target, uri=target.startswith("file:"), isolation_level=None, timeout=busy_timeout_s, cached_statements=256
        )
    except sqlite3.Error as error:
        raise storage_error(path, error) from error


def storage_error(path: str, error: sqlite3.Error) -> StorageError:
    """What an error of SQLite's means to the user of a store."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _BUSY:
        return StorageBusy(path, 0.0)
    return StorageFailed(path, str(error))
