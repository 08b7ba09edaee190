"""What a provider said comes back to it: recorded, and rendered in the same form while the tool loop runs."""

import json
from typing import cast

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig
from tests.engine.provider_rules import broken_in_anthropic, broken_in_chat, broken_in_responses

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
Json = dict[str, object]
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
FOUND = {"type": "search_result", "source": "a.md", "title": "A", "content": [{"type": "text", "text": "A lamp."}]}
IMAGE_URL = "data:image/png;base64,iVBORw0KGgo="

ANTHROPIC: list[Json] = [
    {"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": PNG},
        {"type": "document", "source": {"type": "url", "url": "https://x.org/a.pdf"}, "title": "a.pdf"},
        {"type": "document", "source": {"type": "file", "file_id": "file_011C"}, "citations": {"enabled": True}},
    ]},
    {"role": "assistant", "content": [
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
        {"type": "thinking", "thinking": "A lamp, I think.  ", "signature": "EqQBCkYI"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "lamp"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "A lamp.", "citations": [{"type": "page_location", "cited_text": "lamp"}]},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "lamp", "n": 1.0}},
        {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
        {"type": "tool_use", "id": "toolu_3", "name": "find", "input": {}},
        {"type": "tool_use", "id": "toolu_4", "name": "find", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
            {"type": "text", "text": "Here:", "citations": []}, FOUND, {"type": "image", "source": PNG},
        ], "caller": {"type": "direct"}},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "No such lamp", "is_error": True, "took_ms": 9},
        {"type": "tool_result", "tool_use_id": "toolu_3", "content": [FOUND]},
        {"type": "tool_result", "tool_use_id": "toolu_4", "content": [{"type": "text", "text": "So:"}, FOUND]},
        {"type": "text", "text": "Be quick."},
    ]},
]  # fmt: skip
RESPONSES: list[Json] = [
    {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": IMAGE_URL, "detail": "high"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        {"type": "input_file", "file_url": "https://x.org/a.pdf"},
        {"type": "input_file", "file_id": "file-9aZ"},
    ]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "A lamp."}],
     "encrypted_content": "gAAAAABq"},
    {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary",
     "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
    {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": "lamp"}', "id": "fc_1",
     "status": "completed"},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "shell", "input": "ls"},
    {"type": "function_call_output", "call_id": "call_1", "output": [
        {"type": "input_text", "text": "Here:"}, {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"},
    ]},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "a b", "took_ms": 9},
]  # fmt: skip
CHAT: list[Json] = [
    {"role": "system", "content": "Be kind.", "id": "s1"},
    {"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": IMAGE_URL, "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
    ], "id": "u1"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "A lamp.", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "lamp"}'},
         "extra_content": {"google": {"thought_signature": "CqQ"}}},
        {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "off", "artifact": {"took_ms": 9}},
    {"role": "tool", "tool_call_id": "call_2", "content": "on"},
]  # fmt: skip


@pytest.mark.parametrize("form", ["openai.chat", "openai.responses", "anthropic"])
async def test_what_was_recorded_comes_back(form: str) -> None:
    """Message for message and key for key, with what only the provider understands; and by its rules."""
    said = {"openai.chat": CHAT, "openai.responses": RESPONSES, "anthropic": ANTHROPIC}[form]
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(said)
        context = await thread.context()
    chat, items = context.render("openai.chat", reasoning_content=True), context.render("openai.responses")
    request = context.render("anthropic", cache=False)
    made = {"openai.chat": chat.messages, "openai.responses": items.input, "anthropic": request.messages}[form]
    assert said == [as_given(message) for message in cast("list[Json]", made)]
    assert ([], []) == (broken_in_chat(chat), broken_in_anthropic(request))
    assert [] == broken_in_responses(items)


async def test_cache_marks_of_results_are_not_given_back() -> None:
    """The form sets its own, of which a request may have four."""
    mark = {"cache_control": {"type": "ephemeral"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        **mark,
        "content": [{"type": "text", "text": "a", **mark}, FOUND],
    }
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record([
            {"role": "user", "content": "Go."}, {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ])  # fmt: skip
        request = (await thread.context()).render("anthropic", cache=False)
    assert "search_result" in str(request.messages)
    assert "cache_control" not in str(request.messages)


def as_given(message: Json) -> object:
    """A message as JSON has it."""
    return json.loads(json.dumps(message))
