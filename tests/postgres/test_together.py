"""Several engines on one database: they see each other's commits, take turns, and hold leases."""

import asyncio

import asyncpg
import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage
from memory_engine.core.threads import Head, ThreadRecord
from memory_engine.engine import kernel_of
from memory_engine.storage.postgres import PostgresStore, upkeep
from memory_engine.storage.postgres.address import parse
from memory_engine.testing import FakeCompactor, Hangs
from memory_engine.testing.contract_rows import event, filled, head_at, ids_of, unit
from tests.exports import talk
from tests.postgres.test_schema import ask


async def test_two_engines_write_to_one_thread(url: str) -> None:
    """Every event of both is there once, in one log without gaps that verifies."""
    async with memory_engine.open(url) as one, memory_engine.open(url) as other:
        await one.create_thread("t")
        sent = [
            engine.thread("t").dispatch(UserMessage(content=f"{name} {n}"))
            for n in range(10)
            for name, engine in (("one", one), ("other", other))
        ]
        receipts = await asyncio.gather(*sent)
        assert list(range(1, 21)) == sorted(receipt.seq for receipt in receipts)
        assert (await one.thread("t").replay.verify()).ok
        assert 20 == (await other.thread("t").info()).events


async def test_many_writers_of_many_threads_never_wait_for_each_other_for_ever(url: str) -> None:
    """Units of several stores that touch the same threads in other orders: each head moves by one at a time."""
    stores = await asyncio.gather(*(PostgresStore.open(url) for _ in range(3)))
    names = [f"t{n}" for n in range(12)]
    for name in names:
        await stores[0].create(ThreadRecord(id=name), Head(), ())
    for seq in range(1, 6):
        before = head_at(seq - 1) if seq > 1 else Head()
        rivals = [
            store.commit(unit(name, event(seq, id=f"{n}-{seq}"), after=before))
            for n, store in enumerate(stores)
            for name in (names if n % 2 else reversed(names))
        ]
        outcomes = await asyncio.gather(*rivals, return_exceptions=True)
        assert len(names) == sum(outcome is None for outcome in outcomes)
    assert [5] * len(names) == [len(await ids_of(stores[1], name)) for name in names]
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_lease_is_one_engines_until_it_is_given_back_or_over(url: str) -> None:
    """Another gets it then; the first can take it again while it has it."""
    one, other = [await PostgresStore.open(url, lease_s=30.0) for _ in range(2)]
    await filled(one, "t", 1)
    assert [True, False, True] == [await one.lease("t"), await other.lease("t"), await one.lease("t")]
    await other.release("t")
    assert not await other.lease("t")
    await one.release("t")
    assert [True, False] == [await other.lease("t"), await one.lease("t")]
    await ask(url, "UPDATE @.leases SET until = clock_timestamp() - interval '1 second'")
    assert [True, False] == [await one.lease("t"), await other.lease("t")]
    assert [3] == [row["epoch"] for row in await ask(url, "SELECT epoch FROM @.leases")]
    await one.close()
    assert await other.lease("t")
    await other.close()


async def test_what_one_deletes_the_other_shows_no_more(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns of it by looking, though it has the thread in memory and commits nothing."""
    monkeypatch.setattr(upkeep, "LOOK_S", 0.005)
    async with memory_engine.open(url) as one, memory_engine.open(url) as other:
        thread = await talk(one)
        assert (await other.thread("t").context()).messages
        before = kernel_of(other).store.generation
        [said] = [event async for event in thread.events() if event.type == "user_message"]
        await thread.admin.erase([said.id], by="ann", reason="asked")
        while kernel_of(other).store.generation == before:  # noqa: ASYNC110 - it is the store that looks
            await asyncio.sleep(0.005)
        shown = [str(message) for message in (await other.thread("t").context()).messages]
        assert not [text for text in shown if "My bike is blue" in text]


async def test_bytes_are_reused_once_nobody_may_read_them(store: PostgresStore, url: str) -> None:
    """`wipe` says so while an older transaction stands, and after it."""
    await filled(store, "t", 3)
    connection = await asyncpg.connect(parse(url).dsn)
    reading = connection.transaction(isolation="repeatable_read")
    await reading.start()
    await connection.fetch(f"SELECT count(*) FROM {parse(url).schema}.events")
    await store.delete("t")
    assert not await store.wipe()
    await reading.rollback()
    await connection.close()
    assert await store.wipe()


async def test_a_compaction_that_its_engine_left_open_is_closed_by_the_next(url: str) -> None:
    """While the lease stands nobody else compacts; once it is over, the thread is recorded as abandoned."""
    compactor = FakeCompactor(Hangs("never"))
    config = EngineConfig(compaction=memory_engine.CompactionPolicy(enabled=False))
    store = await PostgresStore.open(url)
    async with memory_engine.open(store, config=config, compactor=compactor) as one:
        thread = await one.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"Word {n} of a long talk. " * 20) for n in range(12)])
        compacting = asyncio.ensure_future(thread.compact())
        await compactor.begun.wait()
        async with memory_engine.open(url, config=config) as other:
            await other.thread("t").state()
            assert (await kernel_of(other).store.head("t")).open_compaction
        await ask(url, "UPDATE @.leases SET until = clock_timestamp() - interval '1 second'")
        async with memory_engine.open(url, config=config) as other:
            await other.thread("t").dispatch(UserMessage(content="And on."))
            types = [event.type async for event in other.thread("t").events()]
            assert "compaction_abandoned" in types
            assert not (await kernel_of(other).store.head("t")).open_compaction
        compacting.cancel()
        await asyncio.wait([compacting])
