"""The cost of compaction for senders: dispatching with the default against none, and the compactor's own time."""

import asyncio
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter, perf_counter_ns

from attrs import evolve, field, frozen

import memory_engine
from benchmarks.figures import Bar, Figure, Reference, quantile
from benchmarks.ours import WITHOUT_COMPACTION, as_event, dispatch_timed, events
from benchmarks.payloads import Message, conversation, recorded
from benchmarks.setting import Setting, say, settle_memory
from memory_engine import Engine, EngineConfig, Event, Thread
from memory_engine.compactors.extractive import Entry, EntryKind, extract
from memory_engine.language.text import COMPOUND_WORD

CONVERSATIONS = 60
MESSAGES = 28
"""Of a conversation where no recorded ones are there: about as many as these have."""
OFF, ON = "compaction off", "compaction on (default)"
CONFIGS = {OFF: WITHOUT_COMPACTION, ON: EngineConfig()}
MANY = 10_000
BATCH = 256
KINDS: dict[str, EntryKind] = {"user": "user", "assistant": "assistant", "call": "tool_call", "result": "tool_result"}
SUMMARY_TOKENS = 400
WORDS = "its texts split into words"


@frozen
class Taken:
    """The times of one side, over all rounds: microseconds of each dispatch, and events a second of each round."""

    times_us: list[float] = field(factory=list)
    rates: list[float] = field(factory=list)

    def add(self, times_ns: Sequence[int], took_s: float) -> None:
        """One more round."""
        self.times_us.extend(time / 1_000 for time in times_ns)
        self.rates.append(len(times_ns) / took_s)


async def compacting(setting: Setting) -> list[Figure]:
    """Dispatching while the default compacts, one sender and many; compactions of 20 and of 10,000 chunks."""
    batches = _conversations(setting.size(CONVERSATIONS, 4))
    found: list[Figure] = []
    extract([_entry(0, message) for message in conversation(0, MESSAGES)], SUMMARY_TOKENS)  # its lists are loaded once
    for at_once in (False, True):
        taken = {name: Taken() for name in CONFIGS}
        for number in range(setting.size(4, 1)):
            say(f"  {'all at once' if at_once else 'one after the other'}, round {number + 1}")
            for name, config in CONFIGS.items():
                settle_memory()
                async with memory_engine.open(str(setting.new_path("compacting")), config=config) as engine:
                    taken[name].add(*await (_all_at_once if at_once else _one_by_one)(engine, batches))
        found += _at_once(setting, taken) if at_once else _sequential(setting, taken)
    found.append(await _without_rest(setting))
    for chunks in (20, setting.size(MANY, 100)):
        found.append(_extracting(setting, chunks))
    return [*found, *await _beside(setting)]


def _conversations(count: int) -> list[list[Event]]:
    """Recorded conversations if they are next to the repository, else made-up ones of about their length."""
    talks = recorded(count) or [conversation(seed, MESSAGES) for seed in range(count)]
    return [[as_event(message) for message in talk] for talk in talks]


async def _one_by_one(engine: Engine, batches: Sequence[Sequence[Event]]) -> tuple[list[int], float]:
    """Nanoseconds of each dispatch, and seconds until all is compacted too."""
    threads = [await engine.create_thread() for _ in batches]
    times: list[int] = []
    begun = perf_counter()
    for thread, batch in zip(threads, batches, strict=True):
        times += await dispatch_timed(thread, batch)
    return times, await _settled(threads) - begun


async def _all_at_once(engine: Engine, batches: Sequence[Sequence[Event]]) -> tuple[list[int], float]:
    """Nanoseconds of each dispatch, and seconds until all is compacted too."""
    threads = [await engine.create_thread() for _ in batches]
    begun = perf_counter()
    found = await asyncio.gather(*(dispatch_timed(t, batch) for t, batch in zip(threads, batches, strict=True)))
    return [time for times in found for time in times], await _settled(threads) - begun


async def _settled(threads: Sequence[Thread]) -> float:
    for thread in threads:
        await thread.compaction.settle()
    return perf_counter()


def _sequential(setting: Setting, taken: dict[str, Taken]) -> list[Figure]:
    """The wait of a sender; and all work of the default, also the part that it puts off to a quiet moment."""
    on, off = taken[ON].times_us, taken[OFF].times_us
    case = f"{len(off):,} dispatches, one sender"
    mean = statistics.fmean(on), statistics.fmean(off)
    whole = tuple(1e6 / statistics.median(side.rates) for side in (taken[ON], taken[OFF]))
    return [
        _figure(setting, f"{case}, mean", mean, "us, mean", Bar("ratio", "<=", 1.5)),
        _figure(setting, f"{case}, until all is compacted, a dispatch", whole, "us", None),
        _figure(setting, f"{case}, p99", (quantile(on, 0.99), quantile(off, 0.99)), "us, p99", None),
    ]


def _at_once(setting: Setting, taken: dict[str, Taken]) -> list[Figure]:
    on, off = taken[ON], taken[OFF]
    rates = statistics.median(on.rates), statistics.median(off.rates)
    waits = quantile(on.times_us, 0.99), quantile(off.times_us, 0.99)
    return [
        _figure(setting, f"{CONVERSATIONS} senders at once", rates, "events/s", Bar("ratio", ">=", 0.6)),
        _figure(setting, f"{CONVERSATIONS} senders at once, p99", waits, "us, p99", Bar("value", "<=", 40_000)),
    ]


async def _without_rest(setting: Setting) -> Figure:
    """One thread that is written to without a pause: who writes waits for compactions, and the state stays small."""
    count = setting.size(MANY, 300)
    took, chunks = dict.fromkeys(CONFIGS, 0.0), dict.fromkeys(CONFIGS, 0)
    for name, config in CONFIGS.items():
        settle_memory()
        async with memory_engine.open(str(setting.new_path("compacting")), config=config) as engine:
            thread = await engine.create_thread()
            begun = perf_counter()
            for at in range(0, count, BATCH):
                await dispatch_timed(thread, events(at, min(BATCH, count - at)))
                chunks[name] = max(chunks[name], (await thread.info()).chunks)
            took[name] = (await _settled([thread]) - begun) * 1e6 / count
    case = f"{count:,} dispatches to one thread without a pause, until all is compacted, a dispatch"
    figure = _figure(setting, case, (took[ON], took[OFF]), "us", None)
    return evolve(figure, detail={"chunks_max": chunks[ON], "chunks_max_off": chunks[OFF]})


def _figure(setting: Setting, case: str, sides: tuple[float, ...], unit: str, bar: Bar | None) -> Figure:
    return Figure(
        bench="compacting",
        case=case,
        value=sides[0],
        unit=unit,
        reference=Reference(OFF, sides[1]),
        bar=bar,
        asserted=not setting.quick,
    )


def _extracting(setting: Setting, chunks: int) -> Figure:
    """The extract of a number of messages, whose texts it has not seen before, then once more."""
    talks = [
        [_entry(number, message) for number, message in enumerate(conversation(chunks + seed, chunks))]
        for seed in range(setting.size(20, 1) if chunks < MANY else 1)
    ]
    first = min(_took(partial(extract, talk, SUMMARY_TOKENS)) for talk in talks)
    again = _took(partial(extract, talks[-1], SUMMARY_TOKENS))
    words = min(_took(partial(_split, talk)) for talk in talks)
    return Figure(
        bench="compacting",
        case=f"the extract of {chunks:,} chunks",
        value=first * 1_000,
        unit="ms",
        reference=Reference(WORDS, words * 1_000),
        asserted=not setting.quick,
        detail={
            "texts_known_ms": again * 1_000,
            "chars": sum(len(entry.text + entry.arguments) for entry in talks[-1]),
        },
    )


def _entry(number: int, message: Message) -> Entry:
    return Entry(
        id=f"{number}.0",
        kind=KINDS[message.role],
        text=message.text,
        name=message.name,
        call_id=message.call_id,
        arguments=message.arguments,
    )


def _split(entries: Sequence[Entry]) -> list[list[str]]:
    return [COMPOUND_WORD.findall(entry.text + entry.arguments) for entry in entries]


def _took(work: Callable[[], object]) -> float:
    begun = perf_counter()
    work()
    return perf_counter() - begun


async def _beside(setting: Setting) -> list[Figure]:
    """Dispatching to one thread while 10,000 chunks of another are compacted."""
    count = setting.size(MANY, 200)
    async with memory_engine.open(str(setting.new_path("beside")), config=WITHOUT_COMPACTION) as engine:
        long, other = await engine.create_thread(), await engine.create_thread()
        batch = events(1, count)
        for at in range(0, count, BATCH):
            await long.dispatch_all(batch[at : at + BATCH])
        coming = iter(events(2, 50_000))
        alone: list[int] = []
        while len(alone) < setting.size(1_000, 20):
            await _one_more(other, next(coming), alone)
        settle_memory()
        begun = perf_counter()
        job = asyncio.ensure_future(long.compact())
        beside: list[int] = []
        while not job.done():
            await _one_more(other, next(coming), beside)
        await job
        took = perf_counter() - begun
    return [
        Figure(
            bench="compacting",
            case=f"a dispatch beside a compaction of {count:,} chunks",
            value=quantile(beside, 0.99) / 1_000,
            unit="us, p99",
            reference=Reference("with none under way", quantile(alone, 0.99) / 1_000),
            bar=Bar("value", "<=", 20_000),
            asserted=not setting.quick,
            detail={"longest_us": max(beside) / 1_000, "seconds": took, "messages": len(beside)},
        )
    ]


async def _one_more(thread: Thread, event: Event, times: list[int]) -> None:
    begun = perf_counter_ns()
    await thread.dispatch(event)
    times.append(perf_counter_ns() - begun)
    await asyncio.sleep(0.002)
