"""Several processes on one file: views lose nothing of either, and facts arrive once whoever carries them."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

import msgspec

import memory_engine
from memory_engine import Engine
from memory_engine import events as e
from memory_engine.events import Destination
from tests.conversations import log
from tests.processes.test_view_crash import ROOT, check_facts, rebuilt, views
from tests.processes.view_crash_child import CONFIG

Said = dict[str, list[str]]
ROUNDS = 12


async def at_once(path: str, count: int) -> list[Said]:
    """Let processes work on a file at the same time; what each was told."""
    peers = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.processes.view_process_child",
            path,
            who,
            str(ROUNDS),
            stdin=PIPE,
            stdout=PIPE,
            cwd=ROOT,
        )
        for who in "xyz"[:count]
    ]
    for peer in peers:
        assert peer.stdout is not None
        assert b"ready\n" == await peer.stdout.readline()
    told = await asyncio.gather(*(peer.communicate(b"go\n") for peer in peers))
    return [msgspec.json.decode(said, type=Said) for said, _ in told]


async def test_two_processes_change_the_same_views(tmp_path: Path) -> None:
    """Preferences, exchanges, tool cache, memory and outbox, changed at once, hold all that was acknowledged, once."""
    path = str(tmp_path / "m.db")
    told = await at_once(path, 2)
    every = {kind: [name for said in told for name in said[kind]] for kind in told[0]}
    async with memory_engine.open(path, config=CONFIG) as engine:
        await engine.settle()
        logs = {info.id: await log(engine.thread(info.id)) for info in await engine.threads()}
        await check_facts(engine, logs)
        preferences = await engine.user("u1", tenant_id="acme").preferences.all()
        assert sorted(["shared", *every["own"]]) == sorted(preferences)
        finished = Counter(event.event.question for event in logs["t"] if isinstance(event.event, e.ExchangeFinished))
        assert dict.fromkeys([f"question {name}?" for name in every["exchange"]], 1) == finished
        entries = await engine.thread("t").tool_cache.entries()
        assert sorted(f"result {name}" for name in every["cached"]) == sorted(entry.result for entry in entries)
        assert {1} == {entry.hits for entry in entries}
        for agent, kind in (("a", "remembered"), ("b", "sent")):
            memory = engine.agent(agent, tenant_id="acme").memory
            assert sorted(every[kind]) == sorted(entry.content for entry in await memory.entries("episodic"))
        assert [] == [report.divergence for report in await engine.verify() if not report.ok]
        for thread_id in logs:
            assert await views(engine, thread_id) == await rebuilt(engine, thread_id)


async def changed(engine: Engine, n: int) -> None:
    """One change of each kind, by one of two engines."""
    await engine.user("u1").preferences.update(f"key {n}", n)
    await engine.thread("t").scratchpad.write(f"finding {n}")
    shared = e.MemoryShared(destination=Destination("agent", "b"), layer="episodic", content=f"sent {n}")
    await engine.thread("t").dispatch(shared)


async def test_a_view_is_rebuilt_while_others_write(tmp_path: Path) -> None:
    """What is committed between the reading of the log and the writing of the rows is in the rows."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as other:
        await one.create_thread("t", user_id="u1")

        async def write(engine: Engine, start: int) -> None:
            for n in range(start, start + 15):
                await changed(engine, n)

        async def rebuild() -> None:
            for _ in range(15):
                await one.thread("t").replay.rebuild()
                await asyncio.sleep(0)

        await asyncio.gather(write(one, 0), write(other, 100), rebuild())
        await asyncio.gather(one.settle(), other.settle())
    async with memory_engine.open(path) as engine:
        await engine.settle()
        assert [] == [report.divergence for report in await engine.verify() if not report.ok]
        assert 30 == len(await engine.agent("b").memory.entries("episodic"))
        assert 30 == len(await engine.user("u1").preferences.all())


async def test_what_another_process_forgot_is_gone_from_what_this_one_keeps(tmp_path: Path) -> None:
    """Indexes and texts that were made before are not searched with what was forgotten elsewhere."""
    path = str(tmp_path / "m.db")
    config = memory_engine.EngineConfig(follow_s=1e-9)
    async with memory_engine.open(path, config=config) as one, memory_engine.open(path, config=config) as other:
        agent = one.agent("a")
        await agent.memory.append("semantic", "the zyzzyva totals", key="totals")
        await agent.scratchpad.write("zyzzyva")
        assert 1 == len(await agent.memory.search(None, "zyzzyva"))
        assert 1 == len(await other.agent("a").memory.search(None, "zyzzyva"))
        ids = [event.id async for event in agent.events()]
        await other.agent("a").forget(event_ids=ids)
        assert [] == await agent.memory.search(None, "zyzzyva")
        assert [] == await agent.memory.search(None, "zyzzyva", mode="keyword")
        assert () == await agent.scratchpad.read()
