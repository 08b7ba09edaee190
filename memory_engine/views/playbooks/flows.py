"""`thread.flows`: flows that completed in a conversation, what their user made of them, and which become playbooks."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from memory_engine.core.chunks import ChunkType
from memory_engine.core.events.base import Event
from memory_engine.core.events.delivery import Destination
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import NewEvent, RecordedEvent
from memory_engine.errors import IdempotencyConflict, UnknownFlow
from memory_engine.projections.base import ProjectionMode, Rows
from memory_engine.projections.outbox import derived_id
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.views.playbooks.events import FeedbackGiven, FlowCompleted, PlaybookCall, PlaybookPromoted
from memory_engine.views.playbooks.reactions import ReactionJudge, WordingJudge
from memory_engine.views.playbooks.view import Playbook, Playbooks
from memory_engine.views.scratchpad.view import Scratchpad

FlowStatus = Literal["completed", "liked", "rejected", "promoted"]
"""Completed and not judged yet; liked, with no user to keep the playbook; rejected; a playbook."""


class FlowRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of a flow. `judged_seq` is the seq of the event that decided on it, `reason` what that rests on.

    `liked_seq`: of a playbook, the seq of the feedback that made it one, if it was feedback.
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
        """Note a run, or what became of it."""
        match event.event:
            case FlowCompleted() as flow:
                _complete(rows, flow, event)
            case FeedbackGiven() as feedback:
                record = rows.get(feedback.flow_id) if feedback.flow_id else latest(rows)
                # what is a playbook stays one: taking it back is the user's own act
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
                _forget(rows, frozenset(seqs))


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


def _forget(rows: Rows[FlowRecord], seqs: frozenset[int]) -> None:
    for flow_id, record in list(rows.items()):
        if record.seq in seqs:
            rows.drop(flow_id)
        elif not seqs.isdisjoint((record.judged_seq, record.liked_seq)):
            # a playbook that went is not made again from the same run; what was said of a run may be said again
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


class Flows:
    """The flows of one conversation. `judge` reads what a message says about the flow before it."""

    def __init__(self, thread: ThreadHandle, *, judge: ReactionJudge | None = None) -> None:
        self._thread = thread
        self._judge = judge or WordingJudge()

    async def completed(  # noqa: PLR0913 - the fields of the event, by keyword
        self,
        flow_dact: str,
        *,
        user_query: str,
        slots: Mapping[str, object] | None = None,
        tool_calls: Sequence[PlaybookCall] = (),
        outcome: str = "",
        flow_id: str = "",
    ) -> FlowRecord:
        """Record that a flow ran to its end. Without a `flow_id` the run gets one.

        `tool_calls` are in the order in which they were made, with the parameters worth repeating.
        """
        event = FlowCompleted(
            flow_id=flow_id or self._thread.kernel.new_id(),
            flow_dact=flow_dact,
            user_query=user_query,
            slots=dict(slots or {}),
            tool_calls=tuple(tool_calls),
            outcome=outcome,
        )
        await self._thread.dispatch(event)
        return await self.get(event.flow_id)

    async def get(self, flow_id: str, *, at: int | None = None) -> FlowRecord:
        """One run. Raises `UnknownFlow`."""
        record = (await self._thread.rows(FLOWS, at=at)).get(flow_id)
        if record is None:
            raise UnknownFlow(flow_id, self._thread.id)
        return record

    async def all(self, *, at: int | None = None) -> tuple[FlowRecord, ...]:
        """Every run, oldest first."""
        rows = await self._thread.rows(FLOWS, at=at)
        return tuple(sorted((record for _, record in rows.items()), key=lambda record: record.seq))

    async def feedback(self, satisfied: bool, *, flow_id: str = "", content: str = "") -> FlowRecord:
        """Record a person's word on a flow (default: the last one). Satisfaction makes it a playbook at once.

        Raises `UnknownFlow`. A playbook that was promoted earlier stays, whatever is said later: remove it there.
        """
        runs = await self.all()
        flow_id = flow_id or (runs[-1].flow_id if runs else "")
        record = await self.get(flow_id)
        content = content or ("said to be good" if satisfied else "said to be wrong")
        said = NewEvent(
            FeedbackGiven(satisfied=satisfied, flow_id=flow_id, content=content), id=self._thread.kernel.new_id()
        )
        events: list[Event | NewEvent] = [said]
        reason = f"positive feedback: {content}"
        promoted = await self._promoted(record, reason, said.id) if satisfied else None
        if promoted is not None:
            events.append(promoted)
        try:
            await self._thread.dispatch_all(events)
        except IdempotencyConflict:  # promoted meanwhile, for another reason
            await self._thread.dispatch_all(events[:1])
        await self._thread.kernel[Relay].deliver(self._thread.id)
        return await self.get(flow_id)

    async def review(self, user_message: str) -> tuple[PlaybookPromoted, ...]:
        """Judge the flows that nobody judged yet by the user's next message; returns the playbooks promoted.

        To be called with each new message. Thanks, or another request without a correction, promote; a correction
        rejects the last flow, with its reason recorded; what says too little decides nothing. A flow from before
        the last one waits, if there is a correction: whether it was meant, nobody knows.
        """
        waiting = [record for record in await self.all() if record.status == "completed"]
        if not waiting:
            return ()
        reaction = await self._judge.judge(user_message, waiting[-1].user_query)
        if reaction.kind == "unclear":
            return ()
        if reaction.kind == "correction":
            rejected = FeedbackGiven(satisfied=False, flow_id=waiting[-1].flow_id, content=reaction.reason)
            await self._thread.dispatch(rejected)
            return ()
        promoted = []
        for record in waiting:
            event = await self._promoted(record, f"{reaction.kind}: {reaction.reason}")
            if event is not None and await self._is_first(event):
                promoted.append(event)
        await self._thread.kernel[Relay].deliver(self._thread.id)
        return tuple(event.event for event in promoted if isinstance(event.event, PlaybookPromoted))

    async def _promoted(self, record: FlowRecord, reason: str, *said: str) -> NewEvent | None:
        """The promotion of a run that belongs to a user and is not a playbook yet; else `None`."""
        info = await self._thread.info()
        if record.status == "promoted" or not info.user_id:
            return None
        event = PlaybookPromoted(
            flow_id=record.flow_id,
            flow_dact=record.flow_dact,
            user_query=record.user_query,
            slots=record.slots,
            tool_calls=record.tool_calls,
            outcome=record.outcome,
            reason=reason,
            source_thread=self._thread.id,
            sources=(record.event_id, *said),
            destination=Destination("user", info.user_id, info.tenant_id),
        )
        return NewEvent(event, id=derived_id("playbook", record.flow_id), causation_id=record.event_id)

    async def _is_first(self, promotion: NewEvent) -> bool:
        try:
            await self._thread.dispatch(promotion)
        except IdempotencyConflict:  # another review of the same run was quicker
            return False
        return True

    async def prepare(self, flow_dact: str, user_query: str, *, threshold: float | None = None) -> Playbook | None:
        """Before a skill is invoked: the playbook of this conversation's user that fits best, put on the scratchpad.

        It must be of the flow, and its request like this one (see `Playbooks.find`). It is written once a
        request, marked as recalled, under an id that follows from the request: a retry writes nothing more.
        """
        info = await self._thread.info()
        if not info.user_id:
            return None
        playbooks = Playbooks(ScopeHandle(self._thread.kernel, "user", info.user_id, info.tenant_id))
        matches = await playbooks.find(user_query, flow=flow_dact, limit=1, threshold=threshold)
        if not matches:
            return None
        playbook = matches[0].playbook
        event_id = derived_id("recalled", str(await self._asked_at()), flow_dact, user_query, playbook.id)
        if not await self._thread.kernel.store.find(self._thread.id, [event_id]):
            try:
                await Scratchpad(self._thread).write(playbook.text, flow=flow_dact, recalled=True, event_id=event_id)
            except IdempotencyConflict:  # another task prepared the same request, with other reads before it
                return playbook
        return playbook

    async def _asked_at(self) -> int:
        """The seq of the user's latest message that the state holds; 0 for none."""
        chunks = (await self._thread.state()).chunks()
        return max((chunk.said_at for chunk in chunks if chunk.type == ChunkType.USER_MESSAGE), default=0)
