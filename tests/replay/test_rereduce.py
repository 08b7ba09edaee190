"""Reducing events anew: what a missing or wrong reducer left out comes into the state by a recorded event."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given as cases
from hypothesis import settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import (
    Add,
    Chunk,
    CompactionPolicy,
    Engine,
    EngineConfig,
    Plugin,
    Reduction,
    State,
    StateView,
    Thread,
    errors,
)
from memory_engine import events as e
from memory_engine.core.reduction import ReduceContext, appended
from memory_engine.replay.transition import rising
from tests.engine.test_laws import EVENTS
from tests.scripted_compactors import Scripted

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))


@e.event("order_placed")
class OrderPlaced(e.Event):
    """An event of a plug-in."""

    content: str


def order(view: StateView, event: OrderPlaced, ctx: ReduceContext) -> Reduction:
    """An order, in the place where it was made."""
    return appended(Chunk(id=ctx.new_id(), type="order", content=event.content))


def loud(view: StateView, event: OrderPlaced, ctx: ReduceContext) -> Reduction:
    """Another reducer of the same events."""
    return appended(Chunk(id=ctx.new_id(), type="order", content=event.content.upper()))


def listed(view: StateView, event: OrderPlaced, ctx: ReduceContext) -> Reduction:
    """A list of orders: a container, and a child for each."""
    box = view.named("orders")
    new = [] if box is not None else [Chunk(id=ctx.new_id(), type="orders", name="orders", is_container=True)]
    one = Chunk(id=ctx.new_id(), type="order", content=event.content)
    inside = box.id if box is not None else new[0].id
    return Reduction((*(Add(chunk.id) for chunk in new), Add(one.id, container=inside)), (*new, one))


def plugin(reducer: object = None) -> Plugin:
    """The plug-in, with its reducer or without."""
    made = Plugin("shop", events=[OrderPlaced])
    if reducer is not None:
        made.reducer(OrderPlaced, name="order")(reducer)  # type: ignore[type-var]
    return made


def user(text: str) -> e.UserMessage:
    """A message."""
    return e.UserMessage(content=text)


async def texts(thread: Thread, *, at: int | None = None) -> list[str]:
    """The chunks of the state, in order."""
    return [chunk.text for chunk in (await thread.state(at=at)).everything()]


async def silent(path: Path, *, thanks: str = "Thanks") -> str:
    """A log whose orders no reducer was there for."""
    file = str(path / "shop.db")
    async with memory_engine.open(file, plugins=[plugin()], config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([user("Hello"), OrderPlaced(content="two chairs"), user(thanks)])
        await thread.dispatch_all([OrderPlaced(content="a table"), user("Bye")])
    return file


def opened(file: str, reducer: object = order) -> "memory_engine.wiring.OpenedEngine":  # type: ignore[name-defined]
    """An engine that has the reducer."""
    return memory_engine.open(file, plugins=[plugin(reducer)], config=NEVER, compactor=Scripted())


async def test_a_missing_reducer_is_made_up_for(tmp_path: Path) -> None:
    """A dry run says what would change and changes nothing; then the chunks stand where they would have stood."""
    file = await silent(tmp_path)
    async with opened(file) as engine:
        thread = engine.thread("t")
        assert not (await thread.verify()).ok
        dry = await thread.rereduce(1, dry_run=True)
        assert ([2, 4], ["two chairs", "a table"], 0) == (
            [one.seq for one in dry.mended], [chunk.text for chunk in dry.added], dry.seq
        )  # fmt: skip
        assert 5 == (await thread.info()).events
        report = await thread.rereduce(1, reason="the shop was not installed")
        assert (6, dry.mended) == (report.seq, report.mended)
        expected = ["Hello", "two chairs", "Thanks", "a table", "Bye"]
        assert expected == await texts(thread)
        assert ["Hello", "Thanks", "Bye"] == await texts(thread, at=5)
        chunks = [chunk for chunk in (await thread.state()).chunks() if chunk.type == "order"]
        assert [(2, ("2.0",)), (4, ("4.0",))] == [(chunk.said_at, chunk.parent_ids) for chunk in chunks]
        assert (await thread.verify()).ok
    async with opened(file) as engine:
        thread = engine.thread("t")
        assert expected == await texts(thread)
        await thread.rebuild()
        assert expected == await texts(thread)
        assert (await thread.verify()).ok
        why = (await thread.why(chunks[0].id)).as_data()
        assert "two chairs" in str(why)


async def test_it_is_done_once(tmp_path: Path) -> None:
    """Where nothing differs any more it is refused, and so are a seq that is not there and a past."""
    async with opened(await silent(tmp_path)) as engine:
        thread = engine.thread("t")
        await thread.rereduce(2)
        for again in (1, 2):
            with pytest.raises(errors.CannotRereduce, match="nothing differs"):
                await thread.rereduce(again)
        for within in (3, 6):
            with pytest.raises(errors.CannotRereduce, match="begin there, or after it"):
                await thread.rereduce(within)
        with pytest.raises(errors.SeqNotInLog):
            await thread.rereduce(0)
        with pytest.raises(errors.PastIsReadOnly):
            await (await thread.at(3)).rereduce(1)
        assert 6 == (await thread.info()).events


async def test_a_wrong_reducer_is_mended(tmp_path: Path) -> None:
    """The old chunk goes and the new one stands in its place, also where it was marked."""
    async with opened(await silent(tmp_path), order) as engine:
        await engine.thread("t").rereduce(1)
        await engine.thread("t").dispatch(OrderPlaced(content="a lamp"))
        await engine.thread("t").mark_critical("7.0")
    async with opened(str(tmp_path / "shop.db"), loud) as engine:
        thread = engine.thread("t")
        report = await thread.rereduce(7)
        assert (["a lamp"], ["A LAMP"]) == ([c.text for c in report.removed], [c.text for c in report.added])
        assert ["Hello", "two chairs", "Thanks", "a table", "Bye", "A LAMP"] == await texts(thread)
        found = (await thread.verify()).divergence
        assert found is not None
        assert 2 == found.seq  # those before were mended by another reducer, and stay as they are


async def test_it_can_be_undone_and_done_again(tmp_path: Path) -> None:
    """The state is as it was, the log says both; verify finds the events again that are reduced otherwise."""
    async with opened(await silent(tmp_path)) as engine:
        thread = engine.thread("t")
        await thread.rereduce(1)
        receipt = await thread.undo_rereduce(reason="not now")
        assert (7, ["Hello", "Thanks", "Bye"]) == (receipt.seq, await texts(thread))
        found = (await thread.verify()).divergence
        assert found is not None
        assert (2, "operations") == (found.seq, found.kind)
        with pytest.raises(errors.CannotRereduce, match="not undone"):
            await thread.undo_rereduce()
        await thread.rereduce(1)
        assert ["Hello", "two chairs", "Thanks", "a table", "Bye"] == await texts(thread)
        assert (await thread.verify()).ok


async def test_what_a_wrong_reducer_had_brought_comes_back_with_the_undoing(tmp_path: Path) -> None:
    """At its place, with what it led back to."""
    async with opened(await silent(tmp_path), order) as engine:
        await engine.thread("t").dispatch_all([OrderPlaced(content="a lamp"), user("Later")])
    async with opened(str(tmp_path / "shop.db"), loud) as engine:
        thread = engine.thread("t")
        await thread.rereduce(6)
        assert ["Hello", "Thanks", "Bye", "A LAMP", "Later"] == await texts(thread)
        await thread.undo_rereduce()
        assert ["Hello", "Thanks", "Bye", "a lamp", "Later"] == await texts(thread)
        assert 6 == [chunk.said_at for chunk in (await thread.state()).chunks()][3]


async def test_forgettings_and_compactions_count(tmp_path: Path) -> None:
    """What was forgotten does not come; what comes stands beside the summary of its neighbours."""
    file = await silent(tmp_path, thanks="Thank you very much indeed for all of this, and good night. " * 4)
    async with opened(file, None) as engine:
        thread = engine.thread("t")
        gone = [one.id async for one in thread.events() if one.seq == 4]
        await thread.forget(event_ids=gone)
        await thread.compact(["1.0", "3.0"])
    async with opened(file) as engine:
        thread = engine.thread("t")
        report = await thread.rereduce(1)
        assert ["two chairs"] == [chunk.text for chunk in report.added]
        held = await texts(thread)
        assert ("two chairs", "Bye") == (held[1], held[-1])
        assert "a table" not in str(held)
        assert (await thread.verify()).ok
        made = [one.id async for one in thread.events() if one.seq == 2]
        await thread.forget(event_ids=made)
        assert "two chairs" not in str(await texts(thread))
        assert "two chairs" not in str(await texts(thread, at=report.seq))


async def test_a_container_comes_with_its_contents(tmp_path: Path) -> None:
    """Chunks inside a chunk are placed inside it."""
    async with opened(await silent(tmp_path), listed) as engine:
        thread = engine.thread("t")
        await thread.rereduce(1)
        assert ["Hello", "", "two chairs", "a table", "Thanks", "Bye"] == await texts(thread)
        assert (await thread.verify()).ok
        await thread.undo_rereduce()
        assert ["Hello", "Thanks", "Bye"] == await texts(thread)


async def test_an_event_that_cannot_be_reduced_is_named(tmp_path: Path) -> None:
    """Its class is not known, or its reducer refuses it: nothing is written."""

    def failing(view: StateView, event: OrderPlaced, ctx: ReduceContext) -> Reduction:
        raise ValueError("out of stock")

    file = await silent(tmp_path)
    async with memory_engine.open(file, config=NEVER) as engine:
        with pytest.raises(errors.CannotRereduce, match=r"event 2 \(order_placed\).*open its plug-in"):
            await engine.thread("t").replay.rereduce(1)
    async with opened(file, failing) as engine:
        with pytest.raises(errors.CannotRereduce, match="out of stock"):
            await engine.thread("t").rereduce(1)
        assert 5 == (await engine.thread("t").info()).events


async def test_an_event_between_making_and_writing_is_seen(tmp_path: Path) -> None:
    """The event is refused on any other state than the one it was made of."""
    async with opened(await silent(tmp_path)) as engine:
        thread = engine.thread("t")
        stale = e.ThreadRereduced(from_seq=1, removed=("1.0",), seen=4)
        with pytest.raises(errors.EventRefused) as refused:
            await thread.dispatch(stale)
        assert isinstance(refused.value.__cause__, errors.StaleEvent)


async def test_a_redaction_takes_what_was_mended_out_too(tmp_path: Path) -> None:
    """The texts of an event stand in the mending as well."""
    from memory_engine.replay.export.redaction import Redaction

    async with opened(await silent(tmp_path)) as engine:
        thread: Thread = engine.thread("t")
        await thread.replay.rereduce(1)
        await thread.replay.export(tmp_path / "out.jsonl", redaction=Redaction(types=("order_placed",)))
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert ("Thanks" in written, "two chairs" in written) == (True, False)


@cases(st.lists(st.none() | st.binary(max_size=2)))
def test_the_longest_rising_run_is_kept(keys: list[bytes | None]) -> None:
    """It rises strictly, and none is longer."""
    found = [keys[n] for n in rising(keys)]
    assert found == sorted({key for key in found if key is not None})
    best: dict[int, int] = {}
    for n, key in enumerate(keys):
        if key is not None:
            best[n] = 1 + max((best[m] for m in best if (keys[m] or b"") < key), default=0)
    assert max(best.values(), default=0) == len(found)


async def test_nothing_of_a_sound_thread_changes(engine: Engine) -> None:
    """Every event is reduced as it was."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all([user("Hello"), e.TaskStarted(goal="Win."), e.TodoSet(items=(e.TodoItem("1", "run"),))])
    await thread.scratchpad.write("a note")
    with pytest.raises(errors.CannotRereduce, match="their reducers still give the state that stands"):
        await thread.replay.rereduce(1, dry_run=True)


def shape(state: State) -> list[tuple[object, ...]]:
    """What a state shows, without the ids of its chunks."""
    return [
        (chunk.type, chunk.text, chunk.retention, chunk.name, chunk.label, chunk.status, chunk.said_at)
        for chunk in state.everything()
    ]


@settings(max_examples=40)
@cases(st.lists(st.one_of(st.builds(OrderPlaced, content=st.text(max_size=5)), EVENTS), max_size=12), st.integers(1, 4))
async def test_the_state_becomes_that_of_a_thread_with_the_reducer(events: list[e.Event], from_seq: int) -> None:
    """Whatever was dispatched: the same chunks in the same order, from the seq on; undone, it is as it was."""
    late = [
        e.ExecutionResume() if isinstance(event, OrderPlaced) and seq < from_seq else event
        for seq, event in enumerate(events, 1)
    ]
    async with memory_engine.open(":memory:", plugins=[plugin(order)], config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(late)
        wanted = shape(await thread.state())
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/log.db"
        async with memory_engine.open(file, plugins=[plugin()], config=NEVER) as engine:
            thread = await engine.create_thread("t")
            await thread.dispatch_all(events)
            before = shape(await thread.state())
        async with memory_engine.open(file, plugins=[plugin(order)], config=NEVER) as engine:
            thread = engine.thread("t")
            try:
                await thread.replay.rereduce(from_seq)
            except (errors.CannotRereduce, errors.SeqNotInLog):
                assert wanted == before
                return
            assert wanted == shape(await thread.state())
            assert (from_seq > 1) or (await thread.replay.verify()).ok
            await thread.replay.undo_rereduce()
            assert before == shape(await thread.state())


def rich(view: StateView, event: OrderPlaced, ctx: ReduceContext) -> Reduction:
    """A chunk of which every field that an event may restore is set."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type="order",
            content=event.content,
            name="order:1",
            label="shop",
            calls=(e.ToolCall("c", "pay"),),
            call_id="b",
            final=False,
            response_id="r",
            status="open",
            native='{"anthropic":{"message":{"content":[]}}}',
        )
    )


async def test_a_chunk_that_comes_keeps_all_that_its_reducer_gave(tmp_path: Path) -> None:
    """Also what a provider said of it: only ids, parents and estimates are others."""
    path = str(tmp_path / "x.db")
    async with memory_engine.open(path, config=NEVER, plugins=[plugin(lambda view, event, ctx: Reduction())]) as engine:
        await (await engine.create_thread("t")).dispatch(OrderPlaced(content="a lamp"))
    async with memory_engine.open(path, config=NEVER, plugins=[plugin(rich)]) as engine:
        thread = engine.thread("t")
        await thread.replay.rereduce(1)
        (mended,) = (await thread.state()).chunks()
        other = await engine.create_thread("o")
        await other.dispatch(OrderPlaced(content="a lamp"))
        (first,) = (await other.state()).chunks()
        assert (await thread.replay.verify()).ok
    differing = {name for name in Chunk.__struct_fields__ if getattr(mended, name) != getattr(first, name)}
    assert differing <= {"id", "parent_ids"}
