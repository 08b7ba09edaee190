"""Agents of LangChain and larger graphs on a memory: people who decide, subgraphs, copies, delta channels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import memory_engine
from memory_engine.integrations.langgraph import MemoryEngineSaver
from memory_engine.integrations.langgraph_store import MemoryEngineStore
from tests.integrations.langgraph.test_graphs import said

CALL = AIMessage(content="", tool_calls=[{"name": "send", "args": {"to": "ann"}, "id": "c1"}])


class Model(GenericFakeChatModel):
    """Says what it is given to say, whatever tools it has."""

    def bind_tools(self, *_given: Any, **_named: Any) -> Any:
        """Itself."""
        return self


@tool
def send(to: str) -> str:
    """Send the report to somebody."""
    return f"sent to {to}"


def agent(engine: memory_engine.Engine, *says: AIMessage) -> Any:
    """An agent that asks before it sends."""
    ask = HumanInTheLoopMiddleware(interrupt_on={"send": True})
    saver, store = MemoryEngineSaver(engine), MemoryEngineStore(engine)
    return create_agent(Model(messages=iter(says)), [send], checkpointer=saver, store=store, middleware=[ask])


def config(thread_id: str = "t") -> Any:
    """That of a thread."""
    return {"configurable": {"thread_id": thread_id}}


def contents(messages: Sequence[Any]) -> list[str]:
    """What they say."""
    return [message.content for message in messages]


@pytest.mark.parametrize(
    ("decision", "answered"),
    [
        ({"type": "approve"}, "sent to ann"),
        ({"type": "edit", "edited_action": {"name": "send", "args": {"to": "ben"}}}, "sent to ben"),
        ({"type": "reject", "message": "Not now."}, "Not now."),
    ],
)
async def test_an_agent_waits_for_a_persons_decision(decision: Any, answered: str, tmp_path: Path) -> None:
    """The engine is closed meanwhile; what came of it stands in the memory's own context, call and result."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as engine:
        state = await agent(engine, CALL).ainvoke({"messages": [HumanMessage("Send it to Ann.")]}, config())
        assert state["__interrupt__"]
    async with memory_engine.open(path) as engine:
        done = agent(engine, AIMessage("Done."))
        assert (await done.aget_state(config())).interrupts
        state = await done.ainvoke(Command(resume={"decisions": [decision]}), config())
        assert "Done." == state["messages"][-1].content
        assert answered in state["messages"][2].content
        context = await said(engine)
        assert ["user", "assistant", "tool", "assistant"] == [role for role, _ in context]
        assert contents(state["messages"][2:]) == [content for _, content in context[2:]]
        assert (await engine.thread("t").replay.verify()).ok


async def test_a_subgraph_waits_and_its_copy_goes_on_apart(tmp_path: Path) -> None:
    """The copy has the messages too, in contexts and searches; with the latest checkpoints alone both go on."""

    def ask(_state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"The person said {interrupt('sure?')}.")]}

    inner: Any = StateGraph(MessagesState)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    outer: Any = StateGraph(MessagesState)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        saver = MemoryEngineSaver(engine)
        graph = outer.compile(checkpointer=saver)
        await graph.ainvoke({"messages": [HumanMessage("Delete the old reports.")]}, config())
        await saver.acopy_thread("t", "copy")
        assert [("user", "Delete the old reports.")] == await said(engine, "copy")
        assert 1 == len(await engine.thread("copy").search("reports"))
        await saver.aprune(["t", "copy"])
        for thread_id, answer in (("t", "yes"), ("copy", "no")):
            state = await graph.ainvoke(Command(resume=answer), config(thread_id))
            expected = ["Delete the old reports.", f"The person said {answer}."]
            assert expected == contents(state["messages"])
            assert expected == [content for _, content in await said(engine, thread_id)]


def added(state: list[Any], writes: Sequence[Sequence[Any]]) -> list[Any]:
    """A reducer of a delta channel."""
    return [*state, *(one for write in writes for one in write)]


class Often(TypedDict):
    """A list that is saved whole at every fourth change."""

    said: Annotated[list[Any], DeltaChannel(added, snapshot_frequency=4)]


class Never(TypedDict):
    """One that is never saved whole."""

    said: Annotated[list[Any], DeltaChannel(added, snapshot_frequency=1_000)]


@pytest.mark.parametrize("schema", [Often, Never])
async def test_a_pruned_or_copied_delta_channel_is_made_again(schema: type) -> None:
    """What it needs of earlier checkpoints is kept, and no more."""
    builder: Any = StateGraph(schema)
    builder.add_node("node", lambda state: {"said": [len(state["said"])]})
    builder.add_edge(START, "node")
    async with memory_engine.open(":memory:") as engine:
        saver = MemoryEngineSaver(engine)
        graph = builder.compile(checkpointer=saver)
        for n in range(7):
            await graph.ainvoke({"said": [f"q{n}"]}, config())
        values = (await graph.aget_state(config())).values["said"]
        assert 14 == len(values)
        await saver.acopy_thread("t", "copy")
        await saver.aprune(["t"])
        kept = [one async for one in saver.alist(config())]
        assert len(kept) == 21 if schema is Never else len(kept) < 10
        for thread_id in ("t", "copy"):
            assert values == (await graph.aget_state(config(thread_id))).values["said"]
            state = await graph.ainvoke({"said": ["more"]}, config(thread_id))
            assert [*values, "more", 15] == state["said"]
