"""A session of the Claude Agent SDK in a memory; needs the extra `claude-agent`. The second run goes on.

Without a key there is no model: a session's entries are written as the SDK writes them.
"""

import asyncio
import uuid

from claude_agent_sdk import project_key_for_directory

import memory_engine
from memory_engine.integrations.claude_agent import MemoryEngineSessionStore


async def main() -> None:
    """Two prompts of one session."""
    key = {"project_key": project_key_for_directory("."), "session_id": str(uuid.uuid5(uuid.NAMESPACE_URL, "cat"))}
    async with memory_engine.open("claude_agent.db") as engine:
        store = MemoryEngineSessionStore(engine, user_id="ann")
        parent = None
        for text in ("My cat is called Tom.", "Do you know my cat?"):
            entry = {"type": "user", "uuid": str(uuid.uuid4()), "parentUuid": parent}
            await store.append(key, [{**entry, "message": {"role": "user", "content": text}}])  # the SDK does this
            parent = entry["uuid"]
            loaded = await store.load(key)
            print(f"{text} The session has {len(loaded or [])} entries.")


if __name__ == "__main__":
    asyncio.run(main())
