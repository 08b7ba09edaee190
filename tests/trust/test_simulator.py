"""Engines in a simulated loop, time and disk: some seconds of `python -m tests.simulator`, see docs/guarantees."""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.depth import DEEP
from tests.soak.__main__ import main as soak

ROOT = Path(__file__).parents[2]
SECONDS = 50 if DEEP else 5
FIXED = (26, 48, 90, 94, 114, 155)
"""Seeds that have found something."""

SHRINKS = """
import json
from tests.simulator import model
from tests.simulator.program import drawn
from tests.simulator.runner import kind_of, shrunk, simulate

model.CHUNKS = ()
program = drawn(3)
[finding, *_] = simulate(program).findings
shorter = shrunk(program, kind_of(finding), lambda _: None)
print(json.dumps([len(program.steps), len(shorter.steps), finding, simulate(shorter).findings[0]]))
"""


def simulated(*words: str) -> dict[str, object]:
    """What the command says, in a process of its own: it decides how texts are hashed, and time is its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulator", *words, "--json"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    return said


def test_new_seeds_find_nothing() -> None:
    """Those of the day, for as long as there is time."""
    first = datetime.datetime.now(datetime.UTC).toordinal() * 1_000_000
    report = simulated("--seed", str(first), "--seconds", str(SECONDS))
    assert [] == report["failures"]
    assert isinstance(report["seeds"], int)
    assert report["seeds"] > 0


@pytest.mark.parametrize("seed", FIXED if DEEP else FIXED[:2])
def test_seeds_that_found_something_find_it_no_more(seed: int) -> None:
    """What each has found has a test of its own; its program may find what comes next."""
    assert [] == simulated("--seed", str(seed))["findings"]


def test_a_seed_is_the_same_twice() -> None:
    """In two processes: the same callbacks, jobs and outcomes at the same times."""
    first, second = (simulated("--seed", "11") for _ in range(2))
    assert first == second
    assert first["digest"] != simulated("--seed", "12")["digest"]


def test_a_finding_is_shrunk() -> None:
    """With a model that knows of no message in any state: few steps are left, and they show the same."""
    done = subprocess.run(
        [sys.executable, "-c", SHRINKS],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    before, after, finding, again = json.loads(done.stdout)
    assert "the state of" in finding
    assert "the state of" in again
    assert 0 < after < before / 4


@pytest.mark.parametrize("words", [("--kills", "2"), ("--flips", "4"), ("--mutations", "5")])
def test_each_long_trial_starts_by_one_command(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """And does what it was asked to, in small."""
    assert 0 == soak([*words, "--seed", "1", "--json"])
    [report] = json.loads(capsys.readouterr().out).values()
    assert (int(words[1]), []) == (report[words[0].strip("-")], report["failures"])
