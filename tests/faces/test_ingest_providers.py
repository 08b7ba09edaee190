"""Conversations in the formats of every provider, ingested: by the translation that `thread.record` has."""

import json
from pathlib import Path

import msgspec
import pytest

import memory_engine
from memory_engine.ingest import Format, IngestOptions
from tests.faces.test_ingest_files import fault_of, ingest, lines, put, threads_of


def talk_of(*turns: object) -> list[object]:
    """A conversation that begins as those of all providers do."""
    return [{"role": "user", "content": "Which lamps are on?"}, *turns, {"role": "user", "content": "Thanks!"}]


ANTHROPIC = talk_of(
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "I look.", "signature": "EqQB"},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "hall"}},
        {"type": "tool_use", "id": "t2", "name": "look", "input": {"at": "attic"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "off"},
        {"type": "tool_result", "tool_use_id": "t2", "content": "on"},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "That in the attic."}]},
)  # fmt: skip
RESPONSES = talk_of(
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I look."}]},
    {"type": "function_call", "call_id": "t1", "name": "look", "arguments": '{"at":"hall"}'},
    {"type": "function_call", "call_id": "t2", "name": "look", "arguments": '{"at":"attic"}'},
    {"type": "function_call_output", "call_id": "t1", "output": "off"},
    {"type": "function_call_output", "call_id": "t2", "output": "on"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "That in the attic."}]},
)
CHAT = talk_of(
    {"role": "assistant", "content": None, "reasoning_content": "I look.", "tool_calls": [
        {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at":"hall"}'}},
        {"id": "t2", "type": "function", "function": {"name": "look", "arguments": '{"at":"attic"}'}},
    ]},
    {"role": "tool", "tool_call_id": "t1", "content": "off"},
    {"role": "tool", "tool_call_id": "t2", "content": "on"},
    {"role": "assistant", "content": "That in the attic."},
)  # fmt: skip
TALKS = {"openai": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC}
SAID = ["user_message", "llm_thinking", "llm_tool_call", *["tool_result"] * 2, "llm_text_response", "user_message"]


@pytest.mark.parametrize("provider", TALKS)
@pytest.mark.parametrize("format", ["auto", None])
@pytest.mark.parametrize("name", ["talk.json", "talk.jsonl", "many.json", "object.json"])
async def test_the_messages_of_every_provider_are_read(
    tmp_path: Path, provider: Format, format: Format | None, name: str
) -> None:
    """By their signs, or as it is said; parallel calls of a response are one event, as `thread.record` has it."""
    talk = TALKS[provider]
    text = {
        "talk.json": json.dumps(talk),
        "talk.jsonl": lines(talk),
        "many.json": json.dumps([talk]),
        "object.json": json.dumps({"model": "m", "messages": talk}),
    }[name]
    path = put(tmp_path, name, text)
    options = IngestOptions(format=format or provider)
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, path, options)
        assert [] == report.errors
        recorded = [one async for one in engine.thread(report.threads[0].id).events()]
        again = (await ingest(engine, path, options)).threads[0]
        assert (0, len(SAID)) == (again.added, again.known)
        by_hand = await engine.create_thread()
        await by_hand.record(talk)
        beside = [one.event async for one in by_hand.events()]
    assert SAID == [one.type for one in recorded]
    for one, other in zip(recorded, beside, strict=True):
        ids = {"response_id": ""} if hasattr(other, "response_id") else {}
        assert msgspec.structs.replace(one.event, **ids) == msgspec.structs.replace(other, **ids)


async def test_whole_responses_are_read_too(tmp_path: Path) -> None:
    """Lines of a program's log: what was asked, and what came back."""
    whole = {"id": "resp_1", "object": "response", "status": "completed", "output": [RESPONSES[-2]]}
    path = put(tmp_path, "x.jsonl", lines([RESPONSES[0], whole]))
    assert {"x": 2} == await threads_of(path)
    path = put(tmp_path, "y.jsonl", lines([whole, RESPONSES[-1]]))
    assert {"y": 2} == await threads_of(path)


async def test_a_conversation_of_two_formats_is_an_error(tmp_path: Path) -> None:
    """A message that another provider's follow is of neither for certain; `--format` decides."""
    path = put(tmp_path, "x.jsonl", lines([*ANTHROPIC, *CHAT]))
    assert "x.jsonl:7: a message of openai.chat after one of anthropic" in await fault_of(path)
    path = put(tmp_path, "x.jsonl", lines([CHAT[0], {**CHAT[-2], "type": "message", "x": 1}, *CHAT[1:3]]))  # type: ignore[dict-item]
    assert {"x": 4} == await threads_of(path)  # keys of a log's own say nothing
