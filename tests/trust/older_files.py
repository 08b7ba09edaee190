"""Databases as earlier releases left them: of any schema version, and beside them what a dead process leaves."""

import hashlib
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import LlmTextResponse, UserMessage
from memory_engine.storage.driver import StoreFile
from memory_engine.storage.sqlite import schema
from memory_engine.storage.sqlite.schema import MIGRATIONS
from memory_engine.store.keys import Key

NEWEST = len(MIGRATIONS)
KEPT = ("threads", "heads", "events", "blobs", "live", "projection_rows", "checkpoints", "acts")
"""What every schema has of a log; search indexes are made again."""


async def written(path: Path) -> None:
    """A conversation, a fork, a user's preferences, of the newest schema."""
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content="Two chairs, please."), LlmTextResponse(content="Noted.")])
        await thread.scratchpad.write("They want oak.")
        await (await thread.fork(2, thread_id="fork")).dispatch(UserMessage(content="Rather a table."))
        await engine.user("ann").preferences.update("verbosity", "concise")
        await thread.search("chairs")


def of_version(
    source: Path, path: Path, version: int, monkeypatch: pytest.MonkeyPatch, key: bytes | None = None
) -> sqlite3.Connection:
    """The same logs in a new file of an earlier schema: an open connection, with all of it in the write-ahead log."""
    file = StoreFile(str(path), None if key is None else Key(key))
    file.make()
    raw = file.connect()
    raw.execute("PRAGMA journal_mode = WAL").fetchone()
    raw.execute("PRAGMA wal_autocheckpoint = 0")
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", MIGRATIONS[:version])
        schema.migrate(raw, str(path))
    raw.execute("ATTACH ? AS source" + (" KEY ''" if file.is_encrypted else ""), (str(source),))
    for table in KEPT:
        names = [name for _, name, *_ in raw.execute(f"PRAGMA main.table_info({table})")]
        if names:
            columns = ", ".join(names)
            raw.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM source.{table}")
    raw.execute("DETACH source")
    return raw


def left_behind(folder: Path, to: Path, *, shared_memory: bool = True) -> None:
    """Copy a database that is open with its log: what is there after its process was killed."""
    to.mkdir()
    for file in folder.iterdir():
        if shared_memory or not file.name.endswith("-shm"):
            shutil.copy2(file, to / file.name)


def closed(raw: sqlite3.Connection) -> None:
    """Close the last connection: its log is emptied and removed."""
    with closing(raw):
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file of a folder, with the digest of its bytes and the time when it was last written."""
    return {
        str(file.relative_to(folder)): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(file.name for file in folder.iterdir())
