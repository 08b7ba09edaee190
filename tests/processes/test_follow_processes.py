"""A log is followed while other processes write to it: nothing missed, nothing twice, in order."""

import asyncio
import sys
from asyncio.subprocess import Process
from pathlib import Path

import memory_engine
from memory_engine import EngineConfig
from memory_engine.thread import handle_of

ROOT = Path(__file__).resolve().parents[2]
WRITER = """
import asyncio, sys, memory_engine
from memory_engine import UserMessage

async def main(path, name, count):
    async with memory_engine.open(path) as engine:
        for n in range(count):
            await engine.thread("t").dispatch(UserMessage(content=f"{name}{n}"), event_id=f"{name}{n}")

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
COUNT = 60


async def writer(path: str, name: str, count: int = COUNT) -> Process:
    """A process that writes events, each a commit, whose ids bear its name."""
    return await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, path, name, str(count), cwd=ROOT)


async def test_two_processes_write_and_a_third_misses_nothing(tmp_path: Path) -> None:
    """From the head and from the middle, beside commits of its own engine."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine, memory_engine.open(path, config=ONLY_READS) as reader:
        thread = await engine.create_thread("t")
        processes = [await writer(path, name) for name in "ab"]
        everything = [thread.follow(poll_s=(0.001, 0.02)), reader.thread("t").follow(poll_s=(0.001, 0.02))]
        seen: list[list[tuple[int, str]]] = [[], []]
        for at, events in enumerate(everything):
            while len(seen[at]) < 2 * COUNT:
                recorded = await anext(events)
                seen[at].append((recorded.seq, recorded.id))
        assert [0, 0] == [await process.wait() for process in processes]
        assert [(e.seq, e.id) async for e in thread.events()] == seen[0] == seen[1]
        assert list(range(1, 2 * COUNT + 1)) == [seq for seq, _ in seen[0]]
        middle = reader.thread("t").follow(after=COUNT)
        assert [event_id for _, event_id in seen[0][COUNT:]] == [(await anext(middle)).id for _ in range(COUNT)]


async def test_a_writer_that_is_killed_leaves_a_log_that_goes_on(tmp_path: Path) -> None:
    """What it has committed comes, and then what the next one commits."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        await engine.create_thread("t")
        events = engine.thread("t").follow(poll_s=(0.001, 0.02))
        first = await writer(path, "a", 1_000_000)  # it is killed long before it is done
        seqs = [(await anext(events)).seq for _ in range(5)]
        first.kill()
        await first.wait()
        second = await writer(path, "b")
        assert 0 == await second.wait()
        last = await handle_of(engine.thread("t")).last_seq()
        seqs += [(await anext(events)).seq for _ in range(last - 5)]
        assert list(range(1, last + 1)) == seqs


ONLY_READS = EngineConfig(read_only=True)
