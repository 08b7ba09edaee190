"""With row-level security the role of one tenant reads and writes nothing of another's, whatever it asks."""

from pathlib import Path

import asyncpg
import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import MemoryEngineError, StorageFailed, ThreadNotFound
from memory_engine.storage import postgres
from memory_engine.storage.postgres.address import parse
from memory_engine.storage.postgres.rows import tid_of
from memory_engine.storage.postgres.schema import THREAD_TABLES
from tests.postgres.test_failures import with_login
from tests.postgres.test_schema import ask

SCRIPT = Path(postgres.__file__).with_name("row_security.sql")
SECRET = "the bike of Bo is green"


async def secured(url: str, *tenants: str) -> list[str]:
    """Make a store, let the script run twice, and give each tenant a role; their addresses."""
    schema = parse(url).schema
    async with memory_engine.open(url):
        pass
    connection = await asyncpg.connect(parse(url).dsn)
    try:
        await connection.execute(f"SET search_path = {schema}")
        for _ in range(2):
            await connection.execute(SCRIPT.read_text(encoding="utf-8"))
        for tenant in tenants:
            role = f"{tenant}_{schema}"
            await connection.execute(
                f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};"
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};"
                f"REVOKE INSERT, UPDATE, DELETE ON tenant_roles FROM {role};"
                f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}"
            )
            await connection.execute("INSERT INTO tenant_roles (role, tenant_id) VALUES ($1, $2)", role, tenant)
    finally:
        await connection.close()
    return [with_login(url, f"{tenant}_{schema}") for tenant in tenants]


async def test_a_role_reads_the_rows_of_its_tenant_alone(url: str) -> None:
    """By the engine's calls, and by any statement of its own, with row security turned off or another role taken."""
    acme, other = await secured(url, "acme", "other")
    async with memory_engine.open(other) as engine:
        thread = await engine.create_thread("theirs", tenant_id="other", user_id="bo")
        await thread.dispatch_all([UserMessage(content=f"{SECRET} {n}") for n in range(40)])
        await thread.admin.prepare_search()
        await thread.scratchpad.write(SECRET)
        with pytest.raises(StorageFailed, match="VACUUM"):  # the owner finishes it; the act, with its reason, is there
            await thread.admin.erase([(await thread.replay.latest(1))[0].id], by="bo", reason=SECRET)
        assert 1 == len(await engine.admin.acts())
    async with memory_engine.open(acme) as engine:
        ours = await engine.create_thread("ours", tenant_id="acme")
        await ours.dispatch(UserMessage(content="our bike is blue"))
        assert ["ours"] == [info.id for info in await engine.threads()]
        assert [] == await engine.admin.acts()
        assert (await ours.search("bike")).hits
        assert (await ours.replay.verify()).ok
        for look in (engine.thread("theirs").context, engine.thread("theirs").info):
            with pytest.raises(ThreadNotFound):
                await look()
    schema = parse(url).schema
    connection = await asyncpg.connect(parse(acme).dsn)
    for table in THREAD_TABLES:
        assert 0 == await connection.fetchval(f"SELECT count(*) FROM {schema}.{table} WHERE tenant_id <> 'acme'")
        everything = str(await connection.fetch(f"SELECT * FROM {schema}.{table}"))
        assert SECRET not in everything
        assert str(tid_of("theirs")) not in everything
    assert 0 == await connection.fetchval(f"SELECT count(*) FROM {schema}.acts")
    assert [f"acme_{schema}"] == [row["role"] for row in await connection.fetch(f"SELECT * FROM {schema}.tenant_roles")]
    attempts = (
        f"INSERT INTO {schema}.tenant_roles VALUES (current_user, 'other')",
        f"INSERT INTO {schema}.embedded VALUES ('{tid_of('theirs')}', 'other', 'm', 1)",
        f"UPDATE {schema}.threads SET tenant_id = 'other'",
        f"ALTER TABLE {schema}.events DISABLE ROW LEVEL SECURITY",
        f"SET row_security = off; SELECT * FROM {schema}.events",
        f"SET ROLE other_{schema}",
        f"COPY (SELECT * FROM {schema}.events) TO PROGRAM 'cat'",
    )
    for sql in attempts:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(sql)
    assert "UPDATE 0" == await connection.execute(f"UPDATE {schema}.heads SET seq = 0 WHERE tenant_id = 'other'")
    assert "DELETE 0" == await connection.execute(f"DELETE FROM {schema}.events WHERE tenant_id = 'other'")
    await connection.close()


async def test_a_role_writes_to_no_thread_of_another_tenant(url: str) -> None:
    """An id that another tenant uses is taken; a thread of another tenant cannot be made."""
    acme, other = await secured(url, "acme", "other")
    async with memory_engine.open(other) as engine:
        await engine.create_thread("t", tenant_id="other")
    async with memory_engine.open(acme) as engine:
        for name, tenant in (("t", "acme"), ("u", "other"), ("v", "")):
            with pytest.raises(MemoryEngineError):
                await engine.create_thread(name, tenant_id=tenant)
        with pytest.raises(ThreadNotFound):
            await engine.thread("t").dispatch(UserMessage(content="x"))
    assert [("t", "other")] == [tuple(row) for row in await ask(url, "SELECT id, tenant_id FROM @.threads")]


async def test_a_role_without_a_tenant_sees_nothing(url: str) -> None:
    """Until it is named it has no rows; the owner sees all."""
    [acme] = await secured(url, "acme")
    async with memory_engine.open(acme) as engine:
        await engine.create_thread("t", tenant_id="acme")
    await ask(url, "DELETE FROM @.tenant_roles")
    async with memory_engine.open(acme) as engine:
        assert [] == await engine.threads()
    async with memory_engine.open(url) as engine:
        assert ["t"] == [info.id for info in await engine.threads()]
