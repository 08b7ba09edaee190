"""The task that tests adapters with the newest releases of their frameworks, and the job that runs it."""

import re
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "newest.yml"
PINS = "alpha=={version} \\\n    --hash=sha256:aa\nbeta==1.0 \\\n    --hash=sha256:bb\n"


@pytest.fixture
def tasks(tmp_path: Path) -> dict[str, Any]:
    """`tasks.py`, in a checkout with three frameworks of which the newest release is 2.0; no index is asked."""
    module = runpy.run_path(str(ROOT / "tasks.py"))
    names: dict[str, Any] = module["newest"].__globals__
    folder = tmp_path / "tests" / "integrations"
    folder.mkdir(parents=True)
    for name, version in (("breaks", "1.0"), ("fits", "1.0"), ("same", "2.0"), ("unresolved", "1.0")):
        (folder / f"{name}.in").write_text("alpha\n")
        (folder / f"{name}.lock").write_text(PINS.format(version=version))

    @contextmanager
    def no_uv(*_packages: str) -> Iterator[Path]:
        yield tmp_path

    def lock_peer(_uv: Path, peer: Path, *words: str) -> None:
        assert ("--upgrade",) == words
        peer.with_suffix(".lock").write_text("half of it" if peer.stem == "unresolved" else PINS.format(version="2.0"))
        if peer.stem == "unresolved":
            raise names["TaskError"]("no version fits")

    tried: list[str] = []

    def passes(peer: str) -> bool:
        tried.append(peer)
        return peer == "fits"

    names.update(ROOT=tmp_path, fetched=no_uv, lock_peer=lock_peer, passes=passes, tried=tried, folder=folder)
    return names


def version(tasks: dict[str, Any], name: str) -> str:
    """What a lock pins."""
    found = re.search(r"alpha==(\S+)", (tasks["folder"] / f"{name}.lock").read_text())
    return found[1] if found else ""


def test_the_lock_of_what_fails_stays(tasks: dict[str, Any]) -> None:
    """Every other is as it was, and what has nothing newer is not tried."""
    with pytest.raises(tasks["TaskError"], match="need work: breaks, unresolved"):
        tasks["newest"]()
    assert ["breaks", "fits"] == tasks["tried"]
    assert ["2.0", "1.0", "2.0", "1.0"] == [version(tasks, n) for n in ("breaks", "fits", "same", "unresolved")]


def test_named_frameworks_are_tried_alone(tasks: dict[str, Any]) -> None:
    """Nothing is written where they pass."""
    tasks["newest"]("fits", "same")
    assert ["fits"] == tasks["tried"]
    assert "1.0" == version(tasks, "breaks") == version(tasks, "fits")


def test_the_job_runs_the_task_and_opens_what_it_left() -> None:
    """A weekly job, not one that a commit waits for; it may write a branch and a pull request, and nothing else."""
    text = WORKFLOW.read_text(encoding="utf-8")
    assert "python3 tasks.py newest" in text
    assert "newest" in runpy.run_path(str(ROOT / "tasks.py"))["FUNCTIONS"]
    assert "schedule:" in text
    assert not re.search(r"(?m)^  (push|pull_request):", text)
    assert ["contents: write", "pull-requests: write"] == re.findall(r"(?m)^  ([\w-]+: write)$", text)
    assert "git commit" in text
    assert "gh pr create" in text
