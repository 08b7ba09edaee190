"""An agent of Pydantic AI on a memory; needs the extra `pydantic-ai`. The second run goes on."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.test import TestModel

import memory_engine
from memory_engine.integrations.pydantic_ai import MemoryEngineConversationStore, MemoryEngineHistory


async def main() -> None:
    """Two turns; what the model is given grows by what was said before."""
    model = TestModel(custom_output_text="I have read it.")  # the place of a model, which this example does without
    async with memory_engine.open("pydantic_ai.db") as engine:
        store = MemoryEngineConversationStore(engine, user_id="ann")
        agent = Agent(model, capabilities=[MemoryEngineHistory(store, max_tokens=8_000)])
        for text in ("My cat is called Tom.", "Do you know my cat?"):
            conversation = await store.load("chat") or Conversation(conversation_id="chat")
            result = await agent.run(text, conversation=conversation)
            await store.save(result)
            print(f"{text} -> {result.output} The conversation has {len(result.all_messages())} messages.")


if __name__ == "__main__":
    asyncio.run(main())
