"""Under load a dispatch waits for little, and the files stay small."""

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.engine import kernel_of
from memory_engine.recall import search
from memory_engine.recall.question import Question
from memory_engine.recall.ranking import Candidate, Ranked, Statistics, rank
from memory_engine.recall.search import AT_ONCE

MIB = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return str(tmp_path / "m.db")


def wal_bytes(path: str) -> int:
    """The size of the write-ahead log."""
    return Path(path + "-wal").stat().st_size


async def test_a_dispatch_waits_for_one_other_piece_of_work(path: str) -> None:
    """Of twenty checkpoints that were asked for before, one at most is done before it."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.state()
        done: list[str] = []

        async def flush() -> None:
            await kernel_of(engine).store.flush()
            done.append("flushed")

        flushing = [asyncio.ensure_future(flush()) for _ in range(20)]
        await asyncio.sleep(0)
        await thread.dispatch(UserMessage(content="Hello"))
        assert done.count("flushed") <= 2
        await asyncio.gather(*flushing)


async def test_the_write_ahead_log_is_emptied_once_it_has_grown(path: str) -> None:
    """A reader was in the way while much was written; when it is gone, the file shrinks, and nobody had to wait."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            for n in range(5):
                await thread.dispatch(UserMessage(content=f"{n}" * 4 * MIB))
            assert wal_bytes(path) > 16 * MIB
        while wal_bytes(path) > 16 * MIB:
            await thread.dispatch(UserMessage(content="Hello"))
            await asyncio.sleep(0.01)
        assert (await thread.replay.verify()).ok


async def test_what_is_written_besides_events_counts_for_the_write_ahead_log(path: str) -> None:
    """SQLite does not checkpoint by itself here: rebuilding an index again and again without a pause stays small."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"The bike {n} is as blue as {n * 7}.") for n in range(1_500)])
        await thread.admin.prepare_search()
        sizes = []
        for _ in range(12):
            await thread.replay.rebuild()
            sizes.append(wal_bytes(path))
        assert max(sizes) < 3 * MIB
        assert (await thread.replay.verify()).ok


async def test_a_dispatch_goes_on_while_searches_take_turns(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of them compute at one time, large ones beside the loop; all of them are answered."""
    monkeypatch.setattr(search, "RANKED_AT_ONCE", 10)
    at_work: list[int] = []
    go_on = threading.Event()

    def held(question: Question, candidates: Sequence[Candidate], statistics: Statistics, limit: int) -> list[Ranked]:
        at_work.append(len(candidates))
        assert go_on.wait(60)
        return rank(question, candidates, statistics, limit)

    async with memory_engine.open(path, ranker=held) as engine:
        threads = [await engine.create_thread(f"t{n}") for n in range(10)]
        for thread in threads:
            await thread.dispatch_all([UserMessage(content=f"The bike {n} is blue.") for n in range(60)])
        searching = [asyncio.ensure_future(engine.search("which bike is blue")) for _ in range(2 * AT_ONCE)]
        while len(at_work) < AT_ONCE:  # noqa: ASYNC110 - worker threads count
            await asyncio.sleep(0.001)
        for thread in threads:
            assert 61 == (await thread.dispatch(UserMessage(content="Hello"))).seq
        assert (AT_ONCE, True) == (len(at_work), min(at_work) > 10)
        go_on.set()
        assert [10] * 2 * AT_ONCE == [len(found.hits) for found in await asyncio.gather(*searching)]
