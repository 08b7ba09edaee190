"""Arbitrary messages as providers allow them, and messages made of events again."""

import json
from collections.abc import Sequence

from hypothesis import strategies as st

from memory_engine.core.events.base import Content, Event, TextPart
from memory_engine.core.events.memory import ExternalInject, SessionStarted
from memory_engine.core.events.messages import (
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
    ToolError,
    ToolResult,
    UserMessage,
)
from memory_engine.formats.anthropic import messages as anthropic
from memory_engine.formats.native import Json, from_native, message_of
from memory_engine.formats.openai_chat import messages as openai_chat
from memory_engine.formats.openai_responses import messages as openai_responses

TEXTS = st.text(min_size=1, max_size=12)
BOOLEANS: st.SearchStrategy[bool] = st.booleans()
IDS = st.text("abcdef0123456789_-", min_size=1, max_size=8)
BASE64 = st.text("ABCDabcd0189+/=", min_size=4, max_size=12)
SMALL = st.none() | st.booleans() | st.integers(-99, 99) | TEXTS
VALUES = st.recursive(
    SMALL, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=4
)
"""Any JSON."""
EXTRA = st.dictionaries(st.sampled_from(["x_one", "x_two"]), SMALL | st.lists(SMALL, max_size=2), max_size=2)
ARGUMENTS = st.dictionaries(TEXTS, SMALL | st.floats(allow_nan=False, allow_infinity=False), max_size=2)
FOREIGN = st.builds(lambda more: {"type": "of_tomorrow", **more}, EXTRA)


def some(**values: st.SearchStrategy[object]) -> st.SearchStrategy[Json]:
    """An object with these keys."""
    return st.fixed_dictionaries(values)


def either(
    required: dict[str, st.SearchStrategy[object]], **optional: st.SearchStrategy[object]
) -> st.SearchStrategy[Json]:
    """An object with these keys, some of which may be missing."""
    return st.fixed_dictionaries(required, optional=optional)


def marked(block: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """A block that may be marked for the cache, and say what nobody has heard of."""
    cache: st.SearchStrategy[Json] = st.sampled_from([{}, {"cache_control": {"type": "ephemeral"}}])
    return st.builds(lambda one, mark, more: {**one, **mark, **more}, block, cache, EXTRA)


def lists(one: st.SearchStrategy[Json]) -> st.SearchStrategy[list[Json]]:
    """One to three of them."""
    return st.lists(one, min_size=1, max_size=3)


def of(kind: str, **values: st.SearchStrategy[object]) -> st.SearchStrategy[Json]:
    """A block of a type."""
    return some(type=st.just(kind), **values)


# chat-completions

CHAT_TEXT = of("text", text=TEXTS)
CHAT_PARTS = lists(
    marked(
        CHAT_TEXT
        | of("image_url", image_url=either({"url": TEXTS}, detail=st.sampled_from(["auto", "low", "high"])))
        | of("input_audio", input_audio=some(data=BASE64, format=st.sampled_from(["wav", "mp3"])))
        | of("file", file=either({"file_id": IDS}, filename=TEXTS))
        | of("file", file=some(filename=TEXTS, file_data=BASE64.map("data:application/pdf;base64,{}".format)))
        | FOREIGN
    )
)
CHAT_CALLS = st.lists(
    st.builds(
        lambda name, arguments, more: {
            "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}, **more
        },
        IDS, ARGUMENTS, EXTRA,
    )
    | of("custom", custom=some(name=IDS, input=TEXTS)),
    max_size=2,
)  # fmt: skip


@st.composite
def chat_messages(draw: st.DrawFn) -> list[Json]:
    """A conversation of chat-completions: every call is answered before the next message."""
    messages: list[Json] = draw(
        st.lists(
            either({"role": st.sampled_from(["system", "developer"]), "content": TEXTS | lists(CHAT_TEXT)}), max_size=2
        )
    )
    for turn in range(draw(st.integers(1, 3))):
        messages.append(draw(either({"role": st.just("user"), "content": TEXTS | CHAT_PARTS}, name=IDS)))
        calls = [{"id": f"c{turn}.{n}", **call} for n, call in enumerate(draw(CHAT_CALLS))]
        said = lists(marked(CHAT_TEXT | of("refusal", refusal=TEXTS)))
        optional = {"refusal": TEXTS, "annotations": st.just([]), "audio": some(id=IDS), "name": IDS}
        thought = st.sampled_from(["", "reasoning", "reasoning_content"])
        content = TEXTS | said | (st.none() if calls else TEXTS)
        answer: Json = draw(either({"role": st.just("assistant"), "content": content}, **optional))
        if key := draw(thought):
            answer[key] = draw(TEXTS)
        messages.append({**answer, **draw(EXTRA), **({"tool_calls": calls} if calls else {})})
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": draw(TEXTS | lists(CHAT_TEXT)), **draw(EXTRA)}
            for call in calls
        ]
    return messages


def chat_made(event: Event) -> Json:
    """What the fields make."""
    match event:
        case SessionStarted() | ExternalInject():
            made: Json = {"role": "system", "content": _chat_content(event.content)}
        case UserMessage() | LlmTextResponse():
            made = {"role": "user" if isinstance(event, UserMessage) else "assistant"}
            made["content"] = _chat_content(event.content)
            if event.name:
                made["name"] = event.name
        case LlmThinking():
            made = {"reasoning_content": event.content}
        case LlmToolCall():
            made = {"role": "assistant", **({"content": event.content} if event.content else {})}
            made["tool_calls"] = list(map(openai_chat.tool_call, event.calls))
        case ToolResult():
            made = {"role": "tool", "tool_call_id": event.call_id, "content": _chat_content(event.content)}
        case _:
            raise AssertionError(event)
    whole = message_of(getattr(event, "native", ""), openai_chat.FORMAT, made)
    assert isinstance(whole, dict)
    return whole


def _chat_content(content: Content) -> object:
    return content if isinstance(content, str) else list(map(openai_chat.content_part, content))


def chat_again(events: Sequence[Event]) -> list[Json]:
    """The messages, made of events: a thought belongs to the message after it of its response, or is one."""
    made: list[Json] = []
    thought: Json = {}
    for event, following in zip(events, [*events[1:], None], strict=True):
        if isinstance(event, LlmThinking) and event.response_id == getattr(following, "response_id", ""):
            thought = chat_made(event)
        else:
            made.append({"role": "assistant", **chat_made(event), **thought})
            thought = {}
    return made


def chat_normal(message: Json) -> Json:
    """A message without what says nothing: nulls, and no text beside calls."""
    said = {key: one for key, one in message.items() if one is not None}
    return {
        key: one for key, one in said.items() if key != "content" or one not in ("", []) or "tool_calls" not in said
    }


# Anthropic

A_TEXT = of("text", text=TEXTS)
A_SOURCES = (
    some(type=st.just("base64"), media_type=st.sampled_from(["image/png", "application/pdf"]), data=BASE64)
    | of("url", url=TEXTS.map("https://{}".format))
    | of("file", file_id=IDS)
)
A_IMAGE = of("image", source=A_SOURCES)
A_QUOTED = of("content", content=TEXTS | lists(A_TEXT))
A_DOCUMENT = either(
    {
        "type": st.just("document"),
        "source": A_SOURCES | of("text", media_type=st.just("text/plain"), data=TEXTS) | A_QUOTED,
    },
    title=TEXTS,
    context=TEXTS,
    citations=st.just({"enabled": True}),
)
A_PARTS = lists(marked(A_TEXT | A_IMAGE | A_DOCUMENT | FOREIGN))
A_ANSWERS = st.lists(
    marked(A_TEXT)
    | of("thinking", thinking=TEXTS, signature=BASE64)
    | of("redacted_thinking", data=BASE64)
    | of("server_tool_use", id=IDS, name=IDS, input=ARGUMENTS)
    | of("web_search_tool_result", tool_use_id=IDS, content=st.just([{"url": "https://a.org"}]))
    | marked(of("tool_use", name=IDS, input=ARGUMENTS)),
    min_size=1,
    max_size=5,
)


@st.composite
def anthropic_messages(draw: st.DrawFn) -> list[Json]:
    """A conversation of Anthropic messages: each call is answered at the beginning of the next message."""
    messages: list[Json] = []
    results: list[Json] = []
    for turn in range(draw(st.integers(1, 3))):
        is_listed = draw(BOOLEANS) or bool(results)
        spoken: object = [*results, *draw(A_PARTS)] if is_listed else draw(TEXTS)
        messages.append({"role": "user", "content": spoken})
        answer = draw(TEXTS | A_ANSWERS)
        blocks = answer if isinstance(answer, list) else []
        calls = [one for one in blocks if one["type"] == "tool_use"]
        for n, call in enumerate(calls):
            call["id"] = f"toolu_{turn}.{n}"
        messages.append({"role": "assistant", "content": answer})
        outcome = either(
            {}, content=TEXTS | A_PARTS, is_error=st.booleans(), cache_control=st.just({"type": "ephemeral"})
        )
        results = [{"type": "tool_result", "tool_use_id": call["id"], **draw(outcome)} for call in calls]
    return messages if not results else [*messages, {"role": "user", "content": results}]


def anthropic_made(event: Event) -> list[Json]:
    """What the fields make: the blocks."""
    match event:
        case UserMessage() | LlmTextResponse():
            made = _blocks(event.content) if event.content else []
        case LlmThinking():
            made = [anthropic.thinking(event.content, event.signature)] if event.content or event.signature else []
        case LlmToolCall():
            made = [*(_blocks(event.content) if event.content else []), *map(anthropic.tool_use, event.calls)]
        case ToolResult() | ToolError():
            said = event.content if isinstance(event.content, str) else _blocks(event.content)
            made = [anthropic.tool_result(event.call_id, said, failed=isinstance(event, ToolError))]
        case _:
            raise AssertionError(event)
    whole = message_of(getattr(event, "native", ""), anthropic.FORMAT, made)
    assert isinstance(whole, list)
    return whole


def _blocks(content: Content) -> list[Json]:
    return list(map(anthropic.anthropic_block, (TextPart(content),) if isinstance(content, str) else content))


def anthropic_again(events: Sequence[Event]) -> list[Json]:
    """The messages, made of events: blocks of one role together."""
    made: list[Json] = []
    for event in events:
        role = "assistant" if isinstance(event, LlmTextResponse | LlmThinking | LlmToolCall) else "user"
        if not made or made[-1]["role"] != role:
            made.append({"role": role, "content": []})
        content = made[-1]["content"]
        assert isinstance(content, list)
        content += anthropic_made(event)
    return made


def anthropic_normal(message: Json) -> Json:
    """A message whose text is a list of one block, without what says nothing."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    assert isinstance(blocks, list)
    return {"role": message["role"], "content": [_said(block) for block in blocks]}


def _said(block: Json) -> Json:
    content = block.get("content")
    inner = (
        {"content": list(map(_said, content))} if isinstance(content, list) and block["type"] == "tool_result" else {}
    )
    nothing = {key for key, one in block.items() if one is None or (key == "is_error" and one is False)}
    return {key: one for key, one in {**block, **inner}.items() if key not in nothing}


# Responses

R_PARTS = lists(
    st.builds(
        lambda part, more: {**part, **more},
        of("input_text", text=TEXTS)
        | either({"type": st.just("input_image"), "image_url": TEXTS}, detail=st.sampled_from(["auto", "low"]))
        | of("input_image", file_id=IDS)
        | of("input_file", filename=TEXTS, file_data=BASE64.map("data:application/pdf;base64,{}".format))
        | of("input_file", file_url=TEXTS.map("https://{}".format))
        | of("input_file", file_id=IDS)
        | FOREIGN,
        EXTRA,
    )
)
R_ANSWERS = st.lists(
    some(
        type=st.just("message"),
        id=IDS,
        role=st.just("assistant"),
        status=st.just("completed"),
        content=lists(of("output_text", text=TEXTS, annotations=st.just([])) | of("refusal", refusal=TEXTS) | FOREIGN),
    )
    | either(
        {"type": st.just("reasoning"), "id": IDS, "summary": st.lists(of("summary_text", text=TEXTS), max_size=2)},
        encrypted_content=BASE64,
        status=st.just("completed"),
    )
    | of("web_search_call", id=IDS, status=st.just("completed"))
    | of("item_reference", id=IDS)
    | of("function_call", id=IDS, name=IDS, arguments=ARGUMENTS.map(json.dumps), status=st.just("completed"))
    | of("custom_tool_call", id=IDS, name=IDS, input=TEXTS)
    | of("computer_call", id=IDS, status=st.just("completed"), action=some(type=st.just("click"), x=st.integers(0, 9)))
    | of("shell_call", action=some(commands=st.just(["ls"]))),
    min_size=1,
    max_size=5,
)


@st.composite
def response_items(draw: st.DrawFn) -> list[Json]:
    """A conversation of Responses items."""
    items: list[Json] = draw(st.lists(some(role=st.sampled_from(["system", "developer"]), content=TEXTS), max_size=2))
    for turn in range(draw(st.integers(1, 3))):
        kind = draw(st.just({}) | st.just({"type": "message"}))
        items.append({**kind, "role": "user", "content": draw(TEXTS | R_PARTS)})
        answers = draw(R_ANSWERS)
        calls = [one for one in answers if one["type"] in openai_responses.CALLS]
        for n, call in enumerate(calls):
            call["call_id"] = f"call_{turn}.{n}"
        items += answers
        items += [
            {
                "type": f"{call['type']}_output",
                "call_id": call["call_id"],
                "output": draw(_outputs(call)),
                **draw(EXTRA),
            }
            for call in calls
        ]
    return items


def _outputs(call: Json) -> st.SearchStrategy[object]:
    if call["type"] == "computer_call":
        return of("computer_screenshot", image_url=TEXTS)
    return TEXTS | R_PARTS if call["type"] == "function_call" else TEXTS


def responses_made(event: Event) -> list[Json]:
    """What the fields make: the items."""
    match event:
        case SessionStarted() | ExternalInject():
            made = [openai_responses.message("system", event.content)]
        case UserMessage():
            made = [openai_responses.message("user", event.content)] if event.content else []
        case LlmTextResponse():
            made = [openai_responses.message("assistant", event.content)] if event.content else []
        case LlmThinking():
            made = []
        case LlmToolCall():
            made = list(map(openai_responses.function_call, event.calls))
        case ToolResult():
            parts = event.content
            said = parts if isinstance(parts, str) else list(map(openai_responses.input_part, parts))
            made = [openai_responses.function_call_output(event.call_id, said)]
        case _:
            raise AssertionError(event)
    whole = message_of(getattr(event, "native", ""), openai_responses.FORMAT, made)
    assert isinstance(whole, list)
    return whole


def responses_again(events: Sequence[Event]) -> list[Json]:
    """The items, made of events."""
    return [item for event in events for item in responses_made(event)]


def responses_normal(item: Json) -> Json:
    """An item with what it need not say: its type, and that a text is a list of one part."""
    said = {key: one for key, one in item.items() if one is not None}
    content = said.get("content")
    if "role" in said:
        said.pop("type", None)
        if isinstance(content, str):
            said["content"] = openai_responses.message(str(said["role"]), content)["content"]
    return {key: _without_nulls(one) for key, one in said.items()}


def _without_nulls(value: object) -> object:
    match value:
        case dict():
            return {key: _without_nulls(one) for key, one in value.items() if one is not None}
        case list():
            return list(map(_without_nulls, value))
    return value


def without_nulls(messages: Sequence[object]) -> list[object]:
    """The same, without keys that are null, however deep."""
    return list(map(_without_nulls, messages))


def response_around(event: Event, format: str) -> object:
    """What came around the response, of its last event."""
    return from_native(getattr(event, "native", ""), format).get("response")
