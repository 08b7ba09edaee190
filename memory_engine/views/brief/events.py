"""The events of the brief: what is pinned to it by hand. People's own messages are read where they were said."""

from typing import Literal

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Id, Seq, SourceChunkId

PinOrigin = Literal["person", "agent", "tool"]
"""Whose a pin is: a person's (or the application's for them), the agent's, or the agent's after it read a tool."""


@event("brief_pinned", tracked=True, role="memory", chunks="none")
class BriefPinned(Event):
    """A text stays in the brief until it is unpinned. `sources` are the chunks that it was taken from, if any.

    What an agent pins has the lowest origin among the chunks in its context since a person last spoke.
    """

    content: str
    sources: tuple[SourceChunkId, ...] = ()
    origin: PinOrigin = "person"
    agent_id: Id = ""


@event("brief_unpinned", tracked=True, role="memory", chunks="none")
class BriefUnpinned(Event):
    """A pin goes. `pin` is the seq of its event."""

    pin: Seq
    reason: str = ""
