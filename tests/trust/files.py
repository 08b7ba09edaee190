"""Files that something else has damaged: rows changed behind the engine's back."""

import sqlite3
from contextlib import closing


def tamper(path: str, *statements: str) -> None:
    """Run statements on the file, whose engine is closed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER IF EXISTS events_are_immutable")
        for statement in statements:
            raw.execute(statement)


def asked(path: str, query: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute(query).fetchall()
