"""Playbooks: flows that went well, kept to be followed again."""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec

from memory_engine.core.codec import encode_json
from memory_engine.core.events.base import Event, event
from memory_engine.core.events.delivery import Delivery, Destination
from memory_engine.core.events.roles import Id, Name, SourceEventId


class PlaybookCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a recipe: the tool and its key parameters."""

    tool_id: Id
    parameters: dict[str, object] = msgspec.field(default_factory=dict)


def playbook_id(flow_dact: str, slots: Mapping[str, object], tool_calls: Sequence[PlaybookCall]) -> str:
    """The id of a recipe: a digest of its parts, independent of the order of slots and parameters."""
    recipe = (flow_dact, slots, [(call.tool_id, call.parameters) for call in tool_calls])
    return f"pb-{sha256(encode_json(recipe)).hexdigest()[:24]}"


class FlowRun(Event):
    """A run of a flow. `flow_id` names it, `flow_dact` the kind of flow."""

    flow_id: Id
    flow_dact: Name
    user_query: str
    slots: dict[str, object] = msgspec.field(default_factory=dict)
    tool_calls: tuple[PlaybookCall, ...] = ()
    outcome: str = ""


@event("flow_completed", tracked=True, role="memory", chunks="none")
class FlowCompleted(FlowRun):
    """A flow ran to its end."""


@event("feedback_given", tracked=True, role="memory", chunks="none")
class FeedbackGiven(Event):
    """A person's word on a flow (empty: the last one)."""

    satisfied: bool
    flow_id: Id = ""
    content: str = ""


@event("playbook_promoted", role="memory", chunks="none", delivers="tenant")
class PlaybookPromoted(FlowRun):
    """A completed flow becomes a playbook of its user. `reason` names the sign of satisfaction.

    `sources` are the ids of the events that it was drawn from, in `source_thread`.
    """

    reason: str = ""
    source_thread: Id = ""
    sources: tuple[SourceEventId, ...] = ()
    destination: Destination | None = None

    def deliveries(self) -> tuple[Delivery, ...]:
        """The playbook, for its user."""
        if self.destination is None:
            return ()
        return (Delivery(self.destination, msgspec.convert(self, PlaybookSaved, from_attributes=True)),)


@event("playbook_saved", tracked=True, role="memory", chunks="none")
class PlaybookSaved(Event):
    """A playbook of a user. `sources` are the ids of the events it was drawn from, in `source_thread`."""

    flow_dact: Name
    user_query: str
    slots: dict[str, object] = msgspec.field(default_factory=dict)
    tool_calls: tuple[PlaybookCall, ...] = ()
    outcome: str = ""
    reason: str = ""
    source_thread: Id = ""
    sources: tuple[SourceEventId, ...] = ()

    def digests(self) -> tuple[str, ...]:
        """The playbook's id."""
        return (playbook_id(self.flow_dact, self.slots, self.tool_calls),)


@event("playbook_removed", tracked=True, role="memory", chunks="none")
class PlaybookRemoved(Event):
    """A playbook (by id) goes."""

    playbook_id: Name
    reason: str = ""
