"""The log's own rules: how rows link, how they set the thread's head, how they are read back."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from memory_engine.core.chunks import Chunk
from memory_engine.core.clock import to_datetime
from memory_engine.core.codec import GENESIS, ReductionRecord, commitment, decode_reduction, link, resolve_chunks
from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.compaction import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
)
from memory_engine.core.events.memory import ExecutionPause, ExecutionResume
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.executor import apply_to_draft
from memory_engine.core.records import RecordedEvent, StoredEvent
from memory_engine.core.reduction import Reduction
from memory_engine.core.state import Placed, State, StateDraft, Tally
from memory_engine.core.threads import ACTIVE, PAUSED, Head, LiveChunk, LoadedThread
from memory_engine.errors import EventClassChanged, EventDecodeError, IntegrityError, InvalidOperation

DIGEST_BYTES = 32
_STATUS_AFTER = {ExecutionPause.event_type: PAUSED, ExecutionResume.event_type: ACTIVE}
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
_COMPACTION_ENDS = frozenset(cls.event_type for cls in (CompactionCompleted, CompactionFailed, CompactionAbandoned))
MOVES_STATUS = _COMPACTION_ENDS | {CompactionStarted.event_type, *_STATUS_AFTER}
"""Types of the events that change a head's status or its open compaction."""


def link_hash(stored: StoredEvent, previous: bytes) -> bytes:
    """The hash that a row must have after one with the hash `previous` (empty: the first)."""
    payload_digest, record_digest = commitments(stored)
    return link(previous or GENESIS, stored.header(), payload_digest, record_digest)


def commitments(stored: StoredEvent) -> tuple[bytes, bytes]:
    """The commitments to a row's payload and to its operations, as the chain holds them.

    They are all that is left of the recorded bytes in a redacted row, which came from a file.
    """
    if is_redacted(stored):
        return stored.salt[:DIGEST_BYTES], stored.salt[DIGEST_BYTES:]
    return commitment(stored.salt, stored.payload), commitment(stored.salt, stored.record)


def is_redacted(stored: StoredEvent) -> bool:
    """Whether stand-ins replace a row's texts: then two commitments replace its salt."""
    return len(stored.salt) == 2 * DIGEST_BYTES


def check_hash(thread_id: str, stored: StoredEvent) -> None:
    """Raise `IntegrityError` for a row that is not what its hash binds, if the hash before it is at hand."""
    if stored.previous is not None and link_hash(stored, stored.previous) != stored.hash:
        raise IntegrityError(thread_id, stored.seq, "its bytes are not those that its hash binds")


def stand_in_digest(stored: StoredEvent) -> str:
    """The digest of the stand-ins of a redacted row's texts, in hexadecimal."""
    return sha256(sha256(stored.payload).digest() + sha256(stored.record).digest()).hexdigest()


def chain_hash(previous: bytes, header: Sequence[object], salt: bytes, payload: bytes, record: bytes) -> bytes:
    """The hash that binds a row to all earlier ones: see `codec.link`."""
    return link(previous or GENESIS, header, commitment(salt, payload), commitment(salt, record))


def next_head(head: Head, stored: StoredEvent, tally: Tally, *, tracked: bool) -> Head:
    """The head after an event, `tracked` if its type is."""
    open_compaction = head.open_compaction
    if stored.type == CompactionStarted.event_type:
        open_compaction = stored.seq
    elif stored.type in _COMPACTION_ENDS:
        open_compaction = 0
    return Head(
        seq=stored.seq,
        hash=stored.hash,
        epoch=head.epoch + (stored.type == CompactionAbandoned.event_type),
        status=_STATUS_AFTER.get(stored.type, head.status),
        open_compaction=open_compaction,
        chunks=tally.chunks,
        tokens=tally.tokens,
        marks={**head.marks, stored.type: stored.seq} if tracked else head.marks,
    )


def live_chunk(placed: Placed | None) -> LiveChunk | None:
    """The row of a chunk at its place."""
    return LiveChunk(placed.chunk.id, placed.key, placed.container) if placed is not None else None


def as_recorded(
    thread_id: str, stored: StoredEvent, event: Event | UnknownEvent, reduction: Reduction
) -> RecordedEvent:
    """A row as users see it."""
    occurred = stored.occurred_at_us
    return RecordedEvent(
        thread_id=thread_id,
        seq=stored.seq,
        id=stored.id,
        type=stored.type,
        version=stored.version,
        event=event,
        operations=reduction.operations,
        chunks=reduction.chunks,
        recorded_at=to_datetime(stored.recorded_at_us),
        occurred_at=to_datetime(occurred) if occurred is not None else None,
        causation_id=stored.causation_id,
        correlation_id=stored.correlation_id,
        hash=stored.hash.hex(),
    )


def read_back(thread_id: str, stored: StoredEvent, registry: EventRegistry) -> RecordedEvent:
    """Decode a row: event, operations, and chunks with all they share with the event. See `decode_row`."""
    event, reduction = decode_row(thread_id, stored, registry)
    return as_recorded(thread_id, stored, event, reduction)


def decode_row(thread_id: str, stored: StoredEvent, registry: EventRegistry) -> tuple[Event | UnknownEvent, Reduction]:
    """The event and the reduction of a row. Raises `IntegrityError` naming thread and seq for unreadable bytes."""
    event = decode_event(thread_id, stored, registry)
    record = decode_record(thread_id, stored)
    return event, Reduction(record.operations, resolve_chunks(record, event))


def decode_record(thread_id: str, stored: StoredEvent) -> ReductionRecord:
    """The reduction of a row without its event: chunks lack what they share with it. No hash is checked.

    Raises `IntegrityError` as `decode_row` does.
    """
    try:
        return decode_reduction(stored.record)
    except _UNREADABLE as error:
        raise IntegrityError(thread_id, stored.seq, str(error)) from error


def decode_event(thread_id: str, stored: StoredEvent, registry: EventRegistry) -> Event | UnknownEvent:
    """The event of a row alone, for a third of the time. Raises `IntegrityError` as `decode_row` does."""
    check_hash(thread_id, stored)
    try:
        return registry.decode(stored.type, stored.version, stored.payload)
    except EventDecodeError as error:
        raise _undecodable(thread_id, stored, error) from error


def _undecodable(thread_id: str, stored: StoredEvent, error: EventDecodeError) -> IntegrityError:
    """The error for an event: of its class, where the row is what its hash binds, and holds JSON."""
    if stored.previous is None or not isinstance(error.__cause__, msgspec.ValidationError):
        return IntegrityError(thread_id, stored.seq, str(error))
    why = str(error.__cause__)
    path = why.partition(" - at `$")[2].rstrip("`").removeprefix(".")
    lacks = why.partition("required field `")[2].partition("`")[0]
    field = ".".join(part for part in (path, lacks) if part)
    return EventClassChanged(thread_id, stored.seq, why, stored.type, stored.version, field)


def load_state(loaded: LoadedThread, registry: EventRegistry) -> State:
    """The state from its rows. Raises `IntegrityError` where they, or its marks, are not those of the head."""
    if loaded.head.unreadable:
        raise unreadable_marks(loaded.record.id, loaded.head)
    draft = State().draft()
    chunks: dict[str, Chunk] = {}
    for stored in loaded.sources.values():
        _, reduction = decode_row(loaded.record.id, stored, registry)
        for chunk in reduction.chunks:
            chunks[chunk.id] = chunk
    for row in loaded.live:
        if row.chunk_id not in chunks:
            raise IntegrityError(loaded.record.id, loaded.head.seq, f"chunk {row.chunk_id} is in no event")
        draft.insert(Placed(chunks[row.chunk_id], row.key, row.container))
    if (draft.tally.chunks, draft.tally.tokens) != (loaded.head.chunks, loaded.head.tokens):
        raise IntegrityError(loaded.record.id, loaded.head.seq, "the state's rows are not those of its head")
    return draft.freeze(loaded.head.seq)


def unreadable_marks(thread_id: str, head: Head) -> IntegrityError:
    """The error of a head whose marks cannot be read: without them a view might seem to be up to date."""
    return IntegrityError(thread_id, head.seq, f"the marks of its head cannot be read: {head.unreadable}")


def apply_rows(draft: StateDraft, rows: Iterable[StoredEvent], thread_id: str, registry: EventRegistry | None) -> None:
    """Apply recorded operations, each with its chunks decoded again.

    Without a registry no event is decoded: chunks lack the fields that they share with their events (see
    `codec.resolve_chunks`), and only their places are worth anything.

    Raises `IntegrityError` naming thread and seq where a row's operations cannot be read or applied.
    """
    for stored in rows:
        check_hash(thread_id, stored)
        try:
            record = decode_reduction(stored.record)
            chunks = record.chunks
            if record.shares and registry is not None:
                chunks = resolve_chunks(record, registry.decode(stored.type, stored.version, stored.payload))
            apply_to_draft(draft, record.operations, chunks, seq=stored.seq)
        except EventDecodeError as error:
            raise _undecodable(thread_id, stored, error) from error
        except (InvalidOperation, *_UNREADABLE) as error:
            raise IntegrityError(thread_id, stored.seq, str(error)) from error
