"""Items and streams of OpenAI's Responses as events.

Each item is an event, parallel calls are one, and the items between two inputs are one response. Calls
that a caller runs (of functions, custom tools, a computer, a shell, a patch) are tool calls, and their outputs are
results. Items of other types go with the event after them, or with the one before if none follows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from memory_engine.core.events.base import Content, Event, FilePart, ImagePart, Part, TextPart, ToolCall
from memory_engine.core.events.messages import LlmTextResponse, LlmThinking, LlmToolCall, ToolResult, UserMessage
from memory_engine.errors import InvalidMessage
from memory_engine.formats.detection import Format
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import OTHERWISE, Json
from memory_engine.formats.own import OwnForm
from memory_engine.formats.parts import (
    FOREIGN,
    ModelFields,
    ReadPart,
    WholeResponse,
    content_of,
    otherwise,
    read_parts,
    set_only,
    single_text,
    with_native,
)
from memory_engine.formats.streams import index_in, object_in, objects_in, shown_text, told_error
from memory_engine.formats.values import (
    as_list,
    as_object,
    compact,
    data_url,
    from_data_url,
    is_json,
    joined_texts,
    kind_of,
    needed,
    short_json,
    text_at,
)

FORMAT: Format = "openai.responses"
ROLES = "assistant, developer, system, user"
CALLS = frozenset(
    {"function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
"""Items that call something which the caller runs."""
OUTPUTS = frozenset(f"{name}_output" for name in CALLS)
_OURS_OF_CALLS = frozenset({"type", "id", "call_id", "status", "name"})


def runs(items: Sequence[Json]) -> Iterator[tuple[int, list[Json]]]:
    """The items of one input, or of one response, together, with the place of the first."""
    start = 0
    for n in range(1, len(items) + 1):
        if n == len(items) or not (is_answer(items[n - 1]) and is_answer(items[n])):
            yield start, list(items[start:n])
            start = n


def read(items: list[Json], dialogue: Dialogue, response_id: str, *, is_response: bool = False) -> list[Event]:
    """The events of a run of items, in order. Raises `InvalidMessage`, whose place begins with the item's.

    In a response, an output of a call that does not wait is the provider's own.
    """
    run = _Run(dialogue, response_id, is_response=is_response)
    for n, item in enumerate(items):
        try:
            run.add(item)
        except InvalidMessage as error:
            raise error.within(f"$[{n}]") from None
    return run.ended()


def whole_response(value: Json) -> WholeResponse | None:
    """A `Response` as its items and the values around them; `None` for anything else."""
    if value.get("object") != "response":
        return None
    output = as_list(value.get("output"), "output", "$.output")
    items = [as_object(item, "an item", f"$.output[{n}]") for n, item in enumerate(output)]
    details = value.get("incomplete_details")
    stopped = ""
    if value.get("status") == "incomplete":
        stopped = (text_at(details, "reason") if isinstance(details, dict) else "") or "incomplete"
    rest = {key: one for key, one in value.items() if key != "output"}
    return WholeResponse(id=text_at(value, "id"), messages=items, around=rest, stopped=stopped)


def is_answer(item: Json) -> bool:
    """Whether an item is a part of a model's response."""
    kind = _item_type(item)
    return item.get("role") == "assistant" if kind == "message" else kind not in OUTPUTS


def is_silent(item: Json) -> bool:
    """Whether an item is no event of its own: it goes with another's event."""
    kind = _item_type(item)
    return kind not in ("message", "reasoning") and kind not in CALLS and kind not in OUTPUTS


def _item_type(item: Json) -> str:
    """The type of an item; a message may leave it out."""
    return str(item.get("type", "message" if "role" in item else ""))


def without_calls(items: list[Json]) -> tuple[list[Json], list[Json]]:
    """The items without the calls that a caller would run, and these."""
    calls = [item for item in items if _item_type(item) in CALLS]
    return [item for item in items if _item_type(item) not in CALLS], calls


def has_half_call(items: list[Json]) -> bool:
    """Whether a call was cut off: its arguments are not JSON, or it says so itself."""
    _, calls = without_calls(items)
    half = (call.get("status") == "incomplete" or not is_json(call.get("arguments", "{}")) for call in calls)
    return any(half)


# what the fields make


def input_part(part: Part) -> Json:
    """A part of what is said to a model, or of a result."""
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            image = {"image_url": part.url, "file_id": part.file_id, "detail": part.detail}
            return {"type": "input_image", **set_only(image)}
    if part.text:
        return {"type": "input_text", "text": part.text}
    where = "file_data" if part.url.startswith("data:") else "file_url"
    return {"type": "input_file", **set_only({"filename": part.name, "file_id": part.file_id, where: part.url})}


def output_text(text: str) -> Json:
    """A text of a model."""
    return {"type": "output_text", "text": text}


def message(role: str, content: Content) -> Json:
    """A message item."""
    parts = (TextPart(content),) if isinstance(content, str) else content
    if role == "assistant":
        return {"role": role, "content": [output_text(one.text) for one in parts if isinstance(one, TextPart)]}
    return {"role": role, "content": [input_part(one) for one in parts]}


def function_call(call: ToolCall) -> Json:
    """A call as an item."""
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def function_call_output(call_id: str, output: object) -> Json:
    """A result as an item; `output` is a text or parts."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def made(said: ModelFields) -> list[Json]:
    """Return the items that an event's own fields describe; `native` adds what they leave out."""
    if said.is_thinking:
        return []
    return [*([message("assistant", said.content)] if said.content else []), *map(function_call, said.calls)]


OWN = OwnForm(FORMAT, made, ("created_by", "parsed", "parsed_arguments"))


# what items hold


class _Run:
    """Turns the items of a run into events. Items that are no event of their own wait for the next one."""

    def __init__(self, dialogue: Dialogue, response_id: str, *, is_response: bool) -> None:
        self._dialogue = dialogue
        self._is_response = is_response
        self._response_id = response_id
        self._made: list[tuple[Event, list[Json], list[object]]] = []
        self._waiting: list[Json] = []

    def add(self, item: Json) -> None:
        """Take the next item."""
        kind = item.get("type", "message" if "role" in item else None)
        if not isinstance(kind, str):
            raise InvalidMessage("$", f"an item of type {short_json(kind)}: an item has a type, or a role and content")
        if kind == "message":
            self._message({key: one for key, one in item.items() if key != "type"})
        elif kind == "reasoning":
            self._event(LlmThinking(content=_thought(item), response_id=self._response_id), item, None)
        elif kind in CALLS:
            self._call(item, kind)
        elif kind in OUTPUTS and not (self._is_response and self._is_own(item)):
            self._output(item, kind)
        else:
            self._waiting.append(item)

    def ended(self) -> list[Event]:
        """The events; what waits goes with the last of them, or is one of its own."""
        if self._waiting:
            event, items, ours = self._made.pop() if self._made else (self._nothing_said(), [], [])
            self._made.append((event, [*items, *self._waiting], [*ours, *([None] * len(self._waiting))]))
        return [with_native(event, FORMAT, items, ours) for event, items, ours in self._made]

    def _is_own(self, item: Json) -> bool:
        return not self._dialogue.waits(str(item.get("call_id", item.get("id"))))

    def _nothing_said(self) -> Event:
        return LlmTextResponse(content="", response_id=self._response_id)

    def _event(self, event: Event, item: Json, ours: object) -> None:
        self._made.append((event, [*self._waiting, item], [*([None] * len(self._waiting)), ours]))
        self._waiting = []

    def _message(self, item: Json) -> None:
        role = item.get("role")
        if role not in ("assistant", "developer", "system", "user"):
            raise InvalidMessage("$.role", f"the role {short_json(role)} is not one of {ROLES}")
        content = item.get("content")
        of_model = role == "assistant"
        if content is None or (content == [] and not of_model):
            raise InvalidMessage("$", "the message has no content")
        if not isinstance(content, str | list):
            raise InvalidMessage("$.content", f"content is a text or a list of parts, this is {kind_of(content)}")
        listed = message(role, content)["content"] if isinstance(content, str) else content
        _, parts = read_parts(listed, _output_part if of_model else _input_part, "$.content")
        said = (single_text(parts) if of_model or isinstance(content, str) else content_of(parts)) or ""
        made = {"role": role if role != "developer" else "system", "content": [one.ours for one in parts]}
        event: Event
        if of_model:
            event = LlmTextResponse(content=said, response_id=self._response_id)
        else:
            event = UserMessage(content=said) if role == "user" else self._dialogue.instructed(said)
        self._event(event, {**item, "content": listed}, made if said else None)

    def _call(self, item: Json, kind: str) -> None:
        call, ours = _called(item, kind)
        self._dialogue.asked([call])
        if self._made and not self._waiting and isinstance(last := self._made[-1][0], LlmToolCall):
            _, items, made = self._made.pop()
            event = LlmToolCall(calls=(*last.calls, call), response_id=self._response_id)
            self._made.append((event, [*items, item], [*made, ours]))
        else:
            self._event(LlmToolCall(calls=(call,), response_id=self._response_id), item, ours)

    def _output(self, item: Json, kind: str) -> None:
        key = "id" if kind == "local_shell_call_output" and "call_id" not in item else "call_id"
        call_id = needed(item, key, f"an item of type {kind}", "$")
        output = item.get("output")
        if output is None and kind != "apply_patch_call_output":
            raise InvalidMessage("$", f"an item of type {kind} has no output")
        content, ours = _output_content(output, is_parts=kind in ("function_call_output", "custom_tool_call_output"))
        self._dialogue.answered(call_id)
        made = function_call_output(call_id, ours) if kind == "function_call_output" else OTHERWISE
        self._event(ToolResult(call_id=call_id, content=content), item, made)


def _called(item: Json, kind: str) -> tuple[ToolCall, object]:
    """The call of an item, and what the fields make of it."""
    call_id = needed(item, "call_id", f"an item of type {kind}", "$")
    if kind == "function_call":
        arguments = needed(item, "arguments", "a function_call", "$")
        call = ToolCall(id=call_id, name=needed(item, "name", "a function_call", "$"), arguments=arguments)
        return call, function_call(call)
    if kind == "custom_tool_call":
        name = needed(item, "name", f"a {kind}", "$")
        given: Json = {"input": needed(item, "input", f"a {kind}", "$")}
    else:
        name = kind
        given = {key: one for key, one in item.items() if key not in _OURS_OF_CALLS}
    return ToolCall(id=call_id, name=name, arguments=compact(given)), OTHERWISE


def _output_content(output: object, *, is_parts: bool) -> tuple[Content, object]:
    if isinstance(output, str):
        return output, output
    if is_parts:
        _, parts = read_parts(output, _input_part, "$.output")
        return content_of(parts), [one.ours for one in parts]
    return (compact(output) if output is not None else ""), None


def _thought(item: Json) -> str:
    """The readable part of a reasoning item: its summary, or the reasoning itself."""
    return _texts_under(item, "summary") or _texts_under(item, "content")


def _texts_under(item: Json, key: str) -> str:
    found = as_list(item.get(key) or [], key, f"$.{key}")
    parts = [as_object(one, "a part of reasoning", f"$.{key}[{n}]") for n, one in enumerate(found)]
    return joined_texts((text_at(part, "text", f"$.{key}[{n}]") for n, part in enumerate(parts)), "\n\n")


def _input_part(part: Json, where: str) -> ReadPart:
    match part.get("type"):
        case "input_text":
            return _read_as_input_part(TextPart(needed(part, "text", "a part of type input_text", where)))
        case "input_image":
            return _read_as_input_part(_image(part, where))
        case "input_file":
            return _file(part, where)
        case "output_text" | "text":  # what a model said, shown to another
            return otherwise(TextPart(needed(part, "text", "a text", where)))
        case str():
            return FOREIGN
        case kind:
            raise InvalidMessage(where, f"a part of type {short_json(kind)}: a part has a type, which is a text")


def _output_part(part: Json, where: str) -> ReadPart:
    match part.get("type"):
        case "output_text":
            said = needed(part, "text", "a part of type output_text", where)
            return ReadPart(TextPart(said), output_text(said))
        case "refusal":
            return otherwise(TextPart(needed(part, "refusal", "a refusal", where)))
        case "input_text":
            return otherwise(TextPart(needed(part, "text", "a part of type input_text", where)))
        case str():
            return FOREIGN
        case kind:
            raise InvalidMessage(where, f"a part of type {short_json(kind)}: a part has a type, which is a text")


def _read_as_input_part(part: Part) -> ReadPart:
    return ReadPart(part, input_part(part))


def _image(part: Json, where: str) -> ImagePart:
    url, file_id = text_at(part, "image_url", where), text_at(part, "file_id", where)
    if not url and not file_id:
        raise InvalidMessage(where, "an image has neither image_url nor file_id")
    return ImagePart(url, file_id=file_id, detail=text_at(part, "detail", where))


def _file(part: Json, where: str) -> ReadPart:
    given = {key: text_at(part, key, where) for key in ("file_data", "file_url", "file_id", "filename")}
    if not given["file_data"] and not given["file_url"] and not given["file_id"]:
        raise InvalidMessage(where, "a file has none of file_data, file_url and file_id")
    url = given["file_data"] or given["file_url"]
    if given["file_data"] and not url.startswith("data:"):
        url = data_url("application/octet-stream", url)
    media_type, _ = from_data_url(url) or ("", "")
    return _read_as_input_part(FilePart(url, media_type, given["filename"], given["file_id"]))


# streams


class ResponsesAssembly:
    """Events of a Responses stream. Its last event has the whole response."""

    format = FORMAT

    def __init__(self) -> None:
        self.failure = ""
        self._around: Json = {}
        self._items: dict[int, Json] = {}
        self._whole: Json | None = None

    def feed(self, value: Json) -> None:
        """Take the next event."""
        kind = value.get("type")
        if not isinstance(kind, str):
            raise InvalidMessage("$.type", f"an event of type {short_json(kind)}: its type is a text")
        if kind == "error":
            self.failure = told_error(value)
        elif isinstance(value.get("response"), dict):
            self._response(kind, object_in(value, "response"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._items[index_in(value, "output_index")] = as_object(value.get("item"), "item", "$.item")
        elif (extend := _RESPONSE_DELTAS.get(kind)) is not None:
            index = index_in(value, "output_index")
            if index not in self._items:
                raise InvalidMessage("$.output_index", f"a delta of item {index}, which has not begun")
            extend(self._items[index], value)

    def _response(self, kind: str, response: Json) -> None:
        self._around = {key: one for key, one in response.items() if key != "output"}
        if kind in ("response.completed", "response.incomplete"):
            output = response.get("output")  # some servers leave it empty in the last event
            self._whole = response if output else {**response, "output": self._listed()}
        elif kind == "response.failed":
            self.failure = told_error(response.get("error"))

    @property
    def text(self) -> str:
        """The text so far."""
        contents = (objects_in(item, "content") for item in self._items.values() if item.get("type") == "message")
        return "".join(shown_text(part, "text") for content in contents for part in content)

    def whole(self) -> Json | None:
        """The response, once it is completed, or incomplete at a limit."""
        return self._whole

    def so_far(self) -> tuple[list[Json], Json]:
        """The items so far."""
        return self._listed(), self._around

    def _listed(self) -> list[Json]:
        return [self._items[index] for index in sorted(self._items)]


def _add_text(item: Json, value: Json, list_key: str, index_key: str, part: Json) -> None:
    parts = objects_in(item, list_key)
    index = index_in(value, index_key)
    while len(parts) <= index:
        parts.append(dict(part))
    key = "refusal" if part["type"] == "refusal" else "text"
    parts[index][key] = text_at(parts[index], key) + text_at(value, "delta")
    item[list_key] = parts


def _add_argument(item: Json, value: Json, key: str) -> None:
    item[key] = text_at(item, key) + text_at(value, "delta")


_RESPONSE_DELTAS: Mapping[str, Callable[[Json, Json], None]] = {
    "response.output_text.delta": lambda item, value: _add_text(
        item, value, "content", "content_index", {"type": "output_text", "text": "", "annotations": []}
    ),
    "response.refusal.delta": lambda item, value: _add_text(
        item, value, "content", "content_index", {"type": "refusal", "refusal": ""}
    ),
    "response.reasoning_summary_text.delta": lambda item, value: _add_text(
        item, value, "summary", "summary_index", {"type": "summary_text", "text": ""}
    ),
    "response.reasoning_text.delta": lambda item, value: _add_text(
        item, value, "content", "content_index", {"type": "reasoning_text", "text": ""}
    ),
    "response.function_call_arguments.delta": lambda item, value: _add_argument(item, value, "arguments"),
    "response.custom_tool_call_input.delta": lambda item, value: _add_argument(item, value, "input"),
}


ASSEMBLY = ResponsesAssembly
