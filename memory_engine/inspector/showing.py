"""Events and chunks as the page lists them: short, of a bounded size, and safe to show."""

from collections.abc import Mapping

import msgspec

from memory_engine.chunks import Chunk
from memory_engine.cli.excerpts import of_event
from memory_engine.cli.text import one_line
from memory_engine.clock import to_datetime
from memory_engine.errors import IntegrityError
from memory_engine.events.base import ToolCall
from memory_engine.operations import (
    Add,
    Batch,
    BatchReplace,
    Delete,
    Operation,
    Reorder,
    Replace,
    Update,
    operation_name,
)
from memory_engine.reading import LogReader
from memory_engine.records import RecordedEvent, StoredEvent

SAID_MAX = 200
TEXT_MAX = 2_000
"""Characters of a chunk's text in a list."""
OPERATIONS_MAX = 500
"""Operations of one event that are written out."""
IDS_MAX = 8
"""Ids in one line."""

_ROLES = {
    "user": "user_message parent_agent_message",
    "assistant": "llm_text_response llm_thinking llm_tool_call llm_skill_call llm_subagent_spawn llm_subagent_message "
    "llm_clarification",
    "tool": "tool_result skill_result subagent_result tool_error subagent_error skill_error",
    "system": "session_started session_ended system_error external_inject external_timer environment_change "
    "execution_retry execution_resume execution_pause thread_seeded event_skipped",
}
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names.split()}
_MEMORY = (
    "memory_", "scratchpad_", "preference_", "playbook_", "agent_md_", "pattern", "document_", "tool_cache_",
    "tool_result_cached", "results_offloaded", "facts_", "flow_", "feedback_", "report_", "promotion_", "exchange_",
    "summary_", "cycle_",
)  # fmt: skip


def role_of(event_type: str) -> str:
    """The family of an event type: user, assistant, tool, system, compaction, memory or other."""
    if event_type.startswith("compaction_"):
        return "compaction"
    return _ROLE_OF.get(event_type) or ("memory" if event_type.startswith(_MEMORY) else "other")


def event_row(reader: LogReader, thread_id: str, stored: StoredEvent) -> dict[str, object]:
    """A row of the timeline. Of an event that cannot be read, what is wrong with it."""
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
        "role": role_of(stored.type),
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
        "id": chunk.id,
        "type": chunk.type,
        "category": chunk.category.value,
        "retention": chunk.retention.value,
        "tokens": chunk.tokens,
        "text": text[:TEXT_MAX],
        "chars": len(text),
        "container": container,
        "parent_ids": list(chunk.parent_ids),
        "status": chunk.status,
        "label": chunk.label,
        "name": chunk.name,
        "call_id": chunk.call_id,
        "calls": [_call_row(call) for call in chunk.calls],
    }


def _call_row(call: ToolCall) -> Mapping[str, object]:
    row: dict[str, object] = msgspec.to_builtins(call)
    return row | {"arguments": call.arguments[:TEXT_MAX]}


def operation_lines(recorded: RecordedEvent) -> list[str]:
    """What an event's operations did, a line each; of very many, the first."""
    lines = [operation_line(operation) for operation in recorded.operations[:OPERATIONS_MAX]]
    left_out = len(recorded.operations) - len(lines)
    return [*lines, f"… and {left_out:,} more"] if left_out else lines


def operation_line(operation: Operation) -> str:
    """An operation in one line."""
    name = operation_name(operation)
    match operation:
        case Add(chunk=chunk, container=container):
            return f"{name} {chunk}{f' in {container}' if container else ''}{_place(operation)}"
        case Reorder(chunk=chunk):
            return f"{name} {chunk}{_place(operation) or ' last'}"
        case Update(chunk=chunk, by=by) | Replace(chunk=chunk, by=by):
            return f"{name} {chunk} → {by}"
        case Delete(chunk=chunk):
            return f"{name} {chunk}"
        case BatchReplace(chunks=chunks, by=by):
            return f"{name} {_ids(chunks)} → {_ids(by) or 'nothing'}"
        case Batch(operations=operations):
            return f"{name} " + "; ".join(map(operation_line, operations[:IDS_MAX])) + _more(len(operations))


def _place(operation: Add | Reorder) -> str:
    if operation.first:
        return " first"
    return f" before {operation.before}" if operation.before else f" after {operation.after}" if operation.after else ""


def _ids(ids: tuple[str, ...]) -> str:
    return " ".join(ids[:IDS_MAX]) + _more(len(ids))


def _more(count: int) -> str:
    return f" … and {count - IDS_MAX:,} more" if count > IDS_MAX else ""
