"""Backups of a live store: one file, of one moment, checked before it gets its name.

SQLite copies page by page inside one read transaction, so writers continue and none of their writes gets in. The copy
needs no write-ahead log.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.chain import link_hash
from memory_engine.core.lazy import lazy_module
from memory_engine.core.threads import DELETED
from memory_engine.errors import BackupFailed, SchemaError, StorageBusy
from memory_engine.storage.driver import StoreFile, cipher_connection, errors, plain_path
from memory_engine.storage.sqlite import erasing
from memory_engine.storage.sqlite.connection import Connection, storage_error
from memory_engine.storage.sqlite.reading import read_once
from memory_engine.storage.sqlite.schema import EVENT_COLUMNS, EVENTS, check_version, event_from_row, position, rows_of
from memory_engine.store.acts import DESTROYING
from memory_engine.store.keys import Key
from memory_engine.store.new_file import beside, check_free, put_in_place, sync
from memory_engine.store.protocol import Backup, Copied

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = lazy_module("tempfile")

_PAGES = 2_048


def back_up(
    raw: sqlite3.Connection, file: StoreFile, target: StoreFile, copied: Copied, *, writes_nothing: bool
) -> Backup:
    """Copy what a connection reads of a file to a new one, with the key that this has, if any.

    `writes_nothing`: not next to the file either. Raises `FileExistsError`, `BackupFailed`, `OSError`.
    """
    path = Path(target.path)
    check_free(path)
    part = beside(path)
    part.open("xb").close()
    made = target.like(str(part))
    try:
        _fill(raw, file, made, copied, writes_nothing=writes_nothing)
        with closing(made.connect()) as whole:
            report = checked(whole, target.path)
            _bring_acts(raw, whole)
        with part.open("rb+") as written:
            sync(written)
        put_in_place(part, path)
    except errors() as error:
        if isinstance(storage_error(target.path, error), StorageBusy):
            raise
        raise BackupFailed(target.path, str(error)) from error
    except FileExistsError:
        raise
    except OSError as error:  # of the target: it says nothing about the store
        raise BackupFailed(target.path, str(error)) from error
    finally:
        remove(part)
    return msgspec.structs.replace(report, path=target.path, bytes=path.stat().st_size)


def _fill(raw: sqlite3.Connection, file: StoreFile, made: StoreFile, copied: Copied, *, writes_nothing: bool) -> None:
    """Copy page by page where both files have a key or none; else table by table, by SQLCipher's driver.

    That one must not open a plain file which Python's has open: closing it would release its locks. So a plain file
    is copied once more within its folder, where its texts are anyway. If nothing may be written there, any file is
    copied once more, to the temporary folder, with its key.
    """
    if made.is_encrypted == file.is_encrypted:
        with closing(made.connect()) as new:
            copy(raw, new, copied)
        return
    if writes_nothing:
        with tempfile.TemporaryDirectory(prefix="memory-engine-", ignore_cleanup_errors=True) as folder:
            _export_copy(raw, file.like(str(Path(folder) / "store.db")), made, copied)
    elif file.is_encrypted:
        _export_from(file, made)
    else:
        _export_copy(raw, file.like(str(beside(Path(file.path)).with_suffix(".plain"))), made, copied)


def _export_copy(raw: sqlite3.Connection, source: StoreFile, made: StoreFile, copied: Copied) -> None:
    try:
        with closing(source.connect()) as new:
            copy(raw, new, copied)
        _export_from(source, made)
    finally:
        remove(Path(source.path))


def _export_from(source: StoreFile, made: StoreFile) -> None:
    with closing(cipher_connection(made)) as new:
        new.execute("ATTACH ? AS source KEY ?", (plain_path(source.path), source.literal))
        export(new, "source", "main")


def copy(raw: sqlite3.Connection, made: sqlite3.Connection, copied: Copied) -> None:
    """Copy page by page what a connection reads to an empty file, by the same driver."""
    made.execute("PRAGMA synchronous = OFF")  # it is synced as a whole
    raw.execute("BEGIN")
    try:
        raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # from here on it is this moment
        raw.backup(made, pages=_PAGES, progress=lambda _, left, all_: copied(all_ - left, all_), sleep=0)
    finally:
        raw.execute("ROLLBACK")
    made.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, without a log


def _bring_acts(raw: sqlite3.Connection, made: sqlite3.Connection) -> None:
    """Bring the acts that were asked for since the copy's moment.

    What was erased or deleted since is in the copy: there it is not done, and whoever opens the copy finishes it.
    """
    there = {act.id for act in erasing.acts(made, pending=False)}
    for act in erasing.acts(raw, pending=False):
        if act.id not in there:
            undone = act.kind in DESTROYING
            erasing.put_act(made, msgspec.structs.replace(act, done_at_us=0, outcome="") if undone else act)


def export(raw: sqlite3.Connection, source: str, target: str) -> None:
    """Copy table by table from one of a connection's databases to another, empty one. By SQLCipher's driver."""
    raw.execute(f"PRAGMA {target}.synchronous = OFF")
    raw.execute("BEGIN")
    try:
        raw.execute(f"SELECT count(*) FROM {source}.sqlite_schema").fetchone()
        raw.execute("SELECT sqlcipher_export(?, ?)", (target, source)).fetchone()
        for setting in ("user_version", "application_id"):
            (value,) = raw.execute(f"PRAGMA {source}.{setting}").fetchone()
            raw.execute(f"PRAGMA {target}.{setting} = {value}")
        raw.execute("COMMIT")
    except BaseException:  # after any error nothing may stay open; it goes on to the caller
        raw.execute("ROLLBACK")
        raise


def remove(part: Path) -> None:
    """Remove a file that did not get its name, and the files that SQLite has left next to it."""
    for end in ("", "-wal", "-shm", "-journal"):
        part.with_name(part.name + end).unlink(missing_ok=True)


def checked(made: sqlite3.Connection, path: str) -> Backup:
    """The contents of the copy. Raises `BackupFailed` if SQLite finds it damaged."""
    found = [text for (text,) in made.execute("PRAGMA integrity_check(5)")]
    if found != ["ok"]:
        raise BackupFailed(path, f"the copy is damaged, as the store may be: {'; '.join(found)}")
    threads = rows_of(
        made,
        "SELECT t.tid, t.id, coalesce(t.forked_tid, 0), coalesce(t.forked_seq, 0), h.seq, h.hash FROM threads t "
        "JOIN heads h ON h.tid = t.tid WHERE h.status <> ? ORDER BY t.tid",
        (DELETED,),
    )
    broken = []
    events = 0
    for tid, thread_id, origin, first, head, digest in threads:
        events += head - first
        if _last_hash(made, tid, _hash_at(made, origin, first), first) != (head, digest if head > first else None):
            broken.append(str(thread_id))
    return Backup(path=path, threads=len(threads), events=events, broken=tuple(broken))


def _hash_at(made: sqlite3.Connection, tid: int, seq: int) -> bytes:
    """The hash of a shared past's last event, wherever it was recorded. Forks that lead in a circle share none."""
    seen: set[int] = set()
    while seq and tid not in seen:
        seen.add(tid)
        row = made.execute("SELECT hash FROM events WHERE pos = ?", (position(tid, seq),)).fetchone()
        if row is not None:
            return bytes(row[0])
        (tid,) = made.execute("SELECT coalesce(forked_tid, 0) FROM threads WHERE tid = ?", (tid,)).fetchone() or (0,)
        if not tid:
            break
    return b""


def _last_hash(made: sqlite3.Connection, tid: int, previous: bytes, seq: int) -> tuple[int, bytes | None]:
    """The seq and hash up to which a thread's own chain holds."""
    last: bytes | None = None
    rows = made.execute(
        f"SELECT {EVENT_COLUMNS} FROM {EVENTS} WHERE e.pos BETWEEN ? AND ? ORDER BY e.pos",
        (position(tid, seq + 1), position(tid, (1 << 32) - 1)),
    )
    for row in rows:
        stored = event_from_row(row)
        if stored.seq != seq + 1 or link_hash(stored, previous) != stored.hash:
            break
        seq, previous, last = stored.seq, stored.hash, stored.hash
    return seq, last


async def back_up_file(
    file: StoreFile, target: StoreFile, busy_timeout_s: float, copied: Copied, *, writes_nothing: bool = False
) -> Backup:
    """Copy a database, live or not, to a new file. Cancelling it leaves nothing behind.

    `writes_nothing`: neither to the database nor next to it.
    """
    given_up = False

    def told(done: int, all_: int) -> None:
        if given_up:
            raise BackupFailed(target.path, "it was given up")
        copied(done, all_)

    def copy_of(raw: sqlite3.Connection) -> Backup:
        if not check_version(raw, file.path):
            raise SchemaError(file.path, "it is not a store; give the path of one, or of a backup")
        return back_up(raw, file, target, told, writes_nothing=writes_nothing)

    opened = read_once(file, busy_timeout_s) if writes_nothing else _opened(file, busy_timeout_s)
    async with opened as connection:
        try:
            context = copy_context()  # the connection's thread has one of its own
            return await connection.run(lambda raw: context.run(copy_of, raw))
        finally:
            given_up = True


@asynccontextmanager
async def _opened(file: StoreFile, busy_timeout_s: float) -> AsyncIterator[Connection]:
    connection = Connection.reader(file, busy_timeout_s)
    try:
        yield connection
    finally:
        await connection.close()


def target_of(file: StoreFile, path: str, key: Key | None, *, plain: bool) -> StoreFile:
    """The file to copy to: with the same key unless there is another one, or it is to be `plain`.

    Making a key may take some tenths of a second.
    """
    return file.like(path) if key is None and not (plain and file.is_encrypted) else file.rekeyed(key, path)


def part_of(path: str) -> str:
    """Return the path of the temporary file that becomes the file at `path` once it is whole."""
    return str(beside(Path(path).resolve()))
