"""Tasks: what the agent is after, and how it ended."""

from memory_engine.events.base import Event, event


@event("task_started")
class TaskStarted(Event):
    """A task begins; its goal stays in view, whatever is compacted."""

    goal: str
    task_id: str = ""


@event("task_completed")
class TaskCompleted(Event):
    """The task is done."""

    content: str = ""
    task_id: str = ""


@event("task_abandoned")
class TaskAbandoned(Event):
    """The agent gave the task up."""

    content: str = ""
    task_id: str = ""


@event("task_terminated")
class TaskTerminated(Event):
    """The task was stopped from outside."""

    content: str = ""
    task_id: str = ""
