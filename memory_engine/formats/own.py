"""A provider's own content that goes back to it.

A response that was recorded goes back to its provider equal as JSON, in the order of its blocks, as long as each of
its chunks is shown whole: `own_blocks`. Otherwise the `native` of chunks is laid over what their fields make in its
form. It goes to the format that it came from and to no other. Cache marks are not given back: a form sets its own.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import msgspec
from attrs import frozen

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.formats.native import INSTEAD, WHOLE, Json, filled, from_native, is_whole, message_of
from memory_engine.formats.parts import ModelFields

_OWN = frozenset({"cache_control", "prompt_cache_breakpoint"})
_NOT_ADDED = _OWN | {INSTEAD}
_WITHIN = frozenset({"content", "output", "tool_calls", "function"})
"""Keys under which refused fields are looked for, too."""
_PAIRED = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
"""Types of blocks that the form places itself: one that is a whole entry of a message is not given back."""


def native_thinking(chunk: Chunk, form: str, ours: Json) -> list[Json]:
    """Thinking as the provider gave it; empty where `native` says nothing of it. `ours` is what the fields make."""
    message = from_native(chunk.native, form).get("message")
    if not isinstance(message, list):
        return []
    places = sum(1 for entry in message if not is_whole(entry))
    made = filled([ours][:places], message)
    return [item for item in made if isinstance(item, dict)] if isinstance(made, list) else []


def with_native_blocks(ours: Sequence[Json], chunk: Chunk | None, form: str) -> list[Json]:
    """Blocks or items with the keys that the provider added to them, and those that it alone knows."""
    message = from_native(chunk.native, form).get("message") if chunk is not None and chunk.native else None
    return _laid_over(ours, message) if isinstance(message, list) else list(ours)


def native_result(ours: Json, blocks: Sequence[Json], chunk: Chunk | None, form: str) -> Json:
    """A result with the keys that the provider added to it, and its content with the blocks that it alone knows.

    `blocks` are those of its content; none, where it is to stay a text.
    """
    message = from_native(chunk.native, form).get("message") if chunk is not None and chunk.native else None
    entry = message[0] if isinstance(message, list) and len(message) == 1 else None
    if not isinstance(entry, dict) or is_whole(entry):
        return ours
    made = ours | {key: entry[key] for key in entry if key not in ours and key not in _NOT_ADDED}
    content = entry.get("content")
    if not blocks or not isinstance(content, list):
        return made
    known = [] if all(map(is_whole, content)) else blocks  # a note is in the place of empty fields
    shown = _laid_over(known, content)
    return made | {"content": shown} if shown and shown != blocks else made


def _laid_over(ours: Sequence[Json], message: Sequence[object]) -> list[Json]:
    """Blocks with what `native` says of each, if it has an entry for each."""
    if sum(1 for entry in message if not is_whole(entry)) != len(ours):
        return list(ours)
    rest = iter(ours)
    blocks: list[Json] = []
    for entry in message:
        whole, made = is_whole(entry), {} if is_whole(entry) else next(rest)
        given = entry.get(WHOLE if whole else INSTEAD) if isinstance(entry, dict) else None
        if isinstance(given, dict) and _stands_for(given, made):
            blocks.append({key: value for key, value in given.items() if key not in _OWN})
        elif not whole and isinstance(entry, dict):
            blocks.append(made | {key: entry[key] for key in entry if key not in made and key not in _NOT_ADDED})
        elif not whole:
            blocks.append(made)
    return _without_halves(blocks)


def _stands_for(given: Json, made: Json) -> bool:
    """Whether a provider's own block can replace ours: an item that calls or answers only under our id."""
    kind = given.get("type")
    return isinstance(kind, str) and kind not in _PAIRED and given.get("call_id") == made.get("call_id")


def native_message(ours: Json, chunk: Chunk | None, form: str) -> Json:
    """A message with the keys that the provider added to it."""
    message = from_native(chunk.native, form).get("message") if chunk is not None and chunk.native else None
    if not isinstance(message, dict):
        return ours
    more = {key: value for key, value in message.items() if key not in _OWN and _only_adds(ours.get(key), value)}
    return cast("Json", filled(ours, more))


def _only_adds(ours: object, more: object) -> bool:
    """Whether what is laid over a value only adds to it."""
    if ours is None:
        return True
    if isinstance(ours, list) and isinstance(more, list):
        return len(ours) == len(more) and all(map(_only_adds, ours, more))
    return (
        isinstance(ours, dict)
        and isinstance(more, dict)
        and all(key not in ours or _only_adds(ours[key], value) for key, value in more.items())
    )


def _without_halves(blocks: Sequence[Json]) -> list[Json]:
    """The blocks without calls of the provider's own tools that lack their result, and without results of none."""
    asked = {block["id"] for block in blocks if str(block["type"]).endswith("_tool_use") and "id" in block}
    answered = {block["tool_use_id"] for block in blocks if "tool_use_id" in block}
    return [
        block
        for block in blocks
        if block.get("tool_use_id", block.get("id") if str(block["type"]).endswith("_tool_use") else None)
        in (asked & answered) | {None}
    ]


class NotSent(msgspec.Struct, frozen=True):
    """Something of a provider's that a request leaves out: the chunk that holds it, the type of the block, and why."""

    chunk_id: str
    type: str
    why: str


@frozen(kw_only=True)
class RequestInput:
    """Each provider's request: its tokens, and the providers' content that it does not hold."""

    tokens: int
    left_out: tuple[NotSent, ...] = ()


class OwnForm:
    """How responses of a provider are made again: by `made` of their fields, without the `refused` fields.

    `refused` are fields that the provider refuses in a request, or that its SDK adds; `tool.field` is a field within
    another.
    """

    def __init__(self, format: str, made: Callable[[ModelFields], object], refused: Iterable[str]) -> None:
        self.format = format
        self.made = made
        self.refused = frozenset(refused)
        self.nested = _WITHIN | {name.split(".")[0] for name in self.refused if "." in name}
        """Keys whose values may hold refused fields."""
        self.marks = [f'"{name.split(".")[0]}"' for name in self.refused]
        """The JSON of a block with refused fields."""


# responses as they came


def own_blocks(chunks: Iterable[Chunk], own: OwnForm) -> list[Json]:
    """Return the blocks (items) of a response, in its order, without the fields that its provider refuses."""
    blocks: list[Json] = []
    for chunk in chunks:
        listed = message_of(chunk.native, own.format, cast("list[object]", own.made(fields_of(chunk))))
        found = [block for block in listed if isinstance(block, dict)] if isinstance(listed, list) else []
        blocks += accepted_blocks([typed(block, own.format) for block in found], chunk, own)
    return blocks


def around_of(chunk: Chunk, form: str) -> Json:
    """Return the response object that came around a response, of which `chunk` is the last; empty if unknown."""
    around = from_native(chunk.native, form).get("response")
    return around if isinstance(around, dict) else {}


def accepted_blocks(blocks: list[Json], chunk: Chunk, own: OwnForm) -> list[Json]:
    """Return the blocks of a chunk without refused fields: the same ones where its `native` names no such field."""
    is_suspect = any(name in chunk.native for name in own.marks)
    return [without_refused(block, own) for block in blocks] if is_suspect else blocks


def without_refused(block: Json, own: OwnForm) -> Json:
    """Return a block without the fields that its provider refuses as input."""
    return {
        key: _inner(key, value, own) if key in own.nested else value
        for key, value in block.items()
        if key not in own.refused
    }


def _inner(key: str, value: object, own: OwnForm) -> object:
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if f"{key}.{name}" not in own.refused}
        return without_refused(kept, own) if key in _WITHIN else kept
    if isinstance(value, list) and key in _WITHIN:
        return [without_refused(one, own) if isinstance(one, dict) else one for one in value]
    return value


def typed(block: Json, form: str) -> Json:
    """Return a block with its type, which a message of Responses may leave out; Gemini's parts have none."""
    return block if "type" in block or form == "gemini" else {"type": "message", **block}


def fields_of(chunk: Chunk) -> ModelFields:
    """Return the fields of what a model said, of which its own form is made."""
    is_thinking = chunk.type == ChunkType.THINKING
    signature = chunk.status if is_thinking else ""
    return ModelFields(
        content=chunk.content, calls=chunk.calls, name=chunk.label, signature=signature, is_thinking=is_thinking
    )
