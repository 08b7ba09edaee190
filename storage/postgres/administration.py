"""Delete and erase on a server, and look for remains: rows go in a transaction that notifies all engines.

Deleted rows leave dead versions in the tables' files; `wipe` lets the server reuse their space. The server's other
copies (its write-ahead log and archives of it, replicas, backups) are beyond a client.
"""

from collections.abc import Sequence
from functools import partial

from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ACTIVE, DELETED
from memory_engine.errors import IntegrityError, StorageFailed, ThreadHasForks
from memory_engine.storage.postgres.pool import Connection, Pool
from memory_engine.storage.postgres.reads import Reads
from memory_engine.storage.postgres.rows import as_bytes, count_in, in_schema, tid_of
from memory_engine.storage.postgres.schema import THREAD_TABLES
from memory_engine.storage.postgres.units import PUT_EVENTS, event_columns
from memory_engine.store.acts import Act
from memory_engine.store.protocol import KEPT_ROWS, Traces

_ROWS = (
    ("events", "payload"),
    ("events", "record"),
    ("blobs", "body"),
    ("projection_rows", "value"),
    ("passages", "terms"),
    ("threads", "metadata"),
    ("events", "salt"),
    ("events", "spilled"),
    ("blobs", "digest"),
    ("projection_rows", "head || r.tail"),
    ("words", "term"),
    ("vectors", "vector"),
)
_DERIVED = ("passage_indexes", "passages", "words", "vectors", "embedded")
BEYOND = "the server's files, its write-ahead log and archives, replicas and backups: a client cannot read them"
_MAY_VACUUM = (
    "SELECT bool_and(pg_has_role(c.relowner, 'USAGE') OR CASE WHEN $2 THEN has_table_privilege(c.oid, 'MAINTAIN') "
    "ELSE false END) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')"
)
_ACT_COLUMNS = "id, kind, plan, asked_by, reason, asked_at_us, done_at_us, outcome"


async def delete(connection: Connection, schema: str, thread_id: str) -> None:
    """Delete every row of a thread but its id. It stays its tenant's."""
    reads, tid = Reads(connection, schema), tid_of(thread_id)
    await reads.fetch(  # one that has lost its head's row gets one, to be deleted too
        "INSERT INTO @.heads (tid, tenant_id, seq, hash, epoch, status, open_compaction, chunks, tokens, marks) "
        "SELECT t.tid, t.tenant_id, 0, '', 0, $2, 0, 0, 0, '{}' FROM @.threads t WHERE t.tid = $1 "
        "ON CONFLICT (tid) DO NOTHING",
        tid,
        ACTIVE,
    )
    await reads.there(thread_id, lock="FOR UPDATE OF h")
    if forks := await reads.forks(thread_id):  # made since the act was asked for
        raise ThreadHasForks(thread_id, tuple(forks))
    for table in ("events", "blobs", "live", "projection_rows", "checkpoints", "leases", *_DERIVED):
        await reads.fetch(f"DELETE FROM @.{table} WHERE tid = $1", tid)
    await reads.fetch(
        "UPDATE @.heads SET seq = 0, hash = '', epoch = epoch + 1, status = $2, open_compaction = 0, chunks = 0, "
        "tokens = 0, marks = '{}' WHERE tid = $1",
        tid,
        DELETED,
    )
    await reads.fetch(
        "UPDATE @.threads SET user_id = '', agent_id = '', parent_id = '', metadata = '{}', policy = NULL "
        "WHERE tid = $1",
        tid,
    )
    await tell(connection, schema)


async def replace(connection: Connection, schema: str, thread_id: str, rows: Sequence[StoredEvent]) -> None:
    """Put rows in the place of a thread's own, and drop what was derived from its log."""
    reads = Reads(connection, schema)
    thread = await reads.there(thread_id, lock="FOR UPDATE OF h")
    tid = thread["tid"]
    delete_one = in_schema("DELETE FROM @.events WHERE tid = $1 AND seq = $2 AND hash = $3", schema)
    for row in rows:
        if count_in(await connection.execute(delete_one, tid, row.seq, row.hash)) != 1:
            raise IntegrityError(thread_id, row.seq, "the row to erase is another one")
    put = in_schema(PUT_EVENTS, schema)
    await connection.execute(put, [tid], [thread["tenant_id"]], *event_columns(rows))
    await reads.fetch(
        "DELETE FROM @.blobs b WHERE b.tid = $1 AND NOT EXISTS "
        "(SELECT 1 FROM @.events e WHERE e.tid = $1 AND e.spilled = b.digest)",
        tid,
    )
    for table in _DERIVED:
        await reads.fetch(f"DELETE FROM @.{table} WHERE tid = $1", tid)
    for table in ("projection_rows", "checkpoints"):
        await reads.fetch(f"DELETE FROM @.{table} WHERE tid = $1 AND projection <> ALL ($2)", tid, sorted(KEPT_ROWS))
    await tell(connection, schema)


async def tell(connection: Connection, schema: str) -> None:
    """Let all engines know that something was deleted or erased."""
    await Reads(connection, schema).fetch("UPDATE @.store_state SET value = value + 1 WHERE name = 'generation'")


async def wipe(pool: Pool) -> bool:
    """Let the server reuse the space of what was deleted and erased, in every table.

    Returns whether no transaction can still read it: one that began before keeps all that it may see. Other roles'
    transactions are seen with the privileges of `pg_read_all_stats` only. Raises `StorageFailed` for a role that may
    not VACUUM: the server would only warn of it.
    """
    schema = pool.address.schema
    if not await pool.read(lambda connection: _may_vacuum(connection, schema)):
        why = "the role may not VACUUM its tables; let their owner open it, or one with MAINTAIN on them, to finish it"
        raise StorageFailed(pool.address.shown, why)
    horizon = await pool.write(lambda connection: connection.fetchval("SELECT pg_current_xact_id()::xid"))
    for table in (*THREAD_TABLES, "acts"):
        await pool.bare(partial(_vacuum, in_schema(f"VACUUM @.{table}", schema)))
    older = (
        "SELECT count(*) FROM (SELECT backend_xmin AS x FROM pg_catalog.pg_stat_activity WHERE pid <> pg_backend_pid() "
        "UNION ALL SELECT xmin FROM pg_catalog.pg_replication_slots "
        "UNION ALL SELECT transaction FROM pg_catalog.pg_prepared_xacts) s WHERE age(s.x) > age($1::xid)"
    )
    return not await pool.read(lambda connection: connection.fetchval(older, horizon))


async def _may_vacuum(connection: Connection, schema: str) -> bool:
    has_maintain = connection.get_server_version().major >= 17
    return bool(await connection.fetchval(_MAY_VACUUM, schema, has_maintain))


async def _vacuum(sql: str, connection: Connection) -> None:
    await connection.execute(sql)


async def traces(connection: Connection, schema: str, pieces: Sequence[bytes]) -> Traces:
    """The places of pieces in the rows of any table."""
    reads = Reads(connection, schema)
    places: dict[bytes, list[str]] = {}
    size = 0
    for table, column in _ROWS:
        [row] = await reads.fetch(f"SELECT coalesce(sum(octet_length(r.{column})), 0)::bigint AS n FROM @.{table} r")
        size += row["n"]
        for piece in pieces:
            found = await reads.fetch(
                f"SELECT count(*) AS n FROM @.{table} r WHERE position($1::bytea IN r.{column}) > 0", piece
            )
            if found[0]["n"]:
                places.setdefault(piece, []).append(f"{found[0]['n']:,} rows of {table}.{column}")
    return Traces(files=[f"rows of {schema}, not {BEYOND}"], size=size, places=places)


async def mentions(connection: Connection, schema: str, words: Sequence[str]) -> list[str]:
    """The threads of passages that have analysed words in a row."""
    if not words:
        return []
    rows = await Reads(connection, schema).fetch(
        "SELECT DISTINCT t.id, r.tid FROM @.passages r LEFT JOIN @.threads t ON t.tid = r.tid WHERE "
        "position($1::bytea IN convert_to(' ', 'UTF8') || r.terms || convert_to(' ', 'UTF8')) > 0 ORDER BY 1, 2",
        as_bytes(f" {' '.join(words)} "),
    )
    return [f"passages.terms of thread {f'number {tid}' if name is None else name}" for name, tid in rows]


async def put_act(connection: Connection, schema: str, act: Act) -> None:
    """Keep an administrative act."""
    await Reads(connection, schema).fetch(
        f"INSERT INTO @.acts ({_ACT_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO UPDATE SET "
        "kind = excluded.kind, plan = excluded.plan, asked_by = excluded.asked_by, reason = excluded.reason, "
        "asked_at_us = excluded.asked_at_us, done_at_us = excluded.done_at_us, outcome = excluded.outcome",
        act.id,
        act.kind,
        as_bytes(act.plan),
        as_bytes(act.by),
        as_bytes(act.reason),
        act.asked_at_us,
        act.done_at_us,
        as_bytes(act.outcome),
    )


async def acts(connection: Connection, schema: str, *, pending: bool) -> list[Act]:
    """The administrative acts, oldest first, each with the tenants that whoever asked for it may reach.

    Any role may have written any bytes there: none of them keeps the others from being read.
    """
    rows = await Reads(connection, schema).fetch(
        f"WITH asked AS MATERIALIZED (SELECT {_ACT_COLUMNS}, role, kind NOT IN ('hold', 'release') AS destroys "
        "FROM @.acts WHERE done_at_us = 0 OR NOT $1), asker AS MATERIALIZED (SELECT d.role, d.destroys, "
        "@.tenants_of(d.role, d.destroys) AS tenants FROM (SELECT DISTINCT role, destroys FROM asked) d) "
        f"SELECT {_ACT_COLUMNS}, role, tenants FROM asked JOIN asker USING (role, destroys) ORDER BY asked_at_us, id",
        pending,
    )
    return [
        Act(
            id=row["id"],
            kind=row["kind"],
            plan=row["plan"].decode(errors="replace"),
            by=row["asked_by"].decode(errors="replace"),
            reason=row["reason"].decode(errors="replace"),
            asked_at_us=row["asked_at_us"],
            done_at_us=row["done_at_us"],
            outcome=row["outcome"].decode(errors="replace"),
            role="" if row["tenants"] is None else row["role"],
            tenants=None if row["tenants"] is None else tuple(row["tenants"]),
        )
        for row in rows
    ]
