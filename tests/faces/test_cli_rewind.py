"""The command `rewind`: a dry run, the rewind, and its undoing."""

import asyncio
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import events as e
from memory_engine.events import Destination
from tests.command_line import Run


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with a thread that said three things, of which an agent has learned one."""
    path = str(tmp_path / "log.db")
    monkeypatch.setenv("MEMORY_ENGINE_DB", path)

    async def write() -> None:
        async with memory_engine.open(path) as engine:
            thread = await engine.create_thread("t")
            await thread.dispatch_all([e.UserMessage(content=text) for text in ("Hello", "Wrong", "Turn")])
            fact = e.MemoryShared(destination=Destination("agent", "b"), layer="episodic", content="learned")
            await thread.dispatch(fact)
            await thread.delivered()

    asyncio.run(write())
    return path


@pytest.mark.usefixtures("db")
def test_a_dry_run_then_the_rewind_then_its_undoing(run: Run) -> None:
    """Each says what goes and comes, in the thread and elsewhere; only the last two write."""
    code, out, err = run("rewind", "t", "--to", "1", "--dry-run")
    head, *lines = out.splitlines()
    assert (0, "") == (code, err)
    assert head.startswith("t at event 1: 3 events taken back, 2 chunks removed, 0 restored; nothing was written")
    assert ["- 2.0 user_message: Wrong", "- 3.0 user_message: Turn", "learned from it:"] == lines[:3]
    assert lines[3].startswith("  hidden: event 1 of agent:b (memory_appended) ")
    code, out, err = run("rewind", "t", "--to", "1", "--reason", "a wrong turn", "--json")
    found = json.loads(out)
    assert (0, "", 6, 5, [[2, 5]]) == (code, err, found["seq"], found["upto"], found["hidden"])
    assert "Wrong" not in run("show", "t")[1]
    code, out, err = run("rewind", "t", "--redo")
    assert (0, "") == (code, err)
    assert "to undo it: memory-engine rewind t --to 7" == out.splitlines()[-1]
    assert "Wrong" in run("show", "t")[1]
    assert 0 == run("verify")[0]


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("words", [(), ("--to", "1", "--redo")])
def test_it_is_told_where_to_go(run: Run, words: tuple[str, ...]) -> None:
    """By a moment or by `--redo`, and by one of them only."""
    code, out, err = run("rewind", "t", *words)
    assert (2, "") == (code, out)
    assert "either --to MOMENT or --redo" in err


@pytest.mark.usefixtures("db")
def test_a_rewind_that_changes_nothing_is_refused(run: Run) -> None:
    """With the reason."""
    code, out, err = run("rewind", "t", "--redo")
    assert (2, "") == (code, out)
    assert "no rewind is in force" in err
