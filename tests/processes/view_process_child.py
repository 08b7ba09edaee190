"""One of several processes at work on the same views: `python -m tests.processes.view_process_child PATH WHO ROUNDS`.

It waits for a line of input to begin, and prints what was acknowledged as one line of JSON.
"""

import asyncio
import json
import sys
from contextlib import suppress

import memory_engine
from memory_engine import Destination, Engine, MemoryShared
from memory_engine.errors import AnotherQuestionOpen, ThreadExists
from tests.processes.view_crash_child import CONFIG


async def talk(engine: Engine, name: str) -> None:
    """A turn of a conversation that others talk in too: whoever is overtaken asks again."""
    conversation = engine.thread("t").conversation
    while True:
        await conversation.prepare_messages(f"question {name}?")
        try:
            await conversation.finalize_cycle(f"question {name}?", f"answer {name}")
        except AnotherQuestionOpen:
            continue
        return


async def work(engine: Engine, who: str, rounds: int) -> dict[str, list[str]]:
    """Change what the others change."""
    thread, user = engine.thread("t"), engine.user("u1", tenant_id="acme")
    agent = engine.agent("a", tenant_id="acme")
    said: dict[str, list[str]] = {"own": [], "cached": [], "remembered": [], "exchange": [], "sent": []}
    for n in range(rounds):
        name = f"{who}-{n}"
        await user.preferences.update("shared", name)
        await user.preferences.update(f"own {name}", n)
        said["own"].append(f"own {name}")
        await talk(engine, name)
        said["exchange"].append(name)
        await thread.tool_cache.add("look", {"name": name}, f"result {name}", 1_000)
        await thread.tool_cache.lookup("look", {"name": name})
        said["cached"].append(name)
        await agent.memory.append("episodic", name)
        said["remembered"].append(name)
        await thread.dispatch(
            MemoryShared(destination=Destination("agent", "b", "acme"), layer="episodic", content=f"sent {name}")
        )
        await thread.views.delivered()
        said["sent"].append(f"sent {name}")
    await engine.settle()
    return said


async def main(path: str, who: str, rounds: str) -> None:
    """Open the file, wait for the word, work, and tell."""
    async with memory_engine.open(path, config=CONFIG) as engine:
        with suppress(ThreadExists):
            await engine.create_thread("t", user_id="u1", tenant_id="acme")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        sys.stdout.write(json.dumps(await work(engine, who, int(rounds))) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
