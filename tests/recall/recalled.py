"""What the tests of contexts with recall say to a thread, and how they look at what came back."""

from collections.abc import Sequence

import memory_engine
from memory_engine import (
    Context,
    ContextPolicy,
    EngineConfig,
    Event,
    UserMessage,
)
from memory_engine.context import Message
from tests.conversations import NEVER, SMALL, turns

MARK = "[From memory, not said now] "
CODE = "The warehouse code is 9921-KX and it hangs beside the green door."
ASKED = "What is the warehouse code?"
KEPT = EngineConfig(compaction=NEVER)
COMPACTS = EngineConfig(compaction=SMALL)


def user(text: str, name: str = "") -> UserMessage:
    """A message."""
    return UserMessage(content=text, name=name)


def talk(count: int, first: str = CODE) -> list[Event]:
    """A fact, then `count` messages about other things, a person's and the agent's in turn."""
    return [user(first), *turns(count)]


def content(message: Message) -> str:
    """A message's text."""
    return str(message["content"])


def block_at(messages: Sequence[Message]) -> int:
    """Where the recalled block stands; -1 for none."""
    return next((n for n, message in enumerate(messages) if content(message).startswith(MARK)), -1)


def lines(context: Context) -> list[str]:
    """The lines of the recalled block, without its heading."""
    return context.recalled_text.splitlines()[1:]


async def asked(
    events: Sequence[Event], query: str = ASKED, max_tokens: int | None = 600, config: EngineConfig = KEPT
) -> Context:
    """The context after these events, with what a question brings back."""
    async with memory_engine.open(":memory:", config=config) as engine:
        thread = await engine.create_thread("t")
        for event in events:
            await thread.dispatch(event)
            await thread.compaction.settle()
        return await thread.context(max_tokens, query=query, policy=ContextPolicy(blocks=()))
