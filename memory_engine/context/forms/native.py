"""What a provider gets back of its own: the `native` of chunks, laid over what their fields make in its form.

It goes to the format that it came from and to no other. Cache marks are not given back: the form sets its own.
"""

from collections.abc import Sequence
from typing import cast

from memory_engine.core.chunks import Chunk
from memory_engine.formats.native import INSTEAD, WHOLE, filled, from_native, is_whole

FormName = str
JsonObject = dict[str, object]

_OWN = frozenset({"cache_control", "prompt_cache_breakpoint"})
_NOT_ADDED = _OWN | {INSTEAD}
_PAIRED = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
"""Types of blocks that the form places itself: one that stands whole in a message is not given back."""


def native_thinking(chunk: Chunk, form: FormName) -> list[JsonObject]:
    """Thinking as the provider gave it; empty where `native` says nothing of it in this form."""
    message = from_native(chunk.native, form).get("message")
    if not isinstance(message, list):
        return []
    places = sum(1 for entry in message if not is_whole(entry))
    made = filled([_thinking(chunk, form)][:places], message)
    return [item for item in made if isinstance(item, dict)] if isinstance(made, list) else []


def with_native_blocks(ours: Sequence[JsonObject], chunk: Chunk | None, form: FormName) -> list[JsonObject]:
    """Blocks or items with the keys that the provider added to them, and those that it alone knows."""
    message = from_native(chunk.native, form).get("message") if chunk is not None and chunk.native else None
    return _laid_over(ours, message) if isinstance(message, list) else list(ours)


def native_result(ours: JsonObject, blocks: Sequence[JsonObject], chunk: Chunk | None, form: FormName) -> JsonObject:
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
    known = [] if all(map(is_whole, content)) else blocks  # a note stands where the fields hold nothing
    shown = _laid_over(known, content)
    return made | {"content": shown} if shown and shown != blocks else made


def _laid_over(ours: Sequence[JsonObject], message: Sequence[object]) -> list[JsonObject]:
    """Blocks with what `native` says of each, if it has an entry for each."""
    if sum(1 for entry in message if not is_whole(entry)) != len(ours):
        return list(ours)
    rest = iter(ours)
    blocks: list[JsonObject] = []
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


def _stands_for(given: JsonObject, made: JsonObject) -> bool:
    """Whether a provider's own block can stand in place of ours: an item that calls or answers only under our id."""
    kind = given.get("type")
    return isinstance(kind, str) and kind not in _PAIRED and given.get("call_id") == made.get("call_id")


def native_message(ours: JsonObject, chunk: Chunk | None, form: FormName) -> JsonObject:
    """A message with the keys that the provider added to it."""
    message = from_native(chunk.native, form).get("message") if chunk is not None and chunk.native else None
    if not isinstance(message, dict):
        return ours
    more = {key: value for key, value in message.items() if key not in _OWN and _fits(ours.get(key), value)}
    return cast("JsonObject", filled(ours, more))


def _fits(ours: object, more: object) -> bool:
    """Whether what is laid over a value only adds to it."""
    if ours is None:
        return True
    if isinstance(ours, list) and isinstance(more, list):
        return len(ours) == len(more) and all(map(_fits, ours, more))
    return (
        isinstance(ours, dict)
        and isinstance(more, dict)
        and all(key not in ours or _fits(ours[key], value) for key, value in more.items())
    )


def _thinking(chunk: Chunk, form: FormName) -> JsonObject:
    """What the fields of thinking make in a form."""
    if form == "anthropic":
        return {"type": "thinking", "thinking": chunk.text, "signature": chunk.status}
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": chunk.text}] if chunk.text else []}


def _without_halves(blocks: Sequence[JsonObject]) -> list[JsonObject]:
    """The blocks without calls of the provider's own tools that lack their result, and without results of none."""
    asked = {block["id"] for block in blocks if str(block["type"]).endswith("_tool_use") and "id" in block}
    answered = {block["tool_use_id"] for block in blocks if "tool_use_id" in block}
    return [
        block
        for block in blocks
        if block.get("tool_use_id", block.get("id") if str(block["type"]).endswith("_tool_use") else None)
        in (asked & answered) | {None}
    ]
