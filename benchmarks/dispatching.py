"""One dispatch after the other: against bare aiosqlite, against the peers, with a full sync, during a model call."""

import asyncio
from collections.abc import Sequence
from itertools import islice

from attrs import frozen

import memory_engine
from benchmarks.bare import append_timed, bare_aiosqlite
from benchmarks.figures import Bar, Figure, Reference, Rounds, quantile
from benchmarks.ours import WITHOUT_COMPACTION, dispatch_timed, events, payload
from benchmarks.setting import Setting, one_core, say, settle_memory
from memory_engine import (
    Chunk,
    CompactionContext,
    CompactionPolicy,
    CompactionResult,
    Engine,
    EngineConfig,
    SummaryLine,
    Thread,
)

EQUALLY_DURABLE = 0.77
"""At least 1.3 times as fast as each peer that promises as much."""
BARE = "bare aiosqlite: BEGIN, INSERT, COMMIT, NORMAL"
OURS, OURS_OFF = "compaction on (default)", "compaction off"
BLOCK = 50


@frozen
class Side:
    """One contender and what it took."""

    name: str
    rounds: Rounds


async def dispatch(setting: Setting) -> list[Figure]:
    """Each round is one new conversation of the same messages for all; every side has its turn in each.

    The peers' SQLite syncs as ours does by default (`synchronous` NORMAL), not as they ship it: see `durability`.
    Bars are held against the run on one core, which repeats itself; the other is as the
    scheduler likes, where the sides may by chance meet different latencies.
    """
    found: list[Figure] = []
    for pinned in (True, False):
        with one_core(pinned):
            taken = await _measure(setting)
        found += _report(setting, taken, pinned)
    return found


async def _measure(setting: Setting) -> dict[str, Rounds]:
    taken: dict[str, Rounds] = {name: Rounds() for name in (OURS, OURS_OFF, BARE, *setting.peers.names)}
    count = setting.size(200, 60)
    rounds = setting.size(10, 2)
    paths = [setting.new_path("dispatch-on"), setting.new_path("dispatch-off")]
    async with (
        memory_engine.open(str(paths[0])) as on,
        memory_engine.open(str(paths[1]), config=WITHOUT_COMPACTION) as off,
        bare_aiosqlite(setting.new_path("bare")) as bare,
    ):
        for seed in range(rounds):
            say(f"  round {seed + 1} of {rounds}")
            settle_memory()
            batch = events(seed, count)
            threads = [(OURS, await on.create_thread()), (OURS_OFF, await off.create_thread())]
            for at in range(0, count, BLOCK):
                block = batch[at : at + BLOCK]
                for name, thread in _turned(threads, seed):
                    taken[name].add(await dispatch_timed(thread, block))
                    await thread.compaction.settle()
                taken[BARE].add(await append_timed(bare, [payload(event) for event in block]))
            _let_peers_append(setting, taken, seed, count, synchronous="NORMAL")
    return taken


def _turned(threads: list[tuple[str, Thread]], by: int) -> list[tuple[str, Thread]]:
    """Another one first each round: none has always the colder cache."""
    return threads if by % 2 else threads[::-1]


def _let_peers_append(setting: Setting, taken: dict[str, Rounds], seed: int, count: int, synchronous: str = "") -> None:
    for name in setting.peers.names:
        appended = setting.peers.append(name, seed, count, synchronous)
        if appended is not None:
            taken[name].add(appended.times)


def _report(setting: Setting, taken: dict[str, Rounds], pinned: bool) -> list[Figure]:
    """Against bare aiosqlite, then against the peers, the fastest first."""
    where = "one core" if pinned else "any core"
    ours, off, bare = (Side(f"{name}, {where}", taken[name]) for name in (OURS, OURS_OFF, BARE))
    bare = Side(BARE, bare.rounds)
    bar = Bar("ratio", "<=", 1.2) if pinned else None
    found = [_compared(setting, ours, bare, bar), _compared(setting, off, bare, bar)]
    peers = [Side(name, taken[name]) for name in setting.peers.names if taken[name].taken]
    peers.sort(key=lambda side: side.rounds.p50_us)
    bar = Bar("ratio", "<=", EQUALLY_DURABLE) if pinned else None
    if not peers:
        return [*found, _against_none(setting, ours)] if pinned else found
    return [*found, *(_compared(setting, ours, peer, bar) for peer in peers)]


def _compared(setting: Setting, ours: Side, theirs: Side, bar: Bar | None) -> Figure:
    return Figure(
        bench="dispatch",
        case=f"{ours.name}, against {theirs.name.partition(':')[0]}",
        value=ours.rounds.p50_us,
        unit="us, p50",
        reference=Reference(theirs.name, theirs.rounds.p50_us),
        ratio_best=ours.rounds.best_us / theirs.rounds.best_us,
        bar=bar,
        asserted=not setting.quick,
        detail={
            "p99_us": ours.rounds.p99_us,
            "mean_us": ours.rounds.mean_us,
            "best_round_us": ours.rounds.best_us,
            "reference_p99_us": theirs.rounds.p99_us,
            "reference_best_round_us": theirs.rounds.best_us,
            "messages": sum(map(len, ours.rounds.taken)),
        },
    )


def _against_none(setting: Setting, ours: Side) -> Figure:
    return Figure(
        bench="dispatch",
        case=f"{ours.name}, against the fastest peer",
        value=ours.rounds.p50_us,
        unit="us, p50",
        reference=setting.peers.missing_reference("the fastest peer"),
        bar=Bar("ratio", "<=", EQUALLY_DURABLE),
        asserted=not setting.quick,
    )


async def durability(setting: Setting) -> list[Figure]:
    """The cost of surviving a power failure, against our own default and the peers' defaults: most sync too."""
    taken: dict[str, Rounds] = {name: Rounds() for name in ("full", "normal", *setting.peers.names)}
    count = setting.size(200, 40)
    full_path, normal_path = setting.new_path("full"), setting.new_path("normal")
    with one_core():
        async with (
            memory_engine.open(str(full_path), durability="full", config=WITHOUT_COMPACTION) as full,
            memory_engine.open(str(normal_path), config=WITHOUT_COMPACTION) as normal,
        ):
            sides: dict[str, Engine] = {"full": full, "normal": normal}
            for seed in range(setting.size(6, 1)):
                settle_memory()
                for name, engine in sides.items():
                    thread = await engine.create_thread()
                    taken[name].add(await dispatch_timed(thread, events(seed, count)))
                _let_peers_append(setting, taken, seed, count)
    return _durability_report(setting, taken)


def _durability_report(setting: Setting, taken: dict[str, Rounds]) -> list[Figure]:
    full = taken.pop("full")
    return [
        Figure(
            bench="durability",
            case=f"full, compaction off, one core, against {'our own normal' if name == 'normal' else name}",
            value=full.p50_us,
            unit="us, p50",
            reference=Reference(name, theirs.p50_us),
            ratio_best=full.best_us / theirs.best_us,
            bar=Bar("ratio", "<=", EQUALLY_DURABLE) if name != "normal" else None,
            asserted=not setting.quick,
            detail={"p99_us": full.p99_us, "reference_p99_us": theirs.p99_us},
        )
        for name, theirs in taken.items()
        if theirs.taken
    ]


class _Thinking:
    """A model that thinks for a number of seconds, as far as the event loop sees."""

    name = "thinking"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.begun = asyncio.Event()
        self.answered = False

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Anything."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """One line, after a while."""
        self.begun.set()
        await asyncio.sleep(self._seconds)
        self.answered = True
        return CompactionResult(lines=(SummaryLine("current_state", f"{len(chunks)} messages", (chunks[0].id,)),))


async def meanwhile(setting: Setting) -> list[Figure]:
    """Dispatching to a thread while a model works on its compaction for ten seconds, and events go on."""
    seconds = setting.size(10, 1)
    model = _Thinking(seconds)
    config = EngineConfig(compaction=CompactionPolicy(blocking="commit"))
    async with memory_engine.open(str(setting.new_path("meanwhile")), config=config, compactor=model) as engine:
        thread = await engine.create_thread()
        batch = events(1, 20_000)
        coming = iter(batch)
        while not model.begun.is_set():
            await thread.dispatch_all(list(islice(coming, 50)))
            await asyncio.sleep(0.05)  # a thread that is flooded meets its hard limit before the model is asked
        idle = await engine.create_thread(policy=WITHOUT_COMPACTION.compaction)
        taken: tuple[list[int], list[int]] = [], []
        for event in coming:
            for side, to in zip(taken, (thread, idle), strict=True):
                side.extend(await dispatch_timed(to, [event]))
            if model.answered:  # looked at last: on a busy machine, a second may go by before the first event
                break
            await asyncio.sleep(seconds / 5_000)
        await thread.compaction.settle()
    times, others = taken
    return [
        Figure(
            bench="meanwhile",
            case=f"dispatch during a model call of {seconds} s, blocking='commit'",
            value=quantile(times, 0.99) / 1_000,
            unit="us, p99",
            reference=Reference("a thread without a compaction", quantile(others, 0.99) / 1_000),
            bar=Bar("value", "<=", 2_000),
            asserted=not setting.quick,
            detail={"p50_us": quantile(times, 0.5) / 1_000, "longest_us": max(times) / 1_000, "messages": len(times)},
        )
    ]
