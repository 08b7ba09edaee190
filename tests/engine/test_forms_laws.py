"""Whatever was said, each form of a context obeys its provider's rules, within its budget."""

import contextlib
import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Chunk, CompactionPolicy, Context, ContextPolicy, Engine, EngineConfig, Plugin, errors
from memory_engine import events as e
from memory_engine.context import Message
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.series import ContextSeries, MeasuredMessages
from memory_engine.engine import kernel_of
from memory_engine.events import Event
from memory_engine.testing import FakeCompactor
from tests.engine.provider_rules import broken_in_anthropic, broken_in_chat, broken_in_responses

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
PNG = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
URLS = [
    PNG,
    "https://x.org/a.png",
    "HTTPS://X.ORG/b.webp",
    "data:image/svg+xml;base64,AAAA",
    "data:image/jpg;base64,AAAA",
    "data:image/png;base64,",
    "data:image/png;base64,A",
    "data:text/plain,hi",
    "file:///etc/x",
    "u",
    "",
]
FILES = [
    *URLS,
    "https://x.org/a.pdf",
    "data:application/pdf;base64,JVBERi0=",
    "data:text/plain;base64,aGk=",
    "data:text/plain;base64,/w==",
    "data:;base64,aGk=",
    "data:audio/mpeg;base64,aGk=",
    "data:audio/flac;base64,aGk=",
]
FILE_IDS = ["", "", "file-9aZ", "file_011Cx"]

TEXTS = st.sampled_from(["", " ", "\n\t", "ok ", "Is it so?  \n", "x" * 400]) | st.text(max_size=30)
CALL_IDS = st.sampled_from(["a", "b", "call_1", "b c!", "y" * 50, "z" * 50, "", "é", "a b", "a_b"])
NAMES = st.sampled_from(["search", "browser.open", "f" * 90, "", "naïve"])
ARGUMENTS = st.sampled_from(["{}", '{"q":"x"}', "", "[1]", "{broken", '{"a":NaN}', "null", ' {"n": 1} ', '"x"'])
RESPONSES = st.sampled_from(["", "r1", "r2"])
IMAGES = st.builds(
    e.ImagePart,
    st.sampled_from(URLS),
    file_id=st.sampled_from(FILE_IDS),
    detail=st.sampled_from(["", "low", "original"]),
)
DOCUMENTS = st.builds(
    e.FilePart,
    st.sampled_from(FILES),
    st.sampled_from(["", "application/pdf", "text/csv", "application/zip"]),
    st.sampled_from(["", "a.pdf", " "]),
    st.sampled_from(FILE_IDS),
    st.sampled_from(["", " ", "a,b"]),
)
PARTS = st.builds(e.TextPart, TEXTS) | IMAGES | DOCUMENTS
CONTENT = TEXTS | st.lists(PARTS, max_size=3).map(tuple)


def native(format: str, *message: object) -> str:
    """The text of a `native`."""
    return json.dumps({format: {"message": message}})


THINKING_NATIVE = [
    "",
    "{}",
    "[redacted]",
    native("anthropic", {"$whole": {"type": "redacted_thinking", "data": "EmwK"}}),
    native("openai.responses", {"id": "rs_1", "encrypted_content": "gAAA"}),
    native("openai.responses", {"$whole": {"type": "reasoning", "id": "rs_2", "summary": []}}),
    native("openai.responses", 7),
    native("anthropic", {"$whole": 7}, {}),
]
TEXT_NATIVE = [
    "",
    native("anthropic", {"citations": [], "cache_control": {"type": "ephemeral"}}),
    native("anthropic", {"$whole": {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}},
           {"$whole": {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}}, {}),
    native("anthropic", {"$whole": {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}}, {}),
    native("openai.responses", {"id": "msg_1", "phase": "commentary"}),
    native("openai.responses", {"$whole": {"type": "web_search_call", "id": "ws_1", "status": "completed"}}, {}),
    json.dumps({"openai.chat": {"message": {"refusal": "no", "content": [{}]}}}),
]  # fmt: skip
CALLS_NATIVE = [
    "",
    native("openai.responses", {"id": "fc_1", "status": "completed"}),
    native("anthropic", {"caller": {"type": "direct"}}),
    native("openai.responses", {"$instead": {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"}}),
    native("openai.responses", {"$instead": {"type": "computer_call", "id": "cu", "call_id": "a", "action": {}}}),
    json.dumps({"openai.chat": {"message": {"tool_calls": [{"extra_content": {"google": {"signature": "s"}}}]}}}),
]  # fmt: skip

SEARCH_RESULT = {"type": "search_result", "source": "a.md", "title": "A", "content": [{"type": "text", "text": "a"}]}
RESULT_NATIVE = [
    "",
    native("anthropic", {"caller": {"type": "direct"}, "content": "x", "is_error": False}),
    native("anthropic", {"content": [{"citations": []}, {"$whole": SEARCH_RESULT}]}),
    native("anthropic", {"content": [{"$whole": SEARCH_RESULT}]}),
    native("anthropic", {"content": [{"$whole": {"type": "tool_use", "id": "x"}}, 7]}),
    json.dumps({"openai.chat": {"message": {"artifact": 1, "content": [{}]}}}),
    native("openai.responses", {"$instead": {"type": "computer_call_output", "call_id": "a", "output": {}}}),
    native("openai.responses", {"$instead": {"type": "custom_tool_call_output", "call_id": "a", "output": "y"}}),
]

CALLS = st.lists(st.builds(e.ToolCall, CALL_IDS, NAMES, ARGUMENTS, st.booleans()), max_size=3).map(tuple)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(e.UserMessage, content=CONTENT, name=st.sampled_from(["", "Ann"])),
    st.builds(e.LlmThinking, content=TEXTS, response_id=RESPONSES, signature=st.sampled_from(["", "sig"]),
              native=st.sampled_from(THINKING_NATIVE)),
    st.builds(e.LlmThinking, content=TEXTS, response_id=RESPONSES, signature=st.just("sig")),
    st.builds(e.LlmToolCall, calls=CALLS, content=TEXTS, response_id=RESPONSES, native=st.sampled_from(CALLS_NATIVE)),
    st.builds(e.LlmToolCall, calls=CALLS, response_id=RESPONSES),
    st.builds(e.ToolResult, call_id=CALL_IDS, content=CONTENT, final=st.booleans()),
    st.builds(e.ToolResult, call_id=CALL_IDS, content=CONTENT, native=st.sampled_from(RESULT_NATIVE)),
    st.builds(e.ToolError, call_id=CALL_IDS, content=CONTENT),
    st.builds(e.LlmTextResponse, content=CONTENT, response_id=RESPONSES, native=st.sampled_from(TEXT_NATIVE)),
    st.builds(e.LlmClarification, content=TEXTS, approval=st.booleans()),
    st.builds(e.LlmSkillCall, call_id=CALL_IDS, name=NAMES, arguments=ARGUMENTS, response_id=RESPONSES),
    st.builds(e.SkillResult, call_id=CALL_IDS, content=CONTENT),
    st.builds(e.LlmSubagentSpawn, call_id=CALL_IDS, agent_id=st.just("b"), task=TEXTS, response_id=RESPONSES),
    st.builds(e.SubagentResult, call_id=CALL_IDS, content=CONTENT),
    st.builds(e.LlmSubagentMessage, agent_id=st.just("b"), content=CONTENT),
    st.builds(e.ParentAgentMessage, content=CONTENT),
    st.builds(e.SystemFailure, content=TEXTS),
    st.builds(e.SessionStarted, content=CONTENT),
    st.builds(e.ExternalInject, content=CONTENT, source=st.sampled_from(["system", "mail"]),
              retention=st.sampled_from(["critical", "batch_compressible"])),
    st.builds(e.TaskStarted, goal=TEXTS),
    st.builds(lambda text: e.TodoSet(items=(e.TodoItem("1", text),)), TEXTS),
    st.builds(e.EnvironmentChange, content=CONTENT, key=st.sampled_from(["", "sky"])),
)  # fmt: skip


def check(context: Context) -> None:
    """Every form of a context obeys its rules."""
    assert [] == broken_in_chat(context.render("openai.chat"))
    assert [] == broken_in_chat(context.render("openai.chat", reasoning_content=True))
    assert [] == broken_in_responses(context.render("openai.responses"))
    assert [] == broken_in_anthropic(context.render("anthropic"))


async def context_of(events: Sequence[Event], max_tokens: int | None, *plugins: Plugin) -> Context | None:
    """The context after these events; `None` where it does not fit."""
    async with memory_engine.open(":memory:", config=NEVER, plugins=plugins) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(events)
        return await fitting(engine, thread.id, max_tokens)


async def fitting(engine: Engine, thread_id: str, max_tokens: int | None, query: str | None = None) -> Context | None:
    """A context, if one fits."""
    try:
        return await engine.thread(thread_id).context(max_tokens, query=query)
    except errors.ContextBudgetError:
        return None


@settings(max_examples=250)
@given(st.lists(EVENTS, max_size=14), st.none() | st.integers(20, 400))
async def test_every_form_obeys_its_providers_rules(events: list[Event], max_tokens: int | None) -> None:
    """Parallel and repeated calls, missing and early results, failures, thinking of any kind, images and files."""
    context = await context_of(events, max_tokens)
    if context is not None:
        check(context)
        assert max_tokens is None or context.tokens + context.thinking_tokens <= max_tokens


@settings(max_examples=80)
@given(st.lists(EVENTS, min_size=4, max_size=14), st.lists(EVENTS, max_size=6), st.booleans())
async def test_a_compaction_and_recall_break_no_rule(
    before: list[Event], after: list[Event], has_question: bool
) -> None:
    """A summary in place of old turns, and passages before the newest one."""
    async with memory_engine.open(":memory:", config=NEVER, compactor=FakeCompactor("short")) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(before)
        with contextlib.suppress(errors.CompactorFailed, errors.NothingToCompact):  # "short" may not be shorter
            await thread.compact()
        await thread.dispatch_all(after)
        context = await fitting(engine, thread.id, 600 if has_question else None, "Is it so?" if has_question else None)
    if context is not None:
        check(context)


def shown_otherwise(chunk: Chunk) -> Iterable[Message]:
    """A renderer of one's own, with whatever it likes."""
    image = {"type": "image_url", "image_url": {"url": PNG}}
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    yield {"role": "developer", "content": chunk.text}
    yield {"role": "user", "content": [image, {"type": "text", "text": " "}, audio]}
    yield {"role": "assistant", "content": [{"type": "text", "text": "Well."}, image]}


@settings(max_examples=80)
@given(st.lists(EVENTS, max_size=10), st.sampled_from(["user_message", "agent_response", "thinking", "error", "*"]))
async def test_renderers_of_ones_own_break_no_rule(events: list[Event], chunk_type: str) -> None:
    """What they show is brought into each form, too."""
    plugin = Plugin("p")
    plugin.renderer(chunk_type)(shown_otherwise)
    context = await context_of(events, None, plugin)
    assert context is not None
    check(context)


@settings(max_examples=60)
@given(st.lists(EVENTS, max_size=20), st.integers(100, 1_500))
async def test_a_series_of_contexts_keeps_the_same_room_for_thinking(events: list[Event], max_tokens: int) -> None:
    """What the cache ledger measures is what the model saw, also while thinking goes back to its provider."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(events)
        messages = MeasuredMessages(kernel_of(engine)[ContextBuilder])
        series = ContextSeries(memory_engine.State(), thread.id, max_tokens, messages)
        async for event in thread.events():
            series.step(event.operations, event.chunks, event.seq)
        try:
            expected = await thread.context(max_tokens, policy=ContextPolicy(blocks=()))
        except errors.ContextBudgetError:
            with pytest.raises(errors.ContextBudgetError):
                series.context()
        else:
            assert expected.messages == series.context().messages


@pytest.mark.parametrize("form", ["openai", "chat", ""])
async def test_a_form_that_is_not_there_is_refused(form: str) -> None:
    """The error names those that are."""
    context = await context_of([], None)
    assert context is not None
    with pytest.raises(ValueError, match=r"openai\.chat"):
        context.render(form)  # type: ignore[call-overload]  # what the types forbid
