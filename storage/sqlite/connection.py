"""A connection whose thread runs whole closures, the lock between processes, and SQLite's errors as ours.

The lock is held around every transaction and checkpoint of the writer. SQLite before 3.51.3 can lose pages of a
write-ahead log that two connections write or checkpoint at the same instant; under this lock they never do.
"""

import asyncio
import hashlib
import os
import sqlite3
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar, cast
from weakref import WeakSet

import aiosqlite
import msgspec

from memory_engine.errors import (
    EngineClosed,
    InvalidIdentifier,
    SchemaError,
    StorageBusy,
    StorageError,
    StorageFailed,
    StorageRefused,
    StoreReplaced,
)

T = TypeVar("T")

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
    async def reader(cls, path: str, busy_timeout_s: float, *, is_still: bool = False) -> "Connection":
        """A connection that cannot write. `is_still`: nobody else writes either, so that it needs no files beside."""
        target = _read_only(path) + ("&immutable=1" if is_still else "")
        connection = cls(await _connect(target, path, busy_timeout_s), path)
        await connection.run(lambda raw: raw.execute("PRAGMA query_only = 1"))
        return connection

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
        raw = self._connection._conn
        self._put(_ThreadFuture(asyncio.get_running_loop(), lambda: False, ended, ended), lambda: work(raw))

    def _put(self, outcome: "_ThreadFuture", work: Callable[[], object]) -> None:
        self._connection._tx.put_nowait((cast("asyncio.Future[object]", outcome), work))

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a closure and wait for it.

        Raises the `StorageError` that SQLite's error stands for, `EngineClosed` after `close`.
        """
        if not self._open:
            raise EngineClosed
        raw, loop = self._connection._conn, asyncio.get_running_loop()
        waited: asyncio.Future[T] = loop.create_future()
        self._put(_ThreadFuture(loop, waited.done, waited.set_result, waited.set_exception), lambda: work(raw))
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

    async def close(self) -> None:
        """Close it and end its thread."""
        self._open = False
        await self._connection.close()


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


def storage_error(path: str, error: sqlite3.Error | OSError | OverflowError) -> StorageError:
    """The error of the store that stands for one of SQLite's, of its file lock's, or for a number too large for it.

    Told apart by SQLite's code: `StorageFailed` only where the disk or the whole file fails.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF in _BUSY:
        return StorageBusy(path, 0.0)
    if code & 0xFF == sqlite3.SQLITE_NOTADB:
        return SchemaError(path, "it is not an SQLite file; give a path of its own")
    return StorageFailed(path, str(error)) if is_failing(error) else StorageRefused(path, str(error))


def is_failing(error: sqlite3.Error | OSError | OverflowError) -> bool:
    """Whether the disk or the whole file fails, rather than a statement or a row.

    The further codes of SQLITE_CORRUPT (of an index, of the full-text index) leave the file as it is.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, OSError) or code & 0xFF in _FAILING or code == sqlite3.SQLITE_CORRUPT


_POLL_FIRST_S = 0.00005
"""Between two looks of the one whose turn is next. The lock is held for less than a millisecond as a rule."""
_POLL_S = 0.0005
"""Between two looks of the others, and of the next in turn once it has waited long."""
_LONG_S = 0.05


class FileLock:
    """An advisory lock on `<path>.lock`. The kernel releases it when its holder dies. One owner: the writer's thread.

    Who finds it taken stands in line (`_WaitingLine`), so every process has its turn. A holder may keep it over the end
    of its block for a moment, to come back with what it has to do again.
    A process that is forked off does not hold it: only its opener does. Once it watches the file, a block raises
    `StoreReplaced` where another file stands in its place when it begins, or when it ends: nothing is acknowledged
    that went to a file which nobody will find. `marks` is the number of the `Generation` when the block began.
    """

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._watched: tuple[int, int] | None = None
        self.marks = 0
        self._open()
        self._keep_s = 0.0
        self._kept: threading.Timer | None = None
        self._changing = threading.Lock()
        _OPEN.add(self)

    def __enter__(self) -> "FileLock":
        self._keep_s = 0.0
        if not self._is_still_held():
            self._acquire()
        while (found := _stat(self._path + ".lock")) is None or _identity(found) != self._own:
            self._file.close()  # it was removed: others hold another one
            self._open()
            self._acquire()
        self.marks = found.st_size
        try:
            self._check()
        except StorageFailed:
            _unlock(self._descriptor)
            raise
        return self

    def _open(self) -> None:
        try:
            self._file: IO[bytes] = open(self._path + ".lock", "ab")  # noqa: SIM115, PTH123 - held for the store's life
        except OSError as error:
            raise StorageFailed(self._path, str(error)) from error
        self._descriptor = self._file.fileno()
        self._own = _identity(os.fstat(self._descriptor))
        self._line = _WaitingLine(self._descriptor)

    def watch(self) -> None:
        """From now on, see to it that the file of the store stays the one that it is."""
        self._watched = _identity(os.stat(self._path))  # noqa: PTH116 - as in `_stat`

    def _check(self) -> None:
        if self._watched is None:
            return
        if (now := _stat(self._path)) is None or _identity(now) != self._watched:
            raise StoreReplaced(self._path, "it was removed" if now is None else "another file took its place")

    def _acquire(self) -> None:
        if not (self._line.is_empty() and _try_lock(self._descriptor)):
            self._wait()

    def _is_still_held(self) -> bool:
        with self._changing:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept.cancel()
        return kept is not None

    def _wait(self) -> None:
        began = time.monotonic()
        place = self._line.join()
        try:
            while not ((is_next := self._line.is_next(place)) and _try_lock(self._descriptor)):
                waited = time.monotonic() - began
                if waited > self._timeout_s:
                    raise StorageBusy(self._path, self._timeout_s)
                time.sleep(_POLL_FIRST_S if is_next and waited < _LONG_S else _POLL_S)
        finally:
            self._line.leave(place)

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._keep_s:
            kept = threading.Timer(self._keep_s, lambda: self._let_go(kept))
            kept.daemon = True
            self._kept = kept
            kept.start()
        else:
            _unlock(self._descriptor)
        if kind is None:
            self._check()

    def keep(self, seconds: float) -> None:
        """Hold it on for a while after the end of this block, unless another block of this process begins before."""
        self._keep_s = seconds

    @property
    def is_wanted(self) -> bool:
        """Whether others wait for it (never, where nobody stands in line)."""
        return not self._line.is_empty()

    def _let_go(self, kept: threading.Timer) -> None:
        with self._changing:
            if self._kept is kept:
                self._kept = None
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
        self._is_still_held()
        self.disown()

    def disown(self) -> None:
        """Close what holds it here, and release nothing that another process holds by it."""
        self._file.close()


_OPEN: "WeakSet[FileLock | Leases]" = WeakSet()


def _leave_to_the_parent() -> None:
    """In a process that was forked off: a copy of a descriptor would hold the lock on after the parent's death."""
    for holder in list(_OPEN):
        holder.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


class Generation:
    """The number of deletions and erasures in a store's life, by all processes: the length of the lock's file.

    To look costs a microsecond or two, so every use of what is in memory can afford it.
    """

    def __init__(self, path: str) -> None:
        self._path = path + ".lock"

    @property
    def number(self) -> int:
        """The number now; 0 where the store has only been read."""
        found = _stat(self._path)
        return 0 if found is None else found.st_size


def _stat(path: str) -> os.stat_result | None:
    """The facts of a file; `None` for none."""
    try:
        return os.stat(path)  # noqa: PTH116 - a third of the cost of a Path, and at every commit
    except OSError:
        return None


def _identity(found: os.stat_result) -> tuple[int, int]:
    """Which file it is."""
    return found.st_dev, found.st_ino


_LEASES = 1 << 62
"""Below it stand the places in line, from it on the bytes of threads."""


class Leases:
    """Which threads of the store this engine works on, as locks on bytes of `<path>.lock`, one for each thread.

    The kernel releases them when the process dies, however it dies and whatever its clock says.
    """

    def __init__(self, path: str) -> None:
        self._path = path + ".lock"
        self._file: IO[bytes] | None = None
        _OPEN.add(self)

    def take(self, thread_id: str) -> bool | None:
        """Take a thread; whether no other engine has it. `None` where the kernel has no such locks."""
        if sys.platform != "linux":
            return None
        if self._file is None:
            self._file = open(self._path, "ab")  # noqa: SIM115, PTH123 - held for the store's life
        return _set_bytes(self._file.fileno(), _byte_of(thread_id), locked=True)

    def release(self, thread_id: str) -> None:
        """Give it back."""
        if self._file is not None:
            _set_bytes(self._file.fileno(), _byte_of(thread_id), locked=False)

    def disown(self) -> None:
        """Give everything back."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _byte_of(thread_id: str) -> int:
    digest = hashlib.blake2b(thread_id.encode(), digest_size=8).digest()
    return _LEASES | int.from_bytes(digest, "big") >> 2


class _WaitingLine:
    """Who waits for the lock, in order of arrival: each locks the byte of the file whose number is the time it came.

    The kernel releases the byte of a process that dies, so nobody waits for the dead. The order is all that rests on
    it, never who holds the lock. Where there are no such locks (they belong to an open file, not to a process, and
    only Linux has them in Python) nobody stands in line, and chance decides.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def is_empty(self) -> bool:
        """Whether nobody waits."""
        return not _is_locked(self._descriptor, 0, _LEASES)

    def join(self) -> int:
        """Stand at the end. Returns the place."""
        place = time.monotonic_ns()
        _set_bytes(self._descriptor, place, locked=True)
        return place

    def is_next(self, place: int) -> bool:
        """Whether nobody came before."""
        return not _is_locked(self._descriptor, 0, place)

    def leave(self, place: int) -> None:
        """Go away."""
        _set_bytes(self._descriptor, place, locked=False)


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


if sys.platform == "linux":
    _FLOCK = struct.Struct("hhqqi0q")

    def _is_locked(descriptor: int, start: int, count: int) -> bool:
        """Whether another open file has locked one of these bytes; a count of 0 means all that follow."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, count, 0)
        try:
            (kind, *_) = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
        except OSError:
            return False
        return bool(kind != fcntl.F_UNLCK)

    def _set_bytes(descriptor: int, start: int, *, locked: bool) -> bool:
        kind = fcntl.F_WRLCK if locked else fcntl.F_UNLCK
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, 1, 0))
        except OSError:
            return False
        return True

else:

    def _is_locked(descriptor: int, start: int, count: int) -> bool:
        return False

    def _set_bytes(descriptor: int, start: int, *, locked: bool) -> bool:
        return False
