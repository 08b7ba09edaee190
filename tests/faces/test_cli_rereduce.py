"""The command `rereduce`: a dry run, the mending, and its undoing."""

import asyncio
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Chunk, Plugin, Reduction, StateView, Thread
from memory_engine import events as e
from memory_engine.core.reduction import ReduceContext, appended
from tests.command_line import Run


def upper(_view: StateView, event: e.UserMessage, ctx: ReduceContext) -> Reduction:
    """What an earlier release made of messages."""
    return appended(Chunk(id=ctx.new_id(), type="user_message", content=str(event.content).upper()))


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with a thread of two messages that a wrong reducer took."""
    path = str(tmp_path / "log.db")
    monkeypatch.setenv("MEMORY_ENGINE_DB", path)
    shouting = Plugin("shouting")
    shouting.replaces_reducer("reduce_user_message")(upper)

    async def write() -> None:
        async with memory_engine.open(path, plugins=[shouting]) as engine:
            thread: Thread = await engine.create_thread("t")
            await thread.dispatch_all([e.UserMessage(content="Hello"), e.UserMessage(content="BYE")])

    asyncio.run(write())
    return path


def test_a_dry_run_then_the_mending_then_its_undoing(run: Run, db: str) -> None:
    """Each says what it does; only the last two write."""
    assert 1 == run("verify", "t")[0]
    code, out, err = run("rereduce", "t", "1", "--dry-run")
    assert (0, "") == (code, err)
    assert out.splitlines()[0].endswith("1 chunk added, 1 removed; nothing was written (a dry run)")
    assert ["- 1.0 user_message: HELLO", "+ 1.0 user_message: Hello"] == out.splitlines()[-2:]
    code, out, err = run("rereduce", "t", "--reason", "it shouted", "--json")
    found = json.loads(out)
    assert (0, "", 3, [1]) == (code, err, found["seq"], [one["seq"] for one in found["mended"]])
    assert 0 == run("verify", "t")[0]
    code, out, err = run("rereduce", "t")
    assert (2, "") == (code, out)
    assert "nothing differs" in err
    assert (0, "undone by event 4\n", "") == run("rereduce", "t", "--undo")
    assert 1 == run("verify", "t")[0]
