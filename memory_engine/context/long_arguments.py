"""Long texts in the arguments of calls: a file that a call writes takes as much room as one that a call reads."""

from collections.abc import Callable, Mapping

import msgspec

from memory_engine.context.rendering import Message, RenderedChunk

LONG_CHARS = 200
"""Characters above which a value is long; shorter ones (paths, names, queries) always stay whole."""
SEALED = ('"thoughtSignature"', '"thought_signature"')
"""Keys of providers that sign a call and refuse one that differs."""


def may_be_cut(piece: RenderedChunk) -> bool:
    """Return whether a piece makes calls with long texts in their arguments that may be cut."""
    return not any(key in piece.chunk.native for key in SEALED) and any(map(long_texts, piece.messages))


def long_texts(message: Message) -> list[str]:
    """Return the long texts in the arguments of a message's calls, in order; arguments that are no JSON have none."""
    found: list[str] = []

    def noted(text: str) -> str:
        found.append(text)
        return text

    with_long_texts(message, noted)
    return found


def with_long_texts(message: Message, cut: Callable[[str], str]) -> Message:
    """Return the message with each long text in the arguments of its calls replaced by what `cut` returns for it."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [_call_with(call, cut) for call in calls]} if isinstance(calls, list) else message


def _call_with(call: Mapping[str, Mapping[str, str]], cut: Callable[[str], str]) -> Mapping[str, object]:
    function = call["function"]
    if len(function["arguments"]) <= LONG_CHARS:
        return call
    try:
        shown = _value_with(msgspec.json.decode(function["arguments"]), cut)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": msgspec.json.encode(shown).decode()}}


def _value_with(value: object, cut: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return cut(value) if len(value) > LONG_CHARS else value
    if isinstance(value, dict):
        return {key: _value_with(one, cut) for key, one in value.items()}
    return [_value_with(one, cut) for one in value] if isinstance(value, list) else value
