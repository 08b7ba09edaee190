"""The schema, as numbered migrations: forward only, each in one transaction; and rows to values and back.

Ids that are canonical UUIDs take 16 bytes, others are text.
"""

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from memory_engine.core.lazy import lazy_module, regex
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ForkPoint, Head, ThreadRecord, read_record, readable_marks
from memory_engine.errors import SchemaError
from memory_engine.storage.driver import errors
from memory_engine.storage.passages import SCHEMA as PASSAGES
from memory_engine.storage.passages import SCOPES, fill_scopes
from memory_engine.store.protocol import Migrated

if TYPE_CHECKING:
    from memory_engine.storage import vector_blocks
else:
    vector_blocks = lazy_module("memory_engine.storage.vector_blocks")

APPLICATION_ID = 0x6D656D65
"""`meme`, in the file's header: marks a file of this package."""

MIGRATIONS: tuple[str, ...] = (
    # Each begins with a comment that says what it brings: `memory-engine migrate` prints it.
    # 1. Position of an event: tid << 32 | seq, so that one b-tree serves as the log and its order.
    """
    -- threads, their heads, events, states and rows of views
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
    # 2.
    """
    -- the latest event of each tracked type, so that a view knows whether it is up to date
    ALTER TABLE heads ADD COLUMN marks TEXT NOT NULL DEFAULT '{}';
    UPDATE heads SET marks = json_object('session_started', seq, 'session_ended', seq, 'memory_forget', seq)
    WHERE tid > 0 AND seq > 0;
    """,
    # 3.
    f"-- the index for search: passages, their words and their vectors\n{PASSAGES}",
    # 4.
    """
    -- administrative acts: who asked for what, and whether it is finished
    CREATE TABLE acts (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        plan TEXT NOT NULL,
        asked_by TEXT NOT NULL,
        reason TEXT NOT NULL,
        asked_at_us INTEGER NOT NULL,
        done_at_us INTEGER NOT NULL,
        outcome TEXT NOT NULL
    ) STRICT;
    """,
    # 5. Older rows have none.
    """
    -- a checksum of each head's row, whose numbers are shown without reading the log
    ALTER TABLE heads ADD COLUMN checksum INTEGER;
    """,
    # 6. Words that were indexed before keep their order.
    f"-- what a search over many threads asks of each index; words of passages indexed by tenant\n{SCOPES}",
    # 7. The table is made with the first index.
    "-- vectors in blocks, two bytes a number",
)

_SCOPES_SINCE = 6
_BLOCKS_SINCE = 7


def brings(number: int) -> str:
    """A migration in a line."""
    return MIGRATIONS[number - 1].strip().partition("\n")[0].removeprefix("-- ")


def _has_vectors(raw: sqlite3.Connection) -> bool:
    return raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'vectors'").fetchone() is not None


def migrate(connection: sqlite3.Connection, path: str, migrated: Migrated | None = None) -> None:
    """Bring a file to the newest schema. Safe when several processes race to it. Calls `migrated` with each step.

    Raises `SchemaError` for a file that is not a store of this package, or is of a newer version.
    """
    if check_version(connection, path) == len(MIGRATIONS):
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        for number in range(check_version(connection, path), len(MIGRATIONS)):
            for statement in _statements(MIGRATIONS[number]):
                connection.execute(statement)
            if number + 1 == _SCOPES_SINCE:
                fill_scopes(connection)
            if number + 1 == _BLOCKS_SINCE and _has_vectors(connection):
                vector_blocks.take_over(connection)
            connection.execute(f"PRAGMA user_version = {number + 1}")
            if migrated is not None:
                migrated(number + 1, brings(number + 1))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:  # after any error the transaction must not stay open; it goes on to the caller
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_version(connection: sqlite3.Connection, path: str) -> int:
    """The schema version of the file, 0 for a new one. Raises `SchemaError` (see `migrate`)."""
    version = stored_version(connection, path)
    if version > len(MIGRATIONS):
        raise SchemaError(path, f"its schema is version {version}, this package knows up to {len(MIGRATIONS)}; upgrade")
    return version


def stored_version(connection: sqlite3.Connection, path: str) -> int:
    """The schema version of the file, also a newer one. Raises `SchemaError` for a file of another program."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version or tables:
            raise SchemaError(path, "it is an SQLite file of another program; give a path of its own")
        return 0
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


EVENT_ITSELF = (
    "e.pos, e.id, e.type, e.version, e.recorded_at_us, e.occurred_at_us, e.causation_id, e.correlation_id, "
    "e.salt, e.hash, coalesce(e.payload, b.body), e.record"
)
EVENT_COLUMNS = f"{EVENT_ITSELF}, (SELECT p.hash FROM events p WHERE p.pos = e.pos - 1)"
EVENTS = "events e LEFT JOIN blobs b ON b.tid = e.tid AND b.digest = e.spilled"
HEAD_NAMES = "seq, hash, epoch, status, open_compaction, chunks, tokens, marks, checksum"
HEAD_COLUMNS = (
    "h.seq, h.hash, h.epoch, h.status, h.open_compaction, h.chunks, h.tokens, CAST(h.marks AS BLOB), h.checksum"
)
HEAD_WIDTH = 9
THREAD_COLUMNS = (
    "t.tid, t.id, t.kind, t.user_id, t.tenant_id, t.agent_id, t.parent_id, CAST(t.metadata AS BLOB), "
    "CAST(t.policy AS BLOB), t.created_at_us, "
    # a subquery would be run for every thread, and few are forks
    "CASE WHEN t.forked_tid IS NOT NULL THEN (SELECT p.id FROM threads p WHERE p.tid = t.forked_tid) END, "
    "t.forked_seq, "
    "CASE WHEN t.forked_seq > 0 THEN EXISTS (SELECT 1 FROM events e WHERE e.pos = t.tid << 32 | 1) END"
)
LOST = "its row is gone"
_UUID = regex(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BYTE = regex(rb"\\x([0-9a-f]{2})")


def id_to_row(event_id: str) -> str | bytearray:
    """16 bytes for a canonical UUID."""
    if len(event_id) == 36 and _UUID.fullmatch(event_id):
        return bytearray.fromhex(event_id.replace("-", ""))
    return event_id


def id_from_row(value: str | bytes) -> str:
    """The id that was stored."""
    if isinstance(value, str):
        return value
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def position(tid: int, seq: int) -> int:
    """The place of an event in the one b-tree of all logs."""
    return tid << 32 | seq


def event_from_row(row: sqlite3.Row | tuple, before: bytes | None = None) -> StoredEvent:  # type: ignore[type-arg]
    """A row of `EVENT_COLUMNS`; where the hash `before` it is known, the last column may be NULL."""
    (
        pos,
        event_id,
        kind,
        version,
        recorded,
        occurred,
        causation,
        correlation,
        salt,
        digest,
        payload,
        record,
        previous,
    ) = row
    seq = pos & 0xFFFFFFFF
    return StoredEvent(
        seq,
        id_from_row(event_id),
        kind,
        version,
        recorded,
        occurred,
        causation or "",
        correlation or "",
        payload if payload is not None else b"",  # its blob is missing: no payload, and never the hash's
        record,
        salt,
        digest,
        b"" if seq == 1 else previous if previous is not None else before,
    )


def head_from_row(row: tuple) -> Head:  # type: ignore[type-arg]
    """A row of `HEAD_COLUMNS`."""
    if row[0] is None:
        return Head(unreadable=LOST, damaged=LOST)
    seq, digest, epoch, status, open_compaction, chunks, tokens, stored, checksum = row
    marks, unreadable = readable_marks(stored)
    return Head(
        seq=seq,
        hash=digest,
        epoch=epoch,
        status=status,
        open_compaction=open_compaction,
        chunks=chunks,
        tokens=tokens,
        marks=marks,
        unreadable=unreadable,
        damaged="its row is not what was written" if checksum not in (None, _checksum(row[:-1])) else "",
    )


def head_to_row(head: Head) -> tuple[object, ...]:
    """The values of `HEAD_NAMES`: marks as JSON, and at the end the checksum of the others."""
    marks = msgspec.json.encode(head.marks) if head.marks else b"{}"
    values = (
        head.seq,
        head.hash,
        head.epoch,
        head.status,
        head.open_compaction,
        head.chunks,
        head.tokens,
        marks,
    )
    return (*values[:-1], marks.decode(), _checksum(values))


def _checksum(values: Sequence[object]) -> int:
    return crc32(repr(values).encode())


class UnreadableText(str):
    """A text that is not UTF-8, decoded as far as possible: other bytes become escapes in hexadecimal."""


def _decode_stored(stored: bytes) -> str:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return UnreadableText(stored.decode("utf-8", "backslashreplace"))


def rows_of(raw: sqlite3.Connection, query: str, values: Sequence[object] = ()) -> list[tuple]:  # type: ignore[type-arg]
    """The rows of a query, with `UnreadableText` for a text that is not UTF-8: SQLite's driver would give none at all.

    For rows of which each says something of another thread.
    """
    try:
        return raw.execute(query, values).fetchall()
    except errors(sqlite3.OperationalError) as error:
        if not str(error).startswith("Could not decode to UTF-8"):
            raise
    raw.text_factory = _decode_stored
    try:
        return raw.execute(query, values).fetchall()
    finally:
        raw.text_factory = str


def with_id(thread_id: str) -> tuple[str, tuple[object, ...]]:
    """The condition that finds the row `t` of a thread, and its values.

    One whose id is not UTF-8 is found by what listings call it.
    """
    if "\\x" in thread_id:
        stored = _BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), thread_id.encode())
        if isinstance(_decode_stored(stored), UnreadableText):
            return "(t.id = ? OR CAST(t.id AS BLOB) = ?)", (thread_id, stored)
    return "t.id = ?", (thread_id,)


def thread_from_row(row: tuple) -> ThreadRecord:  # type: ignore[type-arg]
    """A row of `THREAD_COLUMNS`. A fact that cannot be read is named in `unreadable`, and never takes others along."""
    (_, thread_id, kind, user, tenant, agent, parent, stored, policy, created, forked_id, forked_seq, has_first) = row
    fork = ForkPoint(str(forked_id), forked_seq) if forked_id is not None else None
    scopes = {"user_id": user, "tenant_id": tenant, "agent_id": agent, "parent_id": parent}
    names = {"id": thread_id, "kind": kind, **scopes}
    return read_record(names, stored, policy, created, fork, has_first=bool(has_first))
