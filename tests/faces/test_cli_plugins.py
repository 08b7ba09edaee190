"""Plug-ins on the command line: those of installed packages are known, an application names its own."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Add, Chunk, Plugin, ReduceContext, Reduction, StateView, UserMessage, errors
from memory_engine.plugins import installed_plugins, plugin_at
from tests.command_line import Run

SHOP = """
from memory_engine import Add, Chunk, Plugin, Reduction
from memory_engine.events import Event

plugin = Plugin("{name}")

@plugin.event("{name}_order")
class {name}_order(Event):
    order: str

@plugin.reducer({name}_order)
def reduce_{name}_order(view, event, ctx):
    chunk = Chunk(id=ctx.new_id(), type="order", content=event.order)
    return Reduction((Add(chunk.id),), (chunk,))

nothing = 5
"""


@pytest.fixture
def shops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two applications, `front` and `back`, from which the command line is started."""
    for name in ("front", "back"):
        (tmp_path / f"{name}_shop.py").write_text(SHOP.format(name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("front", "back"):
        sys.modules.pop(f"{name}_shop", None)


def published(folder: Path, monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    """A package that is installed."""
    info = folder / "shops-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shops\nVersion: 1.0\n")
    listed = "\n".join(f"{name} = {place}" for name, place in points.items())
    (info / "entry_points.txt").write_text(f"[memory_engine.plugins]\n{listed}\n")
    monkeypatch.syspath_prepend(str(folder))


async def ordered(path: str, *names: str) -> None:
    """A database with an order of each application."""
    plugins = [plugin_at(f"{name}_shop:plugin") for name in names]
    async with memory_engine.open(path, plugins=plugins) as engine:
        thread = await engine.create_thread("t")
        for plugin in plugins:
            await thread.dispatch(plugin.events[0](order=f"of {plugin.name}"))


@pytest.mark.usefixtures("shops")
def test_an_application_names_its_own(shops: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By module and name, before the command and after it, in each process that verifies."""
    path = str(shops / "shop.db")
    monkeypatch.syspath_prepend(str(shops))
    asyncio.run(ordered(path, "front", "back"))
    front, back = ("--plugins", "front_shop:plugin"), ("--plugins", "back_shop:plugin")
    code, out, err = run("--db", path, "verify")
    assert (2, "", 1) == (code, out, err.count("\n"))
    assert "thread 't': no plug-in that is loaded declares the event types 'back_order', 'front_order'; name" in err
    code, out, err = run("--db", path, "verify", *front, "--json")
    assert (2, ["back_order"], False) == (code, json.loads(out)["unloaded_types"], json.loads(out)["ok"])
    assert "the event type 'back_order'; name" in err
    assert 0 == run("--db", path, "verify", *front, *back)[0]
    assert 0 == run("--db", path, *front, "verify", *back)[0]
    assert 0 == run("--db", path, *front, *back, "verify", "--jobs", "2")[0]
    assert "of front" in run("--db", path, "show", "t", *front, *back)[1]


def test_a_reducer_whose_plug_in_is_not_loaded_is_guessed(tmp_path: Path, run: Run) -> None:
    """Its event is known, so the log diverges; the last line says what may be missing."""
    noting = Plugin("noting")

    @noting.reducer(UserMessage)
    def note_it(_view: StateView, event: UserMessage, ctx: ReduceContext) -> Reduction:
        chunk = Chunk(id=ctx.new_id(), type="note", content=str(event.content))
        return Reduction((Add(chunk.id),), (chunk,))

    path = str(tmp_path / "noted.db")

    async def say() -> None:
        async with memory_engine.open(path, plugins=[noting]) as engine:
            await (await engine.create_thread("t")).dispatch(UserMessage(content="Hello"))

    asyncio.run(say())
    code, out, _ = run("--db", path, "verify")
    assert 1 == code
    assert "a plug-in with a reducer for it may not be loaded (--plugins, plugins=[...])" in out


@pytest.mark.usefixtures("shops")
def test_the_working_directory_is_looked_in(run: Run, shops: Path) -> None:
    """As a server of applications does."""
    path = str(shops / "shop.db")
    sys.path.insert(0, str(shops))
    asyncio.run(ordered(path, "front"))
    sys.path.remove(str(shops))
    sys.modules.pop("front_shop")
    assert 0 == run("--db", path, "verify", "--plugins", "front_shop:plugin")[0]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("nowhere_at_all:plugin", "No module named"),
        ("front_shop:missing", "has no attribute 'missing'"),
        ("front_shop:nothing", "it is not a `memory_engine.Plugin` but of the type int"),
        ("front_shop", 'name it "module:name"'),
        ("", 'name it "module:name"'),
    ],
)
def test_a_name_that_leads_nowhere_says_why(run: Run, shops: Path, place: str, why: str) -> None:
    """And nothing is done."""
    path = str(shops / "shop.db")
    asyncio.run(ordered(path))
    code, printed, told = run("--db", path, "threads", "--plugins", place)
    assert (2, "") == (code, printed)
    assert why in told


def test_a_broken_package_is_named_and_left_out(
    run: Run, shops: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others work; so does a program that asks for the plug-ins of installed packages."""
    published(shops, monkeypatch, broken="nowhere_at_all:plugin", odd="front_shop:nothing", shop="back_shop:plugin")
    path = str(shops / "shop.db")
    asyncio.run(ordered(path, "back"))
    with caplog.at_level(logging.WARNING, "memory_engine"):
        assert ["back"] == [plugin.name for plugin in installed_plugins()]
        assert 0 == run("--db", path, "verify")[0]
        assert 2 == run("--db", path, "verify", "--no-plugins")[0]
    told = [record.getMessage() for record in caplog.records]
    assert 1 == len([line for line in told if "'broken' (nowhere_at_all:plugin)" in line])
    assert 1 == len([line for line in told if "'odd' (front_shop:nothing)" in line])


def test_a_plug_in_that_is_not_there_raises() -> None:
    """For those who look one up in a program."""
    with pytest.raises(errors.InvalidArgument, match="No module named"):
        plugin_at("nowhere_at_all:plugin")
