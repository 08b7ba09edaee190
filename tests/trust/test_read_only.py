"""An engine that only reads needs to write nothing: neither the file nor anything beside it."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage, errors

ROOT = Path(__file__).resolve().parents[2]
ONLY_READS = EngineConfig(read_only=True)
FOUND = ["[('t', 2)]", "1", "['Revenue dips every Sunday', 'Thanks']", "True"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        Path(name).chmod(0o777)


async def write(path: Path) -> None:
    """A thread that was searched."""
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="Revenue dips every Sunday"))
        await thread.dispatch(UserMessage(content="Thanks"))
        await thread.search("revenue")


def read_by_others(path: Path) -> list[str]:
    """What a process of another user finds, line by line."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.trust.reading_child", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.splitlines()


@pytest.mark.parametrize("mode_of_folder", [0o555, 0o777])
@pytest.mark.parametrize("mode_of_file", [0o444, 0o666])
def test_a_file_that_may_not_be_written_is_read(folder: Path, mode_of_folder: int, mode_of_file: int) -> None:
    """The file, its directory or both may be read-only: all is read, and a write says that this engine only reads."""
    path = folder / "memory.db"
    asyncio.run(write(path))
    (folder / "memory.db.lock").unlink()
    path.chmod(mode_of_file)
    folder.chmod(mode_of_folder)
    found = read_by_others(path)
    assert FOUND == found[:-1]
    assert found[-1].startswith("ReadOnly this engine only reads")
    assert not (folder / "memory.db.lock").exists()


def test_commits_that_are_only_in_the_log_are_read(folder: Path) -> None:
    """From a copy, where nothing can be written beside the file."""
    path, copy = folder / "memory.db", folder / "copy"
    copy.mkdir()

    async def copied_while_open() -> None:
        async with memory_engine.open(str(path)) as engine:
            thread = await engine.create_thread("t")
            await thread.dispatch(UserMessage(content="Revenue dips every Sunday"))
            await thread.search("revenue")
            for name in ("memory.db", "memory.db-wal"):
                (copy / name).write_bytes((folder / name).read_bytes())
                (copy / name).chmod(0o444)

    asyncio.run(copied_while_open())
    copy.chmod(0o555)
    found = read_by_others(copy / "memory.db")
    copy.chmod(0o777)
    assert ["[('t', 1)]", "1", "['Revenue dips every Sunday']", "True"] == found[:-1]


async def test_reading_beside_a_writer_sees_its_commits(tmp_path: Path) -> None:
    """Where files can be made beside it, the newest commit is read."""
    path = tmp_path / "memory.db"
    await write(path)
    async with (
        memory_engine.open(str(path)) as writer,
        memory_engine.open(str(path), config=ONLY_READS) as reader,
    ):
        for count in range(3, 6):
            await writer.thread("t").dispatch(UserMessage(content="more"))
            assert [count] == [info.events for info in await reader.threads()]


async def test_reading_makes_and_changes_no_file(tmp_path: Path) -> None:
    """No lock, and the bytes are as they were."""
    path = tmp_path / "memory.db"
    await write(path)
    (tmp_path / "memory.db.lock").unlink()
    before = path.read_bytes()
    async with memory_engine.open(str(path), config=ONLY_READS) as engine:
        assert (await engine.thread("t").replay.verify()).ok
        with pytest.raises(errors.ReadOnly):
            await engine.thread("t").dispatch(UserMessage(content="more"))
        with pytest.raises(errors.ReadOnly):
            await engine.create_thread("u")
        with pytest.raises(errors.ReadOnly):
            await engine.thread("t").admin.delete()
    assert before == path.read_bytes()
    assert ["memory.db"] == os.listdir(tmp_path)  # noqa: PTH208 - its names
    assert not (tmp_path / "memory.db.lock").exists()


@pytest.mark.parametrize("name", ["nothing.db", "no/folder.db", "."])
async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, name: str) -> None:
    """It is named."""
    with pytest.raises(errors.StorageFailed):
        async with memory_engine.open(str(tmp_path / name), config=ONLY_READS):
            pass
    assert [] == os.listdir(tmp_path)  # noqa: PTH208 - its names
