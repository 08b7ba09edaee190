"""Search across processes: one file, several processes, and processes that die at any moment."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import memory_engine
from memory_engine import Engine, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.testing import HashEmbedder
from tests.depth import DEEP
from tests.recall_samples import contents

ROOT = Path(__file__).resolve().parents[2]
LIVES, FILES = (6, 1_500) if DEEP else (3, 500)
LIFE_S = (0.2, 0.6)
MOMENT_S = 0.02


async def child(path: Path, name: str, count: int) -> asyncio.subprocess.Process:
    """A process that dispatches to the file."""
    arguments = ("-m", "tests.processes.recall_child", str(path), name, str(count))
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, cwd=ROOT)


async def check(engine: Engine, acknowledged: set[str]) -> None:
    """Every acknowledged message is found, every passage has its vector, and the index is what the log says."""
    thread = engine.thread("t")
    await thread.admin.prepare_search()
    assert 0 == (await thread.search("parcel")).waiting
    for name in random.sample(sorted(acknowledged), min(10, len(acknowledged))):
        assert f"parcel {name} left the depot" == (await thread.search(f"parcel {name}", limit=1))[0].text
    kept = await contents(thread)
    vectors = await kernel_of(engine).store.passages.vectors("t", HashEmbedder(32).name, 0)
    assert len(kept) - 1 == sum(len(rows.places) for rows in vectors)
    await thread.replay.rebuild()
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


async def test_killed_amid_bringing_documents_none_that_was_reported_is_missing(tmp_path: Path) -> None:
    """Those that came are whole and found; brought again, each comes once, and the index is what the log says."""
    path, folder = tmp_path / "m.db", tmp_path / "folder"
    folder.mkdir()
    for n in range(FILES):
        (folder / f"{n:04}.txt").write_text(f"parcel n{n} left the depot. " * (1 + n % 40))
    for _ in range(LIVES):
        process = await child(path, str(folder), 0)
        assert process.stdout is not None
        while int(await process.stdout.readline()) < random.randrange(FILES):
            pass
        await asyncio.sleep(random.uniform(0, MOMENT_S))  # the moment of the kill is the test
        process.kill()
        told = (await process.stdout.read()).decode().split("\n")[:-1]
        await process.wait()
        async with memory_engine.open(str(path)) as engine:
            documents = engine.tenant("acme").documents
            there = {Path(one.id).stem for one in await documents.list()}
            done = range(int(told[-1]) if told else 1)
            assert set() == {f"{n:04}" for n in done} - there
            for n in random.sample(done, min(10, len(done))):
                assert f"n{n} " in (await documents.search(f"parcel n{n}", limit=1))[0].text
    async with memory_engine.open(str(path)) as engine:
        tenant = engine.tenant("acme")
        await tenant.documents.ingest([folder])
        assert FILES + 1 == len(await tenant.documents.list()) == (await tenant.info()).events
        thread = engine.thread(tenant.id)
        kept = await contents(thread)
        await thread.replay.rebuild()
        assert kept == await contents(thread)


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
