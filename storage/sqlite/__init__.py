"""The SQLite store: one file, one writer connection, read-only readers."""

from memory_engine.storage.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
