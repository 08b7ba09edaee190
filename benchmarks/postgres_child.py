"""A process among several on one server: `python -m benchmarks.postgres_child URL NUMBER EVENTS`.

It says that it is ready, waits for a line, dispatches, and prints the number of its events.
"""

import asyncio
import sys

import memory_engine
from benchmarks.ours import WITHOUT_COMPACTION, dispatch_timed, events

SENDERS = 16


async def work(url: str, number: str, each: int) -> None:
    """Send to threads of its own, as many at once."""
    async with memory_engine.open(url, config=WITHOUT_COMPACTION) as engine:
        threads = [await engine.create_thread(f"{number}-{n}") for n in range(SENDERS)]
        batches = [events(n, each) for n in range(SENDERS)]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(dispatch_timed(one, batch) for one, batch in zip(threads, batches, strict=True)))
    print(each * SENDERS, flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], int(sys.argv[3])))
