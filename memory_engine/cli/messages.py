"""A context's messages, for people."""

from memory_engine.cli.terminal import Terminal
from memory_engine.context.context import Context
from memory_engine.context.rendering import Message, message_tokens
from memory_engine.core.excerpts import counted, escaped, number, one_line
from memory_engine.core.tokens import TokenCounter
from memory_engine.replay.diff import message_text

_ROLE_STYLES = {"system": "yellow", "user": "green", "assistant": "cyan", "tool": "blue"}
_FIRST, _LAST = 4, 6
"""How many messages of a long list are shown in brief."""


def put_messages(context: Context, counter: TokenCounter, terminal: Terminal) -> None:
    """Print each message whole, under its role and tokens."""
    for message in context.messages:
        terminal.put(_message_header(message, counter, terminal) + "\n" + escaped(message_text(message)) + "\n")


def put_messages_briefly(
    context: Context, counter: TokenCounter, terminal: Terminal, *, width: int, margin: str
) -> None:
    """Print a line for each message; of a long list, for the first and the last ones."""
    messages = context.messages
    left_out = len(messages) - _FIRST - _LAST
    for at, message in enumerate(messages):
        if left_out > 1 and _FIRST <= at < _FIRST + left_out:
            if at == _FIRST:
                terminal.put(f"{margin}{terminal.styled(f'… {left_out} more', 'dim')}")
            continue
        said = one_line(message_text(message), width)
        terminal.put(f"{margin}{_message_header(message, counter, terminal)}  {said}".rstrip())


def _message_header(message: Message, counter: TokenCounter, terminal: Terminal) -> str:
    role = str(message["role"])
    tokens = number(message_tokens(message, counter))
    style = _ROLE_STYLES.get(role, "bold")
    return f"{terminal.styled(f'{role:<9}', style)} {terminal.styled(f'{tokens:>6}', 'dim')}"


def measure(context: Context) -> str:
    """How large a context is, and whether that is estimated."""
    spent = context.spent
    estimated = f"estimated, corrected by {counted(spent.usages, 'report')}" if spent.usages else "estimated"
    sure = f"by {context.tokenizer}" if context.tokens_exact else estimated
    chunks = f"{len(context.included)} of {len(context.included) + len(context.excluded)} chunks"
    messages = counted(len(context.messages), "message")
    return f"{messages}, {counted(context.tokens, 'token')} ({sure}), {chunks}"
