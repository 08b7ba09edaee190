"""The disk of a simulated process: faults at the store's own seam, what it holds open, and what a kill leaves."""

import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, cast
from unittest.mock import patch
from weakref import ref

from memory_engine.storage.sqlite.faults import Point
from memory_engine.storage.sqlite.locking import FileLock, Leases
from memory_engine.testing import Faults
from tests.simulator.loop import OWNER, Dying, Owner

SUFFIXES = ("", "-wal", ".lock")


class Crashed(Dying):
    """The process is dead: nothing of it goes on."""


class Disk(Faults):
    """`Faults`, and a death at one of its points."""

    def die(self, point: Point, act: Callable[[], None], *, nth: int, when: Literal["before", "after"]) -> None:
        """Do `act` there, and go no further."""

        def dead() -> None:
            act()
            raise Crashed

        self._plan(point, nth, when, dead)

    def plans_end(self) -> None:
        """Plan nothing any more."""
        self._plans.clear()

    def failing_reads(self, error: Exception, nth: int) -> None:
        """Fail the n-th query of a reader from now on."""
        self.fail(cast("Point", "read"), error, nth=nth)


class DiskOwner(Owner):
    """A process with what it holds open: connections, and programs that it started."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.connections: list[ref[sqlite3.Connection]] = []
        self.programs: list[subprocess.Popen[bytes]] = []
        self.locks: list[FileLock | Leases] = []

    def let_go(self) -> None:
        """Close what the kernel closes when a process dies: files and with them locks, and ends of pipes."""
        for lock in self.locks:
            lock.disown()
        for program in self.programs:
            for pipe in (program.stdin, program.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            program.wait()
        for connection in filter(None, [known() for known in self.connections]):
            with suppress(sqlite3.Error):
                connection.rollback()  # a statement that somebody still holds would keep the file locked
            with suppress(sqlite3.Error):
                connection.close()
        self.programs.clear()
        self.connections.clear()


def _owner() -> DiskOwner | None:
    return cast("DiskOwner | None", OWNER.get())


def _watched(factory: type[sqlite3.Connection], *, reads: bool) -> type[sqlite3.Connection]:
    """Connections that never wait for others (each job is done whole, so nobody would end meanwhile)."""

    class Watched(factory):  # type: ignore[misc,valid-type]
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if sql.startswith("PRAGMA busy_timeout"):
                sql, rest = "SELECT 0", ()
            if reads and sql.startswith("SELECT") and (owner := _owner()) is not None:
                owner.disk.before(cast("Point", "read"))
            return cast("sqlite3.Cursor", super().execute(sql, *rest))

    return Watched


def _noted(made: Callable[..., None]) -> Callable[..., None]:
    """The `__init__` of something that holds a lock, with a note of whose it is."""

    def noted(self: FileLock | Leases, *words: object) -> None:
        made(self, *words)
        if (owner := _owner()) is not None:
            owner.locks.append(self)

    return noted


@contextmanager
def watched_disk() -> Iterator[None]:
    """Within the block, connections and programs belong to the process that opened them."""
    connect, popen = sqlite3.connect, subprocess.Popen

    def connected(database: str, **how: Any) -> sqlite3.Connection:
        how |= {"timeout": 0.0, "check_same_thread": False}
        reads = "mode=ro" in str(database)
        how["factory"] = _watched(how.get("factory", sqlite3.Connection), reads=reads)
        connection: sqlite3.Connection = connect(database, **how)
        if (owner := _owner()) is not None:
            owner.connections.append(ref(connection))
        return connection

    class Started(popen):  # type: ignore[misc,valid-type]
        def __init__(self, *words: Any, **how: Any) -> None:
            super().__init__(*words, **how)
            if (owner := _owner()) is not None:
                owner.programs.append(self)

    with (
        patch.object(sqlite3, "connect", connected),
        patch.object(subprocess, "Popen", Started),
        patch.object(FileLock, "__init__", _noted(FileLock.__init__)),
        patch.object(Leases, "__init__", _noted(Leases.__init__)),
    ):
        yield


def copied(path: Path, target: Path) -> Path:
    """What a kill leaves: the file and its write-ahead log as they are now. SQLite makes the rest again."""
    target.mkdir()
    for suffix in SUFFIXES:
        file = Path(f"{path}{suffix}")
        if file.exists():
            shutil.copyfile(file, Path(f"{target / path.name}{suffix}"))
    return target / path.name
