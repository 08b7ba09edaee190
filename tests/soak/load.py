"""Many threads at work for a while: what the process holds at the end is what it held half-way."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, LlmTextResponse, Thread, UserMessage
from memory_engine.errors import NothingToCompact
from tests.scripted_compactors import Scripted

CONFIG = EngineConfig(compaction=CompactionPolicy(threshold=24, tokens_min=0, keep_recent=4))
GROWTH_MAX = 0.5
"""By so much of itself the memory may grow in the second half; a leak of what the work allocates is many times that."""
SLACK_BYTES = 48 << 20
QUIET_S_MAX = 120.0
"""Tasks that have not ended by then never will."""
DESCRIPTORS = Path("/dev/fd")
STATM = Path("/proc/self/statm")


@define
class Held:
    """What the process holds at rest. `memory` is in bytes, 0 where the system does not say."""

    rounds: int
    descriptors: int
    tasks: int
    os_threads: int
    memory: int


@define
class LoadReport:
    """What was done, and what was held after each half."""

    threads: int
    rounds: int = 0
    events: int = 0
    halves: list[Held] = field(factory=list)
    failures: list[str] = field(factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing grew and nothing failed."""
        return not self.failures


Progress = Callable[[LoadReport], None]


async def strain(seconds: float, threads: int, folder: Path, progress: Progress) -> LoadReport:
    """Work on that many threads at once, two halves of the given time, each of at least two rounds of all the work."""
    report, began = LoadReport(threads), time.monotonic()
    async with memory_engine.open(str(folder / "load.db"), config=CONFIG, compactor=Scripted()) as engine:
        workers = [await engine.create_thread(f"t{n}", user_id=f"u{n}") for n in range(threads)]
        await _rounds(engine, workers, report, until=0.0)  # caches fill, connections and workers start
        for half in (1, 2):
            await _rounds(engine, workers, report, until=began + seconds * half / 2)
            report.halves.append(await _held(engine, report.rounds))
            report.seconds = time.monotonic() - began
            progress(report)
        report.events = (await engine.stats()).events
        report.failures += [str(one.divergence) for one in await engine.verify() if not one.ok]
    report.failures += grown(*report.halves)
    return report


def grown(first: Held, second: Held) -> list[str]:
    """What grew in the second half."""
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in ("descriptors", "tasks", "os_threads")}
    found = [f"{name}: {before}, then {after}" for name, (before, after) in pairs.items() if after > before]
    if second.memory > first.memory * (1 + GROWTH_MAX) + SLACK_BYTES:
        found.append(f"memory: {first.memory:,} bytes, then {second.memory:,}")
    return found


async def _rounds(engine: Engine, workers: list[Thread], report: LoadReport, *, until: float) -> None:
    done = 0
    while done < 2 or time.monotonic() < until:
        await asyncio.gather(*(_round(engine, thread, report.rounds) for thread in workers))
        done += 1
        report.rounds += 1


async def _round(engine: Engine, thread: Thread, n: int) -> None:
    """A turn with all that is done around one."""
    receipt = await thread.dispatch(UserMessage(content=f"In round {n} the bike is blue. " * 8))
    await thread.context(max_tokens=2_000)
    await thread.dispatch(LlmTextResponse(content=f"Noted, in round {n}. " * 8))
    await thread.scratchpad.write(f"Round {n}")
    await thread.search("which bike is blue", limit=3)
    if n % 4 == 3:
        await thread.forget(event_ids=[receipt.event_id])
    if n % 8 == 7:
        try:
            await thread.compact()
        except NothingToCompact:
            return


async def _held(engine: Engine, rounds: int) -> Held:
    """What is held when nothing is under way any more."""
    await engine.settle()
    await engine.flush()
    fewest, until = len(asyncio.all_tasks()), time.monotonic() + QUIET_S_MAX
    quiet = 0
    while quiet < 50 and time.monotonic() < until:
        await asyncio.sleep(0.002)
        tasks = len(asyncio.all_tasks())
        quiet = quiet + 1 if tasks >= fewest else 0
        fewest = min(fewest, tasks)
    gc.collect()
    descriptors = len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.exists() else 0
    memory = int(STATM.read_text().split()[1]) * 4096 if STATM.exists() else 0
    return Held(rounds, descriptors, fewest, threading.active_count(), memory)
