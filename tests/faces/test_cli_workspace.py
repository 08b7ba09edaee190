"""The commands `files` and `restore-files`."""

import asyncio
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine.workspace import Workspace
from tests.command_line import Run


def test_files_are_listed_and_restored(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of now or a moment; a dry run writes nothing; what is not recorded is in the way."""
    monkeypatch.setenv("MEMORY_ENGINE_DB", str(tmp_path / "log.db"))
    work = tmp_path / "work"
    work.mkdir()

    async def write() -> None:
        async with memory_engine.open(tmp_path / "log.db") as engine:
            thread = await engine.create_thread("t")
            for text in ("one", "two and more"):
                (work / "a.txt").write_text(text)
                await Workspace(thread, work).record()

    asyncio.run(write())
    code, out, err = run("files", "t")
    assert (0, "", ["a.txt", "12", "2"]) == (code, err, out.splitlines()[-1].split()[:3])
    assert [3] == [one["size"] for one in json.loads(run("files", "t", "--at", "1", "--json")[1])]
    target = tmp_path / "target"
    target.mkdir()
    code, out, err = run("restore-files", "t", "--to", str(target), "--dry-run")
    assert (0, "", "+ a.txt") == (code, err, out.splitlines()[-1])
    assert "1 file written, 0 removed; nothing was written (a dry run)" in out
    assert not list(target.iterdir())
    assert 0 == run("restore-files", "t", "--to", str(target), "--at", "1")[0]
    assert "one" == (target / "a.txt").read_text()
    (target / "a.txt").write_text("mine")
    code, out, err = run("restore-files", "t", "--to", str(target))
    assert (2, "mine") == (code, (target / "a.txt").read_text())
    assert "are not as they were recorded: 'a.txt'" in err
    assert 1 == run("restore-files", "t", "--to", str(target), "--dry-run")[0]
