"""The trials of `python -m tests.soak`, in short; a deep run has more of them."""

import random
from pathlib import Path

from attrs import evolve

from tests.depth import DEEP
from tests.soak.kills import KillReport, kill
from tests.soak.load import Held, grown, strain


async def test_deaths_amid_upkeep_lose_nothing(tmp_path: Path) -> None:
    """Killed amid erasing, deleting, importing, indexing and checkpoints, a file holds what was promised, and no more.

    Deaths amid events and amid views have tests of their own, by the same code.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    told: list[KillReport] = []
    count = 34 if DEEP else 6
    report = await kill(count, seed, tmp_path, told.append, ("upkeep",))
    assert [] == report.failures
    assert {"upkeep": count} == report.by_kind
    assert (count, count) == (report.kills, told[-1].kills)


async def test_what_fifty_threads_hold_does_not_grow(tmp_path: Path) -> None:
    """Descriptors, tasks, workers and memory after the second half of the work are those after the first."""
    report = await strain(0.0, 50, tmp_path, lambda _: None)
    assert [] == report.failures
    assert (50, 6) == (report.threads, report.rounds)
    assert report.events >= 50 * 6 * 3


def test_growth_is_found() -> None:
    """Of a single descriptor, task or worker thread, and of memory by half."""
    first = Held(rounds=2, descriptors=9, tasks=4, os_threads=5, memory=1 << 30)
    assert [] == grown(first, first)
    assert ["descriptors: 9, then 10"] == grown(first, evolve(first, descriptors=10))
    assert ["tasks: 4, then 5"] == grown(first, evolve(first, tasks=5))
    assert ["memory: 1,073,741,824 bytes, then 2,147,483,648"] == grown(first, evolve(first, memory=1 << 31))
