"""LangChain's messages as dictionaries, where LangChain is not: its own objects are tried in its environment."""

import json
import subprocess
import sys

import pytest

from memory_engine import LlmToolCall, SessionStarted, Thread, ToolError, UserMessage, errors
from memory_engine.formats.native import Json

CALL = {"name": "look", "args": {"at": "hall"}, "id": "c1", "type": "tool_call"}
WRITTEN: list[Json] = [
    {"type": "system", "data": {"content": "You look after the house.", "type": "system"}},
    {"type": "human", "data": {"content": [{"type": "text", "text": "Is it on?"}], "type": "human", "name": None}},
    {
        "type": "ai",
        "data": {"content": "", "type": "ai", "id": "run-1", "tool_calls": [CALL], "invalid_tool_calls": []},
    },
    {"type": "tool", "data": {"content": "no such lamp", "type": "tool", "tool_call_id": "c1", "status": "error"}},
]


async def test_messages_are_recorded_without_langchain(thread: Thread) -> None:
    """What `messages_to_dict` wrote, by its own signs; every provider's form takes it."""
    await thread.record(WRITTEN)
    kinds = [type(one.event) async for one in thread.events()]
    assert [SessionStarted, UserMessage, LlmToolCall, ToolError] == kinds
    request = (await thread.context()).render("anthropic")
    _, asked, answered = (json.loads(json.dumps(message["content"])) for message in request.messages)
    assert [("tool_use", "c1")] == [(block["type"], block["id"]) for block in asked]
    assert [("tool_result", True)] == [(block["type"], block["is_error"]) for block in answered]


async def test_its_messages_need_langchain(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "langchain_core.messages", None)
    await thread.record(WRITTEN)
    context = await thread.context()
    with pytest.raises(errors.MissingExtra, match=r"LangChain's messages.*'\.\[langgraph\]"):
        context.render("langchain")


async def test_a_form_that_is_not_known_is_refused_with_those_that_are(thread: Thread) -> None:
    """LangChain's among them."""
    await thread.record(WRITTEN)
    context = await thread.context()
    with pytest.raises(ValueError, match=r"'anthropic', 'gemini', 'langchain', not 'langgraph'"):
        context.render("langgraph")  # type: ignore[call-overload]
    with pytest.raises(errors.InvalidMessage, match=r"gemini, langchain"):
        await thread.record(WRITTEN, format="langgraph")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"role": "user", "content": "hi", "type": "human"},
    ],
)
async def test_other_formats_are_not_taken_for_it(thread: Thread, value: Json) -> None:
    """Items of Responses have types, too, and some tools add one to a message with a role."""
    (receipt,) = await thread.record(value)
    assert "langchain" not in receipt.chunks[0].native


def test_nothing_imports_langchain_before_it_is_asked_for() -> None:
    """Not even the module of its form."""
    code = "import sys, memory_engine; memory_engine.Engine; print([one for one in sys.modules if 'langchain' in one])"
    assert "[]\n" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
