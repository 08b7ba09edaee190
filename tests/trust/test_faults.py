"""The disk fails, waits or takes the process along at a point of the store's work; nothing acknowledged is lost."""

import asyncio
import errno
import sys
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import StorageFailed
from memory_engine.storage.sqlite import SQLiteStore
from memory_engine.testing import Faults, disk_error, disk_full

POINTS = ("lock", "begin", "write", "commit")
FAULTS = [
    *[(point, when, disk_full()) for point in POINTS for when in ("before", "after")],
    ("commit", "before", disk_error()),
    ("lock", "before", OSError(errno.ENOLCK, "no locks available")),
]


@pytest.mark.parametrize(("point", "when", "error"), FAULTS)
async def test_a_disk_that_fails_costs_no_acknowledged_event(
    tmp_path: Path, point: str, when: str, error: Exception
) -> None:
    """The sender gets a typed error and the store takes no more; after opening again a retry settles it."""
    path, faults = str(tmp_path / "m.db"), Faults()
    async with memory_engine.open(await SQLiteStore.open(path, faults=faults)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="kept"), event_id="1")
        faults.fail(point, error, when=when)  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(StorageFailed):
                await thread.dispatch(UserMessage(content="unknown"), event_id="2")
        assert "kept" == next(chunk.text for chunk in (await thread.state()).chunks())
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        was_written = (point, when) == ("commit", "after")
        assert 1 + was_written == (await thread.info()).events
        assert 2 == (await thread.dispatch(UserMessage(content="unknown"), event_id="2")).seq
        assert (await thread.verify()).ok


async def test_a_lock_that_fails_keeps_a_store_closed(tmp_path: Path) -> None:
    """With a typed error, and the file opens as soon as locks are to be had."""
    faults = Faults()
    faults.fail("lock", OSError(errno.ENOLCK, "no locks available"))
    with pytest.raises(StorageFailed):
        await SQLiteStore.open(str(tmp_path / "m.db"), faults=faults)
    await (await SQLiteStore.open(str(tmp_path / "m.db"), faults=faults)).close()


async def test_a_checkpoint_that_fails_is_told(tmp_path: Path) -> None:
    """To whoever asked for it."""
    faults = Faults()
    async with memory_engine.open(await SQLiteStore.open(str(tmp_path / "m.db"), faults=faults)) as engine:
        await (await engine.create_thread("t")).dispatch(UserMessage(content="kept"))
        faults.fail("checkpoint", disk_error())
        with pytest.raises(StorageFailed):
            await engine.flush()


async def test_a_slow_disk_holds_up_nobody_else(tmp_path: Path) -> None:
    """Reading goes on while a commit waits for the disk."""
    faults = Faults()
    async with memory_engine.open(await SQLiteStore.open(str(tmp_path / "m.db"), faults=faults)) as engine:
        thread = await engine.create_thread("t")
        faults.reached.clear()
        faults.delay("commit", 0.1)
        slow = asyncio.ensure_future(thread.dispatch(UserMessage(content="slow")))
        while not faults.reached["commit"]:  # noqa: ASYNC110 - it is another thread that counts
            await asyncio.sleep(0)
        await engine.threads()
        assert 1 == (await slow).seq


CHILD = """
import asyncio, os, sys
import memory_engine
from memory_engine import UserMessage
from memory_engine.storage.sqlite import SQLiteStore
from memory_engine.testing import Faults

async def live(path, point, when):
    faults = Faults()
    async with memory_engine.open(await SQLiteStore.open(path, faults=faults)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="kept"))
        faults.kill(point, when=when)
        await thread.dispatch(UserMessage(content="unknown"))
        await engine.flush()

for path in sys.argv[1:]:
    _, point, when = path.rsplit(".", 2)
    child = os.fork()
    if child == 0:
        asyncio.run(live(path, point, when))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


async def test_a_process_that_dies_at_any_point_leaves_a_whole_log(tmp_path: Path) -> None:
    """The event is there from its commit on."""
    paths = [f"{tmp_path}/m.{point}.{when}" for point in (*POINTS, "checkpoint") for when in ("before", "after")]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, *paths, stdout=pipe)
    told, _ = await child.communicate()
    assert ["9"] * len(paths) == told.decode().split()
    for path in paths:
        async with memory_engine.open(path) as engine:
            is_written = path.endswith(("commit.after", "checkpoint.before", "checkpoint.after"))
            assert 1 + is_written == (await engine.thread("t").info()).events
            assert (await engine.thread("t").verify()).ok
