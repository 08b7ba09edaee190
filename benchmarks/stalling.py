"""The effect of long work on one thread on all others: how long the loop is blocked, and another thread's dispatch.

And many threads: a dispatch to each of thousands in turn, against one that has the engine to itself. And a deletion
from a large file, with what others wait for meanwhile.
"""

import asyncio
import gc
import shutil
import sqlite3
import statistics
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from time import perf_counter_ns

import memory_engine
from benchmarks.figures import Bar, Figure, Reference, Rounds, quantile
from benchmarks.ours import WITHOUT_COMPACTION, dispatch_timed, events
from benchmarks.setting import Setting, one_core, say
from memory_engine import Engine, Thread, UserMessage

BEAT_S = 0.001
EACH_S = 0.002
WARM_S = 0.2
BATCH = 250
ROUNDS = 5


class Bystanders:
    """A heartbeat and a thread that dispatches, during one call. Times in nanoseconds."""

    def __init__(self, other: Thread) -> None:
        self._other = other
        self._going = True
        self.gaps: list[int] = []
        self.dispatches: list[int] = []
        self.collections: list[int] = []

    async def beside(self, call: Callable[[], Awaitable[object]]) -> int:
        """Run a call between them; how long it took."""
        tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._dispatch())]
        await asyncio.sleep(WARM_S)
        self.gaps.clear()
        self.dispatches.clear()
        gc.callbacks.append(self._collected)
        begun = perf_counter_ns()
        await call()
        took = perf_counter_ns() - begun
        await asyncio.sleep(WARM_S)
        gc.callbacks.remove(self._collected)
        self._going = False
        await asyncio.gather(*tasks)
        return took

    def _collected(self, phase: str, _info: dict[str, int]) -> None:
        now = perf_counter_ns()
        if phase == "start":
            self.collections.append(-now)
        elif self.collections:
            self.collections[-1] += now

    async def _beat(self) -> None:
        last = perf_counter_ns()
        while self._going:
            await asyncio.sleep(BEAT_S)
            now = perf_counter_ns()
            self.gaps.append(now - last - int(BEAT_S * 1e9))
            last = now

    async def _dispatch(self) -> None:
        while self._going:
            self.dispatches += await dispatch_timed(self._other, [UserMessage(content="meanwhile")])
            await asyncio.sleep(EACH_S)


async def stalls(setting: Setting) -> list[Figure]:
    """Each call once, most on a thread of 100,000 chunks that no compaction has touched."""
    count = setting.size(100_000, 500)
    path = setting.new_path("stalls")
    say(f"  building a log of {count:,} messages")
    async with memory_engine.open(str(path), config=WITHOUT_COMPACTION) as engine:
        thread = await engine.create_thread("long")
        batch = events(1, BATCH)
        for _ in range(count // BATCH):
            await thread.dispatch_all(batch)
        shorter = await engine.create_thread("shorter")
        for _ in range(count // 10 // BATCH or 1):
            await shorter.dispatch_all(batch)
    found: list[Figure] = []
    async with memory_engine.open(str(path), config=WITHOUT_COMPACTION) as engine:
        other = await engine.create_thread("other")
        for name, call in _calls(setting, engine.thread("long"), count).items():
            say(f"  {name}")
            bystanders = Bystanders(other)
            took = await bystanders.beside(call)
            found.append(_stall(setting, f"{name}, {count:,} chunks", bystanders, took))
        paragraph = "A line about users in November. " * 30
        markdown = "\n\n".join(f"# Part {n}\n\n{paragraph}" for n in range(setting.size(1_000, 10)))
        documents = engine.tenant("acme").documents
        further: dict[str, Callable[[], Awaitable[object]]] = {
            f"ingesting {len(markdown) / 1e6:.1f} MB of Markdown": lambda: documents.add_text(markdown, title="Users"),
            f"compacting {count // 10:,} chunks": engine.thread("shorter").compact,
            f"deleting {count // 10:,} events": engine.thread("shorter").admin.delete,
        }
        for name, call in further.items():
            say(f"  {name}")
            bystanders = Bystanders(other)
            found.append(_stall(setting, name, bystanders, await bystanders.beside(call)))
    return found


def _calls(setting: Setting, thread: Thread, count: int) -> dict[str, Callable[[], Awaitable[object]]]:
    half, export = count // 2, setting.new_path("exported")
    large = UserMessage(content="word " * setting.size(800_000, 10_000))
    larger = UserMessage(content="größe " * setting.size(1_800_000, 10_000))
    return {
        "opening": thread.state,
        "context(8000)": lambda: thread.context(max_tokens=8_000),
        "context(8000, query)": lambda: thread.context(max_tokens=8_000, query="users in November"),
        "state(at=half)": lambda: thread.state(at=half),
        "diff(half, now)": lambda: thread.replay.diff(half, count),
        "fork(half)": lambda: thread.fork(at=half),
        "forget": lambda: thread.forget(seqs=[10]),
        "verify": thread.replay.verify,
        "rebuild": thread.replay.rebuild,
        "export": lambda: thread.replay.export(export),
        "prepare_messages(8000)": lambda: thread.conversation.prepare_messages("And now?", 8_000),
        "end_session": thread.admin.end_session,
        "an event of 4 MB": lambda: thread.dispatch(large),
        "an event of 15 MB": lambda: thread.dispatch(larger),
    }


def _stall(setting: Setting, case: str, bystanders: Bystanders, took: int) -> Figure:
    return Figure(
        bench="stalls",
        case=case,
        value=max(bystanders.gaps) / 1e6,
        unit="ms, the longest that the loop stood still",
        bar=Bar("value", "<=", 10),
        asserted=not setting.quick,
        detail={
            "took_ms": took / 1e6,
            "other_dispatch_p99_ms": quantile(bystanders.dispatches, 0.99) / 1e6,
            "longest_garbage_collection_ms": max(bystanders.collections, default=0) / 1e6,
        },
    )


async def deleting(setting: Setting) -> list[Figure]:
    """Threads of 20 messages are deleted from a file of 100,000; another thread dispatches meanwhile."""
    count, path = setting.size(100_000, 2_000), setting.new_path("deleting")
    say(f"  building a log of {count:,} messages")
    async with memory_engine.open(str(path), config=WITHOUT_COMPACTION) as engine:
        for seed in range(count // 2_000):
            thread = await engine.create_thread()
            for _ in range(2_000 // BATCH):
                await thread.dispatch_all(events(seed, BATCH))
        await engine.flush()
        shutil.copy(path, copied := setting.new_path("vacuum"))
        taken: list[float] = []
        meanwhile: list[int] = []
        other = await engine.create_thread()
        for seed in range(setting.size(ROUNDS, 2) + 1):  # the first also zeroes what the writing of the file has left
            small = await engine.create_thread()
            await small.dispatch_all(events(1_000 + seed, 20))
            bystanders = Bystanders(other)
            took = await bystanders.beside(small.admin.delete)
            if seed:
                taken.append(took / 1e6)
                meanwhile += bystanders.dispatches
        erased = {prove: await _erased_ms(engine, prove=prove) for prove in (False, True)}
    with closing(sqlite3.connect(copied)) as raw:
        begun = perf_counter_ns()
        raw.execute("VACUUM")
        vacuum = (perf_counter_ns() - begun) / 1e6
    of = f"a thread of 20 messages deleted from {path.stat().st_size / 1e6:,.0f} MB"
    return [
        Figure(
            bench="deleting",
            case=of,
            value=statistics.median(taken),
            unit="ms, with its proof",
            reference=Reference("VACUUM", vacuum),
            asserted=not setting.quick,
        ),
        Figure(
            bench="deleting",
            case=f"a dispatch to another thread while {of}",
            value=quantile(meanwhile, 0.99) / 1e6,
            unit="ms, p99",
            bar=Bar("value", "<=", 20),
            asserted=not setting.quick,
            detail={"longest_ms": max(meanwhile) / 1e6},
        ),
        Figure(
            bench="deleting",
            case=f"a message erased from {path.stat().st_size / 1e6:,.0f} MB",
            value=erased[False],
            unit="ms, reading a part",
            reference=Reference("reading everything", erased[True]),
        ),
    ]


async def _erased_ms(engine: Engine, *, prove: bool) -> float:
    """The median time that it takes to erase a message of a short thread."""
    taken: list[float] = []
    for seed in range(ROUNDS):
        thread = await engine.create_thread()
        await thread.dispatch_all(events(2_000 + seed, 20))
        begun = perf_counter_ns()
        await thread.admin.erase(seqs=[3], prove=prove)
        taken.append((perf_counter_ns() - begun) / 1e6)
    return statistics.median(taken)


async def many_threads(setting: Setting) -> list[Figure]:
    """Rounds over 10,000 threads, a dispatch each, and the memory that they take."""
    count = setting.size(10_000, 200)
    async with AsyncExitStack() as stack:
        stack.enter_context(one_core())
        path = str(setting.new_path("many"))
        engine = await stack.enter_async_context(memory_engine.open(path, config=WITHOUT_COMPACTION))
        alone = Rounds()
        thread = await engine.create_thread()
        for seed in range(ROUNDS):
            alone.add(await dispatch_timed(thread, events(seed, 200)))
        before = _resident_kib()
        say(f"  making {count:,} threads")
        threads = [await engine.create_thread() for _ in range(count)]
        rounds = [await _round(threads, number) for number in range(ROUNDS)]
        grown = _resident_kib() - before
    return [
        Figure(
            bench="many_threads",
            case=f"round {number} over {count:,} threads",
            value=quantile(times, 0.5) / 1_000,
            unit="us, p50",
            reference=Reference("one thread", alone.p50_us),
            bar=Bar("ratio", "<=", 1.3),
            asserted=not setting.quick,
            detail={"p99_us": quantile(times, 0.99) / 1_000},
        )
        for number, times in enumerate(rounds, 1)
    ] + [
        Figure(
            bench="many_threads",
            case=f"memory of an open thread of {ROUNDS} messages",
            value=grown / count,
            unit="KiB",
            bar=Bar("value", "<=", 20),
            asserted=not setting.quick,
        )
    ]


async def _round(threads: Sequence[Thread], number: int) -> list[int]:
    batch = events(number + 100, 200)
    times: list[int] = []
    for n, thread in enumerate(threads):
        times += await dispatch_timed(thread, [batch[n % len(batch)]])
    return times


def _resident_kib() -> float:
    """The memory of this process."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return 0.0
    return next(float(line.split()[1]) for line in status.read_text("utf-8").splitlines() if line.startswith("VmRSS"))
