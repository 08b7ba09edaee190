"""The cost of a key: the same work on an encrypted store and on a plain one, by turns."""

import statistics
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import memory_engine
from benchmarks.figures import Figure, Reference
from benchmarks.ours import WITHOUT_COMPACTION, events
from benchmarks.setting import Setting, say, settle_memory
from memory_engine import Engine, KeySource, Thread

KEYS: dict[str, KeySource | None] = {"plain": None, "key of 32 bytes": bytes(range(32)), "passphrase": "correct horse"}
PLAIN, BYTES, _ = KEYS
QUERY = "error in the table of orders"
Act = Callable[[Thread], Awaitable[object]]
ACTS: dict[str, Act] = {
    "search by words": lambda thread: thread.search(QUERY),
    "context": lambda thread: thread.context(max_tokens=8_000),
}


async def encryption(setting: Setting) -> list[Figure]:
    """Dispatch, search by words, contexts, opening and a new key: an encrypted store over a plain one."""
    if find_spec("sqlcipher3") is None:
        return [Figure(bench="encryption", case="all", value=None, unit="ms", note="sqlcipher3 is not installed")]
    paths = {name: setting.new_path(f"encryption-{at}") for at, name in enumerate(KEYS)}
    taken = await _worked(setting, {name: paths[name] for name in (PLAIN, BYTES)})
    found = [_against_plain(setting, case, BYTES, taken) for case in ("dispatch", *ACTS)]
    opened = await _opened(setting, paths)
    found += [_against_plain(setting, "open", name, opened) for name in KEYS if name != PLAIN]
    return [*found, await _rekeyed(setting, paths[BYTES])]


async def _worked(setting: Setting, paths: dict[str, Path]) -> dict[tuple[str, str], list[float]]:
    """Milliseconds of each act, by side. Each round is a new conversation, of the same messages for both."""
    taken: dict[tuple[str, str], list[float]] = {}
    async with AsyncExitStack() as stack:
        engines: dict[str, Engine] = {}
        for name, path in paths.items():
            opening = memory_engine.open(path, key=KEYS[name], config=WITHOUT_COMPACTION)
            engines[name] = await stack.enter_async_context(opening)
        for seed in range(setting.size(10, 2)):
            say(f"  round {seed + 1}")
            settle_memory()
            batch = events(seed, setting.size(300, 30))
            for name, engine in [*engines.items()][:: 1 if seed % 2 else -1]:
                thread = await engine.create_thread()
                for event in batch:
                    await _timed(taken, ("dispatch", name), lambda one: one.dispatch(event), thread)  # noqa: B023 - at once
                for case, act in ACTS.items():
                    for _ in range(setting.size(20, 2)):
                        await _timed(taken, (case, name), act, thread)
    return taken


async def _timed(taken: dict[tuple[str, str], list[float]], key: tuple[str, str], act: Act, thread: Thread) -> None:
    begun = perf_counter()
    await act(thread)
    taken.setdefault(key, []).append((perf_counter() - begun) * 1e3)


async def _opened(setting: Setting, paths: dict[str, Path]) -> dict[tuple[str, str], list[float]]:
    """Milliseconds from the call of `open` to the end of a first state, by side."""
    taken: dict[tuple[str, str], list[float]] = {}
    for name, path in paths.items():
        async with memory_engine.open(path, key=KEYS[name]) as engine:
            await engine.open_thread("first")
    for _ in range(setting.size(20, 2)):
        for name, path in paths.items():
            begun = perf_counter()
            async with memory_engine.open(path, key=KEYS[name]) as engine:
                await engine.thread("first").state()
                taken.setdefault(("open", name), []).append((perf_counter() - begun) * 1e3)
    return taken


async def _rekeyed(setting: Setting, path: Path) -> Figure:
    """Milliseconds of another key for the store that the other acts have filled."""
    async with memory_engine.open(path, key=KEYS[BYTES]) as engine:
        begun = perf_counter()
        report = await engine.admin.rekey(bytes(32))
        value = (perf_counter() - begun) * 1e3
    return Figure(
        bench="encryption",
        case=f"another key for {report.events:,} events",
        value=value,
        unit="ms",
        asserted=not setting.quick,
        detail={"mib": report.bytes / 2**20},
    )


def _against_plain(setting: Setting, case: str, side: str, taken: dict[tuple[str, str], list[float]]) -> Figure:
    ours, plain = taken[case, side], taken[case, PLAIN]
    return Figure(
        bench="encryption",
        case=f"{case}, {side}",
        value=statistics.median(ours),
        unit="ms",
        reference=Reference(PLAIN, statistics.median(plain)),
        ratio_best=min(ours) / min(plain),
        asserted=not setting.quick,
    )
