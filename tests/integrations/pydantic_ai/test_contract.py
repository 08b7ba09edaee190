"""The contract of adapters, with Pydantic AI."""

import base64
import json
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults

import memory_engine
from memory_engine import Engine
from memory_engine.integrations.pydantic_ai import MemoryEngineConversationStore
from tests.integrations.contract import ASPECTS, NEVER, PIXEL, RESULTS, Contract, Driver, Step, depot_of


def made(step: Step, *, asks: bool = False) -> tuple[Agent[Any, Any], list[list[str]]]:
    """An agent, and what its model is given."""
    seen: list[list[str]] = []

    def calls(messages: list[ModelMessage]) -> bool:
        """Whether the model calls its tool: it was not answered in this turn."""
        seen.append([json.dumps(one) for one in ModelMessagesTypeAdapter.dump_python(messages, mode="json")])
        return step.calls and not any(part.part_kind == "tool-return" for part in messages[-1].parts)

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        asked = [ToolCallPart("depot", {"place": one}, f"{step.session}-{one}") for one in RESULTS]
        return ModelResponse(parts=asked if calls(messages) else [TextPart(step.answer)])

    async def streamed(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
        if calls(messages):
            for n, one in enumerate(RESULTS):
                yield {n: DeltaToolCall("depot", json.dumps({"place": one}), tool_call_id=f"{step.session}-{one}")}
        else:
            yield step.answer[:5]
            yield step.answer[5:]

    agent: Agent[Any, Any] = Agent(
        FunctionModel(answer, stream_function=streamed), output_type=[str, DeferredToolRequests]
    )

    @agent.tool_plain(requires_approval=asks)
    async def depot(place: str) -> str:
        """What a depot holds."""
        return depot_of(place)

    return agent, seen


def store_of(engine: Engine, user: str = "ann") -> MemoryEngineConversationStore:
    """A user's conversations."""
    return MemoryEngineConversationStore(engine, user_id=user)


async def listen(_context: Any, events: AsyncIterable[Any]) -> None:
    """Take what streams in."""
    async for _ in events:
        pass


async def turn(path: Path, step: Step) -> list[str]:
    """A run of an agent, saved; of an earlier turn, on a branch."""
    said: Any = [BinaryContent(base64.b64decode(PIXEL), media_type="image/png"), step.text]
    async with memory_engine.open(str(path), config=NEVER) as engine:
        store, (agent, seen) = store_of(engine, step.user), made(step)
        conversation = await store.load(step.session) or Conversation(conversation_id=step.session)
        if step.after is not None:
            conversation = await store.branch(step.session, at=2 * step.after, expected_revision=conversation.revision)
        asked = said if step.image else step.text
        handler = listen if step.streams else None
        await store.save(await agent.run(asked, conversation=conversation, event_stream_handler=handler))
        return seen[-1]


async def remove(path: Path, session: str) -> None:
    """Delete a conversation."""
    async with memory_engine.open(str(path)) as engine:
        await store_of(engine).delete(session)


async def interrupt(path: Path, step: Step) -> list[str]:
    """A run until its calls wait; their ids."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        agent, _ = made(step, asks=True)
        result = await agent.run(step.text, conversation=Conversation(conversation_id=step.session))
        await store_of(engine).save(result)
        return [call.tool_call_id for call in result.output.approvals]


async def resume(path: Path, step: Step, token: list[str]) -> list[str]:
    """Its calls are allowed, in a process that loads the conversation."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        store, (agent, seen) = store_of(engine), made(step, asks=True)
        results = DeferredToolResults(approvals=dict.fromkeys(token, True))
        conversation = await store.load(step.session)
        await store.save(await agent.run(conversation=conversation, deferred_tool_results=results))
        return seen[-1]


DRIVER = Driver(
    turn=turn,
    remove=remove,
    interrupt=interrupt,
    resume=resume,
    lacks={"rewind": "a branch of the framework is taken back by a branch from before it: see `branch`"},
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
