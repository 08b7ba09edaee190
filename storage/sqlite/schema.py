"""The schema, as numbered migrations: forward only, each in one transaction."""

import sqlite3

from memory_engine.errors import SchemaError
from memory_engine.storage.passages import SCHEMA as PASSAGES

APPLICATION_ID = 0x6D656D65
"""`meme`, in the file's header: says whose file it is."""

MIGRATIONS: tuple[str, ...] = (
    # 1. Position of an event: tid << 32 | seq, so that one b-tree serves as the log and its order.
    """
    CREATE TABLE threads (
        tid INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        user_id TEXT NOT NULL,
        tenant_id TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        parent_id TEXT NOT NULL,
        metadata TEXT NOT NULL,
        policy TEXT,
        created_at_us INTEGER NOT NULL,
        forked_tid INTEGER REFERENCES threads (tid),
        forked_seq INTEGER
    ) STRICT;
    CREATE INDEX threads_by_user ON threads (tenant_id, user_id, kind);
    CREATE INDEX threads_by_fork ON threads (forked_tid) WHERE forked_tid IS NOT NULL;
    CREATE TABLE heads (
        tid INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        hash BLOB NOT NULL,
        epoch INTEGER NOT NULL,
        status TEXT NOT NULL,
        open_compaction INTEGER NOT NULL,
        chunks INTEGER NOT NULL,
        tokens INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE events (
        pos INTEGER PRIMARY KEY,
        tid INTEGER NOT NULL,
        id ANY NOT NULL,
        type TEXT NOT NULL,
        version INTEGER NOT NULL,
        recorded_at_us INTEGER NOT NULL,
        occurred_at_us INTEGER,
        causation_id TEXT,
        correlation_id TEXT,
        salt BLOB NOT NULL,
        hash BLOB NOT NULL,
        payload BLOB,
        spilled BLOB,
        record BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX events_by_id ON events (id, tid);
    CREATE INDEX events_by_correlation ON events (correlation_id) WHERE correlation_id IS NOT NULL;
    CREATE TABLE blobs (
        tid INTEGER NOT NULL,
        digest BLOB NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (tid, digest)
    ) STRICT;
    CREATE TABLE live (
        tid INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        n INTEGER NOT NULL,
        key BLOB NOT NULL,
        container TEXT NOT NULL,
        PRIMARY KEY (tid, seq, n)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE projection_rows (
        projection TEXT NOT NULL,
        version INTEGER NOT NULL,
        tid INTEGER NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (projection, version, tid, key)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE checkpoints (
        projection TEXT NOT NULL,
        version INTEGER NOT NULL,
        tid INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (projection, version, tid)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER events_are_immutable BEFORE UPDATE ON events BEGIN
        SELECT RAISE (ABORT, 'events are immutable');
    END;
    """,
    # 2. The latest event of each tracked type, so that a view knows whether it is up to date.
    """
    ALTER TABLE heads ADD COLUMN marks TEXT NOT NULL DEFAULT '{}';
    UPDATE heads SET marks = json_object('session_started', seq, 'session_ended', seq, 'memory_forget', seq)
    WHERE tid > 0 AND seq > 0;
    """,
    # 3. What search finds: passages, their words and their vectors.
    PASSAGES,
)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring a file to the newest schema. Safe when several processes race to it.

    Raises `SchemaError` for a file that is no store of ours, or is of a newer version.
    """
    if check_version(connection, path) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in range(check_version(connection, path), len(MIGRATIONS)):
            for statement in _statements(MIGRATIONS[number]):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:  # whatever it is, the transaction must not stay open; it goes on to the caller
        connection.execute("ROLLBACK")
        raise


def check_version(connection: sqlite3.Connection, path: str) -> int:
    """The schema version of the file, 0 for a new one. Raises `SchemaError` (see `migrate`)."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version or tables:
            raise SchemaError(path, "it is an SQLite file of another program; give a path of its own")
        return 0
    if version > len(MIGRATIONS):
        raise SchemaError(path, f"its schema is version {version}, this package knows up to {len(MIGRATIONS)}; upgrade")
    return int(version)


def _statements(script: str) -> list[str]:
    """The statements of a script, triggers with their inner semicolons whole."""
    statements: list[str] = []
    current = ""
    for piece in script.split(";"):
        current += piece + ";"
        if sqlite3.complete_statement(current):
            if current.strip(" \n;"):
                statements.append(current)
            current = ""
    return statements
