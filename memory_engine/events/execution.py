"""The agent loop itself: retries, pauses, resumptions."""

from memory_engine.events.base import Event, event


@event("execution_retry")
class ExecutionRetry(Event):
    """A step is tried again."""

    content: str = ""
    attempt: int = 1


@event("execution_pause")
class ExecutionPause(Event):
    """The thread is paused: events wait until it is resumed."""

    content: str = ""


@event("execution_resume")
class ExecutionResume(Event):
    """The thread goes on."""

    content: str = ""
