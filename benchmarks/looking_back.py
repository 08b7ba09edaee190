"""Looking back: any moment of a log, what changed between two, and why, at three lengths of the log."""

import random
import sqlite3
import statistics
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import perf_counter_ns

import msgspec

import memory_engine
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.setting import Setting, say, settle_memory
from memory_engine import Engine
from memory_engine.core.chunks import ChunkType
from memory_engine.engine import kernel_of
from memory_engine.files.verify_file import verify_file
from memory_engine.files.workers import cores
from memory_engine.replay.what_if import Change, SkipEvent
from memory_engine.store import snapshots
from memory_engine.store.protocol import ProjectionChange
from memory_engine.store.reader import LogReader

LENGTHS = (1_000, 10_000, 100_000)
ANY_POINT = Bar("value", "<=", 50.0)
NEVER_COMPACTED = WHY = Bar("value", "<=", 100.0)
LEDGER = Bar("value", "<=", 2_000.0)
WHAT_IF = Bar("value", "<=", 3_000.0)
REPLAY = Bar("ratio", "<=", 5.0)
TWO_PROCESSES = Bar("ratio", "<=", 0.65)
DECODED = "reading and decoding the rows with sqlite3 and msgspec"
PUBLISHED = Reference("OpenHands, 1,000 events, as it publishes it (its own machine)", 29.5)
ROUNDS = 40


async def looking_back(setting: Setting) -> list[Figure]:
    """Verify, rebuild, fold, go to any moment, compare two and ask why, on 1,000, 10,000 and 100,000 messages."""
    found: list[Figure] = []
    for length in LENGTHS if not setting.quick else (200,):
        path = await setting.log_of(length)
        bare = _bare(path)
        async with memory_engine.open(str(path)) as engine:
            found += await _looked(engine, length, bare, asserted=not setting.quick)
    found += await _never_compacted(setting)
    found += await _run_again(setting)
    return found + await _in_processes(setting)


_ROWS = (
    "SELECT coalesce(e.payload, b.body), e.record FROM events e LEFT JOIN blobs b ON b.digest = e.spilled ORDER BY pos"
)


def _bare(path: Path) -> float:
    """Milliseconds to read every row of the log and to decode its JSON, with nothing but sqlite3 and msgspec."""
    connection = sqlite3.connect(path)
    times = []
    for _ in range(3):
        settle_memory()
        begun = perf_counter_ns()
        for payload, record in connection.execute(_ROWS):
            msgspec.json.decode(payload)
            if record:
                msgspec.json.decode(record)
        times.append((perf_counter_ns() - begun) / 1e6)
    connection.close()
    return statistics.median(times)


async def _never_compacted(setting: Setting) -> list[Figure]:
    """Moments of a log whose state is as long as itself: the first look reads it, the others begin near."""
    length = setting.size(LENGTHS[-1], 200)
    path = await setting.log_of(length, compacted=False)
    decoded = Reference(DECODED, _bare(path))
    async with memory_engine.open(str(path)) as engine:
        thread = engine.thread("log")
        chance = random.Random(length)

        async def past() -> None:
            await thread.state(at=chance.randint(1, length))

        settle_memory()
        first = [await _timed(partial(thread.state, at=length - 1))]
        later = [await _timed(past) for _ in range(ROUNDS)]
    what = f"{length:,} messages never compacted: the state"
    return [
        _figure(setting, f"{what}, the first moment", first, decoded),
        _figure(setting, f"{what}, any moment then", later, decoded, NEVER_COMPACTED),
    ]


async def _run_again(setting: Setting) -> list[Figure]:
    """The ledger of a log, with a budget and without, and a what-if over it."""
    length = setting.size(13_700, 200)
    path = await setting.log_of(length)
    decoded = Reference(DECODED, _bare(path))
    async with memory_engine.open(str(path)) as engine:
        thread = engine.thread("log")
        change = Change(edits=[SkipEvent(5)])
        works: list[tuple[str, Callable[[], Awaitable[object]], Bar]] = [
            ("ledger", thread.replay.ledger, LEDGER),
            ("ledger of 8,000 tokens", partial(thread.replay.ledger, max_tokens=8_000), LEDGER),
            ("what-if", partial(thread.replay.what_if, change), WHAT_IF),
        ]
        figures = []
        for case, work, bar in works:
            settle_memory()
            times = [await _timed(work) for _ in range(setting.size(2, 1))]
            figures.append(_figure(setting, f"{case}, {length:,} messages", times, decoded, bar))
        return figures


async def _in_processes(setting: Setting) -> list[Figure]:
    """Verifying the threads of a file in one process, and in two."""
    path = await setting.log_of(setting.size(10_000, 50), threads=4)
    taken: dict[int, list[float]] = {}
    for jobs in (1, 2, 1, 2):
        work = partial(verify_file, path, jobs=jobs)
        taken.setdefault(jobs, []).append(await _timed(work))
    alone = Reference("in this process", statistics.median(taken[1]))
    bar = TWO_PROCESSES if cores() > 1 else None
    return [_figure(setting, "verify of 4 threads in 2 processes", taken[2], alone, bar)]


def _figure(setting: Setting, case: str, times: list[float], reference: Reference, bar: Bar | None = None) -> Figure:
    return Figure(
        bench="looking back",
        case=case,
        value=statistics.median(times),
        unit="ms",
        reference=reference,
        ratio_best=min(times) / reference.value if reference.value else None,
        bar=bar,
        asserted=not setting.quick,
        detail={"slowest ms": max(times)},
    )


async def _looked(engine: Engine, length: int, bare: float, *, asserted: bool) -> list[Figure]:
    thread = engine.thread("log")
    head = (await thread.info()).events
    say(f"  looking back over {head:,} events")
    chance = random.Random(length)
    summaries = [chunk.id for chunk in (await thread.state()).everything() if chunk.type == ChunkType.COMPACTED]
    newest = (await thread.replay.latest(1))[0].chunks[0].id

    async def past() -> None:
        await (await thread.at(chance.randint(1, head))).state()

    async def context() -> None:
        await (await thread.at(chance.randint(1, head))).context(8_000)

    async def views() -> None:
        moment = await thread.at(chance.randint(1, head))
        for projection in kernel_of(engine).projections:
            await moment.views.rows(projection)

    async def diff() -> None:
        await thread.replay.diff(*sorted(chance.randint(1, head) for _ in range(2)))

    async def why() -> None:
        await thread.replay.why(chance.choice([*summaries, newest]))

    async def folded() -> None:
        await _forget_snapshots(engine)
        reader = LogReader(kernel_of(engine).store, engine.events, read_only=True)
        await reader.state_at("log", head)

    async def verified() -> None:
        if not (await thread.replay.verify()).ok:
            raise AssertionError("the log does not verify")

    async def rebuilt() -> None:
        await thread.replay.rebuild()

    decoded = Reference(DECODED, bare)
    figures = []
    cases: list[tuple[str, Callable[[], Awaitable[None]], int, Reference | None, Bar | None]] = [
        ("any moment: its state", past, ROUNDS, None, ANY_POINT),
        ("any moment: a context of 8,000 tokens", context, ROUNDS, None, ANY_POINT),
        ("any moment: every view", views, ROUNDS, None, ANY_POINT),
        ("what changed between two moments", diff, ROUNDS, None, None),
        ("why a chunk is there", why, ROUNDS, None, WHY),
        ("fold without snapshots", folded, 3, PUBLISHED if length == LENGTHS[0] else decoded, None),
        ("verify", verified, 3, decoded, REPLAY),
        ("rebuild", rebuilt, 3, decoded, REPLAY),
    ]
    for case, work, rounds, reference, bar in cases:
        await work()  # the first reader of views keeps what others find
        settle_memory()
        times = sorted([await _timed(work) for _ in range(rounds)])
        figures.append(
            Figure(
                bench="looking back",
                case=f"{case}, {length:,} messages",
                value=statistics.median(times),
                unit="ms",
                reference=reference,
                ratio_best=times[0] / reference.value if reference is not None and reference.value else None,
                bar=bar,
                asserted=asserted,
                detail={"events": head, "slowest ms": times[-1]},
            )
        )
    return figures


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    begun = perf_counter_ns()
    await work()
    return (perf_counter_ns() - begun) / 1e6


async def _forget_snapshots(engine: Engine) -> None:
    everything = (("", "\U0010ffff"),)
    change = ProjectionChange(snapshots.PROJECTION, snapshots.VERSION, {}, 0, everything)
    await kernel_of(engine).store.write_projection("log", change)
