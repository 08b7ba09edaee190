"""Messages of Pydantic AI: as chat completions' messages, back from them, and as JSON, byte for byte."""

# pyright: reportMissingImports=false
# pydantic-ai is in the environment of its tests alone

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from memory_engine.core.events.base import Event
from memory_engine.core.events.messages import LlmTextResponse, UserMessage
from memory_engine.errors import MissingExtra

try:
    from pydantic_ai import messages as native
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse
except ImportError:
    raise MissingExtra("Pydantic AI's conversations", "pydantic-ai") from None

Json = dict[str, Any]


def dumped(message: ModelMessage) -> Json:
    """A message as its own adapter writes it."""
    [found] = json.loads(ModelMessagesTypeAdapter.dump_json([message]))
    return cast("Json", found)


def loaded(messages: Sequence[object]) -> list[ModelMessage]:
    """Messages from what `dumped` gave."""
    found: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(json.dumps(messages))
    return found


def dumped_texts(message: Json) -> dict[str, str]:
    """The texts of a dumped message, by their paths."""
    parts = message.get("parts") or []
    said = ((n, part.get("content")) for n, part in enumerate(parts))
    return {f"message/parts/{n}/content": text for n, text in said if isinstance(text, str) and text}


def prompted(message: ModelMessage) -> str:
    """A person's words in a message; empty if none."""
    parts = message.parts if isinstance(message, ModelRequest) else ()
    contents = [part.content for part in parts if isinstance(part, native.UserPromptPart)]
    return "\n".join(text for one in contents for text in ([one] if isinstance(one, str) else _texts_in(one)))


def _texts_in(content: Iterable[object]) -> Iterable[str]:
    for one in content:
        if isinstance(one, str | native.TextContent):
            yield one if isinstance(one, str) else one.content


def preceded(message: ModelMessage, text: str) -> ModelMessage:
    """The request with a text before its first prompt."""
    parts = list(message.parts)
    at = next(n for n, part in enumerate(parts) if isinstance(part, native.UserPromptPart))
    prompt = cast("native.UserPromptPart", parts[at])
    return replace(message, parts=[*parts[:at], replace(prompt, content=text), *parts[at:]])


# as chat completions' messages


def openai(message: ModelMessage) -> list[Json]:
    """A message as chat completions' messages, without instructions."""
    if isinstance(message, ModelResponse):
        return _response_messages(message)
    return [found for part in message.parts if (found := _asked(part)) is not None]


def fallback_event(message: ModelMessage) -> Event | None:
    """A message's text, for when its calls and results are out of order, or `None`."""
    texts = message_texts(message)
    if not texts:
        return None
    if isinstance(message, ModelResponse):
        return LlmTextResponse(content="\n".join(texts))
    is_persons = any(isinstance(part, native.UserPromptPart) for part in message.parts)
    return UserMessage(content="\n".join(texts), origin="" if is_persons else "tool")


def message_texts(message: ModelMessage) -> list[str]:
    """A message's contents and calls as texts."""
    return [str(text) for one in openai(message) for text in (one.get("content"), *_calls_as_text(one)) if text]


def _calls_as_text(message: Json) -> Iterable[str]:
    functions = (call["function"] for call in message.get("tool_calls", ()))
    return (f"{function['name']}({function['arguments']})" for function in functions)


def _response_messages(message: ModelResponse) -> list[Json]:
    found: Json = {"role": "assistant"}
    texts = [part.content for part in message.parts if isinstance(part, native.TextPart) and part.content]
    thoughts = [part.content for part in message.parts if isinstance(part, native.ThinkingPart) and part.content]
    calls = [part for part in message.parts if isinstance(part, native.ToolCallPart)]
    if texts:
        found["content"] = "".join(texts)
    if calls:
        found["tool_calls"] = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.tool_name, "arguments": call.args_as_json_str()},
            }
            for call in calls
        ]
    if thoughts:
        found["reasoning_content"] = "\n\n".join(thoughts)
    return [found] if len(found) > 1 else []


def _asked(part: object) -> Json | None:
    match part:
        case native.SystemPromptPart():
            return {"role": "system", "content": part.content} if part.content else None
        case native.UserPromptPart():
            content = _pydantic_content(part.content)
            return {"role": "user", "content": content} if content else None
        case native.ToolReturnPart():
            return _tool_return_message(part.tool_call_id, part.tool_name, part.model_response_str())
        case native.RetryPromptPart() if part.tool_name is not None:
            return _tool_return_message(part.tool_call_id, part.tool_name, part.model_response())
        case native.RetryPromptPart() | native.RetryFeedbackPart():
            return {"role": "user", "content": part.model_response(), "isMeta": True}  # which the framework wrote
    return None


def _tool_return_message(call_id: str, name: str, content: str) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


def _pydantic_content(content: object) -> object:
    if isinstance(content, str):
        return content
    return [found for one in cast("Sequence[object]", content) if (found := _pydantic_chat_part(one)) is not None]


def _pydantic_chat_part(part: object) -> Json | None:
    match part:
        case str():
            return {"type": "text", "text": part} if part else None
        case native.TextContent():
            return {"type": "text", "text": part.content} if part.content else None
        case native.ImageUrl():
            return {"type": "image_url", "image_url": {"url": part.url}}
        case native.BinaryContent() if part.is_image:
            return {"type": "image_url", "image_url": {"url": part.data_uri}}
        case native.BinaryContent():
            return {"type": "file", "file": {"filename": part.identifier, "file_data": part.data_uri}}
        case native.FileUrl():
            return {"type": "text", "text": f"[{part.url}]"}
    return None


# and back


def from_openai(messages: Iterable[Json]) -> list[ModelMessage]:
    """A context's chat completions' messages, as messages of Pydantic AI."""
    found: list[ModelMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        if message["role"] == "assistant":
            calls = message.get("tool_calls") or ()
            names |= {call["id"]: call["function"]["name"] for call in calls}
            found.append(ModelResponse(parts=_answered(message, calls)))
            continue
        part = _request_part(message, names)
        if found and isinstance(found[-1], ModelRequest):
            found[-1] = ModelRequest(parts=[*found[-1].parts, part])
        else:
            found.append(ModelRequest(parts=[part]))
    return found


def _answered(message: Json, calls: Iterable[Json]) -> list[native.ModelResponsePart]:
    parts: list[native.ModelResponsePart] = []
    if message.get("content"):
        parts.append(native.TextPart(_content_str(message["content"])))
    for call in calls:
        function = call["function"]
        parts.append(native.ToolCallPart(function["name"], function["arguments"], call["id"]))
    return parts


def _request_part(message: Json, names: dict[str, str]) -> native.ModelRequestPart:
    content = message.get("content") or ""
    match message["role"]:
        case "tool":
            call_id = message["tool_call_id"]
            return native.ToolReturnPart(names.get(call_id, message.get("name", "")), _content_str(content), call_id)
        case "user":
            return native.UserPromptPart(
                content if isinstance(content, str) else [_user_content(part) for part in content]
            )
    return native.SystemPromptPart(_content_str(content))


def _content_str(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in cast("list[Json]", content))


def _user_content(part: Json) -> native.UserContent:
    match part:
        case {"type": "image_url", "image_url": {"url": str() as url}}:
            return native.BinaryContent.from_data_uri(url) if url.startswith("data:") else native.ImageUrl(url)
        case {"type": "file", "file": {"file_data": str() as url}} if url.startswith("data:"):
            return native.BinaryContent.from_data_uri(url)
    return str(part.get("text", ""))
