"""A thread that grows: what a dispatch to it, a context of it, and opening it cold, then take."""

import statistics
from collections import Counter
from pathlib import Path
from time import perf_counter_ns

import aiosqlite

import memory_engine
from benchmarks.figures import Bar, Figure, Reference, Rounds
from benchmarks.ours import WITHOUT_COMPACTION, counting_statements, dispatch_timed, events
from benchmarks.setting import Setting, one_core, say, settle_memory
from memory_engine import Thread, UserMessage

BLOCK = 20
BUDGET = 8_000
QUESTIONS = (None, "users in November")


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
            await fresh.compaction.settle()
            batch = events(seed + 1000, BLOCK)
            for name, thread in (("short", fresh), ("long", grown)):
                taken[name].add(await dispatch_timed(thread, batch))
                await thread.compaction.settle()
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
            await thread.compaction.settle()
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


async def contexts(setting: Setting) -> list[Figure]:
    """Contexts of 8,000 tokens of 100,000 live chunks, which no compaction has touched; a dispatch before each."""
    sizes = (setting.size(1_000, 300), setting.size(100_000, 1_000))
    taken: dict[tuple[int, str | None], list[float]] = {}
    for size in sizes:
        say(f"  building a log of {size:,} messages")
        async with memory_engine.open(str(setting.new_path("contexts")), config=WITHOUT_COMPACTION) as engine:
            thread = await engine.create_thread()
            for _ in range(size // 250 + 1):
                await thread.dispatch_all(events(1, 250))
            for query in QUESTIONS:
                taken[size, query] = await _contexts(thread, query, setting.size(40, 3))
    return [
        Figure(
            bench="contexts",
            case=f"context({BUDGET:,}{', query' if query else ''}) of {sizes[1]:,} live chunks",
            value=statistics.median(taken[sizes[1], query][1:]),
            unit="ms",
            reference=Reference(f"of {sizes[0]:,}", statistics.median(taken[sizes[0], query][1:])),
            ratio_best=min(taken[sizes[1], query]) / min(taken[sizes[0], query]),
            bar=Bar("value", "<=", 5),
            asserted=not setting.quick,
            detail={"first_ms": taken[sizes[1], query][0], "worst_ms": max(taken[sizes[1], query][1:])},
        )
        for query in QUESTIONS
    ]


async def _contexts(thread: Thread, query: str | None, rounds: int) -> list[float]:
    """Milliseconds of each context: the first one reads the whole state."""
    taken = []
    for event in events(3, rounds + 1):
        await thread.dispatch(event)
        begun = perf_counter_ns()
        await thread.context(BUDGET, query=query)
        taken.append((perf_counter_ns() - begun) / 1e6)
    return taken


async def one_use(setting: Setting) -> list[Figure]:
    """Open, dispatch, context and close in a warm process, against aiosqlite: connect, commit a row, close."""
    path, bare_path = setting.new_path("one_use"), setting.new_path("one_use_bare")
    async with memory_engine.open(str(path)) as engine:
        await engine.create_thread("t")
    async with aiosqlite.connect(bare_path) as bare:
        await bare.execute("CREATE TABLE rows (value TEXT)")
    ours: list[float] = []
    floor: list[float] = []
    for number in range(setting.size(60, 3)):
        for taken, use in ((ours, _use(path, number)), (floor, _use_bare(bare_path))):
            begun = perf_counter_ns()
            await use
            taken.append((perf_counter_ns() - begun) / 1e6)
    return [
        Figure(
            bench="one_use",
            case="open, dispatch, context, close",
            value=statistics.median(ours),
            unit="ms",
            reference=Reference("aiosqlite: connect, commit, close", statistics.median(floor)),
            ratio_best=min(ours) / min(floor),
            bar=Bar("value", "<=", 5),
            asserted=not setting.quick,
            detail={"best_ms": min(ours), "reference_best_ms": min(floor)},
        )
    ]


async def _use(path: Path, number: int) -> None:
    async with memory_engine.open(str(path)) as engine:
        thread = engine.thread("t")
        await thread.dispatch(UserMessage(content=f"message {number}"))
        await thread.context(BUDGET)


async def _use_bare(path: Path) -> None:
    async with aiosqlite.connect(path) as bare:
        await bare.execute("PRAGMA journal_mode = WAL")
        await bare.execute("PRAGMA synchronous = NORMAL")
        await bare.execute("INSERT INTO rows VALUES ('a message')")
        await bare.commit()
