"""No file descriptor is free, or the disk is full: every method raises an error of ours, and the log is as it was."""

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage, errors
from memory_engine.core.lazy import loaded
from memory_engine.language.lists import data_bytes
from memory_engine.replay.anchors import add_anchors, read_anchors
from memory_engine.replay.export.redaction import Redaction
from tests.depth import DEEP
from tests.patience import PATIENCE_S
from tests.trust.test_read_only_methods import written

ROOT = Path(__file__).resolve().parents[2]
TWICE = {  # what a second call says of the first, or of this log
    "CannotRereduce", "CompactionNotLive", "InvalidChange", "NothingToCompact", "ThreadExists", "ThreadNotFound",
    "UnknownPin",
}  # fmt: skip


FILES = [
    "Engine.admin.backup", "Engine.copy_to", "Engine.dispatch", "Engine.transfer.export_all",
    "Engine.transfer.export_memories",
    "Engine.transfer.import_all", "Engine.transfer.import_log", "Engine.transfer.import_memories", "Engine.search",
    "Thread.admin.delete", "Thread.admin.erase", "Thread.replay.export", "Thread.fork", "Thread.replay.rebuild",
]  # fmt: skip
"""What opens files and starts programs."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a database and its exports."""
    (tmp_path / "source").mkdir()
    asyncio.run(written(tmp_path / "source"))
    return tmp_path / "source"


def told_by(source: Path, spare: int, names: Sequence[str]) -> list[dict[str, object]]:
    """What became of each method in a process that may open so many files more."""
    words = [str(source), str(source.parent / "work"), str(spare), *names]
    command = [sys.executable, "-m", "tests.trust.no_descriptors_child", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert list(names) == [one["method"] for one in told], done.stderr
    return told


@pytest.mark.parametrize("spare", [0, 3, 6] if DEEP else [0, 3])
def test_no_method_fails_by_an_error_of_the_system(source: Path, spare: int) -> None:
    """Each raises an error of ours or does its work, and does it once descriptors are free, on the same engine."""
    told = told_by(source, spare, FILES)
    assert [] == [one for one in told if str(one["first"]).startswith("!")]
    assert [] == [one for one in told if one["second"] not in ("", *TWICE) and "there is" not in str(one["second"])]
    assert [] == [one for one in told if one["left"] or not one["ok"]]
    failed = [one for one in told if one["first"] in ("CodeNotLoaded", "StorageFailed", "FileFailed")]
    if not spare:
        assert len(failed) > 8
        assert {0, 10} == {one["head"] for one in failed}


def names(folder: Path) -> set[str]:
    """What is in a folder."""
    return {file.name for file in folder.iterdir()}


def limited(kind: int, most: int) -> tuple[int, int]:
    """Set a limit of this process; gives the usual one."""
    usual = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, usual[1]))
    return usual


async def test_a_full_disk_is_an_error_of_ours(tmp_path: Path) -> None:
    """Of exports of all kinds and of anchors; nothing is left where the file was to be."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        said = " ".join(sha256(str(n).encode()).hexdigest() for n in range(3_000))  # which no compression shortens much
        await thread.dispatch(UserMessage(content=said))
        anchors = [await thread.replay.anchor()] * 2_000
        await thread.replay.export(tmp_path / "first.jsonl")  # all that it needs is loaded now
        await engine.transfer.export_all(tmp_path / "first")
        before = names(tmp_path)
        usual = limited(resource.RLIMIT_FSIZE, 40_000)
        try:
            for export in (
                lambda: thread.replay.export(tmp_path / "t.jsonl"),
                lambda: thread.replay.export(tmp_path / "t.jsonl", redaction=Redaction(patterns=["table"])),
                lambda: engine.transfer.export_all(tmp_path / "all"),
            ):
                with pytest.raises(errors.FileFailed) as raised:
                    await export()
                assert "mend the cause" in str(raised.value)
            with pytest.raises(errors.FileFailed):
                add_anchors(tmp_path / "anchors.jsonl", anchors)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        after = names(tmp_path) - before
        assert {"all", "anchors.jsonl"} >= after
        assert not list((tmp_path / "all").glob("*.jsonl*"))
        assert (await thread.replay.verify()).ok


async def test_a_file_that_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    """A folder in its place; a missing file says so itself."""
    async with memory_engine.open(":memory:") as engine:
        for call in (lambda: engine.transfer.import_log(tmp_path), lambda: engine.transfer.import_all("/dev/null/all")):
            with pytest.raises((errors.FileRefused, errors.FileFailed)):
                await call()
        with pytest.raises(errors.FileRefused):
            read_anchors(tmp_path)
        with pytest.raises(FileNotFoundError):
            await engine.transfer.import_log(tmp_path / "nowhere.jsonl")
        (tmp_path / "deep.jsonl").write_text('{"thread_id":' + "[" * 100_000)
        with pytest.raises(errors.UnreadableAnchors):
            read_anchors(tmp_path / "deep.jsonl")


def test_code_that_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    """A module, and a list of words; both are read once that is possible."""
    usual = limited(resource.RLIMIT_NOFILE, 0)
    try:
        with pytest.raises(errors.CodeNotLoaded, match="close files"):
            loaded("nturl2path")  # of the standard library: nobody has loaded it
        with pytest.raises(errors.CodeNotLoaded, match=r"forms\.toml"):
            data_bytes("memory_engine.language", "forms.toml")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert data_bytes("memory_engine.language", "forms.toml")


@pytest.mark.parametrize("rules", [Redaction(patterns=["chairs"]), Redaction(fields=["content"])])
async def test_what_is_nested_too_deeply_is_an_error_of_ours(tmp_path: Path, rules: Redaction) -> None:
    """JSON in a text that no pattern can be looked for in; taking all texts out works."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        deep = "[" * 900 + '"chairs"' + "]" * 900
        await thread.dispatch(memory_engine.ToolResult(call_id="c", content=deep))
        if rules.patterns:
            with pytest.raises(errors.InvalidRedaction, match="nested too deeply"):
                await thread.replay.export(tmp_path / "t.jsonl", redaction=rules)
            assert set() == names(tmp_path)
        await thread.replay.export(tmp_path / "t.jsonl", redaction=Redaction(types=["tool_result"]))
