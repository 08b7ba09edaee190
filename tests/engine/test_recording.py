"""A response that streams in: as if it had come whole, or what had come when it broke."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.core.chunks import INTERRUPTED
from memory_engine.formats.native import Json, from_native
from memory_engine.runtime.recording import CUT_SHORT, Recording
from memory_engine.thread import handle_of
from tests.engine.test_record import call, completion, events_of, fields_of, message, response

MANUAL = EngineConfig(compaction=CompactionPolicy(enabled=False))


@pytest.fixture
async def thread() -> AsyncIterator[Thread]:
    """A thread without events."""
    async with memory_engine.open(":memory:", config=MANUAL) as engine:
        yield await engine.create_thread("t")


def chunk(delta: Json, finish_reason: str | None = None, **more: object) -> Json:
    """A chunk of chat-completions."""
    return {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], **more
    }  # fmt: skip


def part_of_call(index: int, arguments: str, **more: object) -> Json:
    """A delta of a tool call."""
    return {"tool_calls": [{"index": index, **more, "function": {"arguments": arguments}}]}


CHAT: list[Json] = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "Where "}),
    chunk({"reasoning_content": "am I?"}),
    chunk({"content": "Let me "}),
    chunk({"content": "see."}),
    chunk(
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}]}
    ),
    chunk(part_of_call(0, '{"at":')),
    chunk(part_of_call(0, '"é"}')),
    chunk(
        {"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}
    ),
    chunk({}, "tool_calls"),
    {**chunk({}), "choices": [], "usage": {"total_tokens": 9}},
]
CHAT_WHOLE = completion(
    {
        "role": "assistant", "content": "Let me see.", "reasoning_content": "Where am I?",
        "tool_calls": [call("c1", '{"at":"é"}'), call("c2")],
    },
    finish_reason="tool_calls",
)  # fmt: skip


def block(index: int, start: Json, *deltas: Json) -> list[Json]:
    """The events of a content block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


ANTHROPIC: list[Json] = [
    {"type": "message_start", "message": {**message([]), "stop_reason": None}},
    {"type": "ping"},
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Where am I?"},
        {"type": "signature_delta", "signature": "sig=="},
    ),
    *block(1, {"type": "redacted_thinking", "data": "EmwKAhgB"}),
    *block(
        2,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "Let me "},
        {"type": "text_delta", "text": "see."},
        {"type": "citations_delta", "citation": {"cited_text": "x"}},
    ),
    *block(
        3,
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"at":'},
        {"type": "input_json_delta", "partial_json": '"é"}'},
    ),
    *block(4, {"type": "tool_use", "id": "c2", "name": "look", "input": {}}),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
ANTHROPIC_WHOLE = message(
    [
        {"type": "thinking", "thinking": "Where am I?", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
        {"type": "text", "text": "Let me see.", "citations": [{"cited_text": "x"}]},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "é"}},
        {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
    ],
    stop_reason="tool_use",
)
REASONING: Json = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Where am I?"}]}
SAID: Json = {
    "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
}  # fmt: skip
CALLED: list[Json] = [
    {"type": "function_call", "id": f"f{n}", "call_id": f"c{n}", "name": "look", "arguments": arguments}
    for n, arguments in ((1, '{"at":"é"}'), (2, "{}"))
]


def item(index: int, whole: Json, begun: Json, *deltas: Json) -> list[Json]:
    """The events of an item."""
    return [
        {"type": "response.output_item.added", "output_index": index, "item": {**whole, **begun}},
        *({"output_index": index, **delta} for delta in deltas),
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]


RESPONSES_WHOLE = response([REASONING, SAID, *CALLED])
RESPONSES: list[Json] = [
    {"type": "response.created", "response": response([], status="in_progress")},
    *item(
        0, REASONING, {"summary": []},
        {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": "Where am I?"},
    ),
    *item(
        1, SAID, {"content": []},
        {"type": "response.output_text.delta", "content_index": 0, "delta": "Let me "},
        {"type": "response.output_text.delta", "content_index": 0, "delta": "see."},
    ),
    *item(
        2, CALLED[0], {"arguments": ""},
        {"type": "response.function_call_arguments.delta", "delta": '{"at":'},
        {"type": "response.function_call_arguments.delta", "delta": '"é"}'},
    ),
    *item(3, CALLED[1], {}),
    {"type": "response.completed", "response": RESPONSES_WHOLE},
]  # fmt: skip
STREAMS: dict[str, tuple[list[Json], Json]] = {
    "openai.chat": (CHAT, CHAT_WHOLE),
    "anthropic": (ANTHROPIC, ANTHROPIC_WHOLE),
    "openai.responses": (RESPONSES, RESPONSES_WHOLE),
}
every_format = pytest.mark.parametrize("format", STREAMS)


async def recorded(thread: Thread, chunks: Sequence[object]) -> list[object]:
    """The events of a stream of chunks, without what came around the response."""
    async with thread.recording() as turn:
        for one in chunks:
            turn.feed(one)
    return bare(await events_of(thread))


async def broken(turn: Recording, chunks: Sequence[object]) -> None:
    """A stream that breaks off after these chunks."""
    async with turn:
        for one in chunks:
            turn.feed(one)
        raise ConnectionError("gone")


def bare(events: Sequence[object]) -> list[object]:
    """The events without `response`, which a stream tells less of."""
    return [(type(one), {**fields_of(one), "native": kept(one)}) for one in events]


def kept(event: object) -> list[object]:
    """What `native` holds of the message itself."""
    return [from_native(getattr(event, "native", ""), one).get("message") for one in STREAMS]


@every_format
async def test_a_stream_is_recorded_as_the_whole_response(thread: Thread, format: str) -> None:
    """The same events under the same ids: recorded again when it is at hand in one piece, it is known."""
    chunks, whole = STREAMS[format]
    async with thread.recording() as turn:
        for one in chunks:
            turn.feed(one)
    assert "Let me see." == turn.text
    assert ["c1", "c2"] == [one.id for one in turn.calls]
    assert turn.receipts == await thread.record(whole)
    assert (await thread.replay.verify()).ok


async def test_chunks_of_an_sdk_are_taken(thread: Thread) -> None:
    """As objects, also inside the events of its stream helper."""
    from openai.types.chat import ChatCompletionChunk

    chunks: list[object] = [ChatCompletionChunk.model_validate(one) for one in CHAT[:5]]
    helped = [{"type": "chunk", "chunk": one} for one in CHAT[5:]]
    assert await recorded(thread, [*chunks, {"type": "content.delta", "delta": "see."}, *helped])
    assert 3 == len(await thread.record(CHAT_WHOLE)) + 1


@every_format
async def test_whenever_a_stream_breaks_what_came_is_recorded(format: str) -> None:
    """After each chunk of it: its text is a beginning of the text, and no call waits."""
    chunks, _ = STREAMS[format]
    async with memory_engine.open(":memory:", config=MANUAL) as engine:
        for count in range(1, len(chunks)):
            thread = await engine.create_thread()
            turn = thread.recording()
            with pytest.raises(ConnectionError, match="gone"):
                await broken(turn, chunks[:count])
            events = await events_of(thread)
            last = events[-1]
            if isinstance(last, e.LlmToolCall):  # its end had come
                assert count >= len(chunks) - 2
                continue
            assert isinstance(last, e.LlmTextResponse)
            assert ("ConnectionError: gone", turn.text) == (last.interrupted, last.content)
            assert "Let me see.".startswith(turn.text)
            assert {INTERRUPTED} == {
                chunk.status for chunk in (await thread.state()).chunks() if chunk.type == "agent_response"
            }
            assert not any(chunk.calls for chunk in (await thread.state()).chunks())
            assert (await thread.replay.verify()).ok


async def test_half_a_call_is_kept_as_it_came(thread: Thread) -> None:
    """Under `unfinished`, where a person finds it."""
    with pytest.raises(ConnectionError):
        await broken(thread.recording(), CHAT[:7])
    around = from_native((await events_of(thread))[-1].native, "openai.chat")["response"]  # type: ignore[union-attr]
    assert isinstance(around, dict)
    assert [call("c1", '{"at":')] == around["unfinished"]
    await thread.record({"role": "user", "content": "Go on."})
    assert ["assistant", "user"] == [one["role"] for one in (await thread.context()).messages]


@every_format
async def test_a_stream_without_its_end_is_marked(thread: Thread, format: str) -> None:
    """Also where nothing was raised; the whole response may still come later."""
    chunks, whole = STREAMS[format]
    await recorded(thread, chunks[:6])
    last = (await events_of(thread))[-1]
    assert isinstance(last, e.LlmTextResponse)
    assert CUT_SHORT == last.interrupted
    assert ["c1", "c2"] == [one.id for receipt in await thread.record(whole) for c in receipt.chunks for one in c.calls]


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        (
            [*ANTHROPIC[:3], {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}],
            "Overloaded",
        ),
        ([RESPONSES[0], {"type": "error", "message": "Server error"}], "Server error"),
        ([CHAT[0], {"error": {"code": 502, "message": "Upstream"}}], "Upstream"),
        ([CHAT[0], chunk({}, "error", error={"code": 502, "message": "Upstream"})], "Upstream"),
        ([CHAT[0], chunk({}, "error")], "the provider ended the response with an error"),
        ([{"error": {"message": "Busy"}}], "Busy"),
        ([RESPONSES[0], {"type": "response.failed", "response": {**response([]), "error": {"message": "No"}}}], "No"),
    ],
)
async def test_what_the_provider_says_went_wrong_is_kept(thread: Thread, chunks: list[Json], why: str) -> None:
    """An error may come within the stream."""
    await recorded(thread, chunks)
    last = (await events_of(thread))[-1]
    assert isinstance(last, e.LlmTextResponse)
    assert why == last.interrupted


async def test_chunks_that_keep_the_line_open_say_nothing(thread: Thread) -> None:
    """Some gateways send empty objects, before the first chunk and between others."""
    assert await recorded(thread, [one for said in CHAT for one in ({}, said)]) == await recorded(thread, CHAT)


@pytest.mark.parametrize("at_once", [False, True])
async def test_calls_of_one_index_are_told_apart_by_their_ids(thread: Thread, at_once: bool) -> None:
    """Some servers give all parallel calls index 0. Others give every fragment of a call a new id: that is one call."""
    said = [("a", "weather", '{"city": '), ("a2", "", '"Oslo"}'), ("b", "weather", '{"city": "Bergen"}')]
    parts: list[Json] = [
        {"index": 0, "id": call_id, "type": "function", "function": {"name": name or None, "arguments": arguments}}
        for call_id, name, arguments in said
    ]
    deltas = [parts] if at_once else [[one] for one in parts]
    async with thread.recording() as turn:
        for calls in deltas:
            turn.feed(chunk({"tool_calls": calls}))
        turn.feed(chunk({}, "tool_calls"))
    assert [("a", '{"city": "Oslo"}'), ("b", '{"city": "Bergen"}')] == [(one.id, one.arguments) for one in turn.calls]


async def test_a_stream_of_which_nothing_came_leaves_nothing(thread: Thread) -> None:
    """The request failed: there is no response."""
    with pytest.raises(ConnectionError):
        await broken(thread.recording(), [])
    assert [] == await events_of(thread)


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([{"type": "noise"}], "no format begins with"),
        ([5], "a chunk is an object"),
        ([*ANTHROPIC[:1], {"type": "content_block_delta", "index": 7, "delta": {}}], "block 7, which has not begun"),
        ([*RESPONSES[:1], {**RESPONSES[2], "output_index": 7}], "item 7, which has not begun"),
        ([{**CHAT[0], "choices": [{"index": 1, "delta": {}}]}], "several choices"),
    ],
)
async def test_what_is_no_chunk_is_refused(thread: Thread, chunks: list[object], why: str) -> None:
    """By name; what had come before is recorded."""
    with pytest.raises(errors.InvalidMessage, match=why):
        await recorded(thread, chunks)
    assert (len(chunks) > 1) == bool(await events_of(thread))


# cancellation


async def cancelled_in(thread: Thread, wait: Callable[[], object]) -> None:
    """Feed the beginning of a stream, and wait there until cancelled."""
    async with thread.recording() as turn:
        for one in CHAT[:5]:
            turn.feed(one)
        wait()
        await asyncio.Event().wait()


async def test_a_cancelled_caller_loses_nothing(thread: Thread) -> None:
    """What had come is recorded before the cancellation goes on."""
    there = asyncio.Event()
    task = asyncio.create_task(cancelled_in(thread, there.set))
    await there.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    thinking, text = await events_of(thread)
    assert isinstance(thinking, e.LlmThinking)
    assert isinstance(text, e.LlmTextResponse)
    assert ("Let me see.", "cancelled") == (text.content, text.interrupted)


@pytest.mark.parametrize("steps", range(12))
async def test_a_cancellation_at_any_await_loses_nothing(thread: Thread, steps: int) -> None:
    """While the response is being recorded too: it is there once the caller is gone."""

    async def whole() -> None:
        async with thread.recording() as turn:
            for one in CHAT:
                turn.feed(one)

    task = asyncio.create_task(whole())
    for _ in range(steps):
        await asyncio.sleep(0)
    begun = bool(steps)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    events = await events_of(thread)
    if begun and events:
        assert isinstance(events[-1], e.LlmToolCall)
    assert len(events) in (0, 2)


async def test_a_paused_thread_does_not_hold_a_cancelled_caller(thread: Thread) -> None:
    """What had come is recorded when the thread goes on."""
    there = asyncio.Event()
    task = asyncio.create_task(cancelled_in(thread, there.set))
    await there.wait()
    await thread.admin.pause()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await thread.admin.resume()
    await handle_of(thread).kernel.tasks.wait()
    assert ["Let me see."] == [one.content for one in await events_of(thread) if isinstance(one, e.LlmTextResponse)]


async def test_what_a_provider_does_not_allow_is_kept_as_it_came(thread: Thread) -> None:
    """A thought without its text, and then nothing more."""
    await recorded(thread, [ANTHROPIC[0], *block(0, {"type": "text", "text": "Hm."}), *block(1, {"type": "thinking"})])
    (text,) = await events_of(thread)
    assert isinstance(text, e.LlmTextResponse)
    assert ("Hm.", CUT_SHORT) == (text.content, text.interrupted)
    assert '"unfinished":[{"role":"assistant","content":[' in text.native


async def test_a_response_that_cannot_be_recorded_says_so(thread: Thread) -> None:
    """A call id that waits already: what came is kept, and the caller is told."""
    await thread.record({"role": "assistant", "tool_calls": [call("c1")]})
    with pytest.raises(errors.InvalidMessage, match="'c1' is used twice"):
        await recorded(thread, CHAT)
    last = (await events_of(thread))[-1]
    assert isinstance(last, e.LlmTextResponse)
    assert "Let me see." == last.content


async def endless() -> AsyncIterator[Json]:
    """A stream that never ends."""
    while True:
        yield CHAT[3]


async def silent() -> AsyncIterator[Json]:
    """A stream that falls silent after two chunks."""
    for one in CHAT[3:5]:
        yield one
    await asyncio.Event().wait()


@pytest.mark.parametrize("stream", [endless, silent, lambda: itertools.repeat(CHAT[3]), lambda: [endless()]])
async def test_a_stream_given_whole_is_refused_at_once(thread: Thread, stream: Callable[[], object]) -> None:
    """Nothing waits for it to end: its pieces are fed one by one, by whoever waits for them."""
    for new_only in (False, True):
        with pytest.raises(errors.InvalidMessage, match=r"is not a value of JSON; feed .* to `thread\.recording\(\)`"):
            await thread.record(stream(), new_only=new_only)
    with pytest.raises(errors.InvalidMessage, match=r"is not a value of JSON|this is a list"):
        async with thread.recording() as turn:
            turn.feed(stream())
    assert 0 == await handle_of(thread).last_seq()


async def test_a_deadline_between_two_pieces_keeps_what_came(thread: Thread) -> None:
    """As the page on recording shows it."""
    pieces = silent()
    with pytest.raises(TimeoutError):  # noqa: PT012 - the block is the page's
        async with thread.recording() as turn:
            while (piece := await asyncio.wait_for(anext(pieces, None), timeout=0.02)) is not None:
                turn.feed(piece)
    [said] = [one.event async for one in thread.events()]
    assert isinstance(said, e.LlmTextResponse)
    assert ("Let me see.", "TimeoutError") == (said.content, said.interrupted)
