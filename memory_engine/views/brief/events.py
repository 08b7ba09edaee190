"""The events of the brief: pinning and unpinning. People's messages are read from their own events."""

from typing import Literal

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Id, Seq, SourceChunkId

PinOrigin = Literal["person", "agent", "tool"]
"""Origin of a pin: a person (or the application for them), the agent, or the agent after it read a tool's result."""


@event("brief_pinned", tracked=True, role="memory", chunks="none")
class BriefPinned(Event):
    """A text was pinned: it stays in the brief until it is unpinned.

    `sources` are the ids of the chunks that the text was taken from, if any. A pin made by an agent gets the least
    trusted origin among the chunks in its context since a person last spoke.
    """

    content: str
    sources: tuple[SourceChunkId, ...] = ()
    origin: PinOrigin = "person"
    agent_id: Id = ""


@event("brief_unpinned", tracked=True, role="memory", chunks="none")
class BriefUnpinned(Event):
    """A pin was removed. `pin` is the seq of the event that added it."""

    pin: Seq
    reason: str = ""
