"""An agent of ADK on a memory; needs the extra `adk`, and no key: a small program takes the place of a model.

Run it again: the second run goes on where the first one ended, even if that one was killed.
"""

import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

import memory_engine
from memory_engine.integrations.adk import MemoryEngineMemoryService, MemoryEngineSessionService


class SmallProgram(BaseLlm):
    """The place of a model: it calls the tool, then says what that gave."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """One answer."""
        del stream
        last = (llm_request.contents[-1].parts or [types.Part()])[0]
        if last.function_response is not None:
            part = types.Part(text=f"Noted: {(last.function_response.response or {})['noted']} things so far.")
        else:
            part = types.Part(function_call=types.FunctionCall(name="note", args={"what": last.text}))
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=1)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


def note(what: str, tool_context: ToolContext) -> dict[str, int]:
    """Note something about the user, for all of their sessions."""
    notes = [*tool_context.state.get("user:notes", []), what]
    tool_context.state["user:notes"] = notes
    return {"noted": len(notes)}


async def main() -> None:
    """Two turns, then what the memory makes of them."""
    async with memory_engine.open("adk.db") as engine:
        sessions, memory = MemoryEngineSessionService(engine), MemoryEngineMemoryService(engine)
        agent = LlmAgent(name="clerk", model=SmallProgram(model="small"), tools=[note])
        runner = Runner(app_name="shop", agent=agent, session_service=sessions, memory_service=memory)
        session = await sessions.get_session(app_name="shop", user_id="ann", session_id="chat")
        if session is None:
            session = await sessions.create_session(app_name="shop", user_id="ann", session_id="chat")
        for text in ("My cat is called Tom.", "I live in Rome."):
            said = types.Content(role="user", parts=[types.Part(text=text)])
            async for event in runner.run_async(user_id="ann", session_id=session.id, new_message=said):
                if event.is_final_response() and event.content and event.content.parts:
                    print(f"{text} -> {event.content.parts[0].text}")
        found = await sessions.get_session(app_name="shop", user_id="ann", session_id="chat")
        if found is not None:
            await memory.add_session_to_memory(found)
        response = await memory.search_memory(app_name="shop", user_id="ann", query="what is the cat called?")
        for one in response.memories[:1]:
            print(f"found: {(one.content.parts or [types.Part()])[0].text}")


if __name__ == "__main__":
    asyncio.run(main())
