"""Gemini's contents: each thought, each result, and each run of other parts is an event, in the order of the parts.

A run of a model's parts is texts, or one text with the calls after it. Keys are read as the API writes them
(`functionCall`) and as its SDK does (`function_call`). A call mostly has no id: it gets one, and its response is bound
to it by its name.
"""

from collections.abc import Iterator

from memory_engine.core.events.base import Event, FilePart, ImagePart, Part, TextPart, ToolCall
from memory_engine.core.events.messages import LlmTextResponse, LlmThinking, LlmToolCall, ToolResult, UserMessage
from memory_engine.errors import InvalidMessage
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import OTHERWISE, Json, is_equal
from memory_engine.formats.parts import (
    FOREIGN,
    ModelFields,
    ReadPart,
    WholeResponse,
    arguments_of,
    otherwise,
    parts_of,
    read_parts,
    single_text,
    with_native,
)
from memory_engine.formats.values import as_list, as_object, compact, data_url, needed, shown, text_of

FORMAT = "gemini"
ROLES = "function, model, system, user"
_STOPPED = frozenset({"MAX_TOKENS", "SAFETY", "RECITATION", "MALFORMED_FUNCTION_CALL"})
_ANSWERS = ("result", "output")
"""Keys of a response under which a text stands for the whole of it."""


def read(message: Json, dialogue: Dialogue, response_id: str) -> list[Event]:
    """The events of a content, in the order of its parts. Raises `InvalidMessage`."""
    role = message.get("role", "user")
    if role not in ("function", "model", "system", "user"):
        raise InvalidMessage("$.role", f"the role {shown(role)} is not one of {ROLES}")
    parts, held = read_parts(message.get("parts") or [], _part, "$.parts")
    if role == "model":
        return _Answer(dialogue, response_id).read(parts, held)
    if not parts:
        raise InvalidMessage("$", "the content has no parts")
    if role == "system":
        event = dialogue.instructed(single_text(held))
        return [with_native(event, FORMAT, parts, [one.ours for one in held])]
    return _said(parts, held, dialogue)


def whole_response(value: Json) -> WholeResponse | None:
    """A `GenerateContentResponse` as its content and what came around it; `None` for anything else."""
    if "candidates" not in value:
        return None
    listed = as_list(value["candidates"], "candidates", "$.candidates")
    if len(listed) != 1:
        why = f"the response has {len(listed)} candidates; record the content of the one that you go on with"
        raise InvalidMessage("$.candidates", why)
    candidate = as_object(listed[0], "a candidate", "$.candidates[0]")
    content = as_object(candidate.get("content") or {}, "content", "$.candidates[0].content")
    rest = {key: one for key, one in candidate.items() if key != "content"}
    stopped = str(under(candidate, "finishReason") or "")
    return WholeResponse(
        id=str(under(value, "responseId") or ""),
        messages=[{"role": "model", "parts": content.get("parts") or []}],
        around={**value, "candidates": [rest]},
        stopped=stopped if stopped in _STOPPED else "",
    )


def without_calls(messages: list[Json]) -> tuple[list[Json], list[Json]]:
    """The contents without the calls in them, and these."""
    parts = [one for message in messages for one in as_list(message.get("parts") or [], "parts", "$.parts")]
    calls = [one for one in parts if isinstance(one, dict) and under(one, "functionCall") is not None]
    return [{"role": "model", "parts": [one for one in parts if one not in calls]}], calls


def has_half_call(messages: list[Json]) -> bool:
    """Whether a response that stopped in the middle did so in a call. Gemini sends whole calls only."""
    return not messages


def under(value: Json, key: str) -> object:
    """What stands under a key, as the API or as its SDK writes it."""
    return value[key] if key in value else value.get(snake(key))


def snake(key: str) -> str:
    """The key as the SDK writes it."""
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in key)


# what the fields make


def made(said: ModelFields) -> list[Json]:
    """The parts that the fields make of what a model said: those beside which its `native` is read."""
    if said.is_thinking:
        return []
    texts: Iterator[Json] = ({"text": one.text} for one in parts_of(said.content) if isinstance(one, TextPart))
    return [*texts, *map(function_call, said.calls)]


def function_call(call: ToolCall) -> Json:
    """A call as a part."""
    return {"functionCall": {"name": call.name, "args": arguments_of(call)}}


# what a content holds


def _said(parts: list[Json], held: list[ReadPart], dialogue: Dialogue) -> list[Event]:
    events: list[Event] = []
    results = [n for n, one in enumerate(parts) if under(one, "functionResponse") is not None]
    start = 0
    for end in (*results, len(parts)):
        if start < end:
            run = held[start:end]
            event = UserMessage(content=single_text(run))
            events.append(with_native(event, FORMAT, parts[start:end], [one.ours for one in run]))
        if end < len(parts):
            events.append(_result(parts[end], dialogue, f"$.parts[{end}]"))
        start = end + 1
    return events


def _result(part: Json, dialogue: Dialogue, where: str) -> Event:
    found = as_object(under(part, "functionResponse"), "a functionResponse", where)
    name = needed(found, "name", "a functionResponse", where)
    call_id = text_of(found, "id", where) or dialogue.waits_under(name)
    response = found.get("response")
    said = next((response[key] for key in _ANSWERS if isinstance(response, dict) and list(response) == [key]), None)
    content = said if isinstance(said, str) else compact(response) if response is not None else ""
    dialogue.answered(call_id, where, named=name)
    return with_native(ToolResult(call_id=call_id, content=content, name=name), FORMAT, [part], [OTHERWISE])


class _Answer:
    """Cuts the parts of a model's content into events."""

    def __init__(self, dialogue: Dialogue, response_id: str) -> None:
        self._dialogue = dialogue
        self._response_id = response_id
        self._events: list[Event] = []
        self._parts: list[Json] = []
        self._ours: list[object] = []
        self._texts: list[TextPart] = []
        self._calls: list[ToolCall] = []

    def read(self, parts: list[Json], held: list[ReadPart]) -> list[Event]:
        """The events; one at least, also of a response that says nothing."""
        for n, (part, one) in enumerate(zip(parts, held, strict=True)):
            if part.get("thought") is True:
                self._end()
                event = LlmThinking(content=text_of(part, "text"), response_id=self._response_id)
                self._events.append(with_native(event, FORMAT, [part], [None]))
            elif under(part, "functionCall") is not None:
                self._call(part, n)
            elif isinstance(one.part, TextPart) and one.part.text:
                if self._calls:
                    self._end()
                self._texts.append(one.part)
                self._add(part, one.ours)
            else:
                self._add(part, None)
        self._end()
        return self._events or [LlmTextResponse(content="", response_id=self._response_id)]

    def _add(self, part: Json, ours: object) -> None:
        self._parts.append(part)
        self._ours.append(ours)

    def _call(self, part: Json, n: int) -> None:
        if len(self._texts) > 1:
            self._end()
        where = f"$.parts[{n}]"
        found = as_object(under(part, "functionCall"), "a functionCall", where)
        given = as_object(found.get("args") or {}, "the args of a functionCall", f"{where}.args")
        name = needed(found, "name", "a functionCall", where)
        call_id = text_of(found, "id", where) or f"call-{self._response_id}-{n}"
        call = ToolCall(id=call_id, name=name, arguments=compact(given))
        self._dialogue.asked([call], where)
        self._calls.append(call)
        ours = function_call(call)
        self._add(part, ours if _goes_on(part, ours) else OTHERWISE)

    def _end(self) -> None:
        """The run up to here is an event."""
        if self._calls:
            text = self._texts[0].text if self._texts else ""
            event: Event = LlmToolCall(calls=tuple(self._calls), content=text, response_id=self._response_id)
            self._events.append(with_native(event, FORMAT, self._parts, self._ours))
        elif self._parts:
            content = single_text([ReadPart(text) for text in self._texts]) or ""
            event = LlmTextResponse(content=content, response_id=self._response_id)
            self._events.append(with_native(event, FORMAT, self._parts, self._ours))
        self._parts, self._ours, self._texts, self._calls = [], [], [], []


def _goes_on(part: Json, ours: Json) -> bool:
    """Whether a part holds what the fields make, and more keys beside it."""
    return all(is_equal(part.get(key), value) for key, value in ours.items())


def _part(part: Json, where: str) -> ReadPart:
    if isinstance(text := part.get("text"), str):
        return ReadPart(TextPart(text), {"text": text})
    blob = under(part, "inlineData")
    if isinstance(blob, dict):
        media_type = str(under(blob, "mimeType") or "")
        return otherwise(_media(data_url(media_type, needed(blob, "data", "inlineData", where)), media_type))
    file = under(part, "fileData")
    if isinstance(file, dict):
        return otherwise(_media(str(under(file, "fileUri") or ""), str(under(file, "mimeType") or "")))
    return FOREIGN


def _media(url: str, media_type: str) -> Part:
    return ImagePart(url) if media_type.startswith("image/") else FilePart(url, media_type)
