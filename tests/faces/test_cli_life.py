"""The commands that change a thread: forget, clear, update, archive, unarchive; and threads by metadata and order."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import memory_engine
from memory_engine.cli import main
from memory_engine.events import UserMessage

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database with the threads `old` and `new`; `old` was written to last."""

    async def make() -> None:
        async with memory_engine.open(str(tmp_path / "m.db")) as engine:
            old = await engine.create_thread("old", metadata={"k": "v", "draft": "yes"})
            new = await engine.create_thread("new", metadata={"k": "v"})
            await new.dispatch(UserMessage(content="Hello"))
            await old.dispatch_all([UserMessage(content=text) for text in ("one", "two", "three")])

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


def test_threads_are_listed_by_metadata_and_by_their_last_events(run: Run) -> None:
    """With the time that the order goes by, and how the next page is asked for."""
    code, out, err = run("threads", "--order", "updated", "--metadata", "k=v", "--after", "", "--limit", "1")
    assert (0, "") == (code, err)
    heads, line, following = out.splitlines()
    assert ("LAST EVENT" in heads, line.split()[0]) == (True, "old")
    assert "the next ones: --after old" == following
    code, out, err = run("threads", "--metadata", "draft=yes", "--metadata", "k=v", "--json")
    assert ["old"] == [one["id"] for one in json.loads(out)]
    assert (0, "no thread matches\n", "") == run("threads", "--metadata", "k=other")
    with pytest.raises(SystemExit):
        run("threads", "--metadata", "k")


def test_events_and_chunks_are_forgotten(run: Run) -> None:
    """By seq, by id, by chunk; nothing named is an error."""
    code, out, err = run("forget", "old", "--seq", "1", "--chunk", "3.0", "--reason", "asked", "--yes")
    assert (0, "") == (code, err)
    assert out.startswith("old, event 4: 1 event and 1 chunk forgotten; ")
    assert "three" not in run("show", "old")[1]
    assert (2, "") == run("forget", "old")[:2]
    code, out, err = run("forget", "old", "--seq", "2")
    assert (2, "", True) == (code, out, "Forget 1 event of old? This cannot be undone: say --yes" in err)
    assert "two" in run("show", "old")[1]
    code, out, err = run("forget", "old", "--seq", "99", "--yes")
    assert (2, "", True) == (code, out, "99" in err)


def test_a_thread_is_cleared(run: Run) -> None:
    """And it is said how what was before is shown."""
    assert (0, "old, event 4: cleared; to see it as it was: memory-engine show old --at 3\n", "") == run("clear", "old")
    assert "three" not in run("show", "old")[1]
    assert "three" in run("show", "old", "--at", "3")[1]
    assert {"thread_id": "new", "seq": 2} == {
        key: value for key, value in json.loads(run("clear", "new", "--json")[1]).items() if key != "event_id"
    }


def test_metadata_are_changed(run: Run) -> None:
    """Keys that are not named stay."""
    code, out, err = run("update", "old", "--metadata", "title=A=B", "--remove", "draft")
    assert (0, "old, event 4: k=v title=A=B\n", "") == (code, out, err)
    assert (2, "") == run("update", "old")[:2]


def test_a_thread_is_archived_and_opened_again(run: Run) -> None:
    """Its status is told."""
    assert (0, "old is archived\n", "") == run("archive", "old")
    assert ["old"] == [one["id"] for one in json.loads(run("threads", "--status", "archived", "--json")[1])]
    assert {"thread_id": "old", "status": "active"} == json.loads(run("unarchive", "old", "--json")[1])


async def make_again(path: str) -> None:
    """Make a thread of the deleted one's id."""
    async with memory_engine.open(path) as engine:
        await (await engine.open_thread("old")).dispatch(UserMessage(content="Hello"))


def test_an_anchor_says_that_its_thread_was_deleted(run: Run, path: str, tmp_path: Path) -> None:
    """And that another bears its id now."""
    kept = str(tmp_path / "anchors.jsonl")
    run("anchors", "--out", kept)
    assert 0 == run("verify", "--anchors", kept)[0]
    run("delete", "old", "--by", "ann", "--yes")
    assert "deleted on" in run("verify", "--anchors", kept)[1]
    asyncio.run(make_again(path))
    code, out, _ = run("verify", "--anchors", kept)
    assert (1, True) == (code, "by ann, another thread bears this id now" in out)
