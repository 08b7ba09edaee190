"""What test_failures does in a process of its own: `python -m tests.engine.failing_child DOING PATH`."""

import asyncio
import logging
import os
import resource
import sys
import tempfile

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import StorageError
from memory_engine.storage.sqlite import SQLiteStore
from tests.conversations import LONG, NEVER, opened, turns
from tests.scripted_compactors import Held, Scripted

KEPT: list[object] = []
"""Holds what would be closed as soon as nobody holds it."""


async def fill_disk(path: str) -> None:
    """Write until files may grow no more, then look at what is left: a line for each finding."""
    async with opened(Scripted(), NEVER, path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="first"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        acknowledged = 1
        try:
            while True:
                await thread.dispatch_all([UserMessage(content=LONG * 20)] * 3)
                acknowledged += 3
        except StorageError as error:
            print(type(error).__name__, acknowledged)  # noqa: T201 - read by the test
        try:
            await thread.dispatch(UserMessage(content="small"))
        except StorageError as error:
            print(type(error).__name__, (await thread.info()).events)  # noqa: T201 - read by the test
        print(len([event async for event in thread.events()]), len((await thread.context()).included))  # noqa: T201


async def delete_without_room(path: str) -> None:
    """Delete a thread where there is no room for a second file, then write on: a line for each finding."""
    async with opened(Scripted(), NEVER, path) as engine:
        kept, gone = await engine.create_thread("kept"), await engine.create_thread("gone")
        await kept.dispatch_all([UserMessage(content=f"{n} {LONG * 20}") for n in range(60)])
        await gone.dispatch(UserMessage(content="gone"))
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s")
    async with opened(Scripted(), NEVER, path) as engine:
        size = await asyncio.to_thread(os.path.getsize, path)
        room = size + 4096  # for the file, not for its log with all of it once more
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        await engine.thread("gone").admin.delete()
        await engine.thread("kept").dispatch(UserMessage(content="small"))
        print([(info.id, info.events) for info in await engine.threads()])  # noqa: T201 - read by the test


async def open_read_only(path: str) -> None:
    """Open a file that may not be written, as somebody who is not root."""
    with tempfile.TemporaryDirectory() as folder:  # loads what nobody else may read
        async with memory_engine.open(f"{folder}/m.db"):
            pass
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        async with memory_engine.open(path) as engine:
            await engine.create_thread("u")
    except StorageError as error:
        print(type(error).__name__, error)  # noqa: T201 - read by the test


async def leave_open(path: str) -> None:
    """End the loop with an open engine in hand."""
    manager = memory_engine.open(path)
    KEPT.append(manager)
    engine = await manager.__aenter__()
    thread = await engine.create_thread()
    await thread.dispatch(UserMessage(content="x"))


async def leave_store_open(path: str) -> None:
    """End the loop with an open store in hand."""
    KEPT.append(await SQLiteStore.open(path))


async def leave_compacting(path: str) -> None:
    """End the loop while a task of its own holds the engine, which is compacting."""
    compactor = Held()

    async def work() -> None:
        async with opened(compactor, path=path) as engine:
            thread = await engine.create_thread("t")
            for event in turns(4):
                await thread.dispatch(event)
            await asyncio.Event().wait()

    KEPT.append(asyncio.ensure_future(work()))
    await compactor.entered.wait()


def main(doing: str, path: str) -> None:
    """Do it in a loop that ends as loops end, or, for `unclean`, that merely stops."""
    doings = {
        "fill_disk": fill_disk,
        "delete_without_room": delete_without_room,
        "open_read_only": open_read_only,
        "leave_open": leave_open,
        "leave_store_open": leave_store_open,
        "leave_compacting": leave_compacting,
    }
    if doing == "unclean":
        asyncio.new_event_loop().run_until_complete(leave_open(path))
    else:
        asyncio.run(doings[doing](path))


if __name__ == "__main__":
    main(*sys.argv[1:])
