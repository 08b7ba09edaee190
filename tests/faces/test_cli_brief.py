"""The commands of the brief: brief, pin and unpin."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import memory_engine
from memory_engine.cli import main
from memory_engine.events import LlmTextResponse, UserMessage

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database with a thread in which a rule is given, a note is taken of it, and the rule is replaced."""

    async def make() -> None:
        async with memory_engine.open(str(tmp_path / "m.db")) as engine:
            thread = await engine.create_thread("kiln")
            await thread.dispatch_all(
                [
                    UserMessage(content="Batch Q-118 must never be fired above 1180 degrees."),
                    LlmTextResponse(content="Noted."),
                    UserMessage(content="Actually, batch Q-118 no longer has a limit."),
                ]
            )

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


def test_the_brief_lists_statements_with_what_superseded_them(run: Run) -> None:
    """In the order of time, a line each, under a head that counts those that still stand."""
    code, out, err = run("brief", "kiln")
    assert (0, "") == (code, err)
    head, _, first, *_ = out.splitlines()
    assert "still stand in kiln at event 3" in head
    assert ["1", "a person", "forbids", "superseded by 3"] == [cell.strip() for cell in first.split("  ") if cell][:4]


def test_the_brief_of_a_moment_knows_nothing_later(run: Run) -> None:
    """As JSON: the statement stands, since nothing has replaced it yet."""
    _, out, _ = run("brief", "kiln", "--at", "2", "--json")
    found = json.loads(out)
    assert ("kiln", 2) == (found["thread"], found["seq"])
    assert [(1, "stands", 0)] == [(one["seq"], one["status"], one["by"]) for one in found["statements"]]


def test_a_text_and_a_chunk_are_pinned_and_a_pin_is_taken_out(run: Run) -> None:
    """Each pin is listed by its seq until then."""
    assert 0 == run("pin", "kiln", "Glaze on Fridays.")[0]
    _, out, _ = run("pin", "kiln", "--chunk", "2.0", "--json")
    assert 5 == json.loads(out)["seq"]
    pins = [(one["seq"], one["text"]) for one in _statements(run) if one["pinned"]]
    assert [(4, "Glaze on Fridays."), (5, "Noted.")] == pins
    assert 0 == run("unpin", "kiln", "4", "--reason", "done")[0]
    assert [5] == [one["seq"] for one in _statements(run) if one["pinned"]]


def test_what_cannot_be_pinned_or_taken_out_is_said(run: Run) -> None:
    """Nothing named, both named, and a seq that is not a pin."""
    assert 2 == run("pin", "kiln")[0]
    assert 2 == run("pin", "kiln", "a text", "--chunk", "2.0")[0]
    code, _, err = run("unpin", "kiln", "1")
    assert (2, True) == (code, "kiln" in err)


def _statements(run: Run) -> list[dict[str, object]]:
    _, out, _ = run("brief", "kiln", "--json")
    found: list[dict[str, object]] = json.loads(out)["statements"]
    return found
