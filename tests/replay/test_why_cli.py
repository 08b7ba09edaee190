"""`memory-engine why`: trees for people, JSON for programs, errors in one line."""

import json
from pathlib import Path

import anyio
import pytest

from memory_engine import LlmTextResponse
from tests.command_line import Run
from tests.conversations import NEVER, SMALL, opened, say, turns
from tests.scripted_compactors import Scripted, a_line_each


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A conversation whose beginning was compacted, with hostile words in it."""
    path = str(tmp_path / "m.db")

    async def fill() -> None:
        async with opened(Scripted(a_line_each), SMALL, path) as engine:
            thread = await engine.create_thread("t")
            await say(thread, [*turns(4), LlmTextResponse(content="\x1b[31mred\u202e\nsecond line")])

    anyio.run(fill)
    return path


def test_a_tree_for_people(database: str, run: Run) -> None:
    """Guides, seq, tokens, what stands in whose place, an excerpt; nothing that could play tricks on the terminal."""
    code, out, _ = run("why", "t", "6.0", "--db", database)
    lines = out.splitlines()
    assert (0, True) == (code, lines[0].startswith("compacted 6.0  event 6 · "))
    assert lines[1].startswith("└─ made by: auto compaction of 4 chunks by scripted  ")
    assert "   ├─ line 1 of 4  cites 1.0  word1" == lines[2]
    assert any(line.startswith("   ├─ covers: agent_response 4.0  event 4 · ") for line in lines)
    assert "   └─ caused by: event 4 llm_text_response  see above" == lines[-1]
    code, out, _ = run("why", "t", "7.0", "--db", database)
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[31mred" in out
    assert "gone with event 6 (compaction_completed), 6.0 in its place" in run("why", "t", "2.0", "--db", database)[1]


def test_a_tree_for_programs(database: str, run: Run) -> None:
    """The whole tree as one JSON value, of a context where no chunk is named."""
    tree = json.loads(run("why", "t", "--db", database, "--json")[1])
    assert ("context", ["block", "block", "block"]) == (tree["kind"], [child["kind"] for child in tree["children"]])
    tree = json.loads(run("why", "t", "2.0", "--at", "3", "--db", database, "--json")[1])
    assert ("chunk", True) == (tree["kind"], tree["facts"]["live"])
    asked = ("--query", "what was word2?", "--max-tokens", "900")
    tree = json.loads(run("why", "t", *asked, "--db", database, "--json")[1])
    passages = [one for block in tree["children"] for one in block["children"] if one["kind"] == "passage"]
    assert any("word2" in one["text"] and one["facts"]["parts"] for one in passages)


def test_how_much_of_a_tree_is_shown(database: str, run: Run) -> None:
    """`--depth` levels; long lists are cut unless all is asked for."""
    assert ["context", "├─ stan", "│  └─ …", "├─ user", "│  └─ …", "└─ assi"] == [
        line[:7] for line in run("why", "t", "--depth", "1", "--db", database)[1].splitlines()
    ]
    assert 1 + 1 == len(run("why", "t", "6.0", "--depth", "0", "--db", database)[1].splitlines())


def test_long_lists_are_cut(tmp_path: Path, run: Run) -> None:
    """The first twelve, and how many more there are."""
    path = str(tmp_path / "m.db")

    async def fill() -> None:
        async with opened(Scripted(), NEVER, path) as engine:
            thread = await engine.create_thread("t")
            await say(thread, turns(20))
            await thread.compact()

    anyio.run(fill)
    lines = run("why", "t", "22.0", "--db", path)[1].splitlines()
    assert 12 == sum("covers:" in line for line in lines)
    assert "└─ … 8 more" == lines[-1].strip()
    assert 20 == sum("covers:" in line for line in run("why", "t", "22.0", "--all", "--db", path)[1].splitlines())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("t", "99.0"), "99.0"),
        (("t", "nonsense"), "nonsense"),
        (("t", "2.0", "--at", "1"), "2.0"),
        (("t", "view:nothing/x"), "nothing"),
        (("t", "view:preferences/x"), "has no row 'x'"),
        (("t", "2.0", "--context"), "--context"),
        (("t", "--at", "99"), "99"),
        (("nobody",), "nobody"),
    ],
)
def test_what_cannot_be_explained_is_said(database: str, run: Run, words: tuple[str, ...], told: str) -> None:
    """One line that names it, and exit code 2."""
    code, out, err = run("why", *words, "--db", database)
    assert (2, "") == (code, out)
    assert told in err
    assert 1 == len(err.splitlines())
