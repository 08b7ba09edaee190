"""A memory without a file: what it holds, where, and for how long."""

import gc
import sqlite3
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import EngineClosed, SchemaError
from memory_engine.storage.memory import MemoryStore
from memory_engine.store.protocol import ThreadFilter


def files(folder: Path) -> list[Path]:
    """What is in a folder."""
    return list(folder.iterdir())


async def test_nothing_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither events nor an index nor an erasure leave a file where the process runs, nor in the folder for others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("orchard")
        texts = [f"Tree {n} bears pears of kind {n % 7}" for n in range(300)]
        await thread.dispatch_all([UserMessage(content=text) for text in texts])
        assert await thread.search("pears of kind 3")
        await thread.admin.erase(seqs=[5])
        assert [] == files(tmp_path)
    assert [] == files(tmp_path)


async def test_memories_share_nothing() -> None:
    """Though their tables are copies of the same ones."""
    async with memory_engine.open(":memory:") as one, memory_engine.open(":memory:") as other:
        await (await one.create_thread("t")).dispatch(UserMessage(content="only here"))
        assert [] == await other.threads()
        assert [] == [event async for event in (await other.create_thread("t")).events()]


async def test_a_memory_that_is_dropped_asks_for_no_closing() -> None:
    """There is nothing to lose, so nobody is warned that it was not closed."""
    store = MemoryStore()
    assert [] == await store.threads(ThreadFilter())
    del store
    gc.collect()  # a warning is an error here


async def test_a_closed_memory_is_closed() -> None:
    """A second look does not find an empty one in its place."""
    store = MemoryStore()
    await store.close()
    with pytest.raises(EngineClosed):
        await store.threads(ThreadFilter())
    with pytest.raises(EngineClosed):
        await store.flush()


@pytest.mark.parametrize("place", [":memory:", "a.db"])
async def test_an_sqlite_without_strict_tables_is_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is made, and by name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(SchemaError, match=r"3\.37 or newer"):
        await memory_engine.open(place)
