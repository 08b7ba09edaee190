"""Events, chunks and a context's messages in a few words, as people read them."""

from collections.abc import Sequence

import msgspec

from memory_engine.cli.terminal import Terminal, counted, escaped, number, one_line
from memory_engine.context.builder import Context
from memory_engine.context.rendering import Message, message_tokens
from memory_engine.core.chunks import Chunk, content_text
from memory_engine.core.events.base import Event, ToolCall, UnknownEvent
from memory_engine.core.events.compaction import CompactionCompleted, CompactionStarted, CompactionUndone
from memory_engine.core.tokens import TokenCounter


def of_event(event: Event | UnknownEvent) -> str:
    """What an event says."""
    match event:
        case UnknownEvent():
            return f"(version {event.version} is not known here)"
        case CompactionStarted():
            return f"{event.trigger}: {counted(len(event.chunk_ids), 'chunk')} to {event.compactor}"
        case CompactionCompleted():
            covered = sum(len(replacement.covers) for replacement in event.replacements)
            tokens = f"{number(event.tokens_before)} → {number(event.tokens_after)} tokens"
            return f"{event.trigger}: {counted(covered, 'chunk')}, {tokens}, by {event.compactor}"
        case CompactionUndone():
            why = f": {event.reason}" if event.reason else ""
            back = f"{counted(len(event.restored), 'chunk')} back"
            return f"the compaction of event {event.completed}, {back}{why}"
    body = event.bodies()[0] if event.bodies() else None
    said = " ".join(filter(None, (content_text(body.content), of_calls(body.calls)))) if body else ""
    if said:
        return said
    fields = msgspec.to_builtins(event)
    return ", ".join(f"{name} {value}" for name, value in fields.items())


def of_calls(calls: Sequence[ToolCall]) -> str:
    """Calls as a programmer writes them."""
    return " ".join(f"{call.name}({call.arguments})" for call in calls)


def of_chunk(chunk: Chunk) -> str:
    """What a chunk says."""
    said = " ".join(filter(None, (chunk.text, of_calls(chunk.calls))))
    if chunk.call_id:
        said = f"← {chunk.label or chunk.call_id}: {said}"
    return f"{chunk.status}: {said}" if chunk.status in ("failed", "completed", "in_progress") else said


def parents(chunk: Chunk) -> str:
    """Which chunks it came from: all of few, first and last of many."""
    ids = chunk.parent_ids
    return " ".join(ids) if len(ids) <= 2 else f"{ids[0]}…{ids[-1]}"


_ROLE_STYLES = {"system": "yellow", "user": "green", "assistant": "cyan", "tool": "blue"}
_FIRST, _LAST = 4, 6
"""Of a long list of messages in brief, so many are shown."""


def put_messages(context: Context, counter: TokenCounter, terminal: Terminal) -> None:
    """Print each message whole, under its role and tokens."""
    for message in context.messages:
        terminal.put(_head(message, counter, terminal) + "\n" + escaped(text_of(message)) + "\n")


def put_messages_briefly(
    context: Context, counter: TokenCounter, terminal: Terminal, *, width: int, margin: str
) -> None:
    """Print a line for each message, of a long list for the first and the last ones."""
    messages = context.messages
    left_out = len(messages) - _FIRST - _LAST
    for at, message in enumerate(messages):
        if left_out > 1 and _FIRST <= at < _FIRST + left_out:
            if at == _FIRST:
                terminal.put(f"{margin}{terminal.styled(f'… {left_out} more', 'dim')}")
            continue
        said = one_line(text_of(message), width)
        terminal.put(f"{margin}{_head(message, counter, terminal)}  {said}".rstrip())


def _head(message: Message, counter: TokenCounter, terminal: Terminal) -> str:
    role = str(message["role"])
    tokens = number(message_tokens(message, counter))
    style = _ROLE_STYLES.get(role, "bold")
    return f"{terminal.styled(f'{role:<9}', style)} {terminal.styled(f'{tokens:>6}', 'dim')}"


def measure(context: Context) -> str:
    """How large a context is, and how surely that is known."""
    sure = f"by {context.tokenizer}" if context.tokens_exact else "estimated"
    chunks = f"{len(context.included)} of {len(context.included) + len(context.excluded)} chunks"
    messages = counted(len(context.messages), "message")
    return f"{messages}, {counted(context.tokens, 'token')} ({sure}), {chunks}"


def text_of(message: Message) -> str:
    """Everything a message says, with its calls."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else []
    if isinstance(content, list):
        parts = [part["text"] if part["type"] == "text" else "[image]" for part in content]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        parts.append(f"→ {call['function']['name']}({call['function']['arguments']})")
    if message.get("tool_call_id"):
        parts.insert(0, f"[{message['tool_call_id']}]")
    return "\n".join(part for part in parts if part)
