"""The process that test_recall_processes starts: `python -m tests.processes.recall_child PATH NAME COUNT`.

It dispatches messages to the thread `t`, searching it now and then, and says each number after it was acknowledged.
With the name of a folder it brings that to the tenant `acme`, which is searched, and says how many files it has done.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import ThreadExists
from memory_engine.testing import HashEmbedder
from memory_engine.views.documents.fold import DocumentReport

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


async def bring(path: str, folder: Path) -> None:
    """Bring documents in."""

    def say(now: DocumentReport) -> None:
        os.write(1, f"{now.files}\n".encode())

    async with memory_engine.open(path) as engine:
        documents = engine.tenant("acme").documents
        await documents.add("The first of all parcels.")
        await documents.search("parcel")
        await documents.ingest([folder], progress=say)
        await asyncio.Event().wait()  # until it is killed


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    asyncio.run(bring(sys.argv[1], folder) if folder.is_dir() else main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
