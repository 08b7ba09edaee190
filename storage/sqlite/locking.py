"""The lock between processes: held around every transaction and checkpoint of the writer.

SQLite before 3.51.3 can lose pages of a write-ahead log that two connections write or
checkpoint at the same instant. Under this lock they never do.
"""

import os
import sys
import time
from types import TracebackType
from typing import IO

from memory_engine.errors import StorageBusy

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

    def close(self) -> None:
        """Let go of the file; it stays, since another process may be waiting on it."""
        self._file.close()


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
