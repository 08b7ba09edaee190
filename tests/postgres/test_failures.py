"""What goes wrong around a server: typed errors that say what to do, never a password, and no commit half done."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import msgspec
import pytest

import memory_engine
from memory_engine import NewEvent, UserMessage
from memory_engine.core.threads import Head, ThreadRecord
from memory_engine.engine import kernel_of
from memory_engine.errors import (
    InvalidArgument,
    InvalidIdentifier,
    MemoryEngineError,
    SchemaError,
    StorageBusy,
    StorageError,
    StorageFailed,
    StorageUnreachable,
)
from memory_engine.storage.postgres import PostgresStore, pool
from memory_engine.storage.postgres.address import parse
from memory_engine.storage.postgres.rows import in_schema, tid_of
from memory_engine.store.protocol import Store, ThreadFilter
from memory_engine.testing.contract_rows import event, filled, head_at, ids_of, unit
from tests.command_line import Run
from tests.exports import talk
from tests.postgres.test_schema import ask

PASSWORD = "s3cr:et/p@ss%"
QUOTED = "s3cr%3Aet%2Fp%40ss%25"


def with_login(url: str, login: str, database: str = "") -> str:
    """The URL with another user and password, and another database."""
    head, _, rest = url.partition("://")
    place = rest.partition("@")[2]
    path, _, query = place.partition("?")
    return f"{head}://{login}@{f'/{database}' if database else path}?{query}"


async def test_what_keeps_one_out_is_said_without_the_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A role that is not there, a database that is not there, an address where nobody listens."""
    caplog.set_level(logging.DEBUG)
    cases: list[tuple[str, type[StorageError], str]] = [
        (with_login(url, f"nobody:{QUOTED}"), StorageFailed, "nobody"),
        (with_login(url, f"postgres:{QUOTED}", "nowhere"), StorageFailed, "createdb"),
        (f"postgresql://app:{QUOTED}@127.0.0.1:1/db", StorageUnreachable, "nothing was applied"),
    ]
    for address, kind, said in cases:
        with pytest.raises(kind, match=said) as raised:
            await PostgresStore.open(address, busy_timeout_s=0.05)
        for text in (str(raised.value), repr(raised.value), str(raised.value.__cause__), caplog.text):
            assert "s3cr" not in text


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://app:{PASSWORD}@host/db",
        "postgresql://app:pass@host:s3cr/db",
        f"postgresql://app:{QUOTED}@host/db?schema=1x",
        f"postgresql://app:{QUOTED}@host/db?connections=0",
        f"postgresql://app:{QUOTED}@host/db?wait=long",
        f"postgresql://app:{QUOTED}@host/db?prepared=perhaps",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    """Also where the password itself is why."""
    with pytest.raises(InvalidArgument) as raised:
        parse(url)
    assert "s3cr" not in f"{raised.value} {raised.value!r}"


async def test_a_url_of_another_database_is_refused() -> None:
    """It is not taken for the path of a file, and its password is not shown."""
    with pytest.raises(SchemaError, match="PostgreSQL") as raised:
        async with memory_engine.open("mysql://app:s3cr@host/db"):
            pass
    assert "s3cr" not in str(raised.value)


def test_every_text_about_an_address_is_without_the_password() -> None:
    """Its `repr`, what it shows, and any text that holds the password raw or quoted, or a URL with one."""
    address = parse(f"postgresql://app:{QUOTED}@host:5432/db?sslmode=require&schema=mem")
    assert "postgresql://app@host:5432/db?schema=mem" == address.shown
    assert "s3cr" not in repr(address)
    said = f"cannot use {PASSWORD} nor {QUOTED} of postgresql://app:{QUOTED}@host/db?password=s3cr"
    assert "s3cr" not in address.redacted(said)


async def test_a_role_without_privileges_is_told_of_them(store: PostgresStore, url: str) -> None:
    """It may log in, and may not use the schema."""
    role = f"r_{parse(url).schema}"
    await ask(url, f"CREATE ROLE {role} LOGIN")
    with pytest.raises(StorageFailed, match="GRANT"):
        await PostgresStore.open(with_login(url, role))


async def test_a_role_that_only_reads_can_read(store: PostgresStore, url: str) -> None:
    """A write raises an error that names the primary; what is there is shown."""
    await filled(store, "t", 1)
    role = f"r_{parse(url).schema}"
    await ask(url, f"CREATE ROLE {role} LOGIN SUPERUSER")
    await ask(url, f"ALTER ROLE {role} SET default_transaction_read_only = on")
    other = await PostgresStore.open(with_login(url, role))
    assert ["e1"] == await ids_of(other, "t")
    with pytest.raises(StorageFailed, match="primary"):
        await other.commit(unit("t", event(2), after=head_at(1)))
    await other.close()


async def cut_off(url: str) -> int:
    """End every connection of the store's; how many there were."""
    rows = await ask(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND query LIKE '%@%'",
    )
    return len(rows)


async def test_connections_that_are_cut_off_are_made_anew(store: PostgresStore, url: str) -> None:
    """Reads and commits go on as if nothing had been."""
    head = await filled(store, "t", 1)
    for seq in range(2, 6):
        assert await cut_off(url)
        assert head == await store.head("t")
        await cut_off(url)
        await store.commit(unit("t", event(seq), after=head))
        head = head_at(seq)
    assert [f"e{n}" for n in range(1, 6)] == await ids_of(store, "t")


@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_commit_whose_answer_is_lost_is_resolved(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, is_applied: bool
) -> None:
    """The connection is lost before the commit, or after it: either way it is acknowledged once, and there once."""
    lost = iter([True])
    called = pool.Pool._called

    async def losing(self: pool.Pool, work: Callable[[pool.Connection], Awaitable[object]]) -> object:
        async def cut(connection: pool.Connection) -> object:
            if next(lost, False):
                if is_applied:
                    await work(connection)
                connection.terminate()
                raise ConnectionResetError("the answer is lost")
            return await work(connection)

        return await called(self, cut)

    monkeypatch.setattr(pool.Pool, "_called", losing)
    await store.commit(msgspec.structs.replace(unit("t", event(1)), makes=ThreadRecord(id="t")))
    assert (["e1"], head_at(1)) == (await ids_of(store, "t"), await store.head("t"))


async def test_what_the_server_cannot_hold_refuses_one_unit_only(store: PostgresStore) -> None:
    """A NUL in a type's name, a lone surrogate, a number too large: the other units of the call are written."""
    for name in "abcd":
        await store.create(ThreadRecord(id=name), Head(), ())
    spoilt = [
        unit("a", event(1, id="\ud800")),
        unit("b", msgspec.structs.replace(event(1), type="x\0y")),
        unit("c", msgspec.structs.replace(event(1), recorded_at_us=1 << 70)),
        unit("d", event(1)),
    ]
    outcomes = await asyncio.gather(*map(store.commit, spoilt), return_exceptions=True)
    assert [True, True, True, False] == [isinstance(one, MemoryEngineError) for one in outcomes]
    assert isinstance(outcomes[0], InvalidIdentifier)
    assert isinstance(outcomes[1], InvalidIdentifier)
    assert [[], [], [], ["e1"]] == [await ids_of(store, name) for name in "abcd"]
    assert [] == list(await store.threads(ThreadFilter(user_id="a\0b")))


async def test_a_row_that_another_session_holds_is_waited_for(store: PostgresStore, url: str) -> None:
    """Up to the timeout; then `StorageBusy`, and nothing is written. Other threads go on meanwhile."""
    await filled(store, "t", 1)
    await filled(store, "u", 1)
    impatient = await PostgresStore.open(url, busy_timeout_s=0.1)
    address = parse(url)
    connection = await asyncpg.connect(address.dsn)
    async with connection.transaction():
        await connection.execute(f"SELECT 1 FROM {address.schema}.heads WHERE tid = $1 FOR UPDATE", tid_of("t"))
        both = [impatient.commit(unit(name, event(2), after=head_at(1))) for name in "tu"]
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert [True, False] == [isinstance(one, StorageBusy) for one in outcomes]
        with pytest.raises(StorageBusy) as raised:
            await impatient.delete("t")
        for error in (raised.value, outcomes[0]):
            assert isinstance(error, StorageBusy)
            assert 0.1 <= error.waited_s
        waiting = store.commit(unit("t", event(2), after=head_at(1)))
        assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    await waiting
    assert ["e1", "e2"] == await ids_of(store, "t") == await ids_of(store, "u")
    await connection.close()
    await impatient.close()


READS: dict[str, Callable[[PostgresStore], Awaitable[object]]] = {
    "load": lambda store: store.load("t"),
    "read": lambda store: store.read("t", after=0, upto=9, limit=9),
    "rows": lambda store: store.rows("p", 1, "t"),
    "create": lambda store: store.create(ThreadRecord(id="new"), Head(), ()),
    "lease": lambda store: store.lease("t"),
    "delete": lambda store: store.delete("other"),
    "flush": lambda store: store.flush(),
}


@pytest.mark.parametrize("name", READS)
async def test_cancelling_a_call_at_any_moment_leaves_every_connection_clean(
    store: PostgresStore, url: str, name: str
) -> None:
    """At each of its first rounds of the loop; the store goes on, and no transaction stays open."""
    await filled(store, "t", 3)
    await filled(store, "other", 1)
    for rounds in range(12):
        task = asyncio.ensure_future(READS[name](store))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await store.commit(unit("t", event(4), after=head_at(3)))
    while store._pool._tasks:
        await asyncio.wait(list(store._pool._tasks))
    open_ones = await ask(
        url,
        "SELECT state FROM pg_stat_activity WHERE query LIKE '%@%' AND state LIKE 'idle in transaction%' "
        "AND pid <> pg_backend_pid()",
    )
    assert ([], ["e1", "e2", "e3", "e4"]) == (open_ones, await ids_of(store, "t"))


async def test_cancelled_senders_lose_no_event_and_send_none_twice(url: str) -> None:
    """Each dispatch is cancelled at another round of the loop, then sent again with its id."""
    async with memory_engine.open(url) as engine:
        thread = await engine.create_thread("t")
        for n in range(24):
            new = NewEvent(UserMessage(content=f"Number {n}"), id=f"id-{n}")
            task = asyncio.ensure_future(thread.dispatch_all([new]))
            for _ in range(n):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await thread.dispatch_all([new])
        assert [f"id-{n}" for n in range(24)] == [one.id async for one in thread.events()]
        assert (await thread.replay.verify()).ok


async def made_and_closed(url: str) -> None:
    """Make the schema of a store."""
    await (await PostgresStore.open(url)).close()


def test_the_command_line_shows_no_password(url: str, run: Run) -> None:
    """What it prints of the store's place, and what it cannot reach."""
    address = with_login(url, f"postgres:{QUOTED}")
    asyncio.run(made_and_closed(url))
    for words in (["stats"], ["stats", "--json"], ["verify"]):
        code, printed, said = run("--db", address, *words)
        assert (0, False) == (code, "s3cr" in printed + said)
    assert ":***@" in run("--db", address, "stats")[1]
    code, printed, said = run("--db", with_login(url, f"nobody:{QUOTED}"), "threads")
    assert (2, False) == (code, "s3cr" in printed + said)


async def test_the_privileges_of_the_page_are_enough(store: PostgresStore, url: str) -> None:
    """A role with the GRANTs of the docs does all but what needs the owner of the tables, and is told so."""
    page = Path(__file__).parents[2].joinpath("docs", "how-to", "postgresql.md").read_text(encoding="utf-8")
    role = f"r_{parse(url).schema}"
    script = page.partition("```sql")[2].partition("```")[0].replace("memory_engine", "@").replace("agent", role)
    granting = await asyncpg.connect(parse(url).dsn)
    await granting.execute(script.replace("@", parse(url).schema))
    await granting.close()
    async with memory_engine.open(with_login(url, role)) as engine:
        thread = await talk(engine)
        await thread.search("bike")
        await engine.user("ann").preferences.update("verbosity", "concise")
        assert (await thread.replay.verify()).ok
        await thread.replay.rebuild()
        assert await kernel_of(engine).store.lease("t")
        with pytest.raises(StorageFailed, match="VACUUM"):
            await thread.admin.delete()
        assert "t" not in [one.id for one in await engine.threads()]
        with pytest.raises(StorageFailed, match="privilege"):
            await ask_as(kernel_of(engine).store, "UPDATE @.events SET type = 'x'")
    async with memory_engine.open(url) as engine:
        await engine.admin.finish_acts()
        assert [True] == [act.done_at_us > 0 for act in await engine.admin.acts() if act.kind == "delete"]


async def ask_as(store: Store, sql: str) -> None:
    """Run a statement by the store's own role."""
    assert isinstance(store, PostgresStore)
    await store._pool.write(lambda connection: connection.execute(in_schema(sql, store._schema)))


def test_without_the_driver_a_url_names_the_extra() -> None:
    """The package itself needs no driver of a server."""
    script = (
        "import asyncio, sys\n"
        "sys.modules['asyncpg'] = None\n"
        "import memory_engine\n"
        "async def opened():\n"
        "    async with memory_engine.open('postgresql://app@host/db'):\n"
        "        pass\n"
        "try:\n"
        "    asyncio.run(opened())\n"
        "except memory_engine.errors.MissingExtra as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "'.[postgres]'" in done.stdout
