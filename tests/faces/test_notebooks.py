"""What a notebook shows of values, and what it offers where a name is begun."""

import ast
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Thread, UserMessage, events, sync
from memory_engine.core.notebook import ROWS_MAX, TEXT_MAX
from memory_engine.thread import handle_of

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "<script>alert('revenue')</script>"


class Cells(HTMLParser):
    """The tags that open, and the texts of all cells, as a browser reads them."""

    def __init__(self, html: object) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.texts: list[str] = []
        assert isinstance(html, str)
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """A tag opens."""
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """The one that opened last closes."""
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        """A text, its entities read."""
        self.texts.append(data)


async def shown(thread: Thread) -> dict[str, object]:
    """A value of each kind."""
    return {
        "thread": thread,
        "context": await thread.context(),
        "state": await thread.state(),
        "found": await thread.search("revenue"),
        "diff": await thread.replay.diff(0, await handle_of(thread).last_seq()),
        "why": await thread.replay.why("1.0"),
    }


@pytest.mark.parametrize("name", ["thread", "context", "state", "found", "diff", "why"])
async def test_a_value_is_a_plain_table_of_escaped_texts(name: str) -> None:
    """Whatever the log holds: nothing of it runs."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t<b>")
        await thread.dispatch(UserMessage(content=f"{SCRIPT} & revenue"))
        html = (await shown(thread))[name]._repr_html_()  # type: ignore[attr-defined]
    cells = Cells(html)
    assert {"table", "caption", "thead", "tbody", "tr", "th", "td"} == cells.tags
    assert [] == cells.open
    assert any(SCRIPT in text for text in cells.texts)


async def test_a_long_one_is_short() -> None:
    """The first rows, the beginning of a text, and how many more there are."""
    never = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(":memory:", config=never) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content="x" * 5_000)] * (ROWS_MAX + 7))
        cells = Cells((await thread.state())._repr_html_())
    assert "… and 7 more" == cells.texts[-1]
    assert TEXT_MAX == max(map(len, cells.texts))


async def test_a_thread_shows_what_is_in_memory(tmp_path: Path) -> None:
    """Nothing is read to show it; without `await`, it shows the same."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="revenue"))
        assert "Thread t at event 1: 1 chunks, about 2 tokens" == Cells(thread._repr_html_()).texts[0]
    async with memory_engine.open(path) as engine:
        assert "not read yet" in Cells(engine.thread("t")._repr_html_()).texts[0]
    with sync.open(path) as waiting:
        waiting.thread("t").state()
        assert "Thread t at event 1" in Cells(waiting.thread("t")._repr_html_()).texts[0]  # type: ignore[attr-defined]


async def test_the_notebook_runs_and_shows_a_table_in_each_cell() -> None:
    """Its cells in order, as a notebook runs them: with `await`, the last expression shown."""
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    captions = [await run_cell(source, names) for source in code]
    assert [
        "Thread trip at event 6: 6 chunks, about 35 tokens",
        "Context of trip at event 6: about 71 tokens",
        "6 found for “Where does Ines live?” (lexical)",
        "From event 4 to event 6 of trip",
        "Where 6.0 comes from",
        "Context of trip at event 7: about 51 tokens",
        "None",
    ] == captions


async def run_cell(source: str, names: dict[str, object]) -> str:
    """The caption of a cell's last expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    assert isinstance(last, ast.Expr)
    tree.body[-1] = ast.parse("_shown = 0").body[0]
    tree.body[-1].value = last.value  # type: ignore[attr-defined]
    run = eval(compile(ast.fix_missing_locations(tree), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if run is not None:
        await run
    shown = names["_shown"]
    return Cells(shown._repr_html_()).texts[0] if hasattr(shown, "_repr_html_") else str(shown)


async def test_nothing_is_a_table_too() -> None:
    """Of an empty thread."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        assert "State at event 0: 0 chunks" in Cells((await thread.state())._repr_html_()).texts[0]
        assert "0 found for" in Cells((await thread.search("revenue"))._repr_html_()).texts[0]


def test_the_version_is_that_of_the_package() -> None:
    """`memory_engine.__version__`."""
    assert version("memory-event-engine") == memory_engine.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", memory_engine.__version__)


def test_names_are_listed_before_they_are_loaded() -> None:
    """`memory_engine.<TAB>`: every public name, events too, and the modules that people import."""
    code = "import memory_engine, json; print(json.dumps([dir(memory_engine), memory_engine.__all__]))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed, public = (set(names) for names in json.loads(ran.stdout))
    assert {"errors", "events", "sync", "testing", "__version__", *public} <= listed
    assert {"Engine", "UserMessage"} <= public
    assert "open" in listed - public  # `from memory_engine import *` leaves Python's own alone
    assert {name for name in events.__all__ if name[0].isupper()} <= public
    assert [] == [name for name in public if not hasattr(memory_engine, name)]
