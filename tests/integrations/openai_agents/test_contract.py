"""The contract of adapters, with the OpenAI Agents SDK."""

import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, RunState, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import memory_engine
from memory_engine import Engine
from memory_engine.integrations.openai_agents import MemoryEngineSession
from tests.integrations.contract import ASPECTS, NEVER, PIXEL, Contract, Driver, Step, depot_of


def made(step: Step, *, asks: bool = False, answered: bool = False) -> tuple[Agent[Any], ScriptedModel]:
    """An agent, and its model."""

    @function_tool(needs_approval=asks)
    def depot(place: str) -> str:
        """What a depot holds."""
        return depot_of(place)

    model = ScriptedModel()
    if step.calls and not answered:
        calls = [(place, json.dumps({"place": place})) for place in ("Visby", "Kiel")]
        model.enqueue([function_call("depot", given, call_id=f"{step.session}-{place}") for place, given in calls])
    model.enqueue([assistant_message(step.answer)])
    return Agent(name="keeper", model=model, tools=[depot]), model


def session_of(engine: Engine, step: Step) -> MemoryEngineSession:
    """The session of a step."""
    return MemoryEngineSession(step.session, engine, user_id=step.user)


def given(model: ScriptedModel) -> list[str]:
    """What it was given last."""
    return [str(item) for item in model.calls[-1].input]


async def turn(path: Path, step: Step) -> list[str]:
    """A run of an agent."""
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    said: Any = [{"role": "user", "content": [image, {"type": "input_text", "text": step.text}]}]
    async with memory_engine.open(str(path), config=NEVER) as engine:
        agent, model = made(step)
        asked = said if step.image else step.text
        if step.streams:
            async for _ in Runner.run_streamed(agent, asked, session=session_of(engine, step)).stream_events():
                pass
        else:
            await Runner.run(agent, asked, session=session_of(engine, step))
        return given(model)


async def rewind(path: Path, session: str) -> None:
    """Take back items up to the last message of the user."""
    async with memory_engine.open(str(path)) as engine:
        of = session_of(engine, Step(text="", session=session))
        while (item := await of.pop_item()) is not None and item.get("role") != "user":
            pass


async def remove(path: Path, session: str) -> None:
    """Clear a session."""
    async with memory_engine.open(str(path)) as engine:
        await session_of(engine, Step(text="", session=session)).clear_session()


async def interrupt(path: Path, step: Step) -> str:
    """A run until its calls wait; its state, as JSON."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        agent, _ = made(step, asks=True)
        result = await Runner.run(agent, step.text, session=session_of(engine, step))
        assert 2 == len(result.interruptions)
        return result.to_state().to_string()


async def resume(path: Path, step: Step, token: str) -> list[str]:
    """Its calls are allowed, in a process that has that state."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        agent, model = made(step, asks=True, answered=True)
        state: Any = await RunState.from_string(agent, token)
        for one in state.get_interruptions():
            state.approve(one)
        await Runner.run(agent, state, session=session_of(engine, step))
        return given(model)


DRIVER = Driver(
    turn=turn,
    rewind=rewind,
    remove=remove,
    interrupt=interrupt,
    resume=resume,
    lacks={"branch": "a session of the SDK is one list: see `rewind`"},
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
