"""The file of a store while no one writes to it: whether it can be one, its version, and who refuses to."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from memory_engine.core.cancellation import finished
from memory_engine.errors import MemoryEngineError, ReadOnly, SchemaError, StorageFailed
from memory_engine.storage.driver import StoreFile, errors
from memory_engine.storage.sqlite.connection import configure
from memory_engine.storage.sqlite.locking import FileLock
from memory_engine.storage.sqlite.schema import check_version, migrate
from memory_engine.store.protocol import Backup, CommitUnit, Copied, Migrated

if TYPE_CHECKING:
    from memory_engine.store.keys import Key

T = TypeVar("T")


class _Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)

_log = logging.getLogger("memory_engine.storage")

SQLITE_MIN = (3, 37, 0)
SQLITE_SAFE_WAL = (3, 51, 3)


async def checked_file(path: str, key: "Key | None") -> StoreFile:
    """The file of a store, once it is known to be readable: nothing is written before."""
    check_place(path)
    file = StoreFile(path, key)
    if key is None:
        file.check()
    else:  # making the key takes a while
        await asyncio.to_thread(file.check)
    check_sqlite_version(path, file.driver)
    return file


async def whole(opening: Coroutine[object, object, C]) -> C:
    """The store that is opened; closed again where the caller is cancelled meanwhile, so that no thread stays."""
    task = asyncio.ensure_future(opening)
    try:
        return await finished(task)
    except asyncio.CancelledError:
        if not task.cancelled() and task.exception() is None:
            await finished(task.result().close())
        raise


def make(file: StoreFile, lock: FileLock) -> None:
    """Make a new file with a key: several processes may open it at once, and only one can choose its salt.

    Beside one that is there may be another, in clear, that a process was making when it was killed: it goes.
    """
    from memory_engine.store.new_file import remove_left

    with lock:
        if not file.literal:  # there was nothing yet when it was checked; by now there may be
            file.make()
        remove_left(Path(file.path).resolve())


def prepare(raw: sqlite3.Connection, lock: FileLock, path: str, syncs: bool, migrated: Migrated | None) -> bool:
    """Settings of the connection, and the schema. In the lock: several processes may open a new file at once.

    Returns whether no act is pending.
    """
    with lock:
        check_version(raw, path)  # before anything is changed: the file may be another program's
        configure(raw, syncs=syncs)
        migrate(raw, path, migrated)
        remove_graphs(path)
        lock.watch()
        return _is_settled(raw)


def _is_settled(raw: sqlite3.Connection) -> bool:
    """Whether no act is pending for sure."""
    with suppress(*errors()):  # whoever reads the acts is told what is damaged
        return raw.execute("SELECT 1 FROM acts WHERE done_at_us = 0 LIMIT 1").fetchone() is None
    return False


def remove_graphs(path: str) -> None:
    """Delete the graphs of vectors that older releases kept next to the file: no code reads them any more."""
    folder = Path(f"{path}-graphs")
    if not os.path.isdir(folder):  # noqa: PTH112 - a third of the cost, at every opening
        return
    with suppress(OSError):
        for graph in folder.glob("[0-9a-f]*-[0-9a-f]*"):
            graph.unlink()
        folder.rmdir()


def check_place(path: str) -> None:
    """Raise `StorageFailed` if no file can be created at a path."""
    try:
        folder = Path(path).resolve().parent
        is_there, is_folder = folder.is_dir(), Path(path).is_dir()
    except (OSError, RuntimeError) as error:  # a name that is too long, a folder that may not be entered, a loop
        raise StorageFailed(path, str(error)) from error
    if not is_there:
        raise StorageFailed(path, f"the directory {folder} does not exist; create it")
    if is_folder:
        raise StorageFailed(path, "it is a directory; give the path of a file")


def check_sqlite_version(path: str, driver: ModuleType) -> None:
    """Refuse an SQLite without STRICT tables; warn once of one that has the write-ahead log bug.

    SQLite before 3.51.3 can lose pages when two connections write or checkpoint at one
    instant (https://sqlite.org/wal.html#walresetbug). The lock file keeps this
    package's processes from that; other programs that write to the file do not take it.
    """
    check_sqlite_min(path, driver)
    if driver.sqlite_version_info < SQLITE_SAFE_WAL:
        version = driver.sqlite_version
        _log.info("SQLite %s: let no other program write to or checkpoint %s (fixed in 3.51.3)", version, path)


def check_sqlite_min(path: str, driver: ModuleType) -> None:
    """Refuse an SQLite without STRICT tables."""
    if driver.sqlite_version_info < SQLITE_MIN:
        raise SchemaError(path, f"Python's SQLite is {driver.sqlite_version}; 3.37 or newer is needed")


@contextmanager
def as_schema_error(path: str) -> Iterator[None]:
    """Raise `SchemaError` for a row that cannot be read."""
    try:
        yield
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, MemoryEngineError):
            raise
        why = f"a row cannot be read ({error}); run `memory-engine verify`, or put a backup back"
        raise SchemaError(path, why) from error


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
    failed = None
    noting: tuple[Callable[[], None], ...] = ()

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

    async def rekey(self, made: StoreFile, copied: Copied) -> Backup:
        """Refuse another key."""
        raise ReadOnly("another key")

    async def checkpoint(self, mode: str) -> None:
        """Do not checkpoint the write-ahead log."""

    async def administer(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Refuse to delete and to erase."""
        raise ReadOnly("an administrative act")

    async def wipe(self, _pages: Collection[int] | None = None) -> bool:
        """Refuse to write to the file."""
        raise ReadOnly("an administrative act")

    async def shorten(self) -> None:
        """Do not checkpoint the write-ahead log."""

    def moved(self) -> None:
        """Nothing is under way."""

    async def close(self) -> None:
        """Nothing is open."""
