"""The table of built-in views, which stands in for their code until it is used, against the plug-ins themselves."""

import asyncio
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Event, Plugin, UserMessage, errors
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.lazy import StandIn
from memory_engine.core.reduction import ReducerRegistry
from memory_engine.events import UnknownEvent, builtin_registry
from memory_engine.plugins import DeferredPlugin
from memory_engine.projections.base import event_types, is_lazy, survives_clear
from memory_engine.views.builtin import VIEWS
from memory_engine.wiring import builtin_plugins

BY_NAME = pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)


def object_of(value: object) -> object:
    """The object that a stand-in stands for."""
    return value.original if isinstance(value, StandIn) else value


def reducers_of(plugin: Plugin) -> dict[str, tuple[str, object]]:
    """The reducers of a plug-in: the type and the function, by name."""
    events, reducers = EventRegistry(), ReducerRegistry()
    plugin.install(events, reducers)
    entries = [one for cls in events.classes() for one in reducers.of_type(cls.event_type)]
    return {one.name: (one.event_type, object_of(one.reduce)) for one in entries}


@BY_NAME
def test_the_table_says_which_events_a_view_has(view: DeferredPlugin) -> None:
    """All of them, and those that bring facts; else an event would be unknown in a log that this engine wrote."""
    events = EventRegistry(view.loaded.events)
    assert {cls.event_type for cls in events.classes()} == set(view.event_types)
    assert set(events.delivering()) == set(view.delivering)


@BY_NAME
def test_the_table_says_which_reducers_a_view_has(view: DeferredPlugin) -> None:
    """Each by its name, its type and its function."""
    assert reducers_of(view.loaded) == reducers_of(view)


@BY_NAME
def test_the_table_says_which_rows_a_view_has(view: DeferredPlugin) -> None:
    """Their names, versions and event types: an engine opens a thread by these."""
    said = [(one.name, one.version, one.mode, event_types(one)) for one in view.projections]
    known = [(one.name, one.version, one.mode, event_types(one)) for one in view.loaded.projections]
    assert known == said
    assert list(map(object_of, view.projections)) == view.loaded.projections
    assert [(is_lazy(one), survives_clear(one)) for one in view.projections] == [
        (is_lazy(one), survives_clear(one)) for one in view.loaded.projections
    ]


@BY_NAME
def test_the_table_says_what_else_a_view_has(view: DeferredPlugin) -> None:
    """Blocks of contexts, renderers, extractors, kinds of threads, settings."""
    plugin = view.loaded
    assert [(one.name, one.place, one.share, one.least) for one in plugin.blocks] == [
        (one.name, one.place, one.share, one.least) for one in view.blocks
    ]
    assert plugin.renderers == [(name, object_of(render)) for name, render in view.renderers]
    assert plugin.extractors.keys() <= view.extractors.keys() <= plugin.extractors.keys() | set(view.event_types)
    assert [(one.name, one.grain_us, one.pooled) for one in plugin.kinds] == [
        (one.name, one.grain_us, one.pooled) for one in view.kinds
    ]
    assert list(map(type, plugin.settings)) == list(map(type, view.settings))
    assert [] == [*plugin.attachments, *plugin.compactors, *plugin.readers, *plugin.replaced_reducers]


def test_the_table_has_every_view() -> None:
    """No folder of a view is left out."""
    folders = {path.parent.name for path in Path(memory_engine.__file__).parent.glob("views/*/plugin.py")}
    assert folders == {view.name for view in VIEWS}


def registry() -> EventRegistry:
    """A registry that expects every view, and has loaded none."""
    events, reducers = EventRegistry(), ReducerRegistry()
    for view in VIEWS:
        view.install(events, reducers)
    return events


OWN = [cls for plugin in builtin_plugins()[1:] for cls in plugin.events]


@pytest.mark.parametrize("cls", OWN, ids=lambda cls: cls.event_type)
def test_every_question_about_an_expected_type_has_its_answer(cls: type[Event]) -> None:
    """Each is asked first, of a registry of its own: nothing that was loaded before helps it."""
    name, known = cls.event_type, builtin_registry()
    assert known.tracks(name) == registry().tracks(name)
    assert known.role(name) == registry().role(name)
    assert known.is_upkeep(name) == registry().is_upkeep(name)
    assert known.packs(name) == registry().packs(name)
    assert registry().has_type(name)
    assert cls in registry()
    assert registry().decoder_of(cls) is not None
    assert not isinstance(registry().copy().decode(name, 99, b"{}"), cls)
    with pytest.raises(errors.DuplicateRegistration):
        registry().expect((name,), EventRegistry, ())


def test_whatever_looks_at_all_types_sees_the_expected_ones() -> None:
    """A list of classes, and a choice among them."""
    assert set(OWN) == set(registry().classes())
    assert {cls.event_type for cls in OWN if cls.event_chunks == "copies"} == registry().of_chunks("copies")


def test_an_older_version_of_an_expected_type_is_upcast() -> None:
    """The step comes with the class."""
    payload = b'{"snippet":"1.0","content":"a","trigger":"t"}'
    assert not isinstance(registry().decode("promotion_decided", 1, payload), UnknownEvent)


def test_threads_that_ask_at_once_all_get_the_class() -> None:
    """No moment exists in which a type is neither expected nor known."""

    def decoded(events: EventRegistry) -> object:
        return events.decode("item_put", 99, b"{}"), events.tracks("item_put")

    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            events = registry()
            found = [one.result()[1] for one in [pool.submit(decoded, events) for _ in range(8)]]  # type: ignore[index]
            assert [True] * 8 == found


READ = """
import asyncio, memory_engine
async def main():
    async with memory_engine.open({path!r}) as engine:
        thread, user = engine.thread("t"), engine.user("u1", tenant_id="acme")
        {act}
asyncio.run(main())
"""
FIRST = {
    "verify": "assert all(one.ok for one in await engine.verify())",
    "rebuild": "assert (await thread.rebuild()).events",
    "context": "assert (await thread.context(max_tokens=2_000)).messages",
    "events": "assert not [one async for one in thread.events() if type(one.event).__name__ == 'UnknownEvent']",
    "forget": "[await one.forget(event_ids=[[e async for e in one.events()][-1].id]) for one in (thread, user)]",
    "diff": "assert str(await thread.diff(1, 3))",
    "search": "assert (await thread.search('mat'))",
}
"""The first thing that a process does with a log which holds events of views that it has not loaded."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with events of a few views."""
    path = tmp_path_factory.mktemp("written") / "log.db"
    asyncio.run(write(path))
    return path


async def write(path: Path) -> None:
    """Use some views."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t", user_id="u1", tenant_id="acme", agent_id="a")
        await thread.dispatch(UserMessage(content="Where is the key?"))
        await thread.scratchpad.write("under the mat")
        await thread.dispatch(memory_engine.ScreenInjected(content="a list of keys"))
        await thread.memory_files.create("notes/a.md", "under the mat")
        await engine.user("u1", tenant_id="acme").preferences.update("verbosity", "concise")


@pytest.mark.parametrize("first", FIRST)
def test_a_process_that_has_loaded_no_view_reads_what_one_wrote(first: str, written: Path, tmp_path: Path) -> None:
    """Whichever it asks first."""
    path = shutil.copy(written, tmp_path / "log.db")
    subprocess.run([sys.executable, "-c", READ.format(path=str(path), act=FIRST[first])], check=True)


class KeyTurned(Event):
    """An event of an application."""

    content: str = ""


class KeyTurnedOnce(Event):
    """Another."""


def test_a_plugin_that_takes_a_built_in_name_is_refused_as_it_opens() -> None:
    """Names of events, reducers and rows of views that are not loaded yet are taken all the same."""
    events, reducers, rows = Plugin("a"), Plugin("b"), Plugin("c")
    events.event("item_put")(KeyTurned)
    reducers.event("key_turned")(KeyTurnedOnce)
    reducers.reducer(KeyTurnedOnce, name="reduce_screen_injected")(lambda _view, _event, _ctx: None)
    rows.projection(next(one for one in VIEWS if one.name == "items").loaded.projections[0])
    for plugin in (events, reducers, rows):
        with pytest.raises(errors.DuplicateRegistration):
            asyncio.run(opened(plugin))


async def opened(plugin: Plugin) -> None:
    """Open an engine with a plug-in."""
    async with memory_engine.open(":memory:", plugins=[plugin]):
        pass


async def test_a_plugin_replaces_what_an_unused_view_brings() -> None:
    """Its reducer, its passages and its renderer."""
    plugin = Plugin("other")
    screen = memory_engine.events.ScreenInjected
    seen: list[str] = []

    @plugin.replaces_reducer("reduce_screen_injected")
    def _reduce(_view: object, event: object, _ctx: object) -> memory_engine.Reduction:
        seen.append(type(event).__name__)
        return memory_engine.Reduction()

    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="Look."))
        await thread.dispatch(screen(content="a list of keys"))
        assert ["ScreenInjected"] == seen
        assert 1 == len(await thread.state())
