"""Views: inline projections of tracked events, which cost nothing until they are used."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, Event, Plugin, RecordedEvent, Rows, UserMessage, errors
from memory_engine import events as e
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.projections import ProjectionMode, seq_key
from memory_engine.storage.memory import MemoryStore
from memory_engine.storage.sqlite import SQLiteStore
from memory_engine.store.protocol import ProjectionChange, Store
from memory_engine.testing import FaultyStore
from memory_engine.thread import handle_of

notes = Plugin("notes")


@notes.event("noted", tracked=True)
class Noted(Event):
    """Something worth a row."""

    content: str


class Notes:
    """A row for each note, by seq; forgetting drops it."""

    name = "notes"
    row: type[str] = str
    events: tuple[type[Event], ...] = (Noted, e.MemoryForget)

    def __init__(
        self, *, lazy: bool = False, version: int = 1, prefix: str = "", mode: ProjectionMode = "inline"
    ) -> None:
        self.mode = mode
        self.lazy = lazy
        self.version = version
        self._prefix = prefix

    def apply(self, rows: Rows[str], event: RecordedEvent) -> None:
        """Put, or drop."""
        if isinstance(event.event, Noted):
            if event.event.content == "look":
                rows.get("anything")
            rows.put(seq_key(event.seq), self._prefix + event.event.content)
        elif isinstance(event.event, e.MemoryForget):
            for seq in event.event.seqs:
                rows.drop(seq_key(seq))


def with_notes(
    *, lazy: bool = False, version: int = 1, prefix: str = "", mode: ProjectionMode = "inline"
) -> list[Plugin]:
    """A plug-in with the event and such a view."""
    made = Plugin("notes", events=list(notes.events))
    made.projection(Notes(lazy=lazy, version=version, prefix=prefix, mode=mode))
    return [made]


class Reading(FaultyStore):
    """A store that notes which projections' rows were read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.read_rows: list[str] = []
        self.read_pages = 0

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """Note, and pass on."""
        self.read_rows.append(projection)
        return await super().rows(projection, version, thread_id)

    async def read(
        self, thread_id: str, *, after: int, upto: int, limit: int, types: Collection[str] | None = None
    ) -> Sequence[StoredEvent]:
        """Note, and pass on."""
        self.read_pages += 1
        return await super().read(thread_id, after=after, upto=upto, limit=limit, types=types)

    async def close(self) -> None:
        """Stay open for the next engine."""


async def test_a_thread_opens_without_its_views() -> None:
    """Opening, dispatching other events and reading the context touch no row of any view."""
    store = Reading(MemoryStore())
    async with memory_engine.open(store, plugins=with_notes()) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(Noted(content="one"))
    store.read_rows.clear()
    async with memory_engine.open(store, plugins=with_notes()) as engine:
        thread = engine.thread("t")
        await thread.dispatch(UserMessage(content="hi"))
        await thread.context()
        assert [] == store.read_rows
        pages = store.read_pages  # what people said, for the brief of the context
        assert {"0000000001": "one"} == await thread.views.read("notes")
        assert (["notes"], pages) == (store.read_rows, store.read_pages)


async def test_a_lazy_view_is_written_without_being_read() -> None:
    """Its events put and drop rows unseen; the last rows, their number and bytes come from the store."""
    store = Reading(MemoryStore())
    async with memory_engine.open(store, plugins=with_notes(lazy=True)) as engine:
        thread = await engine.create_thread("t")
        receipts = [await thread.dispatch(Noted(content=text)) for text in ("one", "two", "three")]
        assert "outbox" not in store.read_rows
        notes_view = kernel_of(engine).projections[-1]
        assert [("0000000002", "two"), ("0000000003", "three")] == await handle_of(thread).rows_between(
            notes_view, limit=2, latest=True
        )
        assert (3, len('"one""two""three"')) == await handle_of(thread).measure(notes_view)
        assert ("two", None) == (
            await handle_of(thread).row(notes_view, "0000000002"),
            await thread.row(notes_view, "000000000"),
        )
        between = await handle_of(thread).rows_between(notes_view, seq_key(1), seq_key(3))
        assert ["one", "two"] == [value for _, value in between]
        await thread.forget(event_ids=[receipts[1].event_id])
        assert "notes" not in store.read_rows
        assert ["one", "three"] == list((await thread.views.read("notes")).values())
        await thread.dispatch(Noted(content="four"))
        assert ["one", "three", "four"] == list((await thread.views.read("notes")).values())
        assert (await thread.replay.verify()).ok


@pytest.mark.parametrize("mode", ["inline", "async"])
async def test_one_row_and_a_span_of_rows_are_read_now_and_as_of_a_moment(mode: ProjectionMode) -> None:
    """From the store, of an inline view and of one that follows; in the past folded; of a scope that is not there."""
    async with memory_engine.open(":memory:", plugins=with_notes(mode=mode)) as engine:
        view = kernel_of(engine).projections[-1]
        thread = await engine.create_thread()
        await thread.dispatch_all([Noted(content=str(n)) for n in range(1, 8)])
        past = await thread.at(5)
        for handle, last in ((thread, 7), (past, 5)):
            keys = [seq_key(n) for n in range(1, last + 1)]
            assert "2" == await handle_of(handle).row(view, seq_key(2))
            assert None is await handle_of(handle).row(view, seq_key(last + 1))
            assert keys == [key for key, _ in await handle_of(handle).rows_between(view)]
            assert keys[1:3] == [key for key, _ in await handle_of(handle).rows_between(view, keys[1], keys[3])]
            assert keys[1:2] == [key for key, _ in await handle_of(handle).rows_between(view, keys[1], keys[3], 1)]
            assert keys[2:3] == [
                key for key, _ in await handle_of(handle).rows_between(view, keys[1], keys[3], 1, latest=True)
            ]
            assert keys[-2:] == [key for key, _ in await handle_of(handle).rows_between(view, limit=2, latest=True)]
            assert [] == await handle_of(handle).rows_between(view, keys[3], keys[1])
            assert [] == await handle_of(handle).rows_between(view, limit=0, latest=True)
        assert [] == await handle_of(engine.user("nobody")).rows_between(view)
        with pytest.raises(errors.InvalidArgument):
            await handle_of(thread).rows_between(view, 7)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgument):
            await handle_of(thread).row(view, None)  # type: ignore[arg-type]


async def test_a_lazy_view_may_not_look() -> None:
    """What it would see depends on what was loaded: so it sees an error, and nothing is written."""
    async with memory_engine.open(":memory:", plugins=with_notes(lazy=True)) as engine:
        thread = await engine.create_thread()
        with pytest.raises(errors.ReducerError, match="lazy=False"):
            await thread.dispatch(Noted(content="look"))
        assert 0 == (await thread.info()).events


async def test_another_version_is_made_from_the_log(tmp_path: Path) -> None:
    """Rows of another version are left alone; the new ones are there at the first look."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path, plugins=with_notes()) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([Noted(content="one"), UserMessage(content="hi"), Noted(content="two")])
        await thread.views.rows(kernel_of(engine).projections[-1])
    async with memory_engine.open(path, plugins=with_notes(version=2, prefix="v2 ")) as engine:
        assert ["v2 one", "v2 two"] == list((await engine.thread("t").views.read("notes")).values())
        await engine.thread("t").dispatch(Noted(content="three"))
    async with memory_engine.open(path, plugins=with_notes()) as engine:
        assert ["one", "two", "three"] == list((await engine.thread("t").views.read("notes")).values())
        assert (await engine.thread("t").replay.verify()).ok


async def test_a_process_without_the_view_leaves_it_behind_not_wrong() -> None:
    """Events that came while nobody folded them are caught up with, found by the head's marks."""
    store = Reading(MemoryStore())
    bare = Plugin("bare", events=list(notes.events))
    async with memory_engine.open(store, plugins=with_notes()) as engine:
        await (await engine.create_thread("t")).dispatch(Noted(content="one"))
    async with memory_engine.open(store, plugins=[bare]) as engine:
        await engine.thread("t").dispatch(Noted(content="two"))
    async with memory_engine.open(store, plugins=with_notes()) as engine:
        await engine.thread("t").dispatch(Noted(content="three"))
        assert ["one", "two", "three"] == list((await engine.thread("t").views.read("notes")).values())


async def test_a_fork_has_the_views_of_its_past() -> None:
    """Its rows are made from the log that it shares, up to its seq."""
    async with memory_engine.open(":memory:", plugins=with_notes()) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([Noted(content=text) for text in ("one", "two", "three")])
        fork = await thread.fork(at=2)
        assert ["one", "two"] == list((await fork.views.read("notes")).values())
        await fork.dispatch(Noted(content="other"))
        assert ["one", "two", "other"] == list((await fork.views.read("notes")).values())
        assert (await fork.replay.verify()).ok


async def test_a_view_of_the_past() -> None:
    """`at` folds the log up to a seq; beyond the head there is no past."""
    async with memory_engine.open(":memory:", plugins=with_notes()) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([Noted(content="one"), UserMessage(content="hi"), Noted(content="two")])
        found = [list((await thread.views.read("notes", at=seq)).values()) for seq in range(4)]
        assert [[], ["one"], ["one"], ["one", "two"]] == found
        with pytest.raises(ValueError, match="seqs 1 to 3"):
            await thread.views.read("notes", at=4)


async def test_verify_finds_an_altered_row_and_rebuild_mends_it(tmp_path: Path) -> None:
    """A row that the log does not give is named; rebuilt views equal those before."""
    store = await SQLiteStore.open(str(tmp_path / "m.db"))
    async with memory_engine.open(store, plugins=with_notes()) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(Noted(content="one"))
        before = await thread.views.read("notes")
        await store.write_projection("t", ProjectionChange("notes", 1, {"0000000001": b'"other"'}, 1))
        report = await thread.replay.verify()
        assert report.divergence is not None
        assert ("projection", "notes") == (report.divergence.kind, report.divergence.reducer)
        await thread.replay.rebuild()
        assert before == await thread.views.read("notes")
        assert (await thread.replay.verify()).ok


async def test_two_processes_change_one_view(tmp_path: Path) -> None:
    """A stale process loses nothing: it looks again before it folds its own event."""
    path = str(tmp_path / "m.db")
    async with (
        memory_engine.open(path, plugins=with_notes()) as one,
        memory_engine.open(path, plugins=with_notes()) as other,
    ):
        await one.create_thread("t")
        for n in range(3):
            await one.thread("t").dispatch(Noted(content=f"one {n}"))
            await other.thread("t").dispatch(Noted(content=f"other {n}"))
        expected = ["one 0", "other 0", "one 1", "other 1", "one 2", "other 2"]
        assert expected == list((await other.thread("t").views.read("notes")).values())
        assert (await other.thread("t").replay.verify()).ok


async def test_an_event_that_changes_no_row_leaves_no_view_behind() -> None:
    """Its seq is noted all the same: the log is not read again at the next look."""
    store = Reading(MemoryStore())
    async with memory_engine.open(store, plugins=with_notes()) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([Noted(content="one"), e.MemoryForget(seqs=(7,)), UserMessage(content="hi")])
    async with memory_engine.open(store, plugins=with_notes()) as engine:
        store.read_pages = 0
        assert {"0000000001": "one"} == await engine.thread("t").views.read("notes")
        assert 0 == store.read_pages


async def test_reads_follow_other_processes(tmp_path: Path) -> None:
    """What another process has committed is seen by whoever only reads: state, context and views."""
    path, config = str(tmp_path / "m.db"), EngineConfig(follow_s=1e-9)
    async with (
        memory_engine.open(path, plugins=with_notes()) as writer,
        memory_engine.open(path, plugins=with_notes(lazy=True), config=config) as reader,
    ):
        await writer.create_thread("t")
        seen = reader.thread("t")
        for n in range(1, 4):
            await writer.thread("t").dispatch_all([Noted(content=str(n)), UserMessage(content=str(n))])
            assert n == len(await seen.state())
            assert str(n) == (await seen.context()).messages[-1]["content"]
            assert [str(m) for m in range(1, n + 1)] == list((await seen.views.read("notes")).values())
            assert (
                str(n)
                == (await handle_of(seen).rows_between(kernel_of(reader).projections[-1], limit=1, latest=True))[0][1]
            )
        await writer.user("u").preferences.update("tone", "dry")
        assert "dry" == await reader.user("u").preferences.get("tone")
        await writer.user("u").preferences.update("tone", "warm")
        assert "warm" == await reader.user("u").preferences.get("tone")
