"""How much of a log the command `log` reads."""

import json
import sqlite3
from pathlib import Path

import pytest

from memory_engine import LlmTextResponse, UserMessage, sync
from tests.command_line import Run


def _many(path: str) -> None:
    """A database with a thread of 300 events, whose first is gone."""
    with sync.open(path) as engine:
        thread = engine.create_thread("many")
        thread.dispatch_all([UserMessage(content="first"), *(UserMessage(content=f"m{n}") for n in range(299))])
        thread.dispatch(LlmTextResponse(content="last"))
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM events WHERE pos = (SELECT min(pos) FROM events)")
    raw.close()


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        (("--limit", "3"), [299, 300, 301]),
        (("--limit", "100"), list(range(202, 302))),
        (("--limit", "1", "--type", "user_message"), [300]),
        (("--limit", "2", "--after", "298"), [299, 300]),
    ],
)
def test_a_limit_reads_what_it_shows(run: Run, tmp_path: Path, options: tuple[str, ...], seqs: list[int]) -> None:
    """Of a long thread only its end is read: that its beginning is broken is not noticed there."""
    path = str(tmp_path / "many.db")
    _many(path)
    code, out, _ = run("log", "many", *options, "--json", "--db", path)
    assert (0, seqs) == (code, [json.loads(line)["seq"] for line in out.splitlines()])
    assert 0 != run("log", "many", "--limit", "301", "--db", path)[0]


def test_a_limit_finds_the_few_that_match_however_far_back(run: Run, tmp_path: Path) -> None:
    """Fewer match than are asked for: all of them come, in order."""
    path = str(tmp_path / "few.db")
    with sync.open(path) as engine:
        thread = engine.create_thread("t")
        marked = [thread.dispatch(UserMessage(content="a"), correlation_id="run").seq]
        thread.dispatch_all([UserMessage(content=f"m{n}") for n in range(500)])
        marked.append(thread.dispatch(UserMessage(content="b"), correlation_id="run").seq)
    out = run("log", "t", "--correlation", "run", "--limit", "9", "--json", "--db", path)[1]
    assert marked == [json.loads(line)["seq"] for line in out.splitlines()]
