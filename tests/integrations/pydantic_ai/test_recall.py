"""What a history gives its model of the user's other conversations."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import memory_engine
from memory_engine import Engine
from memory_engine.integrations.pydantic_ai import MemoryEngineConversationStore, MemoryEngineHistory
from tests.integrations.recalls import DEPOT, MARK, QUESTION, RecallContract, Turn


async def talk(engine: Engine, turn: Turn, answered: str = "Noted.") -> list[list[str]]:
    """A run of an agent, saved."""
    seen: list[list[str]] = []

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        seen.append([said(part) for message in messages for part in message.parts])
        calls = turn.calls >= len(seen)
        return ModelResponse(parts=[ToolCallPart("depot", {}, f"c{len(seen)}") if calls else TextPart(answered)])

    store = MemoryEngineConversationStore(engine, user_id=turn.user, tenant_id=turn.tenant, agent_id=turn.agent)
    options: dict[str, Any] = {"max_tokens": 8_000} | turn.options
    agent = Agent(FunctionModel(answer), capabilities=[MemoryEngineHistory(store, **options)])

    @agent.tool_plain
    async def depot() -> str:
        """What the depot holds."""
        for one in turn.meanwhile:
            await talk(engine, one)
        return DEPOT

    conversation = await store.load(turn.thread) or Conversation(conversation_id=turn.thread)
    await store.save(await agent.run(turn.text, conversation=conversation))
    return seen


def said(part: Any) -> str:
    """The text of a part, or the tool that it calls."""
    return str(getattr(part, "content", "") or part.tool_name)


async def test_a_model_is_given_what_its_user_said_elsewhere() -> None:
    """And nobody else's words."""
    await RecallContract(talk=talk).check()


async def test_what_does_not_fit_is_recalled() -> None:
    """Of the same conversation; and without room for both, the run's own messages come first."""
    answer = "The gate of the timber yard opened with 4711-Birch in May."  # which no brief holds
    async with memory_engine.open(":memory:") as engine:
        await talk(engine, Turn(text="And in May?", thread="t"), answer)
        for text in ("Good. " + "word " * 150, "Fine. " + "word " * 150):
            await talk(engine, Turn(text=text, thread="t"))
        options = {"recall": True, "recall_tokens": 100, "max_tokens": 300}
        [given] = await talk(engine, Turn(text=QUESTION, thread="t", options=options))
        assert [True] == [answer in text for text in given if MARK in text]
        assert answer not in given
        [given] = await talk(engine, Turn(text=QUESTION + " word" * 200, thread="t", options=options))
        assert QUESTION in given[-1]
