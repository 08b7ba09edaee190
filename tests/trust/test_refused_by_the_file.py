"""A damaged row, or an argument that SQLite cannot take, is not a dead disk: other calls and threads go on."""

import asyncio
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, UserMessage, errors
from memory_engine.storage.sqlite.connection import is_failing
from memory_engine.store.passages import PLACES_BITS
from tests.trust.files import tamper


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return str(tmp_path / "memory.db")


async def written(path: str) -> None:
    """Two threads, `bad` and `good`, with an index for search each."""
    async with memory_engine.open(path) as engine:
        for name in ("bad", "good"):
            thread = await engine.create_thread(name)
            await thread.dispatch_all([UserMessage(content=f"{n} words of {name}") for n in range(80)])
            await thread.search("words")


INDEXES = {
    "a stray row": "UPDATE passage_indexes SET seq = 70 WHERE tid = 1",
    "a stray row ahead": "INSERT INTO passages SELECT pos + (5 << PLACES_BITS), kind, role, speaker, at_us, tid, key, "
    "origins, ended, size, terms FROM passages ORDER BY pos DESC LIMIT 1".replace("PLACES_BITS", str(PLACES_BITS)),
    "a damaged list of words": "UPDATE passage_terms_data SET block = zeroblob(9) WHERE id > 10",
}


@pytest.mark.parametrize("damage", INDEXES.values(), ids=INDEXES)
async def test_a_damaged_index_stops_no_thread_and_is_made_again(path: str, damage: str) -> None:
    """The event is recorded, the other thread is written to, and a search finds everything again."""
    await written(path)
    tamper(path, damage)
    async with memory_engine.open(path) as engine:
        bad, good = engine.thread("bad"), engine.thread("good")
        for thread in (bad, good):
            await thread.dispatch(UserMessage(content=f"new words of {thread.id}"))
        for thread in (bad, good):
            await thread.replay.rebuild()
            assert {"new words of bad", "new words of good"} & {hit.text for hit in await thread.search("new words")}
            assert (await thread.replay.verify()).ok
            await thread.dispatch(UserMessage(content="more"))


async def test_a_search_mends_an_index_that_stands_behind_its_rows(path: str) -> None:
    """What the index lacks is in it already: it is dropped and made again, without a rebuild by hand."""
    await written(path)
    tamper(path, INDEXES["a stray row"])
    async with memory_engine.open(path) as engine:
        assert "79 words of bad" in {hit.text for hit in await engine.thread("bad").search("words 79", limit=3)}
        assert 81 == (await engine.thread("good").dispatch(UserMessage(content="more"))).seq
        assert (await engine.thread("bad").replay.verify()).ok


async def test_a_row_that_stands_in_the_way_of_one_thread_refuses_its_events_alone(path: str) -> None:
    """Units of several threads are committed together: the one that a stray row refuses takes no other along."""
    async with memory_engine.open(path) as engine:
        for name in ("bad", "good"):
            await engine.create_thread(name)
        with sqlite3.connect(path) as raw:
            raw.execute(
                "CREATE TRIGGER t BEFORE INSERT ON events WHEN new.tid = 1 BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        raw.close()
        for _ in range(2):
            with pytest.raises(errors.StorageRefused, match="no; nothing was written"):
                await engine.thread("bad").dispatch(UserMessage(content="x"))
            await engine.thread("good").dispatch(UserMessage(content="x"))
        assert [0, 2] == [info.events for info in await engine.threads()]


REFUSING = "CREATE TRIGGER t BEFORE INSERT ON events WHEN new.tid = 1 BEGIN SELECT RAISE(ABORT, 'no'); END"


FAILING = {
    "SQLITE_IOERR": True, "SQLITE_IOERR_FSYNC": True, "SQLITE_FULL": True, "SQLITE_READONLY": True,
    "SQLITE_READONLY_DBMOVED": True, "SQLITE_CANTOPEN": True, "SQLITE_CORRUPT": True, "SQLITE_PERM": True,
    "SQLITE_CORRUPT_VTAB": False, "SQLITE_CORRUPT_INDEX": False, "SQLITE_CONSTRAINT_UNIQUE": False,
    "SQLITE_CONSTRAINT_TRIGGER": False, "SQLITE_ERROR": False, "SQLITE_MISMATCH": False, "SQLITE_TOOBIG": False,
    "SQLITE_NOMEM": False, "SQLITE_INTERRUPT": False,
}  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), FAILING.items())
def test_errors_are_told_apart_by_their_code(name: str, *, expected: bool) -> None:
    """Only those that speak of the disk or the whole file stop writing."""
    error = sqlite3.DatabaseError(name)
    error.sqlite_errorcode = getattr(sqlite3, name)
    assert expected == is_failing(error)


@pytest.mark.parametrize("limit", [1.5, "2", True, -1, 1 << 70, [2]])
async def test_a_limit_that_is_no_number_is_refused(path: str, limit: object) -> None:
    """By what it is, and the store goes on; in a file as in memory."""
    for place in (path, ":memory:"):
        async with memory_engine.open(place) as engine:
            thread = await engine.create_thread()
            with pytest.raises(errors.InvalidArgument, match="limit"):
                await engine.threads(limit=limit)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgument, match="limit"):
                await engine.correlated("c", limit=limit)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgument, match="limit"):
                await thread.replay.latest(limit)  # type: ignore[arg-type]
            assert 1 == (await thread.dispatch(UserMessage(content="goes on"))).seq


# one commit for a thread and its first event


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, path: str) -> str:
    """A store in memory, and one in a file."""
    return ":memory:" if request.param == "memory" else path


FIRST = memory_engine.InitialChunk(content="You are helpful")


async def test_a_thread_and_its_first_chunks_are_one_commit(path: str) -> None:
    """Whoever sees the thread sees its system prompt: cancelled at any moment, there is neither or both."""
    async with memory_engine.open(path) as engine:
        for rounds in range(12):
            making = asyncio.ensure_future(engine.create_thread(f"t{rounds}", initial_chunks=[FIRST]))
            for _ in range(rounds):
                await asyncio.sleep(0)
            making.cancel()
            await asyncio.wait([making])
        await engine.create_thread("whole", initial_chunks=[FIRST])  # on a busy machine all others may be cancelled
        await engine.flush()
        assert {1} == {info.events for info in await engine.threads()}
        for rounds in range(12):
            with suppress(errors.ThreadExists):
                await engine.create_thread(f"t{rounds}", initial_chunks=[FIRST])
        infos = await engine.threads()
        assert (13, {1}) == (len(infos), {info.events for info in infos})
        assert all(report.ok for report in await engine.verify())


async def test_a_thread_with_first_chunks_is_used_at_once(place: str) -> None:
    """It takes events, is searched, verified and told to observers as any other."""
    async with memory_engine.open(place) as engine:
        seen: list[str] = []
        engine.observe(lambda event: seen.append(event.type))
        thread = await engine.create_thread("t", initial_chunks=[FIRST])
        assert 2 == (await thread.dispatch(UserMessage(content="Hello"))).seq
        await asyncio.sleep(0)
        assert ["thread_seeded", "user_message"] == seen
        assert ["You are helpful", "Hello"] == [c.content for c in (await thread.state()).chunks()]
        assert (await thread.replay.verify()).ok
        with pytest.raises(errors.ThreadExists):
            await engine.create_thread("t", initial_chunks=[FIRST])
        assert 3 == (await thread.dispatch(UserMessage(content="more"))).seq


async def test_first_chunks_that_are_refused_leave_no_thread(engine: Engine) -> None:
    """Too large, or not to be recorded."""
    async with memory_engine.open(":memory:", config=EngineConfig(event_bytes_max=200)) as small:
        with pytest.raises(errors.EventTooLarge):
            await small.create_thread("t", initial_chunks=[memory_engine.InitialChunk(content="x" * 300)])
        assert [] == await small.threads()
    for wrong in (5, "text", [5], [None], ["text"]):
        with pytest.raises(errors.InvalidInput):
            await engine.create_thread("t", initial_chunks=wrong)  # type: ignore[arg-type]
    assert [] == await engine.threads()
