"""Small commits are made on the event loop's own thread, where nothing can make them wait; else beside it."""

import asyncio
import math
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, Thread, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.storage.sqlite import transactions, writer
from memory_engine.storage.sqlite.store import Durability, SQLiteStore


class Watch:
    """Counts commits by where they run, and makes each as slow as it is told."""

    def __init__(self) -> None:
        self.slow_s = 0.0
        self.commits: Counter[bool] = Counter()
        self._loop_thread = threading.get_ident()

    def before(self, point: str) -> None:
        """Something is about to be done."""
        if point == "commit":
            self.commits[threading.get_ident() == self._loop_thread] += 1
            time.sleep(self.slow_s)

    def after(self, point: str) -> None:
        """It is done."""


async def opened(path: Path, watch: Watch, durability: Durability = "normal") -> Engine:
    """An engine whose commits are watched."""
    return await memory_engine.open(await SQLiteStore.open(str(path), faults=watch, durability=durability))


async def watched(thread: Thread, watch: Watch, count: int, text: str = "x") -> Counter[bool]:
    """Where the commits of so many dispatches, one after the other, were made: `True` is on the loop."""
    before = Counter(watch.commits)
    for _ in range(count):
        await thread.dispatch(UserMessage(content=text))
    return watch.commits - before


@pytest.fixture
def never_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, no commit counts as slow by itself."""
    monkeypatch.setattr(writer, "SLOW_S", math.inf)


@pytest.mark.usefixtures("never_slow")
async def test_small_commits_need_no_other_thread(tmp_path: Path) -> None:
    """Nor where the loop has a turn between them. One that is large, or is synced to the disk, does."""
    watch = Watch()
    async with await opened(tmp_path / "memory.db", watch) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content="the first makes the thread"))
        assert {True: 40} == await watched(thread, watch, 40)
        assert (await watched(thread, watch, 3, "x" * 2 * transactions.HERE_BYTES))[True] == 0
    async with await opened(tmp_path / "full.db", watch, "full") as engine:
        assert (await watched(await engine.create_thread(), watch, 10))[True] == 0


@pytest.mark.usefixtures("never_slow")
async def test_the_first_commit_of_a_write_ahead_log_is_made_beside_the_loop(tmp_path: Path) -> None:
    """Where the log starts over, SQLite syncs the disk: after opening, and after a checkpoint."""
    watch = Watch()
    async with await opened(tmp_path / "memory.db", watch) as engine:
        thread = await engine.create_thread()
        assert {False: 1} == await watched(thread, watch, 1)
        assert {True: 2} == await watched(thread, watch, 2)
        await kernel_of(engine).store.flush()
        assert {False: 1} == await watched(thread, watch, 1)
        assert {True: 2} == await watched(thread, watch, 2)


async def test_a_disk_that_turns_slow_stalls_the_loop_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first slow commit is the last on the loop until many in a row were fast."""
    monkeypatch.setattr(writer, "SLOW_S", 0.05)
    watch = Watch()
    async with await opened(tmp_path / "memory.db", watch) as engine:
        thread = await engine.create_thread()
        await watched(thread, watch, 2)
        watch.slow_s = 0.06
        assert (await watched(thread, watch, 10))[True] <= 1
        watch.slow_s = 0.0
        assert (await watched(thread, watch, 2 * writer.FAST))[True] > 0
        assert (await thread.replay.verify()).ok


@pytest.mark.usefixtures("never_slow")
async def test_who_dispatches_in_a_row_lets_others_have_their_turn(tmp_path: Path) -> None:
    """After a few dispatches the loop has a round."""
    turns = 0
    dispatching = True

    async def other() -> None:
        nonlocal turns
        while dispatching:
            turns += 1
            await asyncio.sleep(0)

    async with memory_engine.open(str(tmp_path / "memory.db")) as engine:
        thread = await engine.create_thread()
        task = asyncio.create_task(other())
        for _ in range(30):
            await thread.dispatch(UserMessage(content="x"))
        dispatching = False
        await task
    assert turns >= 3


@pytest.mark.usefixtures("never_slow")
async def test_another_program_that_writes_is_waited_for_beside_the_loop(tmp_path: Path) -> None:
    """It holds SQLite's lock and knows nothing of ours."""
    path = tmp_path / "memory.db"
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content="one"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(thread.dispatch(UserMessage(content="two")))
        longest_s = 0.0
        for _ in range(20):
            began = time.perf_counter()
            await asyncio.sleep(0.01)
            longest_s = max(longest_s, time.perf_counter() - began)
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        assert (await waiting).seq == 2
        assert longest_s < 4  # the connection's thread waits up to 5 s, and so would the loop
        assert [event.seq async for event in thread.events()] == [1, 2]


@pytest.mark.usefixtures("never_slow")
async def test_threads_that_dispatch_at_once_share_transactions(tmp_path: Path) -> None:
    """A round of the loop makes a few commits on it; what else comes in the round goes together."""
    watch = Watch()
    async with await opened(tmp_path / "memory.db", watch) as engine:
        threads = [await engine.create_thread() for _ in range(40)]
        watch.commits.clear()
        for _ in range(5):
            await asyncio.gather(*(thread.dispatch(UserMessage(content="x")) for thread in threads))
        assert watch.commits.total() <= 40
        assert [(await thread.info()).events for thread in threads] == [5] * 40


async def test_rows_hold_blobs_and_nulls_as_before(tmp_path: Path) -> None:
    """However values are given to SQLite, a row of the log has the types that every release has written."""
    path = tmp_path / "memory.db"
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content="plain"))
        await thread.dispatch(UserMessage(content="x" * 100_000), causation_id="cause", event_id="mine")
    with closing(sqlite3.connect(path)) as raw:
        columns = "id, occurred_at_us, causation_id, correlation_id, salt, hash, payload, spilled, record"
        found = raw.execute(f"SELECT {', '.join(f'typeof({one})' for one in columns.split(', '))} FROM events")
        assert [
            ("blob", "null", "null", "null", "blob", "blob", "blob", "null", "blob"),
            ("text", "null", "text", "null", "blob", "blob", "null", "blob", "blob"),
        ] == found.fetchall()
        assert [("blob",)] == raw.execute("SELECT DISTINCT typeof(hash) FROM heads").fetchall()
        assert [("blob",)] == raw.execute("SELECT DISTINCT typeof(key) FROM live").fetchall()
