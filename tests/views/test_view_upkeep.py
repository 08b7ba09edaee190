"""Views brought in under trouble: busy stores, folds that fail, writers without pause, types tracked late, tenants."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import EngineConfig, Event, Plugin, RecordedEvent, Rows, UserMessage, errors
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.events import Destination
from memory_engine.projections import ProjectionMode, seq_key
from memory_engine.runtime.scoped import scope_of
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from memory_engine.testing.contract_rows import HOSTILE
from memory_engine.views.layers.view import Memory
from memory_engine.views.preferences.fold import PREFERENCES


class Unreadable(FaultyStore):
    """A store whose rows of one projection cannot be read for a while."""

    def __init__(self, error: Exception) -> None:
        super().__init__(MemoryStore())
        self.error: Exception | None = error

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """Fail, or pass on."""
        if self.error is not None and projection == PREFERENCES.name:
            raise self.error
        return await super().rows(projection, version, thread_id)


@pytest.mark.parametrize("error", [errors.StorageBusy("busy", 0.0), RuntimeError("foreign")])
async def test_a_view_that_cannot_be_read_fails_only_who_needs_it(error: Exception) -> None:
    """Those who stand in the queue beside them go on, nobody waits for ever, and a retry finds all well."""
    store = Unreadable(error)
    async with memory_engine.open(store, config=EngineConfig(open_threads_max=1)) as engine:
        thread = await engine.create_thread()
        await engine.create_thread()  # the first is not in memory any more
        update = e.PreferenceUpdated(key="tone", value="dry")
        hold = store.hold()
        first = asyncio.ensure_future(thread.dispatch(UserMessage(content="first")))
        await hold.begun.wait()  # what comes now waits together
        beside = asyncio.ensure_future(thread.dispatch(UserMessage(content="beside")))
        needs = asyncio.ensure_future(thread.dispatch(update))
        await asyncio.sleep(0)
        hold.release()
        assert [1, 2] == [(await first).seq, (await beside).seq]
        with pytest.raises(type(error)):
            await needs
        store.error = None
        await thread.dispatch(update)
        assert ["tone"] == list(await thread.views.read("preferences"))


@pytest.mark.parametrize("path", [":memory:", "m.db"])
async def test_a_reader_has_its_turn_among_writers_without_pause(tmp_path: Path, path: str) -> None:
    """However fast others write, a read waits for a commit or two, not for the end of all."""
    async with memory_engine.open(path if path == ":memory:" else str(tmp_path / path)) as engine:
        user = engine.user("u1")
        await user.preferences.update("a", 0)
        written, ended = 0, False

        async def write(key: str) -> None:
            nonlocal written
            while not ended and written < 2_000:
                await user.dispatch(e.PreferenceUpdated(key=key, value=written))
                written += 1

        writers = [asyncio.ensure_future(write(key)) for key in "abc"]
        while written < 10:  # noqa: ASYNC110 - any round of the loop will do
            await asyncio.sleep(0)
        before = written
        await user.preferences.get("a")
        waited, ended = written - before, True
        await asyncio.gather(*writers)
        assert waited < 20


late = Plugin("late")


@late.event("late_noted")
class LateNoted(Event):
    """A type that a first release does not track."""

    content: str


class LateNotes:
    """A row for each."""

    name = "late_notes"
    version = 1
    mode: ProjectionMode = "inline"
    row: type[str] = str
    lazy = False

    def __init__(self, *events: type[Event]) -> None:
        self.events = events

    def apply(self, rows: Rows[str], event: RecordedEvent) -> None:
        """Put."""
        rows.put(seq_key(event.seq), event.event.content)  # type: ignore[union-attr]


async def test_a_type_that_is_tracked_late_needs_a_rebuild(tmp_path: Path) -> None:
    """What was logged before has no mark: verify says so, and a rebuild sets it."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path, plugins=[late]) as engine:
        await (await engine.create_thread("t")).dispatch(LateNoted(content="one"))
    later = Plugin("later")

    @later.event("late_noted", tracked=True)
    class Tracked(Event):
        """The same type in the release after."""

        content: str

    later.projection(LateNotes(Tracked))
    async with memory_engine.open(path, plugins=[later]) as engine:
        thread = engine.thread("t")
        assert {} == await thread.views.read("late_notes")
        assert not (await thread.replay.verify()).ok
        await thread.replay.rebuild()
        assert {"0000000001": "one"} == await thread.views.read("late_notes")
        assert (await thread.replay.verify()).ok


@pytest.mark.parametrize("looks", [True, False])
async def test_forks_at_any_seq_of_an_archived_thread(looks: bool) -> None:
    """Each has the views of its seq, is written to, and agrees with its log, looked at before or not."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
        for n in range(3):
            await thread.dispatch(e.PreferenceUpdated(key=f"k{n}", value=n))
            await thread.dispatch(UserMessage(content="hi"))
        if looks:
            await thread.views.read("preferences")
        await thread.admin.archive()
        for seq in range(7):
            fork = await thread.fork(at=seq)
            keys = [f"k{n}" for n in range(3) if 2 * n + 1 <= seq]
            if looks:
                assert keys == list(await fork.views.read("preferences"))
            await fork.dispatch(e.PreferenceUpdated(key="new", value=0))
            assert [*keys, "new"] == list(await fork.views.read("preferences"))
            assert (await fork.replay.verify()).ok


NAMES = st.sampled_from([*(name for name in HOSTILE if "\0" not in name), "a", "A", "a/b", "a%2Fb", "%", "*", "ä", "ä"])


@settings(max_examples=40)
@given(NAMES, NAMES, NAMES, st.sampled_from(["user", "agent", "tenant"]))
async def test_no_id_reaches_another_tenant(mine: str, theirs: str, name: str, kind: str) -> None:
    """Whatever ids are made of: what one tenant's user, agent or own thread holds no other tenant's handle sees."""
    async with memory_engine.open(":memory:") as engine:
        source = await engine.create_thread(user_id=name, tenant_id=mine)
        to = Destination("tenant", mine) if kind == "tenant" else Destination(kind, name, mine)  # type: ignore[arg-type]
        await source.dispatch(e.MemoryShared(destination=to, layer="semantic", content="secret", key="secret"))
        await source.views.delivered()
        assert "secret" == getattr(await Memory(scope_of(kernel_of(engine), to)).recall("secret"), "value", "")
        foreign = Destination("tenant", theirs) if kind == "tenant" else Destination(kind, name, theirs)  # type: ignore[arg-type]
        if mine != theirs:
            assert None is await Memory(scope_of(kernel_of(engine), foreign)).recall("secret")
            with pytest.raises(errors.InvalidEvent):
                await source.dispatch(e.MemoryShared(destination=foreign, layer="semantic", content="x", key="x"))
        others = [engine.user(name), engine.agent(name)]
        assert [None, None] == [await other.memory.recall("secret") for other in others]
