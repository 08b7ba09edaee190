"""Undoing a compaction never brings back what was forgotten; search, forks and the past follow."""

from pathlib import Path

import pytest

from memory_engine.errors import (
    CompactionNotLive,
)
from tests.conversations import LONG, NEVER, log, note, opened, say, texts, turns
from tests.engine.undoing import MERGING, shape, words
from tests.scripted_compactors import Scripted, a_line_each, summary


@pytest.mark.parametrize("by_event", [False, True])
@pytest.mark.parametrize("answer", [a_line_each, lambda _chunks, _context: summary("word1 word2 word3")])
async def test_what_was_forgotten_never_comes_back(answer: object, by_event: bool) -> None:
    """Forgotten while its summary stood (which lost a line, or was withheld): the others come back without it."""
    async with opened(Scripted(answer), NEVER) as engine:  # type: ignore[arg-type]  # one of the two above
        thread = await engine.create_thread()
        made = await say(thread, turns(3))
        event_id = (await log(thread))[1].id
        await thread.compact()
        await (thread.forget(event_ids=[event_id]) if by_event else thread.forget(chunk_ids=[made[1]]))
        await thread.compaction.undo()
        assert ["word1", "word3"] == await texts(thread)
        assert None is (await thread.replay.verify()).divergence


async def test_a_forgotten_scrap_stays_away() -> None:
    """What was dropped and then forgotten does not come back with the rest."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, [note("scrap", "disposable"), note("other", "disposable")])
        await thread.compact()
        await thread.forget(chunk_ids=[made[0]])
        await thread.compaction.undo()
        assert ["other"] == await texts(thread)


async def test_where_all_is_forgotten_nothing_comes_back() -> None:
    """The withheld summary goes, and that is all."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(2))
        await thread.compact()
        await thread.forget(chunk_ids=made)
        assert () == (await thread.compaction.undo()).chunks
        assert [] == await texts(thread)


@pytest.mark.parametrize("answer", [a_line_each, lambda _chunks, _context: summary("word1 word2 word3")])
async def test_an_earlier_summary_comes_back_without_what_was_forgotten(answer: object) -> None:
    """Forgotten while a summary of the summary stood: the inner one is shortened as it would have been."""
    async with opened(Scripted(answer), MERGING) as engine:  # type: ignore[arg-type]  # one of the two above
        thread = await engine.create_thread()
        made = await say(thread, turns(3))
        await thread.compact()
        await say(thread, turns(3, start=4))
        await thread.compact()
        await thread.forget(chunk_ids=[made[1]])
        await thread.compaction.undo()
        assert "word2" not in await words(thread)
        assert "word5" in await words(thread)
        await thread.compaction.undo()
        assert ["word1", "word3", "word4", "word5", "word6"] == await texts(thread)


async def test_a_forgotten_summary_takes_its_originals_along() -> None:
    """An inner summary that was forgotten as such does not come back."""
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        inner = await thread.compact()
        await say(thread, turns(2, start=4))
        await thread.compact()
        await thread.forget(chunk_ids=inner.new_chunks)
        await thread.compaction.undo()
        assert ["word4", "word5"] == await texts(thread)


@pytest.mark.parametrize("times", [1, 2])
async def test_forgetting_an_original_hides_what_came_back(times: int) -> None:
    """After an undo, to forget the original, by chunk or event, hides the restored version, here and in search."""
    for by_event in (False, True):
        async with opened(Scripted(), NEVER) as engine:
            thread = await engine.create_thread()
            made = await say(thread, turns(3))
            event_id = (await log(thread))[1].id
            for _ in range(times):
                await thread.compact()
                await thread.compaction.undo()
            assert 1 == sum("word2" in hit.text for hit in (await thread.search("word2")).hits)
            await (thread.forget(event_ids=[event_id]) if by_event else thread.forget(chunk_ids=[made[1]]))
            assert ["word1", "word3"] == await texts(thread)
            assert [] == [hit for hit in (await thread.search("word2")).hits if "word2" in hit.text]


async def test_forgetting_what_came_back_hides_the_original() -> None:
    """To forget a restored chunk by its own id reaches the original: search finds it no more, no redo reads it."""
    compactor = Scripted()
    async with opened(compactor, NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        await thread.search("word2")
        await thread.compact()
        restored = (await thread.compaction.undo()).chunks
        await thread.forget(chunk_ids=[restored[1].id])
        assert [] == [hit for hit in (await thread.search("word2")).hits if "word2" in hit.text]
        await thread.compaction.redo()
        assert ["word1", "word3"] == [chunk.text.partition(" ")[0] for chunk in compactor.given[-1]]


async def test_search_finds_each_passage_once() -> None:
    """An undone compaction adds nothing to the index, and its summary is found no more."""
    async with opened(Scripted(lambda _chunks, _context: summary("word2 in short", "1.0")), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        await thread.compact()
        found = await thread.search("word2", kinds=["message", "summary"])
        assert {"message", "summary"} == {hit.kind for hit in found.hits}
        await thread.compaction.undo()
        found = await thread.search("word2", kinds=["message", "summary"])
        assert [("message", 2)] == [(hit.kind, hit.seq) for hit in found.hits if "word2" in hit.text]
        context = await thread.context(query="word2")
        assert () == context.recalled


async def test_a_fork_a_rebuild_and_the_past_agree(tmp_path: Path) -> None:
    """The state is the fold of the log, before and after the undo, in a fork too."""
    path = str(tmp_path / "memory.db")
    async with opened(Scripted(), NEVER, path) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(3))
        await thread.compact()
        before = await thread.fork(thread_id="before")
        await thread.compaction.undo()
        after = await thread.fork(thread_id="after")
        live = await thread.state()
        await thread.replay.rebuild()
        assert live == await thread.state() == await after.state()
        assert ["3"] == [chunk.text.partition(" ")[0] for chunk in (await thread.state(at=5)).chunks()]
        await before.compaction.undo()
        assert shape(live) == shape(await before.state())
        with pytest.raises(CompactionNotLive, match="no compaction of this thread stands"):
            await after.compaction.undo()
        assert [None] * 3 == [report.divergence for report in await engine.verify()]


async def test_an_old_answer_that_comes_back_is_no_part_of_the_question_at_hand() -> None:
    """The messages of a conversation whose old exchanges were compacted and came back say nothing twice."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        for n in range(3):
            await thread.conversation.prepare_messages(f"question {n}?" + LONG)
            await thread.conversation.finalize_cycle(f"question {n}?" + LONG, f"answer {n}" + LONG)
        await thread.conversation.prepare_messages("and now?")
        before = await thread.conversation.messages()
        await thread.compact()
        await thread.compaction.undo()
        assert before == await thread.conversation.messages()
