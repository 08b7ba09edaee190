"""Anthropic's messages and streams as events.

Each thought, each result, and each run of other blocks is an event, in the order of the blocks. A run
of an assistant's blocks is texts, or one text with the calls after it. A text equals a list of one block.
"""

import json
from typing import cast

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
from memory_engine.errors import InvalidMessage
from memory_engine.formats.detection import Format
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import Json
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
    read_parts,
    single_text,
    with_native,
)
from memory_engine.formats.streams import index_in, object_in, shown_text, told_error
from memory_engine.formats.values import as_object, compact, data_url, from_data_url, needed, short_json, text_at

FORMAT: Format = "anthropic"
ROLES = "assistant, system, user"
STOPPED = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})


def read(message: Json, dialogue: Dialogue, response_id: str) -> list[Event]:
    """The events of a message, in the order of its blocks. Raises `InvalidMessage`."""
    role = message.get("role")
    content = message.get("content")
    if role not in ("assistant", "system", "user"):
        raise InvalidMessage("$.role", f"the role {short_json(role)} is not one of {ROLES}")
    if content is None or (content in ("", []) and role != "assistant"):
        raise InvalidMessage("$", "the message has no content")
    is_text = isinstance(content, str)
    blocks, parts = read_parts([{"type": "text", "text": content}] if is_text else content, _read_block, "$.content")
    match role:
        case "assistant":
            return _Response(dialogue, response_id).read(blocks, parts)
        case "system":
            said = content if isinstance(content, str) else content_of(parts)
            return [_native(dialogue.instructed(said), blocks, parts)]
    return _user_events(blocks, parts, dialogue, is_text=is_text)


def whole_response(value: Json) -> WholeResponse | None:
    """A `Message` as its blocks and the values around them; `None` for anything else."""
    if value.get("type") != "message" or value.get("role") != "assistant" or "stop_reason" not in value:
        return None
    message = {key: one for key, one in value.items() if key in ("role", "content")}
    rest = {key: one for key, one in value.items() if key not in ("role", "content", "type")}
    stopped = str(value.get("stop_reason") or "")
    stopped = stopped if stopped in STOPPED else ""
    return WholeResponse(id=text_at(value, "id"), messages=[message], around=rest, stopped=stopped)


def without_calls(messages: list[Json]) -> tuple[list[Json], list[Json]]:
    """The messages without the calls in them, and these."""
    blocks = [one for message in messages for one in _blocks_of(message)]
    calls = [one for one in blocks if one.get("type") == "tool_use"]
    return [{"role": "assistant", "content": [one for one in blocks if one.get("type") != "tool_use"]}], calls


def has_half_call(messages: list[Json]) -> bool:
    """Whether a response that stopped in the middle did so in a call: it is the last block."""
    blocks = [one for message in messages for one in _blocks_of(message)]
    return bool(blocks) and blocks[-1].get("type") == "tool_use"


def _blocks_of(message: Json) -> list[Json]:
    content = message.get("content")
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


# what the fields make


def anthropic_block(part: Part) -> Json:
    """A part of content as a block."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image", "source": _source(part.url, part.file_id)}
    named = {"title": part.name} if part.name else {}
    if part.text:
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": part.text}, **named}
    return {"type": "document", "source": _source(part.url, part.file_id), **named}


def tool_use(call: ToolCall) -> Json:
    """A call as a block."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of(call)}


def tool_result(call_id: str, content: object, *, failed: bool = False) -> Json:
    """A result as a block; `content` is a text or blocks."""
    said = {"content": content} if content else {}
    return {"type": "tool_result", "tool_use_id": call_id, **said, **({"is_error": True} if failed else {})}


def thinking(content: str, signature: str) -> Json:
    """A thought as a block."""
    return {"type": "thinking", "thinking": content, "signature": signature}


def made(said: ModelFields) -> list[Json]:
    """The blocks that the fields make of a model's words: its `native` is read in parallel to them."""
    if said.is_thinking:
        text = content_text(said.content)
        return [thinking(text, said.signature)] if text or said.signature else []
    return [*map(anthropic_block, parts_of(said.content)), *map(tool_use, said.calls)]


OWN = OwnForm(FORMAT, made, ("cache_control", "parsed_output"))


def _source(url: str, file_id: str) -> Json:
    if file_id:
        return {"type": "file", "file_id": file_id}
    data = from_data_url(url)
    return {"type": "base64", "media_type": data[0], "data": data[1]} if data else {"type": "url", "url": url}


# what a message holds


def _native(event: Event, blocks: list[Json], parts: list[ReadPart]) -> Event:
    return with_native(event, FORMAT, list(blocks), [one.ours for one in parts])


def _user_events(blocks: list[Json], parts: list[ReadPart], dialogue: Dialogue, *, is_text: bool) -> list[Event]:
    """The events of a user's message: results, and the content between them."""
    events: list[Event] = []
    results = [n for n, one in enumerate(blocks) if one["type"] == "tool_result"]
    start = 0
    for end in (*results, len(blocks)):
        if start < end:
            run = parts[start:end]
            content = single_text(run) if is_text else content_of(run)
            events.append(_native(UserMessage(content=content), blocks[start:end], run))
        if end < len(blocks):
            events.append(_tool_result_event(blocks[end], dialogue, f"$.content[{end}]"))
        start = end + 1
    return events


def _tool_result_event(found: Json, dialogue: Dialogue, where: str) -> Event:
    call_id = needed(found, "tool_use_id", "a tool_result", where)
    failed = found.get("is_error")
    if not isinstance(failed, bool | None):
        raise InvalidMessage(f"{where}.is_error", "is_error is true or false")
    given = found.get("content")
    content: Content = given if isinstance(given, str) else ""
    ours: object = content
    if given is not None and not isinstance(given, str):
        _, parts = read_parts(given, _read_block, f"{where}.content")
        content, ours = content_of(parts), [one.ours for one in parts]
    dialogue.answered(call_id, where)
    event = ToolError(call_id=call_id, content=content) if failed else ToolResult(call_id=call_id, content=content)
    whole = {key: one for key, one in found.items() if one is not False or key != "is_error"}
    return with_native(event, FORMAT, [whole], [tool_result(call_id, ours, failed=bool(failed))])


class _Response:
    """Cuts the blocks of an assistant's message into events."""

    def __init__(self, dialogue: Dialogue, response_id: str) -> None:
        self._dialogue = dialogue
        self._response_id = response_id
        self._events: list[Event] = []
        self._begin()

    def _begin(self) -> None:
        self._blocks: list[Json] = []
        self._parts: list[ReadPart] = []
        self._texts: list[TextPart] = []
        self._calls: list[ToolCall] = []

    def read(self, blocks: list[Json], parts: list[ReadPart]) -> list[Event]:
        """The events; one at least, also of a response that says nothing."""
        for n, (found, part) in enumerate(zip(blocks, parts, strict=True)):
            match found["type"]:
                case "thinking" | "redacted_thinking":
                    self._end()
                    self._thought(found, f"$.content[{n}]")
                case "tool_use":
                    self._call(found, f"$.content[{n}]")
                case "text" if isinstance(part.part, TextPart):
                    self._text(found, part.part)
                case _:
                    self._add(found, FOREIGN)
        self._end()
        return self._events or [LlmTextResponse(content="", response_id=self._response_id)]

    def _add(self, found: Json, part: ReadPart) -> None:
        self._blocks.append(found)
        self._parts.append(part)

    def _text(self, found: Json, text: TextPart) -> None:
        if self._calls:
            self._end()
        if not text.text:  # the fields would make no block of it
            self._add(found, FOREIGN)
            return
        self._texts.append(text)
        self._add(found, _read_as_block(text))

    def _call(self, found: Json, where: str) -> None:
        if len(self._texts) > 1:
            self._end()
        given = as_object(found.get("input"), "the input of a tool_use", f"{where}.input")
        call = ToolCall(
            id=needed(found, "id", "a tool_use", where),
            name=needed(found, "name", "a tool_use", where),
            arguments=compact(given),
        )
        self._dialogue.asked([call], where)
        self._calls.append(call)
        self._add(found, ReadPart(None, tool_use(call)))

    def _thought(self, found: Json, where: str) -> None:
        if found["type"] == "redacted_thinking":
            event, ours = LlmThinking(content="", response_id=self._response_id), None
        else:
            said = needed(found, "thinking", "a thinking block", where)
            signature = text_at(found, "signature", where)
            event = LlmThinking(content=said, signature=signature, response_id=self._response_id)
            ours = thinking(said, signature) if said or signature else None
        self._events.append(with_native(event, FORMAT, [found], [ours]))

    def _end(self) -> None:
        """The run up to here is an event."""
        if self._calls:
            text = self._texts[0].text if self._texts else ""
            event: Event = LlmToolCall(calls=tuple(self._calls), content=text, response_id=self._response_id)
            self._events.append(_native(event, self._blocks, self._parts))
        elif self._blocks:
            content = single_text([ReadPart(text) for text in self._texts]) or ""
            event = LlmTextResponse(content=content, response_id=self._response_id)
            self._events.append(_native(event, self._blocks, self._parts))
        self._begin()


def _read_block(found: Json, where: str) -> ReadPart:
    match found.get("type"):
        case "text":
            return _read_as_block(TextPart(needed(found, "text", "a text block", where)))
        case "image":
            return _image(found, where)
        case "document":
            return _read_document_block(found, where)
        case str():
            return FOREIGN
        case kind:
            raise InvalidMessage(where, f"a block of type {short_json(kind)}: a block has a type, which is a text")


def _read_as_block(part: Part) -> ReadPart:
    return ReadPart(part, anthropic_block(part))


def _image(found: Json, where: str) -> ReadPart:
    source = as_object(found.get("source"), "the source of an image", f"{where}.source")
    match source.get("type"):
        case "base64":
            return _read_as_block(ImagePart(_data(source, f"{where}.source")))
        case "url":
            return _read_as_block(ImagePart(needed(source, "url", "the source of an image", f"{where}.source")))
        case "file":
            return _read_as_block(
                ImagePart("", file_id=needed(source, "file_id", "the source of an image", f"{where}.source"))
            )
    return FOREIGN


def _read_document_block(found: Json, where: str) -> ReadPart:
    within = f"{where}.source"
    source = as_object(found.get("source"), "the source of a document", within)
    name = text_at(found, "title", where)
    match source.get("type"):
        case "base64":
            media_type = text_at(source, "media_type", within)
            return _read_as_block(FilePart(_data(source, within), media_type, name))
        case "url":
            return _read_as_block(FilePart(needed(source, "url", "the source of a document", within), name=name))
        case "file":
            file_id = needed(source, "file_id", "the source of a document", within)
            return _read_as_block(FilePart(file_id=file_id, name=name))
        case "text":
            said = needed(source, "data", "the source of a document", within)
            return _read_as_block(FilePart(media_type="text/plain", name=name, text=said)) if said else FOREIGN
        case "content":
            return _document_from_blocks(source.get("content"), name, within)
    return FOREIGN


def _document_from_blocks(content: object, name: str, where: str) -> ReadPart:
    """A document that is given as blocks: its texts."""
    if isinstance(content, str):
        said = content
    else:
        _, parts = read_parts(content, _read_block, f"{where}.content")
        said = "\n".join(one.part.text for one in parts if isinstance(one.part, TextPart))
    return otherwise(FilePart(media_type="text/plain", name=name, text=said)) if said else FOREIGN


def _data(source: Json, where: str) -> str:
    media_type = needed(source, "media_type", "a source of type base64", where)
    return data_url(media_type, needed(source, "data", "a source of type base64", where))


# streams


class AnthropicAssembly:
    """Events of an Anthropic stream. It has come whole with its stop reason."""

    format = FORMAT

    def __init__(self) -> None:
        self.failure = ""
        self._around: Json = {}
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, str] = {}

    def feed(self, value: Json) -> None:
        """Take the next event; those of the stream helper, which repeat others, are passed over."""
        match value.get("type"):
            case "message_start":
                message = as_object(value.get("message"), "message", "$.message")
                self._around = {key: one for key, one in message.items() if key != "content"}
            case "content_block_start":
                block = as_object(value.get("content_block"), "content_block", "$.content_block")
                self._blocks[index_in(value, "index")] = dict(block)
            case "content_block_delta":
                self._extend(index_in(value, "index"), as_object(value.get("delta"), "delta", "$.delta"))
            case "message_delta":
                self._around.update(as_object(value.get("delta"), "delta", "$.delta"))
                usage = self._around.get("usage")
                added = {key: one for key, one in object_in(value, "usage").items() if one is not None}
                self._around["usage"] = {**(usage if isinstance(usage, dict) else {}), **added}
            case "error":
                self.failure = told_error(value.get("error"))
            case str():
                pass
            case kind:
                raise InvalidMessage("$.type", f"an event of type {short_json(kind)}: its type is a text")

    def _extend(self, index: int, delta: Json) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise InvalidMessage("$.index", f"a delta of block {index}, which has not begun")
        if delta.get("type") == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + text_at(delta, "partial_json", "$.delta")
        elif delta.get("type") == "citations_delta":
            block["citations"] = [*cast("list[object]", block.get("citations") or []), delta.get("citation")]
        else:
            for key, added in delta.items():
                if key != "type":
                    said = block.get(key)
                    block[key] = said + added if isinstance(said, str) and isinstance(added, str) else added

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(shown_text(block, "text") for block in self._blocks.values() if block.get("type") == "text")

    def whole(self) -> Json | None:
        """The message, once it is known why it stopped."""
        if self.failure or not self._around.get("stop_reason"):
            return None
        (message,), around = self.so_far()
        return {**around, **message}

    def so_far(self) -> tuple[list[Json], Json]:
        """The blocks so far. The input of a call that came in half is the text that came."""
        blocks = [self._block(index) for index in sorted(self._blocks)]
        return [{"role": "assistant", "content": blocks}], self._around

    def _block(self, index: int) -> Json:
        block = self._blocks[index]
        written = self._inputs.get(index)
        return {**block, "input": _parsed(written)} if written else block


def _parsed(written: str) -> object:
    try:
        return json.loads(written)
    except ValueError:
        return written


ASSEMBLY = AnthropicAssembly
