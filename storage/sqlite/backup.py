"""Backups of a live store: one file, as it is at one moment, checked before it is there.

SQLite copies page by page inside one read transaction, so writers go on and none of what they write gets in. The copy
needs no write-ahead log beside it.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from contextvars import copy_context
from pathlib import Path

import msgspec

from memory_engine.core.chain import link_hash
from memory_engine.core.threads import DELETED
from memory_engine.errors import BackupFailed, SchemaError, StorageBusy
from memory_engine.storage.sqlite.connection import Connection, plain_path, storage_error
from memory_engine.storage.sqlite.reading import read_once
from memory_engine.storage.sqlite.schema import EVENT_COLUMNS, EVENTS, check_version, event_from_row, position, rows_of
from memory_engine.store.new_file import beside, check_free, put_in_place, sync
from memory_engine.store.protocol import Backup, Copied

_PAGES = 2_048


def back_up(raw: sqlite3.Connection, path: str, copied: Copied) -> Backup:
    """Copy what a connection reads to a new file. Raises `FileExistsError`, `BackupFailed`, `OSError`."""
    target = Path(path)
    check_free(target)
    part = beside(target)
    part.open("xb").close()
    try:
        with closing(sqlite3.connect(plain_path(str(part)), isolation_level=None)) as made:
            _copy(raw, made, copied)
            report = _checked(made, path)
        with part.open("rb+") as file:
            sync(file)
        put_in_place(part, target)
    except sqlite3.Error as error:
        if isinstance(storage_error(path, error), StorageBusy):
            raise
        raise BackupFailed(path, str(error)) from error
    except FileExistsError:
        raise
    except OSError as error:  # of the target: it says nothing about the store
        raise BackupFailed(path, str(error)) from error
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            part.with_name(part.name + end).unlink(missing_ok=True)
    return msgspec.structs.replace(report, bytes=target.stat().st_size)


def _copy(raw: sqlite3.Connection, made: sqlite3.Connection, copied: Copied) -> None:
    made.execute("PRAGMA synchronous = OFF")  # it is synced as a whole
    raw.execute("BEGIN")
    try:
        raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # from here on it is this moment
        raw.backup(made, pages=_PAGES, progress=lambda _, left, all_: copied(all_ - left, all_), sleep=0)
    finally:
        raw.execute("ROLLBACK")
    made.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, with nothing beside it


def _checked(made: sqlite3.Connection, path: str) -> Backup:
    """What is in the copy. Raises `BackupFailed` where SQLite finds it damaged."""
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
    source: str, path: str, busy_timeout_s: float, copied: Copied, *, writes_nothing: bool = False
) -> Backup:
    """Copy a database, live or not, to a new file. Cancelling it leaves nothing behind.

    `writes_nothing`: neither to the database nor beside it.
    """
    given_up = False

    def told(done: int, all_: int) -> None:
        if given_up:
            raise BackupFailed(path, "it was given up")
        copied(done, all_)

    opened = read_once(source, busy_timeout_s) if writes_nothing else _opened(source, busy_timeout_s)
    async with opened as connection:
        try:
            context = copy_context()  # the connection's thread has one of its own
            return await connection.run(lambda raw: context.run(_of_store, raw, source, path, told))
        finally:
            given_up = True


@asynccontextmanager
async def _opened(source: str, busy_timeout_s: float) -> AsyncIterator[Connection]:
    connection = Connection.reader(source, busy_timeout_s)
    try:
        yield connection
    finally:
        await connection.close()


def _of_store(raw: sqlite3.Connection, source: str, path: str, copied: Copied) -> Backup:
    if not check_version(raw, source):
        raise SchemaError(source, "it is not a store; give the path of one, or of a backup")
    return back_up(raw, path, copied)
