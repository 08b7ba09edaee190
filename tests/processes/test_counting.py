"""Two processes that read, change and write one value: no save is lost."""

import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, Popen

import memory_engine
from tests.depth import DEEP
from tests.places import on_both_back_ends, place_of
from tests.processes.counting_child import number

ROOT = Path(__file__).resolve().parents[2]
SAVES = 1_000 if DEEP else 60


def run_both(words: Sequence[str]) -> list[int]:
    """Run two processes at once; their exit codes."""
    children = [Popen(words, stdout=PIPE, cwd=ROOT, text=True) for _ in range(2)]
    return [(child.communicate(), child.returncode)[1] for child in children]


@on_both_back_ends
async def test_of_two_processes_that_count_no_save_is_lost(back_end: str, tmp_path: Path) -> None:
    """Each adds one to what it has read, where nobody has written meanwhile: at the end it is the sum."""
    place = place_of(back_end, tmp_path)
    async with memory_engine.open(place) as engine:
        await engine.create_thread("count")
    words = [sys.executable, "-m", "tests.processes.counting_child", place, str(SAVES)]
    assert [0, 0] == run_both(words)
    async with memory_engine.open(place) as engine:
        thread = engine.thread("count")
        assert 2 * SAVES == number(await thread.state())
        assert 2 * SAVES == (await thread.info()).events
        assert (await thread.replay.verify()).ok
