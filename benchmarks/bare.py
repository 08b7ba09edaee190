"""SQLite's own time for the same bytes: the floor under every store on it."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from time import perf_counter_ns

import aiosqlite


@asynccontextmanager
async def bare_aiosqlite(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    """A database with one table of payloads: write-ahead log, synchronous NORMAL."""
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        await connection.execute("PRAGMA journal_mode = WAL")
        await connection.execute("PRAGMA synchronous = NORMAL")
        await connection.execute("CREATE TABLE events (pos INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
        yield connection


async def append_timed(connection: aiosqlite.Connection, payloads: Sequence[bytes]) -> list[int]:
    """Append one after the other, a transaction and three awaits each; nanoseconds that each took."""
    times: list[int] = []
    for payload in payloads:
        begun = perf_counter_ns()
        await connection.execute("BEGIN IMMEDIATE")
        await connection.execute("INSERT INTO events (payload) VALUES (?)", (payload,))
        await connection.commit()
        times.append(perf_counter_ns() - begun)
    return times


class RowCopy:
    """The rows that the engine wrote to one database, written to another by bare `sqlite3`.

    A transaction holds `batch` events, each with its event row, its live row and its
    thread's head. Nothing is computed, nothing awaited.
    """

    def __init__(self, source: Path, batch: int) -> None:
        self._batch = batch
        with closing(sqlite3.connect(source)) as connection:
            self._schema = [
                sql
                for (sql,) in connection.execute(
                    "SELECT sql FROM sqlite_schema WHERE sql > '' AND name NOT LIKE 'sqlite_%' "
                    "AND tbl_name IN ('events', 'heads', 'live', 'threads') ORDER BY rowid"
                )
            ]
            self._threads = connection.execute("SELECT * FROM threads").fetchall()
            self._heads = connection.execute("SELECT * FROM heads ORDER BY tid").fetchall()
            names = [row[1] for row in connection.execute("PRAGMA table_info(heads)")]
            turns = "SELECT * FROM events ORDER BY pos & 0xFFFFFFFF, pos >> 32"
            self._events = connection.execute(turns).fetchall()
            self._live = connection.execute("SELECT * FROM live ORDER BY seq, tid").fetchall()
        if len(self._live) != len(self._events):
            raise ValueError("each event must have one live row: copy a store that was not compacted")
        if names[0] != "tid":
            raise ValueError("the first column of heads must be tid")
        self._move = f"UPDATE heads SET {', '.join(f'{name} = ?' for name in names[1:])} WHERE tid = ?"

    @property
    def events(self) -> int:
        """Events to write."""
        return len(self._events)

    def write(self, target: Path) -> int:
        """Write all rows to a new database; nanoseconds from the first BEGIN to the last COMMIT."""
        heads = {row[0]: (*row[1:], row[0]) for row in self._heads}
        insert_event = _insert("events", self._events[0])
        insert_live = _insert("live", self._live[0])
        with closing(sqlite3.connect(target, isolation_level=None)) as connection:
            self._prepare(connection)
            tids = [row[0] for row in self._live]
            begun = perf_counter_ns()
            for at in range(0, len(self._events), self._batch):
                part = slice(at, at + self._batch)
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(self._move, [heads[tid] for tid in tids[part]])
                connection.executemany(insert_event, self._events[part])
                connection.executemany(insert_live, self._live[part])
                connection.execute("COMMIT")
            return perf_counter_ns() - begun

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        for statement in self._schema:
            connection.execute(statement)
        connection.executemany(_insert("threads", self._threads[0]), self._threads)
        connection.executemany(_insert("heads", self._heads[0]), self._heads)


def _insert(table: str, row: Sequence[object]) -> str:
    return f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})"
