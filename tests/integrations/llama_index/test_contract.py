"""The contract of adapters, with LlamaIndex."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer

from memory_engine import sync
from memory_engine.integrations.llama_index import MemoryEngineChatStore
from tests.integrations.contract import ASPECTS, PIXEL, RESULTS, Contract, Driver, Step, depot_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pydantic's, of the peer's own code


async def depot(place: str) -> str:
    """What a depot holds."""
    return depot_of(place)


async def turn(path: Path, step: Step) -> list[str]:
    """A run of an agent; of an earlier turn, after the messages behind it were taken from the key."""
    seen: list[list[str]] = []

    def answer(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        seen.append([message.model_dump_json() for message in messages])
        if not step.calls or len(seen) > 1:
            return ChatMessage(role=MessageRole.ASSISTANT, content=step.answer)
        calls = [
            ToolCallBlock(tool_call_id=f"{step.session}-{place}", tool_name="depot", tool_kwargs={"place": place})
            for place in RESULTS
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=calls)

    with sync.open(str(path)) as engine:
        store = MemoryEngineChatStore(engine, user_id=step.user)
        if step.after is not None:
            store.set_messages(step.session, store.get_messages(step.session)[: 2 * step.after])
        memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key=step.session, token_limit=8_000)
        llm = MockFunctionCallingLLM(response_generator=answer)
        agent = FunctionAgent(tools=[depot], llm=llm, streaming=step.streams)
        blocks = [ImageBlock(image=PIXEL.encode(), image_mimetype="image/png"), TextBlock(text=step.text)]
        said = ChatMessage(role=MessageRole.USER, blocks=blocks) if step.image else step.text
        await agent.run(said, memory=memory)
        return seen[-1]


async def rewind(path: Path, session: str) -> None:
    """Delete the last question and its answer."""
    with sync.open(str(path)) as engine:
        store = MemoryEngineChatStore(engine, user_id="ann")
        for _ in range(2):
            store.delete_last_message(session)


async def remove(path: Path, session: str) -> None:
    """Delete the messages of a key."""
    with sync.open(str(path)) as engine:
        MemoryEngineChatStore(engine, user_id="ann").delete_messages(session)


DRIVER = Driver(
    turn=turn,
    rewind=rewind,
    remove=remove,
    lacks={"interrupt": "a workflow that waits is kept in its own context, which is not the memory"},
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
