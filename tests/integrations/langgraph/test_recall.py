"""What a saver gives a graph's model of the user's other threads."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

import memory_engine
from memory_engine import Engine
from memory_engine.integrations.langgraph import MemoryEngineSaver
from tests.integrations.recalls import DEPOT, FACT, MARK, QUESTION, RecallContract, Turn


class Program(GenericFakeChatModel):
    """Answers from a script, with tools."""

    def bind_tools(self, _tools: Any, **_: Any) -> "Program":
        """Its script has the calls."""
        return self


async def talk(engine: Engine, turn: Turn) -> list[list[str]]:
    """A run of an agent."""
    saver = MemoryEngineSaver(engine, user_id=turn.user, tenant_id=turn.tenant, agent_id=turn.agent, **turn.options)
    config: Any = {"configurable": {"thread_id": turn.thread}}
    seen: list[list[str]] = []

    @tool
    async def depot() -> str:
        """What the depot holds."""
        for one in turn.meanwhile:
            await talk(engine, one)
        return DEPOT

    @wrap_model_call
    async def recalling(request: Any, handler: Any) -> Any:
        """The messages with what is recalled."""
        messages = await saver.awith_recall(config, request.messages)
        seen.append([said(message) for message in messages])
        return await handler(request.override(messages=messages))

    calls = [AIMessage("", tool_calls=[{"name": "depot", "args": {}, "id": f"c{n}"}]) for n in range(turn.calls)]
    model = Program(messages=iter([*calls, AIMessage("Noted.")]))
    agent = create_agent(model, [depot], checkpointer=saver, middleware=[recalling])
    await agent.ainvoke({"messages": [HumanMessage(turn.text)]}, config)
    return seen


def said(message: BaseMessage) -> str:
    """The text of a message, or its calls."""
    return str(message.content or getattr(message, "tool_calls", ""))


async def test_a_model_is_given_what_its_user_said_elsewhere() -> None:
    """And nobody else's words."""
    await RecallContract(talk=talk).check()


async def test_a_window_without_its_request_keeps_what_was_recalled() -> None:
    """In front, behind a system message and in any order with the brief; until something is forgotten."""
    async with memory_engine.open(":memory:") as engine:
        await talk(engine, Turn(text=FACT, thread="first"))
        saver = MemoryEngineSaver(engine, user_id="ann", recall=True)
        config: Any = {"configurable": {"thread_id": "second"}}
        system, request = SystemMessage("Be kind."), HumanMessage(QUESTION, id="q")
        loop: list[BaseMessage] = [
            AIMessage("", tool_calls=[{"name": "depot", "args": {}, "id": "c"}]),
            ToolMessage(DEPOT, tool_call_id="c"),
        ]
        _, recalled, *rest = await saver.awith_recall(config, [system, request])
        assert (True, [request]) == (FACT in str(recalled.content), rest)
        first, again, *rest = await saver.awith_recall(config, [system, *loop])
        assert (system, recalled.content, loop) == (first, again.content, rest)
        await (await engine.open_thread("second", user_id="ann")).pin("Releases are on Mondays.")
        briefed = await saver.awith_brief(config, [system, *loop])
        assert recalled.content in [one.content for one in await saver.awith_recall(config, briefed)]
        [said] = [event.id async for event in engine.thread("first").events() if FACT in str(event.event)][:1]
        await engine.thread("first").forget(event_ids=[said], reason="it was changed")
        assert not [one for one in await saver.awith_recall(config, [request]) if MARK in str(one.content)]
        assert [request] == await MemoryEngineSaver(engine, user_id="ann").awith_recall(config, [request])
