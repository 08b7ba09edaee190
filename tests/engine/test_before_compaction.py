"""Hooks before a compaction, what it is told to keep, and what its start records."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
import pytest

import memory_engine
from memory_engine import BlockingReason, CompactionPolicy, EngineConfig, Thread, TodoItem, TodoSet, UserMessage
from memory_engine.compaction.hooks import UpcomingCompaction
from memory_engine.errors import CompactionNotLive, InvalidArgument
from memory_engine.events import CompactionStarted
from tests.conversations import NEVER, SMALL, of_type, say, texts, turns
from tests.scripted_compactors import Held, Scripted

SAYS = "Keep every price."


async def started(thread: Thread) -> CompactionStarted:
    """The event of the latest compaction's start."""
    found = (await of_type(thread, "compaction_started"))[-1]
    assert isinstance(found, CompactionStarted)
    return found


Seen = tuple[UpcomingCompaction, BlockingReason | None]
"""What a hook was told, and what blocked the thread then."""


def flushing(seen: list[Seen]) -> Callable[[Thread, UpcomingCompaction], Awaitable[str]]:
    """A hook that notes what it sees, writes to the thread, and returns an instruction."""

    async def flush(thread: Thread, upcoming: UpcomingCompaction) -> str:
        seen.append((upcoming, await thread.admin.blocking_reason()))
        await thread.scratchpad.write("The key is under the mat.")
        return SAYS

    return flush


async def test_a_hook_may_write_to_the_thread_before_it_blocks() -> None:
    """Its event comes before the compaction's start, and what it returns joins the instructions."""
    seen: list[Seen] = []
    flush = flushing(seen)
    compactor = Scripted()
    config = EngineConfig(compaction=SMALL)
    async with memory_engine.open(":memory:", compactor=compactor, config=config, before_compaction=[flush]) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        [(upcoming, blocked)] = seen
        assert ("t", "auto", 4, None) == (upcoming.thread_id, upcoming.trigger, upcoming.chunks, blocked)
        assert [SAYS, SAYS] == [(await started(thread)).instructions, compactor.contexts[0].instructions]
        kinds = [one.type async for one in thread.events()]
        assert kinds.index("scratchpad_written") < kinds.index("compaction_started")
        assert (await thread.replay.verify()).ok


async def failing(_thread: Thread, _upcoming: UpcomingCompaction) -> str:
    """Fail."""
    raise ValueError("no disk")


async def hanging(_thread: Thread, _upcoming: UpcomingCompaction) -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


def wrong(_thread: Thread, _upcoming: UpcomingCompaction) -> int:
    """Return what is not a text."""
    return 7


FAULTS = {
    "raises": (failing, "failing: ValueError: no disk"),
    "hangs": (hanging, "hanging: no end within 0.02 s"),
    "returns": (wrong, "wrong: it returned a int; return a text or None"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_hook_that_fails_stops_nothing(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """The compaction goes on; the log of the thread and the program's say what was wrong."""
    hook, note = FAULTS[fault]
    config = EngineConfig(compaction=NEVER, before_compaction_timeout_s=0.02)
    async with memory_engine.open(":memory:", compactor=Scripted(), config=config) as engine:
        engine.before_compaction(hook)  # type: ignore[arg-type]
        thread = await engine.create_thread()
        await say(thread, turns(4))
        with caplog.at_level(logging.WARNING, "memory_engine"):
            await thread.compact()
        assert note == (await started(thread)).note
        assert ["4"] == await texts(thread)
    assert note in caplog.text


async def test_a_hook_that_asks_for_a_context_does_not_wait_for_itself() -> None:
    """Over the hard limit a context waits for a compaction, but not one that the compaction waits for."""
    policy = CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0, hard_tokens=300)
    tokens: list[int] = []

    async def look(thread: Thread, _upcoming: UpcomingCompaction) -> None:
        tokens.append((await thread.context()).tokens)

    async with memory_engine.open(
        ":memory:", compactor=Scripted(), config=EngineConfig(compaction=policy), before_compaction=[look]
    ) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        assert (1, "") == (len(tokens), (await started(thread)).note)


async def test_a_hook_can_be_stopped() -> None:
    """The function that adding it returned takes it away."""
    seen: list[str] = []
    async with memory_engine.open(":memory:", compactor=Scripted(), config=EngineConfig(compaction=NEVER)) as engine:
        stop = engine.before_compaction(lambda thread, _upcoming: seen.append(thread.id))
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        await thread.compact()
        stop()
        stop()
        await say(thread, turns(4, start=5))
        await thread.compact()
        assert ["t"] == seen


async def test_a_redo_runs_the_hooks_too() -> None:
    """It asks a compactor anew: hooks learn what it takes, may write, and join the instructions. An undo runs none."""
    seen: list[Seen] = []
    flush = flushing(seen)
    compactor = Scripted()
    async with memory_engine.open(":memory:", compactor=compactor, config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        first = await thread.compact()
        await thread.compaction.undo()
        stop = engine.before_compaction(flush)
        for _ in ("what an undo brought back", "a summary that stands"):
            await thread.compaction.redo()
            upcoming, blocked = seen[-1]
            assert ("manual", 4, first.tokens_before, None) == (
                upcoming.trigger, upcoming.chunks, upcoming.tokens, blocked
            )  # fmt: skip
            assert [SAYS, SAYS] == [(await started(thread)).instructions, compactor.contexts[-1].instructions]
        await thread.compaction.undo()
        kinds = [one.type async for one in thread.events()]
        assert ["scratchpad_written", "compaction_started", "compaction_completed", "compaction_undone"] == kinds[-4:]
        stop()
        await thread.compaction.redo()
        assert ("", 2) == ((await started(thread)).instructions, len(seen))
        assert (await thread.replay.verify()).ok


async def test_hooks_do_not_run_for_a_redo_of_nothing() -> None:
    """What cannot be redone is refused before they run."""
    seen: list[str] = []
    async with memory_engine.open(":memory:", compactor=Scripted(), config=EngineConfig(compaction=NEVER)) as engine:
        engine.before_compaction(lambda thread, _upcoming: seen.append(thread.id))
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        with pytest.raises(CompactionNotLive):
            await thread.compaction.redo()
        await say(thread, turns(1, start=5))
        assert ([], None) == (seen, await thread.admin.blocking_reason())


async def test_a_hook_that_takes_itself_away_still_lets_events_wait() -> None:
    """Whether a compaction blocks its thread is decided at its start, not by the hooks that are left after it."""
    compactor = Held()
    config = EngineConfig(compaction=msgspec.structs.replace(NEVER, blocking="whole"))
    async with memory_engine.open(":memory:", compactor=compactor, config=config) as engine:
        stop = engine.before_compaction(lambda _thread, _upcoming: stop())
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        working = asyncio.ensure_future(thread.compact())
        await compactor.entered.wait()
        blocked = await thread.admin.blocking_reason()
        compactor.release.set()
        await working
        assert BlockingReason.COMPACTING == blocked


async def test_what_is_no_function_is_refused_at_open() -> None:
    """Before any file is made."""
    with pytest.raises(InvalidArgument, match="before_compaction"):
        await memory_engine.open(":memory:", before_compaction=["flush"])  # type: ignore[list-item]


async def test_instructions_and_focus_reach_the_compactor_and_the_log() -> None:
    """The engine's, the thread's and the caller's, as data beside the chunks, with the request and the to-dos."""
    compactor = Scripted()
    config = EngineConfig(compaction_instructions="Keep names.")
    async with memory_engine.open(":memory:", compactor=compactor, config=config) as engine:
        policy = CompactionPolicy(enabled=False, keep_recent=0, instructions=SAYS)
        thread = await engine.create_thread(policy=policy)
        await say(thread, turns(4))
        await thread.dispatch(TodoSet(items=(TodoItem("t1", "call Ann"), TodoItem("t2", "pay", "completed"))))
        await thread.dispatch(UserMessage(content="Where is it?"))
        await thread.compact(focus="the invoice")
        [context] = compactor.contexts
        assert (f"Keep names.\n{SAYS}", "the invoice") == (context.instructions, context.focus)
        assert ("Where is it?", ("call Ann",)) == (context.current_request, context.todos)
        event = await started(thread)
        assert (f"Keep names.\n{SAYS}", "the invoice") == (event.instructions, event.focus)


async def test_the_start_records_the_policy_that_applied() -> None:
    """Each limit as a number, also where neither the thread nor the engine gave one."""
    config = EngineConfig(compaction=CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0, window=10_000))
    async with memory_engine.open(":memory:", compactor=Scripted(), config=config) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        recorded = msgspec.json.decode((await started(thread)).policy)
        assert (4, 10_000, 8_000, 20_000) == tuple(
            recorded[name] for name in ("threshold", "window", "soft_tokens", "hard_tokens")
        )
