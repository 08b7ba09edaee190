"""Contexts as requests to Anthropic's Messages.

Rules beyond those of all providers: instructions are at the top level, later ones are a note of the
user; user and assistant take turns, the user first and last; all results of a turn's calls begin the message after it;
a failed result holds text alone; thinking is unchanged in the running loop, first in its response.

At most three `cache_control` breakpoints: after the instructions, before the newest turn, and after it, before what
changes in place. One of the four that a request may have is left for the tools.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import msgspec
from attrs import field, frozen

from memory_engine.core.chunks import INTERRUPTED, Chunk, ChunkType
from memory_engine.core.events.base import FilePart, ImagePart, Part, TextPart
from memory_engine.formats.anthropic.messages import FORMAT, OWN, STOPPED, thinking
from memory_engine.formats.media import IMAGE_TYPES, PDF, base64_of, file_type, id_at, is_web, plain_text
from memory_engine.formats.own import (
    RequestInput,
    around_of,
    native_result,
    native_thinking,
    own_blocks,
    with_native_blocks,
)
from memory_engine.formats.turns import (
    EMPTY,
    GO_ON,
    Block,
    FormCall,
    FormTurn,
    ImageLimits,
    RenderOptions,
    Result,
    Speech,
    Thought,
    Zone,
    media_note,
    opening,
    parts_text,
    runs,
    with_images_within,
)
from memory_engine.llm.sdk_types import AnthropicMessage, AnthropicText

ContentBlock = dict[str, object]
TITLE_CHARS_MAX = 200
IMAGE_LIMITS = ImageLimits(most=100, side_px=8_000, many=20, many_side_px=2_000)
"""The limit of every model; those with a window of a million tokens take more images."""
_SEALS = {"thinking": "signature", "redacted_thinking": "data"}
"""The blocks of thinking, and the key by which Anthropic knows each again."""


@frozen(kw_only=True)
class AnthropicInput(RequestInput):
    """The arguments of `client.messages.create`, and their tokens. `system` is empty without instructions."""

    system: list[AnthropicText] = field(repr=False)
    messages: list[AnthropicMessage] = field(repr=False)


class _Spoken(msgspec.Struct):
    """A message under way: its blocks, and how long each of them remains unchanged."""

    role: str
    blocks: list[tuple[ContentBlock, Zone]]


def render(turns: Sequence[FormTurn], options: RenderOptions) -> AnthropicInput:
    """The messages of these turns, and the instructions before them."""
    first, others = opening(with_images_within(turns, IMAGE_LIMITS))
    system: list[ContentBlock] = [{"type": "text", "text": parts_text(turn.parts)} for turn in first]
    messages = _alternating(others)
    if options.cache:
        _mark(system[-1:])
        for zone in (0, 1):
            stable = [block for message in messages for block, stays in message.blocks if stays <= zone]
            _mark([block for block in stable if block["type"] not in _SEALS][-1:])
    return AnthropicInput(
        system=cast("list[AnthropicText]", system),
        messages=cast(
            "list[AnthropicMessage]",
            [{"role": message.role, "content": [block for block, _ in message.blocks]} for message in messages],
        ),
        tokens=options.tokens + options.thinking_tokens,
    )


def blocks_of(request: AnthropicInput) -> Iterator[object]:
    """The blocks of a request."""
    return (block for message in request.messages for block in message["content"])


def _alternating(turns: Iterable[FormTurn]) -> list[_Spoken]:
    messages: list[_Spoken] = []
    paused = False
    for turn in turns:
        goes_on, paused = paused, _is_paused(turn.own)
        if turn.role != "agent":
            _say(messages, "user", _others(turn), turn.zone)
            continue
        blocks = _assistant_blocks(turn)
        if not blocks:
            continue
        begins_anew = (
            blocks[0]["type"] in _SEALS and bool(messages) and messages[-1].role == "assistant" and not goes_on
        )
        if not messages or begins_anew:  # thinking must come first in a message
            _say(messages, "user", [_text_block(GO_ON)], turn.zone)
        _say(messages, "assistant", blocks, turn.zone)
        _say(messages, "user", map(_tool_result_block, turn.results), turn.zone)
    if not messages or (messages[-1].role == "assistant" and not paused):
        _say(messages, "user", [_text_block(GO_ON)], 2)
    return messages


def _say(messages: list[_Spoken], role: str, blocks: Iterable[ContentBlock], zone: Zone) -> None:
    """Put blocks into the last message, if it is of this role, else into one of their own."""
    made: list[tuple[ContentBlock, Zone]] = [(block, zone) for block in blocks]
    if made and messages and messages[-1].role == role:
        messages[-1].blocks += made
    elif made:
        messages.append(_Spoken(role, made))


def _mark(blocks: Iterable[ContentBlock]) -> None:
    for block in blocks:
        block["cache_control"] = {"type": "ephemeral"}


def _others(turn: FormTurn) -> Iterator[ContentBlock]:
    if turn.role == "system":
        yield _text_block(f"[Instructions] {parts_text(turn.parts)}")
    else:
        yield from with_native_blocks([_user_block(part) for part in turn.parts], turn.chunk, FORMAT)


def _text_block(text: str) -> ContentBlock:
    return {"type": "text", "text": text if text.strip() else EMPTY}


def _assistant_blocks(turn: FormTurn) -> list[ContentBlock]:
    """The blocks of what the model said, in its order; thinking that nothing follows is refused."""
    made: list[ContentBlock] = []
    if turn.own:
        made = [block for block in own_blocks(turn.own, OWN) if _is_taken(block)]
        while made and made[-1]["type"] in _SEALS and _is_cut_off(turn.own[-1]):
            made.pop()
        return made
    for chunk, blocks in runs(turn):
        if isinstance(blocks[0], Thought) and blocks[0].chunk.type == ChunkType.THINKING:
            made += _thought(blocks[0].chunk)
        else:
            ours = [one for block in blocks if not isinstance(block, Thought) for one in _speech_or_call(block)]
            made += with_native_blocks(ours, chunk, FORMAT)
    while made and made[-1]["type"] in _SEALS:
        made.pop()
    return made


def _is_cut_off(last: Chunk) -> bool:
    """Whether a response stopped before its end, or may have."""
    around = around_of(last, FORMAT)
    return last.status == INTERRUPTED or not around or around.get("stop_reason") in STOPPED


def _is_paused(chunks: Sequence[Chunk]) -> bool:
    """Whether Anthropic paused its response, and goes on with it once it gets it back."""
    if not chunks or '"pause_turn"' not in chunks[-1].native:
        return False
    return around_of(chunks[-1], FORMAT).get("stop_reason") == "pause_turn"


def _is_taken(block: ContentBlock) -> bool:
    """Whether Anthropic takes a block that it sent: not thinking that it did not seal, and no blank text."""
    kind = str(block["type"])
    return bool(block.get(_SEALS[kind])) if kind in _SEALS else kind != "text" or bool(str(block["text"]).strip())


def _thought(chunk: Chunk) -> list[ContentBlock]:
    """Signed or encrypted thinking; nothing for thinking that is neither."""
    ours = thinking(chunk.text, chunk.status)
    given = native_thinking(chunk, FORMAT, ours)
    native = [block for block in given if block.get(_SEALS.get(str(block.get("type")), ""))]
    if native or not (chunk.status and chunk.text):
        return native
    return [ours]


def _speech_or_call(block: Block) -> Iterator[ContentBlock]:
    match block:
        case Speech():
            yield from (_text_block(parts_text((part,))) for part in block.parts)
        case FormCall():
            yield {
                "type": "tool_use",
                "id": block.id,
                "name": block.name,
                "input": msgspec.json.decode(block.arguments),
            }


def _tool_result_block(result: Result) -> ContentBlock:
    made: ContentBlock = {"type": "tool_result", "tool_use_id": result.call_id}
    if result.failed:
        return native_result(made | {"content": parts_text(result.parts), "is_error": True}, (), result.chunk, FORMAT)
    blocks = [_user_block(part) for part in result.parts]
    is_text = all(isinstance(part, TextPart) for part in result.parts)
    content = parts_text(result.parts) if is_text else blocks
    return native_result(made | {"content": content}, blocks, result.chunk, FORMAT)


def _user_block(part: Part) -> ContentBlock:
    """A part of a user's message; a note for what Anthropic does not take."""
    match part:
        case TextPart():
            return _text_block(part.text)
        case ImagePart():
            source = _image_source(part)
            return {"type": "image", "source": source} if source is not None else _text_block(media_note(part))
    source = _document_source(part)
    if source is None:
        return _text_block(media_note(part))
    title: ContentBlock = {"title": part.name[:TITLE_CHARS_MAX]} if part.name.strip() else {}
    document: ContentBlock = {"type": "document", "source": source}
    return document | title


def _image_source(part: ImagePart) -> ContentBlock | None:
    if id_ := id_at(part, "anthropic"):
        return {"type": "file", "file_id": id_}
    held = base64_of(part.url)
    if held is not None and held.media_type in IMAGE_TYPES:
        return {"type": "base64", "media_type": held.media_type, "data": held.data}
    return {"type": "url", "url": part.url} if is_web(part.url) else None


def _document_source(part: FilePart) -> ContentBlock | None:
    """A PDF by any road, or a plain text; no other file can be read."""
    kind = file_type(part)
    if part.text.strip():
        return {"type": "text", "media_type": "text/plain", "data": part.text}
    if id_ := id_at(part, "anthropic"):
        return {"type": "file", "file_id": id_}
    if kind == PDF and is_web(part.url):
        return {"type": "url", "url": part.url}
    held = base64_of(part.url)
    if held is None:
        return None
    if kind == PDF:
        return {"type": "base64", "media_type": PDF, "data": held.data}
    text = plain_text(held) if kind.startswith("text/") else None
    return {"type": "text", "media_type": "text/plain", "data": text} if text and text.strip() else None
