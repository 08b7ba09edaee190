"""A provider's messages in a thread: what becomes of each, what is refused, and what comes twice."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.formats.detection import Format
from memory_engine.formats.native import Json, from_native
from tests.provider_messages import anthropic_messages, chat_messages, response_items

USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}


@pytest.fixture
async def thread() -> AsyncIterator[Thread]:
    """A thread without events."""
    async with memory_engine.open(":memory:") as engine:
        yield await engine.create_thread("t")


async def events_of(thread: Thread) -> list[Event | UnknownEvent]:
    """The events of a thread."""
    return [recorded.event async for recorded in thread.events()]


def completion(message: Mapping[str, object], id: str = "chatcmpl-1", finish_reason: str = "stop") -> Json:
    """A chat completion as the provider sends it."""
    choice = {"index": 0, "finish_reason": finish_reason, "logprobs": None, "message": message}
    return {
        "id": id, "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice], "usage": USAGE
    }  # fmt: skip


def response(output: Sequence[object], id: str = "resp_1", **more: object) -> Json:
    """A response of the Responses API as the provider sends it."""
    return {
        "id": id, "object": "response", "created_at": 1, "model": "gpt", "status": "completed", "output": list(output),
        "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "instructions": "Be kind.", **more
    }  # fmt: skip


def message(content: Sequence[object], id: str = "msg_1", stop_reason: str = "end_turn") -> Json:
    """An Anthropic message as the provider sends it."""
    return {
        "id": id, "type": "message", "role": "assistant", "model": "claude", "content": list(content),
        "stop_reason": stop_reason, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 5}
    }  # fmt: skip


def call(call_id: str, arguments: str = "{}") -> Json:
    """A tool call of chat-completions."""
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}


CHAT: list[Json] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Who is there?"},
    {"role": "assistant", "content": None, "tool_calls": [call("c1")]},
    {"role": "tool", "tool_call_id": "c1", "content": "Nobody."},
    {"role": "assistant", "content": "Nobody."},
]
CHAT_EVENTS = [
    e.SessionStarted(content="Be kind."),
    e.UserMessage(content="Who is there?"),
    e.LlmToolCall(calls=(e.ToolCall("c1", "look"),)),
    e.ToolResult(call_id="c1", content="Nobody."),
    e.LlmTextResponse(content="Nobody."),
]


async def test_a_list_of_messages_is_recorded_in_its_order(thread: Thread) -> None:
    """One receipt an event."""
    receipts = await thread.record(CHAT)
    assert CHAT_EVENTS == await events_of(thread)
    assert [1, 2, 3, 4, 5] == [receipt.seq for receipt in receipts]
    assert (await thread.replay.verify()).ok


async def test_a_message_alone_is_recorded(thread: Thread) -> None:
    """What it answers may have come long before."""
    for one in CHAT:
        await thread.record(one)
    assert CHAT_EVENTS == await events_of(thread)


async def test_objects_of_an_sdk_are_taken_as_they_are(thread: Thread) -> None:
    """A response whole, with its usage; its message; a dictionary that holds objects."""
    from openai.types.chat import ChatCompletion

    asked = ChatCompletion.model_validate(
        completion({"role": "assistant", "tool_calls": [call("c1")]}, "a", "tool_calls")
    )
    (receipt,) = await thread.record(asked)
    around = from_native(receipt.chunks[0].native, "openai.chat")["response"]
    assert isinstance(around, dict)
    assert ("a", "gpt", USAGE) == (around["id"], around["model"], around["usage"])
    await thread.record({"role": "tool", "tool_call_id": "c1", "content": "seen"})
    said = ChatCompletion.model_validate(completion({"role": "assistant", "content": "Yes.", "refusal": None}))
    await thread.record(said.choices[0].message)
    assert e.LlmTextResponse(content="Yes.") == (await events_of(thread))[-1]


async def test_a_response_is_one_response(thread: Thread) -> None:
    """Its reasoning, its text and its parallel calls share the provider's id; reasoning is kept as it is sealed."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAB=="}
    said = {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
    }  # fmt: skip
    calls = [
        {"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": "look", "arguments": "{}"}
        for n in (1, 2)
    ]
    from openai.types.responses import Response

    await thread.record(Response.model_validate(response([reasoning, said, *calls])))
    thinking, text, asked = await events_of(thread)
    assert isinstance(thinking, e.LlmThinking)
    assert isinstance(text, e.LlmTextResponse)
    assert isinstance(asked, e.LlmToolCall)
    assert {"resp_1"} == {thinking.response_id, text.response_id, asked.response_id}
    assert {"message": [{"$whole": reasoning}]} == from_native(thinking.native, "openai.responses")
    assert ["c1", "c2"] == [one.id for one in asked.calls]
    around = from_native(asked.native, "openai.responses")["response"]
    assert isinstance(around, dict)
    assert not {"instructions", "output"} & around.keys()


async def test_an_anthropic_message_keeps_its_thoughts(thread: Thread) -> None:
    """Signed ones with their signature, sealed ones whole; an error among the results is an error."""
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "é"}},
    ]
    await thread.record(message(blocks, stop_reason="tool_use"))
    results = [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": "Too dark."}]
    await thread.record({"role": "user", "content": [*results, {"type": "text", "text": "And?"}]})
    thinking, sealed, asked, *rest = await events_of(thread)
    assert e.LlmThinking(content="Hm.", signature="sig==", response_id="msg_1") == thinking
    assert isinstance(sealed, e.LlmThinking)
    assert {"message": [{"$whole": blocks[1]}]} == from_native(sealed.native, "anthropic")
    assert isinstance(asked, e.LlmToolCall)
    assert (e.ToolCall("toolu_1", "look", '{"at":"é"}'),) == asked.calls
    assert [
        e.ToolError(call_id="toolu_1", content="Too dark."), e.UserMessage(content=(e.TextPart("And?"),))
    ] == rest  # fmt: skip


@pytest.mark.parametrize(
    ("part", "held"),
    [
        (
            {"type": "document", "title": "lease", "source": {
                "type": "base64", "media_type": "application/pdf", "data": "AA=="}},
            e.FilePart("data:application/pdf;base64,AA==", "application/pdf", "lease"),
        ),
        ({"type": "image", "source": {"type": "file", "file_id": "f1"}}, e.ImagePart("", file_id="f1")),
        ({"type": "input_file", "file_id": "f1"}, e.FilePart(file_id="f1")),
        (
            {"type": "input_image", "image_url": "https://a.org", "detail": "low"},
            e.ImagePart("https://a.org", detail="low"),
        ),
        ({"type": "file", "file": {"filename": "a.pdf", "file_id": "f1"}}, e.FilePart(name="a.pdf", file_id="f1")),
        (
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
            e.FilePart("data:audio/mp3;base64,AA==", "audio/mp3"),
        ),
    ],
)  # fmt: skip
async def test_files_and_images_have_their_parts(thread: Thread, part: Json, held: e.FilePart | e.ImagePart) -> None:
    """Whichever provider's form they come in."""
    await thread.record({"role": "user", "content": [part]})
    assert [e.UserMessage(content=(held,))] == await events_of(thread)


@pytest.mark.parametrize(
    "given",
    [
        completion({"role": "assistant", "content": "Yes.", "tool_calls": [call("c1")]}),
        response([{"type": "function_call", "id": "f", "call_id": "c1", "name": "look", "arguments": "{}"}]),
        message([{"type": "text", "text": "Yes."}, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}]),
    ],
)
async def test_a_response_comes_once(thread: Thread, given: Json) -> None:
    """Recorded again, also after its calls were answered, it gives its first receipts."""
    first = await thread.record(given)
    await thread.dispatch(e.ToolResult(call_id="c1", content="seen"))
    assert first == await thread.record({**given, "service_tier": "default"})
    assert len(first) + 1 == (await thread.info()).events


async def test_another_response_under_a_known_id_is_refused(thread: Thread) -> None:
    """A provider names a response once."""
    await thread.record(completion({"role": "assistant", "content": "Yes."}))
    with pytest.raises(errors.IdempotencyConflict):
        await thread.record(completion({"role": "assistant", "content": "No."}))


@pytest.mark.parametrize(
    ("messages", "format", "where", "why"),
    [
        ([*CHAT[:2], {"role": "robot", "content": "x"}], None, "$[2].role", 'the role "robot" is not one of'),
        ([CHAT[3]], None, "$[0]", "a result without its call"),
        ([{"role": "user", "content": [{"type": "image", "source": {"type": "base64"}}]}], None,
         "$[0].content[0].source", "has no media_type"),
        ([CHAT[1], {"type": "function_call", "name": "x"}], None, "$[1]", "has no call_id"),
        ([CHAT[1], {"type": "message", "role": "user", "content": [{"text": "x"}]}], "openai.responses",
         "$[1].content[0]", "a part has a type"),
        ([{"role": "user", "content": object()}], None, "$[0].content", "a object is not a value of JSON"),
        ([{"role": "user", "content": float("nan")}], None, "$[0].content", "nan is not a value"),
        ([5], None, "$[0]", "a message is an object, this is a number"),
        ([CHAT[3], {"type": "reasoning", "id": "r"}], None, "$[1]", "messages of openai.chat and openai.responses"),
        ([CHAT[1]], "openai", "$", "'openai' is not one of"),
        (completion({"role": "assistant"}) | {"choices": []}, None, "$[0].choices", "has 0 choices"),
        ([{"role": "user", "content": []}], "anthropic", "$[0]", "the message has no content"),
        (message([{"type": "tool_use", "id": "a", "name": "b", "input": "{}"}]), None, "$[0].content[0].input",
         "the input of a tool_use is an object"),
    ],
)  # fmt: skip
async def test_what_is_no_message_is_refused(
    thread: Thread, messages: object, format: Format | None, where: str, why: str
) -> None:
    """With its place and what would be right; nothing of the list is written."""
    with pytest.raises(errors.InvalidMessage) as refused:
        await thread.record(messages, format=format)
    assert where == refused.value.where
    assert why in str(refused.value)
    assert 0 == (await thread.info()).events


async def test_a_response_that_stopped_in_a_call_waits_for_nothing(thread: Thread) -> None:
    """At its limit of tokens a model leaves half a call: it is kept, marked, and is not a call."""
    half = {"role": "assistant", "content": "Let me", "tool_calls": [call("c1", '{"city": "Par')]}
    await thread.record(completion(half, "a", "length"))
    await thread.record(message([{"type": "tool_use", "id": "t", "name": "look", "input": {}}], "b", "max_tokens"))
    items = [
        {"type": "function_call", "id": "f", "call_id": "d", "name": "look", "arguments": '{"', "status": "incomplete"}
    ]
    stopped = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    await thread.record(response(items, "c", **stopped))
    events = await events_of(thread)
    assert ["length", "max_tokens", "max_output_tokens"] == [
        one.interrupted for one in events if isinstance(one, e.LlmTextResponse)
    ]
    assert not any(chunk.calls for chunk in (await thread.state()).chunks())
    assert '\\"city\\": \\"Par' in str(getattr(events[0], "native", ""))


# lists that grow


async def test_only_the_new_messages_of_a_list_are_recorded(thread: Thread) -> None:
    """A caller may give the whole conversation after each turn."""
    for count in (2, 3, 5, 5):
        await thread.record(CHAT[:count], new_only=True)
    assert CHAT_EVENTS == await events_of(thread)


async def test_what_was_recorded_otherwise_is_known(thread: Thread) -> None:
    """As a response, as it streamed, or as events of your own."""
    await thread.dispatch_all(CHAT_EVENTS[:2])
    await thread.record(completion(CHAT[2]))
    await thread.record(CHAT, new_only=True)
    assert ["c1"] == [one.id for one in (await events_of(thread))[2].calls]  # type: ignore[union-attr]
    assert CHAT_EVENTS[3:] == (await events_of(thread))[3:]


async def test_the_end_of_a_conversation_is_enough(thread: Thread) -> None:
    """Callers shorten their lists; the instructions may still stand in front."""
    await thread.record(CHAT)
    shortened = [CHAT[0], CHAT[4], {"role": "user", "content": "And now?"}]
    await thread.record(shortened, new_only=True)
    assert [*CHAT_EVENTS, e.UserMessage(content="And now?")] == await events_of(thread)


async def test_changed_instructions_are_recorded(thread: Thread) -> None:
    """Once, as the instructions by now."""
    await thread.record(CHAT)
    changed = [{"role": "system", "content": "Be brief."}, *CHAT[1:]]
    for _ in range(2):
        await thread.record(changed, new_only=True)
    assert [*CHAT_EVENTS, e.SessionStarted(content="Be brief.")] == await events_of(thread)


async def test_a_list_that_does_not_go_on_is_refused(thread: Thread) -> None:
    """Guessing would record messages twice, or lose them."""
    await thread.record(CHAT)
    with pytest.raises(errors.NotContinued):
        await thread.record([{"role": "user", "content": "Something else?"}], new_only=True)
    assert 5 == (await thread.info()).events


REPEATED: list[Json] = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Done."}]


async def test_a_whole_conversation_that_repeats_itself_is_counted(thread: Thread) -> None:
    """What the thread holds is all of a beginning of the list: what comes after that is new, whatever it says."""
    for count in range(1, 9):
        await thread.record((REPEATED * 4)[:count], new_only=True)
    assert 8 == (await thread.info()).events


async def test_the_end_of_a_conversation_that_repeats_itself_is_refused(thread: Thread) -> None:
    """It may go on in several ways: one would record messages twice, the other lose them."""
    await thread.record([{"role": "user", "content": "Begin."}, *REPEATED * 3])
    shortened = [*REPEATED * 2, {"role": "user", "content": "And now?"}]
    with pytest.raises(errors.NotContinued, match=r"\$\[4\] or \$\[2\]"):
        await thread.record(shortened, new_only=True)
    assert 7 == (await thread.info()).events


async def test_the_same_new_messages_at_once_are_recorded_once(thread: Thread) -> None:
    """Two tasks that give the same list add its end once."""
    await thread.record(CHAT[:2])
    await asyncio.gather(*(thread.record(CHAT, new_only=True) for _ in range(3)))
    assert CHAT_EVENTS == await events_of(thread)


@st.composite
def growing(draw: st.DrawFn) -> tuple[Format, list[Json], int]:
    """A conversation, and a place in it up to which a caller may have given it before: after a person spoke."""
    known: tuple[Format, ...] = ("openai.chat", "anthropic", "openai.responses")
    which = draw(st.sampled_from(range(3)))
    messages = draw((chat_messages, anthropic_messages, response_items)[which]())
    places = [n for n, one in enumerate(messages, 1) if one.get("role") == "user"]
    return known[which], messages, draw(st.sampled_from(places))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(growing())
async def test_a_list_that_grows_is_recorded_once(conversation: tuple[Format, list[Json], int]) -> None:
    """However often it is given, the thread holds what one recording of it holds."""
    known, messages, cut = conversation
    config = EngineConfig(compaction=CompactionPolicy(enabled=False))  # when it begins is not what is asked here
    async with memory_engine.open(":memory:", config=config) as engine:
        once, twice = await engine.create_thread(), await engine.create_thread()
        await once.record(messages, format=known)
        for part in (messages[:cut], messages):
            await twice.record(part, format=known, new_only=True)
        assert _bare(await events_of(once)) == _bare(await events_of(twice))
        assert (await twice.replay.verify()).ok


def _bare(events: Sequence[object]) -> list[object]:
    """The events without the ids that bind responses, which are drawn."""
    return [{**fields_of(event), "response_id": ""} for event in events]


def fields_of(event: object) -> dict[str, object]:
    """The fields of an event, by name."""
    return {name: getattr(event, name) for name in event.__struct_fields__}  # type: ignore[attr-defined]


async def test_recording_reads_no_more_of_a_log_than_the_list_is_long(engine_of_many: Thread) -> None:
    """The log may be long: the messages are laid beside its end."""
    receipts = await engine_of_many.record([{"role": "user", "content": "last"}, CHAT[1]], new_only=True)
    assert 1 == len(receipts)


@pytest.fixture
async def engine_of_many() -> AsyncIterator[Thread]:
    """A thread of a thousand messages."""
    engine: Engine
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([e.UserMessage(content=f"message {n}") for n in range(1_000)])
        await thread.dispatch(e.UserMessage(content="last"))
        yield thread
