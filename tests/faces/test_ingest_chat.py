"""What each kind of chat-completions message becomes, and what is refused."""

import pytest

from memory_engine.core.events.base import Event
from memory_engine.events import (
    ExternalInject,
    ImagePart,
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
    SessionStarted,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine.ingest.chat import ChatReader
from memory_engine.ingest.events import UnusableRecord, event_id


def call(call_id: str, name: str = "look", arguments: object = "{}") -> dict[str, object]:
    """A tool call as providers send it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked(*calls: dict[str, object]) -> dict[str, object]:
    """An assistant's message with calls."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def answered(call_id: str, content: object = "seen") -> dict[str, object]:
    """A tool's message."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def read(*messages: object) -> list[Event]:
    """The events of a conversation."""
    reader = ChatReader("t")
    return [new.event for n, value in enumerate(messages, 1) for new in reader.read(value, n).events]


PARTS = [
    {"type": "text", "text": "look"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
]


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"role": "system", "content": "Be kind."}, SessionStarted(content="Be kind.")),
        ({"role": "developer", "content": "Be kind."}, SessionStarted(content="Be kind.")),
        ({"role": "user", "content": "Hi", "name": "Ana"}, UserMessage(content="Hi", name="Ana")),
        ({"role": "user", "content": ""}, UserMessage(content="")),
        ({"role": "assistant", "content": "Hello"}, LlmTextResponse(content="Hello")),
        ({"role": "assistant", "content": None, "refusal": "No."}, LlmTextResponse(content="No.")),
        ({"role": "assistant", "content": "", "tool_calls": None}, LlmTextResponse(content="")),
        (
            {"role": "user", "content": PARTS},
            UserMessage(content=(TextPart("look"), ImagePart("data:image/png;base64,"))),
        ),
    ],
)
def test_a_message_becomes_its_event(message: dict[str, object], event: Event) -> None:
    """Each role has its event, and content keeps its form."""
    assert [event] == read(message)


def test_later_instructions_are_injected_and_critical() -> None:
    """Only the first system message starts a session; no later one may be compacted away."""
    later = ExternalInject(content="Also French.", source="system", retention="critical")
    assert later == read({"role": "system", "content": "x"}, {"role": "developer", "content": "Also French."})[1]


def test_calls_and_results_keep_their_binding() -> None:
    """Parallel calls are one event, and each result names its call."""
    events = read(
        {**asked(call("a"), call("b", "find", '{"q": 1}')), "content": "Looking."},
        {**answered("b"), "name": "find"},
        answered("a"),
    )
    assert [
        LlmToolCall(calls=(ToolCall("a", "look"), ToolCall("b", "find", '{"q": 1}')), content="Looking."),
        ToolResult(call_id="b", content="seen", name="find"),
        ToolResult(call_id="a", content="seen"),
    ] == events


def test_arguments_given_as_an_object_become_their_text() -> None:
    """Recordings that hold decoded arguments are read as if the model had written them compactly."""
    (event,) = read(asked(call("a", arguments={"q": "ö"})))
    assert LlmToolCall(calls=(ToolCall("a", "look", '{"q":"ö"}'),)) == event


def test_reasoning_comes_before_what_it_led_to() -> None:
    """Reasoning and response are two events of one response id."""
    thinking, response = read({"role": "assistant", "content": "4", "reasoning_content": "2 + 2"})
    assert LlmThinking(content="2 + 2", response_id="message-1") == thinking
    assert LlmTextResponse(content="4", response_id="message-1") == response


def test_text_parts_beside_calls_become_one_text() -> None:
    """Calls carry plain text, so parts are joined; an image there is refused."""
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    (event,) = read({**asked(call("x")), "content": parts})
    assert LlmToolCall(calls=(ToolCall("x", "look"),), content="a\nb") == event
    with pytest.raises(UnusableRecord, match="holds an image"):
        read({**asked(call("x")), "content": PARTS})


def test_function_calls_of_the_old_form_are_bound_by_name() -> None:
    """A `function` message without an id answers the waiting call of its name."""
    old = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    events = read(old, {"role": "function", "name": "look", "content": "seen"})
    assert LlmToolCall(calls=(ToolCall("function-1", "look"),)) == events[0]
    assert ToolResult(call_id="function-1", content="seen", name="look") == events[1]


def test_a_call_id_may_come_again_once_it_was_answered() -> None:
    """Some models number their calls anew in each turn."""
    assert 4 == len(read(asked(call("a")), answered("a"), asked(call("a")), answered("a")))


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([17], "a message is an object, this is a number"),
        ([{"content": "x"}], "the role null is not one of"),
        ([{"role": "robot", "content": "x"}], 'the role "robot" is not one of'),
        ([{"role": "user"}], "the message has no content"),
        ([{"role": "user", "content": 5}], "content is a text or a list of parts, this is a number"),
        ([{"role": "user", "content": {"a": 1}}], "this is an object"),
        ([{"role": "user", "content": "x", "name": ["y"]}], "name is a text, this is a list"),
        ([{"role": "user", "content": ["x"]}], "a part of content is an object, this is a text"),
        (
            [{"role": "user", "content": [{"type": "input_audio"}]}],
            '"input_audio" is neither text nor image_url',
        ),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "an image has no url"),
        ([{"role": "assistant", "content": None}], "neither content nor tool_calls"),
        ([{**asked(), "tool_calls": "look"}], "tool_calls is a list, this is a text"),
        ([asked({"type": "function", "function": {"name": "x"}})], "a tool call has no id"),
        ([asked({"id": "a", "type": "function"})], "the function of a tool call is an object, this is null"),
        ([asked(call("a", ""))], "a tool call names no function"),
        ([asked({"id": "a", "type": "custom"})], '"custom" is not a call of a function'),
        ([asked(call("a"), call("a"))], "the call id 'a' is used twice before its result"),
        ([asked(call("a")), asked(call("a"))], "the call id 'a' is used twice before its result"),
        ([answered("a")], "a result without its call: none that waits has the id 'a'"),
        ([asked(call("a")), answered("a"), answered("a")], "a result without its call"),
        ([{"role": "tool", "content": "x"}], "a tool's result has no tool_call_id"),
    ],
)
def test_what_is_no_message_is_refused(messages: list[object], why: str) -> None:
    """Every refusal says what it found and what would be right."""
    with pytest.raises(UnusableRecord) as refused:
        read(*messages)
    assert why in str(refused.value)


def test_a_refused_message_leaves_no_trace() -> None:
    """A call that the engine did not take waits for no result."""
    reader = ChatReader("t")
    reader.read(asked(call("a")), 1)
    reader.refused()
    with pytest.raises(UnusableRecord, match="without its call"):
        reader.read(answered("a"), 2)


def test_event_ids_follow_from_thread_and_place_only() -> None:
    """The ids are fixed for ever: others would make known conversations new."""
    assert "17e9613c-432d-5407-a556-e408238c70c9" == event_id("thread", 1)
    assert 4 == len({event_id("a", 1), event_id("a", 2), event_id("b", 1), event_id("a", 1, part=1)})
