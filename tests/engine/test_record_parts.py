"""Responses that come in parts, calls that nobody answers, results that come late."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import memory_engine
from memory_engine import Thread, errors
from memory_engine import events as e
from memory_engine.formats.detection import Format
from memory_engine.formats.gemini import GeminiInput
from memory_engine.formats.native import Json
from memory_engine.formats.openai_responses import ResponsesInput
from tests.engine.test_record import completion, events_of


@pytest.fixture
async def thread() -> AsyncIterator[Thread]:
    """A thread without events."""
    async with memory_engine.open(":memory:") as engine:
        yield await engine.create_thread("t")


def said_by_claude(*blocks: Json, tokens: int = 9) -> Json:
    """A response, or a part of one, under one id."""
    usage = {"input_tokens": 5, "output_tokens": tokens}
    around = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "tool_use"}
    return {**around, "usage": usage, "content": list(blocks)}


PARTS: list[Json] = [
    {"type": "thinking", "thinking": "Two cities.", "signature": "seal"},
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}},
    {"type": "tool_use", "id": "b", "name": "weather", "input": {"city": "Bergen"}},
]
RESULTS: list[Json] = [{"type": "tool_result", "tool_use_id": one, "content": f"rain in {one}"} for one in "ab"]
QUESTION: Json = {"role": "user", "content": "Where does it rain?"}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("again", [False, True])
async def test_a_response_in_several_messages_goes_on(thread: Thread, at_once: bool, again: bool) -> None:
    """Each block may come in a message of its own, and come again; the next request holds one message of all."""
    given = [QUESTION, *map(said_by_claude, PARTS), *([said_by_claude(PARTS[1])] if again else [])]
    given.append({"role": "user", "content": RESULTS})
    for group in [given] if at_once else [[one] for one in given]:
        await thread.record(group, format="anthropic")
    sent = (await thread.context()).render("anthropic", cache=False).messages
    assert PARTS == sent[1]["content"]
    assert 3 == len(sent)


async def test_a_response_in_parts_is_not_one_that_says_something_else(thread: Thread) -> None:
    """The same text with a call behind it, or before it, is not a part that goes on."""
    await thread.record([QUESTION, said_by_claude(PARTS[1])])
    with pytest.raises(errors.IdempotencyConflict):
        await thread.record(said_by_claude(*PARTS[1:3]))
    assert 2 == (await thread.info()).events


async def test_parts_of_a_response_at_once_are_all_recorded(thread: Thread) -> None:
    """Whoever sends them, and however often."""
    await thread.record(QUESTION)
    await thread.record(said_by_claude(PARTS[0]))
    await asyncio.gather(*(thread.record(said_by_claude(PARTS[1])) for _ in range(3)))
    assert 3 == (await thread.info()).events


@pytest.mark.parametrize("known", ["openai.chat", "anthropic", "openai.responses"])
async def test_a_call_that_was_abandoned_does_not_block_its_id(thread: Thread, known: Format) -> None:
    """A run was cancelled, somebody spoke, and the model numbers its calls anew: each result goes with its own call."""
    call, result = called(known, "c"), answered(known, "c", "version 4.2")
    stop = {"role": "user", "content": "Stop. Which version runs?"}
    for one in (QUESTION, call, stop, call, result):
        await thread.record(one, format=known)
    rendered = (await thread.context()).render(known)
    assert not isinstance(rendered, GeminiInput)
    shown = str(rendered.input if isinstance(rendered, ResponsesInput) else rendered.messages)
    assert 1 == shown.count("version 4.2")
    assert shown.index("version 4.2") > shown.index("Stop.")


def called(known: Format, call_id: str) -> Json:
    """A call, as a message or item of a format."""
    match known:
        case "openai.chat":
            function = {"name": "run", "arguments": "{}"}
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            }
        case "anthropic":
            return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "run", "input": {}}]}
    return {"type": "function_call", "call_id": call_id, "name": "run", "arguments": "{}"}


def answered(known: Format, call_id: str, text: str) -> Json:
    """Its result."""
    match known:
        case "openai.chat":
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case "anthropic":
            return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]}
    return {"type": "function_call_output", "call_id": call_id, "output": text}


async def test_a_call_said_twice_at_once_is_still_refused(thread: Thread) -> None:
    """Nobody spoke in between: the same message came twice."""
    await thread.record([QUESTION, called("openai.chat", "c")])
    with pytest.raises(errors.InvalidMessage, match="used twice"):
        await thread.record(called("openai.chat", "c"))


async def test_a_result_that_comes_after_its_call_was_compacted(thread: Thread) -> None:
    """A tool works in the background while people talk: its result is recorded, and shown; a second one is refused."""
    await thread.record([QUESTION, called("openai.chat", "slow")])
    for n in range(30):
        asked = {"role": "user", "content": f"What does invoice {n} say? " + "Look closely, please. " * 8}
        await thread.record([asked, {"role": "assistant", "content": f"Invoice {n} is paid on day {n}. " * 6}])
    call = next(chunk for chunk in (await thread.state()).chunks() if chunk.calls)
    await thread.compact([chunk.id for chunk in (await thread.state()).chunks()][:20])
    assert call.id not in [chunk.id for chunk in (await thread.state()).chunks()]
    await thread.record(answered("openai.chat", "slow", "The build failed at step 7."))
    assert "failed at step 7" in str((await thread.context()).messages)
    with pytest.raises(errors.InvalidMessage, match="result without its call"):
        await thread.record(answered("openai.chat", "slow", "Twice."))
    with pytest.raises(errors.InvalidMessage, match="result without its call"):
        await thread.record(answered("openai.chat", "nobody's", "?"))


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_response_that_stopped_in_the_middle_says_why(thread: Thread, reason: str) -> None:
    """It came whole, and ended before the model did."""
    await thread.record(completion({"role": "assistant", "content": "The first of th"}, finish_reason=reason))
    (event,) = await events_of(thread)
    assert isinstance(event, e.LlmTextResponse)
    assert reason == event.interrupted
    assert [{"role": "assistant", "content": "The first of th"}] == (await thread.context()).render(
        "openai.chat"
    ).messages
