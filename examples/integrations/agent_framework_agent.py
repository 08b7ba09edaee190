"""An agent of Microsoft's Agent Framework on a memory; needs the extra `agent-framework`. The second run goes on."""

import asyncio
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, FunctionInvocationLayer, Message

import memory_engine
from memory_engine.integrations.agent_framework import MemoryEngineHistoryProvider


class Reader(FunctionInvocationLayer, BaseChatClient):
    """The place of a model, which this example does without."""

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> ChatResponse:
        said = f"I have read {len(messages)} messages."
        return ChatResponse(messages=[Message("assistant", [said])])


async def main() -> None:
    """Two turns; what the model is given grows by what was said before."""
    async with memory_engine.open("agent_framework.db") as engine:
        agent = Agent(Reader(), context_providers=[MemoryEngineHistoryProvider(engine, user_id="ann")])
        session = agent.create_session(session_id="chat")
        for text in ("My cat is called Tom.", "Do you know my cat?"):
            print(f"{text} -> {(await agent.run(text, session=session)).text}")


if __name__ == "__main__":
    asyncio.run(main())
