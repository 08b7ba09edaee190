"""The command that shows views: which have rows, and what stands in them, at any seq."""

import json
from pathlib import Path

import anyio
import pytest

import memory_engine
from tests.command_line import Run


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A memory with a user and a hostile preference."""
    path = str(tmp_path / "m.db")

    async def fill() -> None:
        async with memory_engine.open(path) as engine:
            preferences = engine.user("u1").preferences
            await preferences.update("tone", "dry")
            await preferences.update("tone", "\x1b[31mred")
            await preferences.update("verbosity", "concise")

    anyio.run(fill)
    return path


def test_views_with_rows_are_listed(database: str, run: Run) -> None:
    """People see those that have rows, programs all."""
    code, out, _ = run("view", "user:u1", "--db", database)
    assert (0, ["VIEW         ROWS", "preferences     2"]) == (code, out.splitlines())
    counts = json.loads(run("view", "user:u1", "--db", database, "--json")[1])
    assert (2, 0) == (counts["preferences"], counts["playbooks"])


def test_rows_of_a_view_are_printed(database: str, run: Run) -> None:
    """Each by its key, made harmless for a terminal, as it was at a seq."""
    _, out, _ = run("view", "user:u1", "preferences", "--db", database)
    assert "\x1b" not in out
    assert "verbosity" in out
    rows = json.loads(run("view", "user:u1", "preferences", "--at", "1", "--db", database, "--json")[1])
    assert {"tone": "dry"} == {key: row["value"] for key, row in rows.items()}
    assert ["verbosity"] == list(
        json.loads(run("view", "user:u1", "preferences", "--limit", "1", "--db", database, "--json")[1])
    )


@pytest.mark.parametrize(
    "words", [("user:u1", "nothing"), ("user:u1", "preferences", "--at", "9"), ("user:u2", "preferences")]
)
def test_what_is_not_there_is_said(database: str, run: Run, words: tuple[str, ...]) -> None:
    """An unknown view, seq or thread is an error that names it."""
    code, out, err = run("view", *words, "--db", database)
    assert (2, "") == (code, out)
    assert any(word in err for word in ("nothing", "9", "user:u2"))
