"""`read_only=True` writes nothing: neither to the file nor beside it, whatever its schema and whatever is beside it."""

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage, errors
from memory_engine.storage.places import schema_of
from memory_engine.thread import handle_of
from tests.trust.older_files import NEWEST, closed, contents, left_behind, names, of_version, temporary, written

__all__ = ["temporary"]  # a fixture

ROOT = Path(__file__).resolve().parents[2]
ONLY_READS = EngineConfig(read_only=True)


async def found(path: Path) -> dict[str, tuple[int, str]]:
    """All that a reader finds, if it is whole: events and hashes, a state, a past view, what searches find."""
    async with memory_engine.open(str(path), config=ONLY_READS) as engine:
        wrong = [report.divergence for report in await engine.verify() if report.divergence is not None]
        assert {"head"} >= {divergence.kind for divergence in wrong}  # schema 1 kept no marks in its heads
        assert 2 == len([one async for one in engine.thread("fork").events()][:2])
        assert "concise" in str(await (await engine.thread("user:ann").at(1)).views.read("preferences"))
        assert "Two chairs, please." == (await engine.thread("t").search("chairs"))[0].text
        assert "Rather a table." == (await engine.thread("fork").search("table"))[0].text
        assert {"t", "fork"} == {hit.thread_id for hit in await engine.search("chairs oak table")}
        assert "They want oak." in str((await (await engine.thread("t").at(3)).context(query="oak")).messages)
        with pytest.raises(errors.ReadOnly):
            await engine.thread("t").dispatch(UserMessage(content="more"))
        return {info.id: (info.events, info.head_hash) for info in await engine.threads()}


def version(path: Path) -> int:
    """The number in a file's header, whatever is in its log."""
    return int.from_bytes(path.read_bytes()[60:64], "big")


@pytest.mark.parametrize("number", range(1, NEWEST + 1))
@pytest.mark.parametrize("beside", ["nothing", "a dead process's log", "a log without its shared memory"])
async def test_every_schema_is_read_and_nothing_is_written(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, number: int, beside: str
) -> None:
    """The same threads with the same hashes; each file has the bytes and the time it had, and there is no other."""
    (tmp_path / "made").mkdir()
    await written(tmp_path / "newest.db")
    raw = of_version(tmp_path / "newest.db", tmp_path / "made" / "m.db", number, monkeypatch)
    folder = tmp_path / "left"
    if beside == "nothing":
        closed(raw)
        left_behind(tmp_path / "made", folder)
        assert ["m.db"] == names(folder)
        assert number == version(folder / "m.db")
    else:
        left_behind(tmp_path / "made", folder, shared_memory=beside == "a dead process's log")
        raw.close()
    before = contents(folder)
    expected = await found(tmp_path / "newest.db")
    assert expected == await found(folder / "m.db")
    assert before == contents(folder)
    assert number == (await schema_of(str(folder / "m.db")).versions()).stored
    assert before == contents(folder)
    assert [] == names(temporary)


async def test_a_copy_is_gone_while_it_is_read(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that none is left behind by a process that is killed."""
    await written(tmp_path / "newest.db")
    closed(of_version(tmp_path / "newest.db", tmp_path / "m.db", NEWEST - 1, monkeypatch))
    async with memory_engine.open(str(tmp_path / "m.db"), config=ONLY_READS) as engine:
        assert [] == names(temporary)
        assert 3 == len(await engine.threads())


async def test_no_room_for_a_copy_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to do."""
    await written(tmp_path / "newest.db")
    closed(of_version(tmp_path / "newest.db", tmp_path / "m.db", 3, monkeypatch))
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(errors.SchemaError, match=r"its schema is version 3; .*open it once for writing"):
        await found(tmp_path / "m.db")


async def test_a_hot_journal_is_rolled_back_in_a_copy(tmp_path: Path, temporary: Path) -> None:
    """A process that died while it wrote without a write-ahead log: its half transaction is not read."""
    await written(tmp_path / "m.db")
    expected = await found(tmp_path / "m.db")
    folder = tmp_path / "left"
    with closing(sqlite3.connect(tmp_path / "m.db", isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE").fetchone()
        raw.execute("PRAGMA cache_size = 1")
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("UPDATE heads SET hash = zeroblob(32)")
        raw.execute("DELETE FROM live")
        raw.execute("CREATE TABLE large (x)")
        raw.executemany("INSERT INTO large VALUES (?)", [(b"x" * 4000,)] * 200)
        folder.mkdir()
        for name in ("m.db", "m.db-journal"):
            (folder / name).write_bytes((tmp_path / name).read_bytes())
        raw.execute("ROLLBACK")
    assert (folder / "m.db-journal").stat().st_size
    before = contents(folder)
    assert expected == await found(folder / "m.db")
    assert before == contents(folder)
    assert [] == names(temporary)


@contextmanager
def another_process(path: Path, events: int) -> Iterator["subprocess.Popen[str]"]:
    """One that has the file open, and waits."""
    command = [sys.executable, "-m", "tests.trust.writing_child", str(path), str(events)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert "written\n" == child.stdout.readline()
        yield child
        assert child.stdin is not None
        child.stdin.close()
        assert 0 == child.wait()


def one_more(child: "subprocess.Popen[str]") -> None:
    """Have it write another event."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    assert "written\n" == child.stdout.readline()


@pytest.mark.parametrize("events", [0, 1, 2, 40])
async def test_beside_a_process_that_writes(tmp_path: Path, events: int) -> None:
    """Its commits are read as they come, and its files are left as they are: shared memory and locks too."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        await engine.create_thread("t")
    with another_process(path, events) as child:
        before = contents(tmp_path)
        async with memory_engine.open(str(path), config=ONLY_READS) as reader:
            assert events == (await reader.thread("t").info()).events
            assert (await reader.thread("t").replay.verify()).ok
            assert before == contents(tmp_path)
            for more in range(1, 4):
                one_more(child)
                assert events + more == (await reader.thread("t").info()).events
                assert events + more in {hit.seq for hit in await reader.thread("t").search("chair", limit=100)}
            before = contents(tmp_path)
            assert events + 3 == (await reader.stats()).events
        assert before == contents(tmp_path)


async def test_a_writer_that_comes_and_goes(tmp_path: Path) -> None:
    """Opened while nobody wrote: what others write afterwards is read, and what is there when they have gone."""
    path = tmp_path / "m.db"
    await written(path)
    async with memory_engine.open(str(path), config=ONLY_READS) as reader:
        count = (await reader.thread("t").info()).events
        for _ in range(3):
            with another_process(path, 2) as child:
                told = await asyncio.gather(*(reader.thread("t").info() for _ in range(20)))
                assert [count + 2] * 20 == [info.events for info in told]
                one_more(child)
                assert count + 3 == (await reader.thread("t").info()).events
            count += 3
            assert count == (await reader.thread("t").info()).events
        assert (await reader.thread("t").replay.verify()).ok


async def test_a_reader_is_in_no_writers_way(tmp_path: Path) -> None:
    """One that has a dead process's log open, in the process that begins to write then."""
    path = tmp_path / "left" / "m.db"
    (tmp_path / "made").mkdir()
    async with memory_engine.open(str(tmp_path / "made" / "m.db")) as dead:
        await (await dead.create_thread("t")).dispatch(UserMessage(content="first"))
        left_behind(tmp_path / "made", tmp_path / "left")
    async with memory_engine.open(str(path), config=ONLY_READS) as reader:
        assert 1 == (await reader.thread("t").info()).events
        async with memory_engine.open(str(path)) as writer:
            for count in range(2, 6):
                await writer.thread("t").dispatch(UserMessage(content="more"))
                told = await asyncio.gather(*(reader.thread("t").info() for _ in range(4)))
                assert [count] * 4 == [info.events for info in told]
        assert 5 == (await reader.thread("t").info()).events
    async with memory_engine.open(str(path)) as writer:
        await writer.thread("t").dispatch(UserMessage(content="more"))


async def test_a_link_is_followed_to_the_log(tmp_path: Path) -> None:
    """SQLite's logs are beside the file itself."""
    (tmp_path / "made").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "left" / "m.db")
    async with memory_engine.open(str(tmp_path / "made" / "m.db")) as dead:
        await (await dead.create_thread("t")).dispatch(UserMessage(content="first"))
        left_behind(tmp_path / "made", tmp_path / "left")
    before = contents(tmp_path / "left")
    async with memory_engine.open(str(tmp_path / "link.db"), config=ONLY_READS) as reader:
        assert 1 == (await reader.thread("t").info()).events
    assert before == contents(tmp_path / "left")


@pytest.mark.parametrize("number", [NEWEST - 1, NEWEST])
async def test_a_backup_writes_only_its_target(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Of an engine that only reads, and of a restore."""
    (tmp_path / "made").mkdir()
    await written(tmp_path / "newest.db")
    raw = of_version(tmp_path / "newest.db", tmp_path / "made" / "m.db", number, monkeypatch)
    left_behind(tmp_path / "made", tmp_path / "left")
    raw.close()
    before = contents(tmp_path / "left")
    async with memory_engine.open(str(tmp_path / "left" / "m.db"), config=ONLY_READS) as engine:
        backup = await engine.admin.backup(tmp_path / "backup.db")
        exported = await engine.transfer.export_all(tmp_path / "all")
    restored = await memory_engine.restore(tmp_path / "left" / "m.db", tmp_path / "restored.db")
    assert (3, 3, 3, ()) == (backup.threads, restored.threads, exported.threads, backup.broken)
    assert before == contents(tmp_path / "left")
    assert await found(tmp_path / "newest.db") == await found(tmp_path / "backup.db")
    assert [] == names(temporary)


async def test_a_file_that_is_removed_is_missed(tmp_path: Path) -> None:
    """By an error of ours."""
    await written(tmp_path / "m.db")
    async with memory_engine.open(str(tmp_path / "m.db"), config=ONLY_READS) as reader:
        (tmp_path / "m.db").unlink()
        with pytest.raises(errors.StorageFailed):
            await reader.threads()


async def test_a_writer_that_comes_and_goes_leaves_no_reader_behind(tmp_path: Path) -> None:
    """Who closes last takes the log away that a reader has open: it opens the file again and goes on."""
    path = str(tmp_path / "m.db")
    writing = """
import asyncio, sys
import memory_engine

async def main():
    for n in range(60):
        async with memory_engine.open(sys.argv[1]) as engine:
            await (await engine.open_thread("t")).dispatch(memory_engine.UserMessage(content=f"word {n}"))
        await asyncio.sleep(0.01)

asyncio.run(main())
"""
    async with memory_engine.open(path) as engine:
        await (await engine.open_thread("t")).dispatch(UserMessage(content="first"))
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", writing, path)
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as reader:
        while writer.returncode is None:
            assert await handle_of(reader.thread("t")).last_seq() >= 1
            await asyncio.sleep(0.003)
        assert 61 == await handle_of(reader.thread("t")).last_seq()
