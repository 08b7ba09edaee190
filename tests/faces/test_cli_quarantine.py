"""The commands `quarantine` and `release`: a dry run, the act, the list, and its end."""

import asyncio
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import events as e
from tests.command_line import Run


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with a thread that heard a person and a note."""
    path = str(tmp_path / "log.db")
    monkeypatch.setenv("MEMORY_ENGINE_DB", path)

    async def write() -> None:
        async with memory_engine.open(path) as engine:
            thread = await engine.create_thread("t")
            await thread.dispatch_all(
                [
                    e.UserMessage(content="Hello"),
                    e.ExternalInject(content="It rains.", source="weather"),
                ]
            )

    asyncio.run(write())
    return path


@pytest.mark.usefixtures("db")
def test_a_dry_run_then_the_act_then_its_end(run: Run) -> None:
    """Each says what is hidden and shown; a list names who, since when and why."""
    code, out, err = run("quarantine", "t", "tool:weather", "--dry-run")
    assert (0, "") == (code, err)
    assert "tool:weather in t: 1 event hidden, 1 chunk removed, 0 restored; nothing was written here" in out
    code, out, err = run("quarantine", "t", "tool:weather", "--by", "ada", "--reason", "wrong")
    assert (0, "") == (code, err)
    assert "hidden: event 2 of t (external_inject)" in out
    assert "memory-engine release t tool:weather" in out
    code, out, err = run("quarantine", "t")
    assert out.startswith("tool:weather: 1 event hidden since ")
    assert out.rstrip().endswith("by ada (event 3): wrong")
    code, out, err = run("quarantine", "t", "tool:weather")
    assert (2, "") == (code, out)
    assert "already" in err
    code, out, err = run("release", "t", "tool:weather", "--json")
    assert [2] == [one["seq"] for one in json.loads(out)["shown"]]
    code, out, err = run("quarantine", "t")
    assert "no quarantine is in force in thread t" in out


@pytest.mark.usefixtures("db")
def test_a_source_that_is_none_is_named(run: Run) -> None:
    """With the forms that there are."""
    code, out, err = run("quarantine", "t", "weather")
    assert "" == out
    assert code
    assert "tool:NAME, document:ID" in err


@pytest.mark.usefixtures("db")
def test_a_source_that_nothing_comes_from_is_said(run: Run) -> None:
    """It may come later, or its name may be misspelled; another form is refused with the forms that there are."""
    for words in (("--dry-run",), ()):
        code, out, _ = run("quarantine", "t", "tool:whether", *words)
        assert 0 == code
        assert "nothing rests on it so far: is it spelled so?" in out
    code, _, err = run("quarantine", "t", "tol:weather")
    assert 2 == code
    assert "name a source as tool:NAME" in err
