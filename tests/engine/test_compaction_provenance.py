"""Where summaries come from: through any number of compactions back to the events, and never past a forget."""

import asyncio
from collections.abc import Sequence

import pytest

from memory_engine import Chunk, CompactionContext, CompactionPolicy, CompactionResult, Engine, Thread
from memory_engine.compactors import EmbeddedCompactor
from memory_engine.events import SummaryLine
from tests.conversations import LONG, note, opened, say, texts, turns, types
from tests.scripted_compactors import Scripted, Yielding, a_line, a_line_each, summary

MERGING = CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0, summary_tokens_max=1)
"""Makes one summary of all the earlier ones at every compaction."""


def uncited(chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
    """Every first word in one line that cites nothing: it may come from anywhere."""
    return summary(" ".join(chunk.text.partition(" ")[0] for chunk in chunks))


def by_hand(chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
    """The first words in lines that cite them; what is known only by its lines is taken over."""
    return CompactionResult(lines=(*context.earlier, *a_line_each(chunks, context).lines))


async def origins(thread: Thread) -> list[str]:
    """The ids of all chunks that the state stands for, itself or through summaries, in order."""
    found: list[str] = []
    for chunk in (await thread.state()).chunks():
        found += [original.id for original in await thread.compaction.originals(chunk.id)] or [chunk.id]
    return found


async def test_summaries_are_merged_from_their_originals() -> None:
    """The compactor that merges is given the originals of earlier summaries, not the summaries."""
    compactor = Scripted()
    async with opened(compactor, MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(8))
        assert [made[:4], made] == [[chunk.id for chunk in given] for given in compactor.given]
        assert ["8"] == await texts(thread)


async def test_summaries_stand_until_they_pass_their_limit() -> None:
    """Below `summary_tokens_max` the earlier summaries, and with them the prompt's prefix, stay untouched."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(12))
        assert ["4", "4", "4"] == await texts(thread)


async def test_summaries_of_too_many_originals_are_merged_from_their_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the originals would be too much to read, the compactor is given the lines, each citing something."""
    monkeypatch.setattr("memory_engine.compaction.protocol.ORIGINAL_TOKENS_MAX", 10)
    compactor = Scripted(uncited)
    async with opened(compactor, MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(8))
        assert made[4:] == [chunk.id for chunk in compactor.given[1]]
        assert [("word1 word2 word3 word4", ("6.0",))] == [(e.text, e.sources) for e in compactor.contexts[1].earlier]


@pytest.mark.parametrize(
    "policy", [MERGING, CompactionPolicy(threshold=4, tokens_min=0, keep_recent=1, summary_tokens_max=6)]
)
async def test_everything_leads_back_to_its_events(policy: CompactionPolicy) -> None:
    """After any number of compactions each original is reached from the state once, in order."""
    async with opened(Scripted(), policy) as engine:
        thread = await engine.create_thread()
        made = await say(thread, [note("rule", "critical"), *turns(30)])
        assert made == sorted(await origins(thread), key=made.index)


async def test_covered_originals_can_still_be_read() -> None:
    """A chunk that a summary covers is read by its id, word for word."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        assert f"word2{LONG}" == (await thread.replay.chunk(made[1])).text


async def test_a_summary_names_every_chunk_that_it_covers() -> None:
    """The parents of a summary are the covered chunks, in their order."""
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(8))
        [chunk] = (await thread.state()).chunks()
        assert ("6.0", *made[4:]) == chunk.parent_ids


@pytest.mark.parametrize("answer", [a_line_each, uncited])
@pytest.mark.parametrize("compactions", [1, 2, 3])
async def test_forgetting_reaches_summaries_of_summaries(answer: object, compactions: int) -> None:
    """A forgotten chunk is in no summary, however many compactions lie between, cited or not."""
    async with opened(Scripted(answer), MERGING) as engine:  # type: ignore[arg-type]  # one of the two above
        thread = await engine.create_thread()
        made = await say(thread, turns(4 * compactions))
        await thread.forget(chunk_ids=[made[1]])
        assert "word2" not in str((await thread.context()).messages)
        assert None is (await thread.replay.verify()).divergence


async def test_forgetting_by_event_reaches_summaries() -> None:
    """All that came of an event is gone, also where only a summary of a summary held it."""
    async with opened(Scripted(uncited), MERGING) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(1))
        [first] = await thread.replay.latest(1)
        await say(thread, turns(7, start=2))
        await thread.forget(event_ids=[first.id])
        assert "word1" not in str((await thread.context()).messages)


@pytest.mark.parametrize("answer", [by_hand, uncited])
@pytest.mark.parametrize("before", [4, 8])
async def test_a_merge_does_not_bring_back_what_was_forgotten(answer: object, before: int) -> None:
    """Summaries that lost a source are never made again from their originals."""
    async with opened(Scripted(answer), MERGING) as engine:  # type: ignore[arg-type]  # one of the two above
        thread = await engine.create_thread()
        made = await say(thread, turns(before))
        await thread.forget(chunk_ids=[made[1]])
        await say(thread, turns(8, start=before + 1))
        context = await thread.context()
        assert [False, True] == [word in str(context.messages) for word in ("word2 ", f"word{before + 8}")]


async def test_a_merge_does_not_bring_back_what_no_line_cited() -> None:
    """A summary that kept all its lines has lost a source all the same: its original stays unread."""

    def but_one(chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        lines = by_hand(chunks, context).lines
        return CompactionResult(lines=tuple(line for line in lines if len(chunks) > 4 or line.text != "word2"))

    async with opened(Scripted(but_one), MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        await thread.forget(chunk_ids=[made[1]])
        await say(thread, turns(4, start=5))
        assert "word2" not in str((await thread.context()).messages)


async def test_forgetting_leaves_the_other_lines() -> None:
    """Lines that cite other chunks stay."""
    async with opened(Scripted(a_line_each), MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(8))
        await thread.forget(chunk_ids=[made[1]])
        [chunk] = (await thread.state()).chunks()
        assert ["word1", *(f"word{n}" for n in range(3, 9))] == [line.text for line in chunk.lines]


async def test_a_long_thread_stays_small() -> None:
    """After more than thirty compactions the state holds no more than the policy allows, and verifies."""
    policy = CompactionPolicy(threshold=10, tokens_min=0, keep_recent=2, summary_tokens_max=200)
    async with opened(EmbeddedCompactor(), policy) as engine:
        thread = await engine.create_thread()
        sizes = []
        for n in range(0, 300, 10):
            await say(thread, turns(10, start=n))
            summaries = [c for c in (await thread.state()).chunks() if c.type == "compacted"]
            sizes.append(sum(chunk.tokens for chunk in summaries))
        assert 30 <= (await types(thread)).count("compaction_completed")
        assert policy.summary_tokens_max * 2 >= max(sizes)
        assert None is (await thread.replay.verify()).divergence


async def test_a_summary_beyond_its_limit_still_ends_in_a_small_state() -> None:
    """A compactor that ignores its budget makes no state grow without end: it is merged each time."""

    def half(chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        lines = tuple(
            SummaryLine(section="key_information", text=c.text[: len(c.text) // 2], sources=(c.id,)) for c in chunks
        )
        return CompactionResult(lines=(*context.earlier, *lines)[-40:])

    async with opened(
        Scripted(half), CompactionPolicy(threshold=5, tokens_min=0, keep_recent=0, summary_tokens_max=400)
    ) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(160))
        assert 40 * 60 + 10 * 110 > (await thread.info()).tokens


async def test_compactions_of_several_threads_do_not_mix() -> None:
    """Ten threads that are compacted at once each stand for their own events only."""

    async def live(engine: Engine, name: str) -> list[str]:
        thread = await engine.create_thread(name)
        made = await say(thread, turns(10))
        assert made == await origins(thread)
        return await texts(thread)

    async with opened(Yielding(answer=a_line)) as engine:
        found = await asyncio.gather(*(live(engine, f"t{n}") for n in range(10)))
        assert [["4", "4", "word9", "word10"]] * 10 == found
