"""A flow that completed, and the fold that keeps them."""

from typing import Literal

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows
from memory_engine.views.playbooks.events import FeedbackGiven, FlowCompleted, PlaybookCall, PlaybookPromoted

FlowStatus = Literal["completed", "liked", "rejected", "promoted"]
"""Completed and not judged yet; liked, but no user to keep the playbook or with a secret; rejected; a playbook."""


class FlowRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of a flow. `judged_seq` is the seq of the event that decided on it; `reason` says why.

    `liked_seq`: the seq of the feedback that made it a playbook, if feedback did.
    """

    flow_id: str
    flow_dact: str
    user_query: str
    seq: int
    event_id: str
    slots: dict[str, object] = msgspec.field(default_factory=dict)
    tool_calls: tuple[PlaybookCall, ...] = ()
    outcome: str = ""
    status: FlowStatus = "completed"
    reason: str = ""
    judged_seq: int = 0
    judged_event_id: str = ""
    liked_seq: int = 0


class FlowsFold:
    """The flows of a conversation, by flow id."""

    name = "flows"
    version = 1
    mode: ProjectionMode = "inline"
    row = FlowRecord
    events: tuple[type[Event], ...] = (FlowCompleted, FeedbackGiven, PlaybookPromoted, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[FlowRecord], event: RecordedEvent) -> None:
        """Note a run, or the judgement on it."""
        match event.event:
            case FlowCompleted() as flow:
                _complete(rows, flow, event)
            case FeedbackGiven() as feedback:
                record = rows.get(feedback.flow_id) if feedback.flow_id else latest(rows)
                # a playbook stays one: only the user takes it back
                if record is not None and record.status != "promoted":
                    status: FlowStatus = "liked" if feedback.satisfied else "rejected"
                    rows.put(record.flow_id, _judged(record, event, status, feedback.content))
            case PlaybookPromoted(flow_id=flow_id, reason=reason):
                record = rows.get(flow_id)
                if record is not None:
                    liked_seq = record.judged_seq if record.status == "liked" else record.liked_seq
                    promoted = _judged(record, event, "promoted", reason)
                    rows.put(flow_id, msgspec.structs.replace(promoted, liked_seq=liked_seq))
            case MemoryForget(seqs=seqs) if seqs:
                _drop_forgotten_flows(rows, frozenset(seqs))


def _complete(rows: Rows[FlowRecord], flow: FlowCompleted, event: RecordedEvent) -> None:
    """A run under an id that was used before takes its place, unless that one is a playbook."""
    before = rows.get(flow.flow_id)
    if before is not None and before.status == "promoted":
        return
    record = FlowRecord(
        flow_id=flow.flow_id,
        flow_dact=flow.flow_dact,
        user_query=flow.user_query,
        seq=event.seq,
        event_id=event.id,
        slots=flow.slots,
        tool_calls=flow.tool_calls,
        outcome=flow.outcome,
    )
    rows.put(flow.flow_id, record)


def _judged(record: FlowRecord, event: RecordedEvent, status: FlowStatus, reason: str) -> FlowRecord:
    return msgspec.structs.replace(record, status=status, reason=reason, judged_seq=event.seq, judged_event_id=event.id)


def _drop_forgotten_flows(rows: Rows[FlowRecord], seqs: frozenset[int]) -> None:
    for flow_id, record in list(rows.items()):
        if record.seq in seqs:
            rows.drop(flow_id)
        elif not seqs.isdisjoint((record.judged_seq, record.liked_seq)):
            # a run whose playbook was forgotten makes no second one; one whose feedback was may be judged again
            status: FlowStatus = "rejected" if record.status == "promoted" else "completed"
            rows.put(
                flow_id,
                msgspec.structs.replace(
                    record, status=status, reason="", judged_seq=0, judged_event_id="", liked_seq=0
                ),
            )


def latest(rows: Rows[FlowRecord]) -> FlowRecord | None:
    """The run that completed last."""
    return max((record for _, record in rows.items()), key=lambda record: record.seq, default=None)


FLOWS = FlowsFold()
