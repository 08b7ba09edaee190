"""Deleting and erasing in SQLite: rows go in a transaction, then their bytes, wherever SQLite has left copies of them.

`secure_delete` would not do: rows that SQLite moves from page to page leave copies that it never overwrites. So all
bytes that no page uses are zeroed (see `wiping`).
"""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ACTIVE, DELETED
from memory_engine.errors import IntegrityError, ThreadHasForks
from memory_engine.storage import passages
from memory_engine.storage.sqlite import reads
from memory_engine.storage.sqlite.schema import position, rows_of, with_id
from memory_engine.storage.sqlite.transactions import Transactions, find_tid
from memory_engine.store.acts import Act
from memory_engine.store.protocol import KEPT_ROWS, CommitUnit, Traces

if TYPE_CHECKING:
    from memory_engine.storage.sqlite import wiping
else:
    wiping = lazy_module("memory_engine.storage.sqlite.wiping")

THROUGH_THE_KEY = "the file was written anew from its rows, and these were read through its key"
"""How a proof finds that an encrypted file holds no erased content."""
WHOLE_MAX = 64 * 2**20
"""Bytes of a file that is always read whole: that takes some tenths of a second."""
SAMPLE = 64, 256 * 2**10
"""Stretches of a larger one that are read in any case, and the bytes of each."""
_ROWS_AT_ONCE = 256
_ACT_COLUMNS = "id, kind, plan, asked_by, reason, asked_at_us, done_at_us, outcome"


def delete(raw: sqlite3.Connection, thread_id: str) -> None:
    """Delete every row of a thread but its id."""
    tid = _tid_to_delete(raw, thread_id)
    if forks := reads.forks(raw, thread_id):  # made since the act was asked for
        raise ThreadHasForks(thread_id, tuple(forks))
    _drop_passages(raw, tid)
    raw.execute("DELETE FROM events WHERE tid = ? AND pos BETWEEN ? AND ?", (tid, *_log_positions(tid)))
    for table in ("blobs", "live", "projection_rows", "checkpoints"):
        raw.execute(f"DELETE FROM {table} WHERE tid = ?", (tid,))
    raw.execute(
        "UPDATE heads SET seq = 0, hash = x'', epoch = epoch + 1, status = ?, chunks = 0, tokens = 0, marks = '{}', "
        "checksum = NULL WHERE tid = ?",
        (DELETED, tid),
    )
    raw.execute(
        "UPDATE threads SET user_id = '', tenant_id = '', agent_id = '', parent_id = '', metadata = '{}', "
        "policy = NULL WHERE tid = ?",
        (tid,),
    )


def _tid_to_delete(raw: sqlite3.Connection, thread_id: str) -> int:
    """The row id of a thread that is there; one that has lost its head's row gets one, to be deleted too."""
    condition, values = with_id(thread_id)
    raw.execute(
        "INSERT INTO heads (tid, seq, hash, epoch, status, open_compaction, chunks, tokens, marks) "
        "SELECT t.tid, 0, x'', 0, ?, 0, 0, 0, '{}' FROM threads t LEFT JOIN heads h ON h.tid = t.tid "
        f"WHERE {condition} AND h.tid IS NULL",
        (ACTIVE, *values),
    )
    return find_tid(raw, thread_id)


def erase(raw: sqlite3.Connection, transactions: Transactions, unit: CommitUnit, rows: Sequence[StoredEvent]) -> None:
    """Put rows in the place of a thread's own, drop what was derived from its log, and write a unit."""
    tid = find_tid(raw, unit.thread_id)
    for row in rows:
        at = position(tid, row.seq)
        if not raw.execute("DELETE FROM events WHERE pos = ? AND tid = ? AND hash = ?", (at, tid, row.hash)).rowcount:
            raise IntegrityError(unit.thread_id, row.seq, "the row to erase is another one")
        transactions.insert(raw, tid, row)
    raw.execute(
        "DELETE FROM blobs WHERE tid = ? AND digest NOT IN "
        "(SELECT spilled FROM events WHERE pos BETWEEN ? AND ? AND spilled IS NOT NULL)",
        (tid, *_log_positions(tid)),
    )
    _drop_passages(raw, tid)
    for table in ("projection_rows", "checkpoints"):
        marks = ", ".join("?" * len(KEPT_ROWS))
        raw.execute(f"DELETE FROM {table} WHERE tid = ? AND projection NOT IN ({marks})", (tid, *KEPT_ROWS))
    transactions.write(raw, (unit,))


def find_bytes(path: str, pieces: Sequence[bytes]) -> Traces:
    """Find pieces in the files of a store. Another process reads them, see `pages`.

    Graphs that an older release left next to it are searched too, if they could not be deleted. If no such
    process can be started, nothing is read, and `unread` says so: read here, the file would lose SQLite's locks on it.
    """
    return _found_in((Path(path), Path(f"{path}-wal"), *sorted(Path(f"{path}-graphs").glob("*"))), pieces)


def _found_in(paths: Sequence[Path], pieces: Sequence[bytes]) -> Traces:
    files: dict[str, int] = {}
    for file in paths:
        with suppress(FileNotFoundError):
            files[str(file)] = file.stat().st_size
    sought = "\n".join(piece.hex() for piece in pieces)
    try:
        hits = msgspec.json.decode(wiping.answer("find", *files, told=sought.encode()), type=list[tuple[str, int, int]])
    except (wiping.UnknownPages, msgspec.MsgspecError) as error:
        why = str(error) or "the answer cannot be read"
        return Traces(unread=tuple(f"{Path(name).name}: the program that reads it failed: {why}" for name in files))
    places: dict[bytes, list[str]] = {}
    for name, offset, n in hits:
        places.setdefault(pieces[n], []).append(f"{Path(name).name} at byte {offset:,}")
    return Traces(files=tuple(files), size=sum(files.values()), places=places)


def noting(path: str, pages: set[int]) -> Callable[[], None]:
    """A function that adds the pages which were written to a file since its last call; see `wiping.Written`."""
    return wiping.Written(path, pages).read


def find_bytes_in_part(path: str, pieces: Sequence[bytes], unique: Sequence[bytes], pages: Collection[int]) -> Traces:
    """Find pieces in some pages of a file, in its free ones and in its write-ahead log; `unique` ones in a sample too.

    As `find_bytes` otherwise. Where the pages cannot be told apart, it reads everything.
    """
    log = Path(f"{path}-wal")
    needles = {"needles": [one.hex() for one in pieces], "unique": [one.hex() for one in unique]}
    asked = {"pages": sorted(pages), **needles, "sample": SAMPLE}
    try:
        answer = wiping.answer("part", path, told=msgspec.json.encode(asked))
        found = msgspec.json.decode(answer, type=tuple[list[tuple[int, str]], int] | None)
    except (wiping.UnknownPages, msgspec.MsgspecError):
        found = None
    if found is None:
        return find_bytes(path, pieces)
    places: dict[bytes, list[str]] = {}
    for offset, piece in found[0]:
        places.setdefault(bytes.fromhex(piece), []).append(f"{Path(path).name} at byte {offset:,}")
    logged = _found_in([log], pieces)
    for piece, more in logged.places.items():
        places.setdefault(piece, []).extend(more)
    size = Path(path).stat().st_size
    return Traces(
        files=(path, *logged.files),
        size=size + logged.size,
        scanned=found[1] + logged.size,
        places=places,
        unread=logged.unread,
    )


def left_in_index(raw: sqlite3.Connection, thread_ids: Collection[str], texts: Sequence[Sequence[str]]) -> list[str]:
    """The entries of the full-text index of these threads that hold all words of a text and have no passage."""
    if raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'passages'").fetchone() is None:
        return []
    condition = f"id IN ({', '.join('?' * len(thread_ids))})"
    found = raw.execute(f"SELECT tid, tenant_id FROM threads WHERE {condition}", [*thread_ids]).fetchall()
    sought = [words for words in texts if words]
    left = (place for tid, tenant in found for words in sought for place in passages.orphans(raw, tid, tenant, words))
    return list(dict.fromkeys(left))


def find_in_rows(raw: sqlite3.Connection, pieces: Sequence[bytes]) -> dict[bytes, list[str]]:
    """The tables whose rows hold pieces: of an encrypted file, whose bytes show nothing, no more can be read.

    Its other bytes are those of a file that was rewritten since, from rows alone (see `wiping.rewrite`).
    """
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    places: dict[bytes, list[str]] = {}
    for (table,) in raw.execute(tables).fetchall():
        wanted = set(pieces)
        rows = raw.execute(f'SELECT * FROM "{table}"')
        while wanted and (some := rows.fetchmany(_ROWS_AT_ONCE)):
            held = b"\0".join(_as_bytes(value) for row in some for value in row)
            for piece in [piece for piece in wanted if piece in held]:
                wanted.remove(piece)
                places.setdefault(piece, []).append(f"table {table}")
    return places


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")


def mentions(raw: sqlite3.Connection, words: Sequence[str]) -> list[str]:
    """The entries of the full-text index that hold words in a row."""
    if not words or raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'passages'").fetchone() is None:
        return []
    return list(dict.fromkeys(passages.indexed_at(raw, words)))


def put_act(raw: sqlite3.Connection, act: Act) -> None:
    """Keep an administrative act."""
    values = (act.id, act.kind, act.plan, act.by, act.reason, act.asked_at_us, act.done_at_us, act.outcome)
    raw.execute(f"INSERT OR REPLACE INTO acts ({_ACT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)


def acts(raw: sqlite3.Connection, *, pending: bool) -> list[Act]:
    """The administrative acts, oldest first."""
    if raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'acts'").fetchone() is None:
        return []  # a file of an older release that is only read
    where = "WHERE done_at_us = 0" if pending else ""
    rows = rows_of(raw, f"SELECT {_ACT_COLUMNS} FROM acts {where} ORDER BY asked_at_us, id")
    names = ("id", "kind", "plan", "by", "reason", "asked_at_us", "done_at_us", "outcome")
    return [Act(**dict(zip(names, row, strict=True))) for row in rows]


def _log_positions(tid: int) -> tuple[int, int]:
    return position(tid, 0), position(tid, (1 << 32) - 1)


def _drop_passages(raw: sqlite3.Connection, tid: int) -> None:
    if passages.destroy(raw, tid):
        passages.optimize(raw)
