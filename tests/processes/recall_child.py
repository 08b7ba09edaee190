"""The process that test_recall_processes starts: `python -m tests.processes.recall_child PATH NAME COUNT`.

It dispatches messages to the thread `t`, searching it now and then, and says each number after it was acknowledged.
"""

import asyncio
import os
import sys
from contextlib import suppress

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import ThreadExists
from memory_engine.testing import HashEmbedder

SEARCH_EVERY = 7


async def main(path: str, name: str, count: int) -> None:
    """Dispatch and search."""
    async with memory_engine.open(path, embedder=HashEmbedder(32)) as engine:
        with suppress(ThreadExists):
            await engine.create_thread("t")
        thread = engine.thread("t")
        for n in range(count):
            await thread.dispatch(UserMessage(content=f"parcel {name}x{n} left the depot", name=name))
            os.write(1, f"{n}\n".encode())
            if n % SEARCH_EVERY == 0:
                await thread.search(f"parcel {name}x{n}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
