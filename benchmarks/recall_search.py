"""Searching many passages: by words and with vectors, now and as of earlier, in one thread and in many."""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from time import perf_counter_ns, process_time
from typing import Literal

from attrs import field, frozen

import memory_engine
from benchmarks.figures import Bar, Figure, Reference, quantile
from benchmarks.ours import BATCH, WITHOUT_COMPACTION, database_bytes
from benchmarks.peer_process import ROOT
from benchmarks.recall_texts import Talk, questions
from benchmarks.recall_vectors import DIMENSION, Clusters
from benchmarks.setting import Setting, say, settle_memory
from memory_engine import Engine, Thread
from memory_engine.recall import Embedder

Mode = Literal["words", "vectors"]
MODES: Mapping[Mode, str] = {"words": "by words", "vectors": "by words and vectors, embedding for nothing"}
NAME = "talk"
THREADS = 20
BLOCK = 20
LIMIT = 1_000
BARS_MS: Mapping[Mode, float] = {"words": 3, "vectors": 5}
IDLE_S = 0.3
VECTOR_BYTES = 2 * DIMENSION
OPENED_MS = 200
RESIDENT_MIB = 200


@frozen
class Filled:
    """A closed file with one thread of a number of passages: its size before it had an index, and its questions."""

    path: Path
    passages: int
    bytes: int
    questions: list[str]


@frozen
class Asked:
    """A file that is open, and what was seen: making its index, the first search; microseconds of all others.

    The search before there was an index took `unready_ms` and had not seen `unindexed` events.
    `early_us` are those directly after the first search, the rest come later.
    """

    filled: Filled
    thread: Thread
    made_s: float
    first_ms: float
    unready_ms: float
    unindexed: int
    early_us: list[float]
    now_us: list[float] = field(factory=list)
    then_us: list[float] = field(factory=list)
    long_us: list[float] = field(factory=list)


async def searching(setting: Setting) -> list[Figure]:
    """The same questions to a thread of 10,000 passages and to one of 100,000, in turn; first by words alone."""
    sizes = (setting.size(10_000, 100), setting.size(100_000, 300))
    few, many = [await _filled(setting, count) for count in sizes]
    found: list[Figure] = []
    for mode in MODES:
        embedder = Clusters() if mode == "vectors" else None
        if embedder is not None:
            embedder.learn([*few.questions, *many.questions])
        say(f"  search {mode}: {few.passages:,} and {many.passages:,} passages")
        before = database_bytes(many.path)
        asked = await _asked(setting, (few, many), embedder)
        found += _report(setting, asked, mode)
        say(f"  search {mode}: {THREADS} threads")
        found.append(await _over_threads(setting, few, embedder, (MODES[mode], statistics.median(asked[0].now_us))))
        found += _anew(setting, many, mode, before)
    return found


async def _filled(setting: Setting, count: int) -> Filled:
    say(f"  writing {count:,} messages")
    path = setting.new_path(f"recall-{count}")
    messages = Talk().messages(count)
    told: list[str] = []
    async with memory_engine.open(str(path), config=WITHOUT_COMPACTION) as engine:
        thread = await engine.create_thread(NAME)
        while batch := list(islice(messages, BATCH)):
            await thread.dispatch_all(batch)
            told += [str(message.content) for message in batch]
    return Filled(path, count, database_bytes(path), questions(told, setting.size(400, 20)))


async def _asked(setting: Setting, files: Sequence[Filled], embedder: Embedder | None) -> list[Asked]:
    """Files in turn, a block of questions each; half of the questions are also asked as of the middle."""
    async with AsyncExitStack() as stack:
        asked = []
        for filled in files:
            opened = memory_engine.open(str(filled.path), config=WITHOUT_COMPACTION, embedder=embedder)
            asked.append(await _begun(filled, await stack.enter_async_context(opened)))
        settle_memory()
        for at in range(0, setting.size(400, 20), BLOCK):
            for one in asked:
                block = one.filled.questions[at : at + BLOCK]
                one.now_us.extend(await _timed(one.thread.search, block))
                one.then_us.extend(await _timed(_as_of(one.thread, one.filled.passages // 2), block[::2]))
                one.long_us.extend(await _timed(_many(one.thread), block[::10]))
    return asked


async def _begun(filled: Filled, engine: Engine) -> Asked:
    """Make the index, search for the first time and some more; then wait for what that began in the background."""
    thread = engine.thread(NAME)
    await thread.info()
    begun = perf_counter_ns()
    unindexed = (await thread.search(filled.questions[-1])).unindexed
    unready_ms = (perf_counter_ns() - begun) / 1e6
    await thread.admin.prepare_search()
    made = perf_counter_ns()
    await thread.search(filled.questions[-1])
    first_ms = (perf_counter_ns() - made) / 1e6
    early = await _timed(thread.search, filled.questions[-2 * BLOCK : -1])
    await idle()
    return Asked(filled, thread, (made - begun) / 1e9, first_ms, unready_ms, unindexed, early)


async def idle() -> None:
    """Wait until this process computes nothing any more."""
    used = -1.0
    while process_time() - used > IDLE_S / 10:
        used = process_time()
        await asyncio.sleep(IDLE_S)


def _as_of(thread: Thread, seq: int) -> Callable[[str], Awaitable[object]]:
    async def search(question: str) -> object:
        return await thread.search(question, at=seq)

    return search


def _many(thread: Thread) -> Callable[[str], Awaitable[object]]:
    async def search(question: str) -> object:
        return await thread.search(question, limit=LIMIT)

    return search


async def _timed(search: Callable[[str], Awaitable[object]], asked: Sequence[str]) -> list[float]:
    taken = []
    for question in asked:
        begun = perf_counter_ns()
        await search(question)
        taken.append((perf_counter_ns() - begun) / 1000)
    return taken


def _report(setting: Setting, asked: Sequence[Asked], mode: Mode) -> list[Figure]:
    few, many = asked
    how = MODES[mode]
    now = statistics.median(few.now_us) / 1000
    case = f"search of {many.filled.passages:,} passages, {how}"
    reference = Reference(f"of {few.filled.passages:,}", now)
    best = min(many.now_us) / min(few.now_us)
    made = few.filled.passages / few.made_s
    of_now = Reference("now", statistics.median(many.now_us) / 1000)
    then = min(many.then_us) / min(many.now_us)
    return [
        Figure(
            bench="recall",
            case=f"the first search of {many.filled.passages:,} passages" + (", not indexed" * (mode == "words")),
            value=many.unready_ms,
            unit=f"ms, {how}",
            bar=Bar("value", "<=", 1_000),
            asserted=not setting.quick,
            detail={"unindexed": many.unindexed},
        ),
        _figure(
            setting,
            case,
            many.now_us,
            bar=Bar("value", "<=", BARS_MS[mode]),
            detail={"first_search_ms": many.first_ms},
        ),
        _figure(setting, f"{case}: flat", many.now_us, reference=(reference, best), bar=Bar("ratio", "<=", 2)),
        _figure(
            setting,
            f"{case}, as of the middle",
            many.then_us,
            reference=(of_now, then),
            bar=Bar("ratio", "<=", 1.3),
        ),
        _figure(setting, f"{case}, {LIMIT:,} hits", many.long_us, bar=Bar("value", "<=", 15)),
        _figure(setting, f"{case}, directly after the first", many.early_us),
        Figure(
            bench="recall",
            case=f"index of {many.filled.passages:,} passages, {how}" + (" (words are there)" * ("vectors" in how)),
            value=many.filled.passages / many.made_s,
            unit="passages/s",
            reference=Reference(f"of {few.filled.passages:,}", made),
            asserted=not setting.quick,
            detail={"seconds": many.made_s},
        ),
    ]


def _figure(  # noqa: PLR0913 - a line and its comparison, by keyword
    setting: Setting,
    case: str,
    taken_us: Sequence[float],
    *,
    reference: tuple[Reference, float] | None = None,
    bar: Bar | None = None,
    detail: Mapping[str, float] | None = None,
) -> Figure:
    return Figure(
        bench="recall",
        case=case,
        value=statistics.median(taken_us) / 1000,
        unit="ms, p50",
        reference=reference[0] if reference else None,
        ratio_best=reference[1] if reference else None,
        bar=bar,
        asserted=not setting.quick,
        detail={
            "mean_ms": statistics.fmean(taken_us) / 1000,
            "p95_ms": quantile(taken_us, 0.95) / 1000,
            "p99_ms": quantile(taken_us, 0.99) / 1000,
            "questions": len(taken_us),
            **(detail or {}),
        },
    )


async def _over_threads(setting: Setting, few: Filled, embedder: Embedder | None, alone: tuple[str, float]) -> Figure:
    """As many passages as the smaller file, in twenty threads that are searched together."""
    how, reference_us = alone
    each = few.passages // THREADS
    messages = Talk().messages(each * THREADS)
    path = setting.new_path("recall-threads")
    async with memory_engine.open(str(path), config=WITHOUT_COMPACTION, embedder=embedder) as engine:
        for number in range(THREADS):
            thread = await engine.create_thread(f"t{number}", user_id="u")
            await thread.dispatch_all(list(islice(messages, each)))
            await thread.admin.prepare_search()

        async def search(question: str) -> object:
            return await engine.search(question, user_id="u")

        asked = few.questions[: setting.size(200, 10)]
        await search(asked[0])
        taken = await _timed(search, asked)
    reference = Reference("in one thread", reference_us / 1000)
    return _figure(
        setting,
        f"search over {THREADS} threads of {each:,} passages, {how}",
        taken,
        reference=(reference, min(taken) / reference_us),
        bar=Bar("ratio", "<=", 1.5),
    )


def _anew(setting: Setting, filled: Filled, mode: Mode, before: int) -> list[Figure]:
    """The time of a new process to open the file and search it, its memory, and the growth of the file."""
    path = setting.new_path("recall-anew")
    shutil.copy(filled.path, path)
    floor = path.with_suffix(".bytes")
    floor.write_bytes(bytes(filled.passages * VECTOR_BYTES))
    # as installed: compiled once, by the run that does not count
    surroundings = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(setting.folder / "compiled"),
    }
    words = [sys.executable, "-m", "benchmarks.recall_child", str(path), NAME, mode]
    seen: list[dict[str, float]] = []
    whole_ms = []
    for number in range(setting.size(8, 1) + 1):
        begun = perf_counter_ns()
        ended = subprocess.run(
            [*words, filled.questions[number]], cwd=ROOT, env=surroundings, stdout=subprocess.PIPE, check=True
        )
        whole_ms.append((perf_counter_ns() - begun) / 1e6)
        seen.append(json.loads(ended.stdout))
    del whole_ms[0], seen[0]
    share = 100_000 / filled.passages
    size = f"{filled.passages:,} passages, {MODES[mode]}"
    is_hybrid = mode == "vectors"
    what = "vectors" if is_hybrid else "the index"
    grown = database_bytes(filled.path) - (before if is_hybrid else filled.bytes)
    median = {key: statistics.median(one[key] for one in seen) for key in seen[0]}
    return [
        Figure(
            bench="recall",
            case=f"a new process opens and searches {size}",
            value=median["ms"],
            unit="ms",
            reference=Reference("reading as many bytes as the vectors have", median["floor_ms"]) if is_hybrid else None,
            bar=Bar("value", "<=", OPENED_MS) if is_hybrid else None,
            asserted=not setting.quick,
            detail={
                "best_ms": min(one["ms"] for one in seen),
                "first_search_ms": median["first_ms"],
                "second_search_ms": median["second_ms"],
                "whole_process_ms": statistics.median(whole_ms),
            },
        ),
        Figure(
            bench="recall",
            case=f"resident memory that the first search adds, a 100,000 passages ({size})",
            value=median["added_bytes"] * share / 2**20,
            unit="MiB",
            reference=Reference("the vectors' bytes", 100_000 * VECTOR_BYTES / 2**20) if is_hybrid else None,
            asserted=not setting.quick,
        ),
        Figure(
            bench="recall",
            case=f"resident memory of a process that has searched {size}",
            value=median["resident_bytes"] / 2**20,
            unit="MiB",
            bar=Bar("value", "<=", RESIDENT_MIB) if is_hybrid else None,
            asserted=not setting.quick,
        ),
        Figure(
            bench="recall",
            case=f"bytes of the file for {what}, a 100,000 passages",
            value=grown * share / 2**20,
            unit="MiB",
            reference=Reference("the log without an index", filled.bytes * share / 2**20),
            asserted=not setting.quick,
        ),
    ]
