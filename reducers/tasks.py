"""Reducers for tasks and to-do lists."""

from collections.abc import Iterable

import msgspec

from memory_engine.core.chunks import Category, Chunk, ChunkType, Retention
from memory_engine.core.operations import Add, Delete, Operation, Update
from memory_engine.core.reduction import NOTHING, ReduceContext, Reduction
from memory_engine.core.state import StateView
from memory_engine.events import (
    TaskAbandoned,
    TaskCompleted,
    TaskStarted,
    TaskTerminated,
    TodoCompleted,
    TodoDeleted,
    TodoExpanded,
    TodoItem,
    TodoSet,
    TodoUpdated,
)

TASK = "task"
TODOS = "todos"


def reduce_task_started(view: StateView, event: TaskStarted, ctx: ReduceContext) -> Reduction:
    """The goal, always in view. A new task takes the place of the old one."""
    chunk = Chunk(
        id=ctx.new_id(),
        type=ChunkType.TASK,
        content=event.goal,
        retention=Retention.CRITICAL,
        category=Category.TASK,
        name=TASK,
        label=event.task_id,
        status="started",
    )
    current = view.named(TASK)
    operation = Add(chunk.id) if current is None else Update(current.id, chunk.id)
    return Reduction(operations=(operation,), chunks=(chunk,))


def reduce_task_completed(view: StateView, event: TaskCompleted, ctx: ReduceContext) -> Reduction:
    """The task is done; its outcome joins the working flow."""
    return _ended(view, event, ctx, "completed")


def reduce_task_abandoned(view: StateView, event: TaskAbandoned, ctx: ReduceContext) -> Reduction:
    """The task was given up."""
    return _ended(view, event, ctx, "abandoned")


def reduce_task_terminated(view: StateView, event: TaskTerminated, ctx: ReduceContext) -> Reduction:
    """The task was stopped."""
    return _ended(view, event, ctx, "terminated")


def _ended(
    view: StateView, event: TaskCompleted | TaskAbandoned | TaskTerminated, ctx: ReduceContext, status: str
) -> Reduction:
    """The goal leaves the view, and one compactable line says how it ended."""
    task = view.named(TASK)
    goal = task.text if task is not None else ""
    text = ": ".join(part for part in (f"Task {status}", goal, event.content) if part)
    outcome = Chunk(
        id=ctx.new_id(),
        type=ChunkType.EXECUTION,
        content=text,
        label=event.task_id,
        status=status,
        parent_ids=(task.id, *task.parent_ids) if task is not None else (),  # it repeats the goal
    )
    operations: tuple[Operation, ...] = (Add(outcome.id),)
    if task is not None:
        operations = (Delete(task.id), *operations)
    return Reduction(operations=operations, chunks=(outcome,))


def reduce_todo_set(view: StateView, event: TodoSet, ctx: ReduceContext) -> Reduction:
    """The list anew: a container, and a child for each item. An empty list leaves nothing."""
    current = view.named(TODOS)
    operations: list[Operation] = [Delete(current.id)] if current is not None else []
    if not event.items:
        return Reduction(operations=tuple(operations))
    container = Chunk(
        id=ctx.new_id(),
        type=ChunkType.TODO_LIST,
        retention=Retention.CRITICAL,
        category=Category.TASK,
        name=TODOS,
        is_container=True,
    )
    children = _items(event.items, ctx)
    operations.append(Add(container.id))
    operations += [Add(child.id, container=container.id) for child in children]
    return Reduction(operations=tuple(operations), chunks=(container, *children))


def reduce_todo_expanded(view: StateView, event: TodoExpanded, ctx: ReduceContext) -> Reduction:
    """New items directly after the one that was split; at the end if that one is gone."""
    container = view.named(TODOS)
    if container is None:
        return reduce_todo_set(view, TodoSet(items=event.items), ctx)
    known = {item.id for item in event.items if view.named(_name(item.id)) is not None}
    children = _items([item for item in event.items if item.id not in known], ctx)
    anchor = view.named(_name(event.id))
    operations: list[Operation] = []
    after = anchor.id if anchor is not None else ""
    for child in children:
        operations.append(Add(child.id, container=container.id, after=after))
        after = child.id if anchor is not None else ""
    return Reduction(operations=tuple(operations), chunks=tuple(children))


def reduce_todo_completed(view: StateView, event: TodoCompleted, ctx: ReduceContext) -> Reduction:
    """The item is ticked."""
    return reduce_todo_updated(view, TodoUpdated(id=event.id, status="completed"), ctx)


def reduce_todo_updated(view: StateView, event: TodoUpdated, ctx: ReduceContext) -> Reduction:
    """A new version of the item; nothing for one that is not there."""
    item = view.named(_name(event.id))
    if item is None:
        return NOTHING
    changed = msgspec.structs.replace(
        item,
        id=ctx.new_id(),
        content=event.text if event.text is not None else item.content,
        status=event.status or item.status,
        parent_ids=(*item.parent_ids, item.id),  # all versions: the text may be of any of them
    )
    return Reduction(operations=(Update(item.id, changed.id),), chunks=(changed,))


def reduce_todo_deleted(view: StateView, event: TodoDeleted, _ctx: ReduceContext) -> Reduction:
    """The item goes; nothing for one that is not there."""
    item = view.named(_name(event.id))
    return Reduction(operations=(Delete(item.id),)) if item is not None else NOTHING


def _items(items: Iterable[TodoItem], ctx: ReduceContext) -> list[Chunk]:
    return [
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.TODO_ITEM,
            content=item.text,
            retention=Retention.CRITICAL,
            category=Category.TASK,
            name=_name(item.id),
            status=item.status,
        )
        for item in items
    ]


def _name(item_id: str) -> str:
    return f"todo:{item_id}"
