"""What the tests of this folder say to a thread, and how they look at what became of it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import memory_engine
from memory_engine import (
    CompactionPolicy,
    Compactor,
    Context,
    Engine,
    EngineConfig,
    Event,
    ExternalInject,
    LlmTextResponse,
    LlmToolCall,
    RecordedEvent,
    Thread,
    ToolCall,
    ToolResult,
    UserMessage,
)

LONG = " and so on" * 40
"""Enough text that a summary is shorter."""


SMALL = CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0)
"""Compacts at four chunks and keeps none of them."""
NEVER = CompactionPolicy(enabled=False, keep_recent=0)
"""Compacts only when it is asked to."""


def opened(
    compactor: Compactor, policy: CompactionPolicy = SMALL, path: str = ":memory:"
) -> AbstractAsyncContextManager[Engine]:
    """An engine that compacts with this compactor by this policy."""
    return memory_engine.open(path, compactor=compactor, config=EngineConfig(compaction=policy))


def turns(count: int, *, start: int = 1) -> list[Event]:
    """`count` messages, a person's and the agent's in turn, the last an answer, each with a first word of its own."""
    kinds = (LlmTextResponse, UserMessage)
    return [kinds[(count - n) % 2](content=f"word{start + n - 1}{LONG}") for n in range(1, count + 1)]


def call(call_id: str, result: str = "") -> list[Event]:
    """A tool call and its result."""
    called = LlmToolCall(calls=(ToolCall(id=call_id, name="look", arguments='{"at": "' + "x" * 200 + '"}'),))
    return [called, ToolResult(call_id=call_id, content=result or f"found {call_id}{LONG}")]


def note(text: str, retention: str) -> ExternalInject:
    """An injected text with a retention of its own."""
    return ExternalInject(content=text + LONG, retention=retention)  # type: ignore[arg-type]


async def say(thread: Thread, events: Sequence[Event]) -> list[str]:
    """Dispatch one by one, each waiting for a compaction under way; the ids of the chunks they made."""
    made = []
    for event in events:
        made += [chunk.id for chunk in (await thread.dispatch(event)).chunks]
        await thread.compaction.settle()
    return made


async def log(thread: Thread) -> list[RecordedEvent]:
    """The whole log."""
    return [recorded async for recorded in thread.events()]


async def types(thread: Thread, prefix: str = "compaction") -> list[str]:
    """The types of the log's events that begin with `prefix`, in order."""
    return [recorded.type for recorded in await log(thread) if recorded.type.startswith(prefix)]


async def of_type(thread: Thread, event_type: str) -> list[Event]:
    """The typed events of a type, in order."""
    return [recorded.event for recorded in await log(thread) if recorded.type == event_type]  # type: ignore[misc]


async def texts(thread: Thread) -> list[str]:
    """The first words of the chunks in the state, in order."""
    return [chunk.text.partition(" ")[0] for chunk in (await thread.state()).chunks()]


def flaws(context: Context) -> list[str]:
    """Why a provider would refuse these messages as chat completions; empty if it would not."""
    found: list[str] = []
    waiting: list[str] = []
    for n, message in enumerate(context.messages):
        role = message["role"]
        if role == "tool":
            call_id = str(message["tool_call_id"])
            if call_id in waiting:
                waiting.remove(call_id)
            else:
                found.append(f"message {n} answers {call_id}, which nobody asked")
            continue
        if waiting:
            found.append(f"message {n} comes before the answers to {waiting}")
            waiting = []
        if role not in {"system", "user", "assistant"}:
            found.append(f"message {n} has the role {role}")
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            waiting = [str(made["id"]) for made in calls]
            if len(set(waiting)) < len(waiting):
                found.append(f"message {n} makes a call twice")
        elif not message.get("content"):
            found.append(f"message {n} is empty")
    return [*found, *(f"no answer to {call_id}" for call_id in waiting)]
