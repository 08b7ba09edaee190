"""Contexts of successive states, made at the cost of what changed: they are those of the states."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import (
    Add,
    BatchReplace,
    Chunk,
    EngineConfig,
    Event,
    LlmTextResponse,
    Operation,
)
from memory_engine import events as e
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.rendering import Message
from memory_engine.context.series import ContextSeries, MeasuredMessages
from memory_engine.core.chunks import Category
from memory_engine.engine import kernel_of
from memory_engine.errors import ContextBudgetError
from memory_engine.replay.diff import rendered
from memory_engine.testing import ManualClock, SequentialIds
from tests.conversations import NEVER
from tests.engine.test_laws import EVENTS
from tests.scripted_compactors import Scripted

# Laws.

MODEL_ANSWERS = st.builds(
    LlmTextResponse, content=st.text(max_size=40), response_id=st.sampled_from(("", "a", "b", "c"))
)
WIDER = st.one_of(
    EVENTS,
    st.builds(e.LlmClarification, content=st.just("may I?"), response_id=st.sampled_from(("", "a"))),
    st.builds(e.LlmSubagentMessage, agent_id=st.just("s"), content=st.just("how?")),
    st.builds(e.ParentAgentMessage, content=st.just("do it")),
)
STEPS = st.lists(st.one_of(WIDER, MODEL_ANSWERS), min_size=1, max_size=24)
BUDGETS = st.sampled_from((None, None, 150, 300))


def same_each_time() -> AbstractAsyncContextManager[memory_engine.Engine]:
    """An engine whose time and ids are the same in every run."""
    config = EngineConfig(compaction=NEVER)
    return memory_engine.open(":memory:", compactor=Scripted(), config=config, clock=ManualClock(), ids=SequentialIds())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settle soon, so that short logs have something settled."""
    monkeypatch.setattr("memory_engine.context.series.UNSETTLED", 2)


@pytest.mark.usefixtures("small")
@settings(max_examples=120)
@given(st.lists(WIDER, min_size=1, max_size=30), BUDGETS, st.integers(0, 8))
async def test_contexts_of_a_series_are_those_of_the_states(log: list[Event], budget: int | None, every: int) -> None:
    """Event by event, whether something was asked in between or not, it is the context that the state gives."""
    async with same_each_time() as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(log)
        messages = MeasuredMessages(kernel_of(engine)[ContextBuilder])
        series = ContextSeries(memory_engine.State(), "t", budget, messages)
        async for event in thread.events():
            series.step(event.operations, event.chunks, event.seq)
            if every and event.seq % every:
                continue
            try:
                state = await kernel_of(engine).reader.state_at("t", event.seq)
                builder = kernel_of(engine)[ContextBuilder]
                expected = builder.build(state, "t", budget, covered=series.covered, kept=series.kept)
            except ContextBudgetError:
                with pytest.raises(ContextBudgetError):
                    series.context()
                continue
            found = series.context()
            assert (expected.messages, expected.tokens, len(rendered(expected.messages))) == (
                found.messages,
                found.tokens,
                found.bytes,
            )
            assert series.state() == state
            if budget is None:
                parts = list(kernel_of(engine)[ContextBuilder].in_parts(state))
                assert None in parts or expected.messages == [message for part in parts for message in part or ()]


CHANGES = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=8)
"""How many chunks come, and how many of the newest then become one."""


def said(n: int, seq: int) -> Chunk:
    """What somebody says, or every fifth time a call, and its result three chunks later."""
    if n % 5 == 0:
        return Chunk(id=f"{seq}.{n}", type="tool_call", calls=(e.ToolCall(f"c{n}", "look"),))
    if n % 5 == 3:
        return Chunk(id=f"{seq}.{n}", type="tool_result", content="found", call_id=f"c{n - 3}")
    return Chunk(id=f"{seq}.{n}", type="user_message" if n % 2 else "agent_response", content=f"{n}")


@pytest.mark.usefixtures("small")
@settings(max_examples=150)
@given(CHANGES, BUDGETS)
async def test_a_series_goes_back_where_the_newest_are_replaced(
    changes: list[tuple[int, int]], budget: int | None
) -> None:
    """However far back chunks become another one, the contexts that follow are those that the states give."""
    async with same_each_time() as engine:
        builder = kernel_of(engine)[ContextBuilder]
    series = ContextSeries(memory_engine.State(), "t", budget, MeasuredMessages(builder))
    live: list[str] = []
    seq = count = 0
    for more, replaced in changes:
        for _ in range(more):
            seq, count = seq + 1, count + 1
            chunk = said(count, seq)
            series.step([Add(chunk.id)], [chunk], seq)
            live.append(chunk.id)
            same_context(series, builder, budget)
        if covered := tuple(live[-replaced:]) if replaced else ():
            seq += 1
            summary = Chunk(
                id=f"{seq}.0", type="compacted", content="short", category=Category.MEMORY, parent_ids=covered
            )
            series.step([BatchReplace(covered, (summary.id,))], [summary], seq)
            live[-len(covered) :] = [summary.id]
            same_context(series, builder, budget)


def same_context(series: ContextSeries, builder: ContextBuilder, budget: int | None) -> None:
    """The context of a series is that of its state."""
    try:
        expected = builder.build(series.state(), "t", budget, covered=series.covered, kept=series.kept)
    except ContextBudgetError:
        with pytest.raises(ContextBudgetError):
            series.context()
        return
    found = series.context()
    assert (expected.messages, expected.tokens, len(rendered(expected.messages))) == (
        found.messages,
        found.tokens,
        found.bytes,
    )


async def test_a_replacement_of_the_newest_leaves_the_oldest_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary of the newest chunks, again and again: no context puts the whole log together anew."""
    async with same_each_time() as engine:
        messages = MeasuredMessages(kernel_of(engine)[ContextBuilder])
    asked: list[str] = []
    of = MeasuredMessages.of

    def counted(self: MeasuredMessages, chunk: Chunk) -> Sequence[Message]:
        asked.append(chunk.id)
        return of(self, chunk)

    monkeypatch.setattr(MeasuredMessages, "of", counted)
    series = ContextSeries(memory_engine.State(), "t", None, messages)
    for seq in range(1, 1_601):
        chunk = Chunk(id=f"{seq}.0", type="user_message", content=f"{seq}")
        operation: Operation = Add(chunk.id)
        if seq % 200 == 0:
            operation = BatchReplace(tuple(f"{n}.0" for n in range(seq - 40, seq)), (chunk.id,))
        series.step([operation], [chunk], seq)
        series.context()
    assert 1_600 <= len(asked) < 2 * 1_600
