"""Counts of tokens, corrected by what providers report: a fold of the log, in steps, on the safe side."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Context, ContextPolicy, Engine, EngineConfig, Thread, UserMessage
from memory_engine import events as e
from memory_engine.context import Spent
from memory_engine.context.correction import COUNTED_MIN, PERCENT_MAX, Correction, UsageReport, learned
from memory_engine.core.tokens import EstimatedTokens
from memory_engine.errors import ContextBudgetError

REPORTS = st.builds(
    UsageReport,
    counted=st.integers(0, 50_000),
    used=st.integers(0, 200_000),
    model=st.sampled_from(("", "small", "large")),
)


def reports(*used: int, counted: int = 1_000, model: str = "m") -> list[UsageReport]:
    """Reports for contexts of a thousand tokens, by our count."""
    return [UsageReport(counted, one, model) for one in used]


@pytest.mark.parametrize("real", [600, 800, 950, 1_000, 1_200, 1_500])
def test_three_reports_bring_a_count_near_to_the_truth(real: int) -> None:
    """At least 0.98 and at most 1.1 of what the provider counts."""
    correction = learned(reports(real, real, real))
    assert 0.98 <= correction.real(1_000) / real <= 1.1
    assert 3 == correction.usages


def test_a_count_that_is_too_low_is_corrected_by_the_first_report() -> None:
    """The next request must fit."""
    assert 1_300 <= learned(reports(1_300)).real(1_000)


def test_a_count_that_is_too_high_waits_for_three_reports() -> None:
    """Two may be of requests that left something out."""
    assert [100, 100] == [learned(reports(*[800] * n)).percent for n in (1, 2)]
    assert 100 > learned(reports(800, 800, 800)).percent


def test_a_correction_stays_while_it_is_good_enough() -> None:
    """So that a budget is the same from one context to the next, and with it the prefix."""
    first = learned(reports(820, 820, 820))
    assert {first.percent} == {
        learned(reports(820, 820, 820, *more)).percent for more in ([810], [830, 825], [805, 840])
    }
    assert first.percent < learned(reports(820, 820, 820, 900)).percent


def test_the_latest_reports_of_the_newest_model_count() -> None:
    """Another tokenizer that makes more tokens is followed at once, one that makes fewer after three reports."""
    small, large = reports(*[800] * 4, model="small"), reports(1_200, model="large")
    assert 1_200 <= learned([*small, *large]).real(1_000)
    assert learned([*small, *large]).percent == learned([*small, *large, *small[:2]]).percent
    assert learned(small).percent == learned([*small, *large, *small[:3]]).percent


@pytest.mark.parametrize(
    "odd",
    [UsageReport(COUNTED_MIN - 1, 90_000), UsageReport(1_000, 0), UsageReport(1_000, 10 * PERCENT_MAX * 1_000)],
    ids=["small context", "no usage", "another request"],
)
def test_reports_that_tell_nothing_of_a_context_are_left_out(odd: UsageReport) -> None:
    """A context of a few words says nothing about the next; a usage of nought is none."""
    assert Correction() == learned([odd])
    assert learned(reports(800, 800, 800)) == learned([odd, *reports(800, 800, 800), odd])


@settings(max_examples=300)
@given(st.lists(REPORTS, max_size=20))
def test_a_correction_never_flatters_the_latest_reports(given_reports: list[UsageReport]) -> None:
    """The count is not below the latest report that counts; the same reports give the same correction."""
    correction = learned(given_reports)
    told = [one for one in given_reports if one.counted >= COUNTED_MIN and 0 < one.percent <= PERCENT_MAX]
    assert correction == learned(tuple(given_reports))
    assert not told or correction.real(told[-1].counted) >= told[-1].used


@settings(max_examples=300)
@given(st.integers(1, 3 * PERCENT_MAX), st.integers(0, 10**7))
def test_what_fits_by_our_count_fits_corrected(percent: int, tokens: int) -> None:
    """A budget becomes our own units and back without growing, and the smallest budget that an error names works."""
    correction = Correction(percent, 3)
    assert correction.real(correction.counted(tokens)) <= tokens
    assert correction.counted(correction.real(tokens)) >= tokens


class Loop:
    """A model's loop on a thread: contexts, and responses that report what a tokenizer of its own counts."""

    def __init__(self, thread: Thread, ratio: float, model: str = "m") -> None:
        self.thread, self.ratio, self.model = thread, ratio, model
        self.steps = 0

    def real(self, context: Context) -> int:
        """The tokens that the provider counts."""
        texts = (f"{one.get('content') or ''}{json.dumps(one.get('tool_calls') or '')}" for one in context.messages)
        return round(self.ratio * sum(EstimatedTokens().count(text) for text in texts))

    async def step(self, *, max_tokens: int = 8_000) -> Context:
        """One call of the model: it asks for rows, gets them, and is told what its request had."""
        self.steps += 1
        context = await self.thread.context(max_tokens=max_tokens)
        usage = {"prompt_tokens": self.real(context), "completion_tokens": 9}
        call = {"id": f"c{self.steps}", "type": "function", "function": {"name": "rows", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        response = {"id": f"r{self.steps}", "object": "chat.completion", "model": self.model, "choices": [choice]}
        await self.thread.record({**response, "usage": usage})
        rows = "\n".join(f"{n};{n * 7919 % 100_000};2026-03-{n % 28 + 1:02}" for n in range(40))
        await self.thread.dispatch(e.ToolResult(call_id=f"c{self.steps}", content=f"page {self.steps}\n{rows}"))
        return context


async def worked(thread: Thread, ratio: float, steps: int = 6, **kinds: str) -> Loop:
    """A loop that has made some steps."""
    await thread.dispatch(UserMessage(content="Add up the second column of all pages, please. " * 10))
    loop = Loop(thread, ratio, **kinds)
    for _ in range(steps):
        await loop.step()
    return loop


@pytest.fixture
def config() -> EngineConfig:
    """No compaction: the log is the loop's alone."""
    return EngineConfig(compaction=CompactionPolicy(enabled=False))


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.5])
async def test_a_context_is_near_to_what_the_provider_counts(config: EngineConfig, ratio: float) -> None:
    """After three reported usages, and the context says what it was multiplied by."""
    async with memory_engine.open(":memory:", config=config) as engine:
        loop = await worked(await engine.create_thread(), ratio)
        context = await loop.thread.context(max_tokens=8_000)
        assert 0.98 <= context.tokens / loop.real(context) <= 1.1
        assert (3, False) == (context.spent.usages, context.tokens_exact)
        assert context.spent.correction == pytest.approx(ratio, rel=0.1)


async def test_a_budget_holds_for_a_provider_that_counts_more(config: EngineConfig) -> None:
    """A window of a model whose tokenizer makes half as many more is not overrun."""
    async with memory_engine.open(":memory:", config=config) as engine:
        loop = await worked(await engine.create_thread(), 1.5, steps=40)
        context = await loop.thread.context(max_tokens=8_000)
        assert 6_000 < context.tokens <= 8_000
        assert loop.real(context) <= 8_000
        assert "estimate, corrected" == context.tokenizer


async def test_a_budget_is_used_with_a_provider_that_counts_less(config: EngineConfig) -> None:
    """More is shown than by the estimate alone, and it still fits."""
    async with memory_engine.open(":memory:", config=config) as engine:
        loop = await worked(await engine.create_thread(), 0.8, steps=30)
        before = await loop.thread.context(max_tokens=8_000, at=1)
        context = await loop.thread.context(max_tokens=8_000, policy=ContextPolicy(refill=0.99))
        assert (0, 3) == (before.spent.usages, context.spent.usages)
        assert 6_700 < loop.real(context) <= 8_000


async def test_the_parts_of_a_corrected_context_add_up(config: EngineConfig) -> None:
    """To the tokens of the whole."""
    async with memory_engine.open(":memory:", config=config) as engine:
        loop = await worked(await engine.create_thread(), 1.3)
        context = await loop.thread.context(max_tokens=8_000)
        spent = context.spent
        assert context.tokens == spent.pinned + spent.standing + spent.summary + spent.recent + spent.recalled


async def test_the_smallest_budget_that_an_error_names_works(config: EngineConfig) -> None:
    """Also with tools and room for the answer, which is in the provider's tokens already."""
    tools = [{"type": "function", "function": {"name": "rows", "parameters": {"type": "object", "properties": {}}}}]
    async with memory_engine.open(":memory:", config=config) as engine:
        loop = await worked(await engine.create_thread(), 1.4)
        with pytest.raises(ContextBudgetError) as caught:
            await loop.thread.context(max_tokens=120, tools=tools, reserve=100)
        needed = caught.value.needed
        assert needed >= (await loop.thread.context(max_tokens=needed, tools=tools, reserve=100)).tokens + 100
        with pytest.raises(ContextBudgetError):
            await loop.thread.context(max_tokens=needed - 2, tools=tools, reserve=100)


async def test_a_past_context_is_corrected_as_of_then(config: EngineConfig, tmp_path: Path) -> None:
    """What was reported later changes nothing: reading it again, also from the file, gives the same."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path, config=config) as engine:
        thread = await engine.create_thread("t")
        loop = await worked(thread, 1.2)
        seq = (await thread.info()).events
        then = await thread.context(max_tokens=8_000, at=seq)
        loop.model = "other"
        loop.ratio = 1.5
        for _ in range(30):
            await loop.step()
        assert then.spent.correction < (await thread.context(max_tokens=8_000)).spent.correction
        assert _told(then) == _told(await thread.context(max_tokens=8_000, at=seq))
    async with memory_engine.open(path, config=config) as engine:
        assert _told(then) == _told(await engine.thread("t").context(max_tokens=8_000, at=seq))


def _told(context: Context) -> tuple[int, str, Spent, Sequence[object]]:
    return context.tokens, context.tokenizer, context.spent, context.messages


async def test_an_exact_count_is_not_corrected() -> None:
    """A tokenizer knows; what a provider adds to a request is no error of its."""

    class Words:
        name, exact = "words", True

        def count(self, text: str) -> int:
            return len(text.split())

    config = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(":memory:", config=config, tokens=Words()) as engine:
        loop = await worked(await engine.create_thread(), 3.0)
        context = await loop.thread.context(max_tokens=8_000)
        assert ("words", 0, 1.0) == (context.tokenizer, context.spent.usages, context.spent.correction)


async def test_a_thread_without_reports_is_counted_as_it_is(engine: Engine) -> None:
    """Nothing is read for it, and nothing said."""
    thread = await engine.create_thread()
    await thread.dispatch(UserMessage(content="Hello"))
    context = await thread.context(max_tokens=1_000)
    assert ("estimate", 0, 1.0) == (context.tokenizer, context.spent.usages, context.spent.correction)
    assert context == evolve(context)
