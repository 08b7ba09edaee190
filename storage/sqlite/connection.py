"""A connection whose thread runs whole closures, and SQLite's errors as ours."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock, Thread, local
from traceback import clear_frames
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakSet, finalize

import msgspec

from memory_engine.core.aside import given_way
from memory_engine.core.lazy import lazy_module
from memory_engine.errors import (
    EngineClosed,
    InvalidIdentifier,
    StorageBusy,
    StorageError,
    StorageFailed,
    StorageRefused,
)
from memory_engine.storage.driver import Factory, StoreFile, code_of, errors, not_a_database, real_path

if TYPE_CHECKING:
    import aiosqlite
else:
    aiosqlite = lazy_module("aiosqlite")

T = TypeVar("T")

CACHE_KIB = 16 * 1024
"""A reader's cache of the file between writes: SQLite's own two megabytes hold a tenth of the pages of a search."""
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
_WAITED = "waited_s"
"""The fact of an error of SQLite's that says how long its work took: waiting for others, where they were in the way."""


class Connection:
    """One SQLite connection on a thread of its own.

    A closure runs to its end there, even if the task that awaits it is cancelled: so a
    cancelled await never leaves a transaction open.
    """

    def __init__(self, path: str, opened: Callable[[], sqlite3.Connection], *, is_still: bool = False) -> None:
        """`opened` opens SQLite's own connection, on the thread and when it is first needed."""
        self._path = path
        self.is_still = is_still
        """Whether it reads the file on the assumption that no one writes to it."""
        self._opened = opened
        self._worker: aiosqlite.Connection | None = None
        self.sqlite: sqlite3.Connection | None = None
        """SQLite's own connection, once it is open; for other threads only a `writer`'s, while nothing started runs."""
        self._open = True
        self._written = self._apart_from = ""
        self._changing = Lock()
        self.at_work = Lock()
        """Held while SQLite works for this connection (see `_rest`)."""
        _CONNECTIONS.add(self)

    @classmethod
    async def writer(cls, file: StoreFile | str, busy_timeout_s: float, factory: Factory | None = None) -> "Connection":
        """The connection that writes; `factory` is that of `sqlite3.connect`."""
        file = StoreFile(file) if isinstance(file, str) else file
        made = cls(file.path, lambda: file.connect(timeout_s=busy_timeout_s, factory=factory, anywhere=True))
        made._written = real_path(file.path)
        _WRITTEN.append(made._written)
        try:
            await _let_go_of(made._written)
            await made.run(lambda _: None)
        except BaseException:  # after any error no thread of a connection may stay behind; it goes on to the caller
            await made.close()
            raise
        return made

    @classmethod
    def reader(
        cls, file: StoreFile | str, busy_timeout_s: float, *, writes_nothing: bool = False, is_still: bool = False
    ) -> "Connection":
        """A connection that cannot write, opened with its first closure.

        `writes_nothing`: not to the shared memory next to the file either. `is_still`: no one else writes, so that it
        needs no other files.
        """
        return cls.readers(file, busy_timeout_s, 1, writes_nothing=writes_nothing, is_still=is_still)[0]

    @classmethod
    def readers(
        cls,
        file: StoreFile | str,
        busy_timeout_s: float,
        count: int,
        *,
        writes_nothing: bool = False,
        is_still: bool = False,
    ) -> "list[Connection]":
        """Several of them, of the file that is there now, whatever the path names later."""
        file = StoreFile(file) if isinstance(file, str) else file
        place = Path(real_path(file.path))
        target = place.as_uri() + "?mode=ro" + ("&immutable=1" if is_still else "")

        def opened() -> sqlite3.Connection:
            # within a process all connections share one mapping of that memory: it must be writable where one writes
            is_apart = writes_nothing and not is_written(str(place))
            return file.connect(target + "&readonly_shm=1" if is_apart else target, timeout_s=busy_timeout_s)

        found: list[Connection] = [cls(file.path, opened, is_still=is_still) for _ in range(count)]
        if writes_nothing:
            for one in found:
                one._apart_from = str(place)
        return found

    def start(self, work: Callable[[sqlite3.Connection], T], ended: Callable[[T | BaseException], None]) -> None:
        """Start a closure on the connection's thread, after those started before: one hop, however many statements.

        `ended` is called on the event loop with the result, or with the error.
        aiosqlite has no public way to do this. Its own methods put a future and a function
        on the thread's queue, and the thread asks the future's loop to settle it; so does
        this, with a stand-in for the future that calls back at once instead of in the
        loop's next round. All releases since 0.17 do it so, and only `_put` depends on it.
        """
        if not self._open:
            raise EngineClosed
        self._put(_ThreadFuture(asyncio.get_running_loop(), lambda: False, ended, ended), lambda: work(self._raw()))

    def _raw(self) -> sqlite3.Connection:
        """SQLite's own connection, opened now if it is not yet. On the connection's thread."""
        if self.sqlite is None:
            self.sqlite = self._opened()
            if not self._written:
                self.sqlite.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return self.sqlite

    def reopened(self) -> sqlite3.Connection:
        """Open SQLite's own connection again, whether it was closed or not. On the connection's thread."""
        self._shut()
        return self._raw()

    def _shut(self) -> None:
        there, self.sqlite = self.sqlite, None
        if there is not None:
            there.close()

    def _put(self, outcome: "_ThreadFuture", work: Callable[[], object]) -> None:
        """Put a closure on the thread's queue; the thread is started with the first one.

        What aiosqlite opens connections with is public: a function that it calls. It is never called here, where each
        closure opens what it needs, but the thread and its queue are aiosqlite's.
        """
        if self._worker is None:
            self._worker = aiosqlite.Connection(self._opened, iter_chunk_size=1)
            thread = _thread_of(self._worker)
            thread.daemon = True  # a store that was not closed must not keep the process alive
            thread.start()
        job = partial(given_way, partial(self._do, work))
        self._worker._tx.put_nowait((cast("asyncio.Future[object]", outcome), job))

    def _do(self, work: Callable[[], T]) -> T:
        with self.at_work:
            began = time.monotonic()
            try:
                return work()
            except BaseException as error:  # it goes on to whoever waits
                if isinstance(error, errors()):
                    vars(error)[_WAITED] = time.monotonic() - began
                _let_go_of_cursors(error)
                raise

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a closure and wait for it.

        Raises the store's error for SQLite's error, `EngineClosed` after `close`.
        """
        if not self._open:
            raise EngineClosed
        try:
            return await self._done(lambda: work(self._raw()))
        except (FileExistsError, FileNotFoundError):  # of a backup's target: it says nothing about this file
            raise
        except errors() as error:
            raise storage_error(self._path, error) from error
        except (OSError, OverflowError) as error:
            raise storage_error(self._path, error) from error
        except msgspec.DecodeError as error:  # a row that a query reads is damaged
            raise StorageRefused(self._path, str(error)) from error
        except UnicodeEncodeError as error:
            raise InvalidIdentifier("a text", ascii(error.object), "it holds a lone surrogate") from None

    def _done(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """A future of what a closure gives on the connection's thread."""
        loop = asyncio.get_running_loop()
        waited: asyncio.Future[T] = loop.create_future()
        self._put(_ThreadFuture(loop, waited.done, waited.set_result, waited.set_exception), work)
        return waited

    @property
    def is_started(self) -> bool:
        """Whether it has been asked for anything yet."""
        return self._worker is not None

    async def rest(self) -> None:
        """Close SQLite's own connection, after earlier closures. The next closure opens another.

        Also one of another event loop, and one that was left behind by a fork: that has no thread any more.
        """
        with self._changing:  # nothing is put after what ends the thread
            is_there = self._open and self._worker is not None and _thread_of(self._worker).is_alive()
            rested = self._done(self._shut) if is_there else None
        if rested is not None:
            await rested

    async def close(self) -> None:
        """Close it and end its thread, in one hop."""
        with self._changing:
            was_open, self._open = self._open, False
            shut = self._done(self._shut) if was_open and self._worker is not None else None
            if shut is not None and self._worker is not None:
                _stop_worker(self._worker)
        if shut is not None and self._worker is not None:
            await shut
            _thread_of(self._worker).join()  # it has nothing left to do but to end: who counts threads then counts none
        if self._written:
            _WRITTEN.remove(self._written)
            self._written = ""


class HereConnection(Connection):
    """A connection whose closures run at once, on the caller's thread: to a database in memory, no one waits."""

    def here(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a closure. Raises SQLite's errors, and `EngineClosed` after `close`."""
        if not self._open:
            raise EngineClosed
        return self._do(lambda: work(self._raw()))

    def _put(self, outcome: "_ThreadFuture", work: Callable[[], object]) -> None:
        try:
            result = self._do(work)
        except BaseException as error:  # it goes on to whoever waits
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    def _do(self, work: Callable[[], T]) -> T:
        with self.at_work:
            return work()

    def _raw(self) -> sqlite3.Connection:
        is_new, raw = self.sqlite is None, super()._raw()
        if is_new:  # whoever only drops it has nothing to lose: no warning that it was not closed
            finalize(self, raw.close)
        return raw

    async def close(self) -> None:
        """Close it."""
        self._open = False
        self._shut()


def _let_go_of_cursors(error: BaseException) -> None:
    """End the queries that an error has interrupted: whoever keeps it keeps their cursors, in the frames it passed.

    A query amid its rows reads the file of the moment it began, also once its connection is closed. Nothing could be
    destroyed for good before the error itself is forgotten.
    """
    at: BaseException | None = error
    while at is not None:
        clear_frames(at.__traceback__)
        at = at.__context__


_CONNECTIONS: WeakSet[Connection] = WeakSet()
_WRITTEN: list[str] = []
"""The files that this process has open for writing, once for each connection."""


def is_written(path: str) -> bool:
    """Whether this process has a file open for writing; the path is a `real_path`."""
    return path in _WRITTEN


async def _let_go_of(path: str) -> None:
    """Have connections that write nothing open a file again, now that this process writes to it."""
    for one in list(_CONNECTIONS):
        if one._apart_from == path:
            await one.rest()


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

    async def rest(self) -> None:
        """Close SQLite's own connections, each after its earlier queries; the next query opens others."""
        await asyncio.gather(*(connection.rest() for connection in self._connections))

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
        """Notify the loop. No one waits in a loop that has ended, and the thread continues for the next one."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)


def _thread_of(worker: "aiosqlite.Connection") -> Thread:
    """The thread behind a connection of aiosqlite, which was one itself before 0.22."""
    return cast("Thread", getattr(worker, "_thread", worker))


def _stop_worker(worker: "aiosqlite.Connection") -> None:
    """Let the thread end after what it was given; aiosqlite has had three ways to say so."""
    stop = getattr(worker, "stop", None) or getattr(worker, "_stop_running", None)
    if stop is not None:
        stop()
    else:  # before 0.20: at its next look at an empty queue
        worker._running = False


def configure(raw: sqlite3.Connection, *, syncs: bool) -> None:
    """The settings of a connection that writes. In the lock: the first of them may change the file."""
    raw.execute("PRAGMA journal_mode = WAL").fetchone()
    raw.execute(f"PRAGMA synchronous = {'FULL' if syncs else 'NORMAL'}")
    raw.execute("PRAGMA wal_autocheckpoint = 0")  # the writer does it, between commits
    raw.execute("PRAGMA secure_delete = OFF")


def storage_error(path: str, error: sqlite3.Error | OSError | OverflowError) -> StorageError:
    """The store's error for one of SQLite's, of its file lock's, or for a number too large for it.

    Told apart by SQLite's code: `StorageFailed` only where the disk or the whole file fails.
    """
    if is_busy(error):
        return StorageBusy(path, vars(error).get(_WAITED, 0.0))
    if isinstance(error, errors()) and code_of(error) == sqlite3.SQLITE_NOTADB:
        return not_a_database(path, error)
    return StorageFailed(path, str(error)) if is_failing(error) else StorageRefused(path, str(error))


def is_busy(error: BaseException) -> bool:
    """Whether another connection was in the way."""
    return code_of(error) in _BUSY


def is_failing(error: sqlite3.Error | OSError | OverflowError) -> bool:
    """Whether the disk or the whole file fails, rather than a statement or a row.

    The further codes of SQLITE_CORRUPT (of an index, of the full-text index) leave the file unchanged.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, OSError) or code & 0xFF in _FAILING or code == sqlite3.SQLITE_CORRUPT
