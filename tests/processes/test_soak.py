"""The trials of `python -m tests.soak`, in short; CI runs more of them."""

import os
import random
from pathlib import Path

import pytest

from tests.soak.kills import KINDS, KillReport, kill

IS_CI = "CI" in os.environ


@pytest.mark.timeout(1200)
async def test_deaths_amid_upkeep_lose_nothing(tmp_path: Path) -> None:
    """Killed amid erasing, deleting, importing, indexing and checkpoints, a file holds what was promised, and no more.

    In CI 300 deaths, amid events and views too.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    told: list[KillReport] = []
    count, kinds = (300, KINDS) if IS_CI else (6, ("upkeep",))
    report = await kill(count, seed, tmp_path, told.append, kinds)
    assert [] == report.failures
    assert (count, count) == (report.kills, told[-1].kills)
