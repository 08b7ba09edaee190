"""The file of a store while nobody writes to it: whether it can be one, what version it has, and who refuses to."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from memory_engine.core.cancellation import finished
from memory_engine.errors import ReadOnly, SchemaError, StorageFailed
from memory_engine.storage.sqlite.connection import Connection
from memory_engine.storage.sqlite.transactions import size_of
from memory_engine.store.protocol import CommitUnit, Migrated

T = TypeVar("T")

_log = logging.getLogger("memory_engine.storage")

SQLITE_MIN = (3, 37, 0)
SQLITE_SAFE_WAL = (3, 51, 3)


async def version_of(
    path: str, busy_timeout_s: float, version: Callable[[sqlite3.Connection, str], int], *, is_still: bool = False
) -> int:
    """The schema version of a file that is there, by a connection that cannot write."""
    connection = Connection.reader(path, busy_timeout_s, is_still=is_still)
    try:
        return await connection.run(lambda raw: version(raw, path))
    finally:
        await connection.close()


def close_for_good(path: str) -> None:
    """Take away the files that reading has made beside a file: SQLite does it where the last to close might write.

    It does nothing while others have the file open, and nothing is in the write-ahead log that they left behind.
    """
    if size_of(path + "-wal"):
        return
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=0)) as last:
        last.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def signature(path: str) -> tuple[int, ...]:
    """What changes when a file is written to: its size and time, and the size of its write-ahead log."""
    file = Path(path).stat()
    return file.st_size, file.st_mtime_ns, size_of(path + "-wal")


def remove_graphs(path: str) -> None:
    """Delete the graphs of vectors that older releases kept beside the file: nothing reads or forgets them any more."""
    folder = Path(f"{path}-graphs")
    if not os.path.isdir(folder):  # noqa: PTH112 - a third of the cost, at every opening
        return
    with suppress(OSError):
        for graph in folder.glob("[0-9a-f]*-[0-9a-f]*"):
            graph.unlink()
        folder.rmdir()


def check_place(path: str) -> None:
    """Raise `StorageFailed` where no file can stand."""
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise StorageFailed(path, f"the directory {folder} does not exist; create it")
    if Path(path).is_dir():
        raise StorageFailed(path, "it is a directory; give the path of a file")


def check_sqlite_version(path: str) -> None:
    """Refuse an SQLite without STRICT tables; warn once of one that has the write-ahead log bug.

    SQLite before 3.51.3 can lose pages when two connections write or checkpoint at one
    instant (https://sqlite.org/wal.html#walresetbug). The lock beside the file keeps this
    package's processes from that; other programs that write to the file do not take it.
    """
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        raise SchemaError(path, f"Python's SQLite is {version}; 3.37 or newer is needed")
    if sqlite3.sqlite_version_info < SQLITE_SAFE_WAL:
        _log.info("SQLite %s: let no other program write to or checkpoint %s (fixed in 3.51.3)", version, path)


class _Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


async def whole(opening: Coroutine[object, object, C]) -> C:
    """What is opened; closed again where the caller is cancelled meanwhile, so that no thread stays."""
    task = asyncio.ensure_future(opening)
    try:
        return await finished(task)
    except asyncio.CancelledError:
        if not task.cancelled() and task.exception() is None:
            await finished(task.result().close())
        raise


def on_the_loop(migrated: Migrated | None) -> Migrated | None:
    """The same function, to be called by a connection's thread."""
    if migrated is None:
        return None
    loop, there = asyncio.get_running_loop(), migrated

    def told(number: int, what: str) -> None:
        loop.call_soon_threadsafe(there, number, what)

    return told


class NoWriter:
    """Stands in the writer's place where a file is only read. Raises `ReadOnly`."""

    is_unused = False

    def submit(self, unit: CommitUnit, *, at_once: bool = False) -> "asyncio.Future[None]":
        """Refuse a unit."""
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(ReadOnly(f"a commit to thread {unit.thread_id!r}"))
        return refused

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Refuse a transaction."""
        raise ReadOnly(f"a transaction ({work.__name__})")

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Refuse a query: readers are for that."""
        raise ReadOnly(f"a query ({query.__name__})")

    async def checkpoint(self, mode: str) -> None:
        """Leave the write-ahead log as it is."""

    async def administer(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Refuse to delete and to erase."""
        raise ReadOnly("an administrative act")

    async def wipe(self) -> bool:
        """Refuse to write to the file."""
        raise ReadOnly("an administrative act")

    async def shorten(self) -> None:
        """Leave the write-ahead log as it is."""

    def moved(self) -> None:
        """Nothing is under way."""

    async def close(self) -> None:
        """Nothing is open."""
