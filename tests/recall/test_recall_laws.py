"""Laws of search: an index is what the log says, however it came about, and holds nothing of what was forgotten."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Event, Thread
from memory_engine import events as e
from memory_engine.errors import StorageBusy
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from tests.recall_samples import QUERIES, contents, made_anew
from tests.views.test_view_laws import CONFIG, EVENTS, TEXTS, each

SEARCHED = st.integers(0, 14)
"""Before which event the first search comes."""


async def answers(thread: Thread, at: int | None = None) -> list[object]:
    """What every query gives, but for the words of the hits' scores."""
    found = [await thread.search(query, at=at, limit=50) for query in QUERIES]
    return [[(hit.seq, hit.n, hit.score, hit.text) for hit in one] for one in found]


@settings(max_examples=50)
@given(EVENTS, SEARCHED)
async def test_an_index_kept_by_its_events_equals_one_made_of_the_log(events: Sequence[Event], first: int) -> None:
    """Whenever the first search came, what later searches find is what a new index finds."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread("t")
        await each(thread, events[:first])
        await thread.search("first")
        await each(thread, events[first:])
        kept, found = await contents(thread), await answers(thread)
        await thread.replay.rebuild()
        assert kept == await contents(thread)
        await made_anew(thread)
        assert kept == await contents(thread)
        assert found == await answers(thread)


@settings(max_examples=30)
@given(st.lists(st.builds(e.UserMessage, content=TEXTS), max_size=10))
async def test_a_search_as_of_a_seq_finds_what_was_found_then(events: Sequence[Event]) -> None:
    """While nothing is forgotten, the past is searched as it was."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread("t")
        then = {}
        for event in events:
            await each(thread, [event])  # with the compaction that it may begin
            then[(await thread.info()).events] = await answers(thread)
        assert then == {seq: await answers(thread, at=seq) for seq in then}


@settings(max_examples=40)
@given(EVENTS, SEARCHED, st.data())
async def test_what_is_forgotten_is_in_no_index(events: Sequence[Event], first: int, data: st.DataObject) -> None:
    """After a forget no passage of the forgotten events is left, at any seq, nor in an index that is made later."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread("t")
        await each(thread, events[:first])
        await thread.search("first")
        await each(thread, events[first:])
        logged = [event async for event in thread.events()]
        if not logged:
            return
        gone = data.draw(st.sets(st.sampled_from([event.id for event in logged]), min_size=1, max_size=3))
        seqs = {event.seq for event in logged if event.id in gone}
        await thread.forget(event_ids=sorted(gone))
        for _ in range(2):
            whole = await contents(thread)
            assert set() == {place >> 12 for place in whole} & seqs
            assert set() == {hit.seq for query in QUERIES for hit in await thread.search(query, at=len(logged))} & seqs
            await thread.replay.rebuild()
            await made_anew(thread)


@settings(max_examples=20)
@given(EVENTS, SEARCHED, st.integers(0, 14))
async def test_an_index_outlives_its_process(events: Sequence[Event], first: int, cut: int) -> None:
    """Closed and opened again at any place, the index is that of an engine that ran through."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "m.db")
        async with memory_engine.open(path, config=CONFIG) as engine:
            thread = await engine.create_thread("t")
            await each(thread, events[:first])
            await thread.search("first")
            await each(thread, events[first:cut])
        async with memory_engine.open(path, config=CONFIG) as engine:
            thread = engine.thread("t")
            await each(thread, events[max(first, cut) :])
            kept = await contents(thread)
            await thread.replay.rebuild()
            assert kept == await contents(thread)
            await made_anew(thread)
            assert kept == await contents(thread)


@settings(max_examples=20)
@given(EVENTS, st.integers(1, 14), st.sampled_from(["before", "after"]))
async def test_an_index_survives_a_failed_commit(events: Sequence[Event], commit: int, when: str) -> None:
    """A commit that fails, or whose outcome is lost, leaves the index as the log says."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store, config=CONFIG) as engine:
        thread = await engine.create_thread("t")
        await thread.search("first")
        store.fail(StorageBusy("busy", 0.0), commit=commit, when=when)  # type: ignore[arg-type]
        for number, event in enumerate(events):
            try:
                await thread.dispatch(event, event_id=f"e{number}")
            except StorageBusy:
                await thread.dispatch(event, event_id=f"e{number}")
        await thread.compaction.settle()
        kept = await contents(thread)
        try:
            await thread.replay.rebuild([], search=True)
        except StorageBusy:  # with few events the planned failure is this commit's
            await thread.replay.rebuild([], search=True)
        assert kept == await contents(thread)
        await made_anew(thread)
        assert kept == await contents(thread)


@settings(max_examples=25)
@given(EVENTS, SEARCHED, st.integers(0, 14))
async def test_a_fork_is_searched_as_its_own(events: Sequence[Event], first: int, cut: int) -> None:
    """A fork finds its shared past and its own events, and its thread finds none of those."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread("t")
        await each(thread, events[:first])
        await thread.search("first")
        await each(thread, events[first:])
        head = (await thread.info()).events
        fork = await thread.fork(at=min(cut, head))
        before = await contents(thread)
        await fork.dispatch(e.UserMessage(content="only in the fork"))
        assert "only in the fork" in [hit.text for hit in await fork.search("only in the fork")]
        assert before == await contents(thread)
        assert (await contents(thread, at=min(cut, head)) if cut else {}).keys() - {-1} <= (await contents(fork)).keys()


async def test_the_past_is_searched_without_what_was_forgotten_since(tmp_path: Path) -> None:
    """Also where the index lags behind: it had come as far as the past that is asked for, and not to the forgetting."""
    path = tmp_path / "m.db"
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        for text in ("The safe opens with 4711.", "It rains."):
            await thread.dispatch(e.UserMessage(content=text))
        async with memory_engine.open(path) as other:  # the first engine has not heard of the index
            assert 1 == (await other.thread("t").search("safe"))[0].seq
        await thread.forget(seqs=[1])
    async with memory_engine.open(path) as engine:
        assert [] == [hit.text for hit in await engine.thread("t").search("safe", at=2) if hit.seq == 1]
