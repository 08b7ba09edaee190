"""The disk fails, waits or takes the process along at a point of the store's work; nothing acknowledged is lost."""

import asyncio
import errno
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, UserMessage
from memory_engine.administration.retention import RetentionRule
from memory_engine.core.records import StoredEvent
from memory_engine.errors import BackupFailed, EngineClosed, FileFailed, StorageFailed, StorageRefused
from memory_engine.replay.export.export import export
from memory_engine.storage.sqlite import SQLiteStore
from memory_engine.storage.sqlite.connection import Connection
from memory_engine.storage.sqlite.faults import Point
from memory_engine.testing import Faults, FaultyStore, disk_error, disk_full
from memory_engine.thread import handle_of
from tests.cancelling import assert_nobody_writes
from tests.patience import PATIENCE_S
from tests.scripted_compactors import Scripted

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
        assert (await thread.replay.verify()).ok


async def test_nobody_waits_for_the_end_of_a_pause_that_a_failed_disk_keeps(tmp_path: Path) -> None:
    """Only a write ends a pause, and none succeeds any more: who waits gets the error, before and after the failure."""
    faults = Faults()
    async with memory_engine.open(await SQLiteStore.open(str(tmp_path / "m.db"), faults=faults)) as engine:
        paused, other = await engine.create_thread("t"), await engine.create_thread("u")
        await paused.admin.pause()
        waits = asyncio.create_task(paused.dispatch(UserMessage(content="later")))
        await asyncio.sleep(0)
        faults.fail("commit", disk_full())
        with pytest.raises(StorageFailed):
            await other.dispatch(UserMessage(content="lost"))
        for write in (waits, paused.dispatch(UserMessage(content="later still"))):
            with pytest.raises(StorageFailed):
                await asyncio.wait_for(write, PATIENCE_S)
        assert 1 == (await paused.info()).events


class LateFinds(FaultyStore):
    """A store whose look-ups of ids wait for a gate."""

    gate: asyncio.Event

    async def find(self, thread_id: str, event_ids: Sequence[str]) -> Sequence[StoredEvent]:
        """Wait, then look."""
        await self.gate.wait()
        return await super().find(thread_id, event_ids)


async def test_nobody_waits_for_the_end_of_a_pause_in_an_engine_that_closes(tmp_path: Path) -> None:
    """A sender that is held up until the engine closes gets an error, and the engine closes."""
    store = LateFinds(await SQLiteStore.open(str(tmp_path / "m.db")))
    store.gate = asyncio.Event()
    store.gate.set()
    engine = await memory_engine.open(store)
    await (await engine.create_thread("t")).dispatch(UserMessage(content="kept"))
    fork, busy = await engine.thread("t").fork(1, thread_id="fork"), await engine.create_thread("u")
    await fork.admin.pause()
    store.gate.clear()
    waits = asyncio.create_task(fork.dispatch(UserMessage(content="later"), event_id="1"))
    hold = store.hold()
    written = asyncio.create_task(busy.dispatch(UserMessage(content="slow")))
    await hold.begun.wait()
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0.05)
    store.gate.set()
    await asyncio.sleep(0.05)
    hold.release()
    await asyncio.wait_for(closing, PATIENCE_S)
    with pytest.raises(EngineClosed):
        await asyncio.wait_for(waits, PATIENCE_S)
    assert 1 == (await written).seq


WRITES: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "an event": lambda engine: engine.thread("t").dispatch(UserMessage(content="more")),
    "a thread": lambda engine: engine.create_thread("u"),
    "an erasure": lambda engine: engine.thread("t").admin.erase(["1"]),
    "a deletion": lambda engine: engine.thread("t").admin.delete(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_transaction_that_is_interrupted_as_it_begins_is_not_left_open(
    tmp_path: Path, write: Callable[[Engine], Awaitable[object]]
) -> None:
    """Whatever begins it: nobody could write to the file any more, until the process ends."""
    path, faults = str(tmp_path / "m.db"), Faults()
    async with memory_engine.open(await SQLiteStore.open(path, faults=faults)) as engine:
        await (await engine.create_thread("t")).dispatch(UserMessage(content="kept"), event_id="1")
        faults.fail("begin", disk_full(), when="after")
        with pytest.raises(StorageFailed):
            await write(engine)
        assert_nobody_writes(path)


async def test_an_error_amid_a_query_holds_no_old_pages(tmp_path: Path) -> None:
    """Whoever keeps it would keep the query alive, also after closing, and nothing could be destroyed for good."""
    path = str(tmp_path / "m.db")

    def interrupted(raw: sqlite3.Connection) -> None:
        rows = raw.execute("SELECT type FROM sqlite_schema")
        rows.fetchone()
        raw.execute("SELECT * FROM nowhere")

    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        receipt = await thread.dispatch(UserMessage(content="My passport is 77412-Osterfeldt"))
        reader = Connection.reader(path, 0.0)
        with pytest.raises(StorageRefused) as kept:
            await reader.run(interrupted)
        await reader.close()
        assert (await thread.admin.erase([receipt.event_id])).is_done
        assert "nowhere" in str(kept.value)


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
            assert (await engine.thread("t").replay.verify()).ok


def beside_the_store(folder: Path) -> list[str]:
    """What stands in the folder but for the store's own files."""
    return sorted(file.name for file in folder.iterdir() if not file.name.startswith("m.db"))


@pytest.mark.parametrize("point", ["sync", "rename"])
async def test_a_backup_that_cannot_be_put_in_its_place_leaves_nothing(tmp_path: Path, point: Point) -> None:
    """Not under its name nor beside it; the store goes on, and the next try succeeds."""
    faults = Faults()
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="kept"))
        with faults.files():
            for error in (OSError(errno.EIO, "I/O error"), OSError(errno.ENOSPC, "No space left on device")):
                faults.fail(point, error)
                with pytest.raises(BackupFailed, match="copy"):
                    await engine.admin.backup(str(tmp_path / "copy"))
                assert [] == beside_the_store(tmp_path)
            assert 2 == (await thread.dispatch(UserMessage(content="more"))).seq
            assert 2 == (await engine.admin.backup(str(tmp_path / "copy"))).events
        assert ["copy"] == beside_the_store(tmp_path)


async def test_a_backup_whose_outcome_is_lost_is_whole(tmp_path: Path) -> None:
    """It is there, verifies, and is not written over."""
    faults = Faults()
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        await (await engine.create_thread("t")).dispatch(UserMessage(content="kept"))
        with faults.files():
            faults.fail("rename", OSError(errno.EIO, "I/O error"), when="after")
            with pytest.raises(BackupFailed):
                await engine.admin.backup(str(tmp_path / "copy"))
            with pytest.raises(FileExistsError):
                await engine.admin.backup(str(tmp_path / "copy"))
    async with memory_engine.open(str(tmp_path / "copy")) as engine:
        assert [True] == [report.ok for report in await engine.verify()]


@pytest.mark.parametrize("point", ["sync", "rename"])
async def test_an_export_that_cannot_be_put_in_its_place_leaves_the_old_one(tmp_path: Path, point: Point) -> None:
    """Or nothing, where there was none; what stands under the name is always whole."""
    faults, old = Faults(), tmp_path / "old.jsonl"
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="kept"))
        await thread.replay.export(old)
        before = old.read_bytes()
        await thread.dispatch(UserMessage(content="more"))
        with faults.files():
            for target, force in ((tmp_path / "new.jsonl", False), (old, True)):
                faults.fail(point, OSError(errno.EIO, "I/O error"))
                with pytest.raises(FileFailed, match="I/O error"):
                    await export(handle_of(thread), target, force=force)
            assert (["old.jsonl"], before) == (beside_the_store(tmp_path), old.read_bytes())
            await export(handle_of(thread), old, force=True)
        assert before != old.read_bytes()


YEAR = timedelta(days=365)


@pytest.mark.parametrize("by", [YEAR, -YEAR])
async def test_a_clock_that_jumps_loses_nothing(tmp_path: Path, by: timedelta) -> None:
    """By a year on or back, amid a turn: seqs go on, waits end, and compactions are made as if it stood."""
    faults = Faults()
    policy = CompactionPolicy(threshold=8, tokens_min=0, keep_recent=2)
    store = await SQLiteStore.open(str(tmp_path / "m.db"), faults=faults)
    config = EngineConfig(compaction=policy)
    async with memory_engine.open(store, clock=faults.clock(), config=config, compactor=Scripted()) as engine:
        thread = await engine.create_thread("t")
        for n in range(24):
            if n in (5, 13):
                faults.jump(by if n == 5 else -by, nth=2)  # also back to where it was
            assert n < (await thread.dispatch(UserMessage(content=f"{n}: the bike is blue. " * 4))).seq
            await thread.context()
        await engine.settle()
        said = [event.event.content async for event in thread.events() if isinstance(event.event, UserMessage)]
        assert [f"{n}:" for n in range(24)] == [str(text).partition(" ")[0] for text in said]
        seqs = [event.seq async for event in thread.events()]
        assert list(range(1, len(seqs) + 1)) == seqs
        assert 2 <= len([one async for one in thread.events() if one.type == "compaction_completed"])
        assert 0 < len((await thread.search("which bike is blue")).hits)
        assert (await thread.replay.verify()).ok


async def test_a_clock_that_jumps_on_and_back_deletes_nothing_early(tmp_path: Path) -> None:
    """What was recorded while it was a year ahead is not old when it is back, nor is what came before."""
    faults = Faults()
    rules = [RetentionRule(act="delete", older_than=timedelta(days=90))]
    store = await SQLiteStore.open(str(tmp_path / "m.db"), faults=faults)
    async with memory_engine.open(store, clock=faults.clock()) as engine:
        await (await engine.create_thread("before")).dispatch(UserMessage(content="Hello"))
        faults.jump(YEAR)
        await (await engine.create_thread("ahead")).dispatch(UserMessage(content="Hello"))
        faults.jump(-YEAR)
        await (await engine.create_thread("after")).dispatch(UserMessage(content="Hello"))
        assert [()] == [tuple(one.threads) for one in (await engine.admin.retain(rules)).rules]
        faults.jump(YEAR)
        await engine.admin.retain(rules)
        assert ["ahead"] == [info.id for info in await engine.threads()]


async def test_a_retention_on_a_schedule_does_not_wait_by_the_clock(tmp_path: Path) -> None:
    """A clock that goes back by a year does not put the next time off by a year."""
    faults = Faults()
    store = await SQLiteStore.open(str(tmp_path / "m.db"), faults=faults)
    async with memory_engine.open(store, clock=faults.clock()) as engine:
        faults.jump(-YEAR)
        end = engine.admin.retain_every(timedelta(microseconds=1), [RetentionRule(act="delete", older_than=YEAR)])
        async with asyncio.timeout(PATIENCE_S):
            read = faults.reached["clock"]
            while faults.reached["clock"] < read + 3:  # noqa: ASYNC110 - another task reads it
                await asyncio.sleep(0)
        end()


async def test_a_clock_that_fails_refuses_the_event_alone(tmp_path: Path) -> None:
    """Nothing was written; the next one is taken."""
    faults = Faults()
    async with memory_engine.open(str(tmp_path / "m.db"), clock=faults.clock()) as engine:
        thread = await engine.create_thread("t")
        faults.fail("clock", OSError(errno.EIO, "I/O error"))
        with pytest.raises(OSError, match="I/O error"):
            await thread.dispatch(UserMessage(content="lost"))
        assert 1 == (await thread.dispatch(UserMessage(content="kept"))).seq
