"""The first queries of a small store are run by the connection that writes, which is open already."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import IntegrityError, ThreadNotFound
from memory_engine.storage.sqlite import store
from tests.patience import PATIENCE_S


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The number of connections opened so far."""
    opened: list[object] = []
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def counted(*words: object, **settings: object) -> sqlite3.Connection:
        opened.append(words)
        return connect(*words, **settings)

    monkeypatch.setattr(sqlite3, "connect", counted)
    return lambda: len(opened)


async def _made(path: Path, threads: int = 1) -> Path:
    """A store of threads `t0`, `t1` and so on, of one message each."""
    async with memory_engine.open(str(path)) as engine:
        for number in range(threads):
            await (await engine.create_thread(f"t{number}")).dispatch(UserMessage(content="first"))
    return path


async def test_a_small_store_needs_no_reader_until_it_has_written(
    tmp_path: Path, connections: Callable[[], int]
) -> None:
    """Its state is read by the connection that writes; once there was a commit, by one that cannot write."""
    path = await _made(tmp_path / "agent.db")
    before = connections()
    async with memory_engine.open(str(path)) as engine:
        thread = engine.thread("t0")
        state = await thread.state()
        while_unused = connections() - before
        await thread.dispatch(UserMessage(content="second"))
        info = await thread.info()
        assert (1, 1, 2) == (while_unused, len(state), info.events)
        assert connections() - before > 1


async def test_a_larger_store_is_read_by_readers(
    tmp_path: Path, connections: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a query may take long, and a commit must not wait for it."""
    path = await _made(tmp_path / "agent.db")
    monkeypatch.setattr(store, "SMALL_BYTES", 0)
    before = connections()
    async with memory_engine.open(str(path)) as engine:
        assert 1 == len(await engine.thread("t0").state())
    assert connections() - before > 1


def test_a_first_query_outlives_its_loop(tmp_path: Path) -> None:
    """Whose loop ends in the middle of it keeps nobody from writing in the next one, nor from closing."""

    async def asked() -> store.SQLiteStore:
        made = await store.SQLiteStore.open(str(tmp_path / "agent.db"))
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def query(_raw: sqlite3.Connection) -> None:
            loop.call_soon_threadsafe(begun.set)
            ended.wait()

        task = loop.create_task(made._read(query))
        await begun.wait()
        assert not task.done()
        return made

    async def closed(made: store.SQLiteStore) -> None:
        ended.set()
        await made.stats()
        await made.close()

    ended = threading.Event()
    opened = asyncio.run(asked())
    asyncio.run(asyncio.wait_for(closed(opened), PATIENCE_S))


async def test_commits_wait_for_the_first_queries(tmp_path: Path) -> None:
    """Threads that are loaded and dispatched to at once, while others are made, hold every event once."""
    path = await _made(tmp_path / "agent.db", threads=12)
    async with memory_engine.open(str(path)) as engine:
        made = [engine.create_thread(f"new{number}") for number in range(4)]
        sent = [engine.dispatch(f"t{number}", UserMessage(content="second")) for number in range(12)]
        receipts, _ = await asyncio.gather(asyncio.gather(*sent), asyncio.gather(*made))
        assert [2] * 12 == [receipt.seq for receipt in receipts]
        reports = [await engine.thread(f"t{number}").replay.verify() for number in range(12)]
    assert all(report.ok for report in reports)


async def test_a_first_query_that_nobody_waits_for_any_more_ends_by_itself(tmp_path: Path) -> None:
    """Its caller is cancelled; the next one dispatches as ever."""
    path = await _made(tmp_path / "agent.db", threads=2)
    async with memory_engine.open(str(path)) as engine:
        given_up = asyncio.create_task(engine.dispatch("t0", UserMessage(content="second")))
        await asyncio.sleep(0)
        given_up.cancel()
        receipt = await engine.dispatch("t1", UserMessage(content="second"))
        assert 2 == receipt.seq
        assert (await engine.thread("t0").replay.verify()).ok


async def test_a_first_query_that_fails_does_not_stop_the_store(tmp_path: Path) -> None:
    """A thread that is not there is named, and the next one is written to."""
    path = await _made(tmp_path / "agent.db")
    async with memory_engine.open(str(path)) as engine:
        with pytest.raises(ThreadNotFound):
            await engine.dispatch("gone", UserMessage(content="x"))
        assert 2 == (await engine.dispatch("t0", UserMessage(content="second"))).seq


async def test_a_damaged_row_that_a_first_query_reads_does_not_stop_the_store(tmp_path: Path) -> None:
    """What can be written is written: a query's error says nothing of the connection."""
    path = await _made(tmp_path / "agent.db", threads=2)
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("DELETE FROM heads WHERE tid = (SELECT tid FROM threads WHERE id = 't0')")
    raw.close()
    async with memory_engine.open(str(path)) as engine:
        with pytest.raises(IntegrityError):
            await engine.dispatch("t0", UserMessage(content="x"))
        assert 2 == (await engine.dispatch("t1", UserMessage(content="second"))).seq
