"""What the last response was is what the next request holds: any values of the SDKs' types, in any order."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Context, EngineConfig, Thread
from memory_engine.formats.native import Json, is_equal
from memory_engine.formats.openai_responses import CALLS
from memory_engine.formats.own import without_refused
from memory_engine.formats.providers import PROVIDERS
from tests.sdk_values import members, objects_of

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
SETTINGS = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@cache
def anthropic_blocks() -> st.SearchStrategy[Json]:
    """Any block that Anthropic's SDK names."""
    from anthropic.types import ContentBlock

    return st.one_of(*map(objects_of, members(ContentBlock)))


@cache
def responses_items() -> st.SearchStrategy[Json]:
    """Any item that OpenAI's SDK names."""
    from openai.types.responses import ResponseOutputItem

    return st.one_of(*map(objects_of, members(ResponseOutputItem)))


@cache
def chat_messages() -> st.SearchStrategy[Json]:
    """Any message of a chat completion; the old `function_call` goes back as the call of a tool."""
    from openai.types.chat import ChatCompletionMessage

    drawn = objects_of(ChatCompletionMessage).map(lambda one: {**one, "role": "assistant"})
    return drawn.map(_without_old_call).filter(_says_something)


def _without_old_call(message: Json) -> Json:
    return {key: one for key, one in message.items() if key != "function_call"}


def _says_something(message: Json) -> bool:
    return any(message.get(key) for key in ("content", "refusal", "audio", "tool_calls"))


def numbered(values: Sequence[Json]) -> list[Json]:
    """The values with an id of its own for each call, as providers give them."""
    found = [dict(one) for one in values]
    for n, one in enumerate(found):
        if one.get("type") == "tool_use":
            one["id"] = f"toolu_{n}"
        elif one.get("type") in CALLS:
            one["call_id"] = f"call_{n}"
    return found


def anthropic_response(blocks: list[Json]) -> Json:
    """A message."""
    around = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return {**around, "content": blocks, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}


def responses_response(items: list[Json]) -> Json:
    """A response."""
    return {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": items}


def completion(message: Json) -> Json:
    """A chat completion."""
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c_1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def anthropic_stream(response: Json) -> Iterator[Json]:
    """The response in events: texts, thinking and inputs in two pieces, other blocks as they begin."""
    yield {"type": "message_start", "message": {**response, "content": [], "stop_reason": None}}
    for n, block in enumerate(cast("list[Json]", response["content"])):
        begun, deltas = dict(block), list[Json]()
        for key, kind in (("text", "text_delta"), ("thinking", "thinking_delta"), ("signature", "signature_delta")):
            if block["type"] in ("text", "thinking") and isinstance(said := block.get(key), str):
                begun[key] = ""
                deltas += [{"type": kind, key: said[:1]}, {"type": kind, key: said[1:]}]
        if block["type"] in ("tool_use", "server_tool_use"):
            begun["input"] = {}
            written = json.dumps(block["input"])
            deltas += [{"type": "input_json_delta", "partial_json": one} for one in (written[:3], written[3:])]
        yield {"type": "content_block_start", "index": n, "content_block": begun}
        yield from ({"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": n}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {}}
    yield {"type": "message_stop"}


def responses_stream(response: Json) -> Iterator[Json]:
    """The response in events; the last leaves its items out, as some servers do."""
    yield {"type": "response.created", "response": {**response, "output": [], "status": "in_progress"}}
    for n, item in enumerate(cast("list[Json]", response["output"])):
        yield {"type": "response.output_item.added", "output_index": n, "item": {"type": item["type"]}}
        yield {"type": "response.output_item.done", "output_index": n, "item": item}
    yield {"type": "response.completed", "response": {**response, "output": []}}


def chat_stream(response: Json) -> Iterator[Json]:
    """The message in chunks: its text in two."""
    (choice,) = cast("list[dict[str, Any]]", response["choices"])
    message = choice["message"]
    calls = [{**one, "index": n} for n, one in enumerate(message.get("tool_calls") or ())]
    said = message.get("content")
    begun = {**message, **({"tool_calls": calls} if calls else {}), **({"content": said[:1]} if said else {})}
    for delta, reason in ((begun, None), ({"content": said[1:]} if said else {}, None), ({}, "stop")):
        chunk = {"index": 0, "delta": delta, "finish_reason": reason}
        yield {"id": "c_1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [chunk]}


async def record(thread: Thread, response: Json, stream: Callable[[Json], Iterator[Json]] | None) -> list[str]:
    """Record a response whole or streamed; the ids of its calls."""
    response = json.loads(json.dumps(response))
    if stream is None:
        receipts = await thread.record(response)
    else:
        async with thread.recording() as turn:
            for piece in stream(response):
                turn.feed(piece)
        receipts = turn.receipts
    return [call.id for receipt in receipts for chunk in receipt.chunks for call in chunk.calls]


async def next_context(
    response: Json,
    stream: Callable[[Json], Iterator[Json]] | None,
    answered: Callable[[list[str]], list[Json]],
    format: Any,
) -> Context:
    """The context after a response, and the results of its calls."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record({"role": "user", "content": "Go."})
        calls = await record(thread, response, stream)
        await thread.record(answered(calls), format=format)
        return await thread.context()


def expected(blocks: Sequence[Json], form: str) -> list[Json]:
    """The blocks less what the provider refuses."""
    return [without_refused(one, PROVIDERS[form].OWN) for one in blocks]


@SETTINGS
@given(st.data(), st.booleans())
async def test_blocks_of_anthropic_go_back(data: st.DataObject, streamed: bool) -> None:
    """One message, its blocks in their order, every string code point by code point."""
    blocks = numbered(data.draw(st.lists(anthropic_blocks(), min_size=1, max_size=5)))
    response = anthropic_response(blocks)

    def answered(calls: list[str]) -> list[Json]:
        results: list[object] = [{"type": "tool_result", "tool_use_id": one, "content": "ok"} for one in calls]
        return [{"role": "user", "content": [*results, {"type": "text", "text": "And?"}]}]

    context = await next_context(response, anthropic_stream if streamed else None, answered, "anthropic")
    request = context.render("anthropic", cache=False)
    sent = cast("list[Json]", request.messages)
    assert is_equal(expected(blocks, "anthropic"), sent[1]["content"])
    assert ["user", "assistant", "user"] == [one["role"] for one in sent]
    assert () == request.left_out


@SETTINGS
@given(st.data(), st.booleans())
async def test_items_of_responses_go_back(data: st.DataObject, streamed: bool) -> None:
    """Every item in its place, also those of hosted tools, of shells, of computers and of compaction."""
    items = numbered(data.draw(st.lists(responses_items(), min_size=1, max_size=5)))
    response = responses_response(items)

    def answered(calls: list[str]) -> list[Json]:
        custom = {one.get("call_id") for one in items if one["type"] == "custom_tool_call"}
        outputs: list[Json] = [
            {"type": f"{'custom_tool' if one in custom else 'function'}_call_output", "call_id": one, "output": "ok"}
            for one in calls
        ]
        return [*outputs, {"type": "message", "role": "user", "content": "And?"}]

    context = await next_context(response, responses_stream if streamed else None, answered, "openai.responses")
    request = context.render("openai.responses")
    sent = cast("list[Json]", request.input)
    assert is_equal(expected(items, "openai.responses"), sent[1 : 1 + len(items)])
    kinds = [one["type"] for one in sent[1 + len(items) : -1]]
    assert [f"{one['type']}_output" for one in items if one["type"] in CALLS] == kinds
    assert () == request.left_out


@SETTINGS
@given(st.data(), st.booleans())
async def test_messages_of_chat_completions_go_back(data: st.DataObject, streamed: bool) -> None:
    """A message with its refusal, its annotations, its audio and calls of both kinds."""
    message: Json = {"content": None, **data.draw(chat_messages())}
    calls = cast("list[Json]", message.get("tool_calls") or [])
    for n, call in enumerate(calls):
        call["id"] = f"call_{n}"

    def answered(calls: list[str]) -> list[Json]:
        results: list[Json] = [{"role": "tool", "tool_call_id": one, "content": "ok"} for one in calls]
        return [*results, {"role": "user", "content": "?"}]

    response = completion(message)
    context = await next_context(response, chat_stream if streamed else None, answered, "openai.chat")
    request = context.render("openai.chat")
    (given_back,) = expected([message], "openai.chat")
    assert is_equal(given_back, cast("list[Json]", request.messages)[1])


@pytest.mark.parametrize("form", list(PROVIDERS))
def test_the_refused_fields_are_published(form: str) -> None:
    """The page that says what goes back names each of them."""
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs/how-to/model-requests.md").read_text()
    assert [] == [field for field in sorted(PROVIDERS[form].OWN.refused) if f"`{field}`" not in page]
