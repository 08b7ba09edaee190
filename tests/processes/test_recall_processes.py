"""Search across processes: one file, several processes, and processes that die at any moment."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import memory_engine
from memory_engine import Engine, UserMessage
from memory_engine.testing import HashEmbedder
from tests.recall_samples import contents

ROOT = Path(__file__).resolve().parents[2]
LIVES = 6
LIFE_S = (0.2, 0.6)


async def child(path: Path, name: str, count: int) -> asyncio.subprocess.Process:
    """A process that dispatches to the file."""
    arguments = ("-m", "tests.processes.recall_child", str(path), name, str(count))
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, cwd=ROOT)


async def check(engine: Engine, acknowledged: set[str]) -> None:
    """Every acknowledged message is found, every passage has its vector, and the index is what the log says."""
    thread = engine.thread("t")
    await thread.prepare_search()
    assert 0 == (await thread.search("parcel")).waiting
    for name in random.sample(sorted(acknowledged), min(10, len(acknowledged))):
        assert f"parcel {name} left the depot" == (await thread.search(f"parcel {name}", limit=1))[0].text
    kept = await contents(thread)
    vectors = await engine.store.passages.vectors("t", HashEmbedder(32).name, 0)
    assert len(kept) - 1 == sum(len(rows.places) for rows in vectors)
    await thread.rebuild()
    assert kept == await contents(thread)


async def test_killed_between_an_event_and_its_vector_nothing_is_lost(tmp_path: Path) -> None:
    """Killed at random moments, whatever was acknowledged is found afterwards, and gets its vector."""
    path = tmp_path / "m.db"
    acknowledged: set[str] = set()
    for life in range(LIVES):
        process = await child(path, f"life{life}", 100_000)
        assert process.stdout is not None
        await process.stdout.readline()  # it works
        acknowledged.add(f"life{life}x0")
        await asyncio.sleep(random.uniform(*LIFE_S))  # its life: the moment of the kill is the test
        process.kill()
        told = (await process.stdout.read()).decode().split("\n")
        acknowledged.update(f"life{life}x{n}" for n in told[:-1])
        await process.wait()
        async with memory_engine.open(str(path), embedder=HashEmbedder(32)) as engine:
            await check(engine, acknowledged)


async def test_two_processes_dispatch_and_search_one_thread(tmp_path: Path) -> None:
    """What one process commits the other finds at once, whichever of them had an index first."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path), embedder=HashEmbedder(32)) as engine:
        thread = await engine.create_thread("t")
        other = await child(path, "other", 60)
        assert other.stdout is not None
        acknowledged: set[str] = set()
        mine = 0
        while told := (await other.stdout.readline()).decode().strip():
            acknowledged.add(f"otherx{told}")
            name = f"otherx{told}"
            assert f"parcel {name} left the depot" == (await thread.search(f"parcel {name}", limit=1))[0].text
            await thread.dispatch(UserMessage(content=f"parcel minex{mine} left the depot"))
            acknowledged.add(f"minex{mine}")
            mine += 1
        assert 0 == await other.wait()
        assert 120 == len(acknowledged)
        await check(engine, acknowledged)
