"""The demo, as a stranger sees it first."""

import json
from pathlib import Path

import pytest

from tests.command_line import Run


def test_the_demo_tells_its_story(run: Run, tmp_path: Path) -> None:
    """Three agents, their compactions, contexts and proofs; then what to try next."""
    path = str(tmp_path / "demo.db")
    code, out, err = run("demo", "--db", path)
    assert (0, "") == (code, err)
    for word in ("1/3 support", "2/3 coding", "3/3 datenanalyse", "compacted 2 times", "### ", "← event"):
        assert word in out
    assert 3 == out.count("every hash, operation and state is as recorded")
    assert f"export MEMORY_ENGINE_DB={path}" in out
    assert out.endswith(f"memory-engine inspect --open --db {path}\n")
    assert "dispatched again: all were here" in run("demo", "--db", path)[1]


def test_the_demo_makes_a_database_of_its_own(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --db it writes to a new file, whatever the environment says."""
    monkeypatch.setenv("MEMORY_ENGINE_DB", str(tmp_path / "mine.db"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = json.loads(run("demo", "--json")[1])
    assert Path(found["db"]).is_file()
    assert [True] * 3 == [conversation["verified"] for conversation in found["conversations"]]
    assert not (tmp_path / "mine.db").exists()


def test_a_demo_refuses_a_database_with_other_threads_of_its_names(run: Run, tmp_path: Path) -> None:
    """What is in the way is named, and nothing is overwritten."""
    path = str(tmp_path / "x.db")
    other = tmp_path / "support.jsonl"
    other.write_text('{"role": "user", "content": "Hi"}\n', encoding="utf-8")
    run("ingest", str(other), "--db", path)
    code, _, err = run("demo", "--db", path)
    assert 2 == code
    assert "with other content" in err
    assert "give the demo a new database" in err
