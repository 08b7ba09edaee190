"""Agents of ADK on a memory, with a program in the place of a model, over dead processes and other event loops."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

import memory_engine
from memory_engine.integrations.adk import MARK, MemoryEngineMemoryService, MemoryEngineSessionService
from tests.integrations.examples import printed

OWNER: Any = {"app_name": "shop", "user_id": "ann"}


class Program(BaseLlm):
    """Calls the tool, then says what it gave and how much of the talk it was shown."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """One answer."""
        last = llm_request.contents[-1].parts[0]
        if last.function_response is not None:
            part = types.Part(text=f"{last.function_response.response['n']} of {len(llm_request.contents)}")
        else:
            part = types.Part(function_call=types.FunctionCall(name="count", args={"what": last.text}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def count(what: str, tool_context: ToolContext) -> dict[str, int]:
    """Count what was said; `die` kills the process in the middle."""
    if what == "die":
        os._exit(9)
    tool_context.state["n"] = tool_context.state.get("n", 0) + 1
    tool_context.state["user:last"] = what
    tool_context.state["temp:once"] = what
    return {"n": tool_context.state["n"]}


def runner_of(engine: memory_engine.Engine) -> Runner:
    """An agent with a tool, whose sessions are made when they are asked for."""
    agent = LlmAgent(name="clerk", model=Program(model="program"), tools=[count])
    return Runner(
        app_name="shop",
        agent=agent,
        session_service=MemoryEngineSessionService(engine),
        memory_service=MemoryEngineMemoryService(engine),
        auto_create_session=True,
    )


def message(text: str) -> types.Content:
    """What a user says."""
    return types.Content(role="user", parts=[types.Part(text=text)])


async def answer(runner: Runner, text: str) -> str:
    """The last answer of a turn."""
    said = [event async for event in runner.run_async(user_id="ann", session_id="s", new_message=message(text))]
    return said[-1].content.parts[0].text


DYING = """
import asyncio, sys
import memory_engine
from tests.integrations.adk.test_agents import answer, runner_of

async def main():
    async with memory_engine.open(sys.argv[1]) as engine:
        for text in sys.argv[2:]:
            print(await answer(runner_of(engine), text), flush=True)

asyncio.run(main())
"""


def run_of(path: str, *said: str) -> tuple[int, str]:
    """How a process ends that says this to the agent, and what it prints."""
    done = subprocess.run([sys.executable, "-c", DYING, path, *said], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


async def test_an_agent_goes_on_after_its_process_was_killed(tmp_path: Path) -> None:
    """In the middle of a tool's work: what was said is there, and the next process goes on."""
    path = str(tmp_path / "agent.db")
    assert (9, "1 of 3\n") == await asyncio.to_thread(run_of, path, "one", "die")
    assert (0, "2 of 8\n") == await asyncio.to_thread(run_of, path, "two")
    async with memory_engine.open(path) as engine:
        service = MemoryEngineSessionService(engine)
        session: Any = await service.get_session(**OWNER, session_id="s")
        assert {"n": 2, "user:last": "two"} == session.state
        assert 4 + 2 + 4 == len(session.events)
        [info] = await engine.threads(metadata={MARK: "session"})
        thread = engine.thread(info.id)
        roles = [str(one["role"]) for one in (await thread.context()).messages]
        assert ["user", "assistant", "tool", "assistant", "user"] == roles[:5]
        assert (await thread.replay.verify()).ok
        assert "3 of" in await answer(runner_of(engine), "three")


async def test_a_rewound_agent_forgets_with_its_session(tmp_path: Path) -> None:
    """ADK's `rewind_async` puts the state back; the thread's context is what the model is shown."""
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        runner = runner_of(engine)
        for text in ("one", "two"):
            await answer(runner, text)
        session = await runner.session_service.get_session(**OWNER, session_id="s")
        invocation_id = session.events[-1].invocation_id
        await runner.rewind_async(user_id="ann", session_id="s", rewind_before_invocation_id=invocation_id)
        session = await runner.session_service.get_session(**OWNER, session_id="s")
        assert 1 == session.state["n"]
        [info] = await engine.threads(metadata={MARK: "session"})
        said = str((await engine.thread(info.id).context()).messages)
        assert "one" in said
        assert "two" not in said
        assert "2 of 7" == await answer(runner, "three")


async def test_a_runner_may_live_on_another_event_loop(tmp_path: Path) -> None:
    """`Runner.run` makes one of its own, in another thread."""
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        runner = runner_of(engine)

        def run() -> list[Any]:
            return list(runner.run(user_id="ann", session_id="s", new_message=message("one")))

        assert "1 of 3" == (await asyncio.to_thread(run))[-1].content.parts[0].text


def test_the_example_prints_what_its_page_says(tmp_path: Path) -> None:
    """Without a key."""
    assert "2 things so far.\nfound: My cat is called Tom." in printed("adk", tmp_path)
