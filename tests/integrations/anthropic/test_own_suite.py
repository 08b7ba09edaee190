"""The SDK's own tests of its memory tool on a folder, run on the one that keeps its files in a memory."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import memory_engine
from memory_engine import sync
from memory_engine.integrations.anthropic import AsyncMemoryTool, MemoryTool
from memory_engine.runtime.config import EngineConfig
from tests.integrations.beside import peer_tests

PEER = peer_tests("anthropic/test_filesystem.py")
LEFT_OUT = {
    "test_mkdir_parents_not_world_writable_under_permissive_umask": "modes of folders: there are none here",
    "test_symlink_validation_reject_symlink_pointing_outside_memories": "symbolic links: there are none here",
    "test_symlink_validation_reject_creating_files_through_symlink_pointing_outside": "symbolic links",
    "test_symlink_validation_reject_parent_directory_that_is_symlink_pointing_outside": "symbolic links",
    "test_validate_path_returns_resolved_path_not_symlink_target": "symbolic links",
}
"""Tests of the folder that the SDK's own tool writes to, by name, each with its reason."""


class SyncTool(MemoryTool):
    """With the name that the tests find the files by."""

    def __init__(self, base_path: Path) -> None:
        super().__init__(str(base_path))
        self.base_path = base_path


class AsyncTool(AsyncMemoryTool):
    """The same."""

    def __init__(self, base_path: Path, thread: memory_engine.Thread) -> None:
        super().__init__(thread)
        self.base_path = base_path


def files_in(base_path: str) -> dict[str, str]:
    """What the memory holds, as another process sees it; paths as on the disk of the SDK's tool."""
    with sync.open(base_path, config=EngineConfig(read_only=True)) as engine:
        return {f"memories/{file.path}": file.content for file in engine.agent("claude").memory_files.list()}


vars(PEER)["get_directory_snapshot"] = files_in


@pytest.fixture
def sync_local_filesystem_tool(tmp_path: Path) -> Iterator[MemoryTool]:
    """In place of the SDK's."""
    with SyncTool(tmp_path / "memory.db") as tool:
        yield tool


@pytest.fixture
async def async_local_filesystem_tool(tmp_path: Path) -> AsyncIterator[AsyncMemoryTool]:
    """In place of the SDK's."""
    async with memory_engine.open(str(tmp_path / "memory.db")) as engine:
        yield AsyncTool(tmp_path / "memory.db", engine.agent("claude"))


def of_interface(cls: type) -> type:
    """The peer's tests, without those that are left out."""
    names = {name for name in vars(cls) if name.startswith("test_")} & LEFT_OUT.keys()
    return type(cls.__name__, (cls,), dict.fromkeys(names))


TestSync = of_interface(PEER.TestBetaLocalFilesystemMemoryTool)
TestAsync = of_interface(PEER.TestBetaAsyncLocalFilesystemMemoryTool)


def test_each_test_that_is_left_out_is_there() -> None:
    """Of 63 tests, 9 are of links and modes."""
    names = [name for cls in (TestSync, TestAsync) for name in dir(cls) if name.startswith("test_")]
    left_out = [name for name in names if name in LEFT_OUT]
    assert set(left_out) == LEFT_OUT.keys()
    assert (63, 9) == (len(names), len(left_out))
