"""The contract of adapters, with LangGraph."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.types import Command

import memory_engine
from memory_engine import Engine
from memory_engine.integrations.langgraph import MemoryEngineSaver
from tests.integrations.contract import ASPECTS, NEVER, PIXEL, Contract, Driver, Step, depot_of


class Program(GenericFakeChatModel):
    """Answers from a script, with tools, and keeps what it is given."""

    seen: list[list[str]]

    def bind_tools(self, _tools: Any, **_: Any) -> "Program":
        """Its script has the calls."""
        return self

    def _generate(self, messages: Any, *words: Any, **named: Any) -> Any:
        self.seen.append([str(message.content) for message in messages])
        return super()._generate(messages, *words, **named)

    def _stream(self, messages: Any, *_words: Any, **_named: Any) -> Iterator[ChatGenerationChunk]:
        self.seen.append([str(message.content) for message in messages])
        answer: Any = next(self.messages)
        for n, call in enumerate(answer.tool_calls):
            part = {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": n}
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[part]))
        for text in (answer.content[:5], answer.content[5:]) if answer.content else ():
            yield ChatGenerationChunk(message=AIMessageChunk(text))


@tool
def depot(place: str) -> str:
    """What a depot holds."""
    return depot_of(place)


def config_of(step: Step) -> Any:
    """The config of a session."""
    return {"configurable": {"thread_id": step.session}}


def made(engine: Engine, step: Step, *answers: AIMessage, asks: bool = False) -> tuple[Any, Program]:
    """An agent of a session, and its model."""
    model = Program(messages=iter(answers), seen=[])
    saver = MemoryEngineSaver(engine, user_id=step.user)
    middleware = [HumanInTheLoopMiddleware(interrupt_on={"depot": True})] if asks else []
    return create_agent(model, [depot], checkpointer=saver, middleware=middleware), model


def answers(step: Step) -> list[AIMessage]:
    """What the model says in a step."""
    calls: Any = [{"name": "depot", "args": {"place": one}, "id": f"{step.text}-{one}"} for one in ("Visby", "Kiel")]
    return [*([AIMessage("", tool_calls=calls)] if step.calls else []), AIMessage(step.answer)]


async def turn(path: Path, step: Step) -> list[str]:
    """A run of an agent; of an earlier turn, from its checkpoint on."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        agent, model = made(engine, step, *answers(step))
        config = config_of(step)
        if step.after is not None:
            states = [state async for state in agent.aget_state_history(config)]
            config = next(
                one.config for one in states if not one.next and 2 * step.after == len(one.values["messages"])
            )
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
        content: Any = [image, {"type": "text", "text": step.text}] if step.image else step.text
        asked: Any = {"messages": [HumanMessage(content)]}
        if step.streams:
            async for _ in agent.astream(asked, config, stream_mode="messages"):
                pass
        else:
            await agent.ainvoke(asked, config)
        return model.seen[-1] if model.seen else []


async def remove(path: Path, session: str) -> None:
    """Delete a thread."""
    async with memory_engine.open(str(path)) as engine:
        await MemoryEngineSaver(engine, user_id="ann").adelete_thread(session)


async def interrupt(path: Path, step: Step) -> None:
    """A run until its calls wait."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        agent, _ = made(engine, step, *answers(step), asks=True)
        state = await agent.ainvoke({"messages": [HumanMessage(step.text)]}, config_of(step))
        assert state["__interrupt__"]


async def resume(path: Path, step: Step, _token: Any) -> list[str]:
    """Its calls are allowed, in a process that knows only the thread."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        agent, model = made(engine, step, AIMessage(step.answer), asks=True)
        decisions = [{"type": "approve"}, {"type": "approve"}]
        await agent.ainvoke(Command(resume={"decisions": decisions}), config_of(step))
        return model.seen[-1]


DRIVER = Driver(
    turn=turn,
    remove=remove,
    interrupt=interrupt,
    resume=resume,
    lacks={"rewind": "LangGraph takes nothing back without going on from there: see `branch`"},
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
