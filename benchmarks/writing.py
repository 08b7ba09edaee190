"""Many threads at once: how much of bare SQLite's throughput is left."""

import asyncio
import statistics
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter_ns

import memory_engine
from benchmarks.bare import RowCopy
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.ours import WITHOUT_COMPACTION, events
from benchmarks.setting import Setting, one_core, say, settle_memory
from memory_engine import EngineConfig, Event, Thread

THREADS = 64
ONE_CORE = "compaction off, one core"
ANY_CORE = "compaction off, any core"
COMPACTING = "compaction on (default), any core: more rows, and the extracting"
BARE = "bare sqlite3, one core, the same rows, 64 events a transaction"


async def threads64(setting: Setting) -> list[Figure]:
    """64 senders, each awaiting its own thread's dispatch before the next."""
    each = setting.size(100, 10)
    conversations = [events(seed, each) for seed in range(THREADS)]
    rates: dict[str, list[float]] = {case: [] for case in (ONE_CORE, ANY_CORE, COMPACTING, BARE)}
    rounds = setting.size(6, 1)
    for number in range(rounds):
        say(f"  round {number + 1} of {rounds}")
        path = setting.new_path("threads")
        with one_core():
            rates[ONE_CORE].append(await _run(path, conversations, WITHOUT_COMPACTION))
            copy = RowCopy(path, THREADS)
            rates[BARE].append(copy.events / copy.write(setting.new_path("bare-rows")) * 1e9)
        rates[ANY_CORE].append(await _run(setting.new_path("any-core"), conversations, WITHOUT_COMPACTION))
        rates[COMPACTING].append(await _run(setting.new_path("compacting"), conversations, EngineConfig()))
    bare = rates.pop(BARE)
    return [
        Figure(
            bench="threads64",
            case=case,
            value=statistics.median(seen),
            unit="events/s",
            reference=Reference(BARE, statistics.median(bare)),
            ratio_best=max(seen) / max(bare),
            bar=Bar("ratio", ">=", 0.35) if case == ONE_CORE else None,
            asserted=not setting.quick,
            detail={
                "threads": THREADS,
                "events_each": each,
                "best": max(seen),
                "reference_best": max(bare),
            },
        )
        for case, seen in rates.items()
    ]


async def _run(path: Path, conversations: Sequence[Sequence[Event]], config: EngineConfig) -> float:
    """Events a second, from the first dispatch to the last receipt."""
    settle_memory()
    async with memory_engine.open(str(path), config=config) as engine:
        threads = [await engine.create_thread(f"t{number}") for number in range(len(conversations))]
        begun = perf_counter_ns()
        await asyncio.gather(*(_send(thread, batch) for thread, batch in zip(threads, conversations, strict=True)))
        return sum(map(len, conversations)) / (perf_counter_ns() - begun) * 1e9


async def _send(thread: Thread, batch: Sequence[Event]) -> None:
    for event in batch:
        await thread.dispatch(event)
