"""The schema, as numbered migrations: forward only, all that are missing in one transaction, under a lock.

A migration is the files `schema_N.sql` and `functions_N.sql` in this folder. They also run unchanged where the
tables of threads are distributed afterwards by `tid` (Citus): nothing refers across threads, nothing draws numbers.
"""

from importlib.resources import files

import asyncpg

from memory_engine.errors import SchemaError
from memory_engine.storage.postgres.address import Address
from memory_engine.storage.postgres.pool import Connection
from memory_engine.storage.postgres.rows import in_schema
from memory_engine.store.protocol import Migrated

VERSION = 3
REFERENCE_TABLES = frozenset({"schema_version", "store_state", "acts"})
"""Tables that belong to no thread: where threads are distributed, each node has these whole."""
THREAD_TABLES = (
    "threads", "heads", "events", "blobs", "live", "projection_rows", "checkpoints", "leases", "passage_indexes",
    "passages", "words", "vectors", "embedded",
)  # fmt: skip
_LOCK = "memory_engine"
_MIGRATION_MS = 300_000
"""A migration of much data takes long, and who opens the store meanwhile waits for it."""
SERVER_MIN = 140_000


async def migrate(connection: Connection, address: Address, migrated: Migrated | None = None) -> None:
    """Make the schema, or bring it to the newest version. Safe when several processes race to it.

    Raises `SchemaError` for one that is another program's, or of a newer version.
    """
    if await version_of(connection, address) == VERSION:
        return
    await connection.execute(f"SET LOCAL lock_timeout = {_MIGRATION_MS}")
    # The lock is of this schema: others may be migrated at the same time. It ends with the transaction.
    lock = f"{_LOCK} {address.schema}"
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", lock)
    found = await version_of(connection, address)
    if not found and not await _is_there(connection, address):
        await connection.execute(f'CREATE SCHEMA "{address.schema}"')
    for number in range(found + 1, VERSION + 1):
        for name in ("schema", "functions"):
            script = (files(__package__ or "") / f"{name}_{number}.sql").read_text("utf-8")
            await connection.execute(in_schema(script, address.schema))
        await connection.execute(
            in_schema("INSERT INTO @.schema_version (version) VALUES ($1)", address.schema), number
        )
        if migrated is not None:
            migrated(number, brings(number))


async def generation_of(connection: Connection, address: Address) -> int | None:
    """The generation of a store whose schema is up to date; `None` if it is not, or if one query cannot decide."""
    sql = "SELECT s.value, (SELECT max(version) FROM @.schema_version) FROM @.store_state s WHERE s.name = 'generation'"
    try:
        found = await connection.fetchrow(in_schema(sql, address.schema))
    except (asyncpg.SyntaxOrAccessError, asyncpg.InvalidSchemaNameError):  # no such table, or another program's
        return None
    is_known = connection.get_server_version().major >= SERVER_MIN // 10_000
    return int(found[0]) if is_known and found is not None and found[1] == VERSION else None


def brings(number: int) -> str:
    """A migration in a line: the first of its script."""
    script = (files(__package__ or "") / f"schema_{number}.sql").read_text("utf-8")
    return script.partition("\n")[0].removeprefix("-- ")


async def version_of(connection: Connection, address: Address) -> int:
    """The version of the schema, 0 where it is empty or not there. Raises `SchemaError` (see `migrate`)."""
    version = await stored_version(connection, address)
    if version > VERSION:
        why = f"its schema is version {version}, this package knows up to {VERSION}; upgrade"
        raise SchemaError(address.shown, why)
    return version


async def stored_version(connection: Connection, address: Address) -> int:
    """The version of the schema, also of a newer one. Raises `SchemaError` for another program's."""
    server = int(await connection.fetchval("SELECT current_setting('server_version_num')") or 0)
    if server < SERVER_MIN:
        why = f"the server is PostgreSQL {server // 10_000}; {SERVER_MIN // 10_000} or newer is needed"
        raise SchemaError(address.shown, why)
    rows = await connection.fetch(
        "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
        address.schema,
    )
    tables = {row["relname"] for row in rows}
    if "schema_version" not in tables:
        if tables:
            why = f"the schema {address.schema!r} holds tables of another program; give one of its own (`?schema=`)"
            raise SchemaError(address.shown, why)
        return 0
    found = await connection.fetchval(in_schema("SELECT max(version) FROM @.schema_version", address.schema))
    return int(found or 0)


async def _is_there(connection: Connection, address: Address) -> bool:
    query = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1"
    return await connection.fetchval(query, address.schema) is not None
