"""Sessions of a thread."""

from memory_engine.events.base import Content, Event, event


@event("session_started", tracked=True)
class SessionStarted(Event):
    """A session begins. `content` is its instructions: the system prompt, kept whole."""

    content: Content = ""
    session_id: str = ""


@event("session_ended", tracked=True)
class SessionEnded(Event):
    """A session ends: EPHEMERAL chunks go."""

    content: str = ""
    session_id: str = ""
