"""The reference of a context: the newest messages that fit a budget. And the text for a model."""

import json
from collections.abc import Sequence
from typing import Any

from memory_engine.context.rendering import message_tokens
from memory_engine.core.tokens import EstimatedTokens

Shown = dict[str, Any]
"""A chat-completions message."""
COUNTER = EstimatedTokens()


def newest(messages: Sequence[Shown], budget: int) -> list[Shown]:
    """Return the system message and the newest of the others that fit, counted as the engine counts its contexts.

    Results at the beginning, whose call has not fitted, are left out: no provider would take them.
    """
    system = [message for message in messages[:1] if message["role"] == "system"]
    room = budget - tokens_of(system)
    begin = len(messages)
    while begin > len(system):
        room -= message_tokens(messages[begin - 1], COUNTER)
        if room < 0:
            break
        begin -= 1
    while begin < len(messages) and messages[begin]["role"] == "tool":
        begin += 1
    return [*system, *messages[begin:]]


def tokens_of(messages: Sequence[Shown]) -> int:
    """Return the tokens of messages, counted as the engine counts its contexts."""
    return sum(message_tokens(message, COUNTER) for message in messages)


def text_of(messages: Sequence[Shown]) -> str:
    """Return all that messages say, their calls included, as one text."""
    return "\n".join(part for message in messages for part in _parts(message))


def _parts(message: Shown) -> list[str]:
    content = message.get("content") or ""
    parts = [content] if isinstance(content, str) else [str(part.get("text", "")) for part in content]
    for call in message.get("tool_calls") or ():
        parts += [call["function"]["name"], *_texts(json.loads(call["function"]["arguments"]))]
    return parts


def _texts(arguments: object) -> list[str]:
    """Return the texts of a call's arguments; numbers, such as those of lines, are left out."""
    if isinstance(arguments, dict):
        return [text for value in arguments.values() for text in _texts(value)]
    if isinstance(arguments, list):
        return [text for value in arguments for text in _texts(value)]
    return [arguments] if isinstance(arguments, str) else []
