"""The schema: made once, refused where it is another's or newer, and ready to be distributed by thread."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

import memory_engine.storage.postgres as package
from memory_engine.core.threads import Head, ThreadRecord
from memory_engine.errors import SchemaError
from memory_engine.storage.postgres import PostgresStore
from memory_engine.storage.postgres.address import parse
from memory_engine.storage.postgres.schema import REFERENCE_TABLES, THREAD_TABLES, VERSION
from tests.postgres_server import new_url, server_url


async def ask(url: str, sql: str, *values: object) -> list[asyncpg.Record]:
    """The rows of a query, by a connection of the test's own; `@` in it is the schema."""
    address = parse(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        return await connection.fetch(sql.replace("@", address.schema), *values)
    finally:
        await connection.close()


async def test_every_table_and_unique_index_is_led_by_the_thread(store: PostgresStore, url: str) -> None:
    """So each can be distributed by `tid`, and each row's tenant is a column of it. No key goes across threads."""
    columns = await ask(
        url,
        "SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position) AS names, "
        "bool_or(is_identity = 'YES' OR column_default LIKE 'nextval%') AS draws "
        "FROM information_schema.columns WHERE table_schema = '@' GROUP BY 1",
    )
    tables = {row["table_name"]: row for row in columns}
    assert set(THREAD_TABLES) | REFERENCE_TABLES == set(tables)
    assert not [name for name, row in tables.items() if row["draws"]]
    assert not [name for name in THREAD_TABLES if tables[name]["names"][:2] != ["tid", "tenant_id"]]
    unique = await ask(
        url,
        "SELECT c.relname, pg_get_indexdef(i.indexrelid, 1, true) AS first FROM pg_index i "
        "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = '@' AND i.indisunique",
    )
    assert not [row for row in unique if row["relname"] not in REFERENCE_TABLES and row["first"] != "tid"]
    assert [] == await ask(
        url,
        "SELECT conname FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace "
        "WHERE n.nspname = '@' AND k.contype IN ('f', 'x')",
    )


def test_every_statement_that_changes_a_thread_names_its_key() -> None:
    """No UPDATE or DELETE of a thread's table goes without `tid`: none can reach another thread's rows."""
    folder = Path(package.__file__).parent
    for path in sorted(folder.glob("functions_*.sql")):
        for part in path.read_text(encoding="utf-8").split(";"):
            words = part.split()
            for verb, place in (("UPDATE", 1), ("DELETE", 2)):
                changes = [n for n, word in enumerate(words) if word == verb and words[n + place].startswith("@.")]
                assert not changes or "tid" in part, part


async def test_many_who_open_it_at_once_make_it_once(url: str) -> None:
    """One migrates, the others wait and find it done."""
    stores = await asyncio.gather(*(PostgresStore.open(url) for _ in range(6)))
    await stores[0].create(ThreadRecord(id="t"), Head(), ())
    assert [Head()] * 6 == [await store.head("t") for store in stores]
    await asyncio.gather(*(store.close() for store in stores))
    assert [*range(1, VERSION + 1)] == [
        row["version"] for row in await ask(url, "SELECT version FROM @.schema_version ORDER BY 1")
    ]


async def test_a_newer_schema_is_refused(url: str) -> None:
    """A release that does not know it could write it wrong."""
    await (await PostgresStore.open(url)).close()
    await ask(url, "INSERT INTO @.schema_version (version) VALUES (99)")
    with pytest.raises(SchemaError, match="version 99"):
        await PostgresStore.open(url)


async def test_a_schema_of_another_program_is_left_alone(url: str) -> None:
    """Nothing is made beside tables that are not ours; an empty schema is taken."""
    await ask(url, "CREATE SCHEMA @")
    await ask(url, "CREATE TABLE @.notes (n integer)")
    with pytest.raises(SchemaError, match="another program"):
        await PostgresStore.open(url)
    assert ["notes"] == [
        row["name"]
        for row in await ask(url, "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = '@'")
    ]
    await ask(url, "DROP TABLE @.notes")
    await (await PostgresStore.open(url)).close()


async def test_a_table_that_is_gone_is_said_so(url: str) -> None:
    """A damaged schema is not an empty store."""
    store = await PostgresStore.open(url)
    await ask(url, "DROP TABLE @.heads")
    with pytest.raises(SchemaError, match="heads"):
        await store.head("t")
    await store.close()


def test_the_schema_comes_by_name_too() -> None:
    """Given to `open`, it goes before the URL's."""
    url = new_url()
    assert "mine" == parse(url, schema="mine").schema != parse(url).schema
    assert "memory_engine" == parse(server_url()).schema
