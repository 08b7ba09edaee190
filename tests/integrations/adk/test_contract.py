"""The contract of adapters, with ADK."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

import memory_engine
from memory_engine import Engine
from memory_engine.integrations.adk import MemoryEngineSessionService
from tests.integrations.contract import ASPECTS, NEVER, PIXEL, RESULTS, Contract, Driver, Step, depot_of

APP = "shop"
ASKS = "adk_request_confirmation"
"""The call by which the framework asks a person."""


class Program(BaseLlm):
    """Does what a step says, and keeps what it is given."""

    step: Step
    seen: list[list[str]]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """The calls, if they were not made in this turn; else the answer."""
        self.seen.append([str(part) for content in llm_request.contents for part in content.parts or ()])
        last = llm_request.contents[-1].parts or []
        if self.step.calls and not any(part.function_response for part in last):
            calls = [types.FunctionCall(name="depot", args={"place": place}) for place in RESULTS]
            yield response([types.Part(function_call=call) for call in calls])
            return
        if stream:
            for text in (self.step.answer[:5], self.step.answer[5:]):
                yield response([types.Part(text=text)], partial=True)
        yield response([types.Part(text=self.step.answer)])


def response(parts: list[types.Part], *, partial: bool = False) -> LlmResponse:
    """What a model gives."""
    return LlmResponse(content=types.Content(role="model", parts=parts), partial=partial)


def depot(place: str) -> str:
    """What a depot holds."""
    return depot_of(place)


def made(engine: Engine, step: Step, *, asks: bool = False) -> tuple[Runner, Program]:
    """A runner with its model; its calls wait for a person if it asks."""
    model = Program(model="program", step=step, seen=[])
    agent = LlmAgent(name="clerk", model=model, tools=[FunctionTool(depot, require_confirmation=asks)])
    sessions = MemoryEngineSessionService(engine)
    return Runner(app_name=APP, agent=agent, session_service=sessions, auto_create_session=True), model


async def turn(path: Path, step: Step) -> list[str]:
    """A run of an agent; of an earlier turn, after the session was rewound to it."""
    image = types.Part(inline_data=types.Blob(mime_type="image/png", data=base64.b64decode(PIXEL)))
    parts = [*([image] if step.image else []), types.Part(text=step.text)]
    mode = StreamingMode.SSE if step.streams else StreamingMode.NONE
    async with memory_engine.open(str(path), config=NEVER) as engine:
        runner, model = made(engine, step)
        if step.after is not None:
            await _rewind(runner, step.session, step.after)
        async for _ in runner.run_async(
            user_id=step.user,
            session_id=step.session,
            new_message=types.Content(role="user", parts=parts),
            run_config=RunConfig(streaming_mode=mode),
        ):
            pass
        return model.seen[-1]


async def _rewind(runner: Runner, session: str, turn: int) -> None:
    found = await runner.session_service.get_session(app_name=APP, user_id="ann", session_id=session)
    assert found is not None
    said = [event.invocation_id for event in found.events if event.author == "user"]
    await runner.rewind_async(user_id="ann", session_id=session, rewind_before_invocation_id=said[turn])


async def rewind(path: Path, session: str) -> None:
    """Rewind to before the last turn."""
    async with memory_engine.open(str(path)) as engine:
        runner, _ = made(engine, Step(text="", session=session))
        await _rewind(runner, session, -1)


async def interrupt(path: Path, step: Step) -> list[str]:
    """Run until the calls have to be confirmed; the ids of what asks for it."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        runner, _ = made(engine, step, asks=True)
        said = types.Content(role="user", parts=[types.Part(text=step.text)])
        return [
            str(call.id)
            async for event in runner.run_async(user_id=step.user, session_id=step.session, new_message=said)
            for call in event.get_function_calls()
            if call.name == ASKS
        ]


async def resume(path: Path, step: Step, token: list[str]) -> list[str]:
    """Confirm each call, in another process's place."""
    answers = [
        types.Part(function_response=types.FunctionResponse(id=one, name=ASKS, response={"confirmed": True}))
        for one in token
    ]
    async with memory_engine.open(str(path), config=NEVER) as engine:
        runner, model = made(engine, step, asks=True)
        said = types.Content(role="user", parts=answers)
        async for _ in runner.run_async(user_id=step.user, session_id=step.session, new_message=said):
            pass
        return model.seen[-1]


async def remove(path: Path, session: str) -> None:
    """Delete a session."""
    async with memory_engine.open(str(path)) as engine:
        sessions = MemoryEngineSessionService(engine)
        await sessions.delete_session(app_name=APP, user_id="ann", session_id=session)


DRIVER = Driver(
    turn=turn,
    thread_id=lambda session: f"adk-session/{APP}/ann/{session}",
    rewind=rewind,
    remove=remove,
    interrupt=interrupt,
    resume=resume,
    hides=True,
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
