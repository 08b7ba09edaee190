"""A block of LlamaIndex's `Memory`: what leaves its newest messages is kept, and found again."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.memory import Memory
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from memory_engine import sync
from memory_engine.errors import ThreadDiffers
from memory_engine.integrations.llama_index import MemoryEngineChatStore, MemoryEngineMemoryBlock

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pydantic's, of the peer's own code
FACT = "The ferry to Gotland leaves from quay nine."
QUESTION = "From which quay does the ferry to Gotland leave?"
MARK = "[From memory, not said now]"


def memory_of(
    engine: sync.Engine, queue: AsyncEngine, session: str, user: str = "ann", *, recall: bool = True, key: str = ""
) -> Memory:
    """A memory that holds few messages."""
    store = MemoryEngineChatStore(engine, user_id=user, recall=recall)
    block = MemoryEngineMemoryBlock(chat_store=store, key=key)
    return Memory.from_defaults(
        session_id=session,
        token_limit=80,
        token_flush_size=40,
        memory_blocks=[block],
        insert_method="user",
        async_engine=queue,
    )


async def talk(memory: Memory, *texts: str) -> None:
    """Turns, of which only the last stays in the memory's own queue."""
    for text in texts:
        await memory.aput(ChatMessage(role=MessageRole.USER, content=text))
        await memory.aput(ChatMessage(role=MessageRole.ASSISTANT, content="Yes. " * 30))


async def given(memory: Memory, text: str) -> str:
    """What a model is given for a question."""
    await memory.aput(ChatMessage(role=MessageRole.USER, content=text))
    return "\n".join(str(message.content) for message in await memory.aget())


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """The database of the framework's own queues."""
    made = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'queue.db'}")
    yield made
    await made.dispose()


async def test_what_leaves_the_newest_messages_is_recalled(queue: AsyncEngine) -> None:
    """In the session, and in others of the user; not for another user, nor without `recall`."""
    with sync.open(":memory:") as engine:
        first = memory_of(engine, queue, "first")
        await talk(first, FACT, "It rains.", "It pours.")
        kept = MemoryEngineChatStore(engine, user_id="ann").get_messages("first")
        assert FACT == kept[0].content
        assert "session_id" not in kept[0].additional_kwargs
        assert FACT in engine.thread("first").search(QUESTION)[0].text
        for memory in (first, memory_of(engine, queue, "second"), memory_of(engine, queue, "x", key="first")):
            text = await given(memory, QUESTION)
            assert MARK in text
            assert FACT in text
        assert FACT not in await given(memory_of(engine, queue, "third", "bob"), QUESTION)
        assert FACT not in await given(memory_of(engine, queue, "fourth", recall=False), QUESTION)
        assert MARK not in str(list(engine.thread("first").events()))


async def test_a_block_keeps_calls_with_their_results() -> None:
    """As messages of the thread; a session of another user is refused."""
    call = ToolCallBlock(tool_call_id="c1", tool_name="depot", tool_kwargs={"place": "Visby"})
    messages = [
        ChatMessage(role=MessageRole.USER, content="What does the depot hold?"),
        ChatMessage(role=MessageRole.ASSISTANT, blocks=[call]),
        ChatMessage(role=MessageRole.TOOL, content="Nine pallets.", additional_kwargs={"tool_call_id": "c1"}),
        ChatMessage(role=MessageRole.ASSISTANT, blocks=[TextBlock(text="Nine.")]),
    ]
    with sync.open(":memory:") as engine:
        block: Any = MemoryEngineMemoryBlock(chat_store=MemoryEngineChatStore(engine, user_id="ann"))
        await block.aput(messages, from_short_term_memory=True, session_id="chat")
        types = [event.type for event in engine.thread("chat").events() if event.type != "session_entry_kept"]
        assert ["user_message", "llm_tool_call", "tool_result", "llm_text_response"] == types
        other: Any = MemoryEngineMemoryBlock(chat_store=MemoryEngineChatStore(engine, user_id="bob", recall=True))
        with pytest.raises(ThreadDiffers):
            await other.aput(messages[:1], session_id="chat")
        with pytest.raises(ThreadDiffers):
            await other.aget(messages[:1], session_id="chat")
