"""Queries. Each statement names the thread's key, and orders explicitly what comes in an order."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

import asyncpg
import msgspec

from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import (
    DELETED,
    Head,
    LiveChunk,
    LoadedThread,
    ThreadRecord,
    encoded_pairs,
    is_scope_id,
)
from memory_engine.errors import IntegrityError, MemoryEngineError, ThreadNotFound
from memory_engine.storage.postgres.pool import Connection
from memory_engine.storage.postgres.rows import (
    EVENT_COLUMNS,
    EVENTS,
    HEAD_COLUMNS,
    THREAD_COLUMNS,
    array_of,
    as_bytes,
    event_from_row,
    head_from_row,
    id_key,
    in_schema,
    joined_key,
    split_key,
    thread_from_row,
    tid_of,
)
from memory_engine.store import broken
from memory_engine.store.protocol import BROKEN_ROWS, RowSpan, StoreStats, ThreadFilter

_UPDATED = "coalesce((SELECT e.recorded_at_us FROM @.events e WHERE e.tid = t.tid AND e.seq = h.seq), t.created_at_us)"
"""When a thread's last event was recorded; a thread without one of its own was made then."""
LAST_SEQ = (1 << 62) - 1
T = TypeVar("T")


class LogPart(msgspec.Struct, frozen=True):
    """A log that a thread's history is made of, from a seq to another."""

    tid: UUID
    first: int
    last: int


class Reads:
    """The queries of one connection, in one schema. Queries for one answer share a transaction of the caller's."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def fetch(self, sql: str, *values: object) -> list[asyncpg.Record]:
        """The rows of a query; `@.` in it is the schema."""
        return await self._connection.fetch(in_schema(sql, self._schema), *values)

    async def one(self, sql: str, *values: object) -> asyncpg.Record | None:
        """The first row of a query."""
        return await self._connection.fetchrow(in_schema(sql, self._schema), *values)

    async def there(self, thread_id: str, *, lock: str = "") -> asyncpg.Record:
        """The key, the tenant, the seq and the origin of a thread that is there.

        Raises `ThreadNotFound`, and `IntegrityError` where it has no head.
        """
        row = await self.one(
            "SELECT h.tid, h.tenant_id, h.seq, t.forked_tid FROM @.heads h JOIN @.threads t ON t.tid = h.tid "
            f"WHERE h.tid = $1 AND h.status <> $2 {lock}",
            tid_of(thread_id),
            DELETED,
        )
        if row is None:
            raise await self.without_head(thread_id)
        return row

    async def without_head(self, thread_id: str) -> MemoryEngineError:
        """The error for a thread without a head: it was never made, was deleted, or is damaged."""
        lost = await self.one(
            "SELECT 1 FROM @.threads t LEFT JOIN @.heads h ON h.tid = t.tid WHERE t.tid = $1 AND h.tid IS NULL",
            tid_of(thread_id),
        )
        return (
            ThreadNotFound(thread_id) if lost is None else IntegrityError(thread_id, 0, "the row of its head is gone")
        )

    async def load(self, thread_id: str, *, sources: bool = True) -> LoadedThread:
        """A thread's record, head and live rows, with the events behind them unless without `sources`."""
        row = await self.one(
            f"SELECT {HEAD_COLUMNS}, {THREAD_COLUMNS}, "
            "EXISTS (SELECT 1 FROM @.passage_indexes i WHERE i.tid = t.tid) AS indexed, "
            "(SELECT p.value FROM @.projection_rows p WHERE p.projection = $3 AND p.version = $4 AND p.tid = t.tid "
            "AND p.head = $5) AS broken "
            "FROM @.threads t JOIN @.heads h ON h.tid = t.tid WHERE t.tid = $1 AND h.status <> $2",
            tid_of(thread_id),
            DELETED,
            BROKEN_ROWS,
            broken.VERSION,
            split_key(broken.KEY)[0],
        )
        if row is None:
            raise await self.without_head(thread_id)
        rows = await self.fetch(
            'SELECT seq, n, key, container FROM @.live WHERE tid = $1 ORDER BY container COLLATE "C", key', row["tid"]
        )
        live = [LiveChunk(f"{one['seq']}.{one['n']}", one["key"], one["container"]) for one in rows]
        seqs = sorted({int(one["seq"]) for one in rows}) if sources else ()
        behind = await self._events_at(thread_id, row, seqs)
        return LoadedThread(thread_from_row(row), head_from_row(row), live, behind, row["indexed"], row["broken"])

    async def head(self, thread_id: str) -> Head:
        """A thread's head."""
        row = await self.one(
            f"SELECT {HEAD_COLUMNS} FROM @.threads t JOIN @.heads h ON h.tid = t.tid "
            "WHERE t.tid = $1 AND h.status <> $2",
            tid_of(thread_id),
            DELETED,
        )
        if row is None:
            raise await self.without_head(thread_id)
        return head_from_row(row)

    async def lineage(self, thread_id: str) -> list[LogPart]:
        """The logs that a thread's history is made of, oldest first.

        Raises `IntegrityError` where forks lead in a circle, to nowhere, or to another tenant's thread.
        """
        parts: dict[UUID, LogPart] = {}
        last, tenant_id = LAST_SEQ, None
        at: UUID | None = tid_of(thread_id)
        while at is not None:
            row = await self.one("SELECT forked_tid, forked_seq, tenant_id FROM @.threads WHERE tid = $1", at)
            if row is None or at in parts:
                circle, nowhere = "the threads that it was forked from lead back to it", "the thread it was forked from"
                raise IntegrityError(thread_id, last, circle if row is not None else f"{nowhere} is gone")
            if tenant_id not in (None, row["tenant_id"]):
                raise IntegrityError(thread_id, last, "the thread it was forked from belongs to another tenant")
            tenant_id = row["tenant_id"]
            first = ((row["forked_seq"] or 0) if row["forked_tid"] is not None else 0) + 1
            parts[at] = LogPart(at, first, last)
            at, last = row["forked_tid"], min(last, first - 1)
        return list(parts.values())[::-1]

    async def _parts(self, thread_id: str, thread: asyncpg.Record) -> list[LogPart]:
        """Its lineage. Most threads are not forks, and one of these need not be asked for."""
        if thread["forked_tid"] is None:
            return [LogPart(tid_of(thread_id), 1, LAST_SEQ)]
        return await self.lineage(thread_id)

    async def read(
        self, thread_id: str, after: int, upto: int, limit: int, types: Collection[str] | None
    ) -> list[StoredEvent]:
        """Events in order, through shared pasts. Raises `IntegrityError` at the first gap, where all are read."""
        head = await self.there(thread_id)
        found: list[StoredEvent] = []
        for part in await self._parts(thread_id, head):
            low, high = max(part.first, after + 1), min(part.last, upto, LAST_SEQ)
            if low > high or len(found) >= limit:
                continue
            rows = await self.fetch(
                f"SELECT {EVENT_COLUMNS} FROM {EVENTS} WHERE e.tid = $1 AND e.seq BETWEEN $2 AND $3 "
                "AND ($4::text[] IS NULL OR e.type = ANY ($4)) ORDER BY e.seq LIMIT $5",
                part.tid,
                low,
                high,
                None if types is None else sorted(types),
                limit - len(found),
            )
            found += await self._linked(thread_id, rows)
        if types is None:
            _check_whole(thread_id, found, after, None if len(found) >= limit else min(upto, int(head["seq"])))
        return found

    async def seq_at(self, thread_id: str, recorded_at_us: int) -> int:
        """The seq of the last event recorded at or before a time, 0 without one."""
        for part in reversed(await self._parts(thread_id, await self.there(thread_id))):
            row = await self.one(
                "SELECT seq FROM @.events WHERE tid = $1 AND seq BETWEEN $2 AND $3 AND recorded_at_us <= $4 "
                "ORDER BY seq DESC LIMIT 1",
                part.tid,
                part.first,
                part.last,
                recorded_at_us,
            )
            if row is not None:
                return int(row["seq"])
        return 0

    async def correlated(
        self, correlation_id: str, limit: int | None, tenant_id: str | None
    ) -> list[tuple[str, StoredEvent]]:
        """Events that bear a correlation id, with their threads' ids, in the order of their recording.

        An index leads to them, even amid damaged rows: a fork's first has the hash before it in another log.
        """
        if not correlation_id:
            return []
        rows = await self.fetch(
            f"SELECT t.id AS thread_id, {EVENT_COLUMNS} FROM {EVENTS} JOIN @.threads t ON t.tid = e.tid "
            "JOIN @.heads h ON h.tid = t.tid WHERE e.correlation_id = $1 AND h.status <> $2 "
            "AND t.tenant_id = coalesce($3, t.tenant_id) "
            "ORDER BY e.recorded_at_us DESC, t.made_us DESC, t.tid DESC, e.seq DESC LIMIT $4",
            as_bytes(correlation_id),
            DELETED,
            tenant_id,
            limit,
        )
        found: list[tuple[str, StoredEvent]] = []
        for row in rows:
            [stored] = await self._linked(row["thread_id"], [row])
            if stored.previous is None:
                why = "it is not in the place where it was recorded"
                raise IntegrityError(row["thread_id"], stored.seq, why)
            found.append((row["thread_id"], stored))
        return found[::-1]

    async def find(self, thread_id: str, event_ids: Sequence[str]) -> list[StoredEvent]:
        """Events by id, in the thread's own log and the pasts that it shares."""
        keys = [id_key(event_id) for event_id in event_ids]
        found: list[StoredEvent] = []
        for part in await self._parts(thread_id, await self.there(thread_id)):
            rows = await self.fetch(
                f"SELECT {EVENT_COLUMNS} FROM {EVENTS} WHERE e.tid = $1 AND e.id_key = ANY ($2) AND e.seq <= $3 "
                "ORDER BY e.seq",
                part.tid,
                keys,
                part.last,
            )
            found += await self._linked(thread_id, rows)
        return found

    async def read_at(self, thread_id: str, seqs: Sequence[int]) -> list[StoredEvent]:
        """Events by seq, in order. Raises `IntegrityError` for one that should be there and is not."""
        thread = await self.there(thread_id)
        wanted = sorted({seq for seq in seqs if 0 < seq <= thread["seq"]})
        found = await self._events_at(thread_id, thread, wanted)
        for seq in wanted:
            if seq not in found:
                raise IntegrityError(thread_id, seq, "the log has a gap")
        return [found[seq] for seq in wanted]

    async def _events_at(self, thread_id: str, thread: asyncpg.Record, seqs: Sequence[int]) -> dict[int, StoredEvent]:
        found: dict[int, StoredEvent] = {}
        for part in await self._parts(thread_id, thread) if seqs else ():
            some = [seq for seq in seqs if part.first <= seq <= part.last]
            if some:  # as text: for an array's type the driver asks the catalog, three times as long as this takes
                rows = await self.fetch(
                    f"SELECT {EVENT_COLUMNS} FROM {EVENTS} WHERE e.tid = $1 AND e.seq = ANY ($2::text::bigint[]) "
                    "ORDER BY e.seq",
                    part.tid,
                    array_of(some),
                )
                found.update((stored.seq, stored) for stored in await self._linked(thread_id, rows))
        return found

    async def _linked(self, thread_id: str, rows: Sequence[asyncpg.Record]) -> list[StoredEvent]:
        """The rows, also the first of a fork with the hash before it, which is in the log where it was forked.

        Raises `SchemaError` for a row that nothing can decode.
        """
        found = [event_from_row(row) for row in rows]
        for n, stored in enumerate(found):
            if stored.previous is None:
                parts = await self.lineage(thread_id)
                origin = next((one for one in parts if one.first <= stored.seq - 1 <= one.last), None)
                before = None
                if origin is not None:
                    before = await self.one(
                        "SELECT hash FROM @.events WHERE tid = $1 AND seq = $2", origin.tid, stored.seq - 1
                    )
                found[n] = msgspec.structs.replace(stored, previous=None if before is None else before["hash"])
        return found

    async def listed(self, where: ThreadFilter) -> list[tuple[ThreadRecord, Head, int]]:
        """Threads by exact matches; also those whose head's row is gone, for nothing vanishes."""
        conditions = ["h.status IS DISTINCT FROM $1"]
        values: list[object] = [DELETED]
        for name, value in where.exact():
            if "\0" in value:
                return []
            values.append(tid_of(value) if name == "id" else value)
            column = {"status": "h.status", "id": "t.tid"}.get(name, f"t.{name}")
            is_indexed = name in ("user_id", "parent_id") and value
            conditions.append(f"{column} = ${len(values)}" + (f" AND {column} <> ''" if is_indexed else ""))
        for pair in encoded_pairs(where.metadata):
            values.append(pair.encode())
            conditions.append(f"position(${len(values)}::bytea IN ','::bytea || substring(t.metadata FROM 2)) > 0")
        key = _UPDATED if where.order == "updated" else "t.made_us"
        descending = " DESC" if where.is_newest_first else ""
        if where.after:
            row = await self.one(
                f"SELECT {key} AS at_us, t.tid FROM @.threads t LEFT JOIN @.heads h ON h.tid = t.tid WHERE t.tid = $1",
                tid_of(where.after),
            )
            if row is None:
                raise ThreadNotFound(where.after)
            at_us = where.after_us if where.order == "updated" and where.after_us is not None else row["at_us"]
            sign = "<" if descending else ">"
            conditions.append(f"({key}, t.tid) {sign} (${len(values) + 1}::bigint, ${len(values) + 2}::uuid)")
            values += [at_us, row["tid"]]
        rows = await self.fetch(
            f"SELECT {HEAD_COLUMNS}, {THREAD_COLUMNS}, {_UPDATED} AS updated_us "
            f"FROM @.threads t LEFT JOIN @.heads h ON h.tid = t.tid "
            f"WHERE {' AND '.join(conditions)} ORDER BY {key}{descending}, t.tid{descending} "
            f"LIMIT ${len(values) + 1}",
            *values,
            where.limit,
        )
        found = [(thread_from_row(row), head_from_row(row), int(row["updated_us"])) for row in rows]
        return where.ordered([one for one in found if where.has_metadata(one[0])])

    async def is_deleted(self, thread_id: str) -> bool:
        """Whether the thread that bears an id is deleted."""
        row = await self.one("SELECT 1 FROM @.heads WHERE tid = $1 AND status = $2", tid_of(thread_id), DELETED)
        return row is not None

    async def taken(self) -> list[str]:
        """Ids of deleted threads, but scopes'."""
        rows = await self.fetch(
            "SELECT t.id FROM @.threads t JOIN @.heads h ON h.tid = t.tid WHERE h.status = $1", DELETED
        )
        return [row["id"] for row in rows if not is_scope_id(row["id"])]

    async def forks(self, thread_id: str) -> list[str]:
        """Ids of the threads that were forked from a thread, also from one whose head's row is gone.

        A row of another tenant is not a fork: a role can write one that claims any thread as its origin.
        """
        tid = tid_of(thread_id)
        rows = await self.fetch(
            "SELECT t.id FROM @.threads t JOIN @.threads o ON o.tid = t.forked_tid AND o.tenant_id = t.tenant_id "
            "LEFT JOIN @.heads h ON h.tid = t.tid WHERE t.forked_tid = $1 "
            "AND t.tid <> $1 AND h.status IS DISTINCT FROM $2 ORDER BY t.made_us, t.tid",
            tid,
            DELETED,
        )
        if not rows and await self.one("SELECT 1 FROM @.heads WHERE tid = $1 AND status <> $2", tid, DELETED) is None:
            error = await self.without_head(thread_id)
            if isinstance(error, ThreadNotFound):
                raise error
        return [row["id"] for row in rows]

    async def _rows_of(self, thread_id: str, sql: str, *values: object) -> list[asyncpg.Record]:
        """Rows of an existing thread (a query of `@.heads h` and tables joined to it, `$1` and `$2` taken)."""
        rows = await self.fetch(sql, tid_of(thread_id), DELETED, *values)
        if not rows:
            raise await self.without_head(thread_id)
        return rows

    async def projection_rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """A projection's checkpoint and rows for a thread."""
        rows = await self._rows_of(
            thread_id,
            "SELECT c.seq, r.head, r.tail, r.value FROM @.heads h "
            "LEFT JOIN @.checkpoints c ON c.tid = h.tid AND c.projection = $3 AND c.version = $4 "
            "LEFT JOIN @.projection_rows r ON r.tid = h.tid AND r.projection = $3 AND r.version = $4 "
            "WHERE h.tid = $1 AND h.status <> $2 ORDER BY r.head, r.tail",
            projection,
            version,
        )
        found = {joined_key(row["head"], row["tail"]): row["value"] for row in rows if row["head"] is not None}
        return rows[0]["seq"] or 0, found

    async def checkpoint(self, projection: str, version: int, thread_id: str) -> int:
        """A projection's checkpoint for a thread."""
        rows = await self._rows_of(
            thread_id,
            "SELECT c.seq FROM @.heads h LEFT JOIN @.checkpoints c ON c.tid = h.tid AND c.projection = $3 "
            "AND c.version = $4 WHERE h.tid = $1 AND h.status <> $2",
            projection,
            version,
        )
        return rows[0]["seq"] or 0

    async def rows_between(
        self, projection: str, version: int, thread_id: str, span: RowSpan
    ) -> list[tuple[str, bytes]]:
        """The rows of a span, in order of keys."""
        head, _, tail = split_key(span.first)
        end, values = "", [projection, version, head, tail, span.limit]
        if span.last is not None:
            end = "AND head <= $8 AND (head, tail) < ($8, $9) "
            end_head, _, end_tail = split_key(span.last)
            values += [end_head, end_tail]
        down = " DESC" if span.latest else ""
        rows = await self._rows_of(
            thread_id,
            "SELECT r.head, r.tail, r.value FROM @.heads h LEFT JOIN LATERAL ("
            "SELECT head, tail, value FROM @.projection_rows WHERE tid = $1 AND projection = $3 AND version = $4 "
            f"AND head >= $5 AND (head, tail) >= ($5, $6) {end}ORDER BY head{down}, tail{down} LIMIT $7) r ON true "
            "WHERE h.tid = $1 AND h.status <> $2 ORDER BY r.head, r.tail",
            *values,
        )
        return [(joined_key(row["head"], row["tail"]), row["value"]) for row in rows if row["head"] is not None]

    async def measure_rows(self, projection: str, version: int, thread_id: str) -> tuple[int, int]:
        """The number of a projection's rows, and the bytes of their values."""
        [row] = await self._rows_of(
            thread_id,
            "SELECT count(r.tid) AS count, coalesce(sum(octet_length(r.value)), 0) AS size FROM @.heads h "
            "LEFT JOIN @.projection_rows r ON r.tid = h.tid AND r.projection = $3 AND r.version = $4 "
            "WHERE h.tid = $1 AND h.status <> $2 GROUP BY h.tid",
            projection,
            version,
        )
        return row["count"], row["size"]

    async def holders(self, projection: str, version: int) -> list[str]:
        """Ids of the threads for which a projection has rows."""
        rows = await self.fetch(
            "SELECT t.id FROM @.threads t JOIN @.heads h ON h.tid = t.tid WHERE h.status <> $3 AND EXISTS "
            "(SELECT 1 FROM @.projection_rows r WHERE r.tid = t.tid AND r.projection = $1 AND r.version = $2) "
            "ORDER BY t.made_us, t.tid",
            projection,
            version,
            DELETED,
        )
        return [row["id"] for row in rows]

    async def behind(self, projection: str, version: int) -> list[str]:
        """Ids of the threads whose head is past a projection's checkpoint."""
        rows = await self.fetch(
            "SELECT t.id FROM @.threads t JOIN @.heads h ON h.tid = t.tid LEFT JOIN @.checkpoints c "
            "ON c.tid = t.tid AND c.projection = $1 AND c.version = $2 "
            "WHERE h.status <> $3 AND h.seq > coalesce(c.seq, 0) ORDER BY t.made_us, t.tid",
            projection,
            version,
            DELETED,
        )
        return [row["id"] for row in rows]

    async def totals(self) -> StoreStats:
        """Totals; `bytes` is the size of the schema's tables and indexes."""
        [alive] = await self.fetch(
            "SELECT count(*) AS threads, coalesce(sum(chunks), 0)::bigint AS chunks, "
            "coalesce(sum(tokens), 0)::bigint AS tokens FROM @.heads WHERE status <> $1",
            DELETED,
        )
        [log] = await self.fetch(
            "SELECT count(*) AS events, coalesce(sum(octet_length(coalesce(e.payload, b.body))), 0)::bigint AS size "
            f"FROM {EVENTS}"
        )
        [size] = await self.fetch(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint AS bytes FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'",
            self._schema,
        )
        return StoreStats(
            threads=alive["threads"],
            events=log["events"],
            chunks=alive["chunks"],
            tokens=alive["tokens"],
            payload_bytes=log["size"],
            bytes=size["bytes"],
        )


def _check_whole(thread_id: str, found: Sequence[StoredEvent], after: int, last: int | None) -> None:
    """Raise `IntegrityError` where an event is missing between `after` and the last (`None`: the limit cut it)."""
    expected = after + 1
    for stored in found:
        if stored.seq != expected:
            raise IntegrityError(thread_id, expected, "the log has a gap")
        expected += 1
    if last is not None and expected <= last:
        raise IntegrityError(thread_id, expected, "the log has a gap")
