"""The brief in front of the contents that an agent of ADK gives to its model."""

from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.agents.llm_agent import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types

import memory_engine
from memory_engine.integrations.adk import MARK, MemoryEngineSessionService

RULE = "Never touch the table ledger_2019 without asking me."
SEEN: list[list[str]] = []


class Program(BaseLlm):
    """Keeps what it is shown."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """One answer."""
        SEEN.append([content.parts[0].text for content in llm_request.contents])
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="Noted.")]))


async def test_an_agent_without_its_history_is_shown_the_brief() -> None:
    """In front of the newest message; the session keeps the talk alone."""
    SEEN.clear()
    async with memory_engine.open(":memory:") as engine:
        sessions = MemoryEngineSessionService(engine)
        agent = LlmAgent(
            name="clerk",
            model=Program(model="program"),
            include_contents="none",
            before_model_callback=sessions.show_brief,
        )
        runner = Runner(app_name="shop", agent=agent, session_service=sessions, auto_create_session=True)
        for text in (RULE, "How many parcels are in the depot of Graz?"):
            said = types.Content(role="user", parts=[types.Part(text=text)])
            async for _ in runner.run_async(user_id="ann", session_id="s", new_message=said):
                pass
        [info] = await engine.threads(metadata={MARK: "session"})
        assert [RULE] == [one.text for one in await engine.thread(info.id).brief.read() if one.kind == "forbids"]
    first, (brief, question) = SEEN
    assert [RULE] == first
    assert brief.endswith(f"\n- {RULE}")
    assert "How many parcels are in the depot of Graz?" == question
