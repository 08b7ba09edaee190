"""Dispatch: in order, all or nothing, once for each id, and never in the way of another thread."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

import memory_engine
from memory_engine import BlockingReason, CompactionPolicy, Engine, EngineConfig, NewEvent, Thread, errors
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.runtime.threads import OpenThreads
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import (
    FakeCompactor,
    FaultyStore,
    Hangs,
    ManualClock,
    RecordingObserver,
    SequentialIds,
)
from tests.cancelling import moments


def say(text: str) -> e.UserMessage:
    """A message."""
    return e.UserMessage(content=text)


async def texts(thread: Thread) -> list[str]:
    """The messages of a thread's log, in order."""
    return [str(r.event.content) for r in await thread.replay.latest(999) if isinstance(r.event, e.UserMessage)]


async def passes(rounds: int = 20) -> None:
    """Let every task that can go on do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def small(capacity: int, timeout_s: float = 30.0) -> EngineConfig:
    """An engine with a small queue."""
    return EngineConfig(queue_capacity=capacity, queue_timeout_s=timeout_s)


# Receipts.


async def test_a_receipt_says_what_became_durable() -> None:
    """Place, time, id, operations, chunks and the state after the event."""
    async with memory_engine.open(":memory:", clock=ManualClock(5_000_000), ids=SequentialIds()) as engine:
        thread = await engine.create_thread("t")
        receipt = await thread.dispatch(say("Hello"), event_id="first")
        state = await receipt.state.load()
        assert ("t", 1, "first", datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)) == (
            receipt.thread_id, receipt.seq, receipt.event_id, receipt.recorded_at
        )  # fmt: skip
        assert (["Hello"], 1, [state.last()]) == (
            [c.text for c in receipt.chunks],
            state.seq,
            list(receipt.chunks),
        )
        assert receipt.hash == (await thread.info()).head_hash


async def test_an_envelope_comes_back() -> None:
    """When it happened, what caused it and what it belongs to are recorded with the event."""
    moment = datetime(1969, 7, 20, 20, 17, tzinfo=UTC)
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.dispatch(say("Landed"), occurred_at=moment, causation_id="c", correlation_id="k")
        await engine.dispatch(thread.id, NewEvent(say("Again"), "x", moment, "c", "k"))
        for recorded in await thread.replay.latest(2):
            assert (moment, "c", "k") == (
                recorded.occurred_at,
                recorded.causation_id,
                recorded.correlation_id,
            )


async def test_each_receipt_of_a_batch_has_its_own_state(engine: Engine) -> None:
    """The state of a receipt is the one after its event, not after the batch."""
    thread = await engine.create_thread()
    receipts = await thread.dispatch_all([say("a"), say("b"), say("c")])
    assert [1, 2, 3] == [len(await receipt.state.load()) for receipt in receipts]


async def test_no_events_are_no_receipts(engine: Engine) -> None:
    """An empty batch is done at once."""
    assert () == await (await engine.create_thread()).dispatch_all([])


# All or nothing.


async def test_a_batch_is_whole_or_absent(engine: Engine) -> None:
    """If the last event is refused, none is recorded, and the thread goes on."""
    thread = await engine.create_thread()
    bad = e.ThreadSeeded(chunks=(e.InitialChunk("x", retention="odd"),))
    with pytest.raises(errors.ReducerError) as caught:
        await thread.dispatch_all([say("a"), say("b"), bad])
    assert ("reduce_thread_seeded", "thread_seeded") == (caught.value.reducer, caught.value.event_type)
    await thread.dispatch(say("c"))
    assert ["c"] == await texts(thread)


async def test_batches_do_not_mingle(engine: Engine) -> None:
    """Batches sent at once are recorded one after the other, in the order in which they were sent."""
    thread = await engine.create_thread()
    batches = [[say(f"{letter}{n}") for n in range(4)] for letter in "abc"]
    await asyncio.gather(*map(thread.dispatch_all, batches))
    assert [f"{letter}{n}" for letter in "abc" for n in range(4)] == await texts(thread)


async def test_a_refused_sender_does_not_hurt_its_neighbours(engine: Engine) -> None:
    """Of senders whose events share a commit, only the one that is wrong gets an error."""
    thread = await engine.create_thread()
    bad = e.ThreadSeeded(chunks=(e.InitialChunk("x", retention="odd"),))
    outcomes = await asyncio.gather(*map(thread.dispatch, (say("a"), say("b"), bad, say("c"))), return_exceptions=True)
    assert [False, False, True, False] == [isinstance(outcome, errors.ReducerError) for outcome in outcomes]
    assert ["a", "b", "c"] == await texts(thread)


# Idempotency.


async def test_the_same_id_gives_the_first_receipt(tmp_path: Path) -> None:
    """Now, behind others, and after reopening; nothing is recorded twice."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        first = await thread.dispatch(say("a"), event_id="x")
        await thread.dispatch(say("b"))
        assert first == await thread.dispatch(say("a"), event_id="x")
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        again = await thread.dispatch(say("a"), event_id="x")
        assert (first, first.chunks, ["a", "b"]) == (again, again.chunks, await texts(thread))
        assert 1 == len(await again.state.load())


@pytest.mark.parametrize("other", [say("b"), e.LlmTextResponse(content="a")])
async def test_the_same_id_with_another_event_is_a_conflict(engine: Engine, other: e.Event) -> None:
    """Another payload or another type under a used id is an error that names the first place."""
    thread = await engine.create_thread()
    await thread.dispatch_all([say("0"), NewEvent(say("a"), "x")])
    with pytest.raises(errors.IdempotencyConflict) as caught:
        await thread.dispatch(other, event_id="x")
    assert ("x", 2, ["0", "a"]) == (caught.value.event_id, caught.value.seq, await texts(thread))


async def test_what_is_recorded_already_counts_as_appended(engine: Engine) -> None:
    """A batch that overlaps an earlier one appends the rest and gives all receipts in order."""
    thread = await engine.create_thread()
    first = await thread.dispatch_all([NewEvent(say(key), key) for key in "ab"])
    second = await thread.dispatch_all([NewEvent(say(key), key) for key in "bcad"])
    assert (first[1], first[0]) == (second[0], second[2])
    assert (list("bcad"), list("abcd")) == ([r.event_id for r in second], await texts(thread))


async def test_a_batch_with_a_conflict_appends_nothing(engine: Engine) -> None:
    """Events before and after the conflicting one are not recorded either."""
    thread = await engine.create_thread()
    await thread.dispatch(say("a"), event_id="a")
    with pytest.raises(errors.IdempotencyConflict):
        await thread.dispatch_all([NewEvent(say("b"), "b"), NewEvent(say("A"), "a"), NewEvent(say("c"), "c")])
    assert ["a"] == await texts(thread)


async def test_duplicates_sent_at_once_are_recorded_once(engine: Engine) -> None:
    """However many senders use one id at the same time, all get the one receipt."""
    thread = await engine.create_thread()
    sent = [thread.dispatch(say("first")), *(thread.dispatch(say("a"), event_id="x") for _ in range(5))]
    receipts = await asyncio.gather(*sent)
    assert (1, ["first", "a"]) == (len({receipt.hash for receipt in receipts[1:]}), await texts(thread))


async def test_a_batch_may_repeat_an_event(engine: Engine) -> None:
    """The same id twice in one batch is one event with two receipts; with two payloads it is refused."""
    thread = await engine.create_thread()
    twice = await thread.dispatch_all([NewEvent(say("a"), "x")] * 2)
    assert twice[0] == twice[1]
    with pytest.raises(errors.MemoryEngineError, match="y"):
        await thread.dispatch_all([NewEvent(say("a"), "y"), NewEvent(say("b"), "y")])
    assert ["a"] == await texts(thread)


async def test_equal_content_is_not_a_duplicate(engine: Engine) -> None:
    """The same words said twice are two events."""
    thread = await engine.create_thread()
    await thread.dispatch_all([say("a"), say("a")])
    assert ["a", "a"] == await texts(thread)


async def test_a_fork_knows_the_ids_of_its_past(engine: Engine) -> None:
    """An id from before the cut gives its receipt in the fork too; one from after it is free."""
    thread = await engine.create_thread()
    first = await thread.dispatch(say("a"), event_id="a")
    await thread.dispatch(say("b"), event_id="b")
    fork = await thread.fork(1)
    assert first.hash == (await fork.dispatch(say("a"), event_id="a")).hash
    assert 2 == (await fork.dispatch(say("B"), event_id="b")).seq
    assert ["a", "B"] == await texts(fork)


async def test_a_lost_outcome_is_resolved_by_a_retry() -> None:
    """If a commit was applied and its answer lost, the same id gives the receipt, and no second event."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread()
        store.fail(errors.StorageBusy("disk", 1.0), when="after")
        with pytest.raises(errors.StorageBusy):
            await thread.dispatch(say("a"), event_id="x")
        receipt = await thread.dispatch(say("a"), event_id="x")
        await thread.dispatch(say("b"))
        assert (1, ["a", "b"], True) == (receipt.seq, await texts(thread), (await thread.replay.verify()).ok)


async def test_a_failed_commit_leaves_nothing() -> None:
    """A store that fails before it applies writes nothing; the next event is taken as if nothing had been."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread()
        store.fail(errors.StorageBusy("disk", 1.0), when="before")
        with pytest.raises(errors.StorageBusy):
            await thread.dispatch(say("a"))
        assert 1 == (await thread.dispatch(say("b"))).seq
        assert (["b"], True) == (await texts(thread), (await thread.replay.verify()).ok)


async def test_a_sender_that_gives_up_while_its_event_is_committed_loses_nothing() -> None:
    """Cancelled during the commit, the event is whole in the log; a retry by id gives its receipt."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread()
        hold = store.hold()
        sender = asyncio.create_task(thread.dispatch(say("a"), event_id="x"))
        await hold.begun.wait()
        sender.cancel()
        await asyncio.wait([sender])
        hold.release()
        assert 1 == (await thread.dispatch(say("a"), event_id="x")).seq
        assert ["a"] == await texts(thread)


async def test_a_sender_that_gives_up_while_it_waits_sends_nothing(engine: Engine) -> None:
    """Cancelled in the queue, the event is not taken, and those behind it go on."""
    thread = await engine.create_thread()
    await thread.admin.pause()
    senders = [asyncio.create_task(thread.dispatch(say(text))) for text in "abc"]
    await passes()
    senders[1].cancel()
    await thread.admin.resume()
    await asyncio.wait(senders)
    assert ["a", "c"] == await texts(thread)


# Blocking.


async def test_what_waits_is_drained_in_order(engine: Engine) -> None:
    """While a thread is paused its events wait; afterwards they are recorded in the order of sending."""
    thread = await engine.create_thread()
    await thread.dispatch(say("0"))
    await thread.admin.pause()
    assert (True, BlockingReason.PAUSED) == (await thread.admin.is_blocked(), await thread.admin.blocking_reason())
    senders = [asyncio.create_task(thread.dispatch(say(str(n)))) for n in range(1, 6)]
    await passes()
    assert (["0"], False) == (await texts(thread), any(sender.done() for sender in senders))
    await thread.admin.resume()
    receipts = await asyncio.gather(*senders)
    assert ([3, 4, 5, 6, 7], False) == ([r.seq - 1 for r in receipts], await thread.admin.is_blocked())
    assert list("012345") == await texts(thread)


async def test_a_pause_holds_across_reopening(tmp_path: Path) -> None:
    """The log says that the thread is paused, so it is for whoever opens it next, until it is resumed."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.admin.pause("for the night")
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        sender = asyncio.create_task(thread.dispatch(say("a")))
        await passes()
        assert (BlockingReason.PAUSED, False) == (await thread.admin.blocking_reason(), sender.done())
        await thread.admin.resume()
        assert (3, "active") == ((await sender).seq, (await thread.info()).status)


async def test_a_pause_in_a_batch_stops_what_is_behind_the_batch(engine: Engine) -> None:
    """Events of the batch itself are recorded; what others sent meanwhile waits."""
    thread = await engine.create_thread()
    first = asyncio.create_task(thread.dispatch(say("first")))
    batch = asyncio.create_task(thread.dispatch_all([e.ExecutionPause(), say("in the batch")]))
    behind = asyncio.create_task(thread.dispatch(say("behind")))
    await asyncio.wait([first, batch])
    await passes()
    assert (["first", "in the batch"], False) == (await texts(thread), behind.done())
    await thread.admin.resume()
    assert ["first", "in the batch", "behind"] == [
        *(await texts(thread))[:2],
        (await behind).chunks[0].text,
    ]


async def test_other_threads_never_wait_for_a_blocked_one() -> None:
    """A thread that is paused, and one whose compactor hangs, hold up nobody else."""
    compactor = FakeCompactor(Hangs("short"))
    policy = CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0)
    async with memory_engine.open(":memory:", compactor=compactor, config=EngineConfig(compaction=policy)) as engine:
        paused, compacting, free = [await engine.create_thread(name) for name in ("p", "c", "f")]
        await paused.admin.pause()
        await compacting.dispatch_all([say("long " * 50)] * 4)
        await compactor.begun.wait()
        waiting = [asyncio.create_task(thread.dispatch(say("later"))) for thread in (paused, compacting)]
        await asyncio.gather(*(free.dispatch(say(str(n))) for n in range(3)))
        assert (BlockingReason.COMPACTING, [False, False]) == (
            await compacting.admin.blocking_reason(), [sender.done() for sender in waiting]
        )  # fmt: skip
        compactor.release()
        await paused.admin.resume()
        await asyncio.gather(*waiting)
        assert [["later"], ["later"]] == [(await texts(thread))[-1:] for thread in (paused, compacting)]


async def test_a_full_queue_lets_its_senders_wait_in_turn() -> None:
    """Beyond the capacity senders wait for room, and are recorded in the order in which they came."""
    async with memory_engine.open(":memory:", config=small(2)) as engine:
        thread = await engine.create_thread()
        await thread.admin.pause()
        senders = [asyncio.create_task(thread.dispatch(say(str(n)))) for n in range(6)]
        await passes()
        await thread.admin.resume()
        await asyncio.gather(*senders)
        assert list("012345") == await texts(thread)


async def test_a_full_queue_refuses_after_its_deadline() -> None:
    """Who finds no room in time gets `QueueFull`; nothing of theirs is taken, nobody else is dropped."""
    async with memory_engine.open(":memory:", config=small(2, 0.01)) as engine:
        thread = await engine.create_thread()
        await thread.admin.pause()
        senders = [asyncio.create_task(thread.dispatch(say(str(n)))) for n in range(2)]
        await passes()
        with pytest.raises(errors.QueueFull) as caught:
            await thread.dispatch(say("too many"))
        await thread.admin.resume()
        await asyncio.gather(*senders)
        assert (2, "paused", ["0", "1"]) == (
            caught.value.capacity,
            caught.value.blocked_by,
            await texts(thread),
        )


async def test_a_sender_that_gives_up_makes_room_for_the_next() -> None:
    """A large batch that waits for room and is cancelled does not keep out a small one behind it."""
    async with memory_engine.open(":memory:", config=small(3)) as engine:
        thread = await engine.create_thread()
        await thread.admin.pause()
        waiting = [asyncio.create_task(thread.dispatch_all([say("a")] * count)) for count in (2, 3, 1)]
        await passes()
        waiting[1].cancel()
        await passes()
        runtime = kernel_of(engine)[OpenThreads].get(thread.id)
        assert runtime is not None
        assert 3 == len(runtime.queue)
        await thread.admin.resume()
        await asyncio.wait(waiting)


async def test_a_batch_larger_than_the_queue_is_taken_alone() -> None:
    """The capacity does not limit what one sender may append at once."""
    async with memory_engine.open(":memory:", config=small(2)) as engine:
        thread = await engine.create_thread()
        assert 5 == len(await thread.dispatch_all([say(str(n)) for n in range(5)]))


# Closing.


@pytest.mark.parametrize("capacity", [1, 100])
async def test_closing_answers_everybody(capacity: int) -> None:
    """Who waits in a paused thread's queue, or for room in it, gets `EngineClosed`."""
    async with memory_engine.open(":memory:", config=small(capacity)) as engine:
        thread = await engine.create_thread()
        await thread.admin.pause()
        senders = [asyncio.create_task(thread.dispatch(say(str(n)))) for n in range(3)]
        await passes()
    outcomes = await asyncio.gather(*senders, return_exceptions=True)
    assert [True] * 3 == [isinstance(outcome, errors.EngineClosed) for outcome in outcomes]


async def test_a_closed_engine_takes_nothing(engine: Engine) -> None:
    """After `close` every dispatch says so; closing twice is harmless."""
    thread = await engine.create_thread()
    await engine.close()
    await engine.close()
    with pytest.raises(errors.EngineClosed):
        await thread.dispatch(say("a"))


async def test_closing_finishes_what_was_taken(tmp_path: Path) -> None:
    """Events that are under way in an unblocked thread when the engine closes are recorded."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(say("0"))
        senders = [asyncio.create_task(thread.dispatch(say(str(n)))) for n in range(1, 4)]
        await asyncio.sleep(0)
    receipts = await asyncio.gather(*senders)
    async with memory_engine.open(path) as engine:
        assert ([2, 3, 4], list("0123")) == ([r.seq for r in receipts], await texts(engine.thread("t")))


# Observers.


async def test_an_observer_sees_each_event_once_in_order() -> None:
    """Also those that share a commit; what it is told is what the log gives back."""
    observer = RecordingObserver()
    async with memory_engine.open(":memory:") as engine:
        engine.observe(observer)
        thread = await engine.create_thread()
        await asyncio.gather(*(thread.dispatch(say(str(n))) for n in range(5)))
        await observer.wait_for("user_message", 5)
        assert await thread.replay.latest(5) == observer.events


async def test_an_observer_that_fails_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """What it raises is logged; other observers are told, and so is the sender."""
    observer = RecordingObserver()

    def broken(_event: memory_engine.RecordedEvent) -> None:
        raise RuntimeError("observer")

    async with memory_engine.open(":memory:") as engine:
        end = engine.observe(broken)
        engine.observe(observer)
        thread = await engine.create_thread()
        await thread.dispatch(say("a"))
        await observer.wait_for("user_message")
        end()
        await thread.dispatch(say("b"))
        await observer.wait_for("user_message", 2)
    assert 1 == sum("observer failed" in record.message for record in caplog.records)


async def test_a_second_pause_does_not_wait_for_itself(tmp_path: Path) -> None:
    """Pausing a paused thread is recorded at once, and one resume lifts it."""
    async with memory_engine.open(str(tmp_path / "memory.db")) as engine:
        thread = await engine.create_thread()
        first, second = await thread.admin.pause(), await thread.pause()
        assert (1, 2) == (first.seq, second.seq)
        await thread.admin.resume()
        assert not await thread.admin.is_blocked()


async def test_senders_keep_their_order_while_a_thread_is_loaded(tmp_path: Path) -> None:
    """Who comes just as the load ends does not overtake those who waited for it."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        await engine.create_thread("t")
    for moment in moments():
        async with memory_engine.open(path) as engine:
            receipts: list[memory_engine.Receipt] = []
            sent: list[asyncio.Task[None]] = []

            async def send(n: int) -> None:
                receipts.append(await engine.dispatch("t", say(str(n))))  # noqa: B023 - sent within the round

            def send_next() -> None:
                sent.append(asyncio.create_task(send(len(sent))))  # noqa: B023

            first = asyncio.create_task(moment.run(lambda: send(0)))
            sent.append(first)
            send_next()
            with moment.triggers(send_next):
                await first
            await asyncio.gather(*sent)
            assert list("012")[: len(sent)] == (await texts(engine.thread("t")))[-len(sent) :]
