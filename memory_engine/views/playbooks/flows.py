"""`thread.views.flows`: flows completed in a conversation, the user's judgement of them, and which become playbooks."""

from collections.abc import Mapping, Sequence

from memory_engine.core.arguments import checked_list, checked_text, checked_type
from memory_engine.core.aside import aside
from memory_engine.core.cancellation import kept_time
from memory_engine.core.events.base import Event
from memory_engine.core.events.delivery import Destination
from memory_engine.core.origins import PEOPLE
from memory_engine.core.records import NewEvent
from memory_engine.errors import IdempotencyConflict, UnknownFlow
from memory_engine.language.secrets import holds_secret
from memory_engine.projections.outbox import derived_id
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.eras import era_of
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.views.playbooks.events import FeedbackGiven, FlowCompleted, PlaybookCall, PlaybookPromoted
from memory_engine.views.playbooks.flow import FLOWS, FlowRecord
from memory_engine.views.playbooks.playbook import Playbook
from memory_engine.views.playbooks.reactions import ReactionJudge, WordingJudge
from memory_engine.views.playbooks.view import Playbooks
from memory_engine.views.scratchpad.view import Scratchpad


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
        """Record that a flow completed. Without a `flow_id` the run gets one.

        `tool_calls` are in the order they were made, with the parameters worth repeating.
        """
        checked_text("flow_id", flow_id)
        event = FlowCompleted(
            flow_id=flow_id or self._thread.kernel.new_id(),
            flow_dact=flow_dact,
            user_query=user_query,
            slots=dict(checked_type("slots", {} if slots is None else slots, Mapping, give="names and values")),
            tool_calls=checked_list("tool_calls", tool_calls, PlaybookCall, each="PlaybookCall"),
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
        """Record a person's feedback on a flow (default: the last one). A satisfied one makes it a playbook at once.

        A run that contains a secret (in its request, slots, calls or outcome) does not become one. Raises
        `UnknownFlow`. A playbook promoted earlier stays whatever is said later: remove it there.
        """
        checked_text("content", content)
        checked_text("flow_id", flow_id)
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
        """Judge flows not judged yet by the user's next message; returns the playbooks promoted.

        Call it with each new message. Thanks, or another request without a correction, promote; a correction rejects
        the last flow and records the reason, and so does a doubt: later messages may be about something else. A message
        that says too little decides nothing. With a correction or a doubt, flows before the last one wait: the message
        does not say which one it means.
        """
        checked_text("user_message", user_message)
        waiting = [record for record in await self.all() if record.status == "completed"]
        if not waiting:
            return ()
        judging = self._judge.judge(user_message, waiting[-1].user_query)
        reaction = await kept_time("the judge of reactions", judging, self._thread.kernel.config.call_timeout_s)
        if reaction.kind == "unclear":
            return ()
        if reaction.kind in ("correction", "doubt"):
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
        """The promotion of a run that belongs to a user, is not a playbook yet and contains no secret; else `None`."""
        info = await self._thread.info()
        if record.status == "promoted" or not info.user_id or _tells_secret(record):
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
        event_id = derived_id("playbook", record.flow_id) + await era_of(self._thread)
        return NewEvent(event, id=event_id, causation_id=record.event_id)

    async def _is_first(self, promotion: NewEvent) -> bool:
        try:
            await self._thread.dispatch(promotion)
        except IdempotencyConflict:  # another review of the same run was quicker
            return False
        return True

    async def prepare(self, flow_dact: str, user_query: str, *, threshold: float | None = None) -> Playbook | None:
        """Before a skill is invoked: put the best-fitting playbook of this conversation's user on the scratchpad.

        It must be of the flow, with a request like this one (see `Playbooks.find`). It is written once per request,
        marked as recalled, under an id derived from the request: a retry writes nothing more.
        """
        checked_text("flow_dact", flow_dact)
        checked_text("user_query", user_query)
        info = await self._thread.info()
        if not info.user_id:
            return None
        playbooks = Playbooks(ScopeHandle(self._thread.kernel, "user", info.user_id, info.tenant_id))
        matches = await playbooks.find(user_query, flow=flow_dact, limit=1, threshold=threshold)
        if not matches:
            return None
        playbook = matches[0].playbook
        asked_at = str(await self._asked_at())
        event_id = derived_id("recalled", asked_at, flow_dact, user_query, playbook.id) + await era_of(self._thread)
        if not await self._thread.kernel.store.find(self._thread.id, [event_id]):
            try:
                await Scratchpad(self._thread).write(playbook.text, flow=flow_dact, recalled=True, event_id=event_id)
            except IdempotencyConflict:  # another task prepared the same request, with other reads before it
                return playbook
        return playbook

    async def _asked_at(self) -> int:
        """The seq of the user's latest message that the state holds; 0 for none."""
        state = await self._thread.state()
        asked = (chunk.said_at for chunk in state.chunks() if chunk.type in PEOPLE)
        return await aside(lambda: max(asked, default=0), items=len(state))


def _tells_secret(record: FlowRecord) -> bool:
    parameters = (call.parameters for call in record.tool_calls)
    return holds_secret(record.user_query, record.outcome, str(record.slots), *map(str, parameters))
