"""Cancellation at every await: after any number of the loop's rounds, by a task's cancel and by a scope's."""

import asyncio
import fcntl
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, NewEvent, Thread, UserMessage
from memory_engine.errors import QueueFull
from tests.conversations import NEVER, log, opened, say, texts, turns, types
from tests.scripted_compactors import Held, Scripted, Yielding

Call = Callable[[], Awaitable[object]]
Cancelled = Callable[[Call, int], Awaitable[bool]]
"""Runs a call, cancels it after some rounds of the loop; whether it had come to its end before."""


async def by_task(call: Call, rounds: int) -> bool:
    """The way of asyncio, of timeouts and of most frameworks."""
    task = asyncio.ensure_future(call())
    for _ in range(rounds):
        await asyncio.sleep(0)
    untouched = task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return untouched


async def by_scope(call: Call, rounds: int) -> bool:
    """The way of anyio: cancelled again at each await until the scope is left."""
    scope = anyio.CancelScope()

    async def inside() -> None:
        with scope:
            await call()

    task = asyncio.ensure_future(inside())
    for _ in range(rounds):
        await asyncio.sleep(0)
    untouched = task.done()
    scope.cancel()
    await task
    return untouched


async def by_task_twice(call: Call, rounds: int) -> bool:
    """Somebody who cannot wait: cancelled again in the round after."""
    task = asyncio.ensure_future(call())
    for _ in range(rounds):
        await asyncio.sleep(0)
    untouched = task.done()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return untouched


WAYS = pytest.mark.parametrize("cancelled", [by_task, by_scope, by_task_twice])


def moments() -> Iterator[int]:
    """Rounds to wait before cancelling: each of the first twenty, then ever fewer, to a bound no call reaches."""
    rounds = 0
    while rounds < 50_000:
        yield rounds
        rounds += 1 + rounds // 20


def assert_nobody_writes(path: str) -> None:
    """No transaction is open on the file, and no lock is held."""
    with Path(path + ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")


async def assert_once(thread: Thread, ids: list[str]) -> None:
    """The events are there together or not at all, and a retry by id puts them there once, word for word."""
    assert [recorded.id for recorded in await log(thread) if recorded.id in ids] in ([], ids)
    receipts = await thread.dispatch_all([NewEvent(UserMessage(content=event_id), event_id) for event_id in ids])
    assert ids == [receipt.event_id for receipt in receipts]
    everything = await log(thread)
    found = {recorded.id: recorded for recorded in everything}
    assert [(r.seq, r.hash, UserMessage(content=r.event_id)) for r in receipts] == [
        (found[event_id].seq, found[event_id].hash, found[event_id].event) for event_id in ids
    ]
    assert len(found) == len(everything)


@WAYS
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("loaded", [True, False])
async def test_a_cancelled_dispatch_is_whole_or_absent(
    tmp_path: Path, cancelled: Cancelled, count: int, loaded: bool
) -> None:
    """Cancelled at any moment, a dispatch leaves all its events or none, and a retry by id settles which."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        for rounds in moments():
            thread = await engine.create_thread()
            if loaded:
                await thread.state()
            ids = [f"{rounds}/{n}" for n in range(count)]
            events = [NewEvent(UserMessage(content=event_id), event_id) for event_id in ids]
            untouched = await cancelled(lambda t=thread, e=events: t.dispatch_all(e), rounds)  # type: ignore[misc]
            await assert_once(thread, ids)
            assert_nobody_writes(path)
            assert None is (await thread.verify()).divergence
            if untouched:
                break
        else:
            pytest.fail("no call came to its end")


@WAYS
async def test_a_cancelled_sender_does_not_touch_its_neighbours(tmp_path: Path, cancelled: Cancelled) -> None:
    """Senders before and after the cancelled one, on its thread and beside it, get their receipts in order."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        other = await engine.create_thread()
        for rounds in moments():
            thread = await engine.create_thread()
            await thread.state()
            beside = [
                asyncio.ensure_future(where.dispatch(UserMessage(content=str(n))))
                for n, where in enumerate([thread, other, thread])
            ]
            call = lambda t=thread, r=rounds: t.dispatch(UserMessage(content=f"{r}"), event_id=f"{r}")  # noqa: E731
            untouched = await cancelled(call, rounds)
            beside.append(asyncio.ensure_future(thread.dispatch(UserMessage(content="last"))))
            receipts = await asyncio.gather(*beside)
            assert [r.seq for r in (receipts[0], receipts[2])] == [1, 2]
            await assert_once(thread, [str(rounds)])
            await other.settle()
            assert_nobody_writes(path)
            if untouched:
                break
        assert [] == [report for report in await engine.verify() if not report.ok]


@WAYS
async def test_a_sender_cancelled_in_a_contest_is_whole_or_absent(tmp_path: Path, cancelled: Cancelled) -> None:
    """Cancelled while its thread is read again because another writer was first, it leaves nothing half-done."""
    path = str(tmp_path / "memory.db")
    async with opened(Scripted(), NEVER, path) as mine, opened(Scripted(), NEVER, path) as theirs:
        await mine.create_thread("t")
        thread, other = mine.thread("t"), theirs.thread("t")
        await thread.state()
        for rounds in moments():
            await other.dispatch(UserMessage(content="first"))
            event_id = f"{rounds}"
            call = lambda i=event_id: thread.dispatch(UserMessage(content=i), event_id=i)  # noqa: E731
            untouched = await cancelled(call, rounds)
            await thread.dispatch(UserMessage(content="next"))
            await assert_once(thread, [event_id])
            assert_nobody_writes(path)
            if untouched:
                break
        assert None is (await thread.verify()).divergence


@WAYS
async def test_a_sender_cancelled_before_a_full_queue_was_not_taken(cancelled: Cancelled) -> None:
    """Who waits for room and is cancelled leaves no event, and those behind get the room."""
    async with memory_engine.open(":memory:", config=EngineConfig(queue_capacity=2)) as engine:
        for rounds in range(8):
            thread = await engine.create_thread()
            await thread.pause()
            waiting = [asyncio.ensure_future(thread.dispatch(UserMessage(content=f"{n}"))) for n in range(2)]
            await asyncio.sleep(0)
            await cancelled(lambda t=thread: t.dispatch(UserMessage(content="gone")), rounds)  # type: ignore[misc]
            waiting.append(asyncio.ensure_future(thread.dispatch(UserMessage(content="2"))))
            await asyncio.sleep(0)
            await thread.resume()
            await asyncio.gather(*waiting)
            assert ["0", "1", "2"] == await texts(thread)


async def test_room_that_nobody_takes_goes_to_the_next() -> None:
    """When the first who waits for room gives up, one behind it that fits is let in at once."""
    async with memory_engine.open(":memory:", config=EngineConfig(queue_capacity=3)) as engine:
        thread = await engine.create_thread()
        await thread.pause()
        waiting = [asyncio.ensure_future(thread.dispatch_all(turns(2)))]
        await asyncio.sleep(0)
        large = asyncio.ensure_future(thread.dispatch_all(turns(2, start=3)))
        await asyncio.sleep(0)
        waiting.append(asyncio.ensure_future(thread.dispatch_all(turns(1, start=5))))
        await asyncio.sleep(0)
        large.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        late = asyncio.ensure_future(thread.dispatch_all(turns(1, start=6)))
        await asyncio.sleep(0)
        assert 3 == len((await thread.runtime()).queue)
        await thread.resume()
        await asyncio.gather(*waiting, late)
        assert ["word1", "word2", "word5", "word6"] == await texts(thread)


async def test_a_deadline_that_passes_as_room_comes_takes_nothing_twice() -> None:
    """`QueueFull` means that the event was not taken, also when room came in the same round of the loop."""
    config = EngineConfig(queue_capacity=1, queue_timeout_s=0.005)
    async with memory_engine.open(":memory:", config=config) as engine:
        for _ in range(20):
            thread = await engine.create_thread()
            await thread.pause()
            first = asyncio.ensure_future(thread.dispatch(UserMessage(content="first")))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(thread.dispatch(UserMessage(content="second")))
            loop = asyncio.get_running_loop()
            loop.call_at(loop.time() + 0.005, first.cancel)
            await asyncio.wait([first, second], timeout=0.02)
            await thread.resume()
            refused = isinstance((await asyncio.gather(second, return_exceptions=True))[0], QueueFull)
            assert ([] if refused else ["second"]) == await texts(thread)


async def _full(engine: Engine) -> Thread:
    thread = await engine.create_thread()
    for event in turns(5):
        await thread.dispatch(event)
    return thread


@WAYS
@pytest.mark.parametrize(
    "policy", [NEVER, CompactionPolicy(threshold=99, soft_tokens=10**6, hard_tokens=100, keep_recent=0)]
)
async def test_a_cancelled_compaction_or_context_leaves_a_whole_thread(
    tmp_path: Path, cancelled: Cancelled, policy: CompactionPolicy
) -> None:
    """Who asked for a compaction, or for a context that waits for one, may go; the compaction comes to its end."""
    path = str(tmp_path / "memory.db")
    async with opened(Yielding(), policy, path) as engine:
        for rounds in moments():
            thread = await _full(engine)
            call = thread.compact if policy is NEVER else thread.context
            untouched = await cancelled(call, rounds)
            await thread.dispatch(UserMessage(content="next"))
            await thread.settle()
            assert await types(thread) in ([], ["compaction_started", "compaction_completed"])
            assert (None, None) == (await thread.blocking_reason(), (await thread.verify()).divergence)
            assert_nobody_writes(path)
            if untouched:
                break
        else:
            pytest.fail("no call came to its end")


@WAYS
async def test_a_context_is_read_only_wherever_it_is_cancelled(tmp_path: Path, cancelled: Cancelled) -> None:
    """A cancelled context, of now or of the past, leaves the next one the same."""
    path = str(tmp_path / "memory.db")
    async with opened(Scripted(), NEVER, path) as engine:
        thread = await _full(engine)
        whole = (await thread.context(), await thread.context(at=3))
        for rounds in moments():
            untouched = await cancelled(thread.context, rounds) & await cancelled(lambda: thread.context(at=3), rounds)
            assert whole == (await thread.context(), await thread.context(at=3))
            if untouched:
                break
        assert_nobody_writes(path)


@WAYS
async def test_a_sender_cancelled_during_a_compaction_leaves_it_alone(cancelled: Cancelled) -> None:
    """A dispatch that waits for a compaction and is cancelled was not taken; those around it were."""
    for rounds in range(6):
        compactor = Held()
        async with opened(compactor, NEVER) as engine:
            thread = await _full(engine)
            compacting = asyncio.ensure_future(thread.compact())
            await compactor.entered.wait()
            before = asyncio.ensure_future(thread.dispatch(UserMessage(content="before")))
            assert not await cancelled(lambda t=thread: t.dispatch(UserMessage(content="gone")), rounds)  # type: ignore[misc]
            after = asyncio.ensure_future(thread.dispatch(UserMessage(content="after")))
            compactor.release.set()
            await asyncio.gather(compacting, before, after)
            assert ["5", "before", "after"] == await texts(thread)


@WAYS
async def test_closing_is_finished_though_it_is_cancelled(tmp_path: Path, cancelled: Cancelled) -> None:
    """An engine whose closing is cancelled at any moment lets go of the file, and loses nothing."""
    path = str(tmp_path / "memory.db")
    for rounds in moments():
        async with opened(Held(), NEVER, path) as engine:
            thread = await engine.create_thread()
            await say(thread, turns(2))
            compacting = asyncio.ensure_future(thread.compact())
            await asyncio.sleep(0)
            untouched = await cancelled(engine.close, rounds)
        await asyncio.gather(compacting, return_exceptions=True)
        async with opened(Scripted(), NEVER, path) as engine:
            thread = engine.thread(thread.id)
            assert ["word1", "word2"] == await texts(thread)
            assert (None, None) == (await thread.blocking_reason(), (await thread.verify()).divergence)
        assert_nobody_writes(path)
        if untouched:
            break
