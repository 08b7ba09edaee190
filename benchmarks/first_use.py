"""What a new process pays until it has opened a memory, used a thread, and searched: processor time, code compiled."""

import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import memory_engine
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.setting import Setting, say
from benchmarks.views import WORDS, sentence
from memory_engine import Engine, Event, NewEvent
from memory_engine import events as e

ENTRIES = 2_000
OPEN = """
import asyncio, sys, memory_engine
from memory_engine import UserMessage
async def main():
    async with memory_engine.open(sys.argv[1]) as engine:
        {use}
asyncio.run(main())
"""
THREAD = """thread = engine.thread("t")
        await thread.dispatch(UserMessage(content="Where is the key?"))
        await thread.context(max_tokens=8_000)"""
MEMORY = 'memory = engine.agent("a").memory'
SEARCH = f'{MEMORY}\n        await memory.search(None, "{WORDS[0]} and {WORDS[1]} of {WORDS[2]}")'
PROGRAMS: Mapping[str, str] = {
    "bare": "pass",
    "open and UserMessage taken from it": "from memory_engine import open, UserMessage",
    "open, first dispatch, first context": OPEN.format(use=THREAD),
    "memory": OPEN.format(use=MEMORY),
    "search": OPEN.format(use=SEARCH),
}


async def first_use(setting: Setting) -> list[Figure]:
    """Processor time of new processes: importing, the first dispatch and context, the first search of a memory."""
    count = setting.size(ENTRIES, 200)
    files = {words: await _filled(setting, count, waits=words == "waiting") for words in ("indexed", "waiting")}
    taken: dict[tuple[str, str], list[float]] = {}
    rounds = setting.size(15, 1)
    say(f"  {rounds} rounds")
    for number in range(rounds + 1):
        for words, file in files.items():
            for name, code in PROGRAMS.items():
                if words == "indexed" or name in ("memory", "search"):
                    ms = _processor_ms(setting, code, file)
                    if number:  # the first one compiles the code
                        taken.setdefault((words, name), []).append(ms)
    bare = taken["indexed", "bare"]
    found = [
        _figure(setting, name, taken["indexed", name], (bare, "a bare interpreter (subtracted)"), limit)
        for name, limit in (("open and UserMessage taken from it", 100), ("open, first dispatch, first context", None))
    ]
    what = f"first search of an agent's memory of {count:,} entries"
    return found + [
        _figure(
            setting,
            f"{what}, {state}",
            taken[words, "search"],
            (taken[words, "memory"], "opened without a search (subtracted)"),
            100,
        )
        for words, state in (("indexed", "words indexed"), ("waiting", "words wait"))
    ]


async def _filled(setting: Setting, count: int, *, waits: bool) -> Path:
    """A closed file whose agent has a memory and an index; the words of the entries wait, or do not."""
    path = setting.new_path("first-use")
    async with memory_engine.open(str(path)) as engine:
        await engine.create_thread("t", user_id="u")
        agent = engine.agent("a")
        if waits:  # from here on, commits write passages
            await agent.memory.append("episodic", "the beginning")
            await agent.search("beginning")
        await _fill(engine, count)
        if not waits:
            await agent.admin.prepare_search()
    return path


async def _fill(engine: Engine, count: int) -> None:
    picks = random.Random(1)
    appended: list[Event | NewEvent] = [
        e.MemoryAppended(layer="episodic", content=f"{sentence(n)} {picks.randrange(10**6):x} said user{n % 97}")
        for n in range(count)
    ]
    await engine.agent("a").dispatch_all(appended)


def _processor_ms(setting: Setting, code: str, file: Path) -> float:
    """Milliseconds that a process and its threads compute, from its start to its end, on a copy of the file."""
    path = setting.new_path("first-use-copy")
    shutil.copy(file, path)
    root = str(Path(memory_engine.__file__).parents[1])
    surroundings = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(setting.folder / "compiled"),
    }
    before = _children_s()
    subprocess.run([sys.executable, "-c", code, str(path)], env=surroundings, check=True)
    return (_children_s() - before) * 1000


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _figure(
    setting: Setting, case: str, taken: Sequence[float], floor: tuple[Sequence[float], str], limit: float | None
) -> Figure:
    below, name = floor
    return Figure(
        bench="first_use",
        case=case,
        value=statistics.median(taken) - statistics.median(below),
        unit="ms of processor time",
        reference=Reference(name, statistics.median(below)),
        bar=Bar("value", "<=", limit) if limit is not None else None,
        asserted=not setting.quick,
        detail={"best_ms": min(taken) - min(below)},
    )
