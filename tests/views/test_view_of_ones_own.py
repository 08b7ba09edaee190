"""A package brings a view, and every part of the engine and its faces knows it, with nothing else touched."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, Thread
from memory_engine.replay.export.redaction import Redaction
from memory_engine.store.protocol import ProjectionChange
from memory_engine.thread import handle_of
from tests.command_line import Run
from tests.inspecting import inspected
from tests.views.highlights import PLUGIN, Highlights, TextHighlighted

PACKAGE = Path(__file__).parent / "highlights" / "__init__.py"
SAID = TextHighlighted(page="p1", quote="Revenue dips every Sunday")
LATER = TextHighlighted(page="p2", quote="Ann Miller asked why")


@pytest.fixture
async def thread(tmp_path: Path) -> AsyncIterator[Thread]:
    """A thread with two marked passages, in a file."""
    async with memory_engine.open(str(tmp_path / "m.db"), plugins=[PLUGIN]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([SAID, LATER])
        yield thread


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as pip installs it, with its entry point."""
    info = tmp_path / "site" / "highlights-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: highlights\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[memory_engine.plugins]\nhighlights = tests.views.highlights:PLUGIN\n")
    monkeypatch.syspath_prepend(str(info.parent))


def test_the_package_is_short() -> None:
    """Event, fold, what search finds, and the handle."""
    lines = [line for line in PACKAGE.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) < 60


async def test_it_is_read_by_its_handle_now_and_in_the_past(thread: Thread) -> None:
    """`thread.of(X)`, `at=`, a thread at a moment, and the generic `view`."""
    assert [SAID.quote, LATER.quote] == await thread.views.of(Highlights).quotes()
    assert [SAID.quote] == await thread.views.of(Highlights).quotes(at=1)
    assert [SAID.quote] == await (await thread.at(1)).views.of(Highlights).quotes()
    assert ["0000000001", "0000000002"] == list(await thread.views.read("highlights"))


async def test_it_is_verified_and_rebuilt(thread: Thread) -> None:
    """Its rows are compared with the log, and made again from it."""
    store = handle_of(thread).kernel.store
    await thread.views.of(Highlights).quotes()
    assert (await thread.replay.verify()).ok
    change = ProjectionChange("highlights", 1, {"0000000001": None}, 2)
    await store.write_projection("t", change)
    broken = (await thread.replay.verify()).divergence
    assert broken is not None
    assert "highlights" in str(broken)
    await thread.replay.rebuild(["highlights"])
    assert (await thread.replay.verify()).ok
    assert [SAID.quote, LATER.quote] == await thread.views.of(Highlights).quotes()


async def test_it_is_searched(thread: Thread) -> None:
    """Its passages are found, of their own kind."""
    found = await thread.search("when does revenue dip?", kinds=["highlight"])
    assert (1, "highlight", SAID.quote) == (found[0].seq, found[0].kind, found[0].text)


async def test_forgetting_an_event_takes_its_row_away(thread: Thread) -> None:
    """The row goes, and search finds nothing of it; other rows stay, also when they are made again."""
    event_id = (await thread.replay.latest(2))[0].id
    await thread.forget(event_ids=[event_id])
    assert [LATER.quote] == await thread.views.of(Highlights).quotes()
    assert () == (await thread.search("when does revenue dip?", kinds=["highlight"])).hits
    assert (await thread.replay.verify()).ok
    await thread.replay.rebuild(["highlights"])
    assert ["0000000002"] == list(await thread.views.read("highlights"))


async def test_a_redacted_export_leaves_no_text_of_it(thread: Thread, tmp_path: Path) -> None:
    """A field is text unless it is declared otherwise: the quote goes, the page's id stays."""
    await thread.replay.export(tmp_path / "t.jsonl", redaction=Redaction(types=["text_highlighted"]))
    written = (tmp_path / "t.jsonl").read_text(encoding="utf-8")
    assert "Revenue" not in written
    assert "Miller" not in written
    async with memory_engine.open(":memory:", plugins=[PLUGIN]) as engine:
        report = await engine.transfer.import_log(tmp_path / "t.jsonl", scopes="as exported")
        copied = engine.thread(report.thread_id)
        assert (await copied.replay.verify()).ok
        assert ["[redacted]", "[redacted]"] == await copied.views.of(Highlights).quotes()


async def test_the_inspector_shows_it(thread: Thread) -> None:
    """Among the views that have rows, and its rows."""
    async with inspected(Engine(handle_of(thread).kernel)) as browser:
        listed = (await browser.api("views", {"thread": "t", "seq": 2})).data()
        rows = (await browser.api("view", {"thread": "t", "seq": 2, "name": "highlights"})).data()
    assert {"views": [{"name": "highlights", "rows": 2, "used": True}]} == listed
    assert {"page": "p1", "quote": SAID.quote} == rows["rows"][0]["value"]  # type: ignore[index]


@pytest.mark.usefixtures("installed")
def test_the_command_line_shows_it(run: Run, tmp_path: Path) -> None:
    """A package that is installed is known to each command."""
    path = str(tmp_path / "cli.db")

    async def fill() -> None:
        async with memory_engine.open(path, entry_points=True, config=EngineConfig()) as engine:
            await (await engine.create_thread("t")).dispatch(SAID)

    asyncio.run(fill())
    code, printed, _ = run("--db", path, "view", "t", "highlights")
    assert (0, True) == (code, SAID.quote in printed)
    code, printed, _ = run("--db", path, "search", "revenue", "--thread", "t")
    assert (0, True) == (code, SAID.quote in printed)
    assert 0 == run("--db", path, "verify")[0]
