"""A context's messages, as people read them."""

from memory_engine.cli.terminal import Terminal
from memory_engine.cli.text import counted, escaped, number, one_line
from memory_engine.context import Context, Message
from memory_engine.context.messages import message_tokens
from memory_engine.tokens import TokenCounter

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
