"""Messages and streams of chat-completions as events: a message is one event, with its reasoning as an event before it.

The old form of a function's call (`function_call`, role `function`) is read as the call of a tool.
"""

from typing import cast

import msgspec

from memory_engine.core.chunks import content_text
from memory_engine.core.events.base import Event, FilePart, ImagePart, Part, TextPart, ToolCall
from memory_engine.core.events.messages import LlmTextResponse, LlmThinking, LlmToolCall, ToolResult, UserMessage
from memory_engine.errors import InvalidMessage
from memory_engine.formats.detection import Format
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import OTHERWISE, WHOLE, Json, beyond, to_native
from memory_engine.formats.own import OwnForm
from memory_engine.formats.parts import (
    FOREIGN,
    ModelFields,
    ReadContent,
    ReadPart,
    WholeResponse,
    content_of,
    otherwise,
    parts_of,
    read_parts,
    set_only,
    with_native,
)
from memory_engine.formats.streams import shown_text, told_error
from memory_engine.formats.values import (
    as_list,
    as_object,
    compact,
    data_url,
    from_data_url,
    is_json,
    kind_of,
    needed,
    short_json,
    text_at,
)

FORMAT: Format = "openai.chat"
ROLES = "assistant, developer, function, system, tool, user"
_STOPPED = frozenset({"length", "content_filter"})
_CALLS = ("tool_calls", "function_call")


def read(message: Json, dialogue: Dialogue, response_id: str) -> list[Event]:
    """The events of a message, the last of them the message itself. Raises `InvalidMessage`."""
    match message.get("role"):
        case "system" | "developer":
            said = _required_content(message)
            return [_native(dialogue.instructed(said.content), message, said, {"role": "system"})]
        case "user":
            said = _required_content(message)
            name = text_at(message, "name")
            event = UserMessage(content=said.content, name=name)
            return [_native(event, message, said, {"role": "user", "name": name})]
        case "assistant":
            return _assistant_events(message, dialogue, response_id)
        case "tool" | "function":
            return [_chat_result_event(message, dialogue)]
        case role:
            raise InvalidMessage("$.role", f"the role {short_json(role)} is not one of {ROLES}")


def whole_response(value: Json) -> WholeResponse | None:
    """A `ChatCompletion` as its message and the values around it; `None` for anything else."""
    if value.get("object") != "chat.completion":
        return None
    choices = as_list(value.get("choices"), "choices", "$.choices")
    if len(choices) != 1:
        why = f"the response has {len(choices)} choices; record the message of the one that you go on with"
        raise InvalidMessage("$.choices", why)
    choice = as_object(choices[0], "a choice", "$.choices[0]")
    message = as_object(choice.get("message"), "the message of a choice", "$.choices[0].message")
    rest = {key: one for key, one in choice.items() if key != "message"}
    if lost := _lost(message):
        rest["message"] = lost
    if all(message.get(key) is None for key in ("content", "refusal", "audio", *_CALLS)):
        message["content"] = ""  # a filter, or a limit, left nothing of it
    stopped = str(choice.get("finish_reason") or "")
    return WholeResponse(
        id=text_at(value, "id"),
        messages=[message],
        around={**value, "choices": [rest]},
        stopped=stopped if stopped in _STOPPED else "",
    )


def _lost(message: Json) -> Json:
    """The differences of a message from its events': keys that are `null`, and an empty text with calls."""
    is_empty = all(message.get(key) is None for key in ("content", "refusal", "audio", *_CALLS))
    has_calls = message.get("tool_calls") is not None
    lost: Json = {key: None for key, one in message.items() if one is None and (key != "content" or is_empty)}
    return {**lost, "content": ""} if has_calls and message.get("content") == "" else lost


def without_calls(messages: list[Json]) -> tuple[list[Json], list[Json]]:
    """The messages without the calls in them, and these."""
    calls = [call for message in messages for call in _calls_of(message)]
    rest = ({key: one for key, one in message.items() if key not in _CALLS} for message in messages)
    return [{"content": "", **{key: one for key, one in left.items() if one is not None}} for left in rest], calls


def has_half_call(messages: list[Json]) -> bool:
    """Whether a call was cut off: its arguments are not JSON."""
    _, calls = without_calls(messages)
    functions = (call.get("function", call) for call in calls)
    return any(not is_json(one.get("arguments", "{}")) for one in functions if isinstance(one, dict))


def _calls_of(message: Json) -> list[Json]:
    found = message.get("tool_calls")
    listed = found if isinstance(found, list) else [message.get("function_call")]
    return [call for call in listed if isinstance(call, dict)]


# what the fields make


def content_part(part: Part) -> Json:
    """A part of content as chat-completions has it; a file by address, which it does not take, by its name."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image_url", "image_url": set_only({"url": part.url, "detail": part.detail})}
    audio = from_data_url(part.url) if part.media_type.startswith("audio/") else None
    if audio is not None:
        return {"type": "input_audio", "input_audio": {"data": audio[1], "format": audio[0].removeprefix("audio/")}}
    return {"type": "file", "file": set_only({"filename": part.name, "file_data": part.url, "file_id": part.file_id})}


def tool_call(call: ToolCall) -> Json:
    """A call as an assistant's message has it."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def made(said: ModelFields) -> Json:
    """The message that the fields make of a model's words: its `native` is read in parallel to it."""
    if said.is_thinking:
        return {"role": "assistant", "reasoning_content": content_text(said.content)}
    listed = isinstance(said.content, str)
    content: object = said.content if listed else [content_part(part) for part in parts_of(said.content)]
    if said.calls:
        return {"role": "assistant", "content": content or None, "tool_calls": [tool_call(one) for one in said.calls]}
    return {"role": "assistant", "content": content, **set_only({"name": said.name})}


OWN = OwnForm(FORMAT, made, ("audio.data", "audio.expires_at", "audio.transcript", "parsed", "parsed_arguments"))


# what a message holds


def _native(event: Event, message: Json, said: ReadContent, made: dict[str, str]) -> Event:
    ours = {"content": said.ours, **set_only(made)}
    return with_native(event, FORMAT, message, ours)


def _assistant_events(message: Json, dialogue: Dialogue, response_id: str) -> list[Event]:
    thinking, rest = _thinking(message, response_id)
    if rest.get("function_call") is not None and rest.get("tool_calls") is None:
        rest = _as_tool_call(rest, response_id)
    calls, ours = _read_chat_calls(rest)
    dialogue.asked(calls, "$.tool_calls")
    said = _read_chat_content(rest, text=bool(calls))
    content = said.content or text_at(rest, "refusal")
    name = text_at(rest, "name")
    if calls:
        rest["content"] = rest.get("content") or None  # an empty text with calls is none, in any spelling
        more = {"tool_calls": ours, **({"content": content} if content else {})}
        event = LlmToolCall(calls=calls, content=cast("str", content), response_id=response_id)
        return [*thinking, with_native(event, FORMAT, rest, {"role": "assistant", **more})]
    if content or message.get("content") is not None or rest.get("audio") is not None:
        rest.setdefault("content", None)
        answer = LlmTextResponse(content=content, response_id=response_id, name=name)
        answered = ReadContent(content, said.ours or content)
        return [*thinking, _native(answer, rest, answered, {"role": "assistant", "name": name})]
    if not thinking:
        raise InvalidMessage("$", "an assistant's message holds neither content nor tool_calls")
    ours_alone = {"role": "assistant", "reasoning_content": thinking[0].content}
    told = beyond(message, ours_alone) if text_at(message, "reasoning_content") else {WHOLE: message}
    return [msgspec.structs.replace(thinking[0], native=to_native(FORMAT, told))]


def _thinking(message: Json, response_id: str) -> tuple[list[LlmThinking], Json]:
    """The reasoning of a message as an event, and the rest of it."""
    key = next((key for key in ("reasoning_content", "reasoning") if text_at(message, key)), "")
    if not key:
        return [], dict(message)
    said = text_at(message, key)
    native = "" if key == "reasoning_content" else to_native(FORMAT, {WHOLE: {key: said}})
    rest = {name: value for name, value in message.items() if name != key}
    return [LlmThinking(content=said, response_id=response_id, native=native)], rest


def _as_tool_call(message: Json, response_id: str) -> Json:
    function = as_object(message["function_call"], "function_call", "$.function_call")
    call = {"id": f"function-{response_id.removeprefix('message-')}", "type": "function", "function": function}
    return {**{key: one for key, one in message.items() if key != "function_call"}, "tool_calls": [call]}


def _read_chat_calls(message: Json) -> tuple[tuple[ToolCall, ...], list[object]]:
    found = message.get("tool_calls")
    if found is None:
        return (), []
    listed = as_list(found, "tool_calls", "$.tool_calls")
    objects = [as_object(call, "a tool call", f"$.tool_calls[{n}]") for n, call in enumerate(listed)]
    read = [_read_chat_call(call, f"$.tool_calls[{n}]") for n, call in enumerate(objects)]
    return tuple(call for call, _ in read), [ours for _, ours in read]


def _read_chat_call(call: Json, where: str) -> tuple[ToolCall, object]:
    kind = call.get("type", "function")
    call_id = text_at(call, "id", where)
    if kind == "custom" and isinstance(custom := call.get("custom"), dict) and call_id:
        name = needed(custom, "name", "a custom tool", f"{where}.custom")
        written = {"input": needed(custom, "input", "a custom tool", f"{where}.custom")}
        return ToolCall(id=call_id, name=name, arguments=compact(written)), OTHERWISE
    if kind != "function":
        raise InvalidMessage(where, f"a tool call of type {short_json(kind)} is not a call of a function")
    if not call_id:
        raise InvalidMessage(where, "a tool call has no id")
    function = as_object(call.get("function"), "the function of a tool call", f"{where}.function")
    name = text_at(function, "name", f"{where}.function")
    if not name:
        raise InvalidMessage(f"{where}.function", "a tool call names no function")
    given = function.get("arguments")
    arguments = compact(given) if isinstance(given, dict) else text_at(function, "arguments", f"{where}.function")
    read = ToolCall(id=call_id, name=name, arguments=arguments or "{}")
    if not arguments or isinstance(given, dict):
        function["arguments"] = read.arguments
    return read, tool_call(read)


def _chat_result_event(message: Json, dialogue: Dialogue) -> Event:
    name = text_at(message, "name")
    call_id = text_at(message, "tool_call_id")
    if message.get("role") == "function" and not call_id:
        call_id = dialogue.waits_under(name)
    elif not call_id:
        raise InvalidMessage("$", "a tool's result has no tool_call_id")
    said = _read_chat_content(message)
    dialogue.answered(call_id, named=name)
    event = ToolResult(call_id=call_id, content=said.content, name=name)
    whole = {**message, "role": "tool", "tool_call_id": call_id}
    return _native(event, whole, said, {"role": "tool", "tool_call_id": call_id, "name": name})


def _required_content(message: Json) -> ReadContent:
    """The content of a message that must have one."""
    if message.get("content") is None:
        raise InvalidMessage("$", "the message has no content")
    return _read_chat_content(message)


def _read_chat_content(message: Json, *, text: bool = False) -> ReadContent:
    """Text, or text, images and files; null is the empty text. `text`: the texts of parts as one text."""
    value = message.get("content")
    if value is None or isinstance(value, str):
        return ReadContent(value or "", value or "")
    if not isinstance(value, list):
        raise InvalidMessage("$.content", f"content is a text or a list of parts, this is {kind_of(value)}")
    _, parts = read_parts(value, _read_chat_part, "$.content")
    if not text:
        return ReadContent(content_of(parts), [one.ours for one in parts])
    if any(isinstance(one.part, ImagePart | FilePart) for one in parts):
        raise InvalidMessage("$.content", "a message with tool_calls holds an image")
    joined = "\n".join(one.part.text for one in parts if isinstance(one.part, TextPart))
    return ReadContent(joined, joined)


def _read_chat_part(part: Json, where: str) -> ReadPart:
    match part.get("type"):
        case "text":
            return _read_as_chat_part(TextPart(needed(part, "text", "a part of type text", where)))
        case "refusal":
            return otherwise(TextPart(needed(part, "refusal", "a refusal", where)))
        case "image_url":
            return _read_as_chat_part(_image(part, where))
        case "input_audio":
            return _read_as_chat_part(_audio(part, where))
        case "file":
            return _read_as_chat_part(_file(part, where))
        case str():
            return FOREIGN
        case kind:
            raise InvalidMessage(where, f"a part of type {short_json(kind)} is neither text nor image_url")


def _read_as_chat_part(part: Part) -> ReadPart:
    return ReadPart(part, content_part(part))


def _image(part: Json, where: str) -> ImagePart:
    given = part.get("image_url")
    if isinstance(given, str):
        part["image_url"] = given = {"url": given}
    image = as_object(given, "image_url", f"{where}.image_url")
    url = text_at(image, "url", f"{where}.image_url")
    if not url:
        raise InvalidMessage(where, "an image has no url")
    return ImagePart(url, detail=text_at(image, "detail", f"{where}.image_url"))


def _audio(part: Json, where: str) -> FilePart:
    audio = part.get("input_audio")
    if not isinstance(audio, dict) or not isinstance(audio.get("data"), str):
        raise InvalidMessage(where, 'a part of type "input_audio" is neither text nor image_url, and holds no data')
    media_type = f"audio/{text_at(audio, 'format', f'{where}.input_audio') or 'wav'}"
    return FilePart(data_url(media_type, audio["data"]), media_type)


def _file(part: Json, where: str) -> FilePart:
    file = as_object(part.get("file"), "file", f"{where}.file")
    read = FilePart(
        text_at(file, "file_data", f"{where}.file"),
        name=text_at(file, "filename", f"{where}.file"),
        file_id=text_at(file, "file_id", f"{where}.file"),
    )
    if not read.url and not read.file_id:
        raise InvalidMessage(where, "a file has neither file_data nor file_id")
    media_type, _ = from_data_url(read.url) or ("", "")
    return msgspec.structs.replace(read, media_type=media_type)


# streams

_REPLACED = frozenset({"id", "index", "name", "role", "type"})
"""Keys of a delta that are said once, or again; all other texts go on."""
_HELPERS = ("content.", "refusal.", "tool_calls.", "logprobs.")
"""The other events of the SDK's stream helper, by the beginning of their type."""


class ChatAssembly:
    """Chunks of a chat completion. It has come whole with its `finish_reason`."""

    format = FORMAT

    def __init__(self) -> None:
        self.failure = ""
        self._around: Json = {}
        self._choice: Json = {"index": 0}
        self._message: Json = {}

    def feed(self, value: Json) -> None:
        """Take the next chunk, bare or in an event of the stream helper; gateways send errors as chunks."""
        kind = str(value.get("type", ""))
        if kind.startswith(_HELPERS):
            return
        chunk = as_object(value.get("chunk"), "chunk", "$.chunk") if kind == "chunk" else value
        if chunk.get("error") is not None:
            self.failure = told_error(chunk["error"])
        listed = chunk.get("choices")
        for n, found in enumerate(as_list([] if listed is None else listed, "choices", "$.choices")):
            choice = as_object(found, "a choice", f"$.choices[{n}]")
            if choice.get("index", 0) != 0:
                raise InvalidMessage(f"$.choices[{n}]", "a stream of several choices; record one response at a time")
            delta = choice.get("delta")
            _extend(self._message, as_object({} if delta is None else delta, "a delta", f"$.choices[{n}].delta"))
            _extend(self._choice, {key: one for key, one in choice.items() if key not in ("delta", "index")})
            if choice.get("finish_reason") == "error":
                self.failure = self.failure or "the provider ended the response with an error"
        said = {key: one for key, one in chunk.items() if key not in ("choices", "object") and one is not None}
        self._around.update(said)

    @property
    def text(self) -> str:
        """The text so far."""
        return shown_text(self._message, "content")

    def whole(self) -> Json | None:
        """The completion, once a chunk has said why it ended."""
        if self.failure or not self._choice.get("finish_reason"):
            return None
        choice = {**self._choice, "message": _numbered(self._message)}
        return {**self._around, "object": "chat.completion", "choices": [choice]}

    def so_far(self) -> tuple[list[Json], Json]:
        """The message so far."""
        around = {**self._around, "object": "chat.completion", "choices": [self._choice]}
        return ([_numbered(self._message)] if self._message else []), around


def _extend(into: Json, delta: Json) -> None:
    """Add a delta: texts go on, lists by the index of their elements, what is said again replaces what was said."""
    for key, added in delta.items():
        said = into.get(key)
        if added is None:
            into.setdefault(key, None)
        elif isinstance(said, dict) and isinstance(added, dict):
            _extend(said, added)
        elif isinstance(added, list):
            into[key] = _extended(said if isinstance(said, list) else [], added)
        elif isinstance(said, str) and isinstance(added, str) and key not in _REPLACED:
            into[key] = said + added
        elif added != "" or key not in _REPLACED or not said:
            into[key] = added


def _extended(said: list[object], added: list[object]) -> list[object]:
    """Add elements: each goes on with the last one of its index, unless it begins another call under that index."""
    for one in added:
        index = _number_in(one)
        known = next((other for other in reversed(said) if index is not None and _number_in(other) == index), None)
        if isinstance(known, dict) and isinstance(one, dict) and not _begins_another(one, known):
            _extend(known, {key: value for key, value in one.items() if key != "id" or not known.get("id")})
        else:
            said.append(one)
    return said


def _begins_another(call: Json, known: Json) -> bool:
    """Whether a fragment is of another call: it has an id of its own, and names its function.

    Some servers give all parallel calls the same index. Others give each fragment of one call a new id.
    """
    call_id, function = call.get("id"), call.get("function")
    is_named = isinstance(function, dict) and bool(function.get("name"))
    return is_named and bool(call_id) and bool(known.get("id")) and call_id != known["id"]


def _number_in(element: object) -> int | None:
    """The number that an element of a list has in a stream."""
    index = element.get("index") if isinstance(element, dict) else None
    return index if isinstance(index, int) else None


def _numbered(message: Json) -> Json:
    """The message without the numbers that its calls have in a stream only."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return {"role": "assistant", **message}
    bare = [{key: one for key, one in call.items() if key != "index"} for call in calls if isinstance(call, dict)]
    return {"role": "assistant", **message, "tool_calls": bare}


ASSEMBLY = ChatAssembly
