"""One process at a time compacts a thread; what one that died has begun is ended by the next."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from memory_engine import CompactionPolicy, Engine
from memory_engine.errors import NothingToCompact
from tests.conversations import NEVER, SMALL, opened, say, turns, types
from tests.scripted_compactors import Held, Scripted

COMPACTING = """
import asyncio, sys
from tests.conversations import NEVER, opened
from tests.scripted_compactors import Held

async def main():
    held = Held()
    async with opened(held, NEVER, sys.argv[1]) as engine:
        compacting = asyncio.ensure_future(engine.thread("t").compact())
        await held.entered.wait()
        print("at work", flush=True)
        await compacting

asyncio.run(main())
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel keeps no such locks")
DONE = ["compaction_started", "compaction_completed"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return str(tmp_path / "m.db")


@pytest.fixture
def held() -> Held:
    """The compactor of the first engine."""
    return Held()


@pytest.fixture
async def one(path: str, held: Held) -> AsyncIterator[Engine]:
    """An engine whose thread `t` has five messages."""
    async with opened(held, NEVER, path) as engine:
        await say(await engine.create_thread("t"), turns(5))
        yield engine
        held.release.set()


async def compacting(stack: AsyncExitStack, path: str, policy: CompactionPolicy) -> tuple[Engine, Scripted]:
    """One engine more on the file, with a compactor that answers at once."""
    scripted = Scripted()
    return await stack.enter_async_context(opened(scripted, policy, path)), scripted


def killed_at_work(path: str) -> None:
    """Let a process die while it compacts the thread."""
    with Popen([sys.executable, "-c", COMPACTING, path], stdout=PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()


@linux
async def test_a_compaction_that_is_due_is_left_to_the_process_that_is_at_it(
    one: Engine, held: Held, path: str
) -> None:
    """However many events come meanwhile, nobody else pays a model for it; the events are there after the summary."""
    async with AsyncExitStack() as stack:
        other, scripted = await compacting(stack, path, SMALL)
        report = asyncio.ensure_future(one.thread("t").compact())
        await held.entered.wait()
        await say(other.thread("t"), turns(3, start=6))
        assert [] == scripted.given
        held.release.set()
        await report
        assert DONE == await types(other.thread("t"))


@linux
async def test_what_is_asked_for_waits_for_the_process_that_is_at_it(one: Engine, held: Held, path: str) -> None:
    """A second compaction by hand begins when the first has ended, and sees what it has left."""
    async with AsyncExitStack() as stack:
        other, scripted = await compacting(stack, path, NEVER)
        report = asyncio.ensure_future(one.thread("t").compact())
        await held.entered.wait()
        second = asyncio.ensure_future(other.thread("t").compact())
        held.release.set()
        await report
        with pytest.raises(NothingToCompact):
            await second
        assert ([], DONE) == (scripted.given, await types(one.thread("t")))


@linux
async def test_what_a_killed_process_began_is_ended_by_the_next(one: Engine, path: str) -> None:
    """The next compaction of a process that was there all the time records it as abandoned before its own begins."""
    async with AsyncExitStack() as stack:
        other, _ = await compacting(stack, path, NEVER)
        await other.thread("t").state()
        killed_at_work(path)
        await other.thread("t").compact()
        assert ["compaction_started", "compaction_abandoned", *DONE] == await types(other.thread("t"))
        assert [] == [report for report in await one.verify() if not report.ok]


@linux
async def test_a_compaction_under_way_is_not_taken_for_abandoned(one: Engine, held: Held, path: str) -> None:
    """A process that opens the thread in the middle of it leaves it alone."""
    report = asyncio.ensure_future(one.thread("t").compact())
    await held.entered.wait()
    async with AsyncExitStack() as stack:
        other, _ = await compacting(stack, path, NEVER)
        await say(other.thread("t"), turns(1, start=6))
        assert ["compaction_started"] == await types(other.thread("t"))
        held.release.set()
        await report
        assert DONE == await types(other.thread("t"))
