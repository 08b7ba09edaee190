"""The lock between processes, its queue of waiters, and its file's messages to them: leases of threads, and deletions.

The lock is held around every transaction and checkpoint of the writer. SQLite before 3.51.3 can lose pages of a
write-ahead log that two connections write or checkpoint at the same instant; under this lock they never do.
"""

import hashlib
import os
import struct
import sys
import threading
import time
from types import TracebackType
from typing import IO
from weakref import WeakSet

from memory_engine.errors import StorageBusy, StorageFailed, StoreReplaced

_POLL_FIRST_S = 0.00005
"""Between two looks of the one whose turn is next. The lock is held for less than a millisecond as a rule."""
_POLL_S = 0.0005
"""Between two looks of the others, and of the next in turn once it has waited long."""
_LONG_S = 0.05
_LOOK_S = 0.001
"""For so long after a look at other processes and at the store's file, a block of a burst begins without one."""


class FileLock:
    """An advisory lock on `<path>.lock`. The kernel releases it when its holder dies. One owner: the writer's thread.

    If it is taken, a process queues (`_WaitingLine`), so each has its turn. A holder may keep it over the end
    of its block for a moment, to come back with what it has to do again.
    A process that is forked off does not hold it: only its opener does. Once it watches the file, a block raises
    `StoreReplaced` if another file is in its place when it begins, or when it ends: nothing is acknowledged
    that went to an unlinked file. `marks` is the number of the `Generation` when the block began.
    """

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path = path
        self._lock_path = path + ".lock"
        self._timeout_s = timeout_s
        self._watched: tuple[int, int] | None = None
        self.marks = 0
        self._looked_s = 0.0
        self._open()
        self._keep_s = 0.0
        self._kept: threading.Timer | None = None
        self._changing = threading.Lock()
        _OPEN.add(self)

    def __enter__(self) -> "FileLock":
        self._keep_s = 0.0
        if self._kept is None or not self._is_still_held():  # the timer takes it away once it was released
            self._acquire()
        while not self._is_in_place():
            self._file.close()  # it was removed: others hold another one
            self._open()
            self._acquire()
        self._begin()
        return self

    def try_enter(self) -> bool:
        """Begin a block if that is possible at once; `leave` ends it. Raises `StoreReplaced`.

        In a burst of blocks, the store's file and the queue are looked at once a millisecond: each look is a call of
        the system, and the end of every block looks at the file anyway.
        """
        self._keep_s = 0.0
        now = time.monotonic()
        looks = now - self._looked_s >= _LOOK_S
        is_held = self._kept is not None and self._is_still_held()
        if not (is_held or ((not looks or self._line.is_empty()) and _try_lock(self._descriptor))):
            return False
        if not self._is_in_place(fully=looks):
            _unlock(self._descriptor)
            return False
        if looks:
            self._begin()
            self._looked_s = now
        return True

    def _is_in_place(self, *, fully: bool = True) -> bool:
        """Whether the file that is locked is the one that others find. Takes its length.

        `fully`: it may also have been renamed; without that, only one that was removed or replaced is noticed.
        """
        try:
            found = os.stat(self._lock_path) if fully else os.fstat(self._descriptor)  # noqa: PTH116 - as in `_stat`
        except OSError:
            return False
        if not found.st_nlink or (found.st_dev, found.st_ino) != self._own:
            return False
        self.marks = found.st_size
        return True

    def _begin(self) -> None:
        try:
            self._check()
        except StorageFailed:
            _unlock(self._descriptor)
            raise

    def _open(self) -> None:
        try:
            self._file: IO[bytes] = open(self._lock_path, "ab")  # noqa: SIM115, PTH123 - held for the store's life
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
        try:
            now = os.stat(self._path)  # noqa: PTH116 - as in `_stat`
        except OSError:
            raise StoreReplaced(self._path, "it was removed") from None
        if (now.st_dev, now.st_ino) != self._watched:
            raise StoreReplaced(self._path, "another file took its place")

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
                    raise StorageBusy(self._path, waited)
                time.sleep(_POLL_FIRST_S if is_next and waited < _LONG_S else _POLL_S)
        finally:
            self._line.leave(place)

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.leave(failed=kind is not None)

    def leave(self, *, failed: bool = False) -> None:
        """End a block. Raises `StoreReplaced`, unless it has `failed` anyway."""
        if self._keep_s:
            kept = threading.Timer(self._keep_s, lambda: self._let_go(kept))
            kept.daemon = True
            self._kept = kept
            kept.start()
        else:
            _unlock(self._descriptor)
        if not failed:
            self._check()

    def keep(self, seconds: float) -> None:
        """Hold it on for a while after the end of this block, unless another block of this process begins before."""
        self._keep_s = seconds

    @property
    def is_wanted(self) -> bool:
        """Whether others wait for it (never, if there is no queue)."""
        return not self._line.is_empty()

    def _let_go(self, kept: threading.Timer) -> None:
        with self._changing:
            if self._kept is kept:
                _unlock(self._descriptor)  # first: one that finds nothing kept takes the lock, which must stay taken
                self._kept = None

    def mark(self) -> None:
        """Notify all processes, while holding it, that something was deleted or erased (see `Generation`)."""
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
"""Below it are the bytes of the queue, from it on the bytes of threads."""


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
            try:
                self._file = open(self._path, "ab")  # noqa: SIM115, PTH123 - held for the store's life
            except OSError as error:
                raise StorageFailed(self._path, str(error)) from error
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
    """The processes that wait for the lock, in order of arrival: each locks the byte numbered by its arrival time.

    The kernel releases the byte of a process that dies, so no one waits for the dead. Only the order depends on
    it, never who holds the lock. Where there are no such locks (they belong to an open file, not to a process, and
    only Linux has them in Python) there is no queue, and chance decides.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def is_empty(self) -> bool:
        """Whether no process waits."""
        return not _is_locked(self._descriptor, 0, _LEASES)

    def join(self) -> int:
        """Stand at the end. Returns the place."""
        place = time.monotonic_ns()
        _set_bytes(self._descriptor, place, locked=True)
        return place

    def is_next(self, place: int) -> bool:
        """Whether no process came before."""
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
    _UNLOCKED = struct.pack("h", fcntl.F_UNLCK)

    def _is_locked(descriptor: int, start: int, count: int) -> bool:
        """Whether another open file has locked one of these bytes; a count of 0 means all that follow."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, count, 0)
        try:
            return not fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked).startswith(_UNLOCKED)
        except OSError:
            return False

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
