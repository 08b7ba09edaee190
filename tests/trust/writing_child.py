"""A process that has a database open: `python -m tests.trust.writing_child PATH EVENTS`; one event for each line."""

import asyncio
import sys

import memory_engine
from memory_engine import UserMessage


async def write(path: str, events: int) -> None:
    """Write some events and say so; then one more for each line of standard input, until it ends."""
    async with memory_engine.open(path) as engine:
        thread = await engine.open_thread("t")
        for n in range(events):
            await thread.dispatch(UserMessage(content=f"Chair {n}"))
        while True:
            print("written", flush=True)  # noqa: T201 - read by the test
            if not await asyncio.to_thread(sys.stdin.readline):
                return
            await thread.dispatch(UserMessage(content="One more chair"))


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], int(sys.argv[2])))
