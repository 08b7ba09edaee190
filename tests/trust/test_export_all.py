"""All threads of a store in a folder, and back: the same hashes, and what is there already is passed over."""

import asyncio
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine
from memory_engine import events as e
from memory_engine.errors import ImportRefused
from memory_engine.replay.export.redaction import Redaction
from tests.command_line import Run
from tests.trust.test_erasing import SAID, SECRET, talked


async def filled(engine: Engine) -> dict[str, str]:
    """A conversation, a fork, a user, an empty thread; the hashes of their heads."""
    thread = await engine.create_thread("a/talk: 1", user_id="u1")
    await talked(thread)
    await (await thread.fork(thread_id="fork", at=2)).dispatch(e.UserMessage(content="elsewhere"))
    await engine.user("u1").preferences.update("name", "Mia")
    await engine.create_thread("empty")
    return await heads(engine)


async def heads(engine: Engine) -> dict[str, str]:
    """The hash of each thread's head."""
    return {info.id: info.head_hash for info in await engine.threads()}


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(file.name for file in folder.iterdir())


def edit(folder: Path, old: str, new: str) -> None:
    """Change the list."""
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace(old, new))


async def test_all_threads_come_back_with_the_same_hashes(engine: Engine, tmp_path: Path) -> None:
    """Each verifies; a second import finds them all."""
    before = await filled(engine)
    exported = await engine.transfer.export_all(tmp_path / "out")
    assert (4, ()) == (exported.threads, exported.broken)
    assert [*(f"{n:06d}.jsonl.gz" for n in range(1, 5)), "manifest.json"] == names(tmp_path / "out")
    told: list[tuple[int, int]] = []
    async with memory_engine.open(":memory:") as other:
        report = await other.transfer.import_all(
            tmp_path / "out", progress=lambda *done: told.append(done), scopes="as exported"
        )
        assert (4, exported.events, 0, {}) == (report.threads, report.added, report.known, report.failed)
        assert (4, exported.events) == told[-1]
        assert before == await heads(other)
        assert [] == [one for one in await other.verify() if not one.ok]
        assert "Mia" == await other.user("u1").preferences.get("name")
        await other.thread("fork").dispatch(e.UserMessage(content="It goes on"))
        again = await other.transfer.import_all(tmp_path / "out", scopes="as exported")
        assert (0, 4, {}) == (again.added, again.known, again.failed)


async def test_what_was_cut_off_is_done_again(engine: Engine, tmp_path: Path) -> None:
    """A file that is damaged or missing stops no other; once it is back, it is taken."""
    await filled(engine)
    await engine.transfer.export_all(tmp_path / "out")
    first, second = tmp_path / "out" / "000001.jsonl.gz", tmp_path / "out" / "000002.jsonl.gz"
    whole = first.read_bytes()
    first.write_bytes(whole[:-9])
    second.rename(tmp_path / "away")
    async with memory_engine.open(":memory:") as other:
        report = await other.transfer.import_all(tmp_path / "out", scopes="as exported")
        assert {"a/talk: 1", "fork"} == set(report.failed)
        assert "digest" in report.failed["a/talk: 1"]
        first.write_bytes(whole)
        (tmp_path / "away").rename(second)
        report = await other.transfer.import_all(tmp_path / "out", scopes="as exported")
        assert (2, {}) == (report.known, report.failed)
        assert await heads(engine) == await heads(other)


async def test_another_log_of_that_id_stays(engine: Engine, tmp_path: Path) -> None:
    """It is named, and the others are made."""
    await filled(engine)
    await engine.transfer.export_all(tmp_path / "out")
    async with memory_engine.open(":memory:") as other:
        await (await other.create_thread("fork")).dispatch(e.UserMessage(content="Mine"))
        report = await other.transfer.import_all(tmp_path / "out", scopes="as exported")
        assert ["fork"] == list(report.failed)
        assert 4 == len(await other.threads())
        assert ["Mine"] == [chunk.text for chunk in (await other.thread("fork").state()).chunks()]


async def test_texts_are_taken_out_of_every_file(engine: Engine, tmp_path: Path) -> None:
    """A rule that no thread had anything for is named."""
    await filled(engine)
    report = await engine.transfer.export_all(tmp_path / "out", redaction=Redaction(patterns=[SECRET, "never said"]))
    assert 2 <= report.redacted
    assert 1 == len(report.idle_rules)
    async with memory_engine.open(":memory:") as other:
        await other.transfer.import_all(tmp_path / "out", scopes="as exported")
        for name in ("a/talk: 1", "fork"):
            assert SAID not in [chunk.text for chunk in (await other.thread(name).state()).chunks()]


async def test_only_a_whole_folder_is_taken(engine: Engine, tmp_path: Path) -> None:
    """No list, a list of another format, one that points elsewhere; nothing is made."""
    await filled(engine)
    (tmp_path / "empty").mkdir()
    await engine.transfer.export_all(tmp_path / "empty")
    with pytest.raises(FileExistsError):
        await engine.transfer.export_all(tmp_path / "empty")
    async with memory_engine.open(":memory:") as other:
        for old, new in (("000001.jsonl.gz", "../000001.jsonl.gz"), ("engine-store", "engine-tale"), ("{", "[")):
            edit(tmp_path / "empty", old, new)
            with pytest.raises(ImportRefused):
                await other.transfer.import_all(tmp_path / "empty", scopes="as exported")
            edit(tmp_path / "empty", new, old)
        with pytest.raises(ImportRefused):
            await other.transfer.import_all(tmp_path, scopes="as exported")
        assert [] == await other.threads()


def test_the_commands(run: Run, tmp_path: Path) -> None:
    """A folder out, all threads in, told to people and to programs."""
    path, out, new = (str(tmp_path / name) for name in ("m.db", "out", "new.db"))

    async def write() -> None:
        async with memory_engine.open(path) as engine:
            await filled(engine)

    asyncio.run(write())
    code, said, err = run("export", "--all", out, "--db", path)
    assert (0, "", True) == (code, err, said.startswith("4 threads, "))
    code, said, err = run("import", out, "--as-exported", "--db", new, "--json")
    assert (0, "", 4, {}) == (code, err, json.loads(said)["threads"], json.loads(said)["failed"])
    assert 4 == len(json.loads(run("threads", "--db", new, "--json")[1]))
    assert "4 threads known before" in run("import", out, "--db", new)[1]
    assert 0 == run("verify", "--db", new)[0]
    assert 2 == run("export", "--all", out, "--db", path)[0]
    assert 2 == run("export", "t", "--all", str(tmp_path / "x"), "--db", path)[0]
    assert 2 == run("import", out, "--thread", "t", "--db", new)[0]
    (tmp_path / "out" / "000001.jsonl.gz").write_bytes(b"")
    assert 1 == run("import", out, "--as-exported", "--db", str(tmp_path / "third.db"))[0]
    code, said, _ = run("import", out, "--db", str(tmp_path / "fourth.db"))
    assert (1, True) == (code, "--as-exported" in said)
