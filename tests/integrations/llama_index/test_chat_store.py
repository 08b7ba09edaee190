"""A chat store of LlamaIndex: messages as they were, their events, changes, agents, races and deaths."""

import asyncio
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store import SimpleChatStore

from memory_engine import sync
from memory_engine.integrations.llama_index import MemoryEngineChatStore
from tests.integrations.examples import printed

CALL = ToolCallBlock(tool_call_id="c1", tool_name="weather", tool_kwargs={"city": "Rome"})
ANSWERED = [
    ChatMessage(role=MessageRole.SYSTEM, content="Be kind."),
    ChatMessage(role=MessageRole.USER, blocks=[TextBlock(text='How is "Rome", åß\n?'), ImageBlock(image=b"\x89PNG")]),
    ChatMessage(
        role=MessageRole.ASSISTANT,
        blocks=[
            ThinkingBlock(content="I look it up.", additional_information={"signature": "gAAAA"}),
            TextBlock(text="One moment."),
            CALL,
        ],
        additional_kwargs={"n": [None, 1.5, {"x": "y"}]},
    ),
    ChatMessage(role=MessageRole.TOOL, content="sunny", additional_kwargs={"tool_call_id": "c1"}),
    ChatMessage(role=MessageRole.ASSISTANT, content="Sunny in Rome."),
]
ODD = [
    ChatMessage(role=MessageRole.TOOL, content="of no call", additional_kwargs={"tool_call_id": "c9"}),
    ChatMessage(role=MessageRole.USER, blocks=[]),
    ChatMessage(role=MessageRole.ASSISTANT, blocks=[ToolCallBlock(tool_name="weather", tool_kwargs="not JSON")]),
    ChatMessage(role=MessageRole.CHATBOT, content=""),
]


def exactly(messages: list[ChatMessage]) -> list[str]:
    """Messages as the framework writes them."""
    return [message.model_dump_json() for message in messages]


def test_every_message_comes_back_as_it_was(tmp_path: Path) -> None:
    """After a restart too, however odd; and what they say are a thread's events."""
    messages = [*ANSWERED, *ODD]
    with sync.open(str(tmp_path / "agent.db")) as engine:
        store = MemoryEngineChatStore(engine, user_id="ann")
        assert ([], []) == (store.get_messages("chat"), store.get_keys())
        for message in messages:
            store.add_message("chat", message)
    with sync.open(str(tmp_path / "agent.db")) as engine:
        store = MemoryEngineChatStore(engine, user_id="ann")
        assert exactly(messages) == exactly(store.get_messages("chat"))
        assert messages == store.get_messages("chat")
        thread = engine.thread("chat")
        assert "ann" == thread.info().user_id
        roles = [message["role"] for message in thread.context().messages]
        assert ["system", "user", "assistant", "tool", "assistant"] == roles[:5]
        assert "Sunny in Rome." in [hit.text for hit in engine.search("is it sunny in Rome?", user_id="ann")]
        said = "".join(str(event.event) for event in thread.events())
        assert (1, 1) == (said.count("Sunny in Rome."), said.count("I look it up."))
        assert thread.replay.verify().ok


def test_it_does_what_the_frameworks_own_store_does() -> None:
    """Of random changes; and contexts show what is there."""
    rng = random.Random(1)
    with sync.open(":memory:") as engine:
        ours, theirs = MemoryEngineChatStore(engine), SimpleChatStore()
        for step in range(60):
            key, kind = rng.choice("ab"), rng.choice(["add", "add", "set", "one", "last", "all"])
            there = theirs.get_messages(key)
            at = rng.randrange(len(there) + 2)
            new = ChatMessage(role=rng.choice([MessageRole.USER, MessageRole.ASSISTANT]), content=f"said {step}")
            for store in (ours, theirs):
                if kind == "add":
                    store.add_message(key, new)
                elif kind == "set":
                    store.set_messages(key, [*there[:at], new, *there[at + 1 :]])
            if there and kind == "one":
                assert theirs.delete_message(key, at) == ours.delete_message(key, at)
            elif there and kind == "last":
                assert theirs.delete_last_message(key) == ours.delete_last_message(key)
            elif there and kind == "all":
                assert theirs.delete_messages(key) == ours.delete_messages(key)
            for one in "ab":
                assert theirs.get_messages(one) == ours.get_messages(one), (step, kind)
            assert sorted(one for one in theirs.get_keys() if theirs.get_messages(one)) == sorted(ours.get_keys())
        for key in ours.get_keys():
            shown = [message["content"] for message in engine.thread(key).context().messages]
            assert [message.content for message in ours.get_messages(key)] == shown
            assert engine.thread(key).replay.verify().ok
        assert ours.delete_last_message("nothing") is None
        assert ours.delete_messages("nothing") is None
        assert "nothing" not in ours.get_keys()


def test_erasing_reaches_the_store() -> None:
    """A text that is erased is in neither; an entry that is erased is not in the store."""
    with sync.open(":memory:") as engine:
        store = MemoryEngineChatStore(engine)
        for n in range(3):
            store.add_message("chat", ChatMessage(role=MessageRole.USER, content=f"Secret {n}."))
        thread = engine.thread("chat")
        events = list(thread.events())
        thread.forget(event_ids=[events[0].id])
        assert 3 == len(store.get_messages("chat"))
        thread.admin.erase([events[2].id])
        assert ["Secret 0.", "", "Secret 2."] == [message.content for message in store.get_messages("chat")]
        thread.admin.erase([events[3].id])
        assert ["Secret 0.", "Secret 2."] == [message.content for message in store.get_messages("chat")]
        assert thread.replay.verify().ok


def test_nothing_is_lost_where_many_add_at_once(tmp_path: Path) -> None:
    """Threads, in two engines on one file, and coroutines; those that pop at once get a message each."""
    path = str(tmp_path / "agent.db")
    with sync.open(path) as one, sync.open(path) as two, ThreadPoolExecutor(4) as pool:
        stores = [MemoryEngineChatStore(engine) for engine in (one, two)]
        said = [ChatMessage(role=MessageRole.USER, content=f"{n}") for n in range(20)]
        list(pool.map(lambda n: stores[n % 2].add_message("chat", said[n]), range(16)))

        async def more() -> None:
            await asyncio.gather(*(stores[n % 2].async_add_message("chat", said[n]) for n in range(16, 20)))

        asyncio.run(more())
        assert sorted(range(20)) == sorted(int(message.content or "") for message in stores[0].get_messages("chat"))
        popped = list(pool.map(lambda n: stores[n % 2].delete_last_message("chat"), range(6)))
        assert 6 == len({message.content for message in popped if message})
        assert 14 == len(stores[1].get_messages("chat"))


# agents


def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


def answering(given: list[list[ChatMessage]]) -> MockFunctionCallingLLM:
    """The place of a model that calls a tool, then answers."""

    def answer(messages: list[ChatMessage], *_: Any, **__: Any) -> ChatMessage:
        given.append(list(messages))
        if messages[-1].role == MessageRole.TOOL:
            return ChatMessage(role=MessageRole.ASSISTANT, content="It is sunny.")
        call = ToolCallBlock(tool_call_id=f"c{len(given)}", tool_name="weather", tool_kwargs={"city": "Rome"})
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=[call])

    return MockFunctionCallingLLM(response_generator=answer, is_chat_model=True)


def run(engine: sync.Engine, given: list[list[ChatMessage]], text: str) -> str:
    """An agent's turn on a memory."""
    memory = ChatMemoryBuffer.from_defaults(chat_store=MemoryEngineChatStore(engine), chat_store_key="chat")

    async def turn() -> str:
        agent = FunctionAgent(tools=[weather], llm=answering(given), streaming=False)
        return str(await agent.run(text, memory=memory))

    return asyncio.run(turn())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pydantic's, of the peer's own code
def test_an_agent_goes_on_after_a_kill(tmp_path: Path) -> None:
    """It calls a tool and dies after its turn; the next process knows it."""
    path = str(tmp_path / "agent.db")
    killed = subprocess.run([sys.executable, "-c", DYING, path], check=False, capture_output=True)
    assert -9 == killed.returncode, killed.stderr
    given: list[list[ChatMessage]] = []
    with sync.open(path) as engine:
        assert "It is sunny." == run(engine, given, "And now?")
        shown = [message["content"] for message in engine.thread("chat").context().messages]
        assert ["How is Rome?", "It is sunny."] == [one for one in shown if one in ("How is Rome?", "It is sunny.")][:2]
        assert "How is Rome?" in [message.content for message in given[0]]
        assert engine.thread("chat").replay.verify().ok


DYING = """
import os, signal, sys
from memory_engine import sync
from tests.integrations.llama_index.test_chat_store import run

with sync.open(sys.argv[1]) as engine:
    run(engine, [], "How is Rome?")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_example_runs(tmp_path: Path) -> None:
    """Twice: the second run goes on where the first one ended."""
    first, second = printed("llama_index", tmp_path), printed("llama_index", tmp_path)
    assert "has 4 messages" in first
    assert "has 8 messages" in second
