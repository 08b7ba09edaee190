"""Contexts as requests to OpenAI's Responses.

Rules beyond those of all providers: the first instructions go into `instructions`; a call is an item,
and so is its output, which may hold images and files; a reasoning item comes right before its result, unchanged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, cast

from attrs import field, frozen

from memory_engine.core.chunks import INTERRUPTED, Chunk, ChunkType
from memory_engine.core.events.base import FilePart, ImagePart, Part, TextPart
from memory_engine.formats.media import file_url, id_at, image_url, is_heard, is_web
from memory_engine.formats.openai_responses.messages import FORMAT, OWN
from memory_engine.formats.own import RequestInput, around_of, native_thinking, own_blocks, with_native_blocks
from memory_engine.formats.turns import (
    GO_ON,
    OPENAI_IMAGE_LIMITS,
    FormCall,
    FormTurn,
    RenderOptions,
    Result,
    Speech,
    Thought,
    media_note,
    opening,
    parts_text,
    runs,
    with_images_within,
)
from memory_engine.llm.sdk_types import OpenAIInputItem

InputItem = dict[str, object]
NO_SCREEN = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""The picture of a single pixel: replaces a missing screenshot, which the provider requires."""
_BOUND = frozenset({"id", "status"})
"""Keys that bind an item to the reasoning before it: without that, the provider refuses them."""
_FREE = frozenset({"message", "function_call", "custom_tool_call"})
"""Types of items that may be without the reasoning before them."""


@frozen(kw_only=True)
class ResponsesInput(RequestInput):
    """The arguments of `client.responses.create`, and their tokens.

    `instructions` is `None` without any. Reasoning items hold what the provider encrypted: ask for it with
    `include=["reasoning.encrypted_content"]` if it stores nothing (`store=False`).
    """

    input: list[OpenAIInputItem] = field(repr=False)
    instructions: str | None = field(repr=False)


def render(turns: Sequence[FormTurn], options: RenderOptions) -> ResponsesInput:
    """The items of these turns, and the instructions before them."""
    first, others = opening(with_images_within(turns, OPENAI_IMAGE_LIMITS))
    items = [item for turn in others for item in _turn_items(turn)]
    if not items:
        items.append({"type": "message", "role": "user", "content": GO_ON})
    return ResponsesInput(
        input=cast("list[OpenAIInputItem]", items),
        instructions="\n\n".join(parts_text(turn.parts) for turn in first) or None,
        tokens=options.tokens + options.thinking_tokens,
    )


def blocks_of(request: ResponsesInput) -> Iterator[object]:
    """The items of a request."""
    return iter(request.input)


def _turn_items(turn: FormTurn) -> Iterator[InputItem]:
    if turn.role == "system":
        yield {"type": "message", "role": "developer", "content": parts_text(turn.parts)}
    elif turn.role == "user":
        yield {"type": "message", "role": "user", "content": _input_content(turn.parts)}
    else:
        kinds: dict[object, object] = {}
        for item in _own_items(turn) if turn.own and turn.whole else _response_items(turn):
            kinds.setdefault(item.get("call_id"), item["type"])
            yield item
        yield from (_output(result, str(kinds[result.call_id])) for result in turn.results)


def _own_items(turn: FormTurn) -> list[InputItem]:
    """The items of a response as they came; of one that was cut off, not the reasoning that led to nothing."""
    items = own_blocks(turn.own, OWN)
    while items and items[-1]["type"] == "reasoning" and _is_cut_off(turn.own[-1]):
        items.pop()
    return items


def _is_cut_off(last: Chunk) -> bool:
    """Whether a response stopped before its end, or may have."""
    around = around_of(last, FORMAT)
    return last.status == INTERRUPTED or not around or around.get("status") == "incomplete"


def _response_items(turn: FormTurn) -> Iterator[InputItem]:
    """The items of what the model said, in its order."""
    results = {result.call_id: result for result in turn.results}
    reasoned = False
    for chunk, blocks in runs(turn):
        if isinstance(blocks[0], Thought) and blocks[0].chunk.type == ChunkType.THINKING:
            for item in native_thinking(blocks[0].chunk, FORMAT, _reasoning(blocks[0].chunk.text)):
                if item.get("type") == "reasoning" and "id" in item:
                    reasoned = True
                    yield item
            continue
        ours = [_speech_or_call_item(block) for block in blocks if not isinstance(block, Thought)]
        calls = {item["call_id"]: item for item in ours if "call_id" in item}
        for item in with_native_blocks(ours, chunk, FORMAT):
            call = calls.get(item.get("call_id"))
            if call is not None and not _is_answered_alike(item, results[str(call["call_id"])], reasoned=reasoned):
                yield call
            elif reasoned:
                yield _identified(item)
            elif item["type"] in _FREE:
                yield {key: value for key, value in item.items() if key not in _BOUND}


def _is_answered_alike(call: InputItem, result: Result, *, reasoned: bool) -> bool:
    """Whether a call can go back as the provider's own kind of call: its output must be of that kind, too."""
    kind = str(call["type"])
    return kind in _FREE or (reasoned and _output(result, kind)["type"] == f"{kind}_output")


def _output(result: Result, kind: str) -> InputItem:
    """The output of a call of some kind; the provider's own where that is one, else ours."""
    ours: InputItem = {
        "type": "custom_tool_call_output" if kind == "custom_tool_call" else "function_call_output",
        "call_id": result.call_id,
        "output": _input_content(result.parts),
    }
    own = with_native_blocks([ours], result.chunk, FORMAT)
    if len(own) == 1 and own[0]["type"] == f"{kind}_output":
        return {key: value for key, value in own[0].items() if key not in _BOUND or kind == "local_shell_call"}
    return _OUTPUTS[kind](result.call_id, parts_text(result.parts)) if kind in _OUTPUTS else ours


def _screenshot(call_id: str, _text: str) -> InputItem:
    shot = {"type": "computer_screenshot", "image_url": NO_SCREEN}
    return {"type": "computer_call_output", "call_id": call_id, "output": shot}


def _shell_output(call_id: str, text: str) -> InputItem:
    ended = {"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    return {"type": "shell_call_output", "call_id": call_id, "output": [ended]}


_OUTPUTS: Mapping[str, Callable[[str, str], InputItem]] = {
    "computer_call": _screenshot,
    "shell_call": _shell_output,
    "local_shell_call": lambda call_id, text: {"type": "local_shell_call_output", "id": call_id, "output": text},
    "apply_patch_call": lambda call_id, text: {
        "type": "apply_patch_call_output",
        "call_id": call_id,
        "status": "completed",
        "output": text,
    },
}
"""The outputs of the provider's own kinds of calls, for results that are texts: it takes no other for them."""


def _reasoning(text: str) -> InputItem:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}] if text else []}


def _speech_or_call_item(block: Speech | FormCall) -> InputItem:
    if isinstance(block, Speech):
        return {"type": "message", "role": "assistant", "content": parts_text(block.parts).rstrip()}
    return {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": block.arguments}


def _identified(item: InputItem) -> InputItem:
    """A message with an id has its text in a part; every other item is unchanged."""
    if item["type"] != "message" or "id" not in item:
        return item
    content = [{"type": "output_text", "text": item["content"], "annotations": []}]
    return {"status": "completed"} | item | {"content": content}


def _input_content(parts: Sequence[Part]) -> object:
    """A text, or a list where there is more than text."""
    if all(isinstance(part, TextPart) for part in parts):
        return parts_text(parts)
    return [_input_content_part(part) for part in parts]


def _input_content_part(part: Part) -> InputItem:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            detail = _detail(part.detail)
            if id_ := id_at(part, "openai"):
                return {"type": "input_image", "file_id": id_, "detail": detail}
            if url := image_url(part.url):
                return {"type": "input_image", "image_url": url, "detail": detail}
        case FilePart() if not part.text and not is_heard(part):
            if id_ := id_at(part, "openai"):
                return {"type": "input_file", "file_id": id_}
            if is_web(part.url):
                return {"type": "input_file", "file_url": part.url}
            if url := file_url(part):
                return {"type": "input_file", "filename": part.name or "file", "file_data": url}
    return {"type": "input_text", "text": media_note(part)}


def _detail(detail: str) -> Literal["low", "high", "auto", "original"]:
    match detail:
        case "low" | "high" | "original":
            return detail
    return "auto"
