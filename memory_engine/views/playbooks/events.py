"""Playbooks: flows that went well, kept to be followed again."""

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.delivery import Delivery, Destination


class PlaybookCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a recipe: the tool and its key parameters."""

    tool_id: str
    parameters: dict[str, object] = msgspec.field(default_factory=dict)


@event("flow_completed", tracked=True)
class FlowCompleted(Event):
    """A flow ran to its end. `flow_id` names this run, `flow_dact` the kind of flow."""

    flow_id: str
    flow_dact: str
    user_query: str
    slots: dict[str, object] = msgspec.field(default_factory=dict)
    tool_calls: tuple[PlaybookCall, ...] = ()
    outcome: str = ""


@event("feedback_given", tracked=True)
class FeedbackGiven(Event):
    """A person's word on a flow (empty: the last one)."""

    satisfied: bool
    flow_id: str = ""
    content: str = ""


@event("playbook_promoted", tracked=True)
class PlaybookPromoted(Event):
    """A completed flow becomes a playbook of its user. `reason` says what showed satisfaction.

    `sources` are the ids of the events that it was drawn from, in `source_thread`.
    """

    flow_id: str
    flow_dact: str
    user_query: str
    slots: dict[str, object] = msgspec.field(default_factory=dict)
    tool_calls: tuple[PlaybookCall, ...] = ()
    outcome: str = ""
    reason: str = ""
    source_thread: str = ""
    sources: tuple[str, ...] = ()
    destination: Destination | None = None

    def deliveries(self) -> tuple[Delivery, ...]:
        """The playbook, for its user."""
        if self.destination is None:
            return ()
        playbook = PlaybookSaved(
            flow_dact=self.flow_dact,
            user_query=self.user_query,
            slots=self.slots,
            tool_calls=self.tool_calls,
            outcome=self.outcome,
            reason=self.reason,
            source_thread=self.source_thread,
            sources=self.sources,
        )
        return (Delivery(self.destination, playbook),)


@event("playbook_saved", tracked=True)
class PlaybookSaved(Event):
    """A playbook of a user. `sources` are the ids of the events it was drawn from, in `source_thread`."""

    flow_dact: str
    user_query: str
    slots: dict[str, object] = msgspec.field(default_factory=dict)
    tool_calls: tuple[PlaybookCall, ...] = ()
    outcome: str = ""
    reason: str = ""
    source_thread: str = ""
    sources: tuple[str, ...] = ()


@event("playbook_removed", tracked=True)
class PlaybookRemoved(Event):
    """A playbook (by id) goes."""

    playbook_id: str
    reason: str = ""
