"""Processes are killed amid every kind of work, again and again, and each file is looked at after each death."""

import asyncio
import random
import shutil
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from attrs import define, field

from tests.processes.test_crash import Row
from tests.processes.test_crash import die_again_and_again as die_amid_events
from tests.processes.test_view_crash import Told
from tests.processes.test_view_crash import die_again_and_again as die_amid_views
from tests.soak.upkeep import Upkeep, die_amid_upkeep

LIVES_MAX = 34
"""Deaths on one file; then the next begins."""
KINDS = (*["events"] * 4, "upkeep", *["events"] * 3, "views", "upkeep")
"""What the files in turn are for: dispatches and compactions, all that stands around them, views."""
TORN = frozenset({"sound_log", "assert_verified", "check_facts", "open"})


@define
class KillReport:
    """What became of all files. `lost`: something acknowledged is not there; `torn`: a log or a view is not whole."""

    seed: int
    kills: int = 0
    by_kind: dict[str, int] = field(factory=dict)
    acknowledged: int = 0
    unheard: int = 0
    lost: int = 0
    torn: int = 0
    failures: list[str] = field(factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every file held what was promised."""
        return not self.failures


Progress = Callable[[KillReport], None]


async def kill(count: int, seed: int, folder: Path, progress: Progress, kinds: tuple[str, ...] = KINDS) -> KillReport:
    """Kill that many times, two files at a time. A file that fails stays in the folder."""
    report, began = KillReport(seed), time.monotonic()
    rounds = iter([(n, min(LIVES_MAX, count - at)) for n, at in enumerate(range(0, count, LIVES_MAX))])

    async def work() -> None:
        for n, lives in rounds:
            await _one_file(report, kinds[n % len(kinds)], folder / str(n), f"{seed}/{n}", lives)
            report.seconds = time.monotonic() - began
            progress(report)

    await asyncio.gather(work(), work())
    return report


async def _one_file(report: KillReport, kind: str, place: Path, seed: str, lives: int) -> None:
    place.mkdir()
    path, told = str(place / "m.db"), Told()
    row, upkeep = Row(path), Upkeep(path)
    try:
        if kind == "events":
            whole = random.Random(seed).randrange(1 << 32)
            await die_amid_events(row, whole, fresh_every=lives, lives_count=lives)
        elif kind == "views":
            await die_amid_views(path, seed, told=told, lives=lives)
        else:
            await die_amid_upkeep(upkeep, seed, lives=lives)
    except Exception as error:  # one file's verdict: it is counted, and the others go on
        where = traceback.extract_tb(error.__traceback__)[-1]
        torn = not isinstance(error, AssertionError) or where.name in TORN
        report.torn += torn
        report.lost += not torn
        report.failures.append(f"{kind}, seed {seed}, {place}: {where.name}: {where.line} {error!r:.300}")
    else:
        shutil.rmtree(place)
    deaths = row.deaths + told.deaths + upkeep.deaths
    report.kills += deaths
    report.by_kind[kind] = report.by_kind.get(kind, 0) + deaths
    report.unheard += row.unheard
    report.acknowledged += row.acknowledged + upkeep.acknowledged + sum(len(told.of(one)) for one in told.about)
