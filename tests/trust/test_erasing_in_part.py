"""An act on a large file reads and zeroes a part of it, and says so; what it meets there makes it read everything."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, Thread, UserMessage
from memory_engine.administration.erasing import finish_acts
from memory_engine.administration.proof import find_texts
from memory_engine.engine import kernel_of
from memory_engine.storage.sqlite import erasing, wiping
from memory_engine.storage.sqlite.pages import Pages
from memory_engine.storage.sqlite.store import SQLiteStore
from memory_engine.store.passages import Threads
from tests.command_line import Run
from tests.trust.test_erasing import SAID, SECRET, bytes_of, held, talked

FILLER = "filler 077 "


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as a large one, of which no sample is read: that would be all of it."""
    monkeypatch.setattr(SQLiteStore, "is_large", True)
    monkeypatch.setattr(erasing, "SAMPLE", (0, 1))


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A file with a conversation around the secret, and a long one after it that was indexed too."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        await talked(await engine.create_thread("t", user_id="u1"))
        other = await engine.create_thread("other", user_id="u2")
        await other.dispatch_all([UserMessage(content=f"filler {n:03} {'of words ' * (n % 90)}") for n in range(400)])
        await other.search("filler")
        await kernel_of(engine).store.passages.index_words_of(Threads())
    return path


def plant(path: Path, piece: bytes, where: Callable[[bytes], bool]) -> int:
    """Put bytes into the unused space of the first page that is meant, as a moved row leaves them there. Its number."""
    data = bytearray(path.read_bytes())
    pages = Pages(bytes(data))
    for page in range(2, pages.count + 1):
        if where(bytes(data[(page - 1) * pages.size : page * pages.size])):
            for first, end in pages.free(page, pages.listed()):
                if end - first >= len(piece):
                    data[first : first + len(piece)] = piece
                    path.write_bytes(data)
                    return page
    raise AssertionError("no such page has room")


def of_others(page: bytes) -> bool:
    """Whether a page holds events of the other thread."""
    return FILLER.encode() in page and b"user_message" in page


def of_the_event(page: bytes) -> bool:
    """Whether a page holds the event that will be erased."""
    return SAID.encode() in page and b"user_message" in page


async def erase(engine: Engine, *, prove: bool = False) -> "tuple[Thread, bool | None, int | None]":
    """Erase the event that says it. The thread, and of the proof `ok` and `scanned`."""
    thread = engine.thread("t")
    report = await thread.admin.erase(seqs=[2], prove=prove)
    assert report.proof is not None
    assert report.is_done
    return thread, report.proof.ok, report.proof.scanned


async def test_a_part_is_zeroed_and_searched_and_says_that_it_is_one(path: Path) -> None:
    """Nothing is left, as each byte shows; but the proof read too little to know."""
    async with memory_engine.open(str(path)) as engine:
        thread, ok, scanned = await erase(engine)
        assert ok is None
        assert scanned
        assert not held(path)
        assert not held(path, "osterfeldt")
        assert (await thread.replay.verify()).ok
        outcome = json.loads((await engine.admin.acts())[0].outcome)
        assert (None, scanned) == (outcome["proof"]["ok"], outcome["proof"]["scanned"])


async def test_everything_is_read_where_it_is_asked_for(path: Path) -> None:
    """A copy on a page that the act does not write: only the whole reading knows of it, and zeroes it."""
    plant(path, SAID.encode(), of_others)
    async with memory_engine.open(str(path)) as engine:
        _, ok, scanned = await erase(engine, prove=True)
        assert (True, None) == (ok, scanned)
        assert not held(path)


async def test_a_copy_far_away_is_not_denied(path: Path) -> None:
    """Without the whole reading that copy stays. `ok` does not say otherwise, and the whole reading finds it."""
    plant(path, SAID.encode(), of_others)
    async with memory_engine.open(str(path)) as engine:
        _, ok, _ = await erase(engine)
        assert ok is None
        proof = await find_texts(kernel_of(engine), [SAID])
        assert (False, True) == (proof.ok, all("m.db at byte" in place for place in proof.left))
    assert held(path)


@pytest.mark.parametrize("prove", [False, True])
async def test_a_copy_on_a_page_of_the_event_is_zeroed(path: Path, *, prove: bool) -> None:
    """The act writes that page."""
    plant(path, SAID.encode(), of_the_event)
    async with memory_engine.open(str(path)) as engine:
        await erase(engine, prove=prove)
        assert not held(path)


async def test_a_salt_in_the_sample_has_everything_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nowhere but in a copy of the row."""
    monkeypatch.setattr(erasing, "SAMPLE", (64, 2**20))  # all of it
    async with memory_engine.open(str(path)) as engine:
        (stored,) = await kernel_of(engine).store.read("t", after=1, upto=2, limit=1)
    plant(path, bytes(stored.salt), of_others)
    async with memory_engine.open(str(path)) as engine:
        _, ok, scanned = await erase(engine)
        assert (True, None) == (ok, scanned)
    assert bytes(stored.salt) not in bytes_of(path)


async def test_what_no_wiping_reached_has_everything_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that the act wrote is searched after it was zeroed: here it was not."""
    plant(path, SAID.encode(), of_the_event)

    async def nothing(_store: SQLiteStore, _pages: object) -> bool:
        return True

    monkeypatch.setattr(SQLiteStore, "wipe_part", nothing)
    async with memory_engine.open(str(path)) as engine:
        _, ok, scanned = await erase(engine)
        assert (True, None) == (ok, scanned)
        assert not held(path)


async def test_entries_of_the_index_without_a_passage_are_found(path: Path) -> None:
    """The full-text index is asked for the words of the erased text, in every case."""
    async with memory_engine.open(str(path)) as engine:
        store = kernel_of(engine).store
        assert isinstance(store, SQLiteStore)
        words = [["passport", "osterfeldt"]]
        assert [] == list(await store.left_in_index(["t"], words))
        await store._write(lambda raw: raw.execute("DELETE FROM passages WHERE terms LIKE '%passport%'").rowcount)
        (left,) = await store.left_in_index(["t"], words)
        assert "the full-text index, passage " in left


async def test_an_act_that_another_process_began_reads_everything(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No one knows which pages that one wrote."""
    plant(path, SAID.encode(), of_others)

    async with memory_engine.open(str(path)) as engine:
        with monkeypatch.context() as patch:
            patch.setattr("memory_engine.administration.proof.WAIT_S", 0.0)
            patch.setattr(SQLiteStore, "wipe_part", lambda *_: _never())
            with pytest.raises(memory_engine.errors.ErasureUnfinished):
                await erase(engine)
    async with memory_engine.open(str(path)) as engine:
        await finish_acts(kernel_of(engine))
        (act,) = await engine.admin.acts()
        assert ("done", True) == (act.state, json.loads(act.outcome)["proof"]["ok"])
    assert not held(path)


async def _never() -> bool:
    return False


def test_the_command_says_how_much_was_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that `--prove` reads the rest."""
    place = tmp_path / "m.db"
    monkeypatch.setenv("MEMORY_ENGINE_DB", str(place))

    async def write() -> None:
        async with memory_engine.open(str(place)) as engine:
            await talked(await engine.create_thread("t"))
            await (await engine.create_thread("u")).dispatch(UserMessage(content=f"Another, {SECRET}, is Ada's."))

    asyncio.run(write())
    code, out, err = run("erase", "t", "--seq", "2", "--yes")
    assert (0, "") == (code, err)
    assert " of 1 file, " in out or " of 2 files, " in out
    assert "--prove reads and zeroes all of it" in out
    code, out, err = run("erase", "u", "--seq", "1", "--yes", "--prove")
    assert (0, "") == (code, err)
    assert out.rstrip().endswith("nothing is left")
    assert not held(place)


def test_pages_are_read_from_the_log_once(tmp_path: Path) -> None:
    """Each reading goes on where the last one ended; a log that has begun again is read from its beginning."""
    place = tmp_path / "x.db"
    with closing(sqlite3.connect(place, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("CREATE TABLE t (x)")
        pages: set[int] = set()
        written = wiping.Written(str(place), pages)
        written.read()
        assert {1, 2} == pages
        pages.clear()
        raw.execute("INSERT INTO t VALUES (1)")
        written.read()
        assert {2} == pages
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages.clear()
        written.read()
        assert set() == pages
        raw.execute("CREATE TABLE u (x)")
        written.read()
        assert {1, 3} == pages
