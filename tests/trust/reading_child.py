"""What test_read_only does as somebody who may not write: `python -m tests.trust.reading_child PATH`."""

import asyncio
import os
import sys
import tempfile

import memory_engine
from memory_engine import EngineConfig, UserMessage
from memory_engine.errors import MemoryEngineError


async def read(path: str) -> None:
    """Open the file only to read it; a line for each finding."""
    with tempfile.TemporaryDirectory() as folder:  # loads what nobody else may read
        async with memory_engine.open(f"{folder}/m.db") as engine:
            thread = await engine.create_thread("t")
            await thread.dispatch(UserMessage(content="Revenue"))
            await (await thread.at(1)).state()
            await thread.search("revenue")
            await thread.replay.verify()
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
            print([(info.id, info.events) for info in await engine.threads()])  # noqa: T201 - read by the test
            thread = engine.thread("t")
            print((await (await thread.at(1)).state()).tally.chunks)  # noqa: T201
            print([hit.text for hit in await thread.search("revenue")])  # noqa: T201
            print((await thread.replay.verify()).ok)  # noqa: T201
            await thread.fork()
    except MemoryEngineError as error:
        print(type(error).__name__, error)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1]))
