"""What a look-up reads does not grow with the thread, counted in steps of the database."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine.events import UserMessage
from memory_engine.storage.passage_search import look_up
from memory_engine.storage.passages import TERMS, index_words
from memory_engine.storage.sqlite.among import Among
from memory_engine.store.passages import PLACES_BITS, LookUp, Threads

EVERY = 50
"""Steps of the database between two counts."""
LONG = 500


async def steps_to_look_at(path: Path, messages: int, wanted: LookUp) -> int:
    """Steps that a look-up takes in a thread of so many messages."""
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"note {n} of the day") for n in range(messages)])
        await thread.search("day")
        await thread.prepare_search()
        await engine.settle()
    raw = sqlite3.connect(path)
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += EVERY
        return 0

    raw.set_progress_handler(count, EVERY)
    looked = look_up(raw, 1, messages, wanted)
    raw.close()
    assert looked.near == wanted.near_max
    return counted


async def test_the_nearest_by_meaning_are_looked_at_by_their_places_however_long_the_thread_is(tmp_path: Path) -> None:
    """A list of places is not a reason to walk an index of the whole thread."""
    near = tuple(seq << PLACES_BITS for seq in range(1, 121))
    wanted = LookUp(near=near, near_max=60, unwanted=("summary",))
    few = await steps_to_look_at(tmp_path / "few.db", 300, wanted)
    many = await steps_to_look_at(tmp_path / "many.db", 3_000, wanted)
    assert many < 2 * few  # it was 4 times as many


async def test_a_long_log_is_indexed_before_it_is_searched_while_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first search reads no log then; a short log waits for others. What is forgotten meanwhile is not found."""
    monkeypatch.setattr("memory_engine.recall.index.QUIET_S", 0.05)
    monkeypatch.setattr("memory_engine.recall.index.AHEAD_MIN", LONG)
    async with memory_engine.open(str(tmp_path / "log.db")) as engine:
        few, many = await engine.create_thread("few"), await engine.create_thread("many")
        await few.dispatch_all([UserMessage(content=f"note {n}") for n in range(100)])
        await asyncio.sleep(0.2)
        assert not await engine.recall.indexing.is_indexed("few")
        await many.dispatch_all([UserMessage(content=f"harbour {n}") for n in range(LONG)])
        receipt = await many.dispatch(UserMessage(content="the quagga"))
        await asyncio.sleep(0.06)
        await many.forget(chunk_ids=[receipt.chunks[0].id])
        wanted = LookUp(terms=("harbour", "quagga"), unwanted=("summary",))
        looked = await engine.store.passages.look_up("many", wanted)
        for _ in range(200):
            looked = await engine.store.passages.look_up("many", wanted)
            await asyncio.sleep(0 if looked.seq == looked.head else 0.02)
        assert {"harbour": LONG, "quagga": 0} == looked.holding
        assert await engine.recall.indexing.is_indexed("few")


async def test_a_look_up_over_many_threads_does_not_ask_each(tmp_path: Path) -> None:
    """Of sixteen times as many threads, it takes less than half as many steps of the database for each."""
    steps = []
    for threads in (10, 160):
        path = tmp_path / f"{threads}.db"
        async with memory_engine.open(str(path)) as engine:
            for n in range(threads):
                for tenant in ("acme", "other"):
                    thread = await engine.create_thread(tenant_id=tenant)
                    await thread.dispatch_all([UserMessage(content=f"harbour {n}, day {k}") for k in range(3)])
            await engine.search("harbour", tenant_id="acme")
            await engine.search("harbour", tenant_id="other")
        raw = sqlite3.connect(path, isolation_level=None)
        among, acme = Among(), Threads(tenant_id="acme")
        looked = among.look_up(raw, acme, LookUp(terms=("harbour", "7"), limit=10))
        assert (3 * threads, True) == (looked.passages, len(looked.chosen) < 100)
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += EVERY
            return 0

        raw.set_progress_handler(count, EVERY)
        among.look_up(raw, acme, LookUp(terms=("harbour", "7"), limit=10))
        raw.close()
        steps.append(counted)
    assert steps[1] < 8 * steps[0]


async def test_an_index_that_an_older_release_made_is_searched_by_tenant_at_once(tmp_path: Path) -> None:
    """Its words have no prefix of a tenant, some of them wait, and its rows say nothing of the times and the last."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        for n in range(6):
            thread = await engine.create_thread(f"t{n}", tenant_id="acme" if n % 2 else "other")
            await thread.dispatch_all([UserMessage(content=f"harbour {n}, day {k}") for k in range(80)])
            await thread.search("harbour")
            await thread.dispatch(UserMessage(content=f"a quagga at the harbour {n}"))
        questions = ("harbour 3", "quagga", "day 7", "harbour quagga")
        expected = [await engine.search(question, tenant_id="acme", limit=50) for question in questions]
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        tids = [tid for (tid,) in raw.execute("SELECT tid FROM passage_indexes")]
        raw.executescript(
            f"DROP TABLE passage_terms; {TERMS}; UPDATE passage_indexes SET folded = tid << 40, prefix = ''"
        )
        for tid in tids:
            assert not index_words(raw, tid)
        raw.execute("DROP INDEX passage_indexes_by_prefix")
        for column in ("prefix", "last", "first_us", "last_us"):
            raw.execute(f"ALTER TABLE passage_indexes DROP COLUMN {column}")
        raw.execute("PRAGMA user_version = 5")
    async with memory_engine.open(path) as engine:
        found = [await engine.search(question, tenant_id="acme", limit=50) for question in questions]
        assert expected == found
        assert {"t1", "t3", "t5"} == {hit.thread_id for hits in found for hit in hits}
        assert {} == {n: faults for n in range(6) if (faults := dict(await engine.store.faults(f"t{n}")))}
