"""Gemini: its contents and streams as events, and contexts as requests.

Each thought, each result, and each run of other parts is an event, in the order of the parts.

A run of a model's parts is texts, or one text with the calls after it. Keys are read as the API writes them
(`functionCall`) and as its SDK does (`function_call`). A call mostly has no id: it gets one, and its response is bound
to it by its name.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from attrs import field, frozen

from memory_engine.core.events.base import Event, FilePart, ImagePart, Part, TextPart, ToolCall
from memory_engine.core.events.messages import LlmTextResponse, LlmThinking, LlmToolCall, ToolResult, UserMessage
from memory_engine.errors import InvalidMessage
from memory_engine.formats.detection import Format
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.media import base64_of, file_type, is_web
from memory_engine.formats.native import OTHERWISE, Json, is_equal, message_of
from memory_engine.formats.own import OwnForm, RequestInput, own_blocks
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
from memory_engine.formats.streams import object_in, objects_in, shown_text
from memory_engine.formats.turns import (
    EMPTY,
    GO_ON,
    OPENAI_IMAGE_LIMITS,
    FormCall,
    FormTurn,
    RenderOptions,
    Result,
    Speech,
    media_note,
    opening,
    parts_text,
    with_images_within,
)
from memory_engine.formats.values import as_list, as_object, compact, data_url, needed, short_json, text_at

FORMAT: Format = "gemini"
ROLES = "function, model, system, user"
_STOPPED = frozenset({"MAX_TOKENS", "SAFETY", "RECITATION", "MALFORMED_FUNCTION_CALL"})
_ANSWERS = ("result", "output")
"""Keys of a response whose text alone is its whole content."""


def read(message: Json, dialogue: Dialogue, response_id: str) -> list[Event]:
    """The events of a content, in the order of its parts. Raises `InvalidMessage`."""
    role = message.get("role", "user")
    if role not in ("function", "model", "system", "user"):
        raise InvalidMessage("$.role", f"the role {short_json(role)} is not one of {ROLES}")
    parts, held = read_parts(message.get("parts") or [], _read_gemini_part, "$.parts")
    if role == "model":
        return _Answer(dialogue, response_id).read(parts, held)
    if not parts:
        raise InvalidMessage("$", "the content has no parts")
    if role == "system":
        event = dialogue.instructed(single_text(held))
        return [with_native(event, FORMAT, parts, [one.ours for one in held])]
    return _user_content_events(parts, held, dialogue)


def whole_response(value: Json) -> WholeResponse | None:
    """A `GenerateContentResponse` as its content and the values around it; `None` for anything else."""
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
    """The value under a key, in the API's spelling or the SDK's."""
    return value[key] if key in value else value.get(snake(key))


def snake(key: str) -> str:
    """The key as the SDK writes it."""
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in key)


# what the fields make


def made(said: ModelFields) -> list[Json]:
    """The parts that the fields make of a model's words: its `native` is read in parallel to them."""
    if said.is_thinking:
        return []
    texts: Iterator[Json] = ({"text": one.text} for one in parts_of(said.content) if isinstance(one, TextPart))
    return [*texts, *map(function_call, said.calls)]


def function_call(call: ToolCall) -> Json:
    """A call as a part."""
    return {"functionCall": {"name": call.name, "args": arguments_of(call)}}


OWN = OwnForm(FORMAT, made, ())


# what a content holds


def _user_content_events(parts: list[Json], held: list[ReadPart], dialogue: Dialogue) -> list[Event]:
    events: list[Event] = []
    results = [n for n, one in enumerate(parts) if under(one, "functionResponse") is not None]
    start = 0
    for end in (*results, len(parts)):
        if start < end:
            run = held[start:end]
            event = UserMessage(content=single_text(run))
            events.append(with_native(event, FORMAT, parts[start:end], [one.ours for one in run]))
        if end < len(parts):
            events.append(_function_response_event(parts[end], dialogue, f"$.parts[{end}]"))
        start = end + 1
    return events


def _function_response_event(part: Json, dialogue: Dialogue, where: str) -> Event:
    found = as_object(under(part, "functionResponse"), "a functionResponse", where)
    name = needed(found, "name", "a functionResponse", where)
    call_id = text_at(found, "id", where) or dialogue.waits_under(name)
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
                event = LlmThinking(content=text_at(part, "text"), response_id=self._response_id)
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
        call_id = text_at(found, "id", where) or f"call-{self._response_id}-{n}"
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
    """Whether a part holds the keys that the fields make, and more."""
    return all(is_equal(part.get(key), value) for key, value in ours.items())


def _read_gemini_part(part: Json, where: str) -> ReadPart:
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


# streams


class GeminiAssembly:
    """Chunks of Gemini, each a response with the next parts. It has come whole with its finish reason."""

    format = FORMAT
    failure = ""

    def __init__(self) -> None:
        self._around: Json = {}
        self._candidate: Json = {}
        self._parts: list[Json] = []

    def feed(self, value: Json) -> None:
        """Take the next chunk."""
        self._around.update({key: one for key, one in value.items() if key != "candidates" and one is not None})
        for n, found in enumerate(as_list(value.get("candidates") or [], "candidates", "$.candidates")):
            candidate = as_object(found, "a candidate", f"$.candidates[{n}]")
            if candidate.get("index", 0) != 0:
                raise InvalidMessage(f"$.candidates[{n}]", "a stream of several candidates; record one at a time")
            for part in objects_in(object_in(candidate, "content"), "parts"):
                self._add(part)
            said = {key: one for key, one in candidate.items() if key != "content" and one is not None}
            self._candidate.update(said)

    def _add(self, part: Json) -> None:
        """Texts go on, those of thoughts with those of thoughts; a signature may come with the last of them."""
        last = self._parts[-1] if self._parts else {}
        is_text = isinstance(last.get("text"), str) and isinstance(part.get("text"), str)
        is_sealed = any(under(last, key) is not None for key in ("thoughtSignature",))
        if is_text and not is_sealed and last.get("thought") == part.get("thought"):
            self._parts[-1] = {**last, **part, "text": text_at(last, "text") + text_at(part, "text")}
        else:
            self._parts.append(part)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(shown_text(part, "text") for part in self._parts if part.get("thought") is not True)

    def whole(self) -> Json | None:
        """The response, once it is known why it ended."""
        if not under(self._candidate, "finishReason"):
            return None
        content = {"role": "model", "parts": self._parts}
        return {**self._around, "candidates": [{**self._candidate, "content": content}]}

    def so_far(self) -> tuple[list[Json], Json]:
        """The parts so far."""
        return [{"role": "model", "parts": self._parts}], {**self._around, "candidates": [self._candidate]}


ASSEMBLY = GeminiAssembly


# contexts as requests
#
# What its rules ask beyond those of all providers: instructions stand apart, later ones as a note of the user; user and
# model take turns, the user first and last; all responses to a content's calls stand together in the content after it;
# signatures of thoughts stand on the parts that they came with.


@frozen(kw_only=True)
class GeminiInput(RequestInput):
    """The arguments of `client.models.generate_content`, and their tokens.

    `system_instruction` goes into its `config`; it is `None` where there are no instructions.
    """

    contents: list[Json] = field(repr=False)
    system_instruction: str | None = field(repr=False)


def render(turns: Sequence[FormTurn], options: RenderOptions) -> GeminiInput:
    """The contents of these turns, and the instructions before them."""
    first, others = opening(with_images_within(turns, OPENAI_IMAGE_LIMITS))
    contents: list[tuple[str, list[Json]]] = []
    for turn in others:
        if turn.role != "agent":
            _say(contents, "user", _others(turn))
            continue
        parts = _answer_parts(turn)
        if parts and not contents:
            _say(contents, "user", [{"text": GO_ON}])
        _say(contents, "model", parts)
        _say(contents, "user", _results(turn, parts))
    if not contents or contents[-1][0] == "model":
        _say(contents, "user", [{"text": GO_ON}])
    return GeminiInput(
        contents=[{"role": role, "parts": parts} for role, parts in contents],
        system_instruction="\n\n".join(parts_text(turn.parts) for turn in first) or None,
        tokens=options.tokens + options.thinking_tokens,
    )


def blocks_of(request: GeminiInput) -> Iterator[object]:
    """The parts of a request."""
    return (part for content in request.contents for part in cast("list[object]", content["parts"]))


def _say(contents: list[tuple[str, list[Json]]], role: str, parts: Iterable[Json]) -> None:
    """Put parts into the last content, if it is of this role, else into one of their own."""
    made = list(parts)
    if made and contents and contents[-1][0] == role:
        contents[-1][1].extend(made)
    elif made:
        contents.append((role, made))


def _others(turn: FormTurn) -> list[Json]:
    if turn.role == "system":
        return [{"text": f"[Instructions] {parts_text(turn.parts)}"}]
    ours = [_user_part(part) for part in turn.parts]
    return _as_given(turn.chunk.native, ours) if turn.chunk is not None else ours


def _as_given(native: str, ours: list[Json]) -> list[Json]:
    made = message_of(native, FORMAT, ours)
    return [one for one in made if isinstance(one, dict)] if isinstance(made, list) else ours


def _answer_parts(turn: FormTurn) -> list[Json]:
    """The parts of what the model said, in its order."""
    if turn.own:
        return own_blocks(turn.own, OWN)
    return [part for block in turn.blocks if isinstance(block, Speech | FormCall) for part in _model_part(block)]


def _model_part(block: Speech | FormCall) -> Iterator[Json]:
    if isinstance(block, FormCall):
        yield {"functionCall": {"name": block.name, "args": json.loads(block.arguments)}}
    else:
        yield {"text": parts_text(block.parts)}


def _results(turn: FormTurn, parts: Sequence[Json]) -> Iterator[Json]:
    """The responses to a content's calls; one whose call has an id repeats it."""
    found = [one for part in parts if isinstance(one := under(part, "functionCall"), dict)]
    for call, result in zip(found, turn.results, strict=False):
        own = _as_given(result.chunk.native, [{}]) if result.chunk is not None and result.chunk.native else []
        if len(own) == 1 and under(own[0], "functionResponse") is not None:
            yield own[0]
            continue
        named = {"id": call["id"], "name": call["name"]} if "id" in call else {"name": call["name"]}
        yield {"functionResponse": {**named, "response": _function_output(result)}}


def _function_output(result: Result) -> Json:
    return {"error" if result.failed else "result": parts_text(result.parts)}


def _user_part(part: Part) -> Json:
    """A part of a user's content; a note for what Gemini does not take."""
    match part:
        case TextPart():
            return {"text": part.text if part.text.strip() else EMPTY}
        case FilePart(text=text) if text.strip():
            return {"text": media_note(part)}
    held, kind = base64_of(part.url), file_type(part) if isinstance(part, FilePart) else part.media_type
    if held is not None and (kind or held.media_type):
        return {"inlineData": {"mimeType": held.media_type or kind, "data": held.data}}
    if is_web(part.url) and kind:
        return {"fileData": {"mimeType": kind, "fileUri": part.url}}
    return {"text": media_note(part)}
