"""Compaction: when it starts, what it takes, what stands afterwards, and what the log says of it."""

import asyncio
from pathlib import Path

import pytest

import memory_engine
from memory_engine import (
    Chunk,
    CompactionCompleted,
    CompactionPolicy,
    CompactionStarted,
    ContextPolicy,
    EngineConfig,
    Plugin,
    SessionEnded,
    UserMessage,
)
from memory_engine.context.rendering import RECORDS, SUMMARY_TITLE
from memory_engine.errors import NothingToCompact, UnknownChunk
from tests.conversations import LONG, NEVER, SMALL, call, note, of_type, opened, say, texts, turns, types
from tests.scripted_compactors import Scripted, Yielding, a_line, a_line_each, summary

STARTED, COMPLETED = "compaction_started", "compaction_completed"
HUGE = 1_000_000


@pytest.mark.parametrize(
    ("policy", "said", "expected"),
    [
        (CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0), 4, [STARTED, COMPLETED]),
        (CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0), 3, []),
        (CompactionPolicy(threshold=HUGE, tokens_min=0, soft_tokens=150, keep_recent=0), 2, [STARTED, COMPLETED]),
        (CompactionPolicy(threshold=HUGE, tokens_min=0, soft_tokens=150, keep_recent=0), 1, []),
        (CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0, enabled=False), 9, []),
    ],
)
async def test_a_threshold_starts_a_compaction(policy: CompactionPolicy, said: int, expected: list[str]) -> None:
    """The count or the tokens of compactable chunks start one in the background; below, or disabled, none starts."""
    async with opened(Scripted(), policy) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(said))
        assert expected == await types(thread)


async def test_over_the_hard_limit_a_context_waits_for_a_compaction() -> None:
    """A context asked for over the hard limit holds the summary and no original."""
    policy = CompactionPolicy(threshold=HUGE, tokens_min=0, soft_tokens=HUGE, hard_tokens=200, keep_recent=0)
    async with opened(Scripted(), policy) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        context = await thread.context(policy=ContextPolicy(blocks=()))
        assert [f"{SUMMARY_TITLE} {RECORDS}\n## Progress Summary\n\n### Current State\n\n> 4 in short"] == [
            message["content"] for message in context.messages
        ]
        assert ["hard"] == [e.trigger for e in await of_type(thread, COMPLETED) if isinstance(e, CompactionCompleted)]


async def test_contexts_that_wait_together_compact_once() -> None:
    """Two contexts over the hard limit wait for one compaction: the second finds nothing left to do."""
    policy = CompactionPolicy(threshold=HUGE, tokens_min=0, soft_tokens=HUGE, hard_tokens=300, keep_recent=2)
    async with opened(Yielding(), policy) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(6))
        await asyncio.gather(thread.context(), thread.context())
        assert [STARTED, COMPLETED] == await types(thread)


async def test_a_threads_own_policy_stands_before_the_engines() -> None:
    """A thread created with a policy is compacted by it, in a later engine too."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread(policy=SMALL)
        await say(thread, turns(4))
        assert [STARTED, COMPLETED] == await types(thread)


async def test_a_threads_own_policy_is_kept(tmp_path: Path) -> None:
    """The policy of a thread is stored with it."""
    path = str(tmp_path / "memory.db")
    async with opened(Scripted(), NEVER, path) as engine:
        await engine.create_thread("t", policy=SMALL)
    async with opened(Scripted(), NEVER, path) as engine:
        assert SMALL == (await engine.thread("t").info()).policy


async def test_disposable_chunks_go_first() -> None:
    """Where dropping DISPOSABLE chunks gets below the threshold, nothing is summarised."""
    compactor = Scripted()
    async with opened(compactor, CompactionPolicy(threshold=5, tokens_min=0, keep_recent=0)) as engine:
        thread = await engine.create_thread()
        await say(thread, [*turns(3), note("scrap", "disposable"), note("scrap", "disposable")])
        assert ["word1", "word2", "word3"] == await texts(thread)
        assert [] == compactor.given


async def test_disposable_chunks_go_without_a_summary_beside_others_that_get_one() -> None:
    """A compaction that summarises drops the DISPOSABLE chunks: no compactor sees them."""
    compactor = Scripted()
    async with opened(compactor) as engine:
        thread = await engine.create_thread()
        await say(thread, [note("scrap", "disposable")])
        await say(thread, turns(4))
        assert ["4"] == await texts(thread)
        assert [["word1", "word2", "word3", "word4"]] == [
            [chunk.text.partition(" ")[0] for chunk in given] for given in compactor.given
        ]


async def test_compressible_chunks_are_summarised_one_by_one() -> None:
    """Each COMPRESSIBLE chunk gets a summary of its own, in its place."""
    async with opened(Scripted(a_line_each)) as engine:
        thread = await engine.create_thread()
        made = await say(thread, [note(f"note{n}", "compressible") for n in range(4)])
        summaries = list((await thread.state()).chunks())
        assert [(chunk_id,) for chunk_id in made] == [chunk.parent_ids for chunk in summaries]
        assert ["note0", "note1", "note2", "note3"] == [chunk.text for chunk in summaries]


async def test_batch_compressible_chunks_are_summarised_together() -> None:
    """All BATCH_COMPRESSIBLE chunks get one summary."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        assert [tuple(made)] == [chunk.parent_ids for chunk in (await thread.state()).chunks()]


async def test_critical_chunks_are_never_compacted() -> None:
    """What was marked critical stands word for word, whatever is compacted around it."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(5))
        await thread.compaction.mark_critical(made[2])
        await thread.compact()
        assert ["4", "word3"] == await texts(thread)


async def test_ephemeral_chunks_go_with_the_session() -> None:
    """An EPHEMERAL chunk outlives every compaction and goes at the session's end."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread()
        await say(thread, [note("brief", "ephemeral"), *turns(4)])
        assert ["brief", "4"] == await texts(thread)
        await thread.dispatch(SessionEnded())
        assert ["4"] == await texts(thread)


async def test_the_newest_chunks_stay_as_they_are() -> None:
    """`keep_recent` chunks are left out of an automatic compaction."""
    async with opened(Scripted(), CompactionPolicy(threshold=6, tokens_min=0, keep_recent=2)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(6))
        assert ["4", "word5", "word6"] == await texts(thread)


async def test_the_log_says_what_a_compaction_did() -> None:
    """Started and completed name the chunks, the compactor, its model and what was won."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        before = sum([(await thread.replay.chunk(chunk_id)).tokens for chunk_id in made])
        started, completed = await of_type(thread, STARTED), await of_type(thread, COMPLETED)
        match started, completed:
            case [CompactionStarted() as first], [CompactionCompleted() as last]:
                assert (tuple(made), "scripted", "auto") == (first.chunk_ids, first.compactor, first.trigger)
                assert (first.compaction_id, before, 4) == (
                    last.compaction_id,
                    last.tokens_before,
                    last.tokens_after,
                )
                assert [tuple(made)] == [replacement.covers for replacement in last.replacements]
            case _:
                pytest.fail(f"{started}, {completed}")


async def test_a_compacted_thread_verifies() -> None:
    """Replay makes the same operations of a log with compactions, without asking a compactor."""
    compactor = Scripted()
    async with opened(compactor) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(13))
        asked = len(compactor.given)
        report = await thread.replay.verify()
        assert (None, asked) == (report.divergence, len(compactor.given))


async def test_a_manual_compaction_takes_everything_it_may() -> None:
    """`compact()` takes all compactable chunks, the newest too, and reports what it did."""
    async with opened(Scripted(), CompactionPolicy(enabled=False, keep_recent=6)) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(3))
        report = await thread.compact()
        assert (tuple(made), "manual") == (report.covered, report.trigger)
        assert ["3"] == await texts(thread)


async def test_a_manual_compaction_takes_the_given_chunks_with_their_partners() -> None:
    """A call that is named takes its result along; what was not named stays."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, [*turns(2), *call("a"), *turns(2, start=3)])
        report = await thread.compact([made[2]])
        assert (made[2], made[3]) == report.covered
        assert ["word1", "word2", "2", "word3", "word4"] == await texts(thread)


async def test_a_manual_compaction_takes_chunks_as_they_are() -> None:
    """What a state gives can be given back, mixed with ids, from a list or any other collection."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        chunks = list((await thread.state()).chunks())
        wanted: tuple[str | Chunk, ...] = (chunks[1], chunks[2].id)
        report = await thread.compact(wanted)
        assert (made[1], made[2]) == report.covered


async def test_a_manual_compaction_of_an_unknown_chunk_is_refused() -> None:
    """An id that is not in the state is an error that names it, and nothing is recorded."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        with pytest.raises(UnknownChunk, match=r"99\.0"):
            await thread.compact(["99.0"])
        assert [] == await types(thread)


async def test_nothing_to_compact_is_said_and_not_recorded() -> None:
    """Where every chunk is critical there is nothing to do, and the log stays as it was."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [note("rule", "critical")])
        with pytest.raises(NothingToCompact):
            await thread.compact()
        assert [] == await types(thread)


async def test_asking_in_vain_does_not_put_off_the_next_compaction() -> None:
    """A manual compaction that finds nothing is no failure of the compactor: no back-off follows."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread()
        for _ in range(3):
            with pytest.raises(NothingToCompact):
                await thread.compact()
        await say(thread, turns(4))
        assert ["4"] == await texts(thread)


async def test_the_compactor_of_highest_priority_that_can_is_asked() -> None:
    """Of the compactors that can take a chunk, the one of the highest priority does."""
    low, high, deaf = (
        Scripted(name="low"),
        Scripted(name="high"),
        Scripted(name="deaf", takes=lambda _: False),
    )
    plugin = Plugin("compactors")
    for compactor, priority in ((low, 20), (deaf, 40), (high, 30)):
        plugin.compactor(compactor, priority=priority)
    async with memory_engine.open(":memory:", plugins=[plugin], config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        assert "high" == (await thread.compact()).compactor


async def test_a_registered_compactor_is_asked_first() -> None:
    """`register_compactor` puts a compactor before all others."""
    async with opened(Scripted(name="old"), NEVER) as engine:
        engine.register_compactor(Scripted(name="new"))
        thread = await engine.create_thread()
        await say(thread, turns(2))
        assert "new" == (await thread.compact()).compactor


async def test_compactors_share_a_batch_by_what_they_can_take() -> None:
    """Each chunk goes to the first compactor that can take it, and each makes a summary of its own."""
    tools = Scripted(name="tools", takes=lambda chunk: bool(chunk.calls or chunk.call_id))
    async with opened(Scripted(name="words"), NEVER) as engine:
        engine.register_compactor(tools)
        thread = await engine.create_thread()
        made = await say(thread, [*turns(2), *call("a"), *turns(2, start=3)])
        await thread.compact()
        assert [(*made[:2], *made[4:]), tuple(made[2:4])] == [c.parent_ids for c in (await thread.state()).chunks()]


async def test_a_fork_keeps_its_own_compactions() -> None:
    """A compaction of a fork leaves the branch it left untouched, and the other way round."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        fork = await thread.fork()
        await fork.compact()
        assert (["4"], ["word1", "word2", "word3", "word4"]) == (await texts(fork), await texts(thread))
        await say(thread, turns(1, start=5))
        await thread.compact()
        assert (["4"], ["5"]) == (await texts(fork), await texts(thread))
        assert [None, None] == [report.divergence for report in await engine.verify()]


async def test_a_fork_from_before_a_compaction_has_the_originals() -> None:
    """Forking at an earlier seq forks the state of that seq, not the summary that came later."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        await thread.compact()
        fork = await thread.fork(at=3)
        assert ["word1", "word2", "word3"] == await texts(fork)


async def test_a_summary_is_a_note_to_the_model_in_the_place_of_what_it_covers() -> None:
    """A summary stands where the first covered chunk stood, before all that came later."""
    async with opened(Scripted(), CompactionPolicy(threshold=6, tokens_min=0, keep_recent=2)) as engine:
        thread = await engine.create_thread()
        await say(thread, [note("rule", "critical"), *turns(6)])
        context = await thread.context(policy=ContextPolicy(blocks=()))
        assert ["rule", "4", "word5", "word6"] == [chunk.text.partition(" ")[0] for chunk in context.chunks]


async def test_an_incompressible_note_is_asked_about_once() -> None:
    """A COMPRESSIBLE chunk that did not get shorter is not given to a compactor again and again."""
    compactor = Scripted(
        lambda chunks, context: a_line(chunks, context) if len(chunks) > 1 else summary(chunks[0].text)
    )
    async with opened(compactor) as engine:
        thread = await engine.create_thread()
        await say(thread, [UserMessage(content=f"start{LONG}"), note("stiff", "compressible")])
        await say(thread, turns(30))
        assert 1 == sum(given[0].text.startswith("stiff") for given in compactor.given if len(given) == 1)
