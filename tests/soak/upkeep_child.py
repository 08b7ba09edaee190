"""The process that dies amid upkeep: `python -m tests.soak.upkeep_child PATH SEED LIVES`.

As in crash_child a server forks a child for each life. The child erases, deletes, imports, searches and flushes, all at
once, beside dispatches and compactions; it says what begins and what was acknowledged, and is killed in the middle.
"""

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import memory_engine
from memory_engine import Engine, EngineConfig, NewEvent, UserMessage
from memory_engine.errors import ThreadExists
from tests.processes.crash_child import POLICY, Slow, event_of, say
from tests.processes.lives import one_life

LIFE_LINES_MAX = 40
CONFIG = EngineConfig(compaction=POLICY)
IMPORTED_EVENTS = 40
Deed = Callable[[Engine, str, str], Awaitable[None]]


def export_of(path: str) -> Path:
    """The exported log that every life of a file imports."""
    return Path(f"{path}.exported.jsonl")


def secret_of(name: str) -> str:
    """The word that is destroyed with an event or a thread; their ids stay."""
    return name[::-1]


async def erase(engine: Engine, name: str, _path: str) -> None:
    """An event with a word of its own, which is then destroyed."""
    thread = engine.thread("erased")
    await thread.dispatch(UserMessage(content=f"keep {secret_of(name)} for me"), event_id=name)
    say(f"erasing {name}")
    await thread.admin.erase([name])
    say(f"erased {name}")


async def delete(engine: Engine, name: str, _path: str) -> None:
    """A thread with a word of its own, which goes as a whole."""
    thread = await engine.create_thread(name)
    await thread.dispatch_all([UserMessage(content=f"{secret_of(name)} {n}") for n in range(3)])
    say(f"deleting {name}")
    await thread.admin.delete()
    say(f"deleted {name}")


async def bring(engine: Engine, name: str, path: str) -> None:
    """A log from a file."""
    say(f"importing {name}")
    await engine.transfer.import_log(export_of(path), thread_id=name, scopes="as exported")
    say(f"imported {name}")


async def seek(engine: Engine, name: str, _path: str) -> None:
    """Events, compacted now and then, and a search that indexes them."""
    thread = engine.thread("sought")
    ids = [f"{name}/{n}" for n in range(4)]
    receipts = await thread.dispatch_all([NewEvent(event_of(id_), id_) for id_ in ids])
    say("durable " + " ".join(f"{receipt.event_id}={receipt.seq}" for receipt in receipts))
    await thread.search(name)
    say(f"sought {name}")


async def flush(engine: Engine, name: str, _path: str) -> None:
    """A checkpoint of the write-ahead log, behind a few commits."""
    await engine.thread("flushed").dispatch(UserMessage(content=name * 40), event_id=name)
    await engine.flush()
    say(f"flushed {name}")


DEEDS: tuple[Deed, ...] = (erase, delete, bring, seek, flush)


async def live(path: str, life: int) -> None:
    """Work until killed: each kind of work by a task of its own."""
    async with memory_engine.open(path, config=CONFIG, compactor=Slow()) as engine:
        for name in ("erased", "sought", "flushed"):
            with suppress(ThreadExists):
                await engine.create_thread(name)
        say("open")
        await asyncio.gather(*(_again(deed, engine, path, life) for deed in DEEDS))


async def _again(deed: Deed, engine: Engine, path: str, life: int) -> None:
    n = 0
    while True:
        await deed(engine, f"{deed.__name__}q{life}x{n}z", path)
        n += 1


async def prepare(path: str) -> None:
    """Load what every life needs, on a file of its own, and write the log that is imported."""
    with tempfile.TemporaryDirectory() as folder:
        async with memory_engine.open(f"{folder}/warm.db", config=CONFIG, compactor=Slow()) as engine:
            thread = await engine.create_thread("exported")
            await thread.dispatch_all([event_of(f"exported/{n}") for n in range(IMPORTED_EVENTS)])
            await thread.compaction.settle()
            await thread.replay.export(export_of(path))
            await thread.search("exported")
            await thread.admin.erase([(await thread.replay.latest(1))[0].id])


def main(path: str, seed: str, lives: str) -> None:
    """Serve that many lives."""
    dice = random.Random(seed)
    asyncio.run(prepare(path))
    for life in range(int(lives)):
        lines = one_life(lambda life=life: live(path, life), dice, LIFE_LINES_MAX)  # type: ignore[misc]
        sys.stdout.write(json.dumps([line.split() for line in lines]) + "\n")
        sys.stdout.flush()
        if sys.stdin.readline() == "":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
