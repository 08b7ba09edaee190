"""What a look-up reads does not grow with the thread, counted in steps of the database."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Event, Plugin
from memory_engine.core.codec import LARGE_CHARS
from memory_engine.engine import kernel_of
from memory_engine.errors import ReducerError
from memory_engine.events import UserMessage
from memory_engine.language.text import terms
from memory_engine.recall.service import Recall
from memory_engine.storage.passage_counts import counted
from memory_engine.storage.passage_search import Lists, look_up
from memory_engine.storage.passage_words import index_words
from memory_engine.storage.passages import TERMS, base
from memory_engine.storage.sqlite.among import Among
from memory_engine.store.passages import PLACES_BITS, Extracted, LookUp, Text, Threads

EVERY = 50
"""Steps of the database between two counts."""
LONG = 500


async def steps_to_look_at(path: Path, messages: int, wanted: LookUp) -> int:
    """Steps that a look-up takes in a thread of so many messages."""
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"note {n} of the day") for n in range(messages)])
        await thread.search("day")
        await engine.settle()
        await thread.admin.prepare_search()
    raw = sqlite3.connect(path)
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += EVERY
        return 0

    raw.set_progress_handler(count, EVERY)
    looked = look_up(raw, 1, messages, wanted, Lists())
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
    monkeypatch.setattr("memory_engine.recall.ahead.QUIET_S", 0.05)
    monkeypatch.setattr("memory_engine.recall.ahead.AHEAD_MIN", LONG)
    async with memory_engine.open(str(tmp_path / "log.db")) as engine:
        few, many = await engine.create_thread("few"), await engine.create_thread("many")
        await few.dispatch_all([UserMessage(content=f"note {n}") for n in range(100)])
        await asyncio.sleep(0.2)
        assert not await kernel_of(engine)[Recall].indexing.is_indexed("few")
        await many.dispatch_all([UserMessage(content=f"harbour {n}") for n in range(LONG)])
        receipt = await many.dispatch(UserMessage(content="the quagga"))
        await asyncio.sleep(0.06)
        await many.forget(chunk_ids=[receipt.chunks[0].id])
        wanted = LookUp(terms=("harbour", "quagga"), unwanted=("summary",))
        looked = await kernel_of(engine).store.passages.look_up("many", wanted)
        for _ in range(200):
            looked = await kernel_of(engine).store.passages.look_up("many", wanted)
            await asyncio.sleep(0 if looked.seq == looked.head else 0.02)
        assert {"harbour": LONG, "quagga": 0} == looked.holding
        assert await kernel_of(engine)[Recall].indexing.is_indexed("few")


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
        among, acme = Among(Lists()), Threads(tenant_id="acme")
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
        assert {} == {n: faults for n in range(6) if (faults := dict(await kernel_of(engine).store.faults(f"t{n}")))}


PLAIN = CompactionPolicy(enabled=False)
AT_ONCE = EngineConfig(compaction=PLAIN, search_index_timeout_s=1e-9)


async def test_the_first_search_of_a_long_log_answers_from_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how much is missing; the rest is indexed without it, also where several threads are searched."""
    monkeypatch.setattr("memory_engine.recall.index.BROUGHT_MAX", 100)
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path, config=EngineConfig(compaction=PLAIN)) as engine:
        for n in range(2):
            thread = await engine.create_thread(f"t{n}")
            await thread.dispatch_all([UserMessage(content=f"harbour {k}") for k in range(1_100)])
    async with memory_engine.open(path, config=AT_ONCE) as engine:
        found = await engine.search("harbour 1099")
        assert 0 < found.unindexed <= 2_200
        assert 0 < (await engine.thread("t0").search("harbour 1099")).unindexed <= 1_100
        for n in range(2):
            await engine.thread(f"t{n}").admin.prepare_search()
        found = await engine.search("harbour 1099")
        assert (0, {("t0", 1_100), ("t1", 1_100)}) == (found.unindexed, {(hit.thread_id, hit.seq) for hit in found[:2]})


async def test_the_words_of_a_long_event_are_taken_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its sender nor the loop waits for them. What else is new is found, and what waits is counted."""
    monkeypatch.setattr("memory_engine.storage.passage_search.READ_CHARS_MAX", 100_000)
    threads: set[threading.Thread] = set()

    def taken(text: str) -> list[str]:
        if len(text) > 1_000:
            threads.add(threading.current_thread())
        return terms(text)

    for module in ("store.passages.terms", "storage.passage_rows.analysed"):
        monkeypatch.setattr(f"memory_engine.{module}", taken)
    long = "".join(f"Ship {n} lay at anchor off the lighthouse. " for n in range(10_000))
    async with memory_engine.open(str(tmp_path / "log.db"), config=AT_ONCE) as engine:
        thread = await engine.create_thread()
        await thread.search("anything")
        await thread.dispatch(UserMessage(content="The quagga boarded."))
        await thread.dispatch(UserMessage(content=long))
        found = await thread.search("quagga")
        assert (True, True) == (1 in {hit.seq for hit in found}, found.unindexed > 100)
        await thread.admin.prepare_search()
        found = await thread.search("ship 9999")
        assert (2, 0) == (found[0].seq, found.unindexed)
    assert threads
    assert threading.main_thread() not in threads


async def test_the_sums_of_blocks_are_what_counting_gives(tmp_path: Path) -> None:
    """At any seq, after a forgetting and while words wait; where an older release has indexed, all are counted."""
    path = tmp_path / "log.db"
    async with memory_engine.open(str(path), config=EngineConfig(compaction=PLAIN)) as engine:
        thread = await engine.create_thread()
        receipts = await thread.dispatch_all([UserMessage(content=f"harbour {n} " * (n % 7)) for n in range(2_200)])
        await thread.admin.prepare_search()
        await thread.forget(chunk_ids=[receipts[n].chunks[0].id for n in (5, 1_500)])
        await thread.dispatch_all([UserMessage(content=f"day {n}") for n in range(20)])
    whole = (base(1), base(2) - 1)
    with closing(sqlite3.connect(path)) as raw:
        count = "SELECT count(*), coalesce(sum(size), 0) FROM passages WHERE pos <= ?"
        ends = [base(1) + (seq << PLACES_BITS) for seq in (0, 1, 6, 1_023, 1_024, 1_501, 2_048, 2_200, 2_210, 9_999)]
        expected = [raw.execute(count, (end,)).fetchone() for end in ends]
        for change in ("", "UPDATE passage_counts SET terms = terms + 1", "DROP TABLE passage_counts"):
            raw.execute(change)
            assert expected == [counted(raw, 1, whole, end) for end in ends], change
        assert 0 < expected[3][0] < expected[-1][0]


async def test_passages_of_a_large_event_are_found_beside_the_loop() -> None:
    """As of the seq that it gets, also where others were first; what fails is told to its sender alone."""
    plugin, seen = Plugin("large"), list[tuple[bool, int]]()

    @plugin.event("tests.large", chunks="none")
    class Large(Event):
        """An event with a text."""

        text: str

    @plugin.passages(Large)
    def passages(event: Large, seq: int) -> Extracted:
        seen.append((threading.current_thread() is threading.main_thread(), seq))
        if not event.text:
            raise ValueError("it is empty")
        return Extracted((Text(f"harbour {seq}", "note", key=f"at:{seq}"),))

    large = Large(text="x" * (LARGE_CHARS + 1))
    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        thread = await engine.create_thread()
        await thread.search("harbour")
        await thread.dispatch(large)
        assert [(False, 1)] == seen
        with pytest.raises(ReducerError, match="it is empty"):
            await thread.dispatch_all([large, Large(text="")])
        events = (UserMessage(content="small"), large, UserMessage(content="small"), large)
        await asyncio.gather(*map(thread.dispatch, events))
        found = await thread.search("harbour", kinds=("note",))
    assert {"at:1", "at:3", "at:5"} == {hit.key for hit in found} == {f"at:{hit.seq}" for hit in found}


async def test_a_text_that_waits_is_analysed_by_one_search_and_anew_when_something_was_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of a text goes with what anyone erases; no search that follows needs it otherwise."""
    analysed: list[str] = []
    text = f"A word in {tmp_path}"

    def taken(text: str) -> list[str]:
        analysed.append(text)
        return terms(text)

    monkeypatch.setattr("memory_engine.storage.passage_rows.analysed", taken)
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        thread, other = await engine.create_thread("t"), await engine.create_thread("other")
        await thread.search("word")
        await thread.dispatch(UserMessage(content=text))
        said = await other.dispatch(UserMessage(content="Something else"))
        analysed.clear()
        assert [1, 1] == [len(await thread.search("word")) for _ in range(2)]
        assert [text] == analysed
        await other.admin.erase([said.event_id])
        assert 2 == len(await engine.threads())
        assert 1 == len(await thread.search("word"))
    assert [text, text] == analysed
