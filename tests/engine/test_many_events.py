"""Very many events in one call: others have the loop meanwhile, and all of them are recorded, or none."""

import asyncio
from collections.abc import Callable

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, NewEvent, UserMessage
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.errors import Conflict, EventRefused, IdempotencyConflict
from memory_engine.store.protocol import CommitUnit
from memory_engine.thread import handle_of
from tests.cancelling import by_task, moments

CONFIG = EngineConfig(compaction=CompactionPolicy(enabled=False))
COUNT = 3_000


def said(count: int = COUNT, first: int = 0) -> list[UserMessage]:
    """Messages that are told apart by their numbers."""
    return [UserMessage(content=f"Parcel {n}") for n in range(first, first + count)]


async def test_others_have_the_loop_while_many_events_are_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of another task are counted up to the commit; what was sent before and behind is in its order."""
    turns = 0
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread()
        await thread.state()
        at_commit: list[tuple[int, int]] = []
        commit: Callable[[CommitUnit], asyncio.Future[None]] = kernel_of(engine).store.commit

        def noted(unit: CommitUnit) -> "asyncio.Future[None]":
            at_commit.append((len(unit.events), turns))
            return commit(unit)

        monkeypatch.setattr(kernel_of(engine).store, "commit", noted)

        async def turn() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        turning = asyncio.ensure_future(turn())
        first = asyncio.ensure_future(thread.dispatch(UserMessage(content="before")))
        many = asyncio.ensure_future(thread.dispatch_all(said()))
        await asyncio.sleep(0)
        last = asyncio.ensure_future(thread.dispatch(UserMessage(content="behind")))
        receipts = await many
        await asyncio.gather(first, last)
        turning.cancel()
        expected = ["before", *(one.content for one in said()), "behind"]
        assert all(one == chunk.text for one, chunk in zip(expected, (await thread.state()).chunks(), strict=True))
        assert list(range(2, COUNT + 2)) == [receipt.seq for receipt in receipts]
        assert 1 == len({receipt.recorded_at_us for receipt in receipts})
        (whole,) = [n for n, (count, _) in enumerate(at_commit) if count == COUNT]
        assert 10 < at_commit[whole][1] - at_commit[whole - 1][1]
        assert (await thread.replay.verify()).ok


@pytest.mark.parametrize("place", [0, 1_500, 2_999])
async def test_one_that_is_refused_refuses_all(place: int) -> None:
    """Wherever it stands; the thread takes the next event as if nothing had been, and so do its views."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content="first"))
        events: list[e.Event] = [*said()]
        events[place] = e.TodoDeleted(id="nobody's")
        with pytest.raises(EventRefused):
            await thread.dispatch_all(events)
        assert 2 == (await thread.dispatch(UserMessage(content="second"))).seq
        assert (await thread.replay.verify()).ok


async def test_ids_and_expectations_hold_for_many() -> None:
    """Sent again they are recorded once, with new ones between; another text under an id, or a late reader, is told."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread()
        known = [NewEvent(one, f"id {n}") for n, one in enumerate(said())]
        first = await thread.dispatch_all([*known, known[0]])
        assert COUNT == len({receipt.seq for receipt in first})
        assert [one.hash for one in first] == [one.hash for one in await thread.dispatch_all([*known, known[0]])]
        more = [*known[:1_000], *(NewEvent(one, f"new {n}") for n, one in enumerate(said(500, COUNT))), *known[1_000:]]
        again = await thread.dispatch_all(more)
        assert (COUNT + 500, first[0].hash) == (await handle_of(thread).last_seq(), again[0].hash)
        with pytest.raises(IdempotencyConflict):
            await thread.dispatch_all([*known[:-1], NewEvent(UserMessage(content="other"), known[-1].id)])
        with pytest.raises(Conflict):
            await thread.dispatch_all(said(), expected_seq=1)
        assert COUNT + 500 == await handle_of(thread).last_seq()
        assert COUNT == len(await thread.dispatch_all(said(), expected_seq=COUNT + 500))


async def test_many_that_are_cancelled_are_whole_or_absent() -> None:
    """Whoever sent them; the next dispatch of the thread is behind all of them, or where they would be."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        for moment in moments(growth=0.5):
            thread = await engine.create_thread()
            await by_task(lambda t=thread: t.dispatch_all(said(200)), moment)  # type: ignore[misc]
            seq = (await thread.dispatch(UserMessage(content="next"))).seq
            assert seq in (1, 201), moment
        assert [] == [report for report in await engine.verify() if not report.ok]
