"""Streams of all formats, put together again as the response that they would have been in one piece."""

import json
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from memory_engine.errors import InvalidMessage
from memory_engine.formats import gemini
from memory_engine.formats.detection import Format
from memory_engine.formats.native import Json
from memory_engine.formats.values import as_list, as_object, shown, text_of

_REPLACED = frozenset({"id", "index", "name", "role", "type"})
"""Keys of a delta that are said once, or again; all other texts go on."""
_HELPERS = ("content.", "refusal.", "tool_calls.", "logprobs.")
"""What the SDK's stream helper tells beside the chunks, by the beginning of its type."""


class Assembly(Protocol):
    """A response as far as it has come."""

    @property
    def format(self) -> Format:
        """The format of its messages."""
        ...

    def feed(self, value: Json) -> None:
        """Take the next chunk or event. Raises `InvalidMessage`."""
        ...

    @property
    def text(self) -> str:
        """The text so far."""
        ...

    @property
    def failure(self) -> str:
        """What the provider said went wrong; empty for nothing."""
        ...

    def whole(self) -> Json | None:
        """The response object, once the stream has said that it is at its end."""
        ...

    def so_far(self) -> tuple[list[Json], Json]:
        """The messages (items) so far, and what came around them."""
        ...


class ChatAssembly:
    """Chunks of a chat completion. It has come whole with its `finish_reason`."""

    format: Format = "openai.chat"

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
            self.failure = _told(chunk["error"])
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
        return _shown_text(self._message, "content")

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


class AnthropicAssembly:
    """Events of an Anthropic stream. It has come whole with its stop reason."""

    format: Format = "anthropic"

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
                self._blocks[_index(value, "index")] = dict(block)
            case "content_block_delta":
                self._extend(_index(value, "index"), as_object(value.get("delta"), "delta", "$.delta"))
            case "message_delta":
                self._around.update(as_object(value.get("delta"), "delta", "$.delta"))
                usage = self._around.get("usage")
                added = {key: one for key, one in _object(value, "usage").items() if one is not None}
                self._around["usage"] = {**(usage if isinstance(usage, dict) else {}), **added}
            case "error":
                self.failure = _told(value.get("error"))
            case str():
                pass
            case kind:
                raise InvalidMessage("$.type", f"an event of type {shown(kind)}: its type is a text")

    def _extend(self, index: int, delta: Json) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise InvalidMessage("$.index", f"a delta of block {index}, which has not begun")
        if delta.get("type") == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + text_of(delta, "partial_json", "$.delta")
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
        return "".join(_shown_text(block, "text") for block in self._blocks.values() if block.get("type") == "text")

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


class GeminiAssembly:
    """Chunks of Gemini, each a response with the next parts. It has come whole with its finish reason."""

    format: Format = "gemini"
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
            for part in _listed(_object(candidate, "content"), "parts"):
                self._add(part)
            said = {key: one for key, one in candidate.items() if key != "content" and one is not None}
            self._candidate.update(said)

    def _add(self, part: Json) -> None:
        """Texts go on, those of thoughts with those of thoughts; a signature may come with the last of them."""
        last = self._parts[-1] if self._parts else {}
        is_text = isinstance(last.get("text"), str) and isinstance(part.get("text"), str)
        is_sealed = any(gemini.under(last, key) is not None for key in ("thoughtSignature",))
        if is_text and not is_sealed and last.get("thought") == part.get("thought"):
            self._parts[-1] = {**last, **part, "text": text_of(last, "text") + text_of(part, "text")}
        else:
            self._parts.append(part)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(_shown_text(part, "text") for part in self._parts if part.get("thought") is not True)

    def whole(self) -> Json | None:
        """The response, once it is known why it ended."""
        if not gemini.under(self._candidate, "finishReason"):
            return None
        content = {"role": "model", "parts": self._parts}
        return {**self._around, "candidates": [{**self._candidate, "content": content}]}

    def so_far(self) -> tuple[list[Json], Json]:
        """The parts so far."""
        return [{"role": "model", "parts": self._parts}], {**self._around, "candidates": [self._candidate]}


class ResponsesAssembly:
    """Events of a Responses stream. Its last event has the whole response."""

    format: Format = "openai.responses"

    def __init__(self) -> None:
        self.failure = ""
        self._around: Json = {}
        self._items: dict[int, Json] = {}
        self._whole: Json | None = None

    def feed(self, value: Json) -> None:
        """Take the next event."""
        kind = value.get("type")
        if not isinstance(kind, str):
            raise InvalidMessage("$.type", f"an event of type {shown(kind)}: its type is a text")
        if kind == "error":
            self.failure = _told(value)
        elif isinstance(value.get("response"), dict):
            self._response(kind, _object(value, "response"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._items[_index(value, "output_index")] = as_object(value.get("item"), "item", "$.item")
        elif (extend := _RESPONSE_DELTAS.get(kind)) is not None:
            index = _index(value, "output_index")
            if index not in self._items:
                raise InvalidMessage("$.output_index", f"a delta of item {index}, which has not begun")
            extend(self._items[index], value)

    def _response(self, kind: str, response: Json) -> None:
        self._around = {key: one for key, one in response.items() if key != "output"}
        if kind in ("response.completed", "response.incomplete"):
            output = response.get("output")  # some servers leave it empty in the last event
            self._whole = response if output else {**response, "output": self._listed()}
        elif kind == "response.failed":
            self.failure = _told(response.get("error"))

    @property
    def text(self) -> str:
        """The text so far."""
        contents = (_listed(item, "content") for item in self._items.values() if item.get("type") == "message")
        return "".join(_shown_text(part, "text") for content in contents for part in content)

    def whole(self) -> Json | None:
        """The response, once it is completed, or incomplete at a limit."""
        return self._whole

    def so_far(self) -> tuple[list[Json], Json]:
        """The items so far."""
        return self._listed(), self._around

    def _listed(self) -> list[Json]:
        return [self._items[index] for index in sorted(self._items)]


def _add_text(item: Json, value: Json, list_key: str, index_key: str, part: Json) -> None:
    parts = _listed(item, list_key)
    index = _index(value, index_key)
    while len(parts) <= index:
        parts.append(dict(part))
    key = "refusal" if part["type"] == "refusal" else "text"
    parts[index][key] = text_of(parts[index], key) + text_of(value, "delta")
    item[list_key] = parts


def _add_argument(item: Json, value: Json, key: str) -> None:
    item[key] = text_of(item, key) + text_of(value, "delta")


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


def assembly_of(format: Format) -> Assembly:
    """An empty response of a format."""
    match format:
        case "openai.chat":
            return ChatAssembly()
        case "anthropic":
            return AnthropicAssembly()
        case "gemini":
            return GeminiAssembly()
    return ResponsesAssembly()


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


def _shown_text(value: Json, key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _numbered(message: Json) -> Json:
    """The message without the numbers that its calls have in a stream only."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return {"role": "assistant", **message}
    bare = [{key: one for key, one in call.items() if key != "index"} for call in calls if isinstance(call, dict)]
    return {"role": "assistant", **message, "tool_calls": bare}


def _index(value: Json, key: str) -> int:
    found = value.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise InvalidMessage(f"$.{key}", f"{key} is a number from 0 on, not {shown(found)}")
    return found


def _object(value: Json, key: str) -> Json:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _listed(item: Json, key: str) -> list[Json]:
    found = item.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _parsed(written: str) -> object:
    try:
        return json.loads(written)
    except ValueError:
        return written


def _told(error: object) -> str:
    """What a provider says of an error."""
    if isinstance(error, dict):
        return text_of(error, "message") or text_of(error, "code") or shown(error)
    return shown(error)
