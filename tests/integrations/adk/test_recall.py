"""What sessions give an agent's model of the user's other sessions."""

from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types

from memory_engine import Engine
from memory_engine.integrations.adk import MemoryEngineSessionService
from tests.integrations.recalls import DEPOT, RecallContract, Turn


class Program(BaseLlm):
    """Calls its tool some times, answers, and keeps what it is given."""

    left: int
    seen: list[list[str]]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """One answer."""
        self.seen.append([said(part) for content in llm_request.contents for part in content.parts or ()])
        self.left -= 1
        call = types.Part(function_call=types.FunctionCall(name="depot", args={}))
        yield LlmResponse(
            content=types.Content(role="model", parts=[call if self.left >= 0 else types.Part(text="Noted.")])
        )


def said(part: types.Part) -> str:
    """The text of a part, or its call or result."""
    return part.text or str(part.function_call or part.function_response)


async def talk(engine: Engine, turn: Turn) -> list[list[str]]:
    """A run of an agent in the app that the turn names as its agent."""

    async def depot() -> str:
        """What the depot holds."""
        for one in turn.meanwhile:
            await talk(engine, one)
        return DEPOT

    sessions = MemoryEngineSessionService(engine, tenant_id=turn.tenant, **turn.options)
    model = Program(model="program", left=turn.calls, seen=[])
    agent = LlmAgent(name="clerk", model=model, tools=[depot], before_model_callback=sessions.show_recall)
    runner = Runner(app_name=turn.agent or "shop", agent=agent, session_service=sessions, auto_create_session=True)
    message = types.Content(role="user", parts=[types.Part(text=turn.text)])
    async for _ in runner.run_async(user_id=turn.user, session_id=turn.thread, new_message=message):
        pass
    return model.seen


async def test_a_model_is_given_what_its_user_said_elsewhere() -> None:
    """And nobody else's words, nor those of another app."""
    await RecallContract(talk=talk, has_nobody=False).check()
