"""Histories of Agent Framework: messages as they were, their events, contexts, repeats, races and deaths."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FileHistoryProvider,
    FunctionInvocationLayer,
    Message,
)

import memory_engine
from memory_engine.errors import InvalidArgument
from memory_engine.integrations.agent_framework import MemoryEngineHistoryProvider
from tests.integrations.examples import printed

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

ANSWERED = [
    Message("system", ["Be kind."]),
    Message("user", ['How is "Rome", åß\n?', Content.from_data(b"\x89PNG", media_type="image/png")], message_id="m1"),
    Message(
        "assistant",
        [
            Content.from_text_reasoning(text="I look it up.", protected_data="gAAAA" * 9),
            Content.from_text("One moment."),
            Content.from_function_call("c1", "weather", arguments='{"city": "Rome"}'),
            Content.from_function_call("c2", "weather", arguments={"city": "Oslo"}),
        ],
        author_name="guide",
        additional_properties={"n": [None, 1.5, {"x": "y"}]},
    ),
    Message("tool", [Content.from_function_result("c1", result="sunny")]),
    Message("tool", [Content.from_function_result("c2", result="rain")]),
    Message("assistant", ["Sunny in Rome."]),
]
ODD = [
    Message("tool", [Content.from_function_result("c9", result="of no call")]),
    Message("user", []),
    Message("assistant", [Content.from_function_call("c1", "weather", arguments="not JSON")]),
    Message("user", [Content.from_hosted_file("file-1"), Content.from_error(message="broken")]),
]


def exactly(messages: list[Message]) -> list[str]:
    """Messages as the framework writes them."""
    return [message.to_json() for message in messages]


async def test_every_message_comes_back_as_it_was(tmp_path: Path) -> None:
    """After a restart too, however odd; and what they say are a thread's events."""
    messages = [*ANSWERED, *ODD]
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        provider = MemoryEngineHistoryProvider(engine, user_id="ann")
        assert [] == await provider.get_messages("chat")
        await provider.save_messages("chat", [])
        assert not await engine.threads()
        await provider.save_messages("chat", messages[:4])
        await provider.save_messages("chat", messages[4:])
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        again = MemoryEngineHistoryProvider(engine, user_id="ann")
        assert exactly(messages) == exactly(await again.get_messages("chat"))
        thread = engine.thread("chat")
        assert "ann" == (await thread.info()).user_id
        roles = [message["role"] for message in (await thread.context()).messages]
        assert ["system", "user", "assistant", "tool", "tool", "assistant"] == roles[:6]
        assert "Sunny in Rome." in [hit.text for hit in await engine.search("is it sunny in Rome?", user_id="ann")]
        said = "".join([str(event.event) async for event in thread.events()])
        assert (1, 1) == (said.count("Sunny in Rome."), said.count("I look it up."))
        assert (await thread.replay.verify()).ok


async def test_repeats_are_what_they_are_in_files(tmp_path: Path) -> None:
    """A transcript that comes again, an overlap, a message said twice: the framework's own provider keeps the same."""
    hi, answer, named = (
        Message("user", ["Hi"]),
        Message("assistant", ["Hello"]),
        Message("user", ["Hi"], message_id="1"),
    )
    runs = [
        [[hi], [hi]],
        [[hi, answer], [hi, answer, hi]],
        [[hi, answer], [answer, hi], [hi, answer]],
        [[named], [named], [named, answer]],
        [ANSWERED[:4], ANSWERED[2:], ANSWERED],
    ]
    async with memory_engine.open(":memory:") as engine:
        ours, theirs = MemoryEngineHistoryProvider(engine), FileHistoryProvider(tmp_path)
        for n, run in enumerate(runs):
            for messages in run:
                await ours.save_messages(f"{n}", messages)
                await theirs.save_messages(f"{n}", messages)
            assert exactly(await theirs.get_messages(f"{n}")) == exactly(await ours.get_messages(f"{n}")), n


async def test_nothing_is_lost_where_many_save_at_once(tmp_path: Path) -> None:
    """Two engines on one file; every save stands together."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as two:
        providers = [MemoryEngineHistoryProvider(engine) for engine in (one, two)]
        pairs = [[Message("user", [f"{n}"]), Message("assistant", [f"re {n}"])] for n in range(16)]
        await asyncio.gather(*(providers[n % 2].save_messages("chat", pair) for n, pair in enumerate(pairs)))
        texts = [message.text for message in await providers[0].get_messages("chat")]
        assert sorted(f"{n}re {n}" for n in range(16)) == sorted(
            a + b for a, b in zip(texts[::2], texts[1::2], strict=True)
        )


async def test_forgetting_and_erasing() -> None:
    """What is forgotten stays in the session, what is erased with its entry does not."""
    async with memory_engine.open(":memory:") as engine:
        provider = MemoryEngineHistoryProvider(engine)
        await provider.save_messages(None, [Message("user", [f"Secret {n}."]) for n in range(3)])
        thread = engine.thread("default")
        events = [event async for event in thread.events()]
        await thread.forget(event_ids=[events[0].id])
        assert 3 == len(await provider.get_messages(None))
        assert "Secret 0" not in str((await thread.context()).messages)
        await thread.admin.erase([events[2].id])
        assert ["Secret 0.", "", "Secret 2."] == [message.text for message in await provider.get_messages(None)]
        await thread.admin.erase([events[3].id])
        assert ["Secret 0.", "Secret 2."] == [message.text for message in await provider.get_messages(None)]
        assert (await thread.replay.verify()).ok
        with pytest.raises(InvalidArgument, match="history"):
            MemoryEngineHistoryProvider(engine, history="some")  # type: ignore[arg-type]


class Client(FunctionInvocationLayer, BaseChatClient):
    """The place of a model: calls two tools at once, then answers."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[list[Message]] = []

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> ChatResponse:
        self.given.append(list(messages))
        n = len(self.given)
        if messages[-1].role == "tool":
            return ChatResponse(messages=[Message("assistant", ["Sunny everywhere."])])
        asked = [(f"{city}{n}", f'{{"city": "{city}"}}') for city in ("Rome", "Oslo")]
        calls = [Content.from_function_call(name, "weather", arguments=arguments) for name, arguments in asked]
        return ChatResponse(messages=[Message("assistant", calls)])


def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city} " + "word " * 20


def check_pairs(messages: list[Message]) -> None:
    """Each call is answered after it, and each result has its call."""
    calls = [one.call_id for message in messages for one in message.contents if one.type == "function_call"]
    results = [one.call_id for message in messages for one in message.contents if one.type == "function_result"]
    assert sorted(calls) == sorted(results)


async def test_a_run_with_a_context_as_history() -> None:
    """Compacted, within a budget: whole pairs; each message is kept once."""
    async with memory_engine.open(":memory:") as engine:
        client = Client()
        provider = MemoryEngineHistoryProvider(engine, history="context", max_tokens=500)
        agent = Agent(client, tools=[weather], context_providers=[provider], instructions="Be brief.")
        session = agent.create_session(session_id="chat")
        for turn in range(6):
            result = await agent.run(f"Question {turn}: " + "word " * 20, session=session)
            assert "Sunny everywhere." == result.text
            if turn == 3:
                await engine.thread("chat").compact()
        for given in client.given:
            check_pairs(given)
        everything = await MemoryEngineHistoryProvider(engine).get_messages("chat")
        check_pairs(everything)
        assert 6 == sum(message.role == "user" for message in everything)
        assert len(client.given[-1]) < len(everything)
        assert "Summary" in str([message.text for message in client.given[-1]])


def test_a_session_goes_on_after_a_kill(tmp_path: Path) -> None:
    """A run calls a tool and dies after it; the next process knows the turn."""
    killed = subprocess.run([sys.executable, "-c", DYING, str(tmp_path / "agent.db")], check=False, capture_output=True)
    assert -9 == killed.returncode, killed.stderr

    async def go_on() -> None:
        async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
            client = Client()
            agent = Agent(client, tools=[weather], context_providers=[MemoryEngineHistoryProvider(engine)])
            await agent.run("And now?", session=agent.create_session(session_id="chat"))
            assert ["How is Rome?", "Sunny everywhere."] == [one.text for one in client.given[0] if one.text][:2]
            assert (await engine.thread("chat").replay.verify()).ok

    asyncio.run(go_on())


DYING = """
import asyncio, os, signal, sys
import memory_engine
from agent_framework import Agent
from memory_engine.integrations.agent_framework import MemoryEngineHistoryProvider
from tests.integrations.agent_framework.test_history import Client, weather

async def main():
    async with memory_engine.open(sys.argv[1]) as engine:
        agent = Agent(Client(), tools=[weather], context_providers=[MemoryEngineHistoryProvider(engine)])
        await agent.run("How is Rome?", session=agent.create_session(session_id="chat"))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_the_example_runs(tmp_path: Path) -> None:
    """Twice: the second run goes on where the first one ended."""
    first, second = printed("agent_framework", tmp_path), printed("agent_framework", tmp_path)
    assert "read 3 messages" in first
    assert "read 7 messages" in second
