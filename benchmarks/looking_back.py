"""Looking back: any moment of a log, what changed between two, and why, at three lengths of the log."""

import random
import sqlite3
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter_ns

import msgspec

import memory_engine
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.setting import Setting, say, settle_memory
from memory_engine import Engine
from memory_engine.core.chunks import ChunkType
from memory_engine.store import snapshots
from memory_engine.store.protocol import ProjectionChange
from memory_engine.store.reader import LogReader

LENGTHS = (1_000, 10_000, 100_000)
ANY_POINT = Bar("value", "<=", 50.0)
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
    return found


def _bare(path: Path) -> float:
    """Milliseconds to read every row of the log and to decode its JSON, with nothing but sqlite3 and msgspec."""
    connection = sqlite3.connect(path)
    settle_memory()
    begun = perf_counter_ns()
    for payload, record in connection.execute("SELECT payload, record FROM events ORDER BY pos"):
        msgspec.json.decode(payload)
        if record:
            msgspec.json.decode(record)
    taken = (perf_counter_ns() - begun) / 1e6
    connection.close()
    return taken


async def _looked(engine: Engine, length: int, bare: float, *, asserted: bool) -> list[Figure]:
    thread = engine.thread("log")
    head = (await thread.info()).events
    say(f"  looking back over {head:,} events")
    chance = random.Random(length)
    summaries = [chunk.id for chunk in (await thread.state()).everything() if chunk.type == ChunkType.COMPACTED]
    newest = (await thread.latest(1))[0].chunks[0].id

    async def past() -> None:
        await (await thread.at(chance.randint(1, head))).state()

    async def context() -> None:
        await (await thread.at(chance.randint(1, head))).context(8_000)

    async def views() -> None:
        moment = await thread.at(chance.randint(1, head))
        for projection in engine.kernel.projections:
            await moment.rows(projection)

    async def diff() -> None:
        await thread.diff(*sorted(chance.randint(1, head) for _ in range(2)))

    async def why() -> None:
        await thread.why(chance.choice([*summaries, newest]))

    async def folded() -> None:
        await _forget_snapshots(engine)
        reader = LogReader(engine.store, engine.events, read_only=True)
        await reader.state_at("log", head)

    async def verified() -> None:
        if not (await thread.verify()).ok:
            raise AssertionError("the log does not verify")

    async def rebuilt() -> None:
        await thread.rebuild()

    decoded = Reference("reading and decoding the rows with sqlite3 and msgspec", bare)
    figures = []
    cases: list[tuple[str, Callable[[], Awaitable[None]], int, Reference | None, Bar | None]] = [
        ("any moment: its state", past, ROUNDS, None, ANY_POINT),
        ("any moment: a context of 8,000 tokens", context, ROUNDS, None, ANY_POINT),
        ("any moment: every view", views, ROUNDS, None, ANY_POINT),
        ("what changed between two moments", diff, ROUNDS, None, None),
        ("why a chunk is there", why, ROUNDS, None, None),
        ("fold without snapshots", folded, 3, PUBLISHED if length == LENGTHS[0] else decoded, None),
        ("verify", verified, 3, decoded, None),
        ("rebuild", rebuilt, 3, decoded, None),
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


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    begun = perf_counter_ns()
    await work()
    return (perf_counter_ns() - begun) / 1e6


async def _forget_snapshots(engine: Engine) -> None:
    everything = (("", "\U0010ffff"),)
    change = ProjectionChange(snapshots.PROJECTION, snapshots.VERSION, {}, 0, everything)
    await engine.store.write_projection("log", change)
