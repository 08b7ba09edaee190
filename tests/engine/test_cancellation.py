"""Cancellation at every await, by a task's cancel and by a scope's."""

import asyncio
import fcntl
import gc
import threading
import time
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import anyio
import pytest
from attrs import frozen
from msgspec.structs import replace

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, NewEvent, Thread, UserMessage
from memory_engine.errors import EngineClosed, QueueFull
from memory_engine.thread import handle_of
from tests.cancelling import WAYS, Cancelled, assert_nobody_writes, busy_loop, by_task, moments
from tests.conversations import NEVER, log, opened, say, texts, turns, types
from tests.scripted_compactors import Held, Scripted, Yielding


async def test_a_sweep_meets_each_await_of_a_call_and_ends_with_it() -> None:
    """However long an await takes: neither time nor idle rounds of the loop are moments."""
    met: list[list[int]] = []

    async def call() -> None:
        met.append([])
        for n in range(3):
            met[-1].append(n)
            await asyncio.to_thread(time.sleep, n / 1000)

    swept = []
    for moment in moments():
        await by_task(call, moment)
        swept.append(moment.awaits)
    assert [0, 1, 2, 3] == sorted(set(swept))
    assert [0, 1, 2] == met[-1]


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
@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("loaded", [True, False])
async def test_a_cancelled_dispatch_is_whole_or_absent(
    tmp_path: Path, cancelled: Cancelled, count: int, loaded: bool
) -> None:
    """Cancelled at any moment, a dispatch leaves all its events or none, and a retry by id settles which."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        for moment in moments():
            thread = await engine.create_thread()
            if loaded:
                await thread.state()
            ids = [f"{moment}/{n}" for n in range(count)]
            events = [NewEvent(UserMessage(content=event_id), event_id) for event_id in ids]
            await cancelled(lambda t=thread, e=events: t.dispatch_all(e), moment)  # type: ignore[misc]
            await assert_once(thread, ids)
            assert_nobody_writes(path)
            assert None is (await thread.replay.verify()).divergence


@WAYS
async def test_a_cancelled_sender_does_not_touch_its_neighbours(tmp_path: Path, cancelled: Cancelled) -> None:
    """Senders before and after the cancelled one, on its thread and beside it, get their receipts in order."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        other = await engine.create_thread()
        for moment in moments():
            thread = await engine.create_thread()
            await thread.state()
            beside = [
                asyncio.ensure_future(where.dispatch(UserMessage(content=str(n))))
                for n, where in enumerate([thread, other, thread])
            ]
            event_id = f"{moment}"
            call = lambda t=thread, i=event_id: t.dispatch(UserMessage(content=i), event_id=i)  # noqa: E731
            await cancelled(call, moment)
            beside.append(asyncio.ensure_future(thread.dispatch(UserMessage(content="last"))))
            receipts = await asyncio.gather(*beside)
            assert [r.seq for r in (receipts[0], receipts[2])] == [1, 2]
            await assert_once(thread, [event_id])
            await other.compaction.settle()
            assert_nobody_writes(path)
        assert [] == [report for report in await engine.verify() if not report.ok]


@WAYS
async def test_a_sender_cancelled_in_a_contest_is_whole_or_absent(tmp_path: Path, cancelled: Cancelled) -> None:
    """Cancelled while its thread is read again because another writer was first, it leaves nothing half-done."""
    path = str(tmp_path / "memory.db")
    async with opened(Scripted(), NEVER, path) as mine, opened(Scripted(), NEVER, path) as theirs:
        await mine.create_thread("t")
        thread, other = mine.thread("t"), theirs.thread("t")
        await thread.state()
        for moment in moments():
            await other.dispatch(UserMessage(content="first"))
            event_id = f"{moment}"
            call = lambda i=event_id: thread.dispatch(UserMessage(content=i), event_id=i)  # noqa: E731
            await cancelled(call, moment)
            await thread.dispatch(UserMessage(content="next"))
            await assert_once(thread, [event_id])
            assert_nobody_writes(path)
        assert None is (await thread.replay.verify()).divergence


@WAYS
async def test_a_sender_cancelled_before_a_full_queue_was_not_taken(cancelled: Cancelled) -> None:
    """Who waits for room and is cancelled leaves no event, and those behind get the room."""
    async with memory_engine.open(":memory:", config=EngineConfig(queue_capacity=2)) as engine:
        for moment in islice(moments(), 8):
            thread = await engine.create_thread()
            await thread.admin.pause()
            waiting = [asyncio.ensure_future(thread.dispatch(UserMessage(content=f"{n}"))) for n in range(2)]
            await asyncio.sleep(0)
            with busy_loop():
                await cancelled(lambda t=thread: t.dispatch(UserMessage(content="gone")), moment)  # type: ignore[misc]
            waiting.append(asyncio.ensure_future(thread.dispatch(UserMessage(content="2"))))
            await asyncio.sleep(0)
            await thread.admin.resume()
            await asyncio.gather(*waiting)
            assert ["0", "1", "2"] == await texts(thread)


async def test_room_that_nobody_takes_goes_to_the_next() -> None:
    """When the first who waits for room gives up, one behind it that fits is let in at once."""
    async with memory_engine.open(":memory:", config=EngineConfig(queue_capacity=3)) as engine:
        thread = await engine.create_thread()
        await thread.admin.pause()
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
        assert 3 == len((await handle_of(thread).runtime()).queue)
        await thread.admin.resume()
        await asyncio.gather(*waiting, late)
        assert ["word1", "word2", "word5", "word6"] == await texts(thread)


async def test_a_deadline_that_passes_as_room_comes_takes_nothing_twice() -> None:
    """`QueueFull` means that the event was not taken, also when room came in the same round of the loop."""
    config = EngineConfig(queue_capacity=1, queue_timeout_s=0.005)
    async with memory_engine.open(":memory:", config=config) as engine:
        for _ in range(20):
            thread = await engine.create_thread()
            await thread.admin.pause()
            first = asyncio.ensure_future(thread.dispatch(UserMessage(content="first")))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(thread.dispatch(UserMessage(content="second")))
            loop = asyncio.get_running_loop()
            loop.call_at(loop.time() + 0.005, first.cancel)
            await asyncio.wait([first, second], timeout=0.02)
            await thread.admin.resume()
            refused = isinstance((await asyncio.gather(second, return_exceptions=True))[0], QueueFull)
            assert ([] if refused else ["second"]) == await texts(thread)


async def _full(engine: Engine) -> Thread:
    thread = await engine.create_thread()
    for event in turns(5):
        await thread.dispatch(event)
    return thread


@WAYS
@pytest.mark.parametrize(
    "policy",
    [
        NEVER,
        CompactionPolicy(threshold=99, soft_tokens=10**6, hard_tokens=100, keep_recent=0),
        CompactionPolicy(enabled=False, keep_recent=0, blocking="commit"),
        CompactionPolicy(threshold=99, soft_tokens=10**6, hard_tokens=100, keep_recent=0, blocking="commit"),
    ],
)
async def test_a_cancelled_compaction_or_context_leaves_a_whole_thread(
    tmp_path: Path, cancelled: Cancelled, policy: CompactionPolicy
) -> None:
    """Who asked for a compaction, or for a context that waits for one, may go; the compaction comes to its end."""
    path = str(tmp_path / "memory.db")
    async with opened(Yielding(), policy, path) as engine:
        for moment in moments():
            thread = await _full(engine)
            call = thread.context if policy.enabled else thread.compact
            await cancelled(call, moment)
            await thread.dispatch(UserMessage(content="next"))
            await thread.compaction.settle()
            assert await types(thread) in ([], ["compaction_started", "compaction_completed"])
            assert (None, None) == (await thread.admin.blocking_reason(), (await thread.replay.verify()).divergence)
            assert_nobody_writes(path)


@WAYS
async def test_a_context_is_read_only_wherever_it_is_cancelled(tmp_path: Path, cancelled: Cancelled) -> None:
    """A cancelled context, of now or of the past, leaves the next one the same."""
    path = str(tmp_path / "memory.db")
    async with opened(Scripted(), NEVER, path) as engine:
        thread = await _full(engine)
        whole = (await thread.context(), await thread.context(at=3))
        for call in (thread.context, lambda: thread.context(at=3)):
            for moment in moments():
                await cancelled(call, moment)
                assert whole == (await thread.context(), await thread.context(at=3))
        assert_nobody_writes(path)


@WAYS
async def test_a_sender_cancelled_during_a_compaction_leaves_it_alone(cancelled: Cancelled) -> None:
    """A dispatch that waits for a compaction and is cancelled was not taken; those around it were."""
    for moment in islice(moments(), 6):
        compactor = Held()
        async with opened(compactor, NEVER) as engine:
            thread = await _full(engine)
            compacting = asyncio.ensure_future(thread.compact())
            await compactor.entered.wait()
            before = asyncio.ensure_future(thread.dispatch(UserMessage(content="before")))
            with busy_loop():
                await cancelled(lambda t=thread: t.dispatch(UserMessage(content="gone")), moment)  # type: ignore[misc]
            assert not moment.untouched
            after = asyncio.ensure_future(thread.dispatch(UserMessage(content="after")))
            compactor.release.set()
            await asyncio.gather(compacting, before, after)
            assert ["5", "before", "after"] == await texts(thread)


@frozen
class Closed:
    """What an engine left when it was closed: a thread that was compacting, one that was sent to, and what it took."""

    compacting: str
    sent_to: str
    acknowledged: list[str]

    async def check(self, engine: Engine) -> None:
        """The next engine of the file finds it whole."""
        thread = engine.thread(self.compacting)
        assert ["word1", "word2"] == await texts(thread)
        assert (None, None) == (await thread.admin.blocking_reason(), (await thread.replay.verify()).divergence)
        assert self.acknowledged == [recorded.id for recorded in await log(engine.thread(self.sent_to))]


@WAYS
@pytest.mark.parametrize(("senders", "blocking"), [(0, "whole"), (3, "whole"), (3, "commit")])
async def test_closing_is_finished_though_it_is_cancelled(
    tmp_path: Path, cancelled: Cancelled, senders: int, blocking: str
) -> None:
    """An engine whose closing is cancelled at any moment lets go of the file, and loses nothing it has acknowledged."""
    path = str(tmp_path / "memory.db")
    closed: Closed | None = None
    for moment in moments():
        async with opened(Held(), replace(NEVER, blocking=blocking), path) as engine:
            if closed is not None:
                await closed.check(engine)
            thread, other = await engine.create_thread(), await engine.create_thread()
            await say(thread, turns(2))
            compacting = asyncio.ensure_future(thread.compact())
            sending = [asyncio.ensure_future(other.dispatch(event)) for event in turns(senders)]
            await asyncio.sleep(0)
            await cancelled(engine.close, moment)
        await asyncio.gather(compacting, return_exceptions=True)
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert {EngineClosed} >= {type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)}
        assert_nobody_writes(path)
        closed = Closed(thread.id, other.id, [one.event_id for one in outcomes if not isinstance(one, BaseException)])
    async with opened(Scripted(), NEVER, path) as engine:
        assert closed is not None
        await closed.check(engine)


@WAYS
async def test_an_opening_that_is_cancelled_leaves_nothing_open(tmp_path: Path, cancelled: Cancelled) -> None:
    """No file, no lock and no connection's thread stays behind an engine that nobody got."""
    path = str(tmp_path / "memory.db")
    before = set(threading.enumerate())

    async def call() -> None:
        async with memory_engine.open(path):
            pass

    for moment in moments():
        await cancelled(call, moment)
        assert_nobody_writes(path)
        for thread in set(threading.enumerate()) - before:
            thread.join(30)  # it ends after it has said so
            assert not thread.is_alive()
    gc.collect()  # a file that nobody closed would complain here, and a warning is an error


async def test_a_loop_rests_while_a_cancelled_scope_is_left(tmp_path: Path) -> None:
    """What has to end before its cancelled caller goes on is waited for in peace, though anyio cancels every round."""
    path = str(tmp_path / "memory.db")
    loop, rounds, at_rest = asyncio.get_running_loop(), 200, 20
    with Path(path + ".lock").open("ab") as lock:  # noqa: ASYNC230 - it is empty
        fcntl.flock(lock, fcntl.LOCK_EX)  # as another process would
        opening = asyncio.create_task(_opened_in(scope := anyio.CancelScope(), path))
        await asyncio.sleep(0)
        scope.cancel()
        with patch.object(loop, "call_soon", wraps=loop.call_soon) as scheduled:
            for _ in range(rounds):
                await asyncio.sleep(0)
        fcntl.flock(lock, fcntl.LOCK_UN)
    await opening
    assert scope.cancelled_caught
    assert scheduled.call_count < rounds + at_rest


async def _opened_in(scope: anyio.CancelScope, path: str) -> None:
    with scope:
        async with memory_engine.open(path):
            pass
