"""The seam where a test makes the disk fail: what the writing connection is about to do, and what it has done.

Only a store that was opened with `faults` has it: its connection and its lock are of the classes here. See
`memory_engine.testing.Faults`.
"""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeVar

from memory_engine.storage.sqlite.locking import FileLock

T = TypeVar("T")

Point = Literal["lock", "begin", "write", "commit", "checkpoint", "sync", "rename", "clock"]
"""The lock between processes; a transaction's first statement, each that changes rows, its commit (where SQLite writes
the write-ahead log, and with `durability="full"` syncs it); a checkpoint, which writes, syncs and truncates files; of a
backup or an export the sync, and the renaming or linking by which it is there; a reading of the clock."""
_POINTS: dict[str, Point] = {
    "BEGIN": "begin",
    "INSERT": "write",
    "UPDATE": "write",
    "DELETE": "write",
    "COMMIT": "commit",
    "PRAGMA wal_checkpoint": "checkpoint",
}


class FaultPlan(Protocol):
    """Called at every point. An error of it is raised there; it runs on the connection's thread."""

    def before(self, point: Point) -> None:
        """Something is about to be done."""

    def after(self, point: Point) -> None:
        """It is done; an error now loses its outcome."""


def connecting(plan: FaultPlan, base: type[sqlite3.Connection] = sqlite3.Connection) -> type[sqlite3.Connection]:
    """A factory, as `sqlite3.connect` takes one, of connections that report to this plan."""

    class Told(base):  # type: ignore[misc, valid-type]  # that of the driver
        def execute(self, sql: str, parameters: object = ()) -> sqlite3.Cursor:
            made: sqlite3.Cursor = _at_sql_point(plan, sql, lambda: super(Told, self).execute(sql, parameters))
            return made

        def executemany(self, sql: str, parameters: Iterable[object]) -> sqlite3.Cursor:
            made: sqlite3.Cursor = _at_sql_point(plan, sql, lambda: super(Told, self).executemany(sql, parameters))
            return made

    return Told


class ToldLock(FileLock):
    """A lock that reports to a plan before it is taken and after."""

    def __init__(self, path: str, timeout_s: float, plan: FaultPlan) -> None:
        super().__init__(path, timeout_s)
        self._plan = plan

    def __enter__(self) -> FileLock:
        self._plan.before("lock")
        super().__enter__()
        self._tell()
        return self

    def try_enter(self) -> bool:
        """Tell the plan only where a block begins."""
        self._plan.before("lock")
        if not super().try_enter():
            return False
        self._tell()
        return True

    def _tell(self) -> None:
        try:
            self._plan.after("lock")
        except BaseException:  # a block that was never entered is never left
            self.__exit__(None, None, None)
            raise


def _at_sql_point(plan: FaultPlan, sql: str, act: Callable[[], T]) -> T:
    point = next((point for start, point in _POINTS.items() if sql.startswith(start)), None)
    if point is None:
        return act()
    plan.before(point)
    done = act()
    plan.after(point)
    return done


def disk_full() -> sqlite3.Error:
    """SQLite's error where a disk has no room."""
    return _sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full")


def disk_error() -> sqlite3.Error:
    """SQLite's error where a write or a sync failed."""
    return _sqlite_error(sqlite3.SQLITE_IOERR, "disk I/O error")


def _sqlite_error(code: int, message: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error
