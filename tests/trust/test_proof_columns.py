"""No new column slips past the proof of an erasure: each one that can hold text is read, or is known to hold none."""

import sqlite3
from contextlib import closing
from pathlib import Path

import memory_engine
from memory_engine import EngineConfig
from memory_engine.core.events.messages import UserMessage
from memory_engine.storage.sqlite.texts import _TABLES

IDS_AND_NUMBERS = {
    "threads": {"id", "kind", "user_id", "tenant_id", "agent_id", "parent_id", "policy"},
    "heads": {"hash", "status", "marks"},
    "events": {"id", "type", "causation_id", "correlation_id", "salt", "hash", "spilled"},
    "blobs": {"digest"},
    "live": {"key", "container"},
    "projection_rows": {"projection"},
    "checkpoints": {"projection"},
    "passage_indexes": {"prefix"},
    "acts": {"kind"},
    "passages": {"kind", "role", "speaker", "key", "origins"},
    "vector_blocks": {"model", "places", "numbers"},
    "embedded": {"model"},
}
"""Columns that hold ids, names of kinds, hashes and numbers; `speaker` and `key` go with the passage's row."""
FULL_TEXT = "passage_terms"
"""SQLite's own tables of the full-text index: the proof asks the index itself (`Store.mentions`)."""


async def test_every_column_that_can_hold_text_is_read_or_holds_none(tmp_path: Path) -> None:
    """A new column fails this: see "A change to the database schema" in CONTRIBUTING.md."""
    path = tmp_path / "a.db"
    async with memory_engine.open(path, config=EngineConfig()) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="The crates are green."))
        await thread.search("crates")
    with closing(sqlite3.connect(path)) as raw:
        tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {
            table: {row[1] for row in raw.execute(f'PRAGMA table_info("{table}")') if row[2] not in ("INTEGER", "REAL")}
            for table in tables
            if not table.startswith((FULL_TEXT, "sqlite_"))
        }
    expected = {
        table: known | set(_TABLES[table].columns if table in _TABLES else ())
        for table, known in IDS_AND_NUMBERS.items()
    }
    assert {table: columns for table, columns in found.items() if columns} == expected
