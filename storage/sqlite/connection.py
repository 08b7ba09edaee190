"""A connection whose thread runs whole closures, and SQLite's errors as ours."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock, local
from typing import TypeVar, cast
from weakref import WeakSet

import aiosqlite
import msgspec

from memory_engine.core.aside import given_way
from memory_engine.errors import (
    EngineClosed,
    InvalidIdentifier,
    SchemaError,
    StorageBusy,
    StorageError,
    StorageFailed,
    StorageRefused,
)

T = TypeVar("T")

CACHE_KIB = 16 * 1024
"""What a reader keeps of the file while nobody writes: SQLite's own two megabytes hold a tenth of what searches see."""
OPENING_S = 0.005
"""Seconds that a query waits at most for a connection that is at work, before another is opened: it is rarely needed,
and to open the first takes one to three milliseconds of these."""
FORK_S = 1.0
"""Seconds that a fork waits at most for SQLite to be at rest."""
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_FAILING = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_READONLY,
    }
)  # fmt: skip
"""The primary codes that speak of the disk or of the whole file; any other one speaks of a statement or its rows."""


class Connection:
    """One SQLite connection on a thread of its own.

    A closure runs to its end there, even if the task that awaits it is cancelled: so a
    cancelled await never leaves a transaction open.
    """

    def __init__(self, path: str, make: Callable[[], aiosqlite.Connection], *, is_still: bool = False) -> None:
        self._path = path
        self.is_still = is_still
        """Whether it reads the file as if nobody wrote to it."""
        self._make = make
        self._made: aiosqlite.Connection | None = None
        self._writing: sqlite3.Connection | None = None
        self._open = True
        self._written = self._apart_from = ""
        self._changing = Lock()
        self.at_work = Lock()
        """Held while SQLite works for this connection (see `_rest`)."""
        _CONNECTIONS.add(self)

    @classmethod
    async def writer(
        cls, path: str, busy_timeout_s: float, factory: Callable[..., sqlite3.Connection] = sqlite3.Connection
    ) -> "Connection":
        """The connection that writes; `factory` is that of `sqlite3.connect`."""
        made = cls(path, lambda: _unconnected(plain_path(path), busy_timeout_s, factory, anywhere=True))
        made._written = real_path(path)
        _WRITTEN.append(made._written)
        try:
            await _let_go_of(made._written)
            made._made = await made._make()
            made._writing = made._made._conn
        except sqlite3.Error as error:
            made._end_writing()
            raise storage_error(path, error) from error
        return made

    @classmethod
    def reader(
        cls, path: str, busy_timeout_s: float, *, writes_nothing: bool = False, is_still: bool = False
    ) -> "Connection":
        """A connection that cannot write, opened with its first closure.

        `writes_nothing`: not to the shared memory beside the file either. `is_still`: nobody else writes, so that it
        needs no files beside.
        """
        return cls.readers(path, busy_timeout_s, 1, writes_nothing=writes_nothing, is_still=is_still)[0]

    @classmethod
    def readers(
        cls, path: str, busy_timeout_s: float, count: int, *, writes_nothing: bool = False, is_still: bool = False
    ) -> "list[Connection]":
        """Several of them, of the file that is there now, whatever the path names later."""
        place = Path(real_path(path))
        address = place.as_uri() + "?mode=ro" + ("&immutable=1" if is_still else "")

        def made() -> aiosqlite.Connection:
            # within a process all connections share one mapping of that memory: it must be writable where one writes
            is_apart = writes_nothing and str(place) not in _WRITTEN
            return _unconnected(address + "&readonly_shm=1" if is_apart else address, busy_timeout_s, uri=True)

        found = [cls(path, made, is_still=is_still) for _ in range(count)]
        if writes_nothing:
            for one in found:
                one._apart_from = str(place)
        return found

    def start(self, work: Callable[[sqlite3.Connection], T], ended: Callable[[T | BaseException], None]) -> None:
        """Start a closure on the connection's thread, after those started before: one hop, however many statements.

        `ended` is called on the event loop with the result, or with the error.
        aiosqlite has no public way to do this. Its own methods put a future and a function
        on the thread's queue, and the thread tells the future's loop to settle it; so does
        this, with a stand-in for the future that calls back at once instead of in the
        loop's next round. Only `start` and `run` depend on it.
        """
        if not self._open:
            raise EngineClosed
        self._put(_ThreadFuture(asyncio.get_running_loop(), lambda: False, ended, ended), lambda: work(self._raw()))

    def here(self) -> sqlite3.Connection:
        """SQLite's own connection, for the caller's thread. Only of a `writer`, and while nothing started runs."""
        if not self._open or self._writing is None:
            raise EngineClosed
        return self._writing

    @property
    def _begun(self) -> aiosqlite.Connection:
        """aiosqlite's connection, whose thread is started now if it is not yet."""
        if self._made is None:
            self._made = self._make()
            self._made._thread.start()
        return self._made

    def _raw(self) -> sqlite3.Connection:
        """SQLite's own connection, opened now if it is not yet. On the connection's thread."""
        begun = self._begun
        if begun._connection is None:
            begun._connection = begun._connector()
            begun._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return begun._connection

    def _put(self, outcome: "_ThreadFuture", work: Callable[[], object]) -> None:
        job = partial(given_way, partial(self._do, work))
        if not self._apart_from:
            self._begun._tx.put_nowait((cast("asyncio.Future[object]", outcome), job))
            return
        with self._changing:  # nothing is put where `let_go` has ended it
            self._begun._tx.put_nowait((cast("asyncio.Future[object]", outcome), job))

    def _do(self, work: Callable[[], T]) -> T:
        with self.at_work:
            return work()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a closure and wait for it.

        Raises the `StorageError` that SQLite's error stands for, `EngineClosed` after `close`.
        """
        if not self._open:
            raise EngineClosed
        loop = asyncio.get_running_loop()
        waited: asyncio.Future[T] = loop.create_future()
        self._put(_ThreadFuture(loop, waited.done, waited.set_result, waited.set_exception), lambda: work(self._raw()))
        try:
            return await waited
        except (FileExistsError, FileNotFoundError):  # of a backup's target: it says nothing about this file
            raise
        except (sqlite3.Error, OSError, OverflowError) as error:
            raise storage_error(self._path, error) from error
        except msgspec.DecodeError as error:  # a row that a query reads is damaged
            raise StorageRefused(self._path, str(error)) from error
        except UnicodeEncodeError as error:
            raise InvalidIdentifier("a text", ascii(error.object), "it holds a lone surrogate") from None

    @property
    def is_started(self) -> bool:
        """Whether it has been asked for anything yet."""
        return self._made is not None

    async def let_go(self) -> None:
        """Close it for now: its next closure opens it again."""
        with self._changing:
            made, self._made = self._made, None
            stopped = made.stop() if made is not None else None
        if stopped is not None:
            await stopped

    def _end_writing(self) -> None:
        if self._written:
            _WRITTEN.remove(self._written)
            self._written = ""

    async def close(self) -> None:
        """Close it and end its thread, in one hop."""
        was_open, self._open = self._open, False
        is_there = self._made is not None and (was_open or self._made._connection is not None)
        if is_there and (stopped := self._begun.stop()) is not None:
            await stopped
            self._begun._thread.join()  # it has nothing left to do but to end: who counts threads then counts none
        self._end_writing()


_CONNECTIONS: WeakSet[Connection] = WeakSet()
_WRITTEN: list[str] = []
"""The files that this process has open for writing, once for each connection."""


async def _let_go_of(path: str) -> None:
    """Have connections that write nothing open a file again, now that this process writes to it."""
    for one in list(_CONNECTIONS):
        if one._apart_from == path:
            await one.let_go()


class _Resting(local):
    """The locks that a thread holds while it forks."""

    def __init__(self) -> None:
        self.locks: list[Lock] = []


_RESTING = _Resting()


def _rest() -> None:
    """Before a fork, wait until SQLite works for no connection, and let no work begin.

    It has locks for the whole process: one that another thread holds at a fork is never released in the child, which
    then waits for ever at its first query.
    """
    until = time.monotonic() + FORK_S
    locks = (connection.at_work for connection in list(_CONNECTIONS))
    _RESTING.locks += (lock for lock in locks if lock.acquire(timeout=max(0.0, until - time.monotonic())))


def _work_on() -> None:
    while _RESTING.locks:
        _RESTING.locks.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_rest, after_in_parent=_work_on, after_in_child=_work_on)


class Readers:
    """Connections that read, each query on the one with the fewest. One that is never needed is never opened.

    To open one costs more than most queries, so while another is at work a query waits a moment for it to be free.
    """

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections
        self._at_work = [0] * len(connections)
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def at_work(self) -> int:
        """Queries that have not ended."""
        return sum(self._at_work)

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query. Raises what `Connection.run` raises."""
        if self.at_work and not self._freest[1].is_started:
            await self._moment()
        at, connection = self._freest
        self._at_work[at] += 1
        try:
            return await connection.run(query)
        finally:
            self._at_work[at] -= 1
            for waiter in self._waiting:
                _wake(waiter)

    @property
    def _freest(self) -> tuple[int, Connection]:
        at = min(range(len(self._at_work)), key=self._at_work.__getitem__)
        return at, self._connections[at]

    async def _moment(self) -> None:
        """Wait until a query has ended, for `OPENING_S` at most."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_later(OPENING_S, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.remove(waiter)

    async def close(self) -> None:
        """Close all of them."""
        await asyncio.gather(*(connection.close() for connection in self._connections))


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class _ThreadFuture:
    """The methods of a future that aiosqlite's thread uses, and no more."""

    __slots__ = ("_loop", "done", "set_exception", "set_result")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[], bool],
        set_result: Callable[..., None],
        set_exception: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self.done = done
        self.set_result = set_result
        self.set_exception = set_exception

    def get_loop(self) -> "_ThreadFuture":
        return self

    def call_soon_threadsafe(self, function: Callable[..., None], *arguments: object) -> None:
        """Tell the loop. One that has ended has nobody who waits, and the thread goes on for those of the next."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)


def _unconnected(
    target: str,
    busy_timeout_s: float,
    factory: Callable[..., sqlite3.Connection] = sqlite3.Connection,
    *,
    anywhere: bool = False,
    uri: bool = False,
) -> aiosqlite.Connection:
    connection = aiosqlite.connect(
        target,
        uri=uri,
        isolation_level=None,
        timeout=busy_timeout_s,
        cached_statements=256,
        factory=factory,
        check_same_thread=not anywhere,
    )
    connection._thread.daemon = True  # a store that nobody closed must not keep the process alive
    return connection


def real_path(path: str) -> str:
    """The file itself: SQLite's logs are beside it, not beside a link to it."""
    return os.path.realpath(path)


def plain_path(path: str) -> str:
    """The path for SQLite, which may take one that begins with `file:` for a URI, whatever it is told."""
    return path if os.path.isabs(path) else os.path.join(os.curdir, path)  # noqa: PTH117, PTH118 - as text, unchanged


def storage_error(path: str, error: sqlite3.Error | OSError | OverflowError) -> StorageError:
    """The error of the store that stands for one of SQLite's, of its file lock's, or for a number too large for it.

    Told apart by SQLite's code: `StorageFailed` only where the disk or the whole file fails.
    """
    if is_busy(error):
        return StorageBusy(path, 0.0)
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF == sqlite3.SQLITE_NOTADB:
        return SchemaError(path, "it is not an SQLite file; give a path of its own")
    return StorageFailed(path, str(error)) if is_failing(error) else StorageRefused(path, str(error))


def is_busy(error: sqlite3.Error | OSError | OverflowError) -> bool:
    """Whether another connection was in the way."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


def is_failing(error: sqlite3.Error | OSError | OverflowError) -> bool:
    """Whether the disk or the whole file fails, rather than a statement or a row.

    The further codes of SQLITE_CORRUPT (of an index, of the full-text index) leave the file as it is.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, OSError) or code & 0xFF in _FAILING or code == sqlite3.SQLITE_CORRUPT
