"""Replay: verifying and rebuilding a log, against what dispatching it took."""

import statistics
from time import perf_counter_ns

import memory_engine
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.ours import WITHOUT_COMPACTION, dispatch_timed, events
from benchmarks.setting import Setting, say, settle_memory
from memory_engine import EngineConfig

BARS = {"verify": Bar("ratio", "<=", 0.25), "rebuild": Bar("ratio", "<=", 0.10)}


async def replay(setting: Setting) -> list[Figure]:
    """Dispatch one by one, then verify and rebuild the thread; with compaction and without."""
    found: list[Figure] = []
    cases = (("compaction on (default)", EngineConfig()), ("compaction off", WITHOUT_COMPACTION))
    for case, config in cases:
        rounds = [await _round(setting, config, seed) for seed in range(setting.size(5, 1))]
        dispatched = statistics.median(taken["dispatch"] for taken in rounds)
        for what, bar in BARS.items():
            found.append(
                Figure(
                    bench="replay",
                    case=f"{what}, {case}",
                    value=statistics.median(taken[what] for taken in rounds),
                    unit="ms",
                    reference=Reference("dispatching the log one by one", dispatched),
                    ratio_best=min(t[what] for t in rounds) / min(t["dispatch"] for t in rounds),
                    bar=bar,
                    asserted=not setting.quick,
                    detail={"events": setting.size(3_000, 200)},
                )
            )
    return found


async def _round(setting: Setting, config: EngineConfig, seed: int) -> dict[str, float]:
    """Milliseconds of each step."""
    count = setting.size(3_000, 200)
    say(f"  a log of {count:,} messages")
    async with memory_engine.open(str(setting.new_path("replay")), config=config) as engine:
        thread = await engine.create_thread()
        settle_memory()
        dispatched = sum(await dispatch_timed(thread, events(seed, count))) / 1e6
        await thread.compaction.settle()
        begun = perf_counter_ns()
        report = await thread.replay.verify()
        verified = (perf_counter_ns() - begun) / 1e6
        if not report.ok:
            raise AssertionError(f"the log does not verify: {report.divergence}")
        begun = perf_counter_ns()
        await thread.replay.rebuild()
        return {"dispatch": dispatched, "verify": verified, "rebuild": (perf_counter_ns() - begun) / 1e6}
