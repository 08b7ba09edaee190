"""A process with an encrypted store: `python -m tests.processes.encrypted_child WORD PATH`, its key on standard input.

`write` dispatches until it is killed, and prints the number of each event that was acknowledged; `hold` opens the store
and waits for the end of standard input; `rekey` changes its key to and fro between the two that it is given.
"""

import asyncio
import sys

import memory_engine
from memory_engine import NewEvent, UserMessage


async def write(path: str, keys: list[str]) -> None:
    """Acknowledged events, one after the other."""
    async with memory_engine.open(path, key=keys[0] or None) as engine:
        thread = await engine.open_thread("t")
        first = (await thread.info()).events
        for number in range(first, first + 100_000):
            await thread.dispatch(NewEvent(UserMessage(content=f"message {number}"), id=f"e{number}"))
            print(number, flush=True)


async def hold(path: str, keys: list[str]) -> None:
    """Open, until standard input ends."""
    async with memory_engine.open(path, key=keys[0] or None) as engine:
        await engine.thread("t").info()
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def rekey(path: str, keys: list[str]) -> None:
    """Another key, again and again. Begins with whichever of the two opens the file."""
    engine = None
    for at in (0, 1):
        try:
            engine = await memory_engine.open(path, key=keys[at] or None)
            break
        except memory_engine.errors.StorageError:
            continue
    assert engine is not None
    print("open", flush=True)
    while True:
        at = 1 - at
        await engine.admin.rekey(keys[at] or None, plain=not keys[at])
        print(at, flush=True)


if __name__ == "__main__":
    task, place = sys.argv[1:]
    given = sys.stdin.readline().rstrip("\n").split("\t")
    asyncio.run({"write": write, "hold": hold, "rekey": rekey}[task](place, given))
