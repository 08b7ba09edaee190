"""What an engine asks of the server: one call for a commit, whatever it holds, and none beside it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage
from memory_engine.storage.postgres import PostgresStore, pool
from memory_engine.storage.postgres.address import Address
from memory_engine.testing.contract_rows import filled, head_at
from tests.conversations import NEVER


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements sent by every connection that is opened within; each is a round trip."""
    said: list[str] = []
    connect = pool.connect

    async def connect_watched(address: Address, timeout_s: float) -> pool.Connection:
        connection = await connect(address, timeout_s)
        connection.add_query_logger(lambda query: said.append(query.query))
        return connection

    with mock.patch.object(pool, "connect", connect_watched):
        yield said


@pytest.mark.parametrize("is_searched", [False, True])
async def test_a_dispatch_is_one_round_trip(url: str, *, is_searched: bool) -> None:
    """Of one event, of several together, and where a search index is kept up with the log."""
    with counted() as said:
        async with memory_engine.open(url, config=EngineConfig(compaction=NEVER)) as engine:
            thread = await engine.create_thread("t")
            if is_searched:
                await thread.search("nothing yet")
            await thread.dispatch(UserMessage(content="first"))
            for events in ([UserMessage(content="one")], [UserMessage(content=f"{n}") for n in range(5)]):
                said.clear()
                await thread.dispatch_all(events)
                [asked] = [query for query in said if "store_state" not in query]  # which is looked at by the clock
                assert "commit_" in asked


async def test_threads_that_wait_together_share_round_trips(url: str) -> None:
    """What comes in the same round of the loop goes in one call."""
    with counted() as said:
        async with memory_engine.open(url, config=EngineConfig(compaction=NEVER)) as engine:
            threads = [await engine.create_thread(f"t{n}") for n in range(32)]
            await asyncio.gather(*(thread.dispatch(UserMessage(content="first")) for thread in threads))
            said.clear()
            await asyncio.gather(*(thread.dispatch(UserMessage(content="next")) for thread in threads))
            assert 4 >= len([query for query in said if "commit_" in query])


async def test_an_opening_is_one_round_trip(url: str) -> None:
    """Where the schema is up to date, as it nearly always is."""
    await (await PostgresStore.open(url)).close()
    with counted() as said:
        store = await PostgresStore.open(url)
        assert 1 == len(said)
        await store.close()


async def test_readers_wait_for_a_connection_before_they_make_another(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of their own each would cost more than the wait; who waits too long makes one."""
    await filled(store, "t", 1)
    made = len(store._pool._open)
    monkeypatch.setattr(pool, "_SPARE_S", 60.0)
    heads = await asyncio.gather(*(store.head("t") for _ in range(8)))
    assert ([head_at(1)] * 8, made) == (heads, len(store._pool._open))
    monkeypatch.setattr(pool, "_SPARE_S", 0.0)
    await asyncio.gather(*(store.head("t") for _ in range(8)))
    assert made < len(store._pool._open)
