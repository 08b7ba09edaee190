"""Gemini's contents.

What its rules ask beyond those of all providers: instructions stand apart, later ones as a note of the user; user and
model take turns, the user first and last; all responses to a content's calls stand together in the content after it;
signatures of thoughts stand on the parts that they came with.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from attrs import field, frozen

from memory_engine.context.forms.media import base64_of, file_type, is_web
from memory_engine.context.forms.own import NotSent, own_blocks
from memory_engine.context.forms.turns import (
    EMPTY,
    GO_ON,
    OPENAI_IMAGE_LIMITS,
    FormCall,
    FormTurn,
    Result,
    Speech,
    media_note,
    opening,
    said,
    with_images_within,
)
from memory_engine.core.events.base import FilePart, Part, TextPart
from memory_engine.formats.gemini import FORMAT, under
from memory_engine.formats.native import message_of

ContentPart = dict[str, object]


@frozen(kw_only=True)
class GeminiInput:
    """What `client.models.generate_content` takes, and its tokens.

    `system_instruction` goes into its `config`; it is `None` where there are no instructions.
    """

    contents: list[ContentPart] = field(repr=False)
    system_instruction: str | None = field(repr=False)
    tokens: int
    left_out: tuple[NotSent, ...] = ()
    """What providers sent and this request does not hold."""


def gemini_input(turns: Sequence[FormTurn], tokens: int) -> GeminiInput:
    """The contents of these turns, and the instructions before them."""
    first, others = opening(with_images_within(turns, OPENAI_IMAGE_LIMITS))
    contents: list[tuple[str, list[ContentPart]]] = []
    for turn in others:
        if turn.role != "agent":
            _say(contents, "user", _others(turn))
            continue
        parts = _response(turn)
        if parts and not contents:
            _say(contents, "user", [{"text": GO_ON}])
        _say(contents, "model", parts)
        _say(contents, "user", _results(turn, parts))
    if not contents or contents[-1][0] == "model":
        _say(contents, "user", [{"text": GO_ON}])
    return GeminiInput(
        contents=[{"role": role, "parts": parts} for role, parts in contents],
        system_instruction="\n\n".join(said(turn.parts) for turn in first) or None,
        tokens=tokens,
    )


def _say(contents: list[tuple[str, list[ContentPart]]], role: str, parts: Iterable[ContentPart]) -> None:
    """Put parts into the last content, if it is of this role, else into one of their own."""
    made = list(parts)
    if made and contents and contents[-1][0] == role:
        contents[-1][1].extend(made)
    elif made:
        contents.append((role, made))


def _others(turn: FormTurn) -> list[ContentPart]:
    if turn.role == "system":
        return [{"text": f"[Instructions] {said(turn.parts)}"}]
    ours = [_content(part) for part in turn.parts]
    return _as_given(turn.chunk.native, ours) if turn.chunk is not None else ours


def _as_given(native: str, ours: list[ContentPart]) -> list[ContentPart]:
    made = message_of(native, FORMAT, ours)
    return [one for one in made if isinstance(one, dict)] if isinstance(made, list) else ours


def _response(turn: FormTurn) -> list[ContentPart]:
    """The parts of what the model said, in its order."""
    if turn.own:
        return own_blocks(turn.own, FORMAT)
    return [part for block in turn.blocks if isinstance(block, Speech | FormCall) for part in _block(block)]


def _block(block: Speech | FormCall) -> Iterator[ContentPart]:
    if isinstance(block, FormCall):
        yield {"functionCall": {"name": block.name, "args": json.loads(block.arguments)}}
    else:
        yield {"text": said(block.parts)}


def _results(turn: FormTurn, parts: Sequence[ContentPart]) -> Iterator[ContentPart]:
    """The responses to a content's calls; one whose call has an id repeats it."""
    found = [one for part in parts if isinstance(one := under(part, "functionCall"), dict)]
    for call, result in zip(found, turn.results, strict=False):
        own = _as_given(result.chunk.native, [{}]) if result.chunk is not None and result.chunk.native else []
        if len(own) == 1 and under(own[0], "functionResponse") is not None:
            yield own[0]
            continue
        named = {"id": call["id"], "name": call["name"]} if "id" in call else {"name": call["name"]}
        yield {"functionResponse": {**named, "response": _answer(result)}}


def _answer(result: Result) -> ContentPart:
    return {"error" if result.failed else "result": said(result.parts)}


def _content(part: Part) -> ContentPart:
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
