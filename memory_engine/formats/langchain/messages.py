"""LangChain's messages, and chunks of streams, as events.

A message is read as an object, and in the three ways in which LangChain writes one: `message_to_dict`, `dumpd`,
`model_dump`. It is one event, with the reasoning in it as events before it. A model's message is a whole response: by
its id it is recorded once. Tool calls that LangChain could not parse are calls, too.

Nothing here needs LangChain but streams, whose chunks it adds up.
"""

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol, cast

from memory_engine.core.chunks import content_text
from memory_engine.core.events.base import Content, Event, FilePart, ImagePart, Part, TextPart, ToolCall
from memory_engine.core.events.messages import (
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
    ToolError,
    ToolResult,
    UserMessage,
)
from memory_engine.errors import InvalidMessage, MissingExtra
from memory_engine.formats.detection import Format
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import WHOLE, Json, to_native
from memory_engine.formats.own import OwnForm
from memory_engine.formats.parts import (
    FOREIGN,
    ModelFields,
    ReadPart,
    WholeResponse,
    arguments_of,
    content_of,
    otherwise,
    parts_of,
    set_only,
    with_native,
)
from memory_engine.formats.streams import object_in, objects_in
from memory_engine.formats.turns import (
    media_note,
)
from memory_engine.formats.values import (
    compact,
    data_url,
    from_data_url,
    joined_texts,
    kind_of,
    needed,
    short_json,
    text_at,
)

FORMAT: Format = "langchain"
TYPES = "ai, chat, function, human, system, tool"
_ROLES = {
    "assistant": "ai",
    "developer": "system",
    "model": "ai",
    "system": "system",
    "user": "human",
}
"""The types that the roles of a `ChatMessage` stand for."""
THOUGHT_BLOCKS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_CALLS = frozenset({"tool_use", "tool_call", "function_call", "invalid_tool_call", "input_json_delta"})
"""Types of blocks that say again what `tool_calls` say."""
_OF_CHUNKS = frozenset({"tool_call_chunks", "chunk_position"})
_STOPPED = frozenset(
    "length content_filter max_tokens model_context_window_exceeded refusal MAX_TOKENS SAFETY RECITATION".split()
)
_REASONS = ("finish_reason", "stop_reason")


def plain_message(value: Mapping[str, object]) -> Json:
    """Return the fields of a message that say something, and its `type`, in whichever way it is written."""
    fields = _fields_of(value)
    content = fields.get("content")
    made: Json = {"type": _type_of(value, fields), "content": "" if content is None else content}
    made |= {key: one for key, one in fields.items() if key not in _OF_CHUNKS and not (key in made or _is_default(one))}
    return made


def _fields_of(value: Mapping[str, object]) -> Mapping[str, object]:
    inner = value.get("kwargs", value.get("data"))
    return inner if isinstance(inner, Mapping) else value


def _is_default(value: object) -> bool:
    """Whether a field says nothing."""
    return value is None or value is False or value in ({}, [])


def _type_of(value: Mapping[str, object], fields: Mapping[str, object]) -> str:
    named = value.get("id")
    of_class = str(named[-1]) if isinstance(named, list) and named else ""
    kind = fields.get("type") or (of_class if isinstance(value.get("kwargs"), Mapping) else value.get("type"))
    return str(kind or "human").removesuffix("MessageChunk").removesuffix("Message").lower()


def read(message: Json, dialogue: Dialogue, response_id: str) -> list[Event]:
    """The events of a message, the last of them the message itself. Raises `InvalidMessage`."""
    told = plain_message(message)
    kind = str(told["type"])
    named = text_at(told, "role").lower() if kind == "chat" else kind
    kind = _ROLES.get(named, named)
    match kind:
        case "human":
            content, ours = _read_langchain_content(told)
            event = UserMessage(content=content, name=text_at(told, "name"))
            return [with_native(event, FORMAT, told, {"type": "human", "content": ours})]
        case "system":
            content, ours = _read_langchain_content(told)
            return [with_native(dialogue.instructed(content), FORMAT, told, {"type": "system", "content": ours})]
        case "ai":
            return _ai_message_events(told, dialogue, response_id)
        case "tool" | "function":
            return [_tool_message_event(told, dialogue)]
    raise InvalidMessage("$.type", f"a message of type {short_json(kind)} is not one of {TYPES}")


def whole_response(value: Json) -> WholeResponse | None:
    """An `AIMessage` as a response; `None` for any other message."""
    told = plain_message(value)
    if told["type"] != "ai":
        return None
    metadata = object_in(told, "response_metadata")
    reasons = [str(metadata.get(key) or "") for key in _REASONS]
    return WholeResponse(
        id=text_at(told, "id"),
        messages=[told],
        around=_response_metadata(told, metadata),
        stopped=next((reason for reason in reasons if reason in _STOPPED), ""),
    )


def _response_metadata(told: Json, metadata: Json) -> Json:
    """What the engine asks of a response: its id, its model, and its usage in the words of OpenAI's Responses."""
    model = metadata.get("model_name") or metadata.get("model")
    usage = object_in(told, "usage_metadata")
    counts: Json = {key: usage[key] for key in ("input_tokens", "output_tokens") if key in usage}
    if cached := object_in(usage, "input_token_details").get("cache_read"):
        counts["input_tokens_details"] = {"cached_tokens": cached}
    around: Json = {"id": told.get("id"), "model": model, "usage": counts}
    return {key: one for key, one in around.items() if one}


def without_calls(messages: list[Json]) -> tuple[list[Json], list[Json]]:
    """The messages without the calls in them, and these."""
    listed = ("tool_calls", "invalid_tool_calls")
    calls = [call for message in messages for key in listed for call in objects_in(message, key)]
    return [without_blocks({k: v for k, v in one.items() if k not in listed}, _CALLS) for one in messages], calls


def has_half_call(messages: list[Json]) -> bool:
    """Whether a call was cut off: LangChain could not parse it."""
    return any(objects_in(message, "invalid_tool_calls") for message in messages)


def without_blocks(message: Json, kinds: Collection[str]) -> Json:
    """Return the message without the blocks of some types."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [one for one in content if not (isinstance(one, dict) and one.get("type") in kinds)]}


# what the fields make


def content_block(part: Part) -> Json:
    """A part of content as a block."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart() if part.url:
            return {"type": "image_url", "image_url": set_only({"url": part.url, "detail": part.detail})}
        case ImagePart():
            return {"type": "image", "file_id": part.file_id}
    data = from_data_url(part.url)
    where = {"mime_type": data[0], "base64": data[1]} if data else {"mime_type": part.media_type, "url": part.url}
    found = set_only({**where, "file_id": part.file_id})
    return {"type": "file", **found} if part.url or part.file_id else {"type": "text", "text": media_note(part)}


def tool_call(call: ToolCall) -> Json:
    """A call as a model's message has it."""
    return {"name": call.name, "args": arguments_of(call), "id": call.id, "type": "tool_call"}


def made(said: ModelFields) -> object:
    """The message that the fields make of what a model said: that beside which its `native` is read."""
    if said.is_thinking:
        return []
    is_text = isinstance(said.content, str)
    content: object = said.content if is_text else [content_block(part) for part in parts_of(said.content)]
    calls: Json = {"tool_calls": [tool_call(call) for call in said.calls]} if said.calls else {}
    return {"type": "ai", "content": content, **calls}


OWN = OwnForm(FORMAT, made, ())


# what a message holds


def _read_langchain_content(told: Json) -> tuple[Content, object]:
    """The content of a message as the fields hold it, and what they make of it."""
    content = told["content"]
    if isinstance(content, str):
        return content, content
    if not isinstance(content, list):
        raise InvalidMessage("$.content", f"content is a text or a list of blocks, this is {kind_of(content)}")
    parts = [_read_langchain_block(one, f"$.content[{n}]") for n, one in enumerate(content)]
    held = content_of(parts)
    return (held, [one.ours for one in parts]) if parts else ("", None)


def _read_langchain_block(block: object, where: str) -> ReadPart:
    if isinstance(block, str):
        return otherwise(TextPart(block)) if block else FOREIGN
    if not isinstance(block, dict):
        raise InvalidMessage(where, f"a block of content is an object or a text, this is {kind_of(block)}")
    match block.get("type"):
        case "text" if block.get("text"):
            part = TextPart(needed(block, "text", "a block of type text", where))
            return ReadPart(part, content_block(part))
        case "image_url":
            return _image_url(block, where)
        case "image" | "file" | "audio" | "video" as kind:
            return _media(block, kind)
    return FOREIGN


def _image_url(block: Json, where: str) -> ReadPart:
    given = block.get("image_url")
    if isinstance(given, str):
        return otherwise(ImagePart(given))
    if not isinstance(given, dict) or not given.get("url"):
        raise InvalidMessage(where, "an image has no url")
    part = ImagePart(text_at(given, "url", where), detail=text_at(given, "detail", where))
    return ReadPart(part, content_block(part))


def _media(block: Json, kind: str) -> ReadPart:
    """An image or a file by address, as Base64, or by id, in today's words or those before them."""
    media_type = str(block.get("mime_type") or ("image/png" if kind == "image" else ""))
    data, url, file_id = block.get("base64") or block.get("data"), block.get("url"), block.get("file_id")
    address = data_url(media_type, data) if isinstance(data, str) else url if isinstance(url, str) else ""
    known = file_id if isinstance(file_id, str) else ""
    if not address and not known:
        return FOREIGN
    part = ImagePart(address, file_id=known) if kind == "image" else FilePart(address, media_type, file_id=known)
    return otherwise(part)


def _ai_message_events(told: Json, dialogue: Dialogue, response_id: str) -> list[Event]:
    thoughts = [_thinking(one, response_id) for one in thoughts_in(told)]
    calls = tuple(_ai_message_calls(told, response_id))
    dialogue.asked(calls, "$.tool_calls")
    content, ours = _read_langchain_content(told)
    if not calls:
        answer = LlmTextResponse(content=content, response_id=response_id, name=text_at(told, "name"))
        return [*thoughts, with_native(answer, FORMAT, told, {"type": "ai", "content": ours})]
    if objects_in(told, "invalid_tool_calls"):
        told.setdefault("tool_calls", [])
    if isinstance(ours, list):  # an event with calls has one text, which is all that its fields make
        ours = [None] * len(ours)
    event = LlmToolCall(calls=calls, content=content_text(content), response_id=response_id)
    asked = [tool_call(call) for call in calls]
    return [*thoughts, with_native(event, FORMAT, told, {"type": "ai", "content": ours, "tool_calls": asked})]


def _ai_message_calls(told: Json, response_id: str) -> Iterator[ToolCall]:
    found = [*objects_in(told, "tool_calls"), *objects_in(told, "invalid_tool_calls")]
    for n, call in enumerate(found):
        args = call.get("args")
        arguments = args if isinstance(args, str) else compact(args or {})
        call_id = text_at(call, "id", f"$.tool_calls[{n}]") or f"call-{response_id}-{n}"
        yield ToolCall(id=call_id, name=text_at(call, "name", f"$.tool_calls[{n}]") or "unnamed", arguments=arguments)


def thoughts_in(told: Json) -> Iterator[Json]:
    """Yield the blocks of reasoning, and the reasoning beside them."""
    yield from (one for one in objects_in(told, "content") if one.get("type") in THOUGHT_BLOCKS)
    if beside := object_in(told, "additional_kwargs").get("reasoning_content"):
        yield {"type": "reasoning", "reasoning": beside}


def _thinking(block: Json, response_id: str) -> Event:
    inner = object_in(block, "reasoning_content") or block
    texts = [str(inner.get(key) or "") for key in ("thinking", "reasoning", "text")]
    summary = joined_texts((str(one.get("text") or "") for one in objects_in(block, "summary")), "\n\n")
    signature = inner.get("signature")
    return LlmThinking(
        content=next(filter(None, texts), summary),
        signature=signature if isinstance(signature, str) else "",
        response_id=response_id,
        native=to_native(FORMAT, [{WHOLE: block}]),
    )


def _tool_message_event(told: Json, dialogue: Dialogue) -> Event:
    name = text_at(told, "name")
    call_id = text_at(told, "tool_call_id") or (dialogue.waits_under(name) if told["type"] == "function" else "")
    if not call_id:
        raise InvalidMessage("$", "a tool's message has no tool_call_id")
    failed = told.get("status") == "error"
    content, ours = _read_langchain_content(told)
    dialogue.answered(call_id, named=name)
    event: Event = ToolResult(call_id=call_id, content=content, name=name)
    if failed:
        event = ToolError(call_id=call_id, content=content)
    whole = {key: one for key, one in told.items() if (key, one) != ("status", "success")}
    return with_native(event, FORMAT, whole, tool_message(call_id, ours, failed=failed))


def tool_message(call_id: str, content: object, *, failed: bool) -> Json:
    """The message of a result."""
    made: Json = {"type": "tool", "content": content, "tool_call_id": call_id}
    return made | ({"status": "error"} if failed else {})


# LangChain's own objects


class LangChainObject(Protocol):
    """A message as LangChain has it; a chunk can be added to another."""

    content: object
    additional_kwargs: dict[str, object]

    @property
    def text(self) -> str:
        """Its texts."""
        ...

    def model_dump(self, *, mode: str) -> dict[str, object]:
        """Its fields."""
        ...

    def __add__(self, other: object) -> "LangChainObject": ...


def langchain_core(name: str) -> Callable[..., object]:
    """Return a class or a function of LangChain's messages. Raises `MissingExtra` without LangChain."""
    try:
        found: Callable[..., object] = getattr(importlib.import_module("langchain_core.messages"), name)
    except ImportError:
        raise MissingExtra("LangChain's messages", "langgraph") from None
    return found


# streams


class LangChainAssembly:
    """Chunks of a model's message, added up by LangChain. It has come whole with its last chunk."""

    format = FORMAT
    failure = ""

    def __init__(self) -> None:
        self._sum: LangChainObject | None = None

    def feed(self, value: Json) -> None:
        """Take the next chunk."""
        told = {key: one for key, one in _fields_of(value).items() if one is not None and key != "type"}
        if told.get("tool_call_chunks"):  # of which LangChain makes the calls
            told = {key: one for key, one in told.items() if key not in ("tool_calls", "invalid_tool_calls")}
        chunk = cast("LangChainObject", langchain_core("AIMessageChunk")(**told))
        self._sum = chunk if self._sum is None else self._sum + chunk

    @property
    def text(self) -> str:
        """The text so far."""
        return str(self._sum.text) if self._sum is not None else ""

    def whole(self) -> Json | None:
        """The message, once a chunk has said that it is the last, or why the model ended."""
        (message,), _ = self.so_far()
        metadata = object_in(message, "response_metadata")
        is_last = getattr(self._sum, "chunk_position", None) == "last"
        return message if is_last or any(metadata.get(key) for key in _REASONS) else None

    def so_far(self) -> tuple[list[Json], Json]:
        """The message so far."""
        dumped = self._sum.model_dump(mode="json") if self._sum is not None else {"type": "ai"}
        message = plain_message(dumped)
        return [message], _response_metadata(message, object_in(message, "response_metadata"))


ASSEMBLY = LangChainAssembly
