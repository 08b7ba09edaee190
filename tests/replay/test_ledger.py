"""The cache ledger: what a prompt cache keeps from call to call, and which event breaks it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import (
    CompactionPolicy,
    Context,
    ContextPolicy,
    EngineConfig,
    Event,
    LlmTextResponse,
    Thread,
    UserMessage,
)
from memory_engine import events as e
from memory_engine.context.builder import FRAME, ContextBuilder, summaries_of
from memory_engine.context.choice import HeldWindow
from memory_engine.context.covered import Covered
from memory_engine.context.rendering import common_prefix, message_tokens
from memory_engine.errors import CompactionError, ContextBudgetError, SeqNotInLog
from memory_engine.replay.cache_breaks import CacheBreak
from memory_engine.replay.diff import rendered
from memory_engine.replay.ledger import CacheLedger
from memory_engine.testing import ManualClock, SequentialIds
from memory_engine.thread import handle_of
from tests.conversations import LONG, NEVER, call, opened, say, turns
from tests.replay.test_ledger_series import STEPS
from tests.scripted_compactors import Scripted


def exchanges(count: int, *, start: int = 1) -> list[Event]:
    """`count` questions with their answers, each answer a model call."""
    said: list[Event] = []
    for n in range(start, start + count):
        said += [UserMessage(content=f"question {n}{LONG}"), LlmTextResponse(content=f"answer {n}{LONG}")]
    return said


async def breaks_of(thread: Thread, **asked: int | None) -> list[tuple[int, str, str]]:
    """What broke: seq and type of the event, and why."""
    found = await thread.replay.ledger(**asked)  # type: ignore[arg-type]  # by keyword
    check(found)
    return [(one.seq, one.event_type, one.why) for one in found.breaks]


def check(found: CacheLedger) -> None:
    """What holds for every ledger."""
    for one in found.calls:
        assert one.kept_tokens + one.fresh_tokens == one.tokens
        assert min(one.kept_tokens, one.fresh_tokens) >= 0
    totals = found.totals
    assert totals.kept_tokens + totals.fresh_tokens == totals.tokens == sum(one.tokens for one in found.calls)
    assert totals.lost_tokens == sum(one.lost_tokens for one in found.breaks)
    assert len(found.calls) == totals.calls


@asynccontextmanager
async def plain(policy: CompactionPolicy = NEVER) -> AsyncIterator[Thread]:
    """A thread that is compacted as the policy says."""
    async with opened(Scripted(), policy) as engine:
        yield await engine.create_thread("t")


# Calls.


async def test_what_is_only_added_breaks_nothing() -> None:
    """Each context begins with that of the call before: all of it was kept, the rest is fresh."""
    async with plain() as thread:
        await say(thread, [*exchanges(3), *call("a"), *exchanges(1, start=4)])
        found = await thread.replay.ledger()
        check(found)
        assert () == found.breaks
        assert [2, 4, 6, 10] == [one.seq for one in found.calls]
        for former, later in zip(found.calls, found.calls[1:], strict=False):
            assert former.tokens - FRAME == later.kept_tokens
        contexts = [await thread.context(at=one.seq - 1) for one in found.calls]
        assert [context.tokens for context in contexts] == [one.tokens for one in found.calls]


async def test_the_parts_of_one_answer_are_one_call() -> None:
    """Thinking, text and calls that follow each other answer one call, also with a compaction between them."""
    async with plain() as thread:
        thinking = e.LlmThinking(content="hm", response_id="r")
        called = e.LlmToolCall(calls=(e.ToolCall("c", "look"),), response_id="r")
        result = e.ToolResult(call_id="c", content="x")
        first, second, third = (LlmTextResponse(content="so", response_id=name) for name in "rst")
        await say(thread, [*turns(2), UserMessage(content="and?"), thinking, first])
        await thread.compact()
        await say(thread, [called, result, second, third])
        seqs = [one.seq for one in (await thread.replay.ledger()).calls]
        types = [recorded.type async for recorded in thread.events()]
        assert [2, 4, 10, 11] == seqs
        assert ["llm_text_response", "llm_thinking", "llm_text_response", "llm_text_response"] == [
            types[seq - 1] for seq in seqs
        ]


async def test_a_log_without_calls_has_an_empty_ledger() -> None:
    """Nothing was sent, nothing was kept; so it is of an empty log."""
    async with plain() as thread:
        for _ in range(2):
            found = await thread.replay.ledger()
            assert ((), (), 0, 0.0) == (found.calls, found.breaks, found.totals.tokens, found.totals.kept_share)
            await say(thread, [UserMessage(content="hello")])


# Breaks.


async def test_a_compaction_breaks_it_where_the_summary_stands() -> None:
    """The event, the first byte and message that differ, and what had to be sent anew although it was cached."""
    async with plain() as thread:
        await say(thread, [e.SessionStarted(content="be kind"), *exchanges(3)])
        made = [chunk.id for chunk in (await thread.state()).chunks()]
        before = await thread.context(at=6)
        await thread.compact(made[1:3])
        await say(thread, exchanges(1, start=4))
        found = await thread.replay.ledger()
        check(found)
        [one] = found.breaks
        after = await thread.context(at=one.call_seq - 1)
        assert ("compaction_completed", 9, "a compaction by scripted: 2 chunks became a summary") == (
            one.event_type,
            one.seq,
            one.why,
        )
        assert (1, common_prefix(rendered(before.messages), rendered(after.messages))) == (one.message, one.byte)
        counter = handle_of(thread).kernel[ContextBuilder].counter
        again = [message for message in after.messages[1:] if message in before.messages]
        assert sum(message_tokens(message, counter) for message in again) == one.lost_tokens > 0
        [recorded] = [event async for event in thread.events(after=8, upto=9)]
        assert (recorded.id, False) == (one.event_id, one.trailing)


async def test_each_kind_of_change_is_named_with_its_event() -> None:
    """An undo, a forget, an off-loading, a session's end: one break each, at the event that did it."""
    async with plain() as thread:
        await say(thread, exchanges(3))
        made = [chunk.id for chunk in (await thread.state()).chunks()]
        await thread.compact(made[:2])
        await say(thread, exchanges(1, start=4))
        await thread.compaction.undo()
        await say(thread, exchanges(1, start=5))
        await thread.forget(chunk_ids=[made[2]])
        await say(thread, [*exchanges(1, start=6), *call("big", "x" * 30_000), *exchanges(1, start=7)])
        await thread.compaction.offload()
        await say(thread, [*exchanges(1, start=8), e.ExternalInject(content="brief", retention="ephemeral")])
        await say(thread, [*exchanges(1, start=9), e.SessionEnded(), *exchanges(1, start=10)])
        assert [
            ("compaction_completed", "a compaction by scripted: 2 chunks became a summary"),
            ("compaction_undone", "the compaction of event 8 was undone: 2 chunks came back"),
            ("memory_forget", "something was forgotten"),
            ("results_offloaded", "1 large result left the context but for the beginning"),
            ("session_ended", "the session ended, and what goes with it went"),
        ] == [(event_type, why) for _, event_type, why in await breaks_of(thread)]


async def test_a_late_result_takes_the_place_of_its_placeholder() -> None:
    """A call that had no result yet when the next call was made."""
    async with plain() as thread:
        called = e.LlmToolCall(calls=(e.ToolCall("c1", "look"), e.ToolCall("c2", "look")), response_id="r1")
        await say(thread, [*exchanges(1), called, e.ToolResult(call_id="c1", content="one")])
        await say(
            thread, [LlmTextResponse(content="wait", response_id="r2"), e.ToolResult(call_id="c2", content="two")]
        )
        await say(thread, exchanges(1, start=2))
        why = "the result of call c2 took the place of its placeholder"
        assert [(6, "tool_result", why)] == await breaks_of(thread)


async def test_a_full_budget_moves_the_window() -> None:
    """The oldest turns leave once in a while, and each time the ledger says that it was the budget."""
    async with plain() as thread:
        tokens = []
        for n in range(20):
            asked, answered = exchanges(1, start=n)
            await thread.dispatch(asked)
            tokens.append((await thread.context(1_500, policy=ContextPolicy(blocks=()))).tokens)
            await thread.dispatch(answered)
        found = await thread.replay.ledger(max_tokens=1_500)
        check(found)
        assert 1 <= len(found.breaks) <= 16
        assert {"the window moved: the budget of 1,500 tokens is full"} == {one.why for one in found.breaks}
        assert {"user_message", "llm_text_response"} >= {one.event_type for one in found.breaks}
        assert tokens == [one.tokens for one in found.calls]


async def test_a_text_that_was_cut_is_said() -> None:
    """The newest turn, too large for the budget, is cut; the next call has it no longer, or whole."""
    async with plain() as thread:
        await say(thread, [*exchanges(1), UserMessage(content="large " * 3_000), LlmTextResponse(content="ok")])
        await say(thread, exchanges(1, start=2))
        whys = [why for _, _, why in await breaks_of(thread, max_tokens=800)]
        assert "a text was cut: the newest turn does not fit the budget of 800 tokens" == whys[0]
        assert "the newest turn, cut to fit the budget of 800 tokens, is no longer the newest" == whys[1]


async def test_a_budget_that_does_not_do_is_an_error() -> None:
    """Where what must be in does not fit, it is said which budget would do."""
    async with plain() as thread:
        await say(thread, [e.SessionStarted(content="rule" * 500), *exchanges(1)])
        with pytest.raises(ContextBudgetError, match="needs"):
            await thread.replay.ledger(max_tokens=50)


# What stands last.


async def test_what_stands_last_is_marked_as_such() -> None:
    """Task and to-do list move behind what is said, and change: breaks by design, with little to send anew."""
    async with plain() as thread:
        await say(thread, [e.TaskStarted(goal="do it"), *exchanges(2)])
        await say(thread, [e.TodoSet(items=(e.TodoItem("1", "first"),)), e.LlmThinking(content="hm")])
        await say(thread, [e.TodoCompleted(id="1"), e.LlmTextResponse(content="done")])
        found = await thread.replay.ledger()
        check(found)
        assert {True} == {one.trailing for one in found.breaks}
        moved = "the task: it stands last by design, and moved behind what was said since"
        assert (3, "llm_text_response", moved) == (
            found.breaks[0].seq,
            found.breaks[0].event_type,
            found.breaks[0].why,
        )
        assert ("todo_completed", "the task, the to-do list: it stands last by design, and changed") == (
            found.breaks[-1].event_type,
            found.breaks[-1].why,
        )
        task = message_tokens(
            {"role": "user", "content": "[Task] do it"}, handle_of(thread).kernel[ContextBuilder].counter
        )
        assert task == found.breaks[0].lost_tokens


async def test_a_compaction_is_named_although_something_stands_last() -> None:
    """Of several events between two calls it is the one that broke it earliest in the context."""
    async with plain() as thread:
        await say(thread, [e.TaskStarted(goal="do it"), *exchanges(3)])
        made = [chunk.id for chunk in (await thread.state()).chunks() if chunk.id != "1.0"]
        await thread.compact(made[:4])
        await say(thread, exchanges(1, start=4))
        last = (await thread.replay.ledger()).breaks[-1]
        assert ("compaction_completed", False, 0) == (last.event_type, last.trailing, last.message)


# A stretch of the log.


@pytest.mark.parametrize("window", [1, 512])
async def test_a_stretch_is_compared_with_the_call_before_it(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """A ledger of a part is that part of the whole ledger, wherever it begins and ends."""
    monkeypatch.setattr("memory_engine.replay.ledger.WINDOW", window)
    async with plain(CompactionPolicy(threshold=6, tokens_min=0, keep_recent=2)) as thread:
        await say(thread, [e.TaskStarted(goal="do it"), *exchanges(6), *call("a"), *exchanges(3, start=7)])
        whole = await thread.replay.ledger()
        head = (await thread.info()).events
        for after in range(head + 1):
            for upto in {after, min(head, after + 5), head}:
                found = await thread.replay.ledger(after=after, upto=upto)
                assert [one for one in whole.calls if after < one.seq <= upto] == list(found.calls)
                assert [one for one in whole.breaks if after < one.call_seq <= upto] == list(found.breaks)
        with pytest.raises(SeqNotInLog):
            await thread.replay.ledger(after=head + 1)


async def test_a_ledger_tells_how_far_it_is_and_only_reads(tmp_path: Path) -> None:
    """Progress counts events; an engine that only looks can make one, of the past too."""
    path = str(tmp_path / "memory.db")
    async with opened(Scripted(), NEVER, path) as engine:
        await (await engine.create_thread("t")).dispatch_all(exchanges(400))
    done: list[int] = []
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        found = await engine.thread("t").replay.ledger(progress=done.append)
        past = await engine.thread("t").at(100)
        assert 50 == len((await past.replay.ledger(upto=100)).calls)
    assert (400, [512, 800]) == (len(found.calls), done)


# Laws.


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settle soon, so that short logs have something settled."""
    monkeypatch.setattr("memory_engine.context.series.UNSETTLED", 2)


@pytest.mark.usefixtures("small")
@settings(max_examples=80)
@given(st.lists(STEPS, min_size=1, max_size=3), st.sampled_from((None, 400)))
async def test_a_ledger_says_what_the_contexts_say(parts: list[list[Event]], budget: int | None) -> None:
    """Kept and fresh make the whole; breaks are where contexts differ, and an event between the calls did it."""
    async with memory_engine.open(
        ":memory:",
        compactor=Scripted(),
        config=EngineConfig(compaction=NEVER),
        clock=ManualClock(),
        ids=SequentialIds(),
    ) as engine:
        thread = await engine.create_thread("t")
        for part in parts:
            await thread.dispatch_all(part)
            with suppress(CompactionError):
                await thread.compact()
        try:
            found = await thread.replay.ledger(max_tokens=budget)
        except ContextBudgetError:
            return
        check(found)
        assert await expected_breaks(thread, found, budget) == [(b.call_seq, b.byte, b.message) for b in found.breaks]
        seqs = [0, *(one.seq for one in found.calls)]
        for one in found.breaks:
            before = seqs[seqs.index(one.call_seq) - 1]
            assert before <= one.seq < one.call_seq


async def sent(thread: Thread, seq: int, budget: int | None, kept: HeldWindow | None) -> Context:
    """What a loop was sent at a seq, forgotten since or not."""
    reader = handle_of(thread).kernel.reader
    state = await reader.state_at(thread.id, seq)
    under = [await reader.originals(thread.id, summary) for summary in summaries_of(state.chunks())[0]]
    covered = Covered.known(chunk for chunks in under for chunk in chunks)
    return handle_of(thread).kernel[ContextBuilder].build(state, thread.id, budget, covered=covered, kept=kept)


async def expected_breaks(thread: Thread, found: CacheLedger, budget: int | None) -> list[tuple[int, int, int]]:
    """The calls whose context does not begin with that of the one before, by comparing all bytes of both."""
    broken, contexts = [], list[Context]()
    for one in found.calls:
        contexts.append(await sent(thread, one.seq - 1, budget, contexts[-1].kept if contexts else None))
    for (former, later), made in zip(pairwise(contexts), found.calls[1:], strict=False):
        old, new = former.messages, later.messages
        if new[: len(old)] != old:
            same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
            broken.append((made.seq, common_prefix(rendered(old), rendered(new)), same))
    return broken


@settings(max_examples=40)
@given(st.lists(st.sampled_from(("say", "look", "think")), min_size=1, max_size=20), st.booleans())
async def test_a_log_that_only_grows_has_no_breaks(steps: Sequence[str], ids: bool) -> None:
    """Questions, answers, calls with their results: whatever follows, what was sent before stays as it was."""
    async with plain() as thread:
        for n, step in enumerate(steps):
            response = f"r{n}" if ids else ""
            match step:
                case "say":
                    await thread.dispatch_all([UserMessage(content="q"), LlmTextResponse(content=f"{n}")])
                case "look":
                    called = e.LlmToolCall(calls=(e.ToolCall(f"c{n}", "look"),), response_id=response)
                    await thread.dispatch_all([called, e.ToolResult(call_id=f"c{n}", content="found")])
                case _:
                    await thread.dispatch(e.LlmThinking(content="hm", response_id=response))
        found = await thread.replay.ledger()
        check(found)
        assert () == found.breaks


def test_a_ledger_as_data() -> None:
    """Plain JSON values, with every field."""
    one = CacheBreak(
        seq=3, event_id="e", event_type="t", call_seq=4, byte=10, message=1, lost_tokens=5, why="w", trailing=True
    )
    found = CacheLedger(thread_id="t", after=0, upto=9, max_tokens=None, calls=(), breaks=(one,))
    assert {
        "calls": [],
        "breaks": [
            {"seq": 3, "event_id": "e", "event_type": "t", "call_seq": 4, "byte": 10, "message": 1,
             "lost_tokens": 5, "why": "w", "trailing": True}
        ],
        "totals": {
            "calls": 0, "tokens": 0, "kept_tokens": 0, "fresh_tokens": 0, "lost_tokens": 5, "kept_share": 0.0,
        },
    } == found.as_data()  # fmt: skip
