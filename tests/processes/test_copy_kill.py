"""A copy whose process is killed: run again, it ends right."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage
from memory_engine.engine import kernel_of
from tests.command_line import Run

ROOT = Path(__file__).resolve().parents[2]
COPIER = """
import asyncio, os, signal, sys, memory_engine
from memory_engine import EngineConfig

async def main(source, target, calls):
    left = [calls]
    def told(*_):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    async with memory_engine.open(source, config=EngineConfig(read_only=True)) as here:
        async with memory_engine.open(target) as there:
            await here.copy_to(there, progress=told)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
QUIET = EngineConfig(compaction=memory_engine.CompactionPolicy(enabled=False))


async def killed(source: str, target: str, calls: int) -> None:
    """A process that copies, and is killed with its nth word of progress."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", COPIER, source, target, str(calls), cwd=ROOT)
    assert -signal.SIGKILL == await process.wait()


async def heads(path: str) -> dict[str, str]:
    """The hash of each thread's head."""
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        return {info.id: info.head_hash for info in await engine.threads()}


@pytest.fixture
def target(tmp_path: Path) -> str:
    """The path of a new store."""
    return str(tmp_path / "target.db")


async def test_a_killed_copy_goes_on_where_it_was(tmp_path: Path, target: str) -> None:
    """Killed again and again: within a thread, between threads, while it verifies. Nothing is there twice."""
    source = str(tmp_path / "source.db")
    async with memory_engine.open(source, config=QUIET) as engine:
        for name in "abc":
            thread = await engine.create_thread(name)
            await thread.dispatch_all([UserMessage(content=f"{name}{n}") for n in range(1_100)])
        await (await engine.thread("b").fork(700, thread_id="fork")).dispatch(UserMessage(content="on its own"))
        await (await engine.create_thread("gone")).admin.delete()
    for calls in (2, 3, 5, 14):  # three pages and a word for each of the first threads
        await killed(source, target, calls)
    async with (
        memory_engine.open(source, config=EngineConfig(read_only=True)) as here,
        memory_engine.open(target) as there,
    ):
        report = await here.copy_to(there)
        assert (True, 4, 4_001) == (report.ok, report.threads, report.events)
        assert ["gone"] == list(await kernel_of(there).store.taken())
        seqs = [recorded.seq async for recorded in there.thread("b").events()]
        assert list(range(1, 1_101)) == seqs
    assert await heads(source) == await heads(target)


def test_the_command_verifies_what_was_copied(run: Run, tmp_path: Path, target: str) -> None:
    """The same files by the command line: exit code 0, and `verify` agrees."""
    source = str(tmp_path / "source.db")

    async def fill() -> None:
        async with memory_engine.open(source) as engine:
            await (await engine.create_thread("t")).dispatch(UserMessage(content="Hello"))
        await killed(source, target, 1)

    asyncio.run(fill())
    assert 0 == run("copy", source, target)[0]
    assert 0 == run("verify", "--db", target)[0]
