"""A connection whose thread runs whole closures, the lock between processes, and SQLite's errors as ours.

The lock is held around every transaction and checkpoint of the writer. SQLite before 3.51.3 can lose pages of a
write-ahead log that two connections write or checkpoint at the same instant; under this lock they never do.
"""

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar, cast

import aiosqlite

from memory_engine.errors import EngineClosed, InvalidIdentifier, SchemaError, StorageBusy, StorageError, StorageFailed

T = TypeVar("T")

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Connection:
    """One SQLite connection on a thread of its own.

    A closure runs to its end there, even if the task that awaits it is cancelled: so a
    cancelled await never leaves a transaction open.
    """

    def __init__(self, connection: aiosqlite.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._open = True

    @classmethod
    async def writer(
        cls, path: str, busy_timeout_s: float, factory: Callable[..., sqlite3.Connection] = sqlite3.Connection
    ) -> "Connection":
        """The connection that writes; `factory` is that of `sqlite3.connect`."""
        return cls(await _connect(path, path, busy_timeout_s, factory), path)

    @classmethod
    async def reader(cls, path: str, busy_timeout_s: float) -> "Connection":
        """A connection that cannot write."""
        connection = cls(await _connect(_read_only(path), path, busy_timeout_s), path)
        await connection.run(lambda raw: raw.execute("PRAGMA query_only = 1"))
        return connection

    def start(self, work: Callable[[sqlite3.Connection], T], ended: Callable[[T | BaseException], None]) -> None:
        """Start a closure on the connection's thread, after those started before: one hop, however many statements.

        `ended` is called on the event loop with the result, or with the error.
        aiosqlite has no public way to do this. Its own methods put a future and a function
        on the thread's queue, and the thread tells the future's loop to settle it; so does
        this, with a stand-in for the future that calls back at once instead of in the
        loop's next round. Only this method depends on it.
        """
        if not self._open:
            raise EngineClosed
        raw = self._connection._conn
        outcome = cast("asyncio.Future[T]", _ThreadFuture(asyncio.get_running_loop(), ended))
        self._connection._tx.put_nowait((outcome, lambda: work(raw)))

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a closure and wait for it.

        Raises the `StorageError` that SQLite's error stands for, `EngineClosed` after `close`.
        """
        if not self._open:
            raise EngineClosed
        raw = self._connection._conn
        try:
            return cast(T, await self._connection._execute(work, raw))  # type: ignore[no-untyped-call]
        except sqlite3.Error as error:
            raise storage_error(self._path, error) from error
        except OSError as error:  # of the lock's file
            raise StorageFailed(self._path, str(error)) from error
        except UnicodeEncodeError as error:
            raise InvalidIdentifier("a text", ascii(error.object), "it holds a lone surrogate") from None

    async def close(self) -> None:
        """Close it and end its thread."""
        self._open = False
        await self._connection.close()


class _ThreadFuture:
    """The methods of a future that aiosqlite's thread uses, and no more."""

    __slots__ = ("_ended", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[..., None]) -> None:
        self._loop = loop
        self._ended = ended

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def done(self) -> bool:
        return False

    def set_result(self, result: object) -> None:
        self._ended(result)

    def set_exception(self, error: BaseException) -> None:
        self._ended(error)


def _read_only(path: str) -> str:
    return Path(path).resolve().as_uri() + "?mode=ro"


async def _connect(
    target: str, path: str, busy_timeout_s: float, factory: Callable[..., sqlite3.Connection] = sqlite3.Connection
) -> aiosqlite.Connection:
    connection = aiosqlite.connect(
        target,
        uri=target.startswith("file:"),
        isolation_level=None,
        timeout=busy_timeout_s,
        cached_statements=256,
        factory=factory,
    )
    connection._thread.daemon = True  # a store that nobody closed must not keep the process alive
    try:
        return await connection
    except sqlite3.Error as error:
        raise storage_error(path, error) from error


def storage_error(path: str, error: sqlite3.Error) -> StorageError:
    """The error of the store that stands for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _BUSY:
        return StorageBusy(path, 0.0)
    if code == sqlite3.SQLITE_NOTADB:
        return SchemaError(path, "it is not an SQLite file; give a path of its own")
    return StorageFailed(path, str(error))


_POLL_S = 0.0005
_POLL_S_MAX = 0.01


class FileLock:
    """An advisory lock on `<path>.lock`. One owner: the writer's thread."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._file: IO[bytes] = open(path + ".lock", "ab")  # noqa: SIM115, PTH123 - held for the store's life
        self._descriptor = self._file.fileno()

    def __enter__(self) -> "FileLock":
        if not _try_lock(self._descriptor):
            self._wait()
        return self

    def _wait(self) -> None:
        began = time.monotonic()
        pause = _POLL_S
        while not _try_lock(self._descriptor):
            if time.monotonic() - began > self._timeout_s:
                raise StorageBusy(self._path, self._timeout_s)
            time.sleep(pause)
            pause = min(pause * 2, _POLL_S_MAX)

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        _unlock(self._descriptor)

    def mark(self) -> None:
        """Tell all processes, while it is held, that something was deleted or erased (see `Generation`)."""
        os.write(self._descriptor, b"\n")

    @property
    def descriptor(self) -> int:
        """The open file that holds the lock: a process that inherits it holds the lock too, until it ends."""
        return self._descriptor

    def close(self) -> None:
        """Release the lock. The file stays, since another process may be waiting on it."""
        self._file.close()


class Generation:
    """The number of deletions and erasures in a store's life, by all processes: the length of the lock's file.

    To look costs a microsecond or two, so every use of what is in memory can afford it.
    """

    def __init__(self, path: str) -> None:
        self._path = path + ".lock"

    @property
    def number(self) -> int:
        """The number now; 0 where the store has only been read."""
        try:
            return os.stat(self._path).st_size  # noqa: PTH116 - a third of the cost of a Path
        except OSError:
            return 0


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
