"""A thread that grows: what a dispatch to it, and opening it cold, then take."""

import statistics
from collections import Counter
from pathlib import Path
from time import perf_counter_ns

import memory_engine
from benchmarks.figures import Bar, Figure, Reference, Rounds
from benchmarks.ours import counting_statements, dispatch_timed, events
from benchmarks.setting import Setting, one_core, say, settle_memory
from memory_engine import Thread

BLOCK = 20


def _lengths(setting: Setting) -> tuple[int, int, int]:
    return (100, 300, 1_000) if setting.quick else (1_000, 10_000, 100_000)


async def flat(setting: Setting) -> list[Figure]:
    """Blocks of dispatches in turn: to a thread of 100 events, and to one of 100,000."""
    long = _lengths(setting)[-1]
    short_path, long_path = setting.new_path("short"), await setting.log_of(long)
    with one_core():
        taken = await _alternate(short_path, long_path, setting.size(40, 3))
    return [
        Figure(
            bench="flat",
            case=f"dispatch at {long:,} events of one thread",
            value=taken["long"].p50_us,
            unit="us, p50",
            reference=Reference("at 100 events", taken["short"].p50_us),
            ratio_best=taken["long"].best_us / taken["short"].best_us,
            bar=Bar("ratio", "<=", 1.2),
            asserted=not setting.quick,
            detail={"p99_us": taken["long"].p99_us, "reference_p99_us": taken["short"].p99_us},
        ),
        *await _counted(setting, short_path, long_path),
    ]


async def _alternate(short_path: Path, long_path: Path, rounds: int) -> dict[str, Rounds]:
    """The short thread is a fresh one each round, so that it stays short."""
    taken = {"short": Rounds(), "long": Rounds()}
    async with (
        memory_engine.open(str(short_path)) as short_engine,
        memory_engine.open(str(long_path)) as long_engine,
    ):
        grown = long_engine.thread("log")
        await grown.state()
        for seed in range(rounds):
            settle_memory()
            fresh = await short_engine.create_thread()
            await fresh.dispatch_all(events(seed + 100, 100))
            await fresh.settle()
            batch = events(seed + 1000, BLOCK)
            for name, thread in (("short", fresh), ("long", grown)):
                taken[name].add(await dispatch_timed(thread, batch))
                await thread.settle()
    return taken


async def _counted(setting: Setting, short_path: Path, long_path: Path) -> list[Figure]:
    """Statements and rows of one dispatch, the commonest over many: compactions come in between."""
    async with memory_engine.open(str(short_path)) as engine:
        thread = await engine.create_thread("counted")
        await thread.dispatch_all(events(1, 100))
    counts = [await _count(path, name) for path, name in ((short_path, "counted"), (long_path, "log"))]
    return [
        Figure(
            bench="flat",
            case=f"{what} a dispatch at {_lengths(setting)[-1]:,} events",
            value=float(counts[1][n]),
            unit=what,
            reference=Reference("at 100 events", float(counts[0][n])),
            bar=Bar("ratio", "<=", 1.0),
            asserted=not setting.quick,
        )
        for n, what in enumerate(("statements", "rows changed"))
    ]


async def _count(path: Path, name: str) -> tuple[int, int]:
    seen: Counter[tuple[int, int]] = Counter()
    with counting_statements() as count:
        async with memory_engine.open(str(path)) as engine:
            thread = engine.thread(name)
            await thread.settle()
            for event in events(7, 60):
                before = count.statements, count.rows
                await thread.dispatch(event)
                seen[count.statements - before[0], count.rows - before[1]] += 1
    return seen.most_common(1)[0][0]


async def cold(setting: Setting) -> list[Figure]:
    """Open a file, a thread and its context, all imports done; files in the system's cache."""
    lengths = _lengths(setting)
    paths = {length: await setting.log_of(length) for length in lengths}
    taken: dict[int, list[float]] = {length: [] for length in lengths}
    chunks: dict[int, int] = {}
    rounds = setting.size(15, 3)
    say(f"  {rounds} rounds")
    for number in range(rounds + 1):
        settle_memory()
        for length, path in paths.items():
            ms, chunks[length] = await _open_cold(path)
            if number:  # the first of each warms the imports and the system's cache
                taken[length].append(ms)
    first, last = taken[lengths[0]], taken[lengths[-1]]
    detail: dict[str, float | int | str] = {}
    for length in lengths:
        detail[f"ms_at_{length}"] = statistics.median(taken[length])
        detail[f"chunks_at_{length}"] = chunks[length]
    reference = Reference(f"at {lengths[0]:,} events", statistics.median(first))
    return [
        Figure(
            bench="cold",
            case=case,
            value=statistics.median(last),
            unit="ms",
            reference=reference,
            ratio_best=min(last) / min(first),
            bar=bar,
            asserted=not setting.quick,
            detail=detail,
        )
        for case, bar in (
            (f"open, thread, context at {lengths[-1]:,} events", Bar("value", "<=", 10)),
            ("flat in the log's length", Bar("ratio", "<=", 1.5)),
        )
    ]


async def _open_cold(path: Path) -> tuple[float, int]:
    """Milliseconds until the context is there, and the chunks that it was made of."""
    begun = perf_counter_ns()
    async with memory_engine.open(str(path)) as engine:
        thread: Thread = engine.thread("log")
        await thread.context()
        taken = (perf_counter_ns() - begun) / 1e6
        return taken, (await thread.info()).chunks
