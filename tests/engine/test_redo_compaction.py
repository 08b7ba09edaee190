"""Compactions made again: from the originals, never from a summary's lines, never of what was forgotten."""

import asyncio

import pytest

from memory_engine.errors import (
    CompactionNotLive,
    CompactorFailed,
    IdempotencyConflict,
    NothingToCompact,
)
from tests.conversations import LONG, NEVER, call, note, opened, say, texts, turns, types
from tests.engine.undoing import MERGING, shape, words
from tests.scripted_compactors import Scripted, Yielding, a_line_each, summary


async def test_a_redo_replaces_the_summary_from_the_originals() -> None:
    """The compactor is given the originals, and its summary stands where the former one stood."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(3))
        first = await thread.compact()
        await say(thread, turns(1, start=4))
        other = Scripted(a_line_each, name="other")
        report = await thread.compaction.redo(compactor=other)
        assert (first.new_chunks, "other", "manual") == (report.covered, report.compactor, report.trigger)
        assert made == [chunk.id for chunk in other.given[0]]
        assert ["word1\nword2\nword3", "word4"] == [c.text.removesuffix(LONG) for c in (await thread.state()).chunks()]
        assert made == [chunk.id for chunk in await thread.compaction.originals(report.new_chunks[0])]
        assert first.tokens_before == report.tokens_before
        assert None is (await thread.replay.verify()).divergence


async def test_a_redo_may_be_longer_than_the_summary_but_not_than_the_originals() -> None:
    """What counts is the originals; a result that is longer than those replaces nothing, and the log says so."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        await thread.compact()
        longer = Scripted(lambda _chunks, _context: summary("longer than the first"))
        await thread.compaction.redo(compactor=longer)
        far = Scripted(lambda _chunks, _context: summary("far too long" + LONG * 9))
        with pytest.raises(CompactorFailed, match="no_progress"):
            await thread.compaction.redo(compactor=far)
        assert ["longer"] == await texts(thread)
        assert ["compaction_started", "compaction_failed"] == (await types(thread))[-2:]


async def test_a_redo_reads_through_summaries_of_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """All originals are given, however many tokens they take, and never a line of a summary."""
    monkeypatch.setattr("memory_engine.compaction.protocol.ORIGINAL_TOKENS_MAX", 10)
    compactor = Scripted()
    async with opened(compactor, MERGING) as engine:
        thread = await engine.create_thread()
        made = []
        for start in (1, 4, 7):
            made += await say(thread, turns(3, start=start))
            await thread.compact()
        await thread.compaction.redo()
        assert (made, ()) == ([chunk.id for chunk in compactor.given[-1]], compactor.contexts[-1].earlier)


async def test_each_summary_of_a_compaction_is_redone() -> None:
    """A compaction with several summaries keeps several, each made of its own originals."""
    compactor = Scripted(a_line_each)
    async with opened(compactor, NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, [note(f"note{n}", "compressible") for n in range(3)])
        await thread.compact()
        report = await thread.compaction.redo()
        assert 3 == len(report.new_chunks)
        assert [[chunk_id] for chunk_id in made] == [[chunk.id for chunk in given] for given in compactor.given[-3:]]


async def test_redoing_what_was_undone_compacts_what_came_back() -> None:
    """The restored chunks are compacted, with what was dropped, and with summaries among them by their originals."""
    compactor = Scripted()
    async with opened(compactor, MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(3))
        await thread.compact()
        made += await say(thread, [*turns(2, start=4), note("scrap", "disposable")])
        merged = await thread.compact()
        await thread.compaction.undo()
        await say(thread, turns(1, start=6))
        report = await thread.compaction.redo(merged.compaction_id)
        assert ["5", "word6"] == await texts(thread)
        assert 1 == len(report.dropped)
        assert [f"word{n}" for n in range(1, 6)] == [c.text.partition(" ")[0] for c in compactor.given[-1]]
        assert made[:5] == [chunk.id for chunk in await thread.compaction.originals(report.new_chunks[0])]


async def test_the_engines_compactors_redo_it_as_usual() -> None:
    """Without a compactor of one's own, the first that can take all originals is asked."""
    tools = Scripted(name="tools", takes=lambda chunk: bool(chunk.calls or chunk.call_id))
    async with opened(Scripted(name="words"), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        await thread.compact()
        await say(thread, call("a"))
        await thread.compact()
        engine.register_compactor(tools)
        first, second = await thread.compaction.history()
        assert "words" == (await thread.compaction.redo(first.compaction_id)).compactor
        assert "tools" == (await thread.compaction.redo(second.compaction_id)).compactor


async def test_a_compactor_that_cannot_take_it_is_not_helped_out() -> None:
    """A compactor that was given is asked alone: where it cannot, nothing is recorded."""
    deaf = Scripted(name="deaf", takes=lambda _: False)
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        await thread.compact()
        before = await thread.info()
        with pytest.raises(CompactorFailed, match="it cannot take chunk"):
            await thread.compaction.redo(compactor=deaf)
        assert before == await thread.info()


@pytest.mark.parametrize("undone", [False, True])
@pytest.mark.parametrize("nested", [False, True])
async def test_what_was_forgotten_is_never_given_to_a_compactor(undone: bool, nested: bool) -> None:
    """A redo reads only what was not forgotten, live or undone, through summaries of summaries too."""
    compactor = Scripted(a_line_each)
    async with opened(compactor, MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(3))
        await thread.compact()
        if nested:
            await thread.forget(chunk_ids=[made[1]])
            await say(thread, turns(2, start=4))
            await thread.compact()
        else:
            await thread.forget(chunk_ids=[made[1]])
        if undone:
            await thread.compaction.undo()
        before = len(compactor.given)
        await thread.compaction.redo()
        given = [chunk.text for chunks in compactor.given[before:] for chunk in chunks]
        assert given
        assert not [text for text in given if "word2" in text]
        earlier = [line.text for context in compactor.contexts[before:] for line in context.earlier]
        assert [] == earlier
        assert "word2" not in await words(thread)


async def test_where_all_is_forgotten_there_is_nothing_to_redo() -> None:
    """A summary of which nothing is left is not made again."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(2))
        await thread.compact()
        await thread.forget(chunk_ids=made)
        with pytest.raises(CompactionNotLive, match="everything that it covered was forgotten"):
            await thread.compaction.redo()


async def test_what_cannot_be_redone_is_said() -> None:
    """Covered, dropped only, marked critical, undone and compacted again, or gone: each with its reason."""
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        await say(thread, [note("scrap", "disposable")])
        dropped = await thread.compact()
        with pytest.raises(CompactionNotLive, match="it dropped chunks and made no summary"):
            await thread.compaction.redo(dropped.compaction_id)
        await say(thread, turns(2))
        first = await thread.compact()
        await thread.compaction.undo()
        second = await thread.compact()
        with pytest.raises(CompactionNotLive, match=f"{second.compaction_id}'.* covers what came back: redo that"):
            await thread.compaction.redo(first.compaction_id)
        await say(thread, turns(2, start=3))
        third = await thread.compact()
        with pytest.raises(CompactionNotLive, match=f"{third.compaction_id}'.* covers its summary: redo that"):
            await thread.compaction.redo(second.compaction_id)
        await thread.compaction.mark_critical(*third.new_chunks)
        with pytest.raises(CompactionNotLive, match="was marked CRITICAL"):
            await thread.compaction.redo()
        await thread.compaction.undo()
        restored = [chunk.id for chunk in (await thread.state()).chunks()]
        await thread.forget(chunk_ids=restored)
        with pytest.raises(CompactionNotLive, match="nothing of what came back stands any more"):
            await thread.compaction.redo(third.compaction_id)


async def test_what_came_back_and_was_marked_critical_is_not_redone() -> None:
    """Chunks that were marked since stay word for word."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        await thread.compact()
        restored = (await thread.compaction.undo()).chunks
        await thread.compaction.mark_critical(*(chunk.id for chunk in restored))
        with pytest.raises(NothingToCompact, match="what came back is critical"):
            await thread.compaction.redo()


async def test_a_redo_can_be_undone() -> None:
    """Undoing a redo gives the former summary, undoing that the originals."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        before = shape(await thread.state())
        await thread.compact()
        compacted = shape(await thread.state())
        await thread.compaction.redo(compactor=Scripted(a_line_each))
        await thread.compaction.undo()
        assert compacted == shape(await thread.state())
        await thread.compaction.undo()
        assert before == shape(await thread.state())


async def test_redos_and_undos_at_once_come_one_after_the_other() -> None:
    """However they are mixed, each sees what the former did; the log verifies and nothing waits for ever."""
    async with opened(Yielding(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        await thread.compact()
        done = await asyncio.gather(
            thread.compaction.redo(), thread.compaction.undo(), thread.compact(), thread.undo_compaction(),
            return_exceptions=True,
        )  # fmt: skip
        assert [] == [one for one in done if isinstance(one, IdempotencyConflict | AssertionError)]
        assert (None, None) == (await thread.admin.blocking_reason(), (await thread.replay.verify()).divergence)
