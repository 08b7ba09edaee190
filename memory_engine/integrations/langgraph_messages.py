"""Messages of LangGraph: their texts, their names, and as chat completions' messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from memory_engine.errors import MissingExtra

try:
    from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, convert_to_openai_messages
except ImportError:
    raise MissingExtra("LangGraph's checkpoints", "langgraph") from None


def langgraph_text(message: BaseMessage) -> str:
    """The text of a message."""
    content: object = message.content
    parts = content if isinstance(content, list) else [content]
    return " ".join(str(part.get("text", "")) if isinstance(part, Mapping) else str(part) for part in parts)


def with_text(messages: Sequence[BaseMessage], text: str, at: int | None = None) -> list[BaseMessage]:
    """The messages with one of the user more, if there is a text: at a place, or in front, behind a system message."""
    if at is None:
        at = 1 if messages and isinstance(messages[0], SystemMessage) else 0
    return [*messages[:at], *([HumanMessage(text)] if text else ()), *messages[at:]]


def message_version_name(message: BaseMessage, digest: bytes) -> str:
    """The name of one version of a message, which makes the ids of its events."""
    return f"langgraph {message.id or ''} {digest.hex()}"


def openai_of(message: BaseMessage) -> Any:
    """A message as a client of chat completions sends it; parts that have no form there become text."""
    try:
        return convert_to_openai_messages(message)
    except ValueError:
        return convert_to_openai_messages(message.model_copy(update={"content": str(message.text)}))
