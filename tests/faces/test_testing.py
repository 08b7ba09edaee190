"""The public fakes keep their promises, since users' tests rest on them."""

import asyncio
import importlib
import subprocess
import sys
import uuid
from contextlib import suppress

import pytest

import memory_engine
from memory_engine import Chunk, CompactionContext, CompactionResult, errors
from memory_engine import events as e
from memory_engine.core.operations import Add
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import (
    FakeCompactor,
    FaultyStore,
    Hangs,
    ManualClock,
    RecordingObserver,
    Returns,
    SequentialIds,
    given,
)

HELLO = e.UserMessage(content="Hello")
CHUNKS = (Chunk(id="1.0", type="note", content="a"), Chunk(id="2.0", type="note", content="b"))
CONTEXT = CompactionContext(thread_id="t", budget_tokens=10)


def test_the_package_loads_no_pytest() -> None:
    """Fakes are of use in any process; only the storage contract needs pytest."""
    code = "import sys; from memory_engine.testing import FakeCompactor, FaultyStore, given"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'pytest' not in sys.modules"], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="nothing"):
        getattr(importlib.import_module("memory_engine.testing"), "nothing")  # noqa: B009 - no checker may see it


def test_a_manual_clock_goes_when_it_is_told() -> None:
    """Forward and back, to the microsecond."""
    clock = ManualClock(5)
    clock.advance(1.5)
    later = clock.now_us()
    clock.advance(-1)
    assert (1_500_005, 500_005, 500_005) == (later, clock.now_us(), clock.us)


def test_sequential_ids_are_ids() -> None:
    """Valid UUIDv7 of the given time, all different, the same for the same seed and no other."""
    one, same, other = SequentialIds("a"), SequentialIds("a"), SequentialIds("b")
    ids = [one.event_id(1_700_000_000_000_000) for _ in range(50)]
    assert (50, {7}) == (len(set(ids)), {uuid.UUID(one).version for one in ids})
    assert {1_700_000_000_000} == {uuid.UUID(one).int >> 80 for one in ids}
    assert (ids[0], True) == (
        same.event_id(1_700_000_000_000_000),
        ids[0] != other.event_id(1_700_000_000_000_000),
    )
    assert (one.salt(), 16) == (same.salt(), len(other.salt()))


# given, when, then

WRONG_EXPECTATIONS = [
    ("operations: expected ['ADD 9.9'], found ['ADD 2.0']", {"operations": ["ADD 9.9"]}),
    ("operations: expected [], found ['ADD 2.0']", {"operations": []}),
    (
        "operations: expected ['ADD 2.0', 'DELETE 1.0'], found ['ADD 2.0']",
        {"operations": ["ADD 2.0", "DELETE 1.0"]},
    ),
    ("chunk_texts: expected ['x'], found ['Hello']", {"chunk_texts": ["x"]}),
    ("state: expected ['Hello'], found ['Hello', 'Hello']", {"state": ["Hello"]}),
]


@pytest.mark.parametrize(("message", "expected"), WRONG_EXPECTATIONS)
def test_a_wrong_expectation_says_what_was_found(message: str, expected: dict[str, list[str]]) -> None:
    """The failure names the part, what was expected and what was found."""
    outcome = given(HELLO).when(HELLO)
    with pytest.raises(AssertionError) as caught:
        outcome.then(
            operations=expected.get("operations"),
            chunk_texts=expected.get("chunk_texts"),
            state=expected.get("state"),
        )
    assert message == str(caught.value)


def test_operations_are_compared_as_values_or_lines() -> None:
    """A value must be equal in every field, a line only in what it shows."""
    outcome = given().when(HELLO).then(operations=[Add("1.0")]).then(operations=["ADD 1.0"])
    with pytest.raises(AssertionError):
        outcome.then(operations=[Add("1.0", first=True)])


def test_an_error_that_nobody_expects_is_raised() -> None:
    """`then` raises it, `then_raises` gives it back, and wants the right one."""
    outcome = given().when(e.UserMessage(content="\ud800"))
    with pytest.raises(errors.InvalidEvent):
        outcome.then()
    assert outcome.error is outcome.then_raises(errors.InvalidInput)
    with pytest.raises(AssertionError, match="expected QueueFull, got InvalidEvent"):
        outcome.then_raises(errors.QueueFull)
    with pytest.raises(AssertionError, match="expected InvalidEvent, got None"):
        given().when(HELLO).then_raises(errors.InvalidEvent)


def test_what_is_given_must_be_possible() -> None:
    """An event that is refused on the way to the state raises at once."""
    with pytest.raises(errors.ReducerError):
        given(HELLO, e.ThreadSeeded(chunks=(e.InitialChunk("x", retention="odd"),)))


# FakeCompactor


async def test_a_fake_compactor_does_its_script() -> None:
    """Step after step, the last one for ever, and it remembers what it was asked."""
    line = e.SummaryLine("next_steps", "Go.", ("1.0",))
    compactor = FakeCompactor("one", line, [line, line], Returns(None), RuntimeError("boom"))
    given_back = [await compactor.compact(CHUNKS, CONTEXT) for _ in range(4)]
    one = e.SummaryLine("current_state", "one", ("1.0", "2.0"))
    assert [
        CompactionResult(lines=(one,)),
        CompactionResult(lines=(line,)),
        CompactionResult(lines=(line, line)),
        None,
    ] == given_back
    for _ in range(2):
        with pytest.raises(RuntimeError, match="boom"):
            await compactor.compact(CHUNKS, CONTEXT)
    assert ([CHUNKS] * 6, True) == ([call.chunks for call in compactor.calls], compactor.begun.is_set())


async def test_a_fake_compactor_hangs_until_it_is_released() -> None:
    """And counts the calls that were cancelled while they hung."""
    compactor = FakeCompactor(Hangs("late"))
    calls = [asyncio.create_task(compactor.compact(CHUNKS, CONTEXT)) for _ in range(2)]
    await compactor.begun.wait()
    await asyncio.sleep(0)
    calls[0].cancel()
    with suppress(asyncio.CancelledError):
        await calls[0]
    compactor.release()
    assert ("late", 1) == ((await calls[1]).lines[0].text, compactor.cancelled)


async def test_a_fake_compactor_takes_what_it_is_told_to() -> None:
    """All chunks must be to its taste; a step that is none is a mistake in the test."""
    compactor = FakeCompactor(5, takes=lambda chunk: chunk.text == "a")
    assert (True, False) == (compactor.can_compact(CHUNKS[:1]), compactor.can_compact(CHUNKS))
    with pytest.raises(TypeError, match="a script holds"):
        await compactor.compact(CHUNKS, CONTEXT)


async def test_a_compactor_that_fails_is_in_the_log() -> None:
    """An engine records the failure and leaves the originals, whatever a fake does."""
    nonsense = [
        Returns(None),
        Returns(CompactionResult(lines=())),
        [e.SummaryLine("", " ")],
        "long " * 500,
        OSError("disk"),
    ]
    compactor = FakeCompactor(*nonsense)
    async with memory_engine.open(":memory:", compactor=compactor) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([e.UserMessage(content="words " * 30), e.LlmTextResponse(content="words " * 30)])
        before = list((await thread.state()).chunks())
        for _ in nonsense:
            with pytest.raises(errors.CompactorFailed):
                await thread.compact()
        types = [recorded.type for recorded in await thread.replay.latest(2 * len(nonsense))]
        assert ["compaction_started", "compaction_failed"] * len(nonsense) == types
        assert (before, True) == (list((await thread.state()).chunks()), (await thread.replay.verify()).ok)


# FaultyStore and RecordingObserver


async def test_faults_come_where_they_were_planned() -> None:
    """The n-th commit from now on fails, those around it do not."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(HELLO)
        store.fail(errors.StorageBusy("disk", 0.0), commit=2)
        outcomes = [(await asyncio.gather(thread.dispatch(HELLO), return_exceptions=True))[0] for _ in range(3)]
        assert [False, True, False] == [isinstance(outcome, errors.StorageBusy) for outcome in outcomes]
        assert (4, 3) == (store.commits, (await thread.info()).events)


async def test_a_held_commit_waits() -> None:
    """Until it is released; closing lets it go on, so that a forgotten one hangs no test."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread()
        hold = store.hold()
        sender = asyncio.create_task(thread.dispatch(HELLO))
        await hold.begun.wait()
        assert (False, 0) == (sender.done(), (await thread.info()).events)
        hold.release()
        assert 1 == (await sender).seq


async def test_a_held_commit_may_fail_afterwards() -> None:
    """Held and failed are planned apart, and come together."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread()
        hold = store.hold()
        store.fail(errors.StorageFailed("disk", "gone"))
        sender = asyncio.create_task(thread.dispatch(HELLO))
        await hold.begun.wait()
        hold.release()
        with pytest.raises(errors.StorageFailed):
            await sender


async def test_an_observer_is_waited_for() -> None:
    """`wait_for` gives the n-th event of a type, at once if it was there already."""
    observer = RecordingObserver()
    async with memory_engine.open(":memory:") as engine:
        engine.observe(observer)
        thread = await engine.create_thread()
        waiting = asyncio.create_task(observer.wait_for("user_message", 2))
        await thread.dispatch_all([HELLO, e.LlmTextResponse(content="Hi"), HELLO])
        assert 3 == (await waiting).seq
        assert (1, 2) == (
            (await observer.wait_for("user_message")).seq,
            (await observer.wait_for("llm_text_response")).seq,
        )
        assert ["user_message", "llm_text_response", "user_message"] == observer.types
