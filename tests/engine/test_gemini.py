"""Gemini's contents: recorded whole or streamed, they come back part by part; other providers' logs become contents."""

import json
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Thread
from memory_engine import events as e
from memory_engine.formats.native import Json, is_equal
from tests.engine.test_forms_laws import EVENTS, context_of

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
ASK: Json = {"role": "user", "parts": [{"text": "Is the lamp on?"}]}
PNG: Json = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
PARTS: list[Json] = [
    {"text": "The lamp, I think.", "thought": True},
    {"text": "I look.", "thoughtSignature": "c2lnMQ=="},
    {"functionCall": {"name": "look", "args": {"at": "lamp", "n": 1.0}}, "thoughtSignature": "c2lnMg=="},
    {"functionCall": {"name": "look", "args": {}, "id": "fc-2"}},
]
TEXTS = st.text(min_size=1, max_size=9).map(lambda text: f"t{text}")
ANY_PART: st.SearchStrategy[Json] = st.one_of(
    st.fixed_dictionaries({"text": TEXTS}, optional={"thoughtSignature": st.just("c2ln"), "thought": st.booleans()}),
    st.fixed_dictionaries(
        {"functionCall": st.fixed_dictionaries(
            {"name": st.sampled_from(["look", "find"]),
             "args": st.dictionaries(TEXTS, TEXTS | st.floats(0, 9), max_size=2)}
        )},
        optional={"thoughtSignature": st.just("c2ln")},
    ),
    st.builds(lambda text: {"executableCode": {"language": "PYTHON", "code": text}}, TEXTS),
    st.builds(lambda text: {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": text}}, TEXTS),
    st.just(PNG),
    st.builds(lambda text: {"partOfTomorrow": {"says": text}}, TEXTS),
)  # fmt: skip


def response(parts: list[Json], reason: str = "STOP") -> Json:
    """A response of Gemini."""
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": reason, "index": 0}
    return {"candidates": [candidate], "responseId": "resp-g", "modelVersion": "gemini-3-pro"}


def answer(name: str, **more: object) -> Json:
    """What a function gave."""
    return {"functionResponse": {"name": name, "response": {"output": "off"}, **more}}


async def contents_of(thread: Thread) -> list[Json]:
    """The contents of the next request."""
    return (await thread.context()).render("gemini").contents


async def test_a_loop_comes_back_part_by_part() -> None:
    """Thoughts, signatures, calls with and without ids, and their responses."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        asked: Json = {"role": "user", "parts": [{"text": "What is this?"}, PNG]}
        await thread.record({"role": "system", "parts": [{"text": "Be brief."}]})
        await thread.record(asked)
        receipts = await thread.record(response(PARTS))
        given_back: Json = {"role": "user", "parts": [answer("look"), answer("look", id="fc-2")]}
        await thread.record(given_back)
        request = (await thread.context()).render("gemini")
        assert [asked, {"role": "model", "parts": PARTS}, given_back] == request.contents
        assert ("Be brief.", ()) == (request.system_instruction, request.left_out)
        assert ["look", "look"] == [one.name for receipt in receipts for chunk in receipt.chunks for one in chunk.calls]
        assert [True, True] == [one.text == "off" for one in (await thread.state()).chunks() if one.call_id]


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_PART, min_size=1, max_size=5), st.booleans())
async def test_any_parts_go_back(parts: list[Json], streamed: bool) -> None:
    """In any order, whole or streamed, where texts that follow each other are one."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        given_parts = json.loads(json.dumps(parts))
        if streamed:
            async with thread.recording() as turn:
                for n, part in enumerate(given_parts):
                    turn.feed(response([part], "STOP" if n == len(parts) - 1 else ""))
            expected = merged(parts)
        else:
            await thread.record(response(given_parts))
            expected = parts
        called = [cast("Json", one["functionCall"])["name"] for one in parts if "functionCall" in one]
        results = [answer(str(name)) for name in called]
        await thread.record({"role": "user", "parts": [*results, {"text": "And?"}]})
        contents = await contents_of(thread)
    assert is_equal(expected, contents[1]["parts"])
    assert [*results, {"text": "And?"}] == contents[2]["parts"]


def merged(parts: list[Json]) -> list[Json]:
    """The parts as a stream of them is put together."""
    found: list[Json] = []
    for part in parts:
        last = found[-1] if found else {}
        is_one = "text" in last and "text" in part and "thoughtSignature" not in last
        if is_one and last.get("thought") == part.get("thought"):
            found[-1] = {**last, **part, "text": f"{last['text']}{part['text']}"}
        else:
            found.append(part)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=12))
async def test_contents_obey_the_rules_whatever_was_said(events: list[e.Event]) -> None:
    """User and model take turns, the user first and last; calls are answered at once; nothing is empty."""
    context = await context_of(events, None)
    assert context is not None
    contents = context.render("gemini").contents
    roles = [one["role"] for one in contents]
    assert ["user", "model"] * (len(roles) // 2) + ["user"] == roles
    waiting: list[object] = []
    for content in contents:
        parts = cast("list[dict[str, Json]]", content["parts"])
        answered = [one["functionResponse"]["name"] for one in parts if "functionResponse" in one]
        assert waiting == answered
        assert all("functionResponse" in one for one in parts[: len(answered)])
        assert all(str(one["text"]).strip() for one in parts if "text" in one)
        waiting = [one["functionCall"]["name"] for one in parts if "functionCall" in one]


async def test_the_sdk_s_own_objects_are_taken_and_given() -> None:
    """A response of the SDK is recorded as it is, and the contents are what it takes."""
    genai = pytest.importorskip("google.genai.types")
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(genai.Content.model_validate(ASK))
        await thread.record(genai.GenerateContentResponse.model_validate(response(PARTS)))
        await thread.record({"role": "user", "parts": [answer("look"), answer("look", id="fc-2")]})
        contents = await contents_of(thread)
    assert [genai.Content.model_validate(one) for one in contents][1].parts == [
        genai.Part.model_validate(one) for one in PARTS
    ]


async def test_a_call_of_another_provider_becomes_a_call() -> None:
    """The log is one; its contents are Gemini's."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([
            e.UserMessage(content="Is it on?"),
            e.LlmToolCall(calls=(e.ToolCall.create("c1", "look", {"at": "lamp"}),), content="I look."),
            e.ToolError(call_id="c1", content="no lamp"),
        ])  # fmt: skip
        contents = await contents_of(thread)
    assert [{"text": "I look."}, {"functionCall": {"name": "look", "args": {"at": "lamp"}}}] == contents[1]["parts"]
    assert [{"functionResponse": {"name": "look", "response": {"error": "no lamp"}}}] == contents[2]["parts"]
