"""Dispatching to a thread as one has seen it: read, change, write, and never over what another has written."""

import asyncio
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, NewEvent, Thread, errors
from memory_engine import events as e
from tests.places import on_both_back_ends, place_of
from tests.scripted_compactors import Held


def say(text: str) -> e.UserMessage:
    """A message."""
    return e.UserMessage(content=text)


async def head(thread: Thread) -> int:
    """The seq of the last event."""
    return (await thread.info()).events


async def test_an_event_goes_to_a_thread_as_it_was_seen(thread: Thread) -> None:
    """0 is a thread without events; each receipt has the seq to expect next."""
    first = await thread.dispatch(say("one"), expected_seq=0)
    second = await thread.dispatch(say("two"), expected_seq=first.seq)
    both = await thread.dispatch_all([say("three"), say("four")], expected_seq=second.seq)
    assert [1, 2, 3, 4] == [receipt.seq for receipt in (first, second, *both)]


async def test_what_another_has_written_is_not_written_over(engine: Engine, thread: Thread) -> None:
    """The error names both seqs, and the log is as it was."""
    await thread.dispatch_all([say("one"), say("two")])
    before = (await thread.info()).head_hash
    for seq in (0, 1, 3, 99):
        with pytest.raises(errors.Conflict) as refused:
            await engine.dispatch("t", say("late"), expected_seq=seq)
        assert ("t", seq, 2) == (refused.value.thread_id, refused.value.expected_seq, refused.value.head)
        with pytest.raises(errors.Conflict):
            await engine.dispatch_all("t", [say("late"), say("later")], expected_seq=seq)
    assert before == (await thread.info()).head_hash
    assert 3 == (await engine.dispatch("t", say("in time"), expected_seq=2)).seq


async def test_what_was_recorded_gives_its_receipts_though_the_head_has_moved(thread: Thread) -> None:
    """A retry of a save whose answer was lost is the same save; a new event beside a recorded one is not."""
    events = [NewEvent(say("one"), id="a"), NewEvent(say("two"), id="b")]
    receipts = await thread.dispatch_all(events, expected_seq=0)
    await thread.dispatch(say("three"))
    assert receipts == await thread.dispatch_all(events, expected_seq=0)
    assert receipts[0] == await thread.dispatch(say("one"), event_id="a", expected_seq=0)
    assert receipts == await thread.dispatch_all(events, expected_seq=3)
    with pytest.raises(errors.Conflict):
        await thread.dispatch_all([events[0], NewEvent(say("new"), id="c")], expected_seq=0)
    with pytest.raises(errors.IdempotencyConflict):
        await thread.dispatch(say("other"), event_id="a", expected_seq=0)
    assert 3 == await head(thread)


async def test_of_many_at_once_one_is_first(thread: Thread) -> None:
    """Those that come together with others, or with plain events, are compared with what these left."""
    sent = [thread.dispatch(say(f"{n}"), expected_seq=0) for n in range(10)]
    outcomes = await asyncio.gather(*sent, thread.dispatch(say("plain")), return_exceptions=True)
    assert 9 == sum(isinstance(outcome, errors.Conflict) for outcome in outcomes)
    assert 2 == await head(thread)


@pytest.mark.parametrize("wrong", [-1, True, "1", 1.0])
async def test_what_is_not_a_seq_is_refused(thread: Thread, wrong: object) -> None:
    """Before anything is written."""
    with pytest.raises(errors.InvalidArgument):
        await thread.dispatch(say("one"), expected_seq=wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument):
        await thread.dispatch_all([say("one")], expected_seq=wrong)  # type: ignore[arg-type]
    assert 0 == await head(thread)


async def test_a_compaction_in_between_changes_nothing_that_one_holds() -> None:
    """Its events move the head; a save from before it fits, and so does one that waits behind it."""
    compactor = Held()
    config = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(":memory:", config=config, compactor=compactor) as engine:
        thread = await engine.create_thread("t")
        talk = [say(f"Word {n} of a long talk. " * 20) for n in range(12)]
        await thread.dispatch_all(talk)
        compacting = asyncio.ensure_future(thread.compact())
        await compactor.entered.wait()
        waiting = asyncio.ensure_future(thread.dispatch(say("meanwhile"), expected_seq=12))
        behind = asyncio.ensure_future(thread.dispatch(say("too late"), expected_seq=12))
        await asyncio.sleep(0)
        compactor.release.set()
        await compacting
        assert 15 == (await waiting).seq
        with pytest.raises(errors.Conflict):
            await behind
        seen = (await thread.dispatch_all(talk, expected_seq=15))[-1].seq
        await thread.compact()
        assert seen + 3 == (await thread.dispatch(say("after"), expected_seq=seen)).seq
        with pytest.raises(errors.Conflict):
            await thread.dispatch(say("late"), expected_seq=seen)


async def test_a_pause_in_between_changes_nothing_that_one_holds(thread: Thread) -> None:
    """An event that waited for its end is compared when it is written."""
    await thread.dispatch(say("one"))
    await thread.admin.pause()
    fits = asyncio.ensure_future(thread.dispatch(say("two"), expected_seq=1))
    late = asyncio.ensure_future(thread.dispatch(say("three"), expected_seq=1))
    await asyncio.sleep(0)
    await thread.admin.resume()
    assert 4 == (await fits).seq
    with pytest.raises(errors.Conflict):
        await late


async def test_a_scope_is_made_by_what_expects_nothing(engine: Engine) -> None:
    """What expects something of a user who is not there makes nothing."""
    user = engine.user("u1")
    with pytest.raises(errors.Conflict):
        await user.dispatch(say("one"), expected_seq=4)
    assert [] == await engine.threads()
    assert 1 == (await user.dispatch(say("one"), expected_seq=0)).seq
    with pytest.raises(errors.Conflict):
        await user.dispatch_all([say("two")], expected_seq=0)


async def test_a_fork_goes_on_from_the_past_that_it_shares(thread: Thread) -> None:
    """Its head is the seq where it was forked."""
    await thread.dispatch_all([say("one"), say("two")], expected_seq=0)
    fork = await thread.fork(1)
    with pytest.raises(errors.Conflict):
        await fork.dispatch(say("other"), expected_seq=0)
    assert 2 == (await fork.dispatch(say("other"), expected_seq=1)).seq


@on_both_back_ends
async def test_engines_that_share_a_store_write_over_nothing(back_end: str, tmp_path: Path) -> None:
    """One has the thread in memory as it was: the store knows better, also of a head that it has not seen yet."""
    place = place_of(back_end, tmp_path)
    async with memory_engine.open(place) as one, memory_engine.open(place) as other:
        here, there = await one.create_thread("t"), other.thread("t")
        await here.dispatch(say("one"))
        await there.dispatch(say("two"), expected_seq=1)
        with pytest.raises(errors.Conflict) as refused:
            await here.dispatch(say("late"), expected_seq=1)
        assert 2 == refused.value.head
        await there.dispatch(say("three"))
        assert 4 == (await here.dispatch(say("four"), expected_seq=3)).seq
        again = [NewEvent(say("mine"), id="mine")]
        [receipt] = await here.dispatch_all(again, expected_seq=4)
        assert (receipt,) == await there.dispatch_all(again, expected_seq=4)
        assert (await there.replay.verify()).ok


async def test_an_event_of_a_plugin_may_be_upkeep() -> None:
    """It says so where it is declared; in an engine that does not know it, it is like any other."""
    plugin = memory_engine.Plugin("beating")

    @plugin.event("heart_beat", chunks="none", upkeep=True)
    class HeartBeat(e.Event):
        """The agent is alive."""

    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([HeartBeat(), HeartBeat()])
        assert 3 == (await thread.dispatch(say("one"), expected_seq=0)).seq
