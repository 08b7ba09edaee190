"""`thread.follow`: the log and whatever comes, each event once and in order, until the engine closes."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, RecordedEvent, Thread, UserMessage
from memory_engine.core.threads import Head
from memory_engine.engine import kernel_of
from memory_engine.errors import (
    EngineClosed,
    EventNotFound,
    InvalidArgument,
    PastIsReadOnly,
    SeqNotInLog,
    StorageBusy,
    ThreadNotFound,
)
from memory_engine.runtime.threads import Observers
from tests.cancelling import WAYS, Cancelled, moments
from tests.conversations import log

T = TypeVar("T")
FAR = (60.0, 60.0)
"""Waits so long that only a wake-up ends a test in time."""
SOON = (0.001, 0.01)


@pytest.fixture(params=[":memory:", "follow.db"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store of each kind."""
    return request.param if request.param == ":memory:" else str(tmp_path / request.param)


async def said(thread: Thread, *texts: str) -> None:
    """Messages, a commit each."""
    for text in texts:
        await thread.dispatch(UserMessage(content=text))


async def begun(engine: Engine, following: "asyncio.Task[T]") -> None:
    """Wait until somebody looks out for news, or is done."""
    while not kernel_of(engine)[Observers]._waiting and not following.done():  # noqa: ASYNC110 - rounds of the loop
        await asyncio.sleep(0)


async def taken(events: AsyncIterator[RecordedEvent], count: int) -> list[int]:
    """The seqs of the next events."""
    return [(await anext(events)).seq for _ in range(count)]


def content(recorded: RecordedEvent) -> str:
    """The text of a message."""
    assert isinstance(recorded.event, UserMessage)
    assert isinstance(recorded.event.content, str)
    return recorded.event.content


async def test_what_is_there_comes_first_and_then_what_is_dispatched(place: str) -> None:
    """At once, although the next look at the store is a minute away: this engine's own commits wake it."""
    async with memory_engine.open(place) as engine:
        thread = await engine.create_thread("t")
        await said(thread, "a", "b")
        events = thread.follow(poll_s=FAR)
        assert [1, 2] == await taken(events, 2)
        waiting = asyncio.ensure_future(anext(events))
        await begun(engine, waiting)
        await said(await engine.create_thread("other"), "not this")
        assert not waiting.done()
        await said(thread, "c")
        assert "c" == content(await waiting)


@pytest.mark.parametrize(
    ("after", "expected"),
    [(0, [1, 2, 3, 4]), (1, [2, 3, 4]), (3, [4]), (None, [4]), ("the second", [3, 4])],
)
async def test_it_begins_at_any_moment(place: str, after: int | str | None, expected: list[int]) -> None:
    """After a seq or an event's id, or with what is new."""
    async with memory_engine.open(place) as engine:
        thread = await engine.create_thread("t")
        await said(thread, "a")
        await thread.dispatch(UserMessage(content="b"), event_id="the second")
        await said(thread, "c")
        events = thread.follow(after=after)
        following = asyncio.ensure_future(taken(events, len(expected)))
        while not events._begun:  # type: ignore[attr-defined]  # noqa: ASYNC110 - what comes before that is not new
            await asyncio.sleep(0)
        await said(thread, "d")
        assert expected == await following


@pytest.mark.parametrize(
    ("after", "error"), [(9, SeqNotInLog), (-1, SeqNotInLog), (True, SeqNotInLog), ("nobody", EventNotFound)]
)
async def test_a_moment_that_the_log_has_not_is_refused(
    thread: Thread, after: int | str, error: type[Exception]
) -> None:
    """Waiting for it would pass over what comes before."""
    await said(thread, "a")
    with pytest.raises(error):
        await anext(thread.follow(after=after))


@pytest.mark.parametrize("poll_s", [(0, 1), (2, 1), (1,), "soon", ("a", "b"), None, (float("nan"), 1)])
async def test_waits_that_mean_nothing_are_refused(thread: Thread, poll_s: tuple[float, float]) -> None:
    """At the call, not at the first event."""
    with pytest.raises(InvalidArgument, match="poll_s"):
        thread.follow(poll_s=poll_s)


async def test_the_past_has_an_end_and_is_not_followed(thread: Thread) -> None:
    """Its events are read with `events`."""
    await said(thread, "a")
    past = await thread.at(1)
    with pytest.raises(PastIsReadOnly):
        past.follow()


async def test_thousands_of_events_come_in_order(place: str) -> None:
    """Through many pages, from the middle too."""
    async with memory_engine.open(place, config=QUIET) as engine:
        thread = await engine.create_thread("t")
        for start in range(0, 3_000, 1_000):
            await thread.dispatch_all([UserMessage(content=f"{start + n}") for n in range(1_000)])
        assert list(range(1, 3_001)) == await taken(thread.follow(poll_s=FAR), 3_000)
        assert list(range(1_501, 3_001)) == await taken(thread.follow(after=1_500, poll_s=FAR), 1_500)


async def test_a_forks_shared_past_is_included(place: str) -> None:
    """And nothing that its origin says later."""
    async with memory_engine.open(place) as engine:
        thread = await engine.create_thread("t")
        await said(thread, "a", "b", "c")
        fork = await thread.fork(2)
        events = fork.follow(poll_s=SOON)
        assert [1, 2] == await taken(events, 2)
        await said(thread, "not this")
        await said(fork, "mine")
        assert "mine" == content(await anext(events))


async def test_what_another_engine_commits_comes_too(tmp_path: Path) -> None:
    """Nobody tells of it: the store is looked at."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as writer, memory_engine.open(path, config=READ_ONLY) as reader:
        thread = await writer.create_thread("t")
        events = reader.thread("t").follow(poll_s=SOON)
        for n in range(1, 4):
            await said(thread, str(n))
            assert n == (await anext(events)).seq


async def test_what_was_forgotten_and_erased_comes_as_it_stands(place: str) -> None:
    """The log keeps what is forgotten; what is erased comes as its stand-in, also if it was read a moment before."""
    async with memory_engine.open(place) as engine:
        thread = await engine.create_thread("t")
        await said(thread, "a", "b secret", "c")
        events = thread.follow(poll_s=SOON)
        first = await anext(events)
        ids = [event.id for event in await log(thread)]
        await thread.forget(event_ids=ids[:1])
        await thread.admin.erase(ids[1:2])
        kinds = [recorded.type for recorded in await log(thread)]
        rest = [await anext(events) for _ in kinds[1:]]
        assert kinds == [first.type, *(recorded.type for recorded in rest)]
        assert "secret" not in content(rest[0])


async def test_nothing_is_lost_to_a_timeout(thread: Thread) -> None:
    """A call that was given up is made again, and gives the event that was due: it is not a generator's end."""
    events = thread.follow(poll_s=FAR)
    for n in range(1, 4):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.001)
        await said(thread, str(n))
        assert n == (await anext(events)).seq


@WAYS
async def test_cancelled_at_any_moment_it_goes_on_where_it_was(tmp_path: Path, cancelled: Cancelled) -> None:
    """Each event is taken once, by the same iterator."""
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        thread = await engine.create_thread("t")
        await said(thread, "a", "b")
        for moment in moments():
            events, seqs = thread.follow(poll_s=SOON), list[int]()

            async def take(
                events: AsyncIterator[RecordedEvent] = events, seqs: list[int] = seqs, count: int = 3
            ) -> None:
                while len(seqs) < count:
                    seqs.append((await anext(events)).seq)

            count = len(await log(thread)) + 1
            speaking = asyncio.ensure_future(said(thread, "more"))
            await cancelled(lambda take=take, count=count: take(count=count), moment)  # type: ignore[misc]
            await speaking
            await take(count=count)
            assert list(range(1, count + 1)) == seqs


async def test_between_two_events_it_holds_nothing(engine: Engine) -> None:
    """Whoever breaks off leaves no observer, no task and no generator behind."""
    thread = await engine.create_thread("t")
    await said(thread, "a")
    before = len(asyncio.all_tasks())
    async for recorded in thread.follow():
        assert 1 == recorded.seq
        break
    waiting = asyncio.ensure_future(anext(thread.follow(after=None)))
    await begun(engine, waiting)
    waiting.cancel()
    await asyncio.wait([waiting])
    gc.collect()
    assert before == len(asyncio.all_tasks())
    assert [] == kernel_of(engine)[Observers]._observers


async def test_several_followers_each_get_every_event_and_tasks_that_share_one_get_each_once(thread: Thread) -> None:
    """One iterator hands an event to one of those who wait at it."""
    apart = [asyncio.ensure_future(taken(thread.follow(poll_s=FAR), 3)) for _ in range(2)]
    shared = thread.follow(poll_s=FAR)
    together = [asyncio.ensure_future(taken(shared, 1)) for _ in range(3)]
    await said(thread, "a", "b", "c")
    assert [[1, 2, 3]] * 2 == await asyncio.gather(*apart)
    assert [1, 2, 3] == sorted(seq for [seq] in await asyncio.gather(*together))


async def test_the_end_of_the_engine_is_an_error(place: str) -> None:
    """It is endless, so that what ends it has a name; whoever waits hears at once, whoever asks later too."""
    async with memory_engine.open(place) as engine:
        thread = await engine.create_thread("t")
        events = thread.follow(poll_s=FAR)
        waiting = asyncio.ensure_future(anext(events))
        await begun(engine, waiting)
    for again in (waiting, anext(events), anext(thread.follow())):
        with pytest.raises(EngineClosed):
            await again


@asynccontextmanager
async def followed(thread: Thread) -> AsyncIterator[AsyncIterator[RecordedEvent]]:
    """Somebody who has read everything, and waits."""
    events = thread.follow(poll_s=SOON)
    await taken(events, 1)
    yield events


async def test_a_deleted_thread_ends_it(place: str) -> None:
    """Also where it was deleted while somebody waited."""
    async with memory_engine.open(place) as engine:
        thread = await engine.create_thread("t")
        await said(thread, "a")
        async with followed(thread) as events:
            waiting = asyncio.ensure_future(anext(events))
            await begun(engine, waiting)
            await thread.admin.delete()
            with pytest.raises(ThreadNotFound):
                await waiting
        with pytest.raises(ThreadNotFound):
            await anext(thread.follow())


@pytest.mark.parametrize("events_again", [0, 1, 5])
async def test_a_user_who_comes_back_is_another_thread(place: str, events_again: int) -> None:
    """Its events are not those that follow, however many they are."""
    async with memory_engine.open(place) as engine:
        user = engine.user("u1")
        await said(user, "a", "b")
        events = user.follow(poll_s=SOON)
        await taken(events, 2)
        await user.admin.delete()
        await said(user, *(["again"] * events_again))
        with pytest.raises(ThreadNotFound):
            await anext(events)


async def test_a_user_who_is_not_there_yet_is_waited_for(place: str) -> None:
    """The first event makes the thread; a conversation of that id is an error."""
    async with memory_engine.open(place) as engine:
        waiting = asyncio.ensure_future(anext(engine.user("u1").follow(poll_s=SOON)))
        await begun(engine, waiting)
        await said(engine.user("u1"), "first")
        assert "first" == content(await waiting)
        with pytest.raises(ThreadNotFound):
            await anext(engine.thread("nobody").follow())


async def test_a_user_who_comes_between_two_looks_is_followed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is made after it was looked for, and before anybody asks whether it is there."""
    usual = kernel_of(engine).store.head
    coming = iter((False, True))

    async def head(thread_id: str) -> Head:
        try:
            return await usual(thread_id)
        except ThreadNotFound:
            if next(coming, False):
                monkeypatch.undo()
                await said(engine.user("u1"), "first")
            raise

    monkeypatch.setattr(kernel_of(engine).store, "head", head)
    events = engine.user("u1").follow(poll_s=SOON)
    assert "first" == content(await anext(events))


async def test_a_store_that_is_busy_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missed by it."""
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        thread = await engine.create_thread("t")
        await said(thread, "a")
        for name in ("head", "read"):
            fail_once(monkeypatch, engine, name)
        assert [1] == await taken(thread.follow(after=0, poll_s=SOON), 1)


def fail_once(patched: pytest.MonkeyPatch, engine: Engine, name: str) -> None:
    """Let the first call of a store's method find the file locked."""
    usual: Callable[..., object] = getattr(kernel_of(engine).store, name)
    calls = iter((False,))

    async def busy(*args: object, **named: object) -> object:
        if not next(calls, True):
            raise StorageBusy("m.db", 5.0)
        return await usual(*args, **named)  # type: ignore[misc]

    patched.setattr(kernel_of(engine).store, name, busy)


QUIET = EngineConfig(compaction=memory_engine.CompactionPolicy(enabled=False))
READ_ONLY = EngineConfig(read_only=True)
