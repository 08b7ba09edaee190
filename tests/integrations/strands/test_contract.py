"""The contract of adapters, with Strands Agents."""

import base64
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry

from memory_engine import sync
from memory_engine.integrations.strands import MemoryEngineSessionRepository
from tests.integrations.contract import ASPECTS, PIXEL, Contract, Driver, Step, depot_of
from tests.integrations.strands.scripted import ScriptedModel, agent_of, called


@tool
def depot(place: str) -> str:
    """What a depot holds."""
    return depot_of(place)


class Asks(HookProvider):
    """A person has to allow each call."""

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Before the call."""
        registry.add_callback(BeforeToolCallEvent, self.ask)

    def ask(self, event: BeforeToolCallEvent) -> None:
        """Whether it is allowed."""
        if event.interrupt(f"allow {event.tool_use['toolUseId']}") != "yes":
            event.cancel_tool = "no"


def made(engine: sync.Engine, step: Step, model: ScriptedModel, **options: Any) -> Agent:
    """The agent of a session."""
    return agent_of(engine, model, step.session, step.user, tools=[depot], **options)


def scripted(step: Step) -> ScriptedModel:
    """A model that does what a step says."""
    calls = [called("depot", f"{step.session}-{place}", place=place) for place in ("Visby", "Kiel")]
    return ScriptedModel(*([calls] if step.calls else []), step.answer)


def given(model: ScriptedModel) -> list[str]:
    """What it was given last."""
    return [str(message["content"]) for message in model.given[-1]]


async def turn(path: Path, step: Step) -> list[str]:
    """A run of an agent."""
    image = {"image": {"format": "png", "source": {"bytes": base64.b64decode(PIXEL)}}}
    prompt: Any = [*([image] if step.image else []), {"text": step.text}]
    with sync.open(str(path)) as engine:
        model = scripted(step)
        agent = made(engine, step, model)
        if step.streams:
            async for _ in agent.stream_async(prompt):
                pass
        else:
            await agent.invoke_async(prompt)
        return given(model)


async def remove(path: Path, session: str) -> None:
    """Delete a session."""
    with sync.open(str(path)) as engine:
        MemoryEngineSessionRepository(engine, user_id="ann").delete_session(session)


async def interrupt(path: Path, step: Step) -> Any:
    """A run until its calls wait."""
    with sync.open(str(path)) as engine:
        model = scripted(step)
        result = await made(engine, step, model, hooks=[Asks()]).invoke_async(step.text)
        return [one.id for one in result.interrupts or ()]


async def resume(path: Path, step: Step, token: Any) -> list[str]:
    """Its calls are allowed, in a process that knows only the session and the questions."""
    answers: Any = [{"interruptResponse": {"interruptId": one, "response": "yes"}} for one in token]
    with sync.open(str(path)) as engine:
        model = ScriptedModel(step.answer)
        await made(engine, step, model, hooks=[Asks()]).invoke_async(answers)
        return given(model)


DRIVER = Driver(
    turn=turn,
    remove=remove,
    interrupt=interrupt,
    resume=resume,
    lacks={
        "branch": "a session of Strands only grows",
        "rewind": "a session of Strands only grows",
    },
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
