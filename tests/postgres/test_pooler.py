"""Engines behind a pooler that gives each transaction whatever connection of the server's is free."""

import asyncio

import memory_engine
from memory_engine import Engine, UserMessage
from tests.exports import shown, talk
from tests.postgres_pooler import CONNECTIONS, pooled_url

ENGINES = CONNECTIONS + 1


async def test_engines_with_more_connections_than_the_server_gives_share_them() -> None:
    """Each writes, searches and reads with several calls at once, also to the others' thread; all of it verifies."""
    url = pooled_url()

    async def work(engine: Engine, number: int) -> None:
        own, shared = await engine.create_thread(f"t{number}"), engine.thread("shared")
        for n in range(6):
            await asyncio.gather(
                own.dispatch_all([UserMessage(content=f"The bicycle {n}.{part} of {number}") for part in range(3)]),
                shared.dispatch(UserMessage(content=f"{number} says {n}")),
                own.search("bicycle"),
                engine.threads(),
            )
        assert "bicycle" in (await own.search(f"bicycle of {number}"))[0].text

    async with memory_engine.open(url) as first, memory_engine.open(url) as second, memory_engine.open(url) as third:
        engines = (first, second, third)
        await first.create_thread("shared")
        await asyncio.gather(*(work(engine, number) for number, engine in enumerate(engines)))
        said = [event.event.content async for event in third.thread("shared").events()]  # type: ignore[union-attr]
        assert sorted(f"{number} says {n}" for number in range(ENGINES) for n in range(6)) == sorted(said)
        for info in await first.threads():
            assert (await second.thread(info.id).replay.verify()).ok


async def test_a_thread_is_opened_again_as_it_was() -> None:
    """What one engine wrote behind the pooler another shows, and erases."""
    url = pooled_url()
    async with memory_engine.open(url) as engine:
        thread = await talk(engine)
        expected = await shown(thread)
    async with memory_engine.open(url) as engine:
        thread = engine.thread("t")
        assert expected == await shown(thread)
        [*_, last] = [event async for event in thread.events()]
        assert (await thread.admin.erase(seqs=[last.seq], by="ann", reason="asked")).proof.ok  # type: ignore[union-attr]
