"""What a session gives its model of the user's other conversations."""

from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import memory_engine
from memory_engine import Engine
from memory_engine.errors import InvalidArgument, ThreadDiffers
from memory_engine.integrations.openai_agents import MemoryEngineSession
from tests.integrations.recalls import DEPOT, FACT, MARK, QUESTION, RecallContract, Turn


async def talk(engine: Engine, turn: Turn) -> list[list[str]]:
    """A run of an agent."""
    session = MemoryEngineSession(
        turn.thread, engine, user_id=turn.user, tenant_id=turn.tenant, agent_id=turn.agent, **turn.options
    )
    model = ScriptedModel()
    for n in range(turn.calls):
        model.enqueue([function_call("depot", "{}", call_id=f"c{n}")])
    model.enqueue([assistant_message("Noted.")])

    @function_tool
    async def depot() -> str:
        """What the depot holds."""
        for one in turn.meanwhile:
            await talk(engine, one)
        return DEPOT

    config = RunConfig(call_model_input_filter=session.with_recall)
    await Runner.run(Agent(name="keeper", model=model, tools=[depot]), turn.text, session=session, run_config=config)
    return [[said(item) for item in call.input] for call in model.calls]


def said(item: Any) -> str:
    """The text of an input item."""
    content = item.get("content") or item.get("output") or item.get("arguments")
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


async def test_a_model_is_given_what_its_user_said_elsewhere() -> None:
    """And nobody else's words."""
    await RecallContract(talk=talk).check()


async def test_what_a_limit_leaves_out_is_recalled() -> None:
    """Of the same conversation, also without a user; not what the input holds."""
    async with memory_engine.open(":memory:") as engine:
        options = {"session_settings": {"limit": 2}, "recall": True}
        for text in (FACT, "Good.", "Fine."):
            await talk(engine, Turn(text=text, thread="t", user="", options=options))
        [given] = await talk(engine, Turn(text=QUESTION, thread="t", user="", options=options))
        assert [FACT in text for text in given if MARK in text] == [True]
        [given] = await talk(engine, Turn(text=QUESTION, thread="t", user="", options={"recall": True}))
        assert not [text for text in given if MARK in text]


async def test_a_session_of_another_user_recalls_nothing() -> None:
    """It is refused before the model is asked; and tokens are a positive number."""
    async with memory_engine.open(":memory:") as engine:
        await talk(engine, Turn(text=FACT, thread="t"))
        with pytest.raises(ThreadDiffers):
            await talk(engine, Turn(text=QUESTION, thread="t", user="ben", options={"recall": True}))
        with pytest.raises(InvalidArgument, match="recall_tokens"):
            MemoryEngineSession("t", engine, recall=True, recall_tokens=0)
