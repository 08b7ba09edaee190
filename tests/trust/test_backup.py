"""A backup is one file, as the store is at one moment, taken while others write; a restored store goes on."""

import asyncio
import json
import sqlite3
import threading
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig
from memory_engine import events as e
from memory_engine.errors import BackupFailed, ErasureUnfinished, SchemaError, StorageFailed
from memory_engine.storage.sqlite import backup
from memory_engine.store.protocol import Backup
from tests.command_line import Run
from tests.trust.test_erasing import SAID, SECRET, held, talked, tampered


def names(folder: Path) -> set[str]:
    """What is in a folder."""
    return {file.name for file in folder.iterdir()}


async def test_a_backup_of_a_live_store_opens_like_any_other(tmp_path: Path) -> None:
    """With its threads, states, views and index; the same hashes; and nothing stands beside it."""
    path, copy = tmp_path / "m.db", tmp_path / "copy" / "b.db"
    copy.parent.mkdir()
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t", user_id="u1")
        await talked(thread)
        await thread.dispatch(e.UserMessage(content="x" * 200_000))
        await (await thread.fork(thread_id="fork", at=2)).dispatch(e.UserMessage(content="elsewhere"))
        await thread.fork(thread_id="bare", at=2)
        await engine.user("u1").preferences.update("name", "Mia")
        report = await engine.admin.backup(copy)
        heads = {info.id: info.head_hash for info in await engine.threads()}
        assert (4, ()) == (report.threads, report.broken)
        assert (await engine.stats()).events == report.events
        assert ["b.db"] == [file.name for file in copy.parent.iterdir()]
        assert copy.stat().st_size == report.bytes
        await thread.dispatch(e.UserMessage(content="After the backup"))
    async with memory_engine.open(str(copy)) as engine:
        assert heads == {info.id: info.head_hash for info in await engine.threads()}
        assert [] == [one for one in await engine.verify() if not one.ok]
        assert SAID in [chunk.text for chunk in (await engine.thread("t").state()).chunks()]
        assert 2 == (await engine.thread("t").search("passport")).hits[0].seq
        await engine.thread("t").dispatch(e.UserMessage(content="Its own way"))


async def test_writers_go_on_meanwhile_and_the_copy_is_of_one_moment(tmp_path: Path) -> None:
    """Events that are acknowledged before it are in it; of a batch that comes meanwhile all, or nothing."""
    path, copy = str(tmp_path / "m.db"), tmp_path / "b.db"
    still = EngineConfig(compaction=CompactionPolicy(enabled=False))  # a compaction's events come one by one
    async with memory_engine.open(path, config=still) as engine:
        threads = [await engine.create_thread(f"t{n}") for n in range(4)]
        await asyncio.gather(*(one.dispatch_all([e.UserMessage(content="y" * 9_000)] * 40) for one in threads))

        async def write() -> None:
            for n in range(40):
                await threads[n % 4].dispatch_all([e.UserMessage(content="a"), e.UserMessage(content="b")])

        report, _ = await asyncio.gather(engine.admin.backup(copy), write())
        assert 160 <= report.events <= 240
        assert 0 == report.events % 2
    async with memory_engine.open(str(copy)) as engine:
        assert [] == [one for one in await engine.verify() if not one.ok]


async def test_nothing_is_replaced(tmp_path: Path) -> None:
    """Neither by a backup nor by a restored store; nothing is left behind by those that fail."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        await engine.create_thread("t")
        for target in (path, tmp_path):
            with pytest.raises(FileExistsError):
                await engine.admin.backup(target)
        with pytest.raises(FileNotFoundError):
            await engine.admin.backup(tmp_path / "no" / "b.db")
        await engine.admin.backup(tmp_path / "b.db")
    with pytest.raises(FileExistsError):
        await memory_engine.restore(tmp_path / "b.db", path)
    report = await memory_engine.restore(tmp_path / "b.db", tmp_path / "new.db")
    assert 1 == report.threads
    assert {"m.db", "m.db.lock", "b.db", "new.db"} == names(tmp_path)


async def test_what_is_not_a_store_is_not_restored(tmp_path: Path) -> None:
    """Text, another program's file, none at all, a damaged one."""
    (tmp_path / "text").write_text("not a database, whatever its name is " * 200)
    with closing(sqlite3.connect(tmp_path / "other")) as raw:
        raw.execute("CREATE TABLE t (a)")
    for name in ("text", "other"):
        with pytest.raises(SchemaError):
            await memory_engine.restore(tmp_path / name, tmp_path / "new.db")
    with pytest.raises(StorageFailed):
        await memory_engine.restore(tmp_path / "nothing", tmp_path / "new.db")
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        await (await engine.create_thread("t")).dispatch_all([e.UserMessage(content="z" * 3_000)] * 30)
    damaged = bytearray((tmp_path / "m.db").read_bytes())
    damaged[4096 * 4 : 4096 * 12] = b"\xff" * 4096 * 8
    (tmp_path / "m.db").write_bytes(damaged)
    with pytest.raises(BackupFailed):
        await memory_engine.restore(tmp_path / "m.db", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
    assert set() == {name for name in names(tmp_path) if ".part" in name}


async def test_a_store_in_memory_has_nothing_to_copy(tmp_path: Path) -> None:
    """The error says what can be done."""
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(BackupFailed, match="export its threads"):
            await engine.admin.backup(tmp_path / "b.db")


async def test_a_broken_chain_is_copied_and_named(tmp_path: Path) -> None:
    """A backup of what is left is worth more than none."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        for name in ("t", "sound"):
            await (await engine.create_thread(name)).dispatch_all([e.UserMessage(content=SAID)] * 3)
    tampered(path, "UPDATE events SET payload = CAST(replace(payload, 'keep', 'lose') AS BLOB) WHERE pos = (1<<32) + 2")
    async with memory_engine.open(str(path)) as engine:
        assert ("t",) == (await engine.admin.backup(tmp_path / "b.db")).broken


async def test_forks_that_lead_in_a_circle_are_named(tmp_path: Path) -> None:
    """Looking for the past that they share comes to an end."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        await talked(thread := await engine.create_thread("t"))
        await thread.fork(thread_id="fork", at=2)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE threads SET forked_tid = (SELECT tid FROM threads WHERE id = 'fork'), forked_seq = 99")
        raw.execute("UPDATE threads SET forked_tid = (SELECT tid FROM threads WHERE id = 't') WHERE id = 'fork'")
        raw.commit()
    async with memory_engine.open(str(path)) as engine:
        assert ("t", "fork") == (await engine.admin.backup(tmp_path / "b.db")).broken


async def test_a_backup_keeps_what_was_erased_later(tmp_path: Path) -> None:
    """So backups have an end of their own."""
    path, early, late = tmp_path / "m.db", tmp_path / "early.db", tmp_path / "late.db"
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        event_id = await talked(thread)
        await engine.admin.backup(early)
        await thread.admin.erase([event_id])
        await engine.admin.backup(late)
    assert (True, False) == (held(early), held(late))


@pytest.mark.parametrize("doing", ["erase", "delete"])
@pytest.mark.parametrize("moment", ["while it copies", "while it checks"])
async def test_what_is_erased_during_a_backup_is_erased_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doing: str, moment: str
) -> None:
    """The act is pending there, whatever came of it in the store, and finished by whoever opens it; holds come too."""
    copies, goes_on = threading.Event(), threading.Event()
    checked = backup.checked

    def held_up(*_: object) -> None:
        copies.set()
        assert goes_on.wait(60)

    def checked_late(made: sqlite3.Connection, path: str) -> Backup:
        held_up()
        return checked(made, path)

    if moment == "while it checks":
        monkeypatch.setattr(backup, "checked", checked_late)
    monkeypatch.setattr("memory_engine.administration.proof.WAIT_S", 0.2)
    copy = tmp_path / "copy.db"
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        event_id = await talked(thread := await engine.create_thread("t"))
        made = asyncio.create_task(engine.admin.backup(copy, held_up if moment == "while it copies" else None))
        await asyncio.to_thread(copies.wait, 60)
        late = await (await engine.create_thread("late")).dispatch(e.UserMessage(content=SAID))
        await engine.thread("late").admin.erase([late.event_id]) if moment == "while it checks" else None
        with nullcontext() if moment == "while it checks" else pytest.raises(ErasureUnfinished):
            await (thread.admin.erase([event_id]) if doing == "erase" else thread.admin.delete())
        held_now = await engine.user("u").admin.hold()
        goes_on.set()
        await made
        await engine.admin.finish_acts()
        assert {"done"} == {act.state for act in await engine.admin.acts()}
    assert held(copy)
    await memory_engine.restore(copy, tmp_path / "again.db")
    for path in (copy, tmp_path / "again.db"):
        async with memory_engine.open(str(path)) as engine:
            await engine.admin.finish_acts()
            assert {"done"} == {act.state for act in await engine.admin.acts()}
            assert [held_now.id] == [one.id for one in await engine.admin.holds()]
            assert [] == [one for one in await engine.verify() if not one.ok]
            assert (["t"] if doing == "erase" else []) == [info.id for info in await engine.threads()]
        assert not held(path)


def test_the_commands(run: Run, tmp_path: Path) -> None:
    """A backup and a restored store, told to people and to programs; what is there is never replaced."""
    path, copy, new = (str(tmp_path / name) for name in ("m.db", "b.db", "new.db"))

    async def write() -> None:
        async with memory_engine.open(path) as engine:
            await talked(await engine.create_thread("t"))

    asyncio.run(write())
    code, out, err = run("backup", copy, "--db", path)
    assert (0, "", True) == (code, err, out.startswith(f"{path} → {copy}: 1 thread, 4 events, "))
    code, out, err = run("backup", copy, "--db", path)
    assert (2, True) == (code, "there is a file already: give another name, or move that file away" in err)
    code, out, err = run("restore", copy, new, "--json")
    assert (0, "", {"path": new, "threads": 1, "events": 4, "bytes": Path(new).stat().st_size, "broken": []}) == (
        code,
        err,
        json.loads(out),
    )
    assert 2 == run("restore", copy, new)[0]
    assert 2 == run("restore", str(tmp_path / "none"), str(tmp_path / "x.db"))[0]
    assert 0 == run("verify", "--db", new)[0]
    assert held(Path(new), SECRET)
