"""Databases in memory, with the tables of a file."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import TypeVar

from memory_engine.storage.sqlite.schema import migrate

T = TypeVar("T")

PLACE = ":memory:"


def in_transaction(work: Callable[[sqlite3.Connection], T], raw: sqlite3.Connection) -> T:
    """Run work between BEGIN and COMMIT; rolled back if it raises."""
    raw.execute("BEGIN")
    try:
        found = work(raw)
    except BaseException:  # after any error the transaction must not stay open; it goes on to the caller
        raw.execute("ROLLBACK")
        raise
    raw.execute("COMMIT")
    return found


def empty_database() -> sqlite3.Connection:
    """A database of the newest schema, copied from one that is made once: that takes a tenth as long."""
    raw = _bare()
    if hasattr(raw, "deserialize"):  # some systems build SQLite without it
        with closing(_bare()) as made:
            made.deserialize(_schema_pages())
            made.backup(raw)
    else:
        migrate(raw, PLACE)
    return raw


@cache
def _schema_pages() -> bytes:
    with closing(_bare()) as raw:
        migrate(raw, PLACE)
        return raw.serialize()


def _bare() -> sqlite3.Connection:
    raw = sqlite3.connect(PLACE, isolation_level=None, cached_statements=256, check_same_thread=False)
    raw.execute("PRAGMA temp_store = MEMORY")
    return raw
