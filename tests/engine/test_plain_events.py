"""Events as mappings, as a program that reads JSON has them."""

from datetime import UTC, datetime

import pytest

import memory_engine
from memory_engine import LlmToolCall, NewEvent, ToolCall, UserMessage
from memory_engine.engine import Engine
from memory_engine.errors import InvalidEvent, ReducerError
from memory_engine.thread import Thread
from tests.conversations import LONG


async def _events(thread: Thread) -> list[object]:
    return [one.event async for one in thread.events()]


async def test_a_mapping_is_recorded_as_the_event_that_it_describes(engine: Engine) -> None:
    """By name in either case, with nested values as JSON has them; the engine's `dispatch` takes it too."""
    thread = await engine.create_thread("t")
    await thread.dispatch({"type": "user_message", "content": [{"type": "text", "text": "Where is my chair?"}]})
    call = {"id": "c1", "name": "track", "arguments": "{}"}
    await engine.dispatch("t", {"type": "LLM_TOOL_CALL", "calls": [call]}, event_id="mine")
    assert [
        UserMessage(content=(memory_engine.events.TextPart("Where is my chair?"),)),
        LlmToolCall(calls=(ToolCall("c1", "track"),)),
    ] == await _events(thread)
    assert (await thread.replay.verify()).ok


async def test_events_and_mappings_may_come_together(engine: Engine) -> None:
    """In one call of `dispatch_all`, in order."""
    thread = await engine.create_thread()
    said: list[memory_engine.NewEvent | UserMessage | dict[str, object]] = [
        {"type": "user_message", "content": "one"},
        UserMessage(content="two"),
        NewEvent(UserMessage(content="three"), id="3"),
    ]
    await thread.dispatch_all(said)
    assert ["one", "two", "three"] == [getattr(event, "content", "") for event in await _events(thread)]


@pytest.mark.parametrize(
    "timestamp", [1_700_000_000_000, 1_700_000_000, 1_700_000_000.0, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)]
)
async def test_a_timestamp_says_when_it_occurred(engine: Engine, timestamp: object) -> None:
    """In milliseconds, in seconds, or as a time; what the caller says by keyword goes before it."""
    thread = await engine.create_thread()
    given = {"type": "user_message", "content": "Hello", "timestamp": timestamp}
    await thread.dispatch(given)
    await thread.dispatch_all([given])
    then = datetime(2020, 1, 1, tzinfo=UTC)
    await thread.dispatch(given, occurred_at=then)
    meant = datetime.fromtimestamp(1_700_000_000, UTC)
    assert [meant, meant, then] == [one.occurred_at async for one in thread.events()]


async def test_a_mapping_makes_a_scope_and_may_be_large(engine: Engine) -> None:
    """As any first event does; a large one goes where large ones go."""
    user = engine.user("ann")
    await user.dispatch({"type": "user_message", "content": LONG})
    await user.dispatch_all([{"type": "user_message", "content": "x" * 300_000}])
    await user.dispatch({"type": "user_message", "content": "y" * 300_000, "timestamp": 0})
    assert 3 == (await user.info()).events


WRONG: list[tuple[dict[str, object], str]] = [
    ({"content": "Hello"}, "needs a `type`"),
    ({"type": 7, "content": "Hello"}, "needs a `type`"),
    ({"type": "user_mesage", "content": "Hello"}, "did you mean 'user_message'"),
    ({"type": "zzz"}, "`memory_engine.events`"),
    ({"type": "user_message", "contents": "Hello"}, r"did you mean 'content'.*\$\.contents"),
    ({"type": "user_message", "content": "Hello", "qqq": 1}, "its fields are content"),
    ({"type": "user_message", "content": 7}, r"\$\.content"),
    ({"type": "user_message", "content": "Hello", "timestamp": "now"}, r"\$\.timestamp"),
    ({"type": "user_message", "content": "Hello", "timestamp": True}, r"\$\.timestamp"),
    ({"type": "user_message", "content": "Hello", "timestamp": 1e300}, r"\$\.timestamp"),
    ({"type": "user_message", "content": "Hello", "timestamp": float("nan")}, r"\$\.timestamp"),
    ({"type": "user_message"}, "content"),
]


@pytest.mark.parametrize(("given", "why"), WRONG)
async def test_a_mapping_that_is_no_event_is_refused(engine: Engine, given: dict[str, object], why: str) -> None:
    """With the place and what to write instead; nothing is recorded, alone or among others."""
    thread = await engine.create_thread()
    for send in (thread.dispatch(given), thread.dispatch_all([UserMessage(content="a"), given])):
        with pytest.raises(InvalidEvent, match=why):
            await send
    assert [] == await _events(thread)


async def test_whether_events_wait_is_asked_beside_dispatch(engine: Engine) -> None:
    """By the thread's id, as `engine.dispatch` is."""
    thread = await engine.create_thread("t")
    assert (False, None) == (await engine.is_blocked("t"), await engine.blocking_reason("t"))
    await thread.admin.pause()
    assert (True, "PAUSED") == (await engine.is_blocked("t"), getattr(await engine.blocking_reason("t"), "name", ""))


async def test_a_mapping_reaches_the_reducers_typed(engine: Engine) -> None:
    """What a reducer refuses is refused of a mapping too."""
    thread = await engine.create_thread()
    with pytest.raises((ReducerError, memory_engine.errors.EventRefused)):
        await thread.dispatch({"type": "memory_mark_critical", "chunk_ids": ["9.9"]})
