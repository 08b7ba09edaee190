"""Paths made to hurt their reader: pipes, devices, folders, links that lead out, files without an end."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, UserMessage
from memory_engine.administration.retention import read_rules
from memory_engine.core.bounded import open_file, read_file
from memory_engine.errors import FileRefused, IngestError, MemoryEngineError
from memory_engine.files.comparison import files_of, is_export
from memory_engine.ingest.records import read_records
from memory_engine.replay.anchors import read_anchors
from memory_engine.views.preferences.domain import Domain
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
Reader = Callable[[Engine, Path], Awaitable[object] | object]
READERS: dict[str, Reader] = {
    "a log": lambda engine, path: engine.transfer.import_log(path),
    "memories": lambda engine, path: engine.transfer.import_memories(path, user_id="u"),
    "agent.md": lambda engine, path: engine.tenant("acme").agent_md.upload(path),
    "anchors": lambda _, path: read_anchors(path),
    "rules": lambda _, path: read_rules(path),
    "a domain": lambda _, path: Domain.from_toml(path),
    "a comparison": lambda _, path: is_export(path),
}


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe that nobody ever writes to."""
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    return path


async def read(reader: Reader, engine: Engine, path: Path) -> object:
    """What a reader gives."""
    found = await asyncio.to_thread(reader, engine, path)
    return await found if isinstance(found, Awaitable) else found


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
async def test_only_files_are_read(engine: Engine, pipe: Path, reader: Reader) -> None:
    """Of a pipe, a device without an end and a folder the error names the path; nobody waits."""
    for path in (pipe, Path("/dev/zero"), pipe.parent):
        with pytest.raises(FileRefused) as raised:
            await asyncio.wait_for(read(reader, engine, path), PATIENCE_S)
        assert str(path) == raised.value.path


@pytest.mark.parametrize("name", ["pipe.jsonl", "."])
async def test_a_recording_that_is_no_file_is_an_error_of_the_report(pipe: Path, name: str) -> None:
    """As any file that cannot be read."""
    (error,) = await asyncio.to_thread(lambda: list(read_records(pipe.parent / name)))
    assert isinstance(error, IngestError)
    assert "cannot be read" in error.why


async def test_no_document_is_read_through_a_link_out_of_its_folder(tmp_path: Path) -> None:
    """Neither a file nor a folder; the report names them, and links within the folder are followed."""
    outside, folder = tmp_path / "outside", tmp_path / "shared"
    for one in (outside, folder / "inner"):
        one.mkdir(parents=True)
    (outside / "keys.md").write_text("The key of the vault is 4711.")
    (folder / "inner" / "a.md").write_text("Ferns need water.")
    (folder / "file.md").symlink_to(outside / "keys.md")
    (folder / "folder").symlink_to(outside)
    (folder / "again").symlink_to(folder / "inner")
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        report = await documents.ingest([folder])
        assert (1, 2) == (report.added, len(report.failed))
        assert all("leads out of the folder" in str(error) for error in report.failed)
        assert 2 == (await documents.ingest([folder, outside])).files  # one that is named itself is read


async def test_a_store_is_not_read_through_a_link_out_of_its_folder(engine: Engine, tmp_path: Path) -> None:
    """A list of threads that is one, and a log that is one."""
    await (await engine.create_thread("t")).dispatch(UserMessage(content="hello"))
    folder, moved = tmp_path / "out", tmp_path / "moved"
    await engine.transfer.export_all(folder)
    (log,) = [path for path in folder.iterdir() if path.name != "manifest.json"]
    log.rename(moved)
    log.symlink_to(moved)
    async with memory_engine.open(":memory:") as other:
        report = await other.transfer.import_all(folder)
        assert "leads out of its folder" in str(report.failed["t"])
        (folder / "manifest.json").rename(tmp_path / "list")
        (folder / "manifest.json").symlink_to(tmp_path / "list")
        with pytest.raises(MemoryEngineError, match="leads out of its folder"):
            await other.transfer.import_all(folder)


def test_logs_to_compare_are_those_of_the_folder(tmp_path: Path) -> None:
    """A link to a log outside is passed over."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (tmp_path / "other.jsonl").write_text("{}")
    (folder / "a.jsonl").write_text("{}")
    (folder / "b.jsonl").symlink_to(tmp_path / "other.jsonl")
    assert [folder / "a.jsonl"] == files_of([folder])


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """No byte more, also of one that is empty by its size alone."""
    path = tmp_path / "rules.toml"
    path.write_bytes(b"x" * 10)
    assert b"x" * 10 == read_file(path, limit=10)
    with pytest.raises(FileRefused, match="more than 9 bytes"):
        read_file(path, limit=9)
    status = Path("/proc/self/status")
    if status.exists():
        assert b"Name:" in read_file(status)


def test_a_file_that_is_swapped_for_a_pipe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at it and its opening; the pipe is not waited for."""
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({}))
    real = os.open

    def late(name: Path, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return real(name, flags)

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(FileRefused, match="pipe"):
        open_file(path)
