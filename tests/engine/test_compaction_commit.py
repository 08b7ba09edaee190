"""Compactions that block the queue only for their commit: events go on, and what they change is not overwritten."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memory_engine import (
    BlockingReason,
    CompactionFailed,
    CompactionPolicy,
    CompactionResult,
    ContextPolicy,
    Engine,
    EnvironmentChange,
    Event,
    LlmTextResponse,
    LlmThinking,
    Receipt,
    Thread,
    ToolResult,
    UserMessage,
)
from memory_engine.engine import kernel_of
from memory_engine.errors import CompactorFailed, EngineClosed
from memory_engine.events import LlmToolCall, MemoryMarkCritical, TaskCompleted, TaskStarted, ToolCall, Usage
from memory_engine.runtime.commit import Reduced
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads
from tests.conversations import LONG, call, log, note, of_type, opened, say, texts, turns, types
from tests.patience import PATIENCE_S
from tests.scripted_compactors import Held, Scripted, Yielding, a_line, a_line_each, summary

AT_FOUR = CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0, blocking="commit")
SMALL = replace(AT_FOUR, soft_tokens=640, hard_tokens=650)
ASKED = CompactionPolicy(enabled=False, keep_recent=0, blocking="commit")
STARTED, COMPLETED, FAILED = "compaction_started", "compaction_completed", "compaction_failed"


def held(policy: CompactionPolicy = AT_FOUR) -> tuple[Held, AbstractAsyncContextManager[Engine]]:
    """A compactor that waits for the test, and an engine with it."""
    compactor = Held()
    return compactor, opened(compactor, policy)


async def under_way(engine: Engine, compactor: Held, events: Sequence[Event]) -> tuple[Thread, list[str]]:
    """A thread whose compaction is at work, and the ids of its chunks."""
    thread = await engine.create_thread("t")
    made = [chunk.id for event in events for chunk in (await thread.dispatch(event)).chunks]
    await compactor.entered.wait()
    return thread, made


async def reasons(thread: Thread) -> list[str]:
    """Why compactions failed."""
    return [event.reason for event in await of_type(thread, FAILED) if isinstance(event, CompactionFailed)]


async def test_events_go_on_while_the_compactor_works() -> None:
    """Each is acknowledged before the model has answered; nothing is blocked."""
    compactor, engine_ = held()
    async with engine_ as engine:
        thread, _ = await under_way(engine, compactor, turns(4))
        receipts = [await thread.dispatch(event) for event in turns(3, start=5)]
        assert None is await thread.admin.blocking_reason()
        assert [] == compactor.given
        compactor.release.set()
        await thread.compaction.settle()
        assert [6, 7, 8] == [receipt.seq for receipt in receipts]
        assert ["4", "word5", "word6", "word7"] == await texts(thread)
        assert [STARTED, COMPLETED] == await types(thread)
        assert (await thread.replay.verify()).ok


async def test_over_the_hard_limit_events_wait_for_the_compactor() -> None:
    """A program that wrote without rest beside a slow model left it ever more to read: more than a model can."""
    compactor, engine_ = held(SMALL)
    async with engine_ as engine:
        thread, _ = await under_way(engine, compactor, turns(4))
        await thread.dispatch_all(turns(2, start=5))
        assert None is await thread.admin.blocking_reason()
        await thread.dispatch(*turns(1, start=7))
        assert BlockingReason.COMPACTING == await thread.admin.blocking_reason()
        late = asyncio.ensure_future(thread.dispatch(*turns(1, start=8)))
        await asyncio.sleep(0.05)
        assert not late.done()
        compactor.release.set()
        assert 10 == (await late).seq
        await thread.compaction.settle()
        assert None is await thread.admin.blocking_reason()
        assert ["4", "4"] == await texts(thread)  # the next compaction took what came meanwhile


async def test_an_event_that_waits_at_the_hard_limit_is_answered_when_the_engine_closes() -> None:
    """Closing ends the compaction that it waits for."""
    compactor, engine_ = held(SMALL)
    async with engine_ as engine:
        thread, _ = await under_way(engine, compactor, turns(4))
        await thread.dispatch_all(turns(3, start=5))
        late = asyncio.ensure_future(thread.dispatch(*turns(1, start=8)))
        await asyncio.sleep(0)
    [answer] = await asyncio.wait_for(asyncio.gather(late, return_exceptions=True), PATIENCE_S)
    assert isinstance(answer, Receipt | EngineClosed)


async def test_with_whole_they_wait() -> None:
    """The default blocks from start to end."""
    compactor, engine_ = held(CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0))
    async with engine_ as engine:
        thread, _ = await under_way(engine, compactor, turns(4))
        waiting = asyncio.ensure_future(thread.dispatch(turns(1)[0]))
        await asyncio.sleep(0)
        assert BlockingReason.COMPACTING is await thread.admin.blocking_reason()
        assert not waiting.done()
        compactor.release.set()
        await waiting


async def test_the_queue_is_blocked_for_the_commit_only() -> None:
    """Seen by an observer: nothing is blocked as the compaction starts, and as it ends something is."""
    compactor, engine_ = held()
    async with engine_ as engine:
        thread, _ = await under_way(engine, compactor, turns(4))
        seen: list[tuple[str, BlockingReason | None]] = []

        def look(runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
            seen.extend((step.stored.type, runtime.queue.blocking_reason) for step in reduced)

        kernel_of(engine)[OpenThreads].on_commit.append(look)
        await thread.dispatch(turns(1)[0])
        compactor.release.set()
        await thread.compaction.settle()
        assert [("llm_text_response", None), (COMPLETED, BlockingReason.COMPACTING)] == seen
        assert None is await thread.admin.blocking_reason()


@pytest.mark.parametrize("change", ["forget", "mark_critical"])
@pytest.mark.parametrize("at", range(4))
async def test_a_change_of_a_covered_chunk_gives_the_compaction_up(change: str, at: int) -> None:
    """Its result is not written over what was forgotten or marked meanwhile; the log says why."""
    compactor, engine_ = held()
    async with engine_ as engine:
        thread, made = await under_way(engine, compactor, turns(4))
        await (thread.forget(chunk_ids=[made[at]]) if change == "forget" else thread.compaction.mark_critical(made[at]))
        compactor.release.set()
        await thread.compaction.settle()
        assert ["superseded"] == await reasons(thread)
        left = [f"word{n}" for n in range(1, 5) if change == "mark_critical" or n != at + 1]
        assert left == await texts(thread)
        assert (await thread.replay.verify()).ok


async def test_who_asked_is_told_that_it_was_given_up() -> None:
    """And what the model took is in the log."""
    answer = CompactionResult(lines=summary("short").lines, usage=Usage(input_tokens=7))
    compactor = Held(lambda _chunks, _context: answer)
    async with opened(compactor, ASKED) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        asking = asyncio.ensure_future(thread.compact())
        await compactor.entered.wait()
        await thread.forget(chunk_ids=[made[0]])
        compactor.release.set()
        with pytest.raises(CompactorFailed, match="changed or forgotten meanwhile"):
            await asking
        [failed] = await of_type(thread, FAILED)
        assert isinstance(failed, CompactionFailed)
        assert Usage(input_tokens=7) == failed.usage


async def test_a_forgotten_summary_that_the_model_was_shown_gives_it_up() -> None:
    """What it read beside its chunks may stand in its words."""
    compactor = Held()
    async with opened(compactor, ASKED) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(2))
        compactor.release.set()
        await thread.compact()
        compactor.release.clear()
        compactor.entered.clear()
        await say(thread, turns(2, start=3))
        asking = asyncio.ensure_future(thread.compact())
        await compactor.entered.wait()
        await thread.forget(chunk_ids=[made[0]])
        compactor.release.set()
        with pytest.raises(CompactorFailed, match="was shown"):
            await asking


async def test_a_late_result_of_a_covered_call_gives_it_up() -> None:
    """A second result belongs with the call: the cut between them would split them."""
    compactor, engine_ = held()
    async with engine_ as engine:
        thread, _ = await under_way(engine, compactor, [*call("a"), *turns(2)])
        await thread.dispatch(ToolResult(call_id="a", content=f"again{LONG}"))
        compactor.release.set()
        await thread.compaction.settle()
        assert ["superseded"] == await reasons(thread)
        assert "belongs with chunk" in str((await of_type(thread, FAILED))[0])


async def test_a_message_that_is_worked_on_again_is_not_taken() -> None:
    """The agent calls once more after its answer: the question stands again until the next answer."""
    compactor, engine_ = held()
    async with engine_ as engine:
        thread, made = await under_way(engine, compactor, turns(4))
        await say_now(thread, call("a"))
        compactor.release.set()
        await thread.compaction.settle()
        assert ["superseded"] == await reasons(thread)
        assert made == [chunk.id for chunk in (await thread.state()).chunks()][:4]


async def say_now(thread: Thread, events: Sequence[Event]) -> None:
    """Dispatch without waiting for the compaction."""
    for event in events:
        await thread.dispatch(event)


async def test_a_loop_that_ends_meanwhile_does_not_give_it_up() -> None:
    """Older rounds of a loop stand alone while it runs: taking them is as right after its end."""
    rounds = [
        event
        for n in range(12)
        for event in (
            LlmThinking(content=f"think{n}{LONG}"),
            LlmToolCall(calls=(ToolCall(f"c{n}", "look"),), content=f"call{n}{LONG}"),
            ToolResult(call_id=f"c{n}", content=f"found{n}{LONG}"),
        )
    ]
    compactor = Held()
    async with opened(compactor, ASKED) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content="go"), *rounds])
        asking = asyncio.ensure_future(thread.compact())
        await compactor.entered.wait()
        await say_now(thread, [LlmTextResponse(content="done"), UserMessage(content="thanks")])
        compactor.release.set()
        report = await asking
        assert 12 == len((*report.covered, *report.dropped))
        assert (await thread.replay.verify()).ok


HARMLESS: dict[str, list[Event]] = {
    "a whole exchange": turns(2, start=5),
    "a call under way": [UserMessage(content="next"), call("z")[0]],
    "a task": [TaskStarted(goal="sell")],
    "the environment": [EnvironmentChange(key="door", content="open")],
    "a pause": [],
}


@pytest.mark.parametrize("events", HARMLESS.values(), ids=HARMLESS)
async def test_what_does_not_touch_it_does_not_stop_it(events: list[Event]) -> None:
    """New chunks, tasks, the environment, a pause: the summary comes to stand before them."""
    compactor, engine_ = held()
    async with engine_ as engine:
        thread, _ = await under_way(engine, compactor, turns(4))
        await say_now(thread, events)
        if not events:
            await thread.admin.pause()
        compactor.release.set()
        await thread.compaction.settle()
        assert [STARTED, COMPLETED] == await types(thread)
        assert "4" == (await texts(thread))[0]
        assert (await thread.replay.verify()).ok


async def test_a_task_that_ends_meanwhile_gives_it_up_and_the_next_try_succeeds() -> None:
    """It was shown the goal. A compaction that was given up is tried again sooner than one that failed."""
    compactor, engine_ = held()
    async with engine_ as engine:
        thread, _ = await under_way(engine, compactor, [TaskStarted(goal="sell"), *turns(4)])
        await thread.dispatch(TaskCompleted(content="sold"))
        compactor.release.set()
        await thread.compaction.settle()
        await say(thread, turns(4, start=5))
        assert [STARTED, FAILED, STARTED, COMPLETED] == (await types(thread))[:4]


async def test_a_context_over_the_hard_limit_waits_all_the_same() -> None:
    """It must be smaller: it waits for the compaction, while events go on."""
    policy = CompactionPolicy(threshold=99, soft_tokens=10**6, hard_tokens=200, keep_recent=0, blocking="commit")
    compactor = Held()
    async with opened(compactor, policy) as engine:
        thread = await engine.create_thread()
        await say_now(thread, turns(4))
        asking = asyncio.ensure_future(thread.context(policy=ContextPolicy(blocks=())))
        await compactor.entered.wait()
        await say_now(thread, turns(2, start=5))
        assert not asking.done()
        compactor.release.set()
        context = await asking
        assert ["4 in short", "word5", "word6"] == [chunk.text[:10].removesuffix(" and ") for chunk in context.chunks]


async def test_undo_and_redo_wait_for_it() -> None:
    """One after the other, as ever: an undo finds what the compaction has made; a redo blocks while it reads."""
    compactor = Held(a_line_each)
    async with opened(compactor, ASKED) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        asking = asyncio.ensure_future(thread.compact())
        await compactor.entered.wait()
        undoing = asyncio.ensure_future(thread.compaction.undo())
        await say_now(thread, turns(2, start=5))
        compactor.release.set()
        report, receipt = await asking, await undoing
        assert [(chunk_id,) for chunk_id in made] == [chunk.parent_ids for chunk in receipt.chunks]
        compactor.release.clear()
        compactor.entered.clear()
        redoing = asyncio.ensure_future(thread.compaction.redo(report.compaction_id))
        await compactor.entered.wait()
        await say_now(thread, turns(2, start=7))
        compactor.release.set()
        await redoing
        assert [f"word{n}" for n in range(5, 9)] == (await texts(thread))[-4:]
        assert (await thread.replay.verify()).ok


async def test_archiving_waits_for_it() -> None:
    """An archived thread has no compaction without an end."""
    compactor, engine_ = held()
    async with engine_ as engine:
        thread, _ = await under_way(engine, compactor, turns(4))
        archiving = asyncio.ensure_future(thread.admin.archive())
        await thread.dispatch(turns(1)[0])
        compactor.release.set()
        await archiving
        assert [STARTED, COMPLETED] == await types(thread)


@pytest.mark.parametrize("ending", ["forget", "close"])
async def test_originals_stand_after_every_end(tmp_path: Path, ending: str) -> None:
    """Closed in the middle, events that went on are there, and the compaction is recorded as abandoned."""
    path = str(tmp_path / "memory.db")
    compactor = Held()
    async with opened(compactor, AT_FOUR, path) as engine:
        thread, made = await under_way(engine, compactor, turns(4))
        await say_now(thread, turns(2, start=5))
        if ending == "forget":
            await thread.forget(chunk_ids=[made[0]])
    async with opened(Scripted(), ASKED, path) as engine:
        thread = engine.thread("t")
        words = [f"word{n}" for n in range(1, 7)]
        assert words[ending == "forget" :] == await texts(thread)
        assert [STARTED, "compaction_abandoned"] == await types(thread)
        assert (await thread.replay.verify()).ok


STEPS = st.lists(st.sampled_from(["say", "call", "note", "forget", "critical", "task"]), max_size=6)


@given(before=st.integers(2, 6), steps=STEPS)
def test_whatever_comes_meanwhile_nothing_is_lost(before: int, steps: list[str]) -> None:
    """Law: every chunk stands, is forgotten, or is covered by a summary that was made of it as it was."""

    async def live() -> None:
        compactor = Held(a_line)
        async with opened(compactor, ASKED) as engine:
            thread = await engine.create_thread()
            made = await say(thread, turns(before))
            asking = asyncio.ensure_future(thread.compact())
            await compactor.entered.wait()
            forgotten = await meanwhile(thread, made, steps)
            compactor.release.set()
            outcome = (await asyncio.gather(asking, return_exceptions=True))[0]
            state = await thread.state()
            covered = {parent for chunk in state.chunks() if chunk.lines for parent in chunk.parent_ids}
            versions = {parent for chunk in state.chunks() for parent in (chunk.id, *chunk.parent_ids)}
            assert set(made) == (versions & set(made)) | forgotten
            assert not covered & forgotten
            if isinstance(outcome, CompactorFailed):
                assert not covered
            assert (await thread.replay.verify()).ok
            assert None is await thread.admin.blocking_reason()

    asyncio.run(live())


async def meanwhile(thread: Thread, made: list[str], steps: Sequence[str]) -> set[str]:
    """Do these steps; the ids that were forgotten."""
    forgotten: set[str] = set()
    for n, step in enumerate(steps):
        match step:
            case "say":
                await say_now(thread, turns(1, start=20 + n))
            case "call":
                await say_now(thread, call(f"c{n}")[: 1 + n % 2])
            case "note":
                await thread.dispatch(note("aside", "disposable"))
            case "task":
                await thread.dispatch(TaskStarted(goal="sell"))
            case "critical" if made[n % len(made)] not in forgotten:
                await thread.dispatch(MemoryMarkCritical(chunk_ids=(made[n % len(made)],), lenient=True))
            case "forget":
                forgotten.add(made[n % len(made)])
                await thread.forget(chunk_ids=[made[n % len(made)]])
            case _:
                continue
    return forgotten


async def test_hundreds_of_events_meanwhile_leave_one_summary() -> None:
    """Events in great number pass a compaction that takes long: it takes its own chunks and no others."""
    compactor, engine_ = held()
    async with engine_ as engine:
        thread, made = await under_way(engine, compactor, turns(4))
        await asyncio.gather(*(thread.dispatch(event) for event in turns(300, start=5)))
        compactor.release.set()
        await thread.compaction.settle()
        [summary_] = [chunk for chunk in (await thread.state()).chunks() if chunk.lines]
        assert (tuple(made), 301) == (summary_.parent_ids, len(await texts(thread)))
        assert list(range(1, 307)) == [recorded.seq for recorded in await log(thread)]


async def test_one_compaction_a_thread_at_a_time() -> None:
    """Events that pass the threshold again while one is under way start no second one."""
    async with opened(Yielding(rounds=40), AT_FOUR) as engine:
        thread = await engine.create_thread()
        await asyncio.gather(*(thread.dispatch(event) for event in turns(40)))
        await thread.compaction.settle()
        kinds = await types(thread)
        assert [STARTED, COMPLETED] * (len(kinds) // 2) == kinds
