"""The benches run and say what they saw: `tasks.py quicktest`, a part of `check`.

They are no part of the suite, which measures nothing. No speed is asserted: a busy machine proves nothing.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
KEYS = {"bench", "case", "value", "unit", "reference", "ratio", "ratio_best", "bar", "ok", "note", "detail"}

QUALITY = (
    "briefs",
    "compaction_quality",
    "judgement",
    "recall_lists",
    "recall_now",
    "tokens",
    "usefulness",
)  # what they count is the same on any machine


@pytest.fixture(scope="module")
def ended() -> "subprocess.CompletedProcess[str]":
    """A quick run of every bench, as a user starts it."""
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def lines(ended: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    """Its lines, each a JSON object."""
    assert (0, "") == (ended.returncode, "" if ended.returncode == 0 else ended.stderr)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_quick_run_gives_one_json_object_a_line(lines: list[dict[str, Any]]) -> None:
    """Each has the same keys, a measured value or a reason for its lack, and no verdict on speed."""
    for line in lines:
        assert set(line) == KEYS
        assert line["ok"] is None or line["bench"] in QUALITY
        assert {"name", "value"} == set(line["reference"] or ("name", "value"))
        assert line["value"] is not None or line["note"]


def test_progress_goes_to_the_standard_error(ended: "subprocess.CompletedProcess[str]") -> None:
    """The figures of each bench that `--list` names. Other output is not on the standard output."""
    named = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for line in named.stdout.splitlines():
        assert f"{line.split()[0]}: begins" in ended.stderr
    assert "begins" not in ended.stdout


PARTS = {
    "briefs": ("short message", "longer message", "read by a tool"),
    "usefulness": ("names used next", "first request", "current request", "recording a message"),
    "recall": ("by words: flat", "vectors", "20 threads", "new process", "resident", "indexed", "one passage"),
    "postgres": ("dispatch, as", "64 threads", "4 processes", "1,000 events", "open, thread", "search"),
}


@pytest.mark.parametrize("bench", PARTS)
def test_every_part_has_its_lines(
    bench: str, lines: list[dict[str, Any]], ended: "subprocess.CompletedProcess[str]"
) -> None:
    """Without NumPy no vectors are measured, without a server nothing of it is; then it is said why."""
    cases = " ".join(line["case"] for line in lines if line["bench"] == bench)
    if bench == "postgres" and not cases:
        assert "nothing is measured" in ended.stderr
        return
    for part in PARTS[bench]:
        assert part in cases or (part == "vectors" and not importlib.util.find_spec("numpy"))


def test_quality_is_measured_or_said_to_be_skipped(lines: list[dict[str, Any]]) -> None:
    """With the recordings next to the repository something is found; elsewhere a line says why not."""
    (line,) = [line for line in lines if line["bench"] == "recall_quality"]
    assert line["value"] is None or 50 < line["value"] <= 100
