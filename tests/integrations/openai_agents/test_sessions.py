"""Sessions of the OpenAI Agents SDK: items byte for byte, their events, contexts, races, deaths and forgetting."""

import asyncio
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, SessionSettings, function_tool, set_tracing_disabled
from agents.memory import Session
from agents.testing import ScriptedModel, assistant_message, function_call

import memory_engine
from memory_engine.errors import EngineClosed, InvalidArgument
from memory_engine.integrations.openai_agents import MemoryEngineSession
from tests.integrations.examples import printed

set_tracing_disabled(True)

ANSWERED: list[Any] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": 'Hi "there", åß\n'},
    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAB" * 20},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
    {
        "type": "function_call",
        "id": "fc_2",
        "call_id": "c2",
        "name": "weather",
        "arguments": "{}",
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "rain"}]},
    {"id": "rs_2", "type": "reasoning", "summary": [{"type": "summary_text", "text": "I look it up."}]},
    {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "weather"}},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is sunny.", "annotations": []}],
    },
    {"role": "assistant", "content": "Saved reply"},
]
ODD: list[Any] = [
    {"type": "function_call_output", "call_id": "of no call", "output": "x"},
    {"role": "user", "content": "\ud800 alone"},
    {"role": "user", "content": []},
    {"x": 1.0, "y": 1, "z": True, "type": None, "n": [None, {"": ""}]},
    {},
]
"""Items that are no messages of a thread."""


def exactly(items: list[Any]) -> list[str]:
    """Items as bytes: the order of keys, and 1 beside 1.0, count too."""
    return [json.dumps(item) for item in items]


async def test_items_come_back_byte_for_byte(tmp_path: Path) -> None:
    """Of every kind, in order, in another process's engine too, and from the end one by one."""
    items = [*ANSWERED, *ODD]
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        session = MemoryEngineSession("chat", engine)
        assert isinstance(session, Session)
        assert [] == await session.get_items()
        assert await session.pop_item() is None
        await session.clear_session()
        await session.add_items([])
        assert not await engine.threads()
        await session.add_items(items[:4])
        await session.add_items(items[4:])
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        session = MemoryEngineSession("chat", engine)
        assert exactly(items) == exactly(await session.get_items())
        assert exactly(items[-3:]) == exactly(await session.get_items(3))
        assert [] == await session.get_items(0)
        while (item := await session.pop_item()) is not None:
            assert exactly([items.pop()]) == exactly([item])
            assert exactly(items) == exactly(await session.get_items())
        assert [] == items
        assert (await engine.thread("chat").replay.verify()).ok


async def test_items_are_a_threads_events() -> None:
    """What is said is known to contexts, search and views; what is popped is not, and its text is kept once."""
    async with memory_engine.open(":memory:") as engine:
        session, thread = MemoryEngineSession("chat", engine, user_id="ann"), engine.thread("chat")
        await session.add_items([*ANSWERED, {"role": "user", "content": "My cat is called Tom."}])
        assert "ann" == (await thread.info()).user_id
        hit = (await thread.search("what is my cat called?"))[0]
        assert "My cat is called Tom." == hit.text
        assert 1 == sum(["Tom" in str(event.event) async for event in thread.events()])
        await session.pop_item()
        assert [] == [one for one in await thread.search("what is my cat called?") if "Tom" in one.text]
        assert "Tom" not in str((await thread.context()).messages)
        assert exactly(ANSWERED) == exactly(await session.get_items())


async def test_forgetting_and_erasing_reach_the_session() -> None:
    """An item goes with its message, however it is written."""
    async with memory_engine.open(":memory:") as engine:
        session, thread = MemoryEngineSession("chat", engine), engine.thread("chat")
        parts = [{"type": "input_text", "text": text} for text in ("A", "Secret B")]
        await session.add_items([{"role": "user", "content": f"Secret {n}."} for n in range(3)])
        await session.add_items([{"role": "user", "content": parts}])
        events = [event async for event in thread.events()]
        await thread.forget(event_ids=[events[0].id])
        assert ["Secret 1.", "Secret 2."] == [item.get("content") for item in (await session.get_items())[:2]]
        for n in (2, 6):
            report = await thread.admin.erase([events[n].id])
            assert report.proof is not None
            assert report.proof.ok
        assert [{"role": "user", "content": "Secret 2."}] == await session.get_items()
        held = "".join([str(event.event) async for event in thread.events()])
        assert ("Secret 1" in held, "Secret B" in held) == (False, False)
        assert (await thread.replay.verify()).ok


async def test_a_context_is_a_history_whose_pairs_are_whole() -> None:
    """Compacted, within a budget; calls with their outputs, reasoning with what it led to; with a limit too."""
    async with memory_engine.open(":memory:") as engine:
        session = MemoryEngineSession("chat", engine, history="context")
        assert [] == await session.get_items()
        for n in range(12):
            names = {"c1": f"c1-{n}", "c2": f"c2-{n}"}
            turn = [{**item, "call_id": names[item["call_id"]]} if "call_id" in item else item for item in ANSWERED[1:]]
            await session.add_items([{"role": "user", "content": f"Question {n}: " + "word " * 40}, *turn])
        everything = await session.get_items()
        await engine.thread("chat").compact()
        assert len(await session.get_items()) < len(everything)
        for history in (everything, await session.get_items(), *[await session.get_items(n) for n in range(12)]):
            check_pairs(history)
        small = MemoryEngineSession("chat", engine, history="context", max_tokens=400)
        check_pairs(await small.get_items())
        assert 12 * len(ANSWERED) == len(await MemoryEngineSession("chat", engine).get_items())
        await session.add_items([{"role": "user", "content": "And now?"}])
        assert "And now?" == (await session.get_items(1))[0].get("content")
        await session.clear_session()
        assert [] == await session.get_items()


def check_pairs(items: list[Any]) -> None:
    """Each call is answered after it, each output has its call, and reasoning stands before what it led to."""
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(outputs)
    for item, following in zip(items, [*items, {}][1:], strict=True):
        if item.get("type") == "reasoning":
            assert following.get("type") in ("function_call", "web_search_call", "message")
            assert following.get("role", "assistant") == "assistant"


async def test_nothing_is_lost_where_many_add_at_once(tmp_path: Path) -> None:
    """Two engines, two sessions each, each with many tasks: every add stands together; poppers get an item each."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as other:
        sessions = [MemoryEngineSession("chat", engine) for engine in (one, other) for _ in range(2)]
        pairs = [[{"role": "user", "content": f"{n}"}, {"role": "assistant", "content": f"{n}"}] for n in range(40)]
        await asyncio.gather(*(sessions[n % 4].add_items(list(pair)) for n, pair in enumerate(pairs)))
        items = await sessions[0].get_items()
        assert 80 == len(items)
        assert sorted(map(str, pairs)) == sorted(str([*items[n : n + 2]]) for n in range(0, 80, 2))
        popped = await asyncio.gather(*(session.pop_item() for session in sessions for _ in range(5)))
        assert sorted(exactly(items[-20:])) == sorted(exactly(popped))
        assert exactly(items[:-20]) == exactly(await sessions[3].get_items())


async def test_a_cancelled_add_is_whole_or_nothing() -> None:
    """Wherever it is cancelled; and so are a pop and a clear."""
    async with memory_engine.open(":memory:") as engine:
        session, known = MemoryEngineSession("chat", engine), 0
        for steps in range(25):
            task = asyncio.ensure_future(session.add_items(list(ANSWERED)))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            count = len(await session.get_items())
            assert count in (known, known + len(ANSWERED))
            known = count
        with pytest.raises(TypeError):
            await session.add_items([*ANSWERED, {"role": "user", "content": object()}])
        assert known == len(await session.get_items())
        assert (await engine.thread("chat").replay.verify()).ok


async def test_settings_and_arguments() -> None:
    """A limit of the settings holds where none is given; what `history` cannot be is refused."""
    async with memory_engine.open(":memory:") as engine:
        session = MemoryEngineSession("chat", engine, session_settings=SessionSettings(limit=2))
        await session.add_items(list(ANSWERED))
        assert ANSWERED[-2:] == await session.get_items()
        assert ANSWERED[-1:] == await session.get_items(1)
        with pytest.raises(InvalidArgument, match="history"):
            MemoryEngineSession("chat", engine, history="some")  # type: ignore[arg-type]


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    """One that opened its engine cannot be used after `close`, however early that was."""
    for is_used in (False, True):
        session = MemoryEngineSession("chat", tmp_path / "agent.db")
        if is_used:
            asyncio.run(session.add_items([{"role": "user", "content": "Hi"}]))
        session.close()
        session.close()
        with pytest.raises(EngineClosed):
            asyncio.run(session.get_items())


def test_a_run_without_an_event_loop_goes_on_after_a_kill(tmp_path: Path) -> None:
    """`Runner.run_sync` calls a tool and dies; the next process knows the turn, and `Runner.run` goes on with it."""
    killed = subprocess.run([sys.executable, "-c", DYING, str(tmp_path / "agent.db")], check=False, capture_output=True)
    assert -9 == killed.returncode, killed.stderr
    model = ScriptedModel()
    model.enqueue([assistant_message("You asked about Rome.")])
    session = MemoryEngineSession("chat", tmp_path / "agent.db")
    with closing(asyncio.new_event_loop()) as loop:  # else `run_sync` makes one, and leaves it open
        asyncio.set_event_loop(loop)
        result = Runner.run_sync(Agent(name="a", model=model), "What did I ask?", session=session)
    session.close()
    assert "You asked about Rome." == result.final_output
    given = model.calls[-1].input
    assert [None, "function_call", "function_call_output", "message", None] == [
        item.get("type") for item in given if isinstance(item, dict)
    ]
    assert "sunny in Rome" == given[2]["output"]


DYING = """
import os, signal, sys
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from memory_engine.integrations.openai_agents import MemoryEngineSession

set_tracing_disabled(True)

@function_tool
def weather(city: str) -> str:
    return f"sunny in {city}"

model = ScriptedModel()
model.enqueue([function_call("weather", {"city": "Rome"}, call_id="c1")])
model.enqueue([assistant_message("It is sunny.")])
session = MemoryEngineSession("chat", sys.argv[1])
Runner.run_sync(Agent(name="a", model=model, tools=[weather]), "How is Rome?", session=session)
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_a_run_with_a_context_as_history(tmp_path: Path) -> None:
    """An agent's turns with parallel calls; the model is given whole pairs, and each item is kept once."""

    @function_tool
    def weather(city: str) -> str:
        """The weather."""
        return f"sunny in {city}"

    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        session = MemoryEngineSession("chat", engine, history="context", max_tokens=1_000)
        model = ScriptedModel()
        agent = Agent(name="a", model=model, tools=[weather], instructions="Be brief.")
        for turn in range(4):
            model.enqueue(
                [function_call("weather", {"city": city}, call_id=f"{city}{turn}") for city in ("Rome", "Oslo")]
            )
            model.enqueue([assistant_message(f"Sunny {turn}.")])
            result = await Runner.run(agent, f"How is it, {turn}?", session=session)
            assert f"Sunny {turn}." == result.final_output
            check_pairs([dict(item) for item in model.calls[-2].input if isinstance(item, dict)])
        assert 4 * 6 == len(await MemoryEngineSession("chat", engine).get_items())
        assert "How is it, 2?" == (await engine.thread("chat").search("How is it, 2?"))[0].text


def test_the_example_runs(tmp_path: Path) -> None:
    """Twice: the second run goes on where the first one ended."""
    first, second = printed("openai_agents", tmp_path), printed("openai_agents", tmp_path)
    assert "given 3 items" in first
    assert "given 7 items" in second
