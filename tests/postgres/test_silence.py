"""A server that vanishes without a word: packets are lost, nobody closes the connection, and no call hangs for ever."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

import memory_engine
from memory_engine import NewEvent, UserMessage
from memory_engine.errors import StorageUnreachable
from memory_engine.storage.postgres import PostgresStore, pool
from tests.postgres_proxy import Proxy, proxied


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Between engines and the server; ended after the test."""
    with proxied() as proxy:
        yield proxy


async def test_calls_to_a_silent_server_end_and_go_on_when_it_speaks(proxy: Proxy) -> None:
    """A dispatch, a read and an opening raise; a dispatch with the same id settles what became of the first."""
    url = proxy.new_url(wait="0.2")
    event = NewEvent(UserMessage(content="Are you there?"), id="asked")

    async def opened() -> None:
        async with memory_engine.open(url):
            pass

    async with memory_engine.open(url) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="Hello"))
        proxy.stop()
        calls = (thread.dispatch_all([event]), engine.threads(), opened())
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [StorageUnreachable] * 3 == [type(one) for one in outcomes]
        proxy.go_on()
        [receipt] = await thread.dispatch_all([event])
        assert 2 == receipt.seq
        assert ["asked"] == [one.id async for one in thread.events() if one.seq > 1]
        assert (await thread.replay.verify()).ok


async def test_an_engine_closes_while_the_server_is_silent(proxy: Proxy) -> None:
    """It waits for what is under way as long as any call does."""
    async with memory_engine.open(proxy.new_url(wait="0.2")) as engine:
        await engine.create_thread("t")
        proxy.stop()
    proxy.go_on()


async def test_a_statement_that_takes_long_is_waited_for(url: str) -> None:
    """The server answers others meanwhile, so it is there."""
    store = await PostgresStore.open(f"{url}&wait=0.02")
    assert "done" == await store._pool.read(lambda c: c.fetchval("SELECT 'done' FROM pg_sleep(0.3)"))
    await store.close()


async def test_the_system_looks_after_connections_over_a_network() -> None:
    """Where a router forgets one of them, the system finds out, and not after hours."""
    listening = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listening.getsockname())
    with listening, client:
        pool.keep_alive(client)
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert 60 > client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
