"""Tasks: the agent's goals and their outcomes; and its to-do list.

The list is a container chunk; each item is a child.
"""

from typing import Literal

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Id


@event("task_started")
class TaskStarted(Event):
    """A task begins; its goal stays in view, whatever is compacted."""

    goal: str
    task_id: Id = ""


@event("task_completed", chunks="versions")
class TaskCompleted(Event):
    """The task is done."""

    content: str = ""
    task_id: Id = ""


@event("task_abandoned", chunks="versions")
class TaskAbandoned(Event):
    """The agent gave the task up."""

    content: str = ""
    task_id: Id = ""


@event("task_terminated", chunks="versions")
class TaskTerminated(Event):
    """The task was stopped from outside."""

    content: str = ""
    task_id: Id = ""


TodoStatus = Literal["pending", "in_progress", "completed"]


class TodoItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to do. `id` is unique in its list."""

    id: Id
    text: str
    status: TodoStatus = "pending"


@event("todo_set", version=2)
class TodoSet(Event):
    """The whole list is set anew. Version 1 held bare texts (see `upcast_todo_set_v1`)."""

    items: tuple[TodoItem, ...]


@event("todo_completed")
class TodoCompleted(Event):
    """An item is done."""

    id: Id


@event("todo_expanded")
class TodoExpanded(Event):
    """An item is split: the new items follow it."""

    id: Id
    items: tuple[TodoItem, ...]


@event("todo_updated")
class TodoUpdated(Event):
    """An item's text or status changes; a field that is `None` stays."""

    id: Id
    text: str | None = None
    status: TodoStatus | None = None


@event("todo_deleted")
class TodoDeleted(Event):
    """An item is dropped."""

    id: Id


def upcast_todo_set_v1(payload: dict[str, object]) -> dict[str, object]:
    """Version 1 `{"items": ["buy milk", …]}` had no ids and no status: number the texts."""
    texts = payload.get("items", [])
    items = [{"id": str(n), "text": text} for n, text in enumerate(texts, 1)] if isinstance(texts, list) else []
    return {**payload, "items": items}
