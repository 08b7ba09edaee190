"""A model that answers from a script, and keeps what it was given."""

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent
from strands.models import Model

from memory_engine import sync
from memory_engine.integrations.strands import MemoryEngineSessionManager


class ScriptedModel(Model):
    """Gives one answer after the other: a text, or a list of content blocks."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.given: list[Any] = []

    def update_config(self, **model_config: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        """There is nothing to configure."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """It gives none."""
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """The next answer, a few letters at a time."""
        self.given.append(copy.deepcopy(messages))
        answer = self.answers.pop(0)
        blocks = [{"text": answer}] if isinstance(answer, str) else answer
        yield {"messageStart": {"role": "assistant"}}
        for block in blocks:
            async for event in _streamed(block):
                yield event
        called = any("toolUse" in block for block in blocks)
        yield {"messageStop": {"stopReason": "tool_use" if called else "end_turn"}}


async def _streamed(block: Any) -> AsyncIterator[Any]:
    call = block.get("toolUse")
    start = {"toolUse": {"name": call["name"], "toolUseId": call["toolUseId"]}} if call else {}
    yield {"contentBlockStart": {"start": start}}
    if call:
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(call["input"])}}}}
    elif "reasoningContent" in block:
        thought = block["reasoningContent"]["reasoningText"]
        yield {"contentBlockDelta": {"delta": {"reasoningContent": {"text": thought["text"]}}}}
        yield {"contentBlockDelta": {"delta": {"reasoningContent": {"signature": thought["signature"]}}}}
    else:
        text = block["text"]
        for at in range(0, len(text), 5):
            yield {"contentBlockDelta": {"delta": {"text": text[at : at + 5]}}}
    yield {"contentBlockStop": {}}


def called(name: str, call_id: str, **given: Any) -> Any:
    """A block that calls a tool."""
    return {"toolUse": {"name": name, "toolUseId": call_id, "input": given}}


def agent_of(
    engine: sync.Engine, model: Model, session_id: str = "chat", user_id: str = "ann", **options: Any
) -> Agent:
    """An agent with a session in an engine, that prints nothing."""
    manager = MemoryEngineSessionManager(session_id, engine, user_id=user_id)
    return Agent(model=model, session_manager=manager, callback_handler=None, **options)
