"""The benches run and say what they saw: `tasks.py quicktest`, a part of `check`.

They are no part of the suite, which measures nothing. No speed is asserted: a busy machine proves nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KEYS = {"bench", "case", "value", "unit", "reference", "ratio", "ratio_best", "bar", "ok", "note", "detail"}


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run the benches as a user does."""
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_quick_run_gives_one_json_object_a_line() -> None:
    """Every line of a quick run has the same keys, a measured value, and no verdict."""
    ended = run("threads64", "replay", "--quick", "--json")
    assert (0, "") == (ended.returncode, "" if ended.returncode == 0 else ended.stderr)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {"threads64", "replay"} == {line["bench"] for line in lines}
    for line in lines:
        assert set(line) == KEYS
        assert line["value"] > 0
        assert line["ok"] is None
        assert {"name", "value"} == set(line["reference"])


def test_progress_goes_to_the_standard_error() -> None:
    """What is not a figure is not on the standard output."""
    ended = run("threads64", "--quick", "--json")
    assert "threads64: begins" in ended.stderr
    assert "begins" not in ended.stdout


def test_a_quick_run_measures_search_without_a_verdict() -> None:
    """Every part has its lines: searches, memory, vectors, dispatches, documents."""
    pytest.importorskip("numpy", reason="vectors need NumPy (extra `vectors`)")
    ended = run("recall", "--quick", "--json")
    assert (0, "") == (ended.returncode, "" if ended.returncode == 0 else ended.stderr)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    cases = " ".join(line["case"] for line in lines)
    for part in ("by words: flat", "vectors", "20 threads", "new process", "resident", "indexed", "one passage"):
        assert part in cases
    for line in lines:
        assert line["value"] is not None or "skipped" in line["note"]
        assert line["ok"] is None


def test_a_quick_run_measures_a_server_where_one_can_be_had() -> None:
    """Every part has its lines; without a server there is none, and it is said why."""
    ended = run("postgres", "--quick", "--json")
    assert (0, "") == (ended.returncode, "" if ended.returncode == 0 else ended.stderr)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    cases = " ".join(line["case"] for line in lines)
    assert lines or "nothing is measured" in ended.stderr
    for part in ("dispatch, as", "64 threads", "4 processes", "1,000 events", "open, thread", "search"):
        assert part in cases or not lines
    for line in lines:
        assert line["value"] > 0
        assert line["ok"] is None


def test_quality_is_measured_or_said_to_be_skipped() -> None:
    """Where the recordings lie beside the repository something is found; elsewhere a line says why not."""
    ended = run("recall_quality", "--quick", "--json")
    (line,) = [json.loads(line) for line in ended.stdout.splitlines()]
    assert (0, None) == (ended.returncode, line["ok"])
    if line["value"] is None:
        assert "skipped" in line["note"]
    else:
        assert 50 < line["value"] <= 100
