"""Graphs of LangGraph on a memory: what is kept, resumed, edited, forgotten and erased."""

import asyncio
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

import memory_engine
from memory_engine.integrations.langgraph import MARK, MemoryEngineSaver
from memory_engine.views.checkpoints.pieces import to_bytes
from tests.integrations.examples import printed

CONFIG: Any = {"configurable": {"thread_id": "t"}}
NEVER = memory_engine.EngineConfig(compaction=memory_engine.CompactionPolicy(enabled=False))
"""For what is counted: a compaction adds its summary to the log whenever the process is quiet."""


class Talk(TypedDict):
    """The state of the graphs here."""

    messages: Annotated[list[AnyMessage], add_messages]


def echo(state: Talk) -> dict[str, Any]:
    """Say again what was said."""
    return {"messages": [AIMessage(content=f"You said: {state['messages'][-1].content}")]}


def graph_of(node: Any, saver: MemoryEngineSaver) -> Any:
    """A graph of one node."""
    builder = StateGraph(Talk)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(checkpointer=saver)


async def said(engine: memory_engine.Engine, thread_id: str = "t") -> list[tuple[str, object]]:
    """What the memory's own context holds."""
    messages = (await engine.thread(thread_id).context()).messages
    return [(str(message["role"]), message["content"]) for message in messages]


async def test_messages_of_a_graph_are_a_threads_events(tmp_path: Path) -> None:
    """Once each, over turns and processes; search finds them, and the state is what the graph made."""
    path, state = str(tmp_path / "agent.db"), {}
    for turn in ("My cat is called Tom.", "Where do I live?"):
        async with memory_engine.open(path) as engine:
            graph = graph_of(echo, MemoryEngineSaver(engine))
            state = await graph.ainvoke({"messages": [HumanMessage(content=turn)]}, CONFIG)
            assert f"You said: {turn}" == state["messages"][-1].content
    async with memory_engine.open(path) as engine:
        assert ["user", "assistant", "user", "assistant"] == [role for role, _ in await said(engine)]
        thread = engine.thread("t")
        assert "Tom" in (await thread.search("what is my cat called?"))[0].text
        assert 4 == len(state["messages"]) == len(await thread.state())
        assert (await thread.replay.verify()).ok
        assert MARK == (await thread.info()).metadata
        history = [one async for one in graph_of(echo, MemoryEngineSaver(engine)).aget_state_history(CONFIG)]
        assert 6 == len(history)
        assert [4, 3, 2, 2, 1, 0] == [len(one.values.get("messages", ())) for one in history]


async def test_a_step_adds_what_is_new_in_it(tmp_path: Path) -> None:
    """The log of a long conversation holds each message once, however often the graph saves them all."""
    async with memory_engine.open(str(tmp_path / "agent.db"), config=NEVER) as engine:
        saver, messages, config = (
            MemoryEngineSaver(engine),
            [],
            {"configurable": {"thread_id": "t", "checkpoint_ns": ""}},
        )
        version, payload = None, 0
        for n in range(120):
            messages.append(HumanMessage(content=f"{n}: " + " ".join(str(n * k % 997) for k in range(150)), id=f"m{n}"))
            payload += len(saver.serde.dumps_typed(messages[-1])[1])
            version = saver.get_next_version(version, None)
            checkpoint = empty_checkpoint() | {"id": f"{n:08}", "channel_versions": {"messages": version}}
            checkpoint["channel_values"] = {"messages": list(messages)}
            config = await saver.aput(config, checkpoint, {"step": n}, {"messages": version})
        assert messages == (await saver.aget(config) or {})["channel_values"]["messages"]
        stats = await engine.stats()
        assert stats.payload_bytes < 2 * payload
    async with memory_engine.open(str(tmp_path / "agent.db"), config=NEVER) as engine:  # nothing is remembered here
        saver = MemoryEngineSaver(engine)
        earlier = await saver.aget({"configurable": {"thread_id": "t", "checkpoint_id": f"{59:08}"}}) or {}
        assert messages[:60] == earlier["channel_values"]["messages"]
        checkpoint = empty_checkpoint() | {"id": "x", "channel_versions": {"messages": "2"}}
        checkpoint["channel_values"] = {"messages": [*messages[:3], *messages[50:]]}
        await saver.aput(config, checkpoint, {}, {"messages": "2"})
        assert [*messages[:3], *messages[50:]] == (await saver.aget(CONFIG))["channel_values"]["messages"]
        assert stats.payload_bytes + 1_000 > (await engine.stats()).payload_bytes


async def test_a_message_written_anew_takes_the_place_of_the_old_one() -> None:
    """In the memory too; earlier checkpoints keep what they held, and what the graph removes the memory still knows."""
    async with memory_engine.open(":memory:") as engine:
        graph = graph_of(echo, MemoryEngineSaver(engine))
        state = await graph.ainvoke({"messages": [HumanMessage(content="I live in Rome.", id="h1")]}, CONFIG)
        before = await graph.aget_state(CONFIG)
        answer = state["messages"][-1]
        await graph.aupdate_state(CONFIG, {"messages": [AIMessage(content="Rome it is.", id=answer.id)]})
        assert [("user", "I live in Rome."), ("assistant", "Rome it is.")] == await said(engine)
        assert answer.content == (await graph.aget_state(before.config)).values["messages"][-1].content
        await graph.aupdate_state(CONFIG, {"messages": [RemoveMessage(id="h1")]})
        assert ["Rome it is."] == [message.content for message in (await graph.aget_state(CONFIG)).values["messages"]]
        assert ("user", "I live in Rome.") in await said(engine)


async def test_tool_calls_and_results_are_pairs_in_the_memory() -> None:
    """As a provider wants them; what is not a chat's message stays in its checkpoint."""

    def work(state: Talk) -> dict[str, Any]:
        call = {"id": "c1", "name": "weather", "args": {"city": "Rome"}}
        return {
            "messages": [
                AIMessage(content="", tool_calls=[call]),
                ToolMessage(content="12 °C", tool_call_id="c1", name="weather"),
                AIMessage(content="It is 12 °C."),
            ]
        }

    async with memory_engine.open(":memory:") as engine:
        await graph_of(work, MemoryEngineSaver(engine)).ainvoke({"messages": [HumanMessage(content="Rome?")]}, CONFIG)
        assert ["user", "assistant", "tool", "assistant"] == [role for role, _ in await said(engine)]


async def test_forgetting_hides_and_erasing_destroys(tmp_path: Path) -> None:
    """A forgotten message is out of the memory, not of the state that the graph runs on; an erased one of both."""
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        saver = MemoryEngineSaver(engine)
        secret = "My number is 4711-0815, please tell nobody about it, whatever they may ask of you, not even me."
        version = saver.get_next_version(None, None)
        checkpoint = empty_checkpoint() | {"id": "1", "channel_versions": {"messages": version}}
        checkpoint["channel_values"] = {
            "messages": [HumanMessage(content=secret, id="a"), AIMessage(content="Ok.", id="b")]
        }
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        await saver.aput(config, checkpoint, {}, {"messages": version})
        thread = engine.thread("t")
        first = await anext(thread.events())
        await thread.forget(event_ids=[first.id])
        assert [("assistant", "Ok.")] == await said(engine)
        assert 2 == len((await saver.aget(CONFIG))["channel_values"]["messages"])
        await thread.admin.erase(seqs=[first.seq])
        assert ["Ok."] == [one.content for one in (await saver.aget(CONFIG))["channel_values"]["messages"]]


async def test_erasing_a_message_destroys_it_in_every_event_that_carries_it(tmp_path: Path) -> None:
    """What a task wrote, what the graph was given, and the state, each of them less only this message."""
    said = {"user_message": "My PIN: 4711.", "llm_tool_call": "Osterfeldt", "tool_result": "She is in Lisbon."}
    calls = [{"id": "call_1", "name": "look", "args": {"who": "Osterfeldt"}}]
    builder = StateGraph(Talk)
    builder.add_node("call", lambda _: {"messages": [AIMessage(content="", tool_calls=calls)]})
    builder.add_node("look", lambda _: {"messages": [ToolMessage(said["tool_result"], tool_call_id="call_1")]})
    builder.add_node("say", lambda _: {"messages": [AIMessage("ok")]})
    for edge in ((START, "call"), ("call", "look"), ("look", "say")):
        builder.add_edge(*edge)
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        graph = builder.compile(checkpointer=MemoryEngineSaver(engine))
        await graph.ainvoke({"messages": [HumanMessage(said["user_message"])]}, CONFIG)
        thread, left = engine.thread("t"), 4
        for event_type, text in said.items():
            (event_id,) = [one.id async for one in thread.events() if one.type == event_type]
            assert text in " ".join([one async for one in _unpacked(thread)])
            report = await thread.admin.erase([event_id])
            assert report.proof is not None
            assert report.proof.ok
            assert text not in " ".join([one async for one in _unpacked(thread)])
            left -= 1
            assert left == len((await graph.aget_state(CONFIG)).values["messages"])
        assert 5 == len([one async for one in graph.aget_state_history(CONFIG)])
        assert (await thread.replay.verify()).ok
        state = await graph.ainvoke({"messages": [HumanMessage("And now?")]}, CONFIG)
        assert ["ok", "And now?", "", said["tool_result"], "ok"] == [one.content for one in state["messages"]]


async def _unpacked(thread: memory_engine.Thread) -> AsyncIterator[str]:
    """Every text in a thread's events, those that hold bytes as the bytes say."""
    async for recorded in thread.events():
        waiting = [msgspec.to_builtins(recorded.event)]
        for one in waiting:
            if isinstance(one, str):
                with suppress(ValueError, zlib.error):
                    yield to_bytes(one).decode(errors="replace")
                yield one
            else:
                waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()


async def test_a_message_that_a_new_branch_says_again_is_read_back(tmp_path: Path) -> None:
    """It is recorded once; the branch does not quote an event that it did not bring."""
    text = "I would like to sit by the window, please, on the left side of the train, and not in the quiet car."
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for checkpoint_id in "12":
        async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
            saver = MemoryEngineSaver(engine)
            version = saver.get_next_version(None, None)
            checkpoint = empty_checkpoint() | {"id": checkpoint_id, "channel_versions": {"messages": version}}
            checkpoint["channel_values"] = {"messages": [HumanMessage(content=text, id="a")]}
            await saver.aput(config, checkpoint, {}, {"messages": version})
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        for one in [one async for one in MemoryEngineSaver(engine).alist(CONFIG)]:
            assert [text] == [message.content for message in one.checkpoint["channel_values"]["messages"]]
        assert [("user", text)] == await said(engine)


async def found(engine: memory_engine.Engine, query: str) -> str:
    """What a search of the thread finds."""
    return " ".join([hit.text for hit in await engine.thread("t").search(query)])


@pytest.mark.parametrize("way", ["invoke", "update"])
async def test_a_fork_takes_the_branch_that_it_leaves_out_of_the_memory(way: str) -> None:
    """Of contexts and search, not of the graph's own history; the branch comes back when the graph returns to it."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        graph = graph_of(echo, MemoryEngineSaver(engine))
        ends: list[Any] = []
        for text in ("We sail on Monday.", "Pack the red tent.", "Bring two lanterns."):
            await graph.ainvoke({"messages": [HumanMessage(content=text)]}, CONFIG)
            ends.append((await graph.aget_state(CONFIG)).config)
        given = {"messages": [HumanMessage(content="Pack the green canoe.")]}
        if way == "invoke":
            await graph.ainvoke(given, ends[0])
        else:
            await graph.aupdate_state(ends[0], given)
        context = str(await said(engine))
        assert "Monday" in context
        assert "canoe" in context
        assert "tent" not in context
        assert "lanterns" not in context
        assert "red tent" not in await found(engine, "which tent is packed?")
        assert "red tent" in str((await graph.aget_state(ends[1])).values)

        await graph.ainvoke({"messages": [HumanMessage(content="And a stove.")]}, ends[1])
        context = str(await said(engine))
        assert 1 == context.count("'Pack the red tent.'")
        assert "red tent" in await found(engine, "which tent is packed?")
        assert "stove" in context
        assert "canoe" not in context
        assert "lanterns" not in context

        await graph.ainvoke({"messages": [HumanMessage(content="Leave at noon.")]}, ends[0])
        await graph.ainvoke({"messages": [HumanMessage(content="Leave at six.")]}, ends[2])
        texts = {str(text) for _, text in await said(engine) if "You said" not in str(text)}
        assert {"We sail on Monday.", "Pack the red tent.", "Bring two lanterns.", "Leave at six."} == texts
        assert (await engine.thread("t").replay.verify()).ok


async def test_a_fork_before_a_call_that_waits_may_make_the_call_again() -> None:
    """The same id is no second call: the branch of the first was left. What a person forgot stays forgotten."""
    call = {"id": "c1", "name": "weather", "args": {"city": "Rome"}}

    def ask(_state: Talk) -> dict[str, Any]:
        return {"messages": [AIMessage(content="", tool_calls=[call])]}

    async with memory_engine.open(":memory:", config=NEVER) as engine:
        graph = graph_of(ask, MemoryEngineSaver(engine))
        await graph.aupdate_state(CONFIG, {"messages": [HumanMessage(content="The vault code is 77.", id="h")]})
        begin = (await graph.aget_state(CONFIG)).config
        thread = engine.thread("t")
        await graph.ainvoke({"messages": [HumanMessage(content="Rome?")]}, begin)
        await thread.forget(event_ids=[event.id async for event in thread.events() if "vault" in str(event.event)][:1])
        for city in ("Rome today?", "Rome tomorrow?"):
            await graph.ainvoke({"messages": [HumanMessage(content=city)]}, begin)
            calls = [message for message in (await thread.context()).messages if message.get("tool_calls")]
            assert 1 == len(calls)
            texts = [text for role, text in await said(engine) if role == "user"]
            assert [city] == texts


async def test_calls_without_await_come_from_other_threads_only() -> None:
    """And from another event loop they may be awaited."""
    async with memory_engine.open(":memory:") as engine:
        saver = MemoryEngineSaver(engine)
        graph = graph_of(echo, saver)
        given = {"messages": [HumanMessage(content="Hello")]}
        with pytest.raises(RuntimeError, match="await its twin"):
            saver.get_tuple(CONFIG)
        state = await asyncio.to_thread(graph.invoke, given, CONFIG)
        assert "You said: Hello" == state["messages"][-1].content
        assert 3 == len(await asyncio.to_thread(lambda: list(graph.get_state_history(CONFIG))))
        other = await asyncio.to_thread(lambda: asyncio.run(graph.aget_state(CONFIG)))
        assert 2 == len(other.values["messages"])


INTERRUPTED = """
import asyncio, sys
import memory_engine
from langgraph.types import Command, interrupt
from memory_engine.integrations.langgraph import MemoryEngineSaver
from tests.integrations.langgraph.test_graphs import CONFIG, graph_of
from langchain_core.messages import AIMessage, HumanMessage

def ask(state):
    return {"messages": [AIMessage(content=f"You answered {interrupt('Sure?')}.")]}

async def main():
    async with memory_engine.open(sys.argv[1]) as engine:
        graph = graph_of(ask, MemoryEngineSaver(engine))
        given = {"messages": [HumanMessage(content="Delete it.")]} if sys.argv[2] == "begin" else Command(resume="yes")
        state = await graph.ainvoke(given, CONFIG)
        print(len(state["messages"]), state["messages"][-1].content, bool(state.get("__interrupt__")), flush=True)
        if sys.argv[2] == "begin":
            import os
            os._exit(9)  # as a process dies

asyncio.run(main())
"""


def test_an_interrupted_graph_goes_on_in_another_process(tmp_path: Path) -> None:
    """The process dies while it waits for a person; the next one resumes."""
    path, printed = str(tmp_path / "agent.db"), []
    for step in ("begin", "resume"):
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED, path, step], capture_output=True, text=True, check=False
        )
        printed.append((done.returncode, done.stdout.strip(), done.stderr))
    assert [(9, "1 Delete it. True", ""), (0, "2 You answered yes. False", "")] == printed


def test_the_example_prints_what_its_page_says(tmp_path: Path) -> None:
    """Without a key."""
    assert "Tom" in printed("langgraph", tmp_path)
