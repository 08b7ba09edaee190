"""LangChain's messages, recorded in a thread and given back: what was recorded is what the next request holds."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
)

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, LlmToolCall, ToolError, UserMessage
from memory_engine.errors import InvalidMessage
from memory_engine.formats.native import reported_usages

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
ASKED = HumanMessage("Which lamps are on?", name="Ann", id="h1")
SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


async def given_back(messages: Sequence[Any], form: Any = "langchain") -> Any:
    """A new thread's request after these messages."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(list(messages))
        return (await thread.context()).render(form)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).filter(str.strip)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
BLOCKS = st.one_of(
    WORDS,
    st.builds(lambda text, more: {"type": "text", "text": text, **more}, WORDS, st.sampled_from([{}, {"index": 0}])),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "EqQB"}, WORDS),
    st.just({"type": "redacted_thinking", "data": "EmwK"}),
    st.builds(lambda text: {"type": "reasoning", "id": "rs_1", "reasoning": text}, WORDS),
    st.builds(lambda data: {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": data}, JSON),
    st.builds(lambda data: {"type": "unheard_of", "value": data}, JSON),
)
USAGE: Any = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
CALLS = st.lists(st.tuples(st.sampled_from(["look", "switch"]), st.dictionaries(WORDS, JSON, max_size=2)), max_size=3)


@st.composite
def answers(draw: st.DrawFn) -> AIMessage:
    """Any message of a model: a text or blocks, parallel calls, calls that could not be parsed, what came around."""
    content = draw(WORDS | st.lists(BLOCKS, min_size=1, max_size=4))
    calls = [{"name": name, "args": args, "id": f"c{n}"} for n, (name, args) in enumerate(draw(CALLS))]
    if isinstance(content, list):
        content += [{"type": "tool_use", "id": one["id"], "name": one["name"], "input": one["args"]} for one in calls]
    broken = draw(st.lists(st.just({"name": "look", "args": '{"at": "la', "error": "half"}), max_size=1))
    return AIMessage(
        content=content,
        tool_calls=calls,
        invalid_tool_calls=[{**one, "id": "x1"} for one in broken],
        id=draw(st.none() | st.just("run-1")),
        name=draw(st.none() | st.just("butler")),
        additional_kwargs=draw(st.sampled_from([{}, {"reasoning_content": "Hm."}, {"refusal": None, "more": [1]}])),
        response_metadata=draw(st.sampled_from([{}, {"model_name": "m", "finish_reason": "stop"}])),
        usage_metadata=draw(st.none() | st.just(USAGE)),
    )


STATUS: Any = ("success", "error")


def results_of(answer: AIMessage) -> list[BaseMessage]:
    """A result for each call; every other one failed, and one shows an image."""
    called = [str(one["id"]) for one in [*answer.tool_calls, *answer.invalid_tool_calls]]
    image: Any = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
    ]
    return [
        ToolMessage(
            image if n == 2 else f"result {n}", tool_call_id=one, status=("success", "error")[n % 2], artifact=[n]
        )
        for n, one in enumerate(called)
    ]


@given(answers())
@SETTINGS
def test_what_the_model_said_is_what_the_next_request_holds(answer: AIMessage) -> None:
    """Message for message: blocks in their order, signed thinking, calls, ids, metadata; and what tools answered."""
    messages = [SystemMessage("You look after the house.", id="s1"), ASKED, answer, *results_of(answer)]
    request = asyncio.run(given_back(messages))
    assert messages == request.messages
    assert () == request.left_out


@given(answers())
@SETTINGS
def test_each_way_of_writing_a_message_is_recorded_alike(answer: AIMessage) -> None:
    """As an object, by `message_to_dict`, by `dumpd`, by `model_dump`."""
    messages = [ASKED, answer, *results_of(answer)]
    ways = (
        [message_to_dict(one) for one in messages],
        [dumpd(one) for one in messages],
        [one.model_dump(mode="json") for one in messages],
    )
    for written in ways:
        assert messages == asyncio.run(given_back(written)).messages


@given(answers())
@SETTINGS
def test_every_other_form_takes_it(answer: AIMessage) -> None:
    """A thread is not bound to LangChain: each call comes with its result in every provider's form."""
    messages = [ASKED, answer, *results_of(answer)]
    for form, call in (("openai.chat", "tool_call_id"), ("anthropic", "tool_use_id"), ("openai.responses", "call_id")):
        request = asyncio.run(given_back(messages, form))
        shown = str(request.input if form == "openai.responses" else request.messages)
        assert len(results_of(answer)) <= shown.count(f"'{call}'")


PICTURES: list[Any] = [
    {"type": "text", "text": "See:"},
    "and",
    {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "detail": "low"}},
    {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
    {"type": "image", "source_type": "base64", "data": "aGk=", "mime_type": "image/jpeg"},
    {"type": "file", "url": "https://a.example/c.pdf", "mime_type": "application/pdf"},
    {"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"},
]


async def test_images_and_files_come_back_and_are_shown_elsewhere() -> None:
    """As they were written to LangChain; to a provider in its own words."""
    asked, answered = HumanMessage(PICTURES), HumanMessage([{"type": "text", "text": "Well?"}])
    assert [answered] == (await given_back([answered])).messages
    assert [asked] == (await given_back([asked])).messages
    blocks = (await given_back([asked], "anthropic")).messages[0]["content"]
    assert ["text", "text", "image", "image", "image", "document"] == [one["type"] for one in blocks[:6]]


async def test_a_call_and_its_failed_result_are_events_of_their_kinds() -> None:
    """`status="error"` makes a `ToolError`; usage is known to the engine in its own words."""
    usage: Any = {"input_tokens": 90, "output_tokens": 5, "total_tokens": 95, "input_token_details": {"cache_read": 60}}
    calls: Any = [{"name": "look", "args": {"at": lamp}, "id": lamp} for lamp in ("hall", "attic")]
    answer = AIMessage("", tool_calls=calls, id="run-1", usage_metadata=usage, response_metadata={"model_name": "m"})
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        messages = [ASKED, answer, ToolMessage("no such lamp", tool_call_id="attic", status="error")]
        await thread.record(messages)
        assert () == await thread.record(messages, new_only=True)
        (again,) = await thread.record(answer)
        assert 2 == again.seq
        said, asked, failed = [one.event async for one in thread.events()]
    assert isinstance(said, UserMessage)
    assert "Ann" == said.name
    assert isinstance(asked, LlmToolCall)
    assert ["hall", "attic"] == [call.id for call in asked.calls]
    assert isinstance(failed, ToolError)
    (reported,) = reported_usages(asked.native)
    assert ("m", 90, 5, 60) == (
        reported.model,
        reported.usage.input_tokens,
        reported.usage.output_tokens,
        reported.cached_tokens,
    )


def asking(**piece: Any) -> AIMessageChunk:
    """A piece of a call."""
    return AIMessageChunk(content="", id="run-1", tool_call_chunks=[{"name": None, "args": "", "id": None, **piece}])


CHUNKS: list[Any] = [
    AIMessageChunk(content="", id="run-1"),
    AIMessageChunk(content="I lo", id="run-1"),
    AIMessageChunk(content="ok.", id="run-1"),
    AIMessageChunk(
        content="", id="run-1", tool_call_chunks=[{"name": "look", "args": '{"at"', "id": "c1", "index": 0}]
    ),
    AIMessageChunk(content="", id="run-1", tool_call_chunks=[{"name": None, "args": ':"a"}', "id": None, "index": 0}]),
    asking(name="look", args='{"at"', id="c1", index=0),
    asking(args=':"a"}', index=0),
    asking(name="look", args="{}", id="c2", index=1),
]
END = AIMessageChunk(content="", id="run-1", response_metadata={"finish_reason": "tool_calls"})


async def test_a_stream_is_recorded_as_the_message_that_it_adds_up_to() -> None:
    """Parallel calls in pieces, too; it is known again when it comes whole."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.record(ASKED)
        async with thread.recording() as turn:
            for chunk in (*CHUNKS, END):
                turn.feed(chunk)
        assert ("I look.", [("c1", '{"at":"a"}'), ("c2", "{}")]) == (
            turn.text,
            [(call.id, call.arguments) for call in turn.calls],
        )
        for call_id in ("c1", "c2"):
            await thread.record(ToolMessage("on", tool_call_id=call_id))
        answer = (await thread.context()).render("langchain").messages[1]
    assert isinstance(answer, AIMessage)
    assert ("I look.", "run-1", ["c1", "c2"]) == (answer.content, answer.id, [one["id"] for one in answer.tool_calls])


async def test_a_stream_that_breaks_off_keeps_its_text_and_asks_nothing() -> None:
    """Its calls may be half ones: nobody is to run them."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        async with thread.recording() as turn:
            for chunk in CHUNKS[:5]:
                turn.feed(chunk)
        assert () == turn.calls
        assert ["I look."] == [receipt.chunks[0].text for receipt in turn.receipts]


async def test_what_no_log_holds_is_refused_by_its_place() -> None:
    """An artifact may be any object; a message to remove another is none."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        result = ToolMessage("on", tool_call_id="c1", artifact=object())
        with pytest.raises(InvalidMessage, match=r"a ToolMessage holds what is not a value of JSON.*at \$\[0\]"):
            await thread.record([result])
        with pytest.raises(InvalidMessage, match="remove"):
            await thread.record({"type": "remove", "data": {"id": "h1", "content": ""}}, format="langchain")
        with pytest.raises(InvalidMessage, match=r"messages of langchain and openai\.chat"):
            await thread.record([ASKED, {"role": "tool", "tool_call_id": "c1", "content": "on"}])
        assert 0 == (await thread.info()).events


async def test_older_reasoning_and_later_instructions_are_such_as_every_model_takes() -> None:
    """Reasoning goes back in the newest response; instructions in the middle are a note; a person speaks first."""
    thought: Any = [{"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}, {"type": "text", "text": "On."}]
    messages = [AIMessage(thought, id="r1"), ASKED, SystemMessage("Be brief."), AIMessage(thought, id="r2"), ASKED]
    first, old, _, note, new, _ = (await given_back(messages)).messages
    assert ("human", "[Go on.]") == (first.type, first.content)
    assert [thought[1]] == old.content
    assert ("human", "[Instructions] Be brief.") == (note.type, note.content)
    assert thought == new.content
