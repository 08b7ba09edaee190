"""What a chat store and its buffer give a model of the user's other keys."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms.mock import MockFunctionCallingLLM

from memory_engine import Engine, sync
from memory_engine.integrations.llama_index import MemoryEngineChatBuffer, MemoryEngineChatStore
from tests.integrations.recalls import DEPOT, FACT, MARK, QUESTION, RecallContract, Turn


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pydantic's, of the peer's own code
async def test_a_model_is_given_what_its_user_said_elsewhere(tmp_path: Path) -> None:
    """And nobody else's words."""
    places: list[str] = []

    def place() -> str:
        places.append(str(tmp_path / f"{len(places)}.db"))
        return places[-1]

    async def talk(_engine: Engine, turn: Turn) -> list[list[str]]:
        """A run of an agent with a buffer, on an engine of its own."""
        with sync.open(places[-1]) as own:
            return await run(own, turn)

    async def run(engine: sync.Engine, turn: Turn) -> list[list[str]]:
        seen: list[list[str]] = []

        async def depot() -> str:
            """What the depot holds."""
            for one in turn.meanwhile:
                await run(engine, one)
            return DEPOT

        def answer(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
            seen.append([said(message) for message in messages])
            if len(seen) > turn.calls:
                return ChatMessage(role=MessageRole.ASSISTANT, content="Noted.")
            call = ToolCallBlock(tool_call_id=f"c{len(seen)}", tool_name="depot", tool_kwargs={})
            return ChatMessage(role=MessageRole.ASSISTANT, blocks=[call])

        store = MemoryEngineChatStore(
            engine, user_id=turn.user, tenant_id=turn.tenant, agent_id=turn.agent, **turn.options
        )
        memory = MemoryEngineChatBuffer.from_defaults(chat_store=store, chat_store_key=turn.thread, token_limit=8_000)
        agent = FunctionAgent(tools=[depot], llm=MockFunctionCallingLLM(response_generator=answer), streaming=False)
        await agent.run(turn.text, memory=memory)
        return seen

    await RecallContract(talk=talk, place=place).check()


def said(message: ChatMessage) -> str:
    """The text of a message, or its calls."""
    return message.content or str(message.blocks)


def test_a_short_buffer_recalls_what_it_leaves_out() -> None:
    """Once a request; the store keeps the talk alone."""
    with sync.open(":memory:") as engine:
        store = MemoryEngineChatStore(engine, recall=True)
        memory = MemoryEngineChatBuffer.from_defaults(chat_store=store, chat_store_key="chat", token_limit=40)
        model = MockFunctionCallingLLM(response_generator=lambda *_, **__: ChatMessage("Noted.", role="assistant"))
        chat = SimpleChatEngine.from_defaults(llm=model, memory=memory)
        for text in (FACT, *(f"How many parcels are in depot {n}?" for n in range(6))):
            chat.chat(text)
        memory.put(ChatMessage(role=MessageRole.USER, content=QUESTION))
        recalled, question = [one for one in memory.get() if MARK in str(one.content) or one.content == QUESTION]
        assert (QUESTION, True) == (question.content, FACT in str(recalled.content))
        assert memory.get() == memory.get()
        assert not [one for one in memory.get_all() if MARK in str(one.content)]
        assert store.get_messages("chat") == memory.get_all()
        plain = MemoryEngineChatStore(engine)
        assert memory.get_all()[-1:] == plain.with_recall("chat", memory.get_all()[-1:])
