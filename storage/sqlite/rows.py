"""Rows to values and back. Ids that are canonical UUIDs take 16 bytes, others are text."""

import sqlite3

import msgspec

from memory_engine.persistence import CompactionPolicy, ForkPoint, Head, ThreadRecord
from memory_engine.records import StoredEvent
from memory_engine.regex import regex

EVENT_COLUMNS = (
    "e.pos, e.id, e.type, e.version, e.recorded_at_us, e.occurred_at_us, e.causation_id, e.correlation_id, "
    "e.salt, e.hash, coalesce(e.payload, b.body), e.record"
)
EVENTS = "events e LEFT JOIN blobs b ON b.tid = e.tid AND b.digest = e.spilled"
HEAD_COLUMNS = "h.seq, h.hash, h.epoch, h.status, h.open_compaction, h.chunks, h.tokens, h.marks"
THREAD_COLUMNS = (
    "t.tid, t.id, t.kind, t.user_id, t.tenant_id, t.agent_id, t.parent_id, t.metadata, t.policy, "
    "t.created_at_us, (SELECT p.id FROM threads p WHERE p.tid = t.forked_tid), t.forked_seq"
)
_UUID = regex(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MARKS = msgspec.json.Decoder(dict[str, int])
_POLICY = msgspec.json.Decoder(CompactionPolicy)


def id_to_row(event_id: str) -> str | bytes:
    """16 bytes for a canonical UUID."""
    if len(event_id) == 36 and _UUID.fullmatch(event_id):
        return bytes.fromhex(event_id.replace("-", ""))
    return event_id


def id_from_row(value: str | bytes) -> str:
    """The id as it was given."""
    if isinstance(value, str):
        return value
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def position(tid: int, seq: int) -> int:
    """The place of an event in the one b-tree of all logs."""
    return tid << 32 | seq


def event_from_row(row: sqlite3.Row | tuple) -> StoredEvent:  # type: ignore[type-arg]
    """A row of `EVENT_COLUMNS`."""
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
    ) = row
    header = (pos & 0xFFFFFFFF, id_from_row(event_id), kind, version, recorded, occurred)
    body = payload if payload is not None else b""  # its blob is missing: no payload, and never the hash's
    return StoredEvent(*header, causation or "", correlation or "", body, record, salt, digest)


def head_from_row(row: tuple) -> Head:  # type: ignore[type-arg]
    """A row of `HEAD_COLUMNS`."""
    seq, digest, epoch, status, open_compaction, chunks, tokens, marks = row
    return Head(
        seq=seq,
        hash=digest,
        epoch=epoch,
        status=status,
        open_compaction=open_compaction,
        chunks=chunks,
        tokens=tokens,
        marks=_MARKS.decode(marks) if marks != "{}" else {},
    )


def marks_to_row(head: Head) -> str:
    """The marks as JSON."""
    return msgspec.json.encode(head.marks).decode() if head.marks else "{}"


def thread_from_row(row: tuple) -> ThreadRecord:  # type: ignore[type-arg]
    """A row of `THREAD_COLUMNS`."""
    _, thread_id, kind, user, tenant, agent, parent, metadata, policy, created, forked_id, forked_seq = row
    return ThreadRecord(
        id=thread_id,
        kind=kind,
        user_id=user,
        tenant_id=tenant,
        agent_id=agent,
        parent_id=parent,
        metadata=msgspec.json.decode(metadata, type=dict[str, str]),
        policy=_POLICY.decode(policy) if policy is not None else None,
        created_at_us=created,
        forked_from=ForkPoint(forked_id, forked_seq) if forked_id is not None else None,
    )
