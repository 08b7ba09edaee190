"""Read a file without writing anything, neither to it nor next to it.

SQLite reads a write-ahead log through an index in shared memory, the file `-shm`. It creates that file, and creates it
again after a crash, even for connections that only read. So the files next to a database decide how it is opened:

- no write-ahead log, or an empty one: as immutable, which needs no other file. A write by another process shows in
  sizes and times, which are compared before and after each query; then the file is opened again.
- a log with its shared memory: with `readonly_shm`. The index of a process that is alive is read; for one that died,
    SQLite creates it in the memory of this process. This also reads a file that this process has open for writing.
- a log without its shared memory, a rollback journal, or an older schema: a private copy in the temporary folder,
    recovered and brought up to date there. It is deleted when the store is closed, or as soon as it is opened if an
    open file may be removed. The copy of an encrypted file has the same key.
"""

import asyncio
import errno
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attrs import frozen

from memory_engine.core.lazy import lazy_module
from memory_engine.errors import EngineClosed, KeyNeeded, SchemaError, StorageFailed, WrongKey
from memory_engine.storage.driver import StoreFile, errors, real_path, size_of
from memory_engine.storage.sqlite.connection import Connection, Readers, is_written, storage_error
from memory_engine.storage.sqlite.schema import MIGRATIONS, check_version, migrate

if TYPE_CHECKING:
    import shutil
    import tempfile
else:
    shutil = lazy_module("shutil")
    tempfile = lazy_module("tempfile")

T = TypeVar("T")
Version = Callable[[sqlite3.Connection, str], int]
Signature = tuple[int, ...]

TRIES = 20
"""How often a query is repeated that another process wrote during."""
_PAGES = 2_048
_COPY = "store.db"


class FileReaders:
    """Connections to a file of which nothing may be written; opened again when another process has written to it."""

    def __init__(self, file: StoreFile, busy_timeout_s: float, count: int) -> None:
        self._file, self._path = file, file.path
        self._busy_timeout_s = busy_timeout_s
        self._count = count
        self._view: _View | None = None
        self._is_open = True

    @classmethod
    async def open(cls, file: StoreFile, busy_timeout_s: float, count: int) -> "FileReaders":
        """Open a file that was checked. Raises `StorageFailed`, `SchemaError`, and `WrongKey` for a new one by then."""
        made = cls(file.like(real_path(file.path)), busy_timeout_s, count)
        await made._current()
        return made

    @property
    def at_work(self) -> int:
        """Queries that have not ended."""
        return 0 if self._view is None else self._view.readers.at_work

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query on the current file. Raises what `Connection.run` raises."""
        failed: StorageFailed | None = None
        for _ in range(TRIES):
            view = await self._current()
            try:
                found = await view.readers.run(query)
            except EngineClosed:
                if not self._is_open:
                    raise
                continue  # another query has opened the file again
            except StorageFailed as error:
                if view.signature is not None and view.is_of(self._path):
                    raise
                failed = error
                await self._let_go(view)  # the last writer took away the log that it reads: it never would again
                continue
            except Exception:  # any error: it may be of a file that was half written
                if view.is_of(self._path):
                    raise
                continue
            if view.is_of(self._path):
                return found
        raise failed or StorageFailed(self._path, "another process writes to it without pause; read it again")

    async def close(self) -> None:
        """Close all of them."""
        self._is_open = False
        await self.rest()

    async def rest(self) -> None:
        """Close them for now; the next query opens the file again."""
        view, self._view = self._view, None
        if view is not None:
            await view.close()

    async def _let_go(self, view: "_View") -> None:
        if self._view is view:
            await self.rest()

    def _check_open(self) -> None:
        if not self._is_open:
            raise EngineClosed

    async def _current(self) -> "_View":
        self._check_open()
        while (view := self._view) is None or not view.is_of(self._path):
            opened = await _viewed(self._file, self._busy_timeout_s, self._count)
            is_mine = self._is_open and self._view is view  # else it was closed, or another query was first
            stale, self._view = (view, opened) if is_mine else (opened, self._view)
            if stale is not None:
                await stale.close()
            self._check_open()
        return view


@frozen
class _View:
    """The opened file. With a `signature` it is read while the file has this one; `folder` has a copy."""

    readers: Readers
    signature: Signature | None
    folder: str = ""

    def is_of(self, path: str) -> bool:
        """Whether it shows the current file. Without a signature SQLite sees to it. Raises `StorageFailed`."""
        return self.signature is None or self.signature == signature(path)

    async def close(self) -> None:
        """Close the connections, and remove the copy."""
        await self.readers.close()
        if self.folder:
            await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)


@asynccontextmanager
async def read_once(file: StoreFile, busy_timeout_s: float) -> AsyncIterator[Connection]:
    """A connection to the current file, also of an older schema; nothing is written to it or next to it.

    Raises `StorageFailed` at the end if another process wrote to it meanwhile in a way that may not be read.
    """
    file = file.like(real_path(file.path))
    path = file.path
    before = signature(path)
    connection, folder = await _connected(file, busy_timeout_s)
    try:
        yield connection
        if connection.is_still and not folder and signature(path) != before:
            raise StorageFailed(path, "another process wrote to it while it was read; try again")
    finally:
        await connection.close()
        if folder:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def version_of(file: StoreFile, busy_timeout_s: float, version: Version) -> int:
    """The schema version of a file that is there."""
    async with read_once(file, busy_timeout_s) as connection:
        return await connection.run(lambda raw: version(raw, file.path))


def signature(path: str) -> Signature:
    """The values that change when a file is written to. Raises `StorageFailed` if it is gone."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of the cost of a Path, and at every query
    except OSError as error:
        raise StorageFailed(path, f"it cannot be read any more: {error.strerror}") from error
    beside = (size_of(path + "-wal"), size_of(path + "-journal"))
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, *beside


async def _connected(file: StoreFile, busy_timeout_s: float) -> tuple[Connection, str]:
    """A connection that reads the current file, and the folder of its copy if it needs one."""
    path = file.path
    has_index = bool(size_of(path + "-shm"))
    is_logged = bool(size_of(path + "-wal")) or (has_index and is_written(path))
    if not size_of(path + "-journal") and (not is_logged or has_index):
        connection = Connection.reader(file, busy_timeout_s, writes_nothing=is_logged, is_still=not is_logged)
        try:
            await connection.run(_touch)
        except StorageFailed:
            await connection.close()
            if not is_logged:
                raise
        except BaseException:  # any error: no thread of a connection stays behind; it goes on to the caller
            await connection.close()
            raise
        else:
            return connection, ""
    folder = await asyncio.to_thread(_copy_made, file, 0, lambda copy: _copy_files(path, copy))
    return Connection.reader(_in(file, folder), busy_timeout_s, is_still=True), folder


async def _viewed(file: StoreFile, busy_timeout_s: float, count: int) -> _View:
    """A file, opened so that its rows are of the newest schema."""
    path = file.path
    before = signature(path)
    connection, folder = await _connected(file, busy_timeout_s)
    try:
        version = await connection.run(lambda raw: check_version(raw, path))
        if version == len(MIGRATIONS) and not folder:
            seen = before if connection.is_still else None
            logged = {"writes_nothing": not connection.is_still, "is_still": connection.is_still}
            return _View(Readers(Connection.readers(file, busy_timeout_s, count, **logged)), seen)
        if not folder:
            folder = await connection.run(lambda raw: _copy_made(file, version, lambda copy: _copy_rows(raw, copy)))
        copy = _in(file, folder)
        await asyncio.to_thread(_brought_up, path, copy)
        connections = Connection.readers(copy, busy_timeout_s, count, is_still=True)
        for one in connections:
            await one.run(_touch)
        if sys.platform != "win32":
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)  # they have it open
        return _View(Readers(connections), before, folder)
    except BaseException:  # any error: nothing stays behind; it goes on to the caller
        if folder:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        raise
    finally:
        await connection.close()


def _touch(raw: sqlite3.Connection) -> None:
    """Let SQLite open the file."""
    raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _in(file: StoreFile, folder: str) -> StoreFile:
    return file.like(str(Path(folder) / _COPY))


def _copy_made(file: StoreFile, version: int, copy: Callable[[StoreFile], None]) -> str:
    """The folder of a new copy. Raises `StorageFailed` where there is no room, `SchemaError` for an older schema's."""
    folder, path = "", file.path
    failing: tuple[type[OSError] | type[sqlite3.Error], ...] = (OSError, *errors())
    try:
        folder = tempfile.mkdtemp(prefix="memory-engine-")
        copy(_in(file, folder))
    except failing as error:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        known = storage_error(path, error)
        if isinstance(known, SchemaError | WrongKey | KeyNeeded):
            raise known from error
        why = f"a copy of it in {tempfile.gettempdir()} is needed to read it, and failed ({error}); open it once for "
        if version:
            why = f"its schema is version {version}; {why}writing, or use `memory-engine migrate`"
            raise SchemaError(path, why) from error
        why += f"writing: its latest commits are in {path}-wal, and nothing may be written beside it"
        raise StorageFailed(path, why) from error
    return folder


def _copy_files(path: str, copy: StoreFile) -> None:
    """Copy a file with the logs that SQLite needs, and recover it. Raises `OSError` if it is written to meanwhile."""
    to = copy.path
    for _ in range(TRIES):
        before = signature(path)
        shutil.copyfile(path, to)
        for end in ("-wal", "-journal"):
            Path(to + end).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(path + end, to + end)
        if signature(path) == before:
            with closing(copy.connect()) as made:
                made.execute("PRAGMA synchronous = OFF")
                made.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, which is read without a log
            return
    raise OSError(errno.EBUSY, "another process writes to it without pause", path)


def _copy_rows(raw: sqlite3.Connection, copy: StoreFile) -> None:
    """Copy the contents of a connection at one moment."""
    with closing(copy.connect()) as made:
        made.execute("PRAGMA synchronous = OFF")
        raw.backup(made, pages=_PAGES, sleep=0)


def _brought_up(path: str, copy: StoreFile) -> None:
    """Bring a copy to the newest schema."""
    failing: tuple[type[OSError] | type[sqlite3.Error], ...] = (OSError, *errors())
    try:
        with closing(copy.connect()) as made:
            made.execute("PRAGMA synchronous = OFF")
            made.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, which is read without a log
            migrate(made, path)
    except failing as error:
        raise storage_error(path, error) from error
