"""Reducers for tasks and to-do lists."""

from collections.abc import Iterable

import msgspec

from memory_engine.core.chunks import Category, Chunk, ChunkType, Retention
from memory_engine.core.events.tasks import TaskEnded
from memory_engine.core.operations import Add, Delete, Operation, Update
from memory_engine.core.reduction import NOTHING, ReduceContext, Reduction
from memory_engine.core.state import StateView
from memory_engine.errors import UnknownItem, UnknownTask
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
    """The goal, always in view. It takes the place of the goal that the task had, if it runs already."""
    chunk = Chunk(
        id=ctx.new_id(),
        type=ChunkType.TASK,
        content=event.goal,
        retention=Retention.CRITICAL,
        category=Category.TASK,
        name=TASK if event.single else _task_name(event.task_id),
        label=event.task_id,
        status="started",
    )
    current = view.named(TASK) if event.single else _running(view, event.task_id)
    if current is not None and current.name != chunk.name:  # it began under the name that version 1 gave
        chunk = msgspec.structs.replace(chunk, name=current.name)
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


def _ended(view: StateView, event: TaskEnded, ctx: ReduceContext, status: str) -> Reduction:
    """The goal leaves the view, and one compactable line says how it ended."""
    task = view.named(TASK) if event.single else _ending(view, event)
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


def _ending(view: StateView, event: TaskEnded) -> Chunk | None:
    """The task that ends. `None` for an end without an id where none runs, or a lenient one.

    Raises `UnknownTask`.
    """
    task = _running(view, event.task_id)
    if task is not None:
        return task
    running = [chunk for chunk in view.chunks() if chunk.type == ChunkType.TASK]
    if not event.task_id and len(running) == 1:
        return running[0]
    if event.lenient or not (event.task_id or running):
        return None
    raise UnknownTask(event.task_id, tuple(chunk.label for chunk in running))


def _running(view: StateView, task_id: str) -> Chunk | None:
    """The running task of an id, or without one (version 1 gave all tasks the name of that one)."""
    task = view.named(_task_name(task_id))
    if task is not None or not task_id:
        return task
    only = view.named(TASK)
    return only if only is not None and only.label == task_id else None


def _task_name(task_id: str) -> str:
    return f"{TASK}:{task_id}" if task_id else TASK


def reduce_todo_set(view: StateView, event: TodoSet, ctx: ReduceContext) -> Reduction:
    """Replace the list by a container with a child for each item. An empty list leaves nothing."""
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
    children = _todo_chunks(event.items, ctx)
    operations.append(Add(container.id))
    operations += [Add(child.id, container=container.id) for child in children]
    return Reduction(operations=tuple(operations), chunks=(container, *children))


def reduce_todo_expanded(view: StateView, event: TodoExpanded, ctx: ReduceContext) -> Reduction:
    """New items directly after the one that was split."""
    container = view.named(TODOS)
    anchor = _find_todo(view, event)
    if container is None:
        return reduce_todo_set(view, TodoSet(items=event.items), ctx)
    known = {item.id for item in event.items if view.named(_todo_name(item.id)) is not None}
    children = _todo_chunks([item for item in event.items if item.id not in known], ctx)
    operations: list[Operation] = []
    after = anchor.id if anchor is not None else ""
    for child in children:
        operations.append(Add(child.id, container=container.id, after=after))
        after = child.id if anchor is not None else ""
    return Reduction(operations=tuple(operations), chunks=tuple(children))


def reduce_todo_completed(view: StateView, event: TodoCompleted, ctx: ReduceContext) -> Reduction:
    """The item is ticked."""
    return reduce_todo_updated(view, TodoUpdated(id=event.id, status="completed", lenient=event.lenient), ctx)


def reduce_todo_updated(view: StateView, event: TodoUpdated, ctx: ReduceContext) -> Reduction:
    """A new version of the item."""
    item = _find_todo(view, event)
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
    """The item goes."""
    item = _find_todo(view, event)
    return Reduction(operations=(Delete(item.id),)) if item is not None else NOTHING


def _find_todo(view: StateView, event: TodoCompleted | TodoExpanded | TodoUpdated | TodoDeleted) -> Chunk | None:
    """The item that an event names. `None` for one that is not there, where the event is lenient.

    Raises `UnknownItem`.
    """
    item = view.named(_todo_name(event.id))
    if item is not None or event.lenient:
        return item
    todos = view.named(TODOS)
    listed = view.children(todos.id) if todos is not None else ()
    raise UnknownItem(event.id, tuple(child.name.removeprefix(_todo_name("")) for child in listed))


def _todo_chunks(items: Iterable[TodoItem], ctx: ReduceContext) -> list[Chunk]:
    return [
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.TODO_ITEM,
            content=item.text,
            retention=Retention.CRITICAL,
            category=Category.TASK,
            name=_todo_name(item.id),
            status=item.status,
        )
        for item in items
    ]


def _todo_name(item_id: str) -> str:
    return f"todo:{item_id}"
