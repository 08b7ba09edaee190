"""What belongs to one event loop."""

import asyncio

from memory_engine.core.loops import OfLoop


def test_each_loop_finds_its_own_value_again() -> None:
    """Also while another loop runs beside it; what loops that have ended had is let go."""
    turns = OfLoop(lambda: asyncio.Semaphore(2))

    async def beside() -> asyncio.Semaphore:
        async with turns.here:
            return turns.here

    async def run() -> tuple[asyncio.Semaphore, asyncio.Semaphore]:
        async with turns.here:
            mine = turns.here
            other = await asyncio.to_thread(lambda: asyncio.run(beside()))
            assert mine is turns.here
        return mine, other

    first, second = asyncio.run(run()), asyncio.run(run())
    assert 4 == len({id(one) for one in (*first, *second)})
    assert len(turns._made) <= 2
