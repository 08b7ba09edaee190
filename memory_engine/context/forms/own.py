"""A response as its provider sent it: what the provider gets back of it, block for block, and what it does not.

A response that was recorded goes back to its provider equal as JSON, in the order of its blocks, as long as each of
its chunks is shown whole. `REFUSED` lists the fields that a provider sends and refuses as input.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from memory_engine.context.rendering import DEFAULT_RENDERERS, RenderedChunk, render
from memory_engine.context.thinking import is_recorded
from memory_engine.core.chunks import INTERRUPTED, Chunk, ChunkType
from memory_engine.formats import anthropic, gemini, openai_chat, openai_responses
from memory_engine.formats.native import filled, from_native, message_of, own_values
from memory_engine.formats.parts import ModelFields

FormName = str
JsonObject = dict[str, object]

REFUSED: Mapping[FormName, frozenset[str]] = {
    "openai.chat": frozenset({"audio.data", "audio.expires_at", "audio.transcript", "parsed", "parsed_arguments"}),
    "openai.responses": frozenset({"created_by", "parsed", "parsed_arguments"}),
    "anthropic": frozenset({"cache_control", "parsed_output"}),
    "gemini": frozenset(),
}
"""Fields of responses that the provider refuses in a request, or that its SDK adds. They are not given back."""
THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Types of blocks and items that hold reasoning."""
_MODELS = frozenset({ChunkType.THINKING, ChunkType.AGENT_RESPONSE, ChunkType.AGENT_ACTION})
_PROVIDERS = {one.FORMAT: one for one in (anthropic, openai_responses, gemini)}
_WITHIN = frozenset({"content", "output", "tool_calls", "function"})
"""Keys under which refused fields are looked for, too."""
_NESTED = {form: _WITHIN | {name.split(".")[0] for name in names if "." in name} for form, names in REFUSED.items()}
"""Keys whose values may hold refused fields."""
_NAMES = {form: [f'"{name.split(".")[0]}"' for name in names] for form, names in REFUSED.items()}
"""What the JSON holds of a block with refused fields."""


class NotSent(msgspec.Struct, frozen=True):
    """Something of a provider's that a request leaves out: the chunk that holds it, the type of the block, and why."""

    chunk_id: str
    type: str
    why: str


def own_chunks(pieces: Sequence[RenderedChunk], form: FormName) -> tuple[Chunk, ...]:
    """Return the chunks of a response that goes back as it came; none for one that cannot."""
    chunks = tuple(piece.chunk for piece in pieces)
    if not chunks or not chunks[0].response_id or not is_recorded(chunks[-1]):
        return ()
    begin, shows_form = f'{{"{form}"', form == anthropic.FORMAT
    for piece in pieces:
        chunk = piece.chunk
        is_of_form = not chunk.native or chunk.native.startswith(begin)
        is_one = chunk.response_id == chunks[0].response_id and chunk.type in _MODELS
        if not (is_of_form and is_one) or _is_otherwise(piece):
            return ()
        shows_form = shows_form or bool(chunk.native)
    return chunks if shows_form else ()


def _is_otherwise(piece: RenderedChunk) -> bool:
    """Whether a chunk is shown shortened, or by a renderer of one's own."""
    if piece.shortened:
        return True
    if piece.messages == tuple(render(piece.chunk, DEFAULT_RENDERERS)):
        return False
    return any(message.get("content") is not None or message.get("tool_calls") for message in piece.messages)


def has_own_blocks(chunk: Chunk, form: FormName) -> bool:
    """Return whether a chunk that shows nothing holds blocks of the form's provider."""
    is_kept = form != openai_chat.FORMAT or is_recorded(chunk)
    return chunk.type == ChunkType.AGENT_RESPONSE and is_kept and bool(from_native(chunk.native, form).get("message"))


def own_blocks(chunks: Iterable[Chunk], form: FormName) -> list[JsonObject]:
    """Return the blocks (items) of a response, in its order, without the fields that its provider refuses."""
    blocks: list[JsonObject] = []
    for chunk in chunks:
        listed = message_of(chunk.native, form, _PROVIDERS[form].made(_said(chunk)))
        found = [block for block in listed if isinstance(block, dict)] if isinstance(listed, list) else []
        blocks += _taken([_typed(block, form) for block in found], chunk, form)
    return blocks


def own_message(chunks: Iterable[Chunk], form: FormName = openai_chat.FORMAT) -> JsonObject | None:
    """Return the message of a response in `openai.chat`; `None` for one of nothing but reasoning."""
    said = next((chunk for chunk in chunks if chunk.type != ChunkType.THINKING), None)
    if said is None:
        return None
    kept = from_native(said.native, form)
    made = cast("JsonObject", filled(openai_chat.made(_said(said)), kept.get("message", {})))
    around = kept.get("response")
    listed = around.get("choices") if isinstance(around, dict) else None
    choice = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    lost = choice.get("message")
    return _taken([made | lost if isinstance(lost, dict) else made], said, form)[0]


def is_cut_off(chunk: Chunk, form: FormName) -> bool:
    """Return whether a response stopped in the middle, or nobody knows how it ended; `chunk` is its last."""
    around = _around(chunk, form)
    stopped = around.get("stop_reason") in anthropic.STOPPED or around.get("status") == "incomplete"
    return chunk.status == INTERRUPTED or stopped or not around


def is_paused(chunks: Sequence[Chunk]) -> bool:
    """Return whether Anthropic paused its response, and goes on with it once it gets it back."""
    return (
        bool(chunks)
        and '"pause_turn"' in chunks[-1].native
        and _around(chunks[-1], anthropic.FORMAT).get("stop_reason") == "pause_turn"
    )


def _around(chunk: Chunk, form: FormName) -> JsonObject:
    around = from_native(chunk.native, form).get("response")
    return around if isinstance(around, dict) else {}


def _taken(blocks: list[JsonObject], chunk: Chunk, form: FormName) -> list[JsonObject]:
    """The blocks of a chunk without refused fields: the same ones where its `native` names no such field."""
    is_suspect = any(name in chunk.native for name in _NAMES[form])
    return [without_refused(block, form) for block in blocks] if is_suspect else blocks


def without_refused(block: JsonObject, form: FormName) -> JsonObject:
    """Return a block without the fields that its provider refuses as input."""
    refused, nested = REFUSED[form], _NESTED[form]
    return {
        key: _inner(key, value, form) if key in nested else value for key, value in block.items() if key not in refused
    }


def _inner(key: str, value: object, form: FormName) -> object:
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if f"{key}.{name}" not in REFUSED[form]}
        return without_refused(kept, form) if key in _WITHIN else kept
    if isinstance(value, list) and key in _WITHIN:
        return [without_refused(one, form) if isinstance(one, dict) else one for one in value]
    return value


def _typed(block: JsonObject, form: FormName) -> JsonObject:
    is_typed = "type" in block or form == gemini.FORMAT
    return block if is_typed else {"type": "message", **block}


def _said(chunk: Chunk) -> ModelFields:
    is_thinking = chunk.type == ChunkType.THINKING
    signature = chunk.status if is_thinking else ""
    return ModelFields(
        content=chunk.content, calls=chunk.calls, name=chunk.label, signature=signature, is_thinking=is_thinking
    )


# what is left out


def not_sent(
    pieces: Iterable[RenderedChunk], newest: Iterable[Chunk], sent: Iterable[object], form: FormName
) -> tuple[NotSent, ...]:
    """Return what a request leaves out: providers' own blocks, and the thinking of the `newest` response."""
    chunks = (piece.chunk for piece in pieces if piece.chunk.native)
    own = [(chunk, values) for chunk in chunks if (values := list(own_values(chunk.native)))]
    thoughts = list(newest)
    if not own and not thoughts:
        return ()
    kinds = {one.get("type") for chunk in thoughts for one in _thoughts(chunk)}
    kinds |= {_typed(value, form).get("type") for _, values in own for value in values}
    blocks = (block for block in sent if isinstance(block, dict) and block.get("type") in kinds)
    there = {_key({key: block[key] for key in block if key != "cache_control"}) for block in blocks}
    found = [
        NotSent(chunk.id, str(value.get("type") or next(iter(value), "")), _why(chunk, form))
        for chunk, values in own
        for value, taken in zip(values, _taken([_typed(one, form) for one in values], chunk, form), strict=True)
        if not there or _key(taken) not in there
    ]
    unsealed = (chunk for chunk in thoughts if there.isdisjoint(map(_key, _thoughts(chunk))))
    why = "no provider can verify it here: it is not sealed for this one"
    return (*found, *(NotSent(chunk.id, str(_thoughts(chunk)[0].get("type", "thought")), why) for chunk in unsealed))


def _why(chunk: Chunk, form: FormName) -> str:
    is_own = bool(from_native(chunk.native, form))
    return "the provider refuses it here" if is_own else "only the provider that sent it can read it"


def _thoughts(chunk: Chunk) -> list[JsonObject]:
    """The blocks that may stand for a thought, one for each provider."""
    made = [one for form in _PROVIDERS for one in own_blocks([chunk], form)]
    known = [one for one in made if one.get("type") in THOUGHTS or one.get("thought") is True]
    return [*known, {"type": "thinking", "reasoning_content": chunk.text}]


def _key(value: object) -> bytes:
    """What is the same for equal values, whatever the order of their keys."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value, sort_keys=True).encode()
