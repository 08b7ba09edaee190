"""What the SQLite store does unasked: folding its log when idle, and minding the version of SQLite."""

import asyncio
import logging
import sqlite3
import threading
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import SchemaError
from memory_engine.storage.sqlite import connection, writer
from memory_engine.storage.sqlite.connection import Connection, Readers


def files_in(folder: Path) -> list[Path]:
    """What was left behind."""
    return list(folder.iterdir())


async def test_the_log_is_folded_into_the_file_when_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a stretch without a commit the file itself holds what the write-ahead log held."""
    monkeypatch.setattr(writer, "IDLE_S", 0.02)
    path = tmp_path / "memory.db"
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content=f"{n}" * 500) for n in range(50)])
        while path.stat().st_size < 50 * 500:  # noqa: ASYNC110 - the file changes behind the engine's back
            await asyncio.sleep(0.01)
        assert (await thread.replay.verify()).ok


async def test_an_sqlite_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without STRICT tables nothing is opened, and the error names both versions."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.36.0")
    with pytest.raises(SchemaError, match=r"3\.36\.0; 3\.37 or newer"):
        async with memory_engine.open(str(tmp_path / "memory.db")):
            pass
    assert [] == files_in(tmp_path)


@pytest.mark.parametrize(("version", "warned"), [((3, 51, 2), True), ((3, 51, 3), False)])
async def test_an_sqlite_with_the_log_bug_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: tuple[int, ...],
    warned: bool,
) -> None:
    """Where another program's writes could lose pages, the log of the process says so."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    with caplog.at_level(logging.INFO, "memory_engine.storage"):
        async with memory_engine.open(str(tmp_path / "memory.db")):
            pass
    assert warned == any("no other program" in record.message for record in caplog.records)


async def test_a_query_waits_for_an_open_connection_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one is opened only where a query takes long."""

    def where(_: sqlite3.Connection) -> int:
        return threading.get_ident()

    path = tmp_path / "memory.db"
    async with memory_engine.open(str(path)):
        pass
    readers = Readers([Connection.reader(str(path), 1.0) for _ in range(2)])
    monkeypatch.setattr(connection, "OPENING_S", 60)
    first, second = await asyncio.gather(readers.run(where), readers.run(where))
    assert first == second
    monkeypatch.setattr(connection, "OPENING_S", 0)
    release = threading.Event()
    long = asyncio.create_task(readers.run(lambda _: release.wait()))
    await asyncio.sleep(0)
    try:
        assert first != await readers.run(where)
    finally:
        release.set()
        await long
        await readers.close()
