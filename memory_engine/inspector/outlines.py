"""The bones of a log, read once and then as it grows; and events and chunks as the page lists them, short and safe."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec
from attrs import evolve, frozen

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import ToolCall
from memory_engine.core.events.compaction import (
    STEPS,
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    CompactionUndone,
)
from memory_engine.core.excerpts import of_event, one_line
from memory_engine.core.json_form import JsonForm, named
from memory_engine.core.operations import (
    Add,
    Batch,
    BatchReplace,
    Delete,
    Operation,
    Reorder,
    Replace,
    Update,
    operation_name,
    place_of,
)
from memory_engine.core.records import RecordedEvent, StoredEvent
from memory_engine.core.threads import Head
from memory_engine.errors import IntegrityError
from memory_engine.store.reader import LogReader

THREADS_MAX = 64


@frozen(kw_only=True)
class CompactionOutline(JsonForm):
    """A compaction as its events tell it. `started` and `seq` are where it began and ended, `seq` 0: it has not."""

    id: str
    started: int = 0
    seq: int = 0
    status: str = "running"
    covers: int = 0
    tokens: tuple[int, int] = (0, 0)
    summaries: tuple[str, ...] = ()
    compactor: str = ""

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return super().as_data() | {"started": self.started or self.seq, "seq": self.seq or None}


class Outlines:
    """The compactions of one engine's threads."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[str, tuple[int, Mapping[str, CompactionOutline]]] = OrderedDict()

    async def compactions(self, thread_id: str, head: Head) -> Sequence[CompactionOutline]:
        """The compactions of a log up to its head, in the order of their beginnings.

        One that began and has no end in the log runs while the head says so; else it was abandoned.
        """
        read, known = self._kept.get(thread_id, (0, {}))
        if read < head.seq:
            found = dict(known)
            async for page in self._reader.pages(thread_id, after=read, upto=head.seq, types=STEPS):
                for stored in page:
                    _apply(found, self._reader.decode(thread_id, stored))
            read, known = head.seq, found
            self._kept[thread_id] = read, known
            if len(self._kept) > THREADS_MAX:
                self._kept.popitem(last=False)
        return [
            evolve(one, status="abandoned") if one.status == "running" and one.started != head.open_compaction else one
            for one in sorted(known.values(), key=lambda one: one.started or one.seq)
        ]


def _apply(found: dict[str, CompactionOutline], recorded: RecordedEvent) -> None:
    event, seq = recorded.event, recorded.seq
    match event:
        case CompactionStarted():
            covers = len(event.chunk_ids)
            found[event.compaction_id] = CompactionOutline(
                id=event.compaction_id, started=seq, covers=covers, compactor=event.compactor
            )
        case CompactionCompleted():
            found[event.compaction_id] = evolve(
                _known(found, event.compaction_id),
                seq=seq,
                status="completed",
                covers=sum(len(replacement.covers) for replacement in event.replacements),
                tokens=(event.tokens_before, event.tokens_after),
                summaries=tuple(chunk.id for chunk in recorded.chunks if chunk.type == ChunkType.COMPACTED),
                compactor=event.compactor,
            )
        case CompactionFailed():
            known = _known(found, event.compaction_id)
            found[event.compaction_id] = evolve(known, seq=seq, status="failed", compactor=event.compactor)
        case CompactionAbandoned():
            found[event.compaction_id] = evolve(_known(found, event.compaction_id), seq=seq, status="abandoned")
        case CompactionUndone():
            found[event.compaction_id] = evolve(_known(found, event.compaction_id), status="undone")


def _known(found: Mapping[str, CompactionOutline], compaction_id: str) -> CompactionOutline:
    return found.get(compaction_id) or CompactionOutline(id=compaction_id)


SAID_MAX = 200
TEXT_MAX = 2_000
"""Characters of a chunk's text in a list."""
OPERATIONS_MAX = 500
"""Operations that are written out of one event."""
IDS_MAX = 8
"""Ids in one line."""


def event_row(reader: LogReader, thread_id: str, stored: StoredEvent) -> dict[str, object]:
    """A row of the timeline. An event that cannot be read gives the error."""
    row: dict[str, object] = {
        "seq": stored.seq,
        "id": stored.id,
        "type": stored.type,
        "at": to_datetime(stored.recorded_at_us).isoformat(),
        "said": "",
        "operations": 0,
        "chunks": [],
        "tokens": 0,
        "correlation_id": stored.correlation_id,
        "causation_id": stored.causation_id,
        "role": reader.registry.role(stored.type),
    }
    try:
        recorded = reader.decode(thread_id, stored)
    except IntegrityError as error:
        return row | {"said": one_line(f"cannot be read: {error.why}", SAID_MAX), "broken": True}
    return row | {
        "said": one_line(of_event(recorded.event), SAID_MAX),
        "operations": len(recorded.operations),
        "chunks": [chunk.id for chunk in recorded.chunks],
        "tokens": sum(chunk.tokens for chunk in recorded.chunks),
    }


def chunk_row(chunk: Chunk, container: str = "") -> dict[str, object]:
    """A chunk in a list; its text is cut, `chars` is how long it is."""
    text = chunk.text
    return {
        **named(chunk, "id type category retention tokens"),
        "text": text[:TEXT_MAX],
        "chars": len(text),
        "container": container,
        **named(chunk, "parent_ids status label name call_id"),
        "calls": [call_row(call) for call in chunk.calls],
    }


def call_row(call: ToolCall) -> Mapping[str, object]:
    """A call; its arguments are cut."""
    row: dict[str, object] = msgspec.to_builtins(call)
    return row | {"arguments": call.arguments[:TEXT_MAX]}


def operation_lines(recorded: RecordedEvent) -> list[str]:
    """An event's operations, a line each; of very many, the first."""
    lines = [operation_line(operation) for operation in recorded.operations[:OPERATIONS_MAX]]
    left_out = len(recorded.operations) - len(lines)
    return [*lines, f"… and {left_out:,} more"] if left_out else lines


def operation_line(operation: Operation) -> str:
    """An operation in one line."""
    name = operation_name(operation)
    match operation:
        case Add(chunk=chunk):
            return f"{name} {chunk}{place_of(operation)}"
        case Reorder(chunk=chunk):
            return f"{name} {chunk}{place_of(operation) or ' last'}"
        case Update(chunk=chunk, by=by) | Replace(chunk=chunk, by=by):
            return f"{name} {chunk} → {by}"
        case Delete(chunk=chunk):
            return f"{name} {chunk}"
        case BatchReplace(chunks=chunks, by=by):
            return f"{name} {_ids(chunks)} → {_ids(by) or 'nothing'}"
        case Batch(operations=operations):
            return f"{name} " + "; ".join(map(operation_line, operations[:IDS_MAX])) + _more(len(operations))


def _ids(ids: tuple[str, ...]) -> str:
    return " ".join(ids[:IDS_MAX]) + _more(len(ids))


def _more(count: int) -> str:
    return f" … and {count - IDS_MAX:,} more" if count > IDS_MAX else ""
