"""Tasks and to-do lists as callers use them: several tasks at once, and events that name what is not there."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Category, CompactionPolicy, Engine, EngineConfig, Retention, Thread, errors
from memory_engine import events as e
from memory_engine.agents import AgentLifecycle
from memory_engine.core.state import State

LIST = e.TodoSet(items=(e.TodoItem("a", "milk"), e.TodoItem("b", "eggs")))


def goals(state: State) -> list[str]:
    """The goals of the running tasks."""
    return [chunk.text for chunk in state.chunks() if chunk.category is Category.TASK]


async def test_two_tasks_at_once_end_each_on_its_own(thread: Thread) -> None:
    """Completing one leaves the other running, and says which goal was reached."""
    await thread.dispatch(e.TaskStarted(goal="Book a flight", task_id="A"))
    await thread.dispatch(e.TaskStarted(goal="Find a hotel", task_id="B"))
    assert ["Book a flight", "Find a hotel"] == goals(await thread.state())
    await thread.dispatch(e.TaskCompleted(task_id="A"))
    state = await thread.state()
    assert ["Find a hotel"] == goals(state)
    last = state.last()
    assert last is not None
    assert "Task completed: Book a flight" == last.text
    told = "\n".join(str(message["content"]) for message in (await thread.context()).messages)
    assert "[Task (B)] Find a hotel" in told
    assert (await thread.replay.verify()).ok


async def test_no_compaction_takes_a_running_task() -> None:
    """Each is CRITICAL, and the compactor is told of both goals."""
    config = EngineConfig(compaction=CompactionPolicy(threshold=8, keep_recent=2))
    async with memory_engine.open(":memory:", config=config) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([e.TaskStarted(goal=goal, task_id=goal) for goal in ("Win.", "Draw.")])
        for n in range(20):
            await thread.dispatch(e.UserMessage(content=f"Message {n} says a little about nothing at all. " * 8))
        await thread.compact()
        state = await thread.state()
        assert ["Win.", "Draw."] == goals(state)
        kept = {chunk.retention for chunk in state.chunks() if chunk.category is Category.TASK}
        assert {Retention.CRITICAL} == kept
        assert (await thread.replay.verify()).ok


MISTAKES: list[tuple[str, Callable[[Thread], Awaitable[object]], type[Exception]]] = [
    ("a task", lambda t: t.dispatch(e.TaskCompleted(task_id="nope")), errors.UnknownTask),
    ("a task given up", lambda t: t.dispatch(e.TaskAbandoned(task_id="nope")), errors.UnknownTask),
    ("a task stopped", lambda t: t.dispatch(e.TaskTerminated(task_id="nope")), errors.UnknownTask),
    ("an item", lambda t: t.dispatch(e.TodoCompleted(id="nope")), errors.UnknownItem),
    ("an item's text", lambda t: t.dispatch(e.TodoUpdated(id="nope", text="x")), errors.UnknownItem),
    ("an item's parts", lambda t: t.dispatch(e.TodoExpanded(id="nope", items=())), errors.UnknownItem),
    ("an item's end", lambda t: t.dispatch(e.TodoDeleted(id="nope")), errors.UnknownItem),
    ("a chunk", lambda t: t.compaction.mark_critical("2.1", "99.9"), errors.UnknownChunk),
]


@pytest.mark.parametrize(("do", "why"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
async def test_what_is_not_there_is_refused(
    do: Callable[[Thread], Awaitable[object]], why: type[Exception], thread: Thread
) -> None:
    """No receipt: the error says what there is, and the log and the state are as they were."""
    await thread.dispatch_all([e.TaskStarted(goal="Shop", task_id="t"), LIST])
    before = await thread.state()
    with pytest.raises(errors.EventRefused, match="nothing was written") as refused:
        await do(thread)
    assert isinstance(refused.value.__cause__, why)
    assert (2, before) == ((await thread.info()).events, await thread.state())
    await thread.dispatch(e.TaskCompleted(task_id="t"))
    assert (await thread.replay.verify()).ok


async def test_of_several_events_none_is_taken(thread: Thread) -> None:
    """`dispatch_all` is all or nothing, also where the last one names what is not there."""
    with pytest.raises(errors.EventRefused):
        await thread.dispatch_all([LIST, e.TodoCompleted(id="a"), e.TodoCompleted(id="nope")])
    assert 0 == (await thread.info()).events


async def test_a_retried_end_gives_its_first_receipt(thread: Thread) -> None:
    """The second try finds no such task, and under its id the event that ended it."""
    await thread.dispatch(e.TaskStarted(goal="Shop", task_id="t"))
    first = await thread.dispatch(e.TaskCompleted(task_id="t"), event_id="end")
    assert first == await thread.dispatch(e.TaskCompleted(task_id="t"), event_id="end")


async def test_two_agents_work_in_one_conversation(engine: Engine) -> None:
    """The end of one's task leaves the other's; a task whose beginning was forgotten still ends."""
    thread = await engine.create_thread("t", tenant_id="acme")
    one, other = (AgentLifecycle(engine, thread, agent_id=name) for name in ("one", "other"))
    first, second = await one.start("Book a flight"), await other.start("Find a hotel")
    await one.end("Booked.")
    assert ["Find a hotel"] == goals(await thread.state())
    started = [recorded.id async for recorded in thread.events() if recorded.seq == second.seq]
    await thread.forget(event_ids=started)
    await other.end("Found.")
    assert ([], first.seq < second.seq) == (goals(await thread.state()), True)
    assert (await thread.replay.verify()).ok


async def test_running_tasks_survive_a_restart(tmp_path: Path) -> None:
    """Read back from the rows of the state, each is found by its id."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([e.TaskStarted(goal=goal, task_id=goal) for goal in ("Win.", "Draw.")])
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        await thread.dispatch(e.TaskAbandoned(task_id="Win."))
        assert ["Draw."] == goals(await thread.state())
        await thread.replay.rebuild()
        assert ["Draw."] == goals(await thread.state())
