"""The bones of a log, read once and then as it grows; and events and chunks as the page lists them, short and safe."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from memory_engine.compaction.history import Compaction, Steps, read_steps
from memory_engine.core.chunks import Chunk
from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import ToolCall
from memory_engine.core.excerpts import of_event, one_line
from memory_engine.core.json_form import named
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
    place_text,
)
from memory_engine.core.records import RecordedEvent, StoredEvent
from memory_engine.core.threads import Head
from memory_engine.errors import IntegrityError
from memory_engine.store.reader import LogReader

THREADS_MAX = 64


class Outlines:
    """The compactions of one engine's threads."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[str, tuple[int, Steps]] = OrderedDict()

    async def compactions(self, thread_id: str, head: Head) -> Sequence[Compaction]:
        """The compactions of a log up to its head, in the order of their beginnings.

        What became of their summaries later is not known, but for those that were undone.
        """
        read, steps = self._kept.get(thread_id, (0, Steps()))
        if read < head.seq:
            read, steps = head.seq, await read_steps(self._reader, thread_id, head.seq, steps, read)
            self._kept[thread_id] = read, steps
            if len(self._kept) > THREADS_MAX:
                self._kept.popitem(last=False)
        undone = steps.undone
        finished = [replace(one, status="undone") if one.seq in undone else one for one in steps.finished]
        return steps.in_order(finished, head.open_compaction)


def compaction_row(one: Compaction) -> dict[str, object]:
    """A compaction as the timeline shows it. `seq` is `null` for one that has not ended."""
    return {
        "id": one.compaction_id,
        "started": one.started or one.seq,
        "seq": one.seq or None,
        "status": "completed" if one.status == "live" else one.status,
        "covers": one.chunks,
        "tokens": [one.tokens_before, one.tokens_after],
        "summaries": one.summaries,
        "compactor": one.compactor,
    }


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
            return f"{name} {chunk}{place_text(operation)}"
        case Reorder(chunk=chunk):
            return f"{name} {chunk}{place_text(operation) or ' last'}"
        case Update(chunk=chunk, by=by) | Replace(chunk=chunk, by=by):
            return f"{name} {chunk} → {by}"
        case Delete(chunk=chunk):
            return f"{name} {chunk}"
        case BatchReplace(chunks=chunks, by=by):
            return f"{name} {_short_ids(chunks)} → {_short_ids(by) or 'nothing'}"
        case Batch(operations=operations):
            return f"{name} " + "; ".join(map(operation_line, operations[:IDS_MAX])) + _more(len(operations))


def _short_ids(ids: tuple[str, ...]) -> str:
    return " ".join(ids[:IDS_MAX]) + _more(len(ids))


def _more(count: int) -> str:
    return f" … and {count - IDS_MAX:,} more" if count > IDS_MAX else ""
