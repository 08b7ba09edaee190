"""Projections: pure folds of the log into rows, kept beside it, dropped and made again at will."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import memory_engine
from memory_engine import Engine, Event, Plugin, RecordedEvent, Rows, errors
from memory_engine import events as e
from memory_engine.projections import ProjectionMode
from memory_engine.projections.base import check_events, event_types
from memory_engine.storage.memory import MemoryStore
from memory_engine.store.protocol import ProjectionChange
from memory_engine.testing import FaultyStore
from tests.mistakes import Partly

MODES: list[ProjectionMode] = ["inline", "async"]


class Counts:
    """How often each type of event came, and the last seq of each."""

    row: type[dict[str, int]] = dict[str, int]

    def __init__(self, mode: ProjectionMode, *, version: int = 1, name: str = "counts", step: int = 1) -> None:
        self.mode: ProjectionMode = mode
        self.version = version
        self.name = name
        self._step = step

    def apply(self, rows: Rows[dict[str, int]], event: RecordedEvent) -> None:
        """Count one event; `todo_deleted` drops the row of the item's name."""
        if isinstance(event.event, e.SystemFailure):
            raise ValueError(event.event.content)
        if isinstance(event.event, e.TodoDeleted):
            rows.drop(event.event.id)
            return
        row = rows.get(event.type) or {"count": 0, "last": 0}
        rows.put(event.type, {"count": row["count"] + self._step, "last": event.seq})


def plugin(*projections: Counts) -> list[Plugin]:
    """A plug-in with these projections."""
    made = Plugin("counting")
    for projection in projections:
        made.projection(projection)
    return [made]


async def said(engine: Engine, *texts: str, thread_id: str = "t") -> None:
    """Messages in a thread."""
    await engine.thread(thread_id).dispatch_all([e.UserMessage(content=text) for text in texts])


@pytest.mark.parametrize("mode", MODES)
async def test_a_view_is_up_to_date(mode: ProjectionMode) -> None:
    """After a dispatch the view holds the event, in either mode, one by one or in batches."""
    async with memory_engine.open(":memory:", plugins=plugin(Counts(mode))) as engine:
        thread = await engine.create_thread("t")
        assert {} == await thread.views.read("counts")
        await said(engine, "a")
        assert {"user_message": {"count": 1, "last": 1}} == await thread.views.read("counts")
        await said(engine, "b", "c")
        await thread.dispatch(e.LlmTextResponse(content="d"))
        assert {
            "llm_text_response": {"count": 1, "last": 4},
            "user_message": {"count": 3, "last": 3},
        } == await thread.views.read("counts")
        await thread.dispatch(e.TodoDeleted(id="user_message", lenient=True))
        assert ["llm_text_response"] == list(await thread.views.read("counts"))


@pytest.mark.parametrize("mode", MODES)
async def test_threads_have_rows_of_their_own(mode: ProjectionMode) -> None:
    """What one thread's events make is not seen in another's view."""
    async with memory_engine.open(":memory:", plugins=plugin(Counts(mode))) as engine:
        for name, texts in (("t", "ab"), ("u", "c")):
            await engine.create_thread(name)
            await said(engine, *texts, thread_id=name)
        views = [await engine.thread(name).views.read("counts") for name in "tu"]
        assert [{"user_message": {"count": n, "last": n}} for n in (2, 1)] == views


@pytest.mark.parametrize("mode", MODES)
async def test_rows_outlive_the_engine(mode: ProjectionMode, tmp_path: Path) -> None:
    """A reopened view goes on where it stood; nothing is applied twice."""
    path = str(tmp_path / "log.db")
    for count in (1, 2, 3):
        async with memory_engine.open(path, plugins=plugin(Counts(mode))) as engine:
            if count == 1:
                await engine.create_thread("t")
            await said(engine, "again")
            assert {"user_message": {"count": count, "last": count}} == await engine.thread("t").views.read("counts")


@pytest.mark.parametrize("mode", MODES)
async def test_a_new_projection_reads_the_whole_log(mode: ProjectionMode, tmp_path: Path) -> None:
    """One that is added to an existing store, or whose version rose, is made from the first event on."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        await engine.create_thread("t")
        await said(engine, "a", "b")
    for version, step in ((1, 1), (2, 10)):
        async with memory_engine.open(path, plugins=plugin(Counts(mode, version=version, step=step))) as engine:
            thread = engine.thread("t")
            count = version + 1
            assert {"user_message": {"count": count * step, "last": count}} == await thread.views.read("counts")
            await said(engine, "c")
            assert {"user_message": {"count": (count + 1) * step, "last": count + 1}} == await thread.views.read(
                "counts"
            )
            assert (await thread.replay.verify()).ok


@pytest.mark.parametrize("mode", MODES)
async def test_an_older_version_keeps_its_rows(mode: ProjectionMode, tmp_path: Path) -> None:
    """Going back to the former version finds its rows, and catches up with what came meanwhile."""
    path = str(tmp_path / "log.db")
    view: dict[str, object] = {}
    for version, step in ((1, 1), (2, 10), (1, 1)):
        async with memory_engine.open(path, plugins=plugin(Counts(mode, version=version, step=step))) as engine:
            if not await engine.threads():
                await engine.create_thread("t")
            await said(engine, "x")
            view = await engine.thread("t").views.read("counts")
    assert {"user_message": {"count": 3, "last": 3}} == view


@pytest.mark.parametrize("mode", MODES)
async def test_a_fork_has_the_view_of_its_own_log(mode: ProjectionMode) -> None:
    """Its rows are those of the shared past and of what came after the cut."""
    async with memory_engine.open(":memory:", plugins=plugin(Counts(mode))) as engine:
        thread = await engine.create_thread("t")
        await said(engine, "a", "b", "c")
        fork = await thread.fork(2, thread_id="f")
        assert {"user_message": {"count": 2, "last": 2}} == await fork.views.read("counts")
        await said(engine, "x", thread_id="f")
        assert {"user_message": {"count": 3, "last": 3}} == await fork.views.read("counts")
        assert (await fork.replay.verify()).ok


@pytest.mark.parametrize("mode", MODES)
async def test_a_rebuild_makes_the_same_rows(mode: ProjectionMode) -> None:
    """Rows that were tampered with are found by verify, and made again from the log."""
    store = MemoryStore()
    projection = Counts(mode)
    async with memory_engine.open(store, plugins=plugin(projection)) as engine:
        thread = await engine.create_thread("t")
        await said(engine, "a", "b")
        expected = await thread.views.read("counts")
        change = ProjectionChange("counts", 1, {"odd": b"{}", "user_message": None}, 2)
        await store.write_projection("t", change)
        divergence = (await thread.replay.verify()).divergence
        assert divergence is not None
        assert ("projection", "counts") == (divergence.kind, divergence.reducer)
        await thread.replay.rebuild()
        assert (expected, True) == (await thread.views.read("counts"), (await thread.replay.verify()).ok)


async def test_an_inline_projection_that_fails_refuses_the_event() -> None:
    """Rows and log never part: the event is refused, the error names the projection, the thread goes on."""
    async with memory_engine.open(":memory:", plugins=plugin(Counts("inline"))) as engine:
        thread = await engine.create_thread("t")
        await said(engine, "a")
        with pytest.raises(errors.ReducerError, match="projection counts"):
            await thread.dispatch_all([e.UserMessage(content="b"), e.SystemFailure(content="boom")])
        await said(engine, "c")
        assert {"user_message": {"count": 2, "last": 2}} == await thread.views.read("counts")
        assert (2, True) == ((await thread.info()).events, (await thread.replay.verify()).ok)


async def test_a_sender_is_not_hurt_by_anothers_failing_projection() -> None:
    """Of events that share a commit, the one on which an inline projection fails is refused alone."""
    async with memory_engine.open(":memory:", plugins=plugin(Counts("inline"))) as engine:
        thread = await engine.create_thread("t")
        sent = [
            e.UserMessage(content="a"),
            e.UserMessage(content="b"),
            e.SystemFailure(content="boom"),
            e.UserMessage(content="c"),
        ]
        outcomes = await asyncio.gather(*map(thread.dispatch, sent), return_exceptions=True)
        assert [False, False, True, False] == [isinstance(o, errors.ReducerError) for o in outcomes]
        assert {"user_message": {"count": 3, "last": 3}} == await thread.views.read("counts")


async def test_a_commit_that_fails_takes_its_rows_back() -> None:
    """What was computed for it is forgotten, so that the next event is not counted twice."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store, plugins=plugin(Counts("inline"))) as engine:
        thread = await engine.create_thread("t")
        store.fail(errors.StorageBusy("disk", 1.0))
        with pytest.raises(errors.StorageBusy):
            await said(engine, "a")
        await said(engine, "b")
        assert {"user_message": {"count": 1, "last": 1}} == await thread.views.read("counts")


async def test_the_view_of_a_failing_projection_is_an_error() -> None:
    """It stands at its checkpoint; the log, other threads and the sender do not care."""
    async with memory_engine.open(":memory:", plugins=plugin(Counts("async"))) as engine:
        for name in "tu":
            await engine.create_thread(name)
        thread = engine.thread("t")
        await thread.dispatch_all([e.UserMessage(content="a"), e.SystemFailure(content="boom")])
        await said(engine, "b", thread_id="u")
        with pytest.raises(errors.ReducerError, match="boom"):
            await thread.views.read("counts")
        await said(engine, "c")
        assert {"user_message": {"count": 1, "last": 1}} == await engine.thread("u").views.read("counts")
        assert 3 == (await thread.info()).events


class Noticing(MemoryStore):
    """A store that says when a projection wrote, and that outlives the engine it was opened with."""

    def __init__(self) -> None:
        super().__init__()
        self.written: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    async def write_projection(self, thread_id: str, change: ProjectionChange, *, replace: bool = False) -> None:
        """Write, then say so."""
        await super().write_projection(thread_id, change, replace=replace)
        self.written.put_nowait((thread_id, change.checkpoint))

    async def close(self) -> None:
        """Stay open: the test goes on with another engine."""


async def test_the_worker_follows_the_log() -> None:
    """Asynchronous rows are written without anybody asking, also those of threads that fell behind."""
    store = Noticing()
    async with memory_engine.open(store) as engine:
        await engine.create_thread("t")
        await said(engine, "a", "b")
    async with memory_engine.open(store, plugins=plugin(Counts("async"))) as engine:
        assert ("t", 2) == await store.written.get()
        await engine.create_thread("u")
        await said(engine, "c", thread_id="u")
        assert ("u", 1) == await store.written.get()


async def test_a_view_nobody_registered_is_a_key_error() -> None:
    """Asking for an unknown projection is a mistake in the program."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        with pytest.raises(KeyError, match="nothing"):
            await thread.views.read("nothing")


async def test_two_projections_of_one_name_are_refused() -> None:
    """The later would silently win."""
    with pytest.raises(errors.DuplicateRegistration, match="counts"):
        async with memory_engine.open(":memory:", plugins=plugin(Counts("async"), Counts("inline"))):
            raise AssertionError("it opened")


async def test_a_projection_that_could_never_run_is_refused_at_open() -> None:
    """Its class in place of an instance, and an `apply` that nobody would await."""

    class Waiting(Counts):
        async def apply(self, rows: Rows[dict[str, int]], event: RecordedEvent) -> None:  # type: ignore[override]
            raise AssertionError("it ran")

    wrong: list[tuple[Any, str]] = [
        (Counts, "a projection cannot be .*: it is a class"),
        (Waiting("inline"), "apply of projection 'counts' .* write it without async"),
    ]
    for given, why in wrong:
        made = Plugin("p")
        made.projection(given)
        with pytest.raises(errors.InvalidArgument, match=why):
            async with memory_engine.open(":memory:", plugins=[made]):
                raise AssertionError("it opened")


async def test_a_view_that_lists_an_untracked_event_is_refused() -> None:
    """It would be given every event; the error names the projection and the class, and says what to do."""
    made = Plugin("p")
    made.projection(Partly(e.MemoryForget, e.UserMessage))
    with pytest.raises(errors.UntrackedEvents) as raised:
        async with memory_engine.open(":memory:", plugins=[made]):
            raise AssertionError("it opened")
    assert errors.UntrackedEvents("partly", ("UserMessage",)) == raised.value
    assert "declare these with tracked=True" in str(raised.value)


@pytest.mark.parametrize(
    ("events", "types"), [((e.MemoryForget,), {"memory_forget", "thread_cleared"}), ((e.UserMessage,), None)]
)
def test_events_of_one_sort_are_taken(events: tuple[type[Event], ...], types: set[str] | None) -> None:
    """All tracked: a view, whose rows go with a clearing. None: a projection of every event, as without a list."""
    one = Partly(*events)
    check_events(one)
    assert types == event_types(one)


def test_rows_remember_what_changed() -> None:
    """Reads see what was put or dropped; `discard` takes it back, `keep` makes it stay."""
    rows = Rows(int, {"a": b"1", "b": b"2"})
    rows.put("c", 3)
    rows.drop("a")
    rows.put("b", 20)
    assert (["b", "c"], None, 20, {"a": None, "b": b"20", "c": b"3"}) == (
        list(rows.keys()), rows.get("a"), rows.get("b"), rows.changes().rows
    )  # fmt: skip
    rows.discard()
    assert (["a", "b"], {}) == (list(rows.keys()), rows.changes().rows)
    rows.drop("a")
    rows.keep()
    assert ({"b": b"2"}, {}) == (rows.encoded(), rows.changes().rows)
