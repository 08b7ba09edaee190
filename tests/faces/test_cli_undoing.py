"""The commands about what compactions did: compactions, undo-compaction, redo-compaction and ledger."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig
from memory_engine.cli import main
from memory_engine.errors import CompactorFailed
from memory_engine.events import LlmTextResponse, TaskStarted, UserMessage
from tests.conversations import LONG, NEVER, opened
from tests.scripted_compactors import Scripted, raises

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database with a thread `t`: two exchanges compacted by hand, a third after them, and one with a task."""

    async def make() -> None:
        async with opened(Scripted(), NEVER, str(tmp_path / "m.db")) as engine:
            said = [
                kind(content=f"{name} {n}{LONG}")
                for n in (1, 2)
                for kind, name in ((UserMessage, "question"), (LlmTextResponse, "answer"))
            ]
            thread = await engine.create_thread("t")
            await thread.dispatch_all(said)
            await thread.compact()
            await thread.dispatch_all([UserMessage(content="and?"), LlmTextResponse(content="\x1b[31myes")])
            other = await engine.create_thread("tasks")
            await other.dispatch_all([TaskStarted(goal="do it"), *said])

    asyncio.run(make())
    return str(tmp_path / "m.db")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], path: str) -> Run:
    """Run a command on that database; exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--db", path])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_compactions_are_listed(run: Run) -> None:
    """A line for each, with what became of it; a thread without any says so."""
    code, out, err = run("compactions", "t")
    assert (0, "") == (code, err)
    heads, line = out.splitlines()
    assert ["COMPACTION", "EVENT", "TRIGGER", "BY", "CHUNKS", "TOKENS", "SUMMARY", "STATUS"] == heads.split()
    assert ["6", "manual", "scripted", "4", "410", "→", "4", "6.0", "live"] == line.split()[1:]
    assert (0, "nothing was compacted\n", "") == run("compactions", "tasks")
    nothing = {"thread_id": "tasks", "seq": 5, "compactions": [], "due": None}
    assert nothing == json.loads(run("compactions", "tasks", "--json")[1])


def test_a_try_that_failed_is_listed(run: Run, path: str) -> None:
    """With the reason, in both forms; it replaced nothing."""

    async def fail() -> None:
        async with opened(Scripted(raises(RuntimeError("no \x1b[31mquota"))), NEVER, path) as engine:
            with pytest.raises(CompactorFailed):
                await engine.thread("tasks").compact()

    asyncio.run(fail())
    code, out, err = run("compactions", "tasks")
    assert (0, "") == (code, err)
    _, line = out.splitlines()
    assert "failed: raised (" in line
    assert "\x1b" not in line
    [tried] = json.loads(run("compactions", "tasks", "--json")[1])["compactions"]
    assert ("manual", "it was asked for", "scripted", "failed", 0) == (
        tried["trigger"], tried["why"], tried["compactor"], tried["status"], tried["tokens_after"]
    )  # fmt: skip
    assert "quota" in tried["error"]


def test_a_compaction_that_is_due_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program that only wrote, and ended at once, has left it to whoever comes next."""
    path = str(tmp_path / "due.db")

    async def write() -> None:
        async with memory_engine.open(path, config=EngineConfig(compaction=CompactionPolicy(enabled=False))) as engine:
            thread = await engine.create_thread("talk")
            for n in range(60):
                await thread.dispatch(UserMessage(content=f"Invoice {n} is late. " + "It was due last week. " * 400))

    asyncio.run(write())
    assert 0 == main(["compactions", "talk", "--db", path])
    out = capsys.readouterr().out
    assert re.match(
        r"nothing was compacted; one is due \(\d+ chunks, [\d,]+ tokens\): `memory-engine compact talk`", out
    )


def test_undo_and_redo(run: Run) -> None:
    """What came back, and what was made of it again; each in the log with its reason."""
    code, out, err = run("undo-compaction", "t", "--reason", "too short")
    assert (0, "") == (code, err)
    assert out.startswith("the compaction of event 6 is undone by event 9: 4 chunks back in place of 6.0\n")
    assert "the compaction of event 6, 4 chunks back: too short" in run("log", "t")[1]
    [listed] = json.loads(run("compactions", "t", "--json")[1])["compactions"]
    assert ("undone", 9, []) == (listed["status"], listed["by"], listed["summaries"])
    code, out, err = run("redo-compaction", "t", "--compactor", "embedded")
    assert (0, "") == (code, err)
    assert out.startswith("4 chunks → 1 summary: 410 → ")
    assert "## Progress Summary" in out
    assert 0 == run("verify", "t")[0]


def test_undo_and_redo_as_json(run: Run) -> None:
    """One object each, with every id."""
    name = json.loads(run("compactions", "t", "--json")[1])["compactions"][0]["compaction_id"]
    undone = json.loads(run("undo-compaction", "t", name, "--json")[1])
    assert (name, 6, 9, ["6.0"], ["9.0", "9.1", "9.2", "9.3"]) == (
        undone["compaction_id"],
        undone["completed"],
        undone["seq"],
        undone["summaries"],
        undone["restored"],
    )
    assert f"undo:{name}:6" == undone["event_id"]
    redone = json.loads(run("redo-compaction", "t", name, "--json")[1])
    assert (undone["restored"], "manual") == (redone["covered"], redone["trigger"])


def test_what_cannot_be_done_is_said(run: Run) -> None:
    """Exit code 2 and one line: an unknown compaction, one that was undone, an unknown compactor with those known."""
    code, _, err = run("undo-compaction", "t", "nothing")
    assert (2, True) == (code, "the log holds none of this id" in err)
    assert 0 == run("undo-compaction", "t")[0]
    assert "no compaction of this thread stands" in run("undo-compaction", "t")[2]
    code, _, err = run("redo-compaction", "t", "--compactor", "nobody")
    assert (2, "memory-engine: error: there is no compactor 'nobody'; there are embedded\n") == (code, err)
    error = json.loads(run("undo-compaction", "nowhere", "--json")[1])["error"]
    assert "ThreadNotFound" == error["type"]


def test_the_ledger_for_people(run: Run) -> None:
    """Totals, then each break with its event; what stands last is summed up."""
    code, out, err = run("ledger", "t")
    assert (0, "") == (code, err)
    totals, lost, heads, line = out.splitlines()
    assert totals.startswith("t: 3 model calls, ")
    assert lost.startswith("1 break: 0 tokens sent anew")
    assert ["EVENT", "TYPE", "CALL", "MESSAGE", "BYTE", "SENT", "ANEW", "WHY"] == heads.split()
    assert line.split()[:4] == ["6", "compaction_completed", "8", "0"]
    assert line.endswith("a compaction by scripted: 4 chunks became a summary")
    why = "the task: it stands last by design, and moved behind what was said since"
    assert f"1 time, 9 tokens sent anew: {why}" == run("ledger", "tasks")[1].splitlines()[-1]
    assert "nothing broke the cache" in run("ledger", "tasks", "--upto", "3")[1]


def test_the_ledger_as_json(run: Run) -> None:
    """One object with calls, breaks and totals, of the stretch that was asked for."""
    found = json.loads(run("ledger", "t", "--after", "2", "--upto", "8", "--json")[1])
    assert ("t", 2, 8) == (found["thread_id"], found["after"], found["upto"])
    assert [4, 8] == [call["seq"] for call in found["calls"]]
    assert [6] == [one["seq"] for one in found["breaks"]]
    assert 2 == found["totals"]["calls"]
    assert (2, "ContextBudgetError") == (
        (asked := run("ledger", "t", "--max-tokens", "20", "--json"))[0],
        json.loads(asked[1])["error"]["type"],
    )
