"""Pipelines of compactors: each stage takes the former's summary, and what is cited stays cited."""

from collections.abc import Sequence

import pytest

from memory_engine import Chunk, CompactionContext, CompactionResult
from memory_engine.compaction.base import Compactor
from memory_engine.compactors import EmbeddedCompactor, Pipeline
from memory_engine.errors import CompactorFailed
from memory_engine.events import CompactionFailed, SummaryLine, Usage
from tests.conversations import NEVER, of_type, opened, say, texts, turns
from tests.scripted_compactors import Answer, Scripted, a_line_each, summary


def in_capitals(chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
    """Every chunk in capitals, cited."""
    lines = [SummaryLine(section="current_state", text=c.text.upper(), sources=(c.id,)) for c in chunks]
    return CompactionResult(lines=tuple(lines))


def in_one(chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
    """Every chunk in one line that cites them all."""
    return summary(" ".join(chunk.text for chunk in chunks), *(chunk.id for chunk in chunks))


def paid(tokens: int, model: str) -> Answer:
    """An answer that cost something."""
    usage = Usage(input_tokens=tokens, output_tokens=1, cost_usd=0.5)
    return lambda _chunks, _context: CompactionResult(lines=summary("short").lines, model=model, usage=usage)


async def compacted(*stages: Compactor) -> tuple[list[str], list[Chunk]]:
    """The ids of four messages, and the state after a pipeline has compacted them."""
    async with opened(Pipeline(*stages), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        await thread.compact()
        return made, list((await thread.state()).chunks())


async def test_each_stage_takes_the_formers_summary() -> None:
    """The second stage sees the first one's lines, and the state holds what the last one made."""
    second = Scripted(in_capitals)
    _, [chunk] = await compacted(Scripted(a_line_each), second)
    assert [["word1", "word2", "word3", "word4"]] == [[c.text for c in given] for given in second.given]
    assert "WORD1\nWORD2\nWORD3\nWORD4" == chunk.text


async def test_citations_lead_through_all_stages() -> None:
    """However many stages there are, a line cites the chunks that the first stage was given."""
    made, [chunk] = await compacted(Scripted(a_line_each), Scripted(in_capitals), Scripted(in_capitals))
    assert [(chunk_id,) for chunk_id in made] == [line.sources for line in chunk.lines]


async def test_a_line_made_of_several_cites_what_they_cited() -> None:
    """Lines that become one give it all their sources."""
    made, [chunk] = await compacted(Scripted(a_line_each), Scripted(in_one))
    assert [tuple(made)] == [line.sources for line in chunk.lines]


async def test_a_line_that_came_from_anywhere_makes_the_next_one_so() -> None:
    """A line without citations stands for all chunks; so does what is made of it."""
    _, [chunk] = await compacted(Scripted(lambda _chunks, _context: summary("short")), Scripted(in_capitals))
    assert [()] == [line.sources for line in chunk.lines]


async def test_a_stage_that_cannot_is_left_out() -> None:
    """A stage that cannot take the former's summary changes nothing."""
    _, [chunk] = await compacted(Scripted(a_line_each), Scripted(in_capitals, takes=lambda _: False), Scripted(in_one))
    assert "word1 word2 word3 word4" == chunk.text


async def test_the_embedded_compactor_serves_as_a_stage() -> None:
    """The built-in compactor takes another's lines, and cites the chunks behind them."""
    made, [chunk] = await compacted(Scripted(a_line_each), EmbeddedCompactor())
    assert set(made) >= {source for line in chunk.lines for source in line.sources} > set()


async def test_models_and_usage_add_up() -> None:
    """The log says what all stages together took, and each model once."""
    stages = [Scripted(paid(10, model)) for model in ("small", "large", "small")]
    async with opened(Pipeline(*stages), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        report = await thread.compact()
        assert ("small+large", Usage(input_tokens=30, output_tokens=3, cost_usd=1.5)) == (
            report.model,
            report.usage,
        )


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_a_stage_that_fails_fails_the_pipeline(at: int) -> None:
    """A useless result of any stage replaces nothing, and the error names the stage."""
    stages = [Scripted(in_capitals if n else in_one, name=f"stage {n}") for n in range(3)]
    stages[at] = Scripted(lambda _chunks, _context: CompactionResult(lines=()), name=f"stage {at}")
    with pytest.raises(CompactorFailed, match=f"stage {at}"):
        await Pipeline(*stages).compact(
            [Chunk(id="1.0", type="user_message", content="x")],
            CompactionContext(thread_id="t", budget_tokens=9),
        )


async def test_a_failed_pipeline_leaves_the_originals() -> None:
    """The log records the failure of the whole, with the reason of the stage."""
    stages = [Scripted(a_line_each), Scripted(lambda _chunks, _context: CompactionResult(lines=()))]
    async with opened(Pipeline(*stages, name="both"), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        with pytest.raises(CompactorFailed):
            await thread.compact()
        assert ["word1", "word2", "word3", "word4"] == await texts(thread)
        failures = [e for e in await of_type(thread, "compaction_failed") if isinstance(e, CompactionFailed)]
        assert [("both", "empty")] == [(e.compactor, e.reason) for e in failures]


def test_a_pipeline_can_what_its_first_stage_can() -> None:
    """Only the first stage sees the chunks, so only it is asked."""
    chunk = Chunk(id="1.0", type="user_message")
    able, unable = Scripted(), Scripted(takes=lambda _: False)
    assert (True, False) == (
        Pipeline(able, unable).can_compact([chunk]),
        Pipeline(unable, able).can_compact([chunk]),
    )


def test_a_pipeline_is_named_after_its_stages() -> None:
    """Its name is recorded with every result: the stages in order, unless it was given one."""
    stages = (Scripted(name="a"), Scripted(name="b"))
    assert ("a > b", "both") == (Pipeline(*stages).name, Pipeline(*stages, name="both").name)


def test_an_empty_pipeline_is_refused() -> None:
    """Without a stage there is nothing to do."""
    with pytest.raises(ValueError, match="stage"):
        Pipeline()
