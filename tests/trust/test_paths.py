"""A path names one file: for Python, for SQLite, and for whoever looks into the folder."""

import os
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage, errors
from memory_engine.storage.places import schema_of

NAMES = [
    "file:shop.db",
    "file:shop.db?mode=rwc",
    "file:shop.db?mode=memory&cache=shared",
    "file:shop.db?vfs=unix-none",
    "file::memory:",
    "file:",
    "file:folder/shop.db",
    "shop?immutable=1.db",
    "shop#1.db",
    "sh%6fp.db",
    "%00.db",
    "two\nlines.db",
    "ends with spaces.db  ",
    " ",
    "-shop.db",
    "sho'p\".db",
    "Lädchen.db",
    "not utf-8 \udcff.db",
    ":memory:.db",
]


def files(folder: Path) -> set[str]:
    """All files, by their paths within the folder."""
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
@pytest.mark.parametrize("name", NAMES, ids=map(ascii, NAMES))
async def test_a_path_is_the_name_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, absolute: bool
) -> None:
    """Whatever characters are in it: written, read, backed up and restored under exactly this name."""
    (tmp_path / "file:folder").mkdir()
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / name) if absolute else name
    async with memory_engine.open(path) as engine:
        thread = await engine.open_thread("t")
        await thread.dispatch(UserMessage(content="Two chairs"))
        await thread.search("chairs")
        await engine.admin.backup(path + ".backup")
        await thread.replay.export(path + ".jsonl")
        assert {name, f"{name}.lock", f"{name}.backup", f"{name}.jsonl"} <= files(tmp_path)
    await memory_engine.restore(path + ".backup", path + ".again")
    for made in (path, path + ".again"):
        async with memory_engine.open(made, config=EngineConfig(read_only=True)) as engine:
            assert 1 == (await engine.thread("t").info()).events
    assert {} == (await schema_of(path).versions()).waiting
    async with memory_engine.open(":memory:") as engine:
        assert 1 == (await engine.transfer.import_log(path + ".jsonl")).added
    assert {name, *(f"{name}.{end}" for end in ("lock", "backup", "jsonl", "again"))} == files(tmp_path)


NO_FILES = {
    "a folder": "folder",
    "this folder": ".",
    "in no folder": "nowhere/shop.db",
    "in a file": "plain.txt/shop.db",
    "too long a name": "x" * 300,
    "a link to itself": "loop",
    "in a link to itself": "loop/shop.db",
    "a zero": "a\0b",
    "half a character": "\ud800.db",
    "nothing": "",
    "another kind of URL": "file:///tmp/shop.db",
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("what", NO_FILES)
async def test_a_path_of_no_file_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, read_only: bool
) -> None:
    """It leaves nothing behind; of a backup, too."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain.txt").write_text("plain")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))  # noqa: PTH208 - links that lead nowhere too
    path = NO_FILES[what]
    with pytest.raises(errors.MemoryEngineError):
        await memory_engine.open(path, config=EngineConfig(read_only=read_only))
    with pytest.raises((errors.MemoryEngineError, FileExistsError)):
        async with memory_engine.open(":memory:") as engine:
            await engine.admin.backup(path)
    with pytest.raises((errors.MemoryEngineError, FileExistsError)):
        await memory_engine.restore(path, tmp_path / "restored.db")
    assert before == sorted(os.listdir(tmp_path))  # noqa: PTH208 - the same
