"""The brief in front of the messages that a graph gives to its model."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

import memory_engine
from memory_engine.integrations.langgraph import MemoryEngineSaver

RULE = "Never touch the table ledger_2019 without asking me."
CHAT: Any = {"configurable": {"thread_id": "t"}}


async def test_an_agent_that_trims_its_history_is_shown_the_brief() -> None:
    """In front of the newest messages; the state and the thread keep the talk alone."""
    seen: list[list[BaseMessage]] = []
    async with memory_engine.open(":memory:") as engine:
        saver = MemoryEngineSaver(engine)

        @wrap_model_call
        async def trimmed(request: Any, handler: Any) -> Any:
            """The last message alone, with the brief."""
            messages = await saver.awith_brief(CHAT, request.messages[-1:])
            seen.append(messages)
            return await handler(request.override(messages=messages))

        model = GenericFakeChatModel(messages=iter([AIMessage("Noted."), AIMessage("Five.")]))
        agent = create_agent(model, [], checkpointer=saver, middleware=[trimmed])
        for text in (RULE, "How many parcels are in the depot of Graz?"):
            await agent.ainvoke({"messages": [HumanMessage(text)]}, CHAT)
        said = (await agent.aget_state(CHAT)).values["messages"]
        assert [RULE] == [one.text for one in await engine.thread("t").brief.read() if one.kind == "forbids"]
    first, (brief, question) = seen
    assert [RULE] == [one.content for one in first]
    assert str(brief.content).endswith(f"\n- {RULE}")
    assert "How many parcels are in the depot of Graz?" == question.content
    assert [RULE, "Noted.", question.content, "Five."] == [one.content for one in said]


async def test_a_system_message_stays_first() -> None:
    """And a thread in which nothing was said has no brief."""
    async with memory_engine.open(":memory:") as engine:
        saver = MemoryEngineSaver(engine)
        given = [SystemMessage("Be kind."), HumanMessage("Hello")]
        assert given == await saver.awith_brief(CHAT, given)
        await (await engine.create_thread("t")).pin("Releases are on Mondays.")
        system, brief, hello = await saver.awith_brief(CHAT, given)
        assert given == [system, hello]
        assert "Pinned: Releases are on Mondays." in str(brief.content)
