"""Clearing a thread: what it shows is that of a new one, and what it was can still be read."""

import asyncio
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.projections.base import Rows
from memory_engine.testing import FakeCompactor, Hangs
from memory_engine.thread import handle_of
from tests.places import on_both_back_ends, place_of


@pytest.fixture
async def told(thread: Thread) -> Thread:
    """A thread that has said and noted something in every view of its own, and was cleared since, at seq `head`."""
    await tell(thread)
    return thread


async def tell(thread: Thread) -> None:
    """Put something into the state and into views."""
    await thread.dispatch(e.SessionStarted(content="You sell bicycles.", session_id="s1"))
    await thread.dispatch(e.UserMessage(content="My bicycle is blue."))
    await thread.scratchpad.write("The bicycle has a flat tyre")
    await thread.memory.append("episodic", "We spoke of bicycles")
    await thread.conversation.prepare_messages("Is the bicycle in stock?")
    await thread.conversation.finalize_cycle("Is the bicycle in stock?", "Yes, two of them.")


async def shown(thread: Thread) -> dict[str, object]:
    """What a thread shows: its context, its conversation, its scratchpad, its memory, and its views."""
    views = {
        name.name: dict((await thread.views.rows(name)).encoded()) for name in handle_of(thread).kernel.projections
    }
    return {
        "context": (await thread.context()).messages,
        "chunks": [chunk.text for chunk in (await thread.state()).chunks()],
        "conversation": await thread.conversation.memory(),
        "scratchpad": await thread.scratchpad.read(),
        "views": views,
        "found": [hit.text for hit in (await thread.search("bicycle")).hits],
    }


async def test_a_cleared_thread_shows_what_a_new_one_does(engine: Engine, told: Thread) -> None:
    """State, context, search and every view; and again once it was loaded anew, and rebuilt."""
    assert (await told.search("bicycle")).hits
    await told.admin.clear("the person asked for it")
    new = await shown(await engine.create_thread("new"))
    assert new == await shown(told)
    assert (await told.replay.verify()).ok
    await told.replay.rebuild()
    assert new == await shown(told)


async def test_what_was_before_can_be_read(told: Thread) -> None:
    """As of an earlier moment everything is as it was, also in a search."""
    before = await handle_of(told).last_seq()
    was = await shown(await told.at(before))
    await told.admin.clear()
    assert was == await shown(await told.at(before))
    assert (await told.search("bicycle", at=before)).hits
    assert before + 1 == len([event async for event in told.events()])


async def test_it_goes_on_as_a_new_thread_would(told: Thread) -> None:
    """New words are shown and found, and none of the old; messages are compared with the new ones alone."""
    await told.admin.clear()
    await told.dispatch(e.UserMessage(content="My car is red."))
    await told.scratchpad.write("The car is a convertible")
    assert ["My car is red."] == [chunk.text for chunk in (await told.state()).chunks()][:1]
    assert "car" in str((await told.search("car")).hits)
    assert "bicycle" not in str((await told.search("bicycle")).hits)
    exchange = await told.conversation.exchanges()
    assert ["My car is red."] == [one.question for one in exchange]
    old, new = ({"role": "user", "content": f"My {thing}."} for thing in ("bicycle is blue", "car is red"))
    answer = {"role": "assistant", "content": "Noted."}
    with pytest.raises(errors.NotContinued):
        await told.record([old, answer], new_only=True)
    assert 1 == len(await told.record([new, answer], new_only=True))


async def test_why_says_what_cleared_a_chunk(told: Thread) -> None:
    """With the seq and the reason."""
    chunk = (await told.state()).last()
    assert chunk is not None
    receipt = await told.admin.clear("a new matter")
    facts = (await told.replay.why(chunk.id)).facts
    assert {"seq": receipt.seq, "reason": "a new matter"} == facts["cleared"]
    assert not facts["live"]


async def test_of_two_forks_one_is_cleared(told: Thread) -> None:
    """A fork from before begins with all, one from after with nothing; the origin is as it was."""
    before = await handle_of(told).last_seq()
    fork = await told.fork()
    await fork.admin.clear()
    assert (await told.context()).messages
    after = await fork.fork()
    early = await fork.fork(before)
    assert ([], True) == ((await after.context()).messages, bool((await early.context()).messages))
    assert (await early.replay.verify()).ok
    assert (await after.replay.verify()).ok


async def test_what_was_said_before_can_still_be_forgotten(told: Thread) -> None:
    """Then it is not shown as of an earlier moment either."""
    before = await handle_of(told).last_seq()
    await told.admin.clear()
    await told.forget(seqs=[2])
    assert "blue" not in str((await (await told.at(before)).context()).messages)
    assert (await told.replay.verify()).ok


async def test_a_clearing_waits_for_a_compaction_under_way() -> None:
    """Its result goes with the rest; where events do not wait for compactions, it is given up."""
    for blocking in ("whole", "commit"):
        compactor = FakeCompactor(Hangs("never"))
        policy = CompactionPolicy(enabled=False, deadline_s=0.05, blocking=blocking)
        config = EngineConfig(compaction=policy)
        async with memory_engine.open(":memory:", config=config, compactor=compactor) as engine:
            thread = await engine.create_thread("t")
            await thread.dispatch_all([e.UserMessage(content=f"Word {n} of a long talk. " * 20) for n in range(12)])
            compacting = asyncio.ensure_future(thread.compact())
            await compactor.begun.wait()
            await thread.admin.clear()
            await asyncio.wait([compacting])
            assert compacting.exception() is not None
            assert [] == list((await thread.state()).chunks())
            assert (await thread.replay.verify()).ok


NOTED = e.ScratchpadWritten(content="The bicycle has a flat tyre")


@on_both_back_ends
@pytest.mark.parametrize(
    "batch",
    [
        [e.ThreadCleared(), e.ThreadCleared()],
        [e.MemoryForget(seqs=(5,)), e.ThreadCleared()],
        [e.ThreadCleared(), e.CycleStarted(question="In stock?"), e.MemoryForget(seqs=(5,)), e.ThreadCleared()],
        [e.ThreadCleared(), e.CycleStarted(question="In stock?"), e.ThreadCleared(), NOTED],
    ],
    ids=["cleared twice", "forgotten before", "forgotten between", "noted after"],
)
async def test_rows_that_were_dropped_in_the_same_commit_do_not_come_back(
    back_end: str, batch: list[memory_engine.Event], tmp_path: Path
) -> None:
    """Whatever else one commit did before its clearing: here, in a later process, and as the log gives them."""
    place = place_of(back_end, tmp_path)
    async with memory_engine.open(place) as engine:
        thread = await engine.create_thread("t")
        await tell(thread)
        await thread.dispatch_all(batch)
        left = await shown(thread)
        assert {} == left["views"]["conversation"]  # type: ignore[index]
        assert ("blue" in str(left), "stock" in str(left)) == (False, False)
        report = await thread.replay.verify()
        assert report.ok, report.divergence
    async with memory_engine.open(place) as engine:
        assert left == await shown(engine.thread("t"))


class Counter:
    """Counts the messages of a thread, for good."""

    name, version, mode, row = "counter", 1, "inline", int
    survives_clear = True

    def apply(self, rows: Rows[int], event: memory_engine.RecordedEvent) -> None:
        """One more."""
        rows.put("n", (rows.get("n") or 0) + 1)


@on_both_back_ends
async def test_views_of_another_kind_may_keep_their_rows(back_end: str, tmp_path: Path) -> None:
    """And all others are empty in every process that has the thread open."""
    place = place_of(back_end, tmp_path)
    plugin = memory_engine.Plugin("counting")
    plugin.projection(Counter())
    async with memory_engine.open(place, plugins=[plugin]) as one, memory_engine.open(place, plugins=[plugin]) as other:
        here = await one.create_thread("t")
        await tell(here)
        there = other.thread("t")
        assert (await there.search("bicycle")).hits
        await here.admin.clear()
        await there.dispatch(e.UserMessage(content="Hello again"))
        assert ["Hello again"] == [chunk.text for chunk in (await there.state()).chunks()]
        assert "bicycle" not in str((await there.search("bicycle")).hits)
        assert () == await there.scratchpad.read()
        assert {"n": await handle_of(there).last_seq()} == await there.views.read("counter")
        assert (await there.replay.verify()).ok
