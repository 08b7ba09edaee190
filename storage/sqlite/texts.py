"""The values of rows that may hold people's words, some at a time: for a proof that reads a file's contents."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from memory_engine.storage import passages
from memory_engine.storage.sqlite.schema import position
from memory_engine.store.protocol import StoredText, TextTable

_BYTES_AT_ONCE = 4 * 2**20


_NO_EVENT = "0, x'', 0, NULL"
_TABLES = {
    "events": TextTable(
        ("pos",), ("payload", "record"), "r.pos & 4294967295, CAST(r.type AS BLOB), r.version, r.spilled"
    ),
    "blobs": TextTable(("tid", "digest"), ("body",), "0, x'', 0, r.digest"),
    "projection_rows": TextTable(("projection", "version", "tid", "key"), ("key", "value"), _NO_EVENT),
    "passages": TextTable(("pos",), ("terms",), _NO_EVENT),
    "threads": TextTable(("tid",), ("metadata",), _NO_EVENT),
    "acts": TextTable(("id",), ("id", "plan", "asked_by", "reason", "outcome"), _NO_EVENT, tid="NULL"),
}


class _Row(NamedTuple):
    """A row: its key, its thread, what an event says of itself, and the values."""

    key: tuple[object, ...]
    tid: int | None
    seq: int
    type: bytes
    version: int
    spilled: bytes | None
    values: tuple[bytes | None, ...]


class _TextPart(NamedTuple):
    """Rows of a table to read: all, or those that a condition selects."""

    table: str
    where: str = ""
    values: tuple[object, ...] = ()


async def stored_texts(
    read: Callable[[Callable[[sqlite3.Connection], Sequence[StoredText]]], Awaitable[Sequence[StoredText]]],
    thread_ids: Collection[str] | None = None,
) -> AsyncIterator[Sequence[StoredText]]:
    """All such values, by a function that runs a query. Between two pages others may write.

    With `thread_ids`, those of these threads and of what belongs to no thread.
    """
    reading = _TextPages(thread_ids)
    while not reading.is_done:
        yield await read(reading.page)


class _TextPages:
    """How far the tables were read."""

    def __init__(self, thread_ids: Collection[str] | None) -> None:
        self._thread_ids = thread_ids
        self._parts = [_TextPart(name) for name in _TABLES] if thread_ids is None else None
        self._after: tuple[object, ...] = ()
        self._threads: dict[int, str] = {}
        self._spilled: dict[tuple[int, bytes], tuple[str, int, str, int]] = {}

    @property
    def is_done(self) -> bool:
        """Whether everything was read."""
        return self._parts == []

    def page(self, raw: sqlite3.Connection) -> Sequence[StoredText]:
        """The next values: of at most some hundred rows, or a few megabytes."""
        if self._parts is None:
            self._parts = _parts_of(raw, self._thread_ids or ())
        part = self._parts[0]
        name = part.table
        rows = self._rows(raw, part, _TABLES[name])
        if not rows:
            del self._parts[0]
        self._after = rows[-1].key if rows else ()
        about = [self._about(raw, row) for row in rows]
        return [
            StoredText(f"{name}.{column}", thread, value, seq, type_, version)
            for n, column in enumerate(_TABLES[name].columns)
            for row, (thread, seq, type_, version) in zip(rows, about, strict=True)
            if (value := row.values[n])
        ]

    def _rows(self, raw: sqlite3.Connection, part: _TextPart, table: TextTable) -> list[_Row]:
        """The rows of a part behind the last one that was read."""
        name = part.table
        if raw.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)).fetchone() is None:
            return []  # of an older release, or of a file without searches
        key, count = ", ".join(f"r.{column}" for column in table.key), len(table.key)
        conditions = [part.where] if part.where else []
        conditions += [f"({key}) > ({', '.join('?' * count)})"] if self._after else []
        behind = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        # as bytes: SQLite casts a text to what is stored of it, also where that is damaged
        values = ", ".join(f"CAST(r.{column} AS BLOB)" for column in table.columns)
        rows: list[_Row] = []
        size = 0
        found = f"SELECT {key}, {table.tid}, {table.event}, {values} FROM {name} r {behind}"
        for row in raw.execute(f"{found} ORDER BY {key} LIMIT {table.rows}", (*part.values, *self._after)):
            held = row[count + 5 :]
            tid, seq, type_, version, spilled = row[count : count + 5]
            rows.append(_Row(row[:count], tid, seq, type_, version, spilled, held))
            size += sum([len(value) for value in held if value])
            if size > _BYTES_AT_ONCE:
                break
        return rows

    def _named(self, raw: sqlite3.Connection, tid: int) -> str:
        """The id of a thread, or its number where it has none."""
        found = raw.execute("SELECT CAST(id AS BLOB) FROM threads WHERE tid = ?", (tid,)).fetchone()
        name = self._threads[tid] = f"number {tid}" if found is None else found[0].decode(errors="replace")
        return name

    def _about(self, raw: sqlite3.Connection, row: _Row) -> tuple[str, int, str, int]:
        """A row's thread, and what an event says of itself: of a large one, its payload is in another table."""
        if row.tid is None:
            return "", 0, "", 0
        thread = self._threads.get(row.tid) or self._named(raw, row.tid)
        about = thread, row.seq, row.type.decode(errors="replace"), row.version
        if row.spilled is None:
            return about
        if not row.seq:
            return self._spilled.get((row.tid, row.spilled), about)
        self._spilled[row.tid, row.spilled] = about
        return about


def _parts_of(raw: sqlite3.Connection, thread_ids: Collection[str]) -> list[_TextPart]:
    """The rows of some threads, and those of no thread."""
    tids = [tid for name in thread_ids for (tid,) in raw.execute("SELECT tid FROM threads WHERE id = ?", (name,))]
    views, of_view = list(_views(raw)), "r.projection = ? AND r.version = ? AND r.tid = ?"
    parts = [_TextPart("acts")]
    for tid in tids:
        parts += [
            _TextPart("events", "r.pos >= ? AND r.pos < ?", (position(tid, 0), position(tid + 1, 0))),
            _TextPart("blobs", "r.tid = ?", (tid,)),
            *(_TextPart("projection_rows", of_view, (*view, tid)) for view in views),
            _TextPart("passages", "r.pos >= ? AND r.pos < ?", (passages.base(tid), passages.base(tid + 1))),
            _TextPart("threads", "r.tid = ?", (tid,)),
        ]
    return parts


def _views(raw: sqlite3.Connection) -> Iterator[tuple[str, int]]:
    """The views that have rows: one look into the index of the table for each."""
    found = raw.execute("SELECT projection, version FROM projection_rows ORDER BY 1, 2 LIMIT 1").fetchone()
    while found is not None:
        yield found
        query = (
            "SELECT projection, version FROM projection_rows WHERE (projection, version) > (?, ?) ORDER BY 1, 2 LIMIT 1"
        )
        found = raw.execute(query, found).fetchone()
