"""The process that test_view_crash kills: `python -m tests.processes.view_crash_child PATH SEED LIVES`.

As in crash_child a server forks a child for each life. The child works on views: what it says is one word for
what it did and one for what that was about, after the call has returned. After 1 to 90 lines the server kills it.
"""

import asyncio
import json
import os
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress

import memory_engine
from memory_engine import Engine, EngineConfig, SessionStarted, Thread
from memory_engine.errors import ThreadExists
from memory_engine.events import PlaybookCall
from memory_engine.runtime.config import ConversationLimits
from memory_engine.views.screen.view import ProactiveTool
from tests.processes.lives import one_life

STAGES = {
    "": 90,
    "written": 3,
    "preferences": 1,
    "playbook": 3,
    "exchange": 3,
    "shared": 4,
    "agent_md": 2,
    "remembered": 30,
    "screen": 30,
}
"""Where children are killed, by turns: soon after a word that they say (or any), and how often they say it before."""
CONFIG = EngineConfig(
    conversation=ConversationLimits(exchanges=3, exchanges_kept=1, summary_bytes_max=600, summary_bytes_target=400),
    scratchpad_snippets_max=8,
)
Work = Callable[[Engine, Thread, str, int], Awaitable[None]]


def say(kind: str, about: str) -> None:
    """One write of one line: whole in the pipe, or not there."""
    os.write(1, f"{kind} {about}\n".encode())


async def promote(engine: Engine, thread: Thread, name: str, n: int) -> None:
    """A snippet, and its rise to the user or the tenant."""
    snippet = await thread.scratchpad.write(f"Finding {name}.", event_id=f"write/{name}")
    say("written", f"write/{name}")
    target = "preferences" if n % 2 else "agent_md"
    report = await thread.promotion.request(snippet.id, target=target)  # type: ignore[arg-type]
    if report.promoted:
        say(target, name)


async def please(engine: Engine, thread: Thread, name: str, n: int) -> None:
    """A flow that becomes a playbook."""
    calls = [PlaybookCall("look", {"n": n})]
    await thread.views.flows.completed(f"flow {n % 3}", user_query=f"query {name}", tool_calls=calls, flow_id=name)
    await thread.views.flows.feedback(True, flow_id=name)
    say("playbook", name)


async def talk(engine: Engine, thread: Thread, name: str, n: int) -> None:
    """A turn, and what it pushes out of the live exchanges."""
    question = f"question {name}?"
    await thread.conversation.prepare_messages(question)
    await thread.conversation.finalize_cycle(question, f"answer {name} " + "word " * (40 * (n % 7)))
    say("exchange", name)


async def remember(engine: Engine, thread: Thread, name: str, n: int) -> None:
    """An entry of the agent's memory, compacted now and then."""
    memory = engine.agent("a", tenant_id="acme").memory
    await memory.append("episodic" if n % 2 else "working", name)
    say("remembered", name)
    if n % 5 == 4:
        await memory.compact("episodic" if n % 2 else "working", keep_last=3)


async def share(engine: Engine, thread: Thread, name: str, n: int) -> None:
    """An entry for another agent's memory."""
    if n == 0:
        await engine.agent("a", tenant_id="acme").share_with("b", layers=["episodic"], write=True)
    await engine.agent("b", tenant_id="acme").shared("a").append("episodic", f"shared {name}")
    say("shared", name)


async def look(engine: Engine, thread: Thread, name: str, n: int) -> None:
    """A new screen, and a tool's result that is cached."""
    await thread.dispatch(SessionStarted(session_id=name))
    told = await thread.screen.inject(f"screen {name}", [ProactiveTool(tool="see", result=name, duration=2)])
    if told:
        say("screen", name)

    async def call() -> str:
        return f"result {name}"

    found = await thread.tool_cache.cached_call("look", {"n": n % 4}, call, duration=3)
    say("cached", name if not found.hit else "")


WORK: tuple[Work, ...] = (promote, please, talk, remember, share, look)


async def live(path: str, life: int) -> None:
    """Work until killed: each kind of work by a task of its own."""
    async with memory_engine.open(path, config=CONFIG) as engine:
        with suppress(ThreadExists):
            await engine.create_thread("t", user_id="u1", tenant_id="acme")
        say("open", "")
        await asyncio.gather(*(again(work, engine, life) for work in WORK))


async def warm(path: str) -> None:
    """Load everything once, so that each life begins with its work."""
    async with memory_engine.open(path, config=CONFIG) as engine:
        thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
        for work in WORK:
            await work(engine, thread, work.__name__, 0)


async def again(work: Work, engine: Engine, life: int) -> None:
    """One kind of work without end."""
    n = 0
    while True:
        await work(engine, engine.thread("t"), f"{work.__name__}-{life}-{n}", n)
        n += 1


def told(path: str, life: int, dice: random.Random) -> list[list[str]]:
    """What the child of one life said: a word for what it did, and what that was about."""
    stage = tuple(STAGES)[life % len(STAGES)]
    return [line.split(" ", 1) for line in one_life(lambda: live(path, life), dice, STAGES[stage], stage)]


def main(path: str, seed: str, lives: str) -> None:
    """Serve that many lives."""
    dice = random.Random(seed)
    out = os.dup(1)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - what it says is no life's
        os.dup2(nowhere.fileno(), 1)
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(warm(f"{folder}/warm.db"))
        os.dup2(out, 1)
    for life in range(int(lives)):
        sys.stdout.write(json.dumps(told(path, life, dice)) + "\n")
        sys.stdout.flush()
        if sys.stdin.readline() == "":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
