"""Rebuild makes what derives from a log again, beside the old, and swaps it in one commit."""

import asyncio
import json
import shutil
import sqlite3
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings

import memory_engine
from memory_engine import Engine, EngineConfig, Event, Plugin, Receipt, RecordedEvent, Rows, Thread, UserMessage
from memory_engine.cli import main
from memory_engine.engine import kernel_of
from memory_engine.errors import IntegrityError, ReadOnly, StorageBusy, ThreadNotFound, UnknownView
from memory_engine.projections import ProjectionMode
from memory_engine.projections.rebuild import Remaking
from memory_engine.replay.rebuild import rebuild
from memory_engine.replay.verify import VerifyProgress
from memory_engine.storage.memory import MemoryStore
from memory_engine.storage.sqlite import SQLiteStore
from memory_engine.store.passages import LookUp, PassageChange, PassageStep
from memory_engine.store.protocol import CommitUnit
from memory_engine.testing import FaultyStore
from tests.conversations import NEVER, texts
from tests.recall_samples import contents
from tests.replay.test_verify import tamper
from tests.views.test_view_laws import CONFIG, EVENTS, each

ROOT = Path(__file__).resolve().parents[2]
TABLES = ("heads", "live", "projection_rows", "checkpoints", "passages", "passage_indexes")


def tables(path: str) -> dict[str, list[tuple[object, ...]]]:
    """What a rebuild may write, but for snapshots, which are caches of it."""
    with closing(sqlite3.connect(path)) as raw:
        there = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema")}
        found = {name: sorted(raw.execute(f"SELECT * FROM {name}")) for name in TABLES if name in there}
    return {name: [row for row in rows if "snapshots" not in row] for name, rows in found.items()}


async def lived(engine: Engine) -> Thread:
    """A thread with a state, rows in several views, and a search index whose words are folded."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all([UserMessage(content=f"Order A-{n} of apples") for n in range(70)])
    await thread.scratchpad.write("Apples sell on Mondays.")
    await thread.memory.append("episodic", "Apples are fruit.")
    await thread.conversation.prepare_messages("How many?")
    await thread.conversation.finalize_cycle("How many?", "Seventy.")
    await thread.admin.prepare_search()
    await thread.replay.rebuild()  # every view has rows of the head from here on
    return thread


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one thread that has all there is to rebuild. Not to be written to."""
    found = tmp_path_factory.mktemp("rebuild") / "m.db"

    async def make() -> None:
        async with memory_engine.open(str(found)) as engine:
            await lived(engine)
            assert (await engine.thread("t").replay.verify()).ok

    anyio.run(make)
    return found


@pytest.fixture
def path(made: Path, tmp_path: Path) -> str:
    """A copy of it."""
    return str(shutil.copy(made, tmp_path / "m.db"))


DAMAGE = {
    "a row of the state moved": "UPDATE live SET key = x'99' WHERE seq = 70",
    "two rows of the state exchanged": (
        "UPDATE live SET key = other.key FROM live AS other WHERE live.seq IN (70, 71) AND other.seq = 141 - live.seq"
    ),
    "a row of the state lost": "DELETE FROM live WHERE seq = 70",
    "a row of the state made up": "INSERT INTO live SELECT tid, 1, 77, x'98', container FROM live LIMIT 1",
    "counters": "UPDATE heads SET tokens = 1, chunks = 1",
    "a mark": "UPDATE heads SET marks = '{}'",
    "a view's row changed": "UPDATE projection_rows SET value = x'7b7d' WHERE projection = 'episodic'",
    "a view's row lost": "DELETE FROM projection_rows WHERE projection = 'conversation'",
    "a view's row made up": (
        "INSERT INTO projection_rows SELECT projection, version, tid, 'zzz', value FROM projection_rows "
        "WHERE projection = 'conversation' LIMIT 1"
    ),
    "a passage": "UPDATE passages SET role = 'x' WHERE kind = 'message'",
    "passages that an event to come has ended": "UPDATE passages SET ended = 100000 WHERE kind = 'message'",
    "an index beyond the log": "UPDATE passage_indexes SET seq = seq + 30",
    "the times of an index": "UPDATE passage_indexes SET first_us = last_us",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE)
async def test_what_was_damaged_is_as_before_byte_for_byte(path: str, statement: str) -> None:
    """Rows of the state, counters, views and passages, each in its table."""
    before = tables(path)
    tamper(path, statement)
    assert before != tables(path)
    async with memory_engine.open(path) as engine:
        await engine.thread("t").replay.rebuild()
        assert (await engine.thread("t").replay.verify()).ok
    assert before == tables(path)


async def test_a_rebuild_of_what_is_well_changes_nothing(path: str) -> None:
    """Every table is as it was; the report says what was made."""
    before = tables(path)
    async with memory_engine.open(path) as engine:
        report = await rebuild(kernel_of(engine), "t")
        info = await engine.thread("t").replay.rebuild()
    assert before == tables(path)
    assert (info.events, info.chunks) == (report.events, report.chunks)
    assert len(before["passages"]) == report.passages
    assert sum(report.views.values()) == len(before["projection_rows"])
    assert json.loads(json.dumps(report.as_data()))["thread_id"] == "t"


async def test_only_the_named_views_are_touched(path: str) -> None:
    """All else stays as it is, damaged or not; the index is made again where it is asked for."""
    tamper(path, DAMAGE["a view's row changed"])
    tamper(path, DAMAGE["a view's row lost"])
    tamper(path, DAMAGE["a passage"])
    tamper(path, DAMAGE["a row of the state moved"])
    before = tables(path)
    async with memory_engine.open(path, config=EngineConfig(compaction=NEVER)) as engine:
        report = await rebuild(kernel_of(engine), "t", ["conversation"])
    after = tables(path)
    assert (["conversation"], None, None) == (list(report.views), report.chunks, report.passages)
    for name in ("heads", "live", "passages"):
        assert before[name] == after[name]
    made = {row[0] for row in set(after["projection_rows"]) - set(before["projection_rows"])}
    assert {"conversation"} == made
    async with memory_engine.open(path, config=EngineConfig(compaction=NEVER)) as engine:
        assert len(after["passages"]) == (await rebuild(kernel_of(engine), "t", [], search=True)).passages
    assert after["projection_rows"] == tables(path)["projection_rows"]
    assert after["passages"] != tables(path)["passages"]


@pytest.mark.parametrize("views", [["nope"], ["conversation", "nope"]])
async def test_a_view_that_is_none_is_refused(path: str, views: Collection[str]) -> None:
    """With the names that there are; nothing is made."""
    before = tables(path)
    async with memory_engine.open(path) as engine:
        with pytest.raises(UnknownView, match=r"there is no view 'nope'; there are .*conversation.*"):
            await engine.thread("t").replay.rebuild(views)
    assert before == tables(path)


async def test_an_engine_that_only_reads_rebuilds_nothing(path: str) -> None:
    """It says so, with what to do."""
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        with pytest.raises(ReadOnly, match="a rebuild would write"):
            await engine.thread("t").replay.rebuild()


async def test_an_unknown_thread_is_an_error() -> None:
    """Nothing comes into being by being rebuilt."""
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(ThreadNotFound):
            await engine.thread("nobody").replay.rebuild()


@pytest.mark.parametrize("error", [StorageBusy("busy", 0.0), RuntimeError("foreign")])
async def test_a_commit_that_fails_leaves_the_old(path: str, error: Exception) -> None:
    """Every table as it was; a second try mends."""
    tamper(path, DAMAGE["a view's row lost"])
    before = tables(path)
    store = FaultyStore(await SQLiteStore.open(path))
    async with memory_engine.open(store, config=EngineConfig(compaction=NEVER)) as engine:
        thread = engine.thread("t")
        await thread.state()
        store.fail(error)
        with pytest.raises(type(error)):
            await thread.replay.rebuild()
        assert before == tables(path)
        await thread.replay.rebuild()
        assert (await thread.replay.verify()).ok


async def test_a_view_whose_fold_fails_leaves_the_old(tmp_path: Path) -> None:
    """The others, made in the same pass, are not written either; alone they are."""
    path, broken = str(tmp_path / "m.db"), list[int]()
    plugin = Plugin("p")

    class Fragile:
        name = "fragile"
        version = 1
        mode: ProjectionMode = "async"
        row = int

        def apply(self, rows: Rows[int], event: RecordedEvent) -> None:
            """Count, until it is told to fail."""
            if broken:
                raise ValueError("broken")
            rows.put("n", event.seq)

    plugin.projection(Fragile())
    async with memory_engine.open(path, plugins=[plugin]) as engine:
        thread = await lived(engine)
        await engine.settle()
        tamper(path, DAMAGE["a view's row lost"])
        before = tables(path)
        broken.append(1)
        with pytest.raises(Exception, match="broken"):
            await thread.replay.rebuild()
        assert before == tables(path)
        await thread.replay.rebuild(["conversation"])
        assert before != tables(path)


async def test_a_log_that_does_not_hold_together_leaves_the_old(path: str) -> None:
    """A missing event is named, and what was derived stays."""
    before = tables(path)
    tamper(path, "DELETE FROM events WHERE pos & 0xFFFFFFFF = 3")
    async with memory_engine.open(path) as engine:
        with pytest.raises(IntegrityError, match="seq 3"):
            await engine.thread("t").replay.rebuild()
    assert before == tables(path)


KILLED = """
import asyncio, os, signal, sys
import memory_engine
from memory_engine.storage.sqlite import transactions

write, left = transactions.write_projection, [3]

def dying(*args):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    write(*args)

async def main():
    async with memory_engine.open(sys.argv[1]) as engine:
        thread = engine.thread("t")
        await thread.state()
        transactions.write_projection = dying
        await thread.rebuild()

asyncio.run(main())
"""


async def test_a_kill_in_the_middle_of_the_swap_leaves_the_old(path: str) -> None:
    """Killed between the rows of two views, inside the transaction."""
    tamper(path, DAMAGE["a view's row changed"])
    tamper(path, DAMAGE["a passage"])
    before = tables(path)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, path, cwd=ROOT)
    assert -9 == await process.wait()
    assert before == tables(path)
    async with memory_engine.open(path) as engine:
        await engine.thread("t").replay.rebuild()
        assert (await engine.thread("t").replay.verify()).ok


async def test_another_writer_between_fold_and_swap_is_seen(path: str) -> None:
    """What it wrote meanwhile is in what is made: the swap is tried again on the new head."""
    store = FaultyStore(await SQLiteStore.open(path))
    async with memory_engine.open(store) as engine, memory_engine.open(path) as other:
        thread = engine.thread("t")
        await thread.state()
        hold = store.hold()
        rebuilding = asyncio.ensure_future(thread.replay.rebuild())
        await hold.begun.wait()
        await other.thread("t").scratchpad.write("Pears sell on Tuesdays.")
        await other.thread("t").dispatch(UserMessage(content="meanwhile"))
        hold.release()
        info = await rebuilding
        assert "meanwhile" == (await texts(thread))[-1]
        assert 2 == len(await thread.scratchpad.read())
        assert (info.events, True) == ((await other.thread("t").info()).events, (await thread.replay.verify()).ok)


async def test_rebuilds_among_writers_lose_nothing(path: str) -> None:
    """Two engines write and rebuild at once; every event is there, and the log verifies."""
    async with memory_engine.open(path) as one, memory_engine.open(path) as other:

        async def write(engine: Engine, first: int) -> None:
            for n in range(first, first + 30):
                await engine.thread("t").scratchpad.write(f"Note {n}", event_id=f"note {n}")

        async def remake(engine: Engine) -> None:
            for _ in range(5):
                await engine.thread("t").replay.rebuild()

        await asyncio.gather(write(one, 0), write(other, 100), remake(one), remake(other))
        notes = {event.id for event in [one async for one in other.thread("t").events()]}
        assert {f"note {n}" for n in (*range(30), *range(100, 130))} <= notes
        assert (await one.thread("t").replay.verify()).ok


async def test_readers_see_the_old_or_the_new(path: str) -> None:
    """While a rebuild runs, a reader of another process sees all of the old rows, or all of the new."""
    tamper(path, "UPDATE projection_rows SET value = x'22780022' WHERE projection <> 'snapshots'")
    tamper(path, "UPDATE live SET key = CAST(x'00' || key AS BLOB)")
    tamper(path, "UPDATE passages SET speaker = 'old'")
    query = (
        "SELECT sum(value = x'22780022') FROM projection_rows WHERE projection <> 'snapshots' UNION ALL "
        "SELECT sum(hex(key) LIKE '00%') FROM live UNION ALL SELECT sum(speaker = 'old') FROM passages"
    )
    with closing(sqlite3.connect(path)) as raw:

        def seen() -> tuple[int, ...]:
            return tuple(count for (count,) in raw.execute(query))

        old, found = seen(), set[tuple[int, ...]]()
        async with memory_engine.open(path, config=EngineConfig(compaction=NEVER)) as engine:
            rebuilding = asyncio.ensure_future(rebuild(kernel_of(engine), "t"))
            while not rebuilding.done():
                found.add(seen())
                await asyncio.sleep(0)
            await rebuilding
        assert all(old)
        assert {old} <= found <= {old, (0, 0, 0)}
        assert (0, 0, 0) == seen()


async def test_events_are_taken_while_the_log_is_folded() -> None:
    """They come into the log at once, and into what is made."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=str(n)) for n in range(1500)])
        seen: list[asyncio.Task[object]] = []

        def progress(_events: int) -> None:
            seen.append(asyncio.ensure_future(thread.dispatch(UserMessage(content=f"meanwhile {len(seen)}"))))

        info = await thread.replay.rebuild(progress=progress)
        assert 3 <= len(seen)
        await asyncio.gather(*seen)
        assert (1500 + len(seen), True) == ((await thread.info()).events, (await thread.replay.verify()).ok)
        assert info.events >= 1500


@settings(max_examples=25)
@given(EVENTS)
async def test_one_view_after_the_other_is_all_at_once(events: Sequence[Event]) -> None:
    """Law: rebuilding views one by one, and the index, gives what a rebuild of everything gives."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread("t")
        await thread.search("first")
        await each(thread, events)
        assert (await thread.replay.verify()).divergence is None
        names = [projection.name for projection in kernel_of(engine).projections]
        await thread.replay.rebuild()
        whole = [await thread.views.read(name) for name in names], await contents(thread)
        for name in names:
            await thread.replay.rebuild([name])
        await thread.replay.rebuild([], search=True)
        assert whole == ([await thread.views.read(name) for name in names], await contents(thread))
        assert (await thread.replay.verify()).divergence is None


class Noting(FaultyStore):
    """Notes what is committed."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.units: list[CommitUnit] = []

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Note, and pass on."""
        self.units.append(unit)
        return super().commit(unit)


async def test_a_rebuild_is_one_commit() -> None:
    """Whatever is made, the store is asked once."""
    store = Noting()
    async with memory_engine.open(store) as engine:
        thread = await lived(engine)
        kept, head = await contents(thread), (await thread.info()).events
        ending = PassageChange(head, head, [PassageStep(head, seqs=(3,))])
        assert await store.passages.write("t", ending)
        assert kept != await contents(thread)
        store.units.clear()
        await thread.replay.rebuild()
        [unit] = store.units
        assert unit.passages is not None
        assert {projection.name for projection in kernel_of(engine).projections} < {
            c.projection for c in unit.projections
        }
        assert kept == await contents(thread)


async def test_a_rebuild_writes_only_what_differs() -> None:
    """Rows and an index that are right stay as they are: to write them anew would hold up every other thread."""
    store = Noting()
    async with memory_engine.open(store) as engine:
        thread = await lived(engine)
        store.units.clear()
        report = await rebuild(kernel_of(engine), "t")
        [unit] = store.units
        assert (None, {}) == (unit.passages, unit.live)
        assert not any(change.rows for change in unit.projections)
        assert (74, len(await contents(thread)) - 1) == (report.chunks, report.passages)


async def test_a_passage_too_many_goes_while_others_write(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is compared as of the end of what was read."""
    columns = "kind, role, speaker, at_us, tid, key, origins, ended, size, terms"
    last = "FROM passages ORDER BY pos DESC LIMIT 1"
    tamper(path, f"INSERT INTO passages (pos, {columns}) SELECT pos + 7, {columns} {last}")
    tamper(
        path,
        f"UPDATE passage_indexes SET passages = passages + 1, last = last + 7, terms = terms + (SELECT size {last})",
    )
    advance = Remaking.advance

    async def advanced(self: Remaking, upto: int, progress: VerifyProgress | None = None) -> None:
        await advance(self, upto, progress)
        if not written:
            written.append(await thread.dispatch(UserMessage(content="meanwhile")))

    written: list[Receipt] = []
    monkeypatch.setattr(Remaking, "advance", advanced)
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        await thread.replay.rebuild()
        assert (await thread.replay.verify()).ok


async def test_a_rebuild_finishes_an_index_that_is_half_made() -> None:
    """What is there is kept, and the events that are not in it yet are indexed."""
    store = Noting()
    async with memory_engine.open(store) as engine:
        thread = await lived(engine)
        kept, seen = await contents(thread), (await thread.info()).events
        await store.passages.begin("t", afresh=True)
        report = await rebuild(kernel_of(engine), "t", [], search=True)
        looked = await store.passages.look_up("t", LookUp())
        assert (seen, len(kept) - 1) == (looked.seq, report.passages)
        assert kept == await contents(thread)


# the command


def test_the_command_says_what_was_made(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each thread, or counts as JSON; progress and errors beside it."""
    tamper(path, DAMAGE["a view's row lost"])
    assert 1 == main(["verify", "--db", path])
    assert 0 == main(["rebuild", "--db", path])
    lines = capsys.readouterr().out.splitlines()
    assert ["THREAD", "EVENTS", "CHUNKS", "ROWS", "PASSAGES"] == lines[-3].split()
    assert ["t", "1 thread,"] == [lines[-2].split()[0], " ".join(lines[-1].split()[:2])]
    assert 0 == main(["verify", "--db", path])
    capsys.readouterr()
    assert 0 == main(
        ["rebuild", "t", "--view", "conversation", "--view", "episodic", "--search", "--db", path, "--json"]
    )
    found = json.loads(capsys.readouterr().out)
    [made] = found["rebuilt"]
    assert (1, [], ["conversation", "episodic"], None) == (
        found["threads"], found["failed"], list(made["views"]), made["chunks"],
    )  # fmt: skip
    assert made["passages"] > 70


@pytest.mark.parametrize("words", [("--view", "nope"), ("nobody",)])
def test_the_command_refuses_what_is_not_there(
    path: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A view or a thread: exit code 2, in one line."""
    assert 2 == main(["rebuild", *words, "--db", path])
    assert 1 == capsys.readouterr().err.count("\n")


def test_the_command_goes_on_past_a_thread_that_is_broken(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It says which stands as it was and why, and the exit code is 1; by its name alone it is an error."""

    async def add() -> None:
        async with memory_engine.open(path) as engine:
            await (await engine.create_thread("well")).dispatch(UserMessage(content="x"))

    anyio.run(add)
    tamper(path, "DELETE FROM events WHERE pos & 0xFFFFFFFF = 3")
    assert 1 == main(["rebuild", "--db", path, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (["well"], ["t"]) == (
        [one["thread_id"] for one in found["rebuilt"]], [one["thread_id"] for one in found["failed"]],
    )  # fmt: skip
    assert 2 == main(["rebuild", "t", "--db", path])
    capsys.readouterr()
    assert 1 == main(["rebuild", "--db", path])
    assert "as it was: thread 't' is broken at seq 3" in capsys.readouterr().out
