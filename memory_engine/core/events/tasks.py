"""Tasks: the agent's goals and their outcomes; and its to-do list.

Several tasks may run at once, each under its `task_id`. One without an id is the thread's one task. The list is a
container chunk; each item is a child.

`single` and `lenient` keep what version 1 of an event did, so that a log that holds one still reduces the same way.
"""

from typing import Literal

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Id


@event("task_started", version=2)
class TaskStarted(Event):
    """A task begins; its goal stays in view, whatever is compacted, until the task with this id ends.

    Started again under the id of a running one, it is that task with another goal. `single`: it replaces the one
    without an id, whatever its own.
    """

    goal: str
    task_id: Id = ""
    single: bool = False


class TaskEnded(Event):
    """The task with this id is over; without an id, the running one.

    Refused with `UnknownTask` if no task with the id is running, or no id says which of several is meant. `lenient`:
    then it is recorded anyway, as for a task whose start may have been forgotten. `single`: the task without an id
    ends, if there is one.
    """

    content: str = ""
    task_id: Id = ""
    lenient: bool = False
    single: bool = False


@event("task_completed", version=2, chunks="versions")
class TaskCompleted(TaskEnded):
    """The task is done."""


@event("task_abandoned", version=2, chunks="versions")
class TaskAbandoned(TaskEnded):
    """The agent gave the task up."""


@event("task_terminated", version=2, chunks="versions")
class TaskTerminated(TaskEnded):
    """The task was stopped from outside."""


TodoStatus = Literal["pending", "in_progress", "completed"]


class TodoItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to do. `id` is unique in its list."""

    id: Id
    text: str
    status: TodoStatus = "pending"


@event("todo_set", version=2)
class TodoSet(Event):
    """The whole list is replaced. Version 1 held bare texts (see `upcast_todo_set_v1`)."""

    items: tuple[TodoItem, ...]


@event("todo_completed", version=2)
class TodoCompleted(Event):
    """An item is done.

    Refused with `UnknownItem` where the list has no such item. `lenient`: then it changes nothing.
    """

    id: Id
    lenient: bool = False


@event("todo_expanded", version=2)
class TodoExpanded(Event):
    """An item is split: the new items follow it.

    Refused with `UnknownItem` where the list has no such item. `lenient`: then they go to its end.
    """

    id: Id
    items: tuple[TodoItem, ...]
    lenient: bool = False


@event("todo_updated", version=2)
class TodoUpdated(Event):
    """An item's text or status changes; a field that is `None` stays. Refused as `TodoCompleted` is."""

    id: Id
    text: str | None = None
    status: TodoStatus | None = None
    lenient: bool = False


@event("todo_deleted", version=2)
class TodoDeleted(Event):
    """An item is removed. Refused as `TodoCompleted` is."""

    id: Id
    lenient: bool = False


def upcast_todo_set_v1(payload: dict[str, object]) -> dict[str, object]:
    """Version 1 `{"items": ["buy milk", …]}` had no ids and no status: number the texts."""
    texts = payload.get("items", [])
    items = [{"id": str(n), "text": text} for n, text in enumerate(texts, 1)] if isinstance(texts, list) else []
    return {**payload, "items": items}
