"""Values as the tables hold them, and back: keys of threads and events, events, heads, records."""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID

import asyncpg
import msgspec

from memory_engine.core.lazy import regex
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ForkPoint, Head, ThreadRecord, read_record, readable_marks
from memory_engine.errors import InvalidIdentifier

HEAD_BYTES = 512
"""So much of the key of a projection's row is its `head`; the rest is its `tail`."""
TERM_BYTES = 64
"""`words` holds a term up to this length in full, a longer one as its digest."""
_UUID = regex(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

EVENT_COLUMNS = (
    "e.seq, e.id_key, e.id, e.type, e.version, e.recorded_at_us, e.occurred_at_us, e.causation_id, e.correlation_id, "
    "e.salt, e.hash, coalesce(e.payload, b.body) AS payload, e.record, "
    "(SELECT p.hash FROM @.events p WHERE p.tid = e.tid AND p.seq = e.seq - 1) AS previous"
)
EVENTS = "@.events e LEFT JOIN @.blobs b ON b.tid = e.tid AND b.digest = e.spilled"
HEAD_COLUMNS = "h.seq, h.hash, h.epoch, h.status, h.open_compaction, h.chunks, h.tokens, h.marks"
THREAD_COLUMNS = (
    "t.tid, t.id, t.kind, t.user_id, t.tenant_id, t.agent_id, t.parent_id, t.metadata, t.policy, t.created_at_us, "
    "t.forked_tid, t.forked_id, t.forked_seq, "
    "t.forked_seq > 0 AND coalesce((SELECT true FROM @.events f WHERE f.tid = t.tid AND f.seq = 1), false) AS has_first"
)
"""`has_first` is not an EXISTS: of that PostgreSQL may make a hash, for which it reads the whole log of all threads."""


def in_schema(sql: str, schema: str) -> str:
    """A statement with `@.` replaced by the schema's name, quoted."""
    return sql.replace("@.", f'"{schema}".')


@lru_cache(maxsize=4_096)
def tid_of(thread_id: str) -> UUID:
    """The key of a thread: the first 16 bytes of the SHA-256 of its id. Raises `InvalidIdentifier`."""
    return UUID(bytes=hashlib.sha256(as_bytes(thread_id)).digest()[:16])


def as_bytes(text: str) -> bytes:
    """A text as UTF-8. Raises `InvalidIdentifier` for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidIdentifier("a text", ascii(error.object), "it holds a lone surrogate") from None


def id_key(event_id: str) -> bytes:
    """The key of an event in its thread: its first byte says whether a UUID, a text or a text's digest follows."""
    if len(event_id) == 36 and _UUID.fullmatch(event_id):
        return b"u" + bytes.fromhex(event_id.replace("-", ""))
    text = as_bytes(event_id)
    return b"t" + text if len(text) <= TERM_BYTES else b"h" + hashlib.sha256(text).digest()


def id_column(event_id: str, key: bytes) -> bytes | None:
    """The id itself, where its key is only a digest."""
    return as_bytes(event_id) if key[:1] == b"h" else None


def id_from_row(key: bytes, kept: bytes | None) -> str:
    """The id that was stored."""
    if kept is not None:
        return kept.decode()
    return str(UUID(bytes=key[1:])) if key[:1] == b"u" else key[1:].decode()


def term_key(term: str) -> bytes:
    """A term as `words` has it."""
    text = term.encode()
    return text if len(text) <= TERM_BYTES else b"\xff" + hashlib.sha256(text).digest()


def split_key(key: str) -> tuple[bytes, bytes, bytes]:
    """The head, the digest and the tail of a row's key. Raises `InvalidIdentifier`."""
    text = as_bytes(key)
    if len(text) <= HEAD_BYTES:
        return text, b"", b""
    return text[:HEAD_BYTES], hashlib.sha256(text).digest(), text[HEAD_BYTES:]


def joined_key(head: bytes, tail: bytes) -> str:
    """The key of a row."""
    return (head + tail).decode()


def event_from_row(row: asyncpg.Record) -> StoredEvent:
    """A row of `EVENT_COLUMNS`. One whose blob is missing has no payload, which its hash does not bind."""
    seq = row["seq"]
    return StoredEvent(
        seq=seq,
        id=id_from_row(row["id_key"], row["id"]),
        type=row["type"],
        version=row["version"],
        recorded_at_us=row["recorded_at_us"],
        occurred_at_us=row["occurred_at_us"],
        causation_id=(row["causation_id"] or b"").decode(),
        correlation_id=(row["correlation_id"] or b"").decode(),
        payload=row["payload"] if row["payload"] is not None else b"",
        record=row["record"],
        salt=row["salt"],
        hash=row["hash"],
        previous=b"" if seq == 1 else row["previous"],
    )


def head_from_row(row: asyncpg.Record) -> Head:
    """A row of `HEAD_COLUMNS`."""
    if row["seq"] is None:
        return Head(unreadable="its row is gone")
    marks, unreadable = readable_marks(row["marks"])
    return Head(
        seq=row["seq"],
        hash=row["hash"],
        epoch=row["epoch"],
        status=row["status"],
        open_compaction=row["open_compaction"],
        chunks=row["chunks"],
        tokens=row["tokens"],
        marks=marks,
        unreadable=unreadable,
    )


def marks_to_row(head: Head) -> bytes:
    """The marks as JSON."""
    return msgspec.json.encode(head.marks) if head.marks else b"{}"


def thread_from_row(row: asyncpg.Record) -> ThreadRecord:
    """A row of `THREAD_COLUMNS`. A fact that cannot be read is named in `unreadable`, and never takes others along."""
    fork = ForkPoint(row["forked_id"], row["forked_seq"]) if row["forked_tid"] is not None else None
    names = {name: row[name] for name in ("id", "kind", "user_id", "tenant_id", "agent_id", "parent_id")}
    made_us, has_first = row["created_at_us"], bool(row["has_first"])
    return read_record(names, row["metadata"], row["policy"], made_us, fork, has_first=has_first)


def chunk_place(chunk_id: str) -> tuple[int, int]:
    """The seq and the number of a chunk."""
    seq, _, n = chunk_id.partition(".")
    return int(seq), int(n)


def array_of(numbers: Sequence[int]) -> str:
    """Numbers as the literal of an array: of arrays of unlike lengths PostgreSQL makes no array."""
    return f"{{{','.join(map(str, numbers))}}}"


_COUNT = re.compile(r"\d+")


def count_in(status: str) -> int:
    """The number of rows in what the server says that it did, such as `DELETE 3`."""
    found = _COUNT.findall(status)
    return int(found[-1]) if found else 0
