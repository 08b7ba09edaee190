"""Facts whose threads cannot take them: reported, kept or refused, and in nobody's way."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

import memory_engine
from memory_engine import Engine, MemoryShared
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidIdentifier, StorageBusy, ThreadClosed
from memory_engine.events import Destination, FactsDelivered
from memory_engine.projections.outbox import OUTBOX
from memory_engine.runtime.delivery import Relay
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from memory_engine.views.tool_cache.view import Flights
from tests.staying import StayOpen


def fact(text: str, to: str) -> MemoryShared:
    """A fact for an agent."""
    return MemoryShared(destination=Destination("agent", to), layer="episodic", content=text)


async def known(engine: Engine, agent: str) -> list[str]:
    """What an agent remembers."""
    return [entry.content for entry in await engine.agent(agent).memory.entries("episodic")]


async def archived(engine: Engine, agent: str) -> None:
    """Let an agent's thread be there, and then take nothing any more."""
    await engine.agent(agent).memory.append("episodic", "old")
    await engine.agent(agent).admin.archive()


async def test_a_fact_that_can_never_arrive_blocks_no_other(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """It leaves the outbox as refused, with the reason in the log, is reported once, and the others arrive."""
    await archived(engine, "gone")
    sender = engine.agent("a")
    await sender.dispatch_all([fact("one", "gone"), fact("two", "b"), fact("three", "gone")])
    with pytest.raises(ThreadClosed):
        await sender.views.delivered()
    assert ["two"] == await known(engine, "b")
    (note,) = [event.event for event in await sender.replay.latest(9) if isinstance(event.event, FactsDelivered)]
    assert (1, 2) == (len(note.facts), len(note.refused))
    assert all("gone" in refused.reason for refused in note.refused)
    caplog.clear()
    await sender.views.delivered()
    await engine.settle()
    assert (0, []) == (len(await sender.views.rows(OUTBOX)), caplog.records)
    assert [] == [report for report in await engine.verify() if not report.ok]


async def test_a_fact_that_cannot_arrive_now_waits_in_its_order() -> None:
    """What comes after it for the same thread waits with it; what is for others does not."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        sender = engine.agent("a")
        for name in "bc":
            await engine.agent(name).memory.append("episodic", "old")
        kernel_of(engine)[Relay].touched = lambda thread_id: None  # type: ignore[method-assign]  # only when it is asked to
        await sender.dispatch_all([fact("one", "b"), fact("two", "b"), fact("three", "c")])
        store.fail(StorageBusy("busy", 0.0))
        with pytest.raises(StorageBusy):
            await sender.views.delivered()
        assert (["old"], ["old", "three"]) == (await known(engine, "b"), await known(engine, "c"))
        await sender.views.delivered()
        assert ["old", "one", "two"] == await known(engine, "b")


async def test_facts_that_come_during_a_delivery_arrive_too() -> None:
    """Nobody has to ask for them: what is dispatched while others are carried goes with the next round."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        sender = engine.agent("a")
        await engine.agent("b").memory.append("episodic", "old")
        await sender.dispatch(e.ExternalInject(content="hello"))
        hold = store.hold(commit=2)
        await sender.dispatch(fact("one", "b"))
        await hold.begun.wait()  # it is on its way
        await sender.dispatch(fact("two", "b"))
        hold.release()
        await engine.settle()
        assert ["old", "one", "two"] == await known(engine, "b")


@pytest.mark.parametrize(
    "destination", [Destination("agent", ""), Destination("user", "a\0b"), Destination("tenant", "")]
)
async def test_a_fact_for_nobody_is_refused_at_once(engine: Engine, destination: Destination) -> None:
    """What no thread can be called is found before anything is written."""
    thread = await engine.create_thread()
    with pytest.raises(InvalidIdentifier):
        await thread.dispatch(MemoryShared(destination=destination, layer="episodic", content="x"))
    assert 0 == (await thread.info()).events


async def test_a_paused_thread_holds_up_nobody_else(stay_open: StayOpen) -> None:
    """Its facts wait for the end of the pause; reads of others, other deliveries and closing do not."""
    kept = FaultyStore(MemoryStore())
    stay_open(kept)
    async with memory_engine.open(kept) as engine:
        await engine.agent("b").memory.append("episodic", "old")
        await engine.agent("b").admin.pause()
        await engine.agent("a").dispatch_all([fact("one", "b"), fact("two", "c")])
        await engine.settle()
        assert (["old"], ["two"]) == (await known(engine, "b"), await known(engine, "c"))
    async with memory_engine.open(kept) as engine:
        assert ["two"] == await known(engine, "c")
        waiting = asyncio.ensure_future(engine.agent("a").views.delivered())
        await engine.settle()
        await engine.agent("b").admin.resume()
        await waiting
        assert ["old", "one"] == await known(engine, "b")


async def test_what_waited_for_a_pause_goes_on_by_itself(engine: Engine) -> None:
    """Whoever ends the pause need not know who waited."""
    await engine.agent("b").memory.append("episodic", "old")
    await engine.agent("b").admin.pause()
    await engine.agent("a").dispatch(fact("one", "b"))
    await engine.settle()
    await engine.agent("b").admin.resume()
    await engine.settle()
    assert ["old", "one"] == await known(engine, "b")


async def test_closing_does_not_wait_for_a_pause(engine: Engine) -> None:
    """Somebody who waits for a fact to reach a paused thread is told that the engine closes."""
    await engine.agent("b").memory.append("episodic", "old")
    await engine.agent("b").admin.pause()
    await engine.agent("a").dispatch(fact("one", "b"))
    waiting = kernel_of(engine).tasks.spawn(engine.agent("a").views.delivered())
    await engine.settle()
    await engine.close()
    assert waiting.done()


class Busy(FaultyStore):
    """A store that is busy when it is asked which outboxes hold anything."""

    times = 1

    async def holders(self, projection: str, version: int) -> Sequence[str]:
        """Busy, then not."""
        self.times -= 1
        if self.times == 0:
            raise StorageBusy("busy", 0.0)
        return await super().holders(projection, version)


async def test_recovery_is_tried_again(caplog: pytest.LogCaptureFixture, stay_open: StayOpen) -> None:
    """A store that was busy when the engine was opened does not leave facts of dead processes behind."""
    kept = Busy(MemoryStore())
    kept.times = -1
    stay_open(kept)
    async with memory_engine.open(kept) as engine:
        kernel_of(engine)[Relay].touched = lambda thread_id: None  # type: ignore[method-assign]  # it dies before
        await engine.agent("a").dispatch(fact("one", "b"))
    kept.times = 1
    with caplog.at_level(logging.CRITICAL):
        async with memory_engine.open(kept) as engine:
            with pytest.raises(StorageBusy):
                await known(engine, "b")
            assert ["one"] == await known(engine, "b")


async def test_an_archived_sender_is_no_trouble(caplog: pytest.LogCaptureFixture, stay_open: StayOpen) -> None:
    """Its facts arrive once, though it takes no note of that any more."""
    kept = FaultyStore(MemoryStore())
    stay_open(kept)
    async with memory_engine.open(kept) as engine:
        kernel_of(engine)[Relay].touched = lambda thread_id: None  # type: ignore[method-assign]  # it dies before
        await engine.agent("a").dispatch(fact("one", "b"))
        await engine.agent("a").admin.archive()
    for _ in range(2):
        async with memory_engine.open(kept) as engine:
            assert ["one"] == await known(engine, "b")
    assert [] == caplog.records


async def test_nothing_is_kept_of_threads_that_are_let_go() -> None:
    """Locks, flights, caches and what is known of scopes are bounded by the threads that are open."""
    config = memory_engine.EngineConfig(open_threads_max=4)
    async with memory_engine.open(":memory:", config=config) as engine:
        for n in range(40):
            sender = engine.agent(f"a{n}")
            await sender.dispatch(fact("one", f"b{n}"))
            await sender.views.delivered()
            await sender.memory.search(None, "one")
            await sender.tool_cache.cached_call("look", {}, _looked, duration=1)
            await sender.scratchpad.read()
        await engine.settle()
        kept = (
            kernel_of(engine).caches._of,
            kernel_of(engine)[Relay]._locks,
            kernel_of(engine)[Relay]._under_way,
            kernel_of(engine).made(Flights),
        )
        assert [True] * 4 == [len(one) <= 6 for one in kept]


async def _looked() -> str:
    return "result"
