"""The contract of adapters, with Agent Framework."""

import json
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)
from attrs import evolve

import memory_engine
from memory_engine.integrations.agent_framework import MemoryEngineHistoryProvider
from tests.integrations.contract import ASPECTS, NEVER, PIXEL, RESULTS, Contract, Driver, Step, depot_of


class Program(FunctionInvocationLayer, BaseChatClient):
    """Does what a step says, and keeps what it is given."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.seen: list[list[str]] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        self.seen.append([json.dumps(message.to_dict()) for message in messages])
        calls = [
            Content.from_function_call(f"{self.step.session}-{place}", "depot", arguments=json.dumps({"place": place}))
            for place in RESULTS
        ]
        is_first = self.step.calls and len(self.seen) == 1
        contents: list[Any] = calls if is_first else [Content.from_text(self.step.answer)]
        return self._streamed(contents) if stream else self._whole(contents)

    async def _whole(self, contents: list[Any]) -> ChatResponse:
        return ChatResponse(messages=[Message("assistant", contents)])

    def _streamed(self, contents: list[Any]) -> Any:
        async def updates() -> AsyncIterable[ChatResponseUpdate]:
            for content in contents:
                yield ChatResponseUpdate(contents=[content], role="assistant")

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


@tool(approval_mode="never_require")
async def depot(place: str) -> str:
    """What a depot holds."""
    return depot_of(place)


async def turn(path: Path, step: Step) -> list[str]:
    """A run of an agent."""
    image = Content.from_uri(f"data:image/png;base64,{PIXEL}", media_type="image/png")
    message = Message("user", [*([image] if step.image else []), Content.from_text(step.text)])
    async with memory_engine.open(str(path), config=NEVER) as engine:
        client = Program(step)
        agent = Agent(client, context_providers=[MemoryEngineHistoryProvider(engine, user_id=step.user)], tools=[depot])
        session = agent.create_session(session_id=step.session)
        if step.streams:
            async for _ in agent.run(message, session=session, stream=True):
                pass
        else:
            await agent.run(message, session=session)
        return client.seen[-1]


@tool(name="depot", approval_mode="always_require")
async def guarded(place: str) -> str:
    """What a depot holds, once a person allows to look."""
    return depot_of(place)


async def interrupt(path: Path, step: Step) -> tuple[dict[str, Any], list[Any]]:
    """Run until the calls have to be approved; the session's own state, which its caller keeps, and the requests."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        agent = Agent(
            Program(step), context_providers=[MemoryEngineHistoryProvider(engine, user_id=step.user)], tools=[guarded]
        )
        session = agent.create_session(session_id=step.session)
        response = await agent.run(step.text, session=session)
        return session.to_dict(), list(response.user_input_requests)


async def resume(path: Path, step: Step, token: tuple[dict[str, Any], list[Any]]) -> list[str]:
    """Approve them, as the input of another run."""
    state, requests = token
    async with memory_engine.open(str(path), config=NEVER) as engine:
        client = Program(evolve(step, calls=False))
        agent = Agent(
            client, context_providers=[MemoryEngineHistoryProvider(engine, user_id=step.user)], tools=[guarded]
        )
        approvals = [one.to_function_approval_response(approved=True) for one in requests]
        await agent.run(Message("user", approvals), session=AgentSession.from_dict(state))
        return client.seen[-1]


DRIVER = Driver(
    turn=turn,
    interrupt=interrupt,
    resume=resume,
    lacks={
        "branch": "a history of the framework only grows",
        "rewind": "a history of the framework only grows",
        "remove": "the framework does not delete histories: use `engine.thread(id).delete()`",
    },
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
