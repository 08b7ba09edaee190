"""Views: reads from memory, searches over many entries, appends to many, and their rebuild from a long log."""

import random
import statistics
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter_ns

import memory_engine
from benchmarks.figures import Bar, Figure, Reference, quantile
from benchmarks.ours import WITHOUT_COMPACTION
from benchmarks.setting import Setting, one_core, say, settle_memory
from memory_engine import Engine, Event, NewEvent, Thread
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.projections.rebuild import rebuild_thread
from memory_engine.views.layers.entries import SearchMode
from memory_engine.views.layers.view import Memory

BATCH = 500
WORDS = (
    "revenue users churn dashboard query table column sunday november report export invoice refund order shipment "
    "customer region europe asia forecast budget margin discount campaign newsletter signup login session latency "
    "error timeout retry deploy build test branch merge review ticket priority owner deadline estimate meeting notes "
    "summary trend spike dip average median percentile chart axis legend filter group join schema index migration"
).split()


async def views(setting: Setting) -> list[Figure]:
    """The cost of reading, searching, appending to and rebuilding views, at sizes far from small."""
    found: list[Figure] = []
    for bench in (_scratchpad, _preferences, _playbooks, _vectors, _tool_cache, _layers, _rebuild):
        say(f"  {bench.__name__.strip('_')}")
        settle_memory()
        found += await bench(setting)
    return found


def sentence(number: int, words: int = 10) -> str:
    """A line of words that is always the same for a number, with the number in it."""
    picks = random.Random(number)
    return " ".join(picks.choices(WORDS, k=words)) + f" #{number}"


async def _fill(thread: Thread, events: Sequence[Event]) -> None:
    for at in range(0, len(events), BATCH):
        batch: list[Event | NewEvent] = list(events[at : at + BATCH])
        await thread.dispatch_all(batch)


async def _timed(work: Callable[[int], Awaitable[object]], rounds: int) -> list[float]:
    """Microseconds of each call, the first one left out: it loads."""
    await work(0)
    taken = []
    for number in range(rounds):
        begun = perf_counter_ns()
        await work(number)
        taken.append((perf_counter_ns() - begun) / 1000)
    return taken


def _flat(setting: Setting, case: str, taken: tuple[list[float], list[float]], of: str) -> Figure:
    """Microseconds at many, against the same at few."""
    many, few = taken
    return Figure(
        bench="views",
        case=case,
        value=statistics.median(many),
        unit="us, p50",
        reference=Reference(of, statistics.median(few)),
        ratio_best=min(many) / min(few),
        bar=Bar("ratio", "<=", 1.5),
        asserted=not setting.quick,
        detail={"p99_us": quantile(many, 0.99)},
    )


def _below(setting: Setting, case: str, taken_us: Sequence[float], limit_ms: float, *, p: float = 0.5) -> Figure:
    """Milliseconds, against what is asked for."""
    return Figure(
        bench="views",
        case=case,
        value=quantile(taken_us, p) / 1000,
        unit=f"ms, p{p * 100:g}",
        bar=Bar("value", "<=", limit_ms),
        asserted=not setting.quick,
        detail={"p50_ms": statistics.median(taken_us) / 1000, "p99_ms": quantile(taken_us, 0.99) / 1000},
    )


async def _scratchpad(setting: Setting) -> list[Figure]:
    sizes = (setting.size(100_000, 500), 100)
    async with memory_engine.open(str(setting.new_path("pad")), config=WITHOUT_COMPACTION) as engine:
        threads = [await engine.create_thread() for _ in sizes]
        for thread, count in zip(threads, sizes, strict=True):
            said: list[Event] = [e.EnvironmentChange(content=str(n), key="clock") for n in range(count - 64)]
            await _fill(thread, [*said, *(e.ScratchpadWritten(content=sentence(n)) for n in range(64))])
        pads = [thread.scratchpad for thread in threads]
        taken = await _in_turn(lambda _: pads[0].read(), lambda _: pads[1].read())
    return [_flat(setting, "scratchpad.read of 64 snippets in a thread of 100,000 events", taken, "of 100")]


async def _in_turn(
    many: Callable[[int], Awaitable[object]], few: Callable[[int], Awaitable[object]]
) -> tuple[list[float], list[float]]:
    """Microseconds of both, block by block: what the machine does meanwhile meets both."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(20):
        for work, found in zip((many, few), taken, strict=True):
            found.extend(await _timed(work, 100))
    return taken


async def _preferences(setting: Setting) -> list[Figure]:
    many, few, found = setting.size(10_000, 100), 10, []
    async with memory_engine.open(str(setting.new_path("preferences"))) as engine:
        for count in (many, few):
            changes = [e.PreferenceUpdated(key=f"key {n}", value=sentence(n, 6)) for n in range(count)]
            await _fill(engine.user(f"with {count}"), changes)
        preferences, small = (engine.user(f"with {count}").preferences for count in (many, few))
        taken = await _in_turn(lambda n: preferences.get(f"key {n % many}"), lambda n: small.get(f"key {n % few}"))
        found.append(_flat(setting, f"preferences.get of {many:,}", taken, f"of {few}"))
        queries = [sentence(n * 37 % many, 6) for n in range(60)]
        searched = await _timed(lambda n: preferences.applicable(query=queries[n % 60]), setting.size(60, 5))
    return [*found, _below(setting, f"preferences.applicable by similarity of {many:,}", searched, 20)]


async def _playbooks(setting: Setting) -> list[Figure]:
    many = setting.size(10_000, 100)
    async with memory_engine.open(str(setting.new_path("playbooks"))) as engine:
        user = engine.user("u")
        saved = [
            e.PlaybookSaved(flow_dact=f"flow {n % 40}", user_query=sentence(n, 8), slots={"n": n}) for n in range(many)
        ]
        await _fill(user, saved)
        queries = [sentence(n * 37 % many, 8) for n in range(60)]
        taken = await _timed(lambda n: user.playbooks.find(queries[n % 60]), setting.size(60, 5))
    return [_below(setting, f"playbooks.find by similarity of {many:,}", taken, 20)]


class Digits:
    """An embedder that costs next to nothing: vectors drawn by a generator seeded with the text."""

    name = "digits"
    dimension = 384

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector a text."""
        return [[picks.gauss(0, 1) for _ in range(self.dimension)] for picks in map(random.Random, texts)]

    async def aclose(self) -> None:
        """Nothing to release."""


async def _vectors(setting: Setting) -> list[Figure]:
    """The same by vectors: the rest once the embedding itself, timed separately, is taken off."""
    many, embedder = setting.size(10_000, 100), Digits()
    async with memory_engine.open(str(setting.new_path("vectors")), embedder=embedder) as engine:
        user = engine.user("u")
        saved = [e.PlaybookSaved(flow_dact="f", user_query=sentence(n, 8), slots={"n": n}) for n in range(many)]
        await _fill(user, saved)
        queries = [sentence(n * 37 % many, 8) for n in range(60)]
        taken = await _timed(lambda n: user.playbooks.find(queries[n % 60]), setting.size(60, 5))
        embedded = statistics.median(await _timed(lambda n: embedder.embed([queries[n % 60]]), setting.size(60, 5)))
    found = [us - embedded for us in taken]
    return [_below(setting, f"playbooks.find by 384-dimensional vectors of {many:,}, embedding taken off", found, 20)]


async def _tool_cache(setting: Setting) -> list[Figure]:
    many, few = setting.size(10_000, 100), 10
    async with memory_engine.open(str(setting.new_path("cache"))) as engine:
        threads = [await engine.create_thread() for _ in (many, few)]
        for thread, count in zip(threads, (many, few), strict=True):
            cached = [
                e.ToolResultCached(tool="query", parameters=f'{{"n":{n}}}', result=sentence(n, 30), duration=1_000_000)
                for n in range(count)
            ]
            await _fill(thread, cached)
            await thread.tool_cache.entries()  # each is decoded at its first look, whatever their number
        big, small = (thread.tool_cache for thread in threads)
        looked = await _in_turn(
            lambda n: big.peek("query", {"n": n % many}), lambda n: small.peek("query", {"n": n % few})
        )
        hit = await _in_turn(
            lambda n: big.lookup("query", {"n": n % many}), lambda n: small.lookup("query", {"n": n % few})
        )
    return [
        _flat(setting, f"tool_cache.peek of {many:,}", looked, f"of {few}"),
        _flat(setting, f"tool_cache.lookup of {many:,} (records the hit)", hit, f"of {few}"),
    ]


async def _layers(setting: Setting) -> list[Figure]:
    many = setting.size(100_000, 500)
    path = str(setting.new_path("layers"))
    async with memory_engine.open(path) as engine:
        appended = [
            e.MemoryAppended(layer="episodic", content=sentence(n), metadata={"task": WORDS[n % 50]})
            for n in range(many)
        ]
        await _fill(engine.agent("a"), appended)
    del appended
    settle_memory()
    with one_core():  # of the threads that begin within: the engine is opened there
        return await _reopened(setting, path, many)


async def _reopened(setting: Setting, path: str, many: int) -> list[Figure]:
    async with memory_engine.open(path) as engine:
        begun = perf_counter_ns()
        memory = engine.agent("a").memory
        await memory.append("episodic", "warm")
        opened = (perf_counter_ns() - begun) / 1000
        new, fresh = await _appended(memory, engine.agent("fresh").memory, setting.size(3_000, 20))
        figures = [
            _below(setting, f"open an agent of {many:,} episodic entries and append", [opened], 10),
            _below(setting, f"memory.append at {many:,} episodic entries, the middle of five rounds", new, 1, p=0.99),
            _flat(setting, f"memory.append at {many:,} episodic entries", (new, fresh), "to a new agent"),
        ]
        return figures + await _searched(setting, engine, many)


async def _searched(setting: Setting, engine: Engine, many: int) -> list[Figure]:
    """Each mode with queries of one frequent word, of three, and of a rare number."""
    memory, found = engine.agent("a").memory, []
    queries = [*WORDS[:10], *(" ".join(WORDS[n : n + 3]) for n in range(10)), *(f"#{n * 991}" for n in range(10))]
    modes: tuple[SearchMode, ...] = ("keyword", "hybrid")
    for mode in modes:
        begun = perf_counter_ns()
        await memory.search("episodic", queries[0], mode=mode)
        first = (perf_counter_ns() - begun) / 1e6
        taken = await _found(memory, mode, queries, setting.size(90, 5))
        figure = _below(setting, f"memory.search of {many:,} entries, {mode}", taken, 20)
        figure.detail["first_search_ms"] = first
        found.append(figure)
    return found


async def _appended(many: Memory, few: Memory, rounds: int) -> tuple[list[float], list[float]]:
    """Microseconds of appends to each in turn; of five rounds the one whose p99 is in the middle."""
    taken: tuple[list[list[float]], list[list[float]]] = ([], [])
    for _ in range(5):
        for memory, found in zip((many, few), taken, strict=True):
            found.append(await _append(memory, rounds))
    middle = [sorted(found, key=lambda times: quantile(times, 0.99))[2] for found in taken]
    return middle[0], middle[1]


async def _append(memory: Memory, rounds: int) -> list[float]:
    return await _timed(lambda n: memory.append("episodic", sentence(n)), rounds)


async def _found(memory: Memory, mode: SearchMode, queries: Sequence[str], rounds: int) -> list[float]:
    return await _timed(lambda n: memory.search("episodic", queries[n % len(queries)], mode=mode), rounds)


async def _rebuild(setting: Setting) -> list[Figure]:
    """A log where every third event changes a view: with all views rebuilt, and without any."""
    count = setting.size(100_000, 500)
    async with memory_engine.open(str(setting.new_path("rebuild")), config=WITHOUT_COMPACTION) as engine:
        thread = await engine.create_thread()
        await _fill(thread, [_mixed(n) for n in range(count)])
        await thread.compaction.settle()
        parts, taken = kernel_of(engine), []
        for _ in range(setting.size(3, 1)):
            times = []
            for projections in (parts.projections, ()):
                settle_memory()
                begun = perf_counter_ns()
                await rebuild_thread(parts.store, kernel_of(engine).reader, thread.id, projections)
                times.append((perf_counter_ns() - begun) / 1e9)
            taken.append(times)
    whole, alone = (statistics.median(times[n] for times in taken) for n in (0, 1))
    return [
        Figure(
            bench="views",
            case=f"rebuild of {count:,} events with all views",
            value=count / whole,
            unit="events/s",
            reference=Reference("without views", count / alone),
            ratio_best=min(t[1] for t in taken) / min(t[0] for t in taken),
            bar=Bar("ratio", ">=", 1 / 3),
            asserted=not setting.quick,
        )
    ]


def _mixed(number: int) -> Event:
    """Two plain changes of the state to each change of a view: cycle, cached result, snippet, entry, exchange."""
    kind = number % 15
    if kind == 0:
        return e.CycleStarted(question=sentence(number))
    if kind == 4:
        return e.ToolResultCached(tool="query", parameters=f'{{"n":{number}}}', result=sentence(number, 30), duration=3)
    if kind == 7:
        return e.ScratchpadWritten(content=sentence(number))
    if kind == 10:
        return e.MemoryAppended(layer="episodic", content=sentence(number))
    if kind == 14:
        return e.ExchangeFinished(question=sentence(number), answer=sentence(number, 40))
    return e.EnvironmentChange(content=sentence(number, 20), key=str(number % 5))
