"""The values of rows that may hold people's words, some at a time: for a proof that reads a store's contents."""

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial

import asyncpg

from memory_engine.storage.postgres.pool import Connection, Pool
from memory_engine.storage.postgres.reads import Reads
from memory_engine.store.protocol import StoredText, TextTable

_NO_EVENT = "0::bigint, ''::text, 0, NULL::bytea"
_TABLES = {
    "events": TextTable(("tid", "seq"), ("payload", "record"), "r.seq, r.type, r.version, r.spilled"),
    "blobs": TextTable(("tid", "digest"), ("body",), "0::bigint, ''::text, 0, r.digest", 4),
    "projection_rows": TextTable(("tid", "projection", "version", "head", "digest"), ("key", "value"), _NO_EVENT),
    "passages": TextTable(("tid", "place"), ("terms",), _NO_EVENT),
    "threads": TextTable(("tid",), ("metadata",), _NO_EVENT),
    "acts": TextTable(("id",), ("plan", "asked_by", "reason", "outcome"), _NO_EVENT, tid="NULL::uuid"),
}
_VALUES = {"key": "r.head || r.tail"}
"""The SQL for a value that several columns hold."""


async def stored_texts(pool: Pool, schema: str) -> AsyncIterator[Sequence[StoredText]]:
    """All such values. Between two pages others may write."""
    spilled: dict[tuple[object, bytes], tuple[int, str, int]] = {}
    for name, table in _TABLES.items():
        after: tuple[object, ...] = ()
        while rows := await pool.read_all(partial(_page, schema, name, table, after)):
            yield [text for row in rows for text in _row_texts(name, table, row, spilled)]
            after = tuple(rows[-1])[: len(table.key)]


async def _page(
    schema: str, name: str, table: TextTable, after: tuple[object, ...], connection: Connection
) -> list[asyncpg.Record]:
    key = ", ".join(f"r.{column}" for column in table.key)
    marks = ", ".join(f"${n}" for n in range(1, len(after) + 1))
    values = ", ".join(_VALUES.get(column, f"r.{column}") for column in table.columns)
    return await Reads(connection, schema).fetch(
        f"SELECT {key}, {table.tid}, coalesce(t.id, 'number ' || {table.tid}::text, ''), {table.event}, {values} "
        f"FROM @.{name} r LEFT JOIN @.threads t ON t.tid = {table.tid} {f'WHERE ({key}) > ({marks})' if after else ''} "
        f"ORDER BY {key} LIMIT {table.rows}",
        *after,
    )


def _row_texts(
    name: str, table: TextTable, row: asyncpg.Record, spilled: dict[tuple[object, bytes], tuple[int, str, int]]
) -> Iterator[StoredText]:
    """The values of a row. An event's own description is kept for its payload, if that is in another table."""
    tid, thread, seq, type_, version, digest, *values = tuple(row)[len(table.key) :]
    if digest is not None and seq:
        spilled[tid, digest] = seq, type_, version
    elif digest is not None:
        seq, type_, version = spilled.get((tid, digest), (0, "", 0))
    for column, value in zip(table.columns, values, strict=True):
        if value:
            yield StoredText(f"{name}.{column}", thread, value, seq, type_, version)
