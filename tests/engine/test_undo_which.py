"""Which compaction is undone, and when: named in several ways, one at a time, and not compacted again at once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import memory_engine
from memory_engine import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionPolicy,
    CompactionStarted,
    CompactionUndone,
    EngineConfig,
    Replacement,
    RestoredChunk,
)
from memory_engine.compaction.service import CompactionService
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.errors import (
    CompactionNotLive,
    EventTooLarge,
    ReducerError,
    StaleEvent,
    ThreadClosed,
)
from memory_engine.events import SummaryLine
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.reader import PAGE
from memory_engine.thread import handle_of
from tests.conversations import NEVER, note, opened, say, texts, turns, types
from tests.engine.undoing import MERGING
from tests.scripted_compactors import Held, Scripted, a_line_each


async def test_a_compaction_is_named_by_its_id_or_its_summary() -> None:
    """By the id of the compaction, by that of its summary, also one that a forgetting has since shortened."""
    async with opened(Scripted(a_line_each), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(6))
        first = await thread.compact(made[:2])
        second = await thread.compact(made[2:4])
        third = await thread.compact(made[4:])
        await thread.forget(chunk_ids=[made[4]])
        version = next(c for c in (await thread.state()).chunks() if c.parent_ids == third.new_chunks)
        for named in (first.compaction_id, second.new_chunks[0], version.id):
            await thread.compaction.undo(named)
        assert ["word1", "word2", "word3", "word4", "word6"] == await texts(thread)


async def test_the_latest_that_stands_is_undone() -> None:
    """Without a name it is the latest compaction that was not undone yet."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(6))
        first = await thread.compact(made[:3])
        second = await thread.compact(made[3:])
        undone = []
        for _ in range(2):
            receipt = await thread.compaction.undo()
            [event] = [recorded.event for recorded in await thread.replay.latest(1)]
            assert isinstance(event, CompactionUndone)
            assert receipt.event_id == f"undo:{event.compaction_id}:{event.completed}"
            undone.append(event.compaction_id)
        assert [second.compaction_id, first.compaction_id] == undone


async def test_one_that_a_later_compaction_covers_is_not_undone() -> None:
    """The error names the later one; after that was undone, it goes."""
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        first = await thread.compact()
        await say(thread, turns(3, start=4))
        second = await thread.compact()
        seq = (await thread.info()).events
        with pytest.raises(CompactionNotLive, match=f"{second.compaction_id}' .event {seq}. covers its summary: undo"):
            await thread.compaction.undo(first.compaction_id)
        assert seq == (await thread.info()).events
        await thread.compaction.undo(second.compaction_id)
        await thread.compaction.undo(first.compaction_id)
        assert [f"word{n}" for n in range(1, 7)] == await texts(thread)


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("", "no compaction of this thread stands"),
        ("nobody", "it is not the id of a summary"),
        ("7.0", "no summary of this id"),
        ("1.0", "no summary of this id"),
        ("1.99999999999999999999999999", "it is not the id of a summary"),
        ("9999999999999999.0", "no summary of this id"),
        ("\x1b[31m", "it is not the id of a summary"),
    ],
)
async def test_what_is_no_compaction_is_said(named: str, why: str) -> None:
    """An id of nothing, of no summary, or none where there is none: a typed error, and the log is as it was."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        for asking in (thread.compaction.undo, thread.compaction.redo):
            with pytest.raises(CompactionNotLive, match=why):
                await asking(named)
        assert 2 == (await thread.info()).events


async def test_one_that_was_undone_is_not_undone_again() -> None:
    """The error says which event has done it."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        report = await thread.compact()
        undone = await thread.compaction.undo()
        with pytest.raises(CompactionNotLive, match=f"event {undone.seq} has undone it already"):
            await thread.compaction.undo(report.compaction_id, reason="again")


async def test_one_that_never_came_to_its_end_is_not_undone() -> None:
    """Started, failed or abandoned: nothing was replaced, and the error says which it is."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        for name in ("k1", "k2", "k3"):
            await thread.dispatch(
                CompactionStarted(
                    compaction_id=name, trigger="auto", chunk_ids=(), compactor="c", owner="x", deadline_us=1
                )
            )
        await thread.dispatch(CompactionFailed(compaction_id="k2", compactor="c", reason="raised"))
        await thread.dispatch(CompactionAbandoned(compaction_id="k3", reason="cancelled"))
        for name, why in (("k1", "not finished"), ("k2", "nothing .raised."), ("k3", "nothing .cancelled.")):
            with pytest.raises(CompactionNotLive, match=why):
                await thread.compaction.undo(name)


async def test_two_compactions_of_one_id_are_told_apart() -> None:
    """In a log from elsewhere an id may come twice: the latest that stands is meant."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        line = SummaryLine("next_steps", "Go on.")
        for covers in (made[:2], made[2:]):
            replaced = (Replacement(tuple(covers), (line,)),)
            await thread.dispatch(
                CompactionCompleted(compaction_id="k", trigger="manual", replacements=replaced, compactor="c")
            )
        await thread.compaction.undo("k")
        assert ["Go", "word3", "word4"] == await texts(thread)
        await thread.compaction.undo("k")
        assert ["word1", "word2", "word3", "word4"] == await texts(thread)


async def test_an_undo_reads_only_what_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many compactions a log holds, the latest is found at its end, and an old one by its id or its summary."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = []
        for n in range(330):  # more events than several pages of the log
            taken = await thread.dispatch_all(turns(2, start=2 * n))
            made.append(await thread.compact([chunk.id for receipt in taken for chunk in receipt.chunks]))
        store, upto = handle_of(thread).kernel.store, (await thread.info()).events
        read, first = store.read, upto

        async def noted(thread_id: str, *, after: int, **bounds: Any) -> Sequence[StoredEvent]:
            nonlocal first
            first = min(first, after)
            return await read(thread_id, after=after, **bounds)

        monkeypatch.setattr(store, "read", noted)
        await thread.compaction.undo()
        await thread.compaction.redo(made[-1].compaction_id)
        await thread.compaction.undo(made[-2].new_chunks[0])
        assert upto - first <= 2 * PAGE
        for old in (made[0].compaction_id, made[1].new_chunks[0]):
            await thread.compaction.undo(old)
        assert ["word0", "word1", "word2", "word3"] == (await texts(thread))[:4]


async def test_what_became_of_compactions_is_listed() -> None:
    """Live, covered, undone and gone, each with the event that made it so."""
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        assert [] == list(await thread.compaction.history())
        await say(thread, turns(2))
        await thread.compact()
        await thread.compaction.undo()
        await thread.compact()
        await say(thread, turns(2, start=3))
        report = await thread.compact()
        found = await thread.compaction.history()
        seqs = [one.seq for one in found]
        assert [("undone", seqs[0] + 1), ("covered", seqs[2]), ("live", 0)] == [(one.status, one.by) for one in found]
        assert report.new_chunks == found[2].summaries
        assert found[2].as_data()["covered"] == list(report.covered)
        await thread.forget(chunk_ids=report.new_chunks)
        head = (await thread.info()).events
        assert ("gone", head) == ((last := (await thread.compaction.history())[-1]).status, last.by)
        with pytest.raises(CompactionNotLive, match=f"gone since event {head}: what it covered stays away"):
            await thread.compaction.undo()


async def test_an_undo_waits_for_a_compaction_under_way() -> None:
    """Asked for while a compactor works, it undoes that very compaction, once it is done."""
    compactor = Held()
    async with opened(compactor) as engine:
        thread = await engine.create_thread()
        for event in turns(4):
            await thread.dispatch(event)
        await compactor.entered.wait()
        undoing = asyncio.ensure_future(thread.compaction.undo())
        later = asyncio.ensure_future(thread.dispatch(turns(1, start=5)[0]))
        await asyncio.sleep(0)
        assert not undoing.done()
        compactor.release.set()
        await asyncio.gather(undoing, later)
        assert sorted(["word1", "word2", "word3", "word4", "word5"]) == sorted(await texts(thread))


async def test_of_two_tasks_one_undoes_it() -> None:
    """The other is told that it was undone already, or has the same receipt; the log holds it once."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        report = await thread.compact()
        done = await asyncio.gather(
            *(thread.compaction.undo(report.compaction_id, reason=str(n)) for n in range(4)), return_exceptions=True
        )
        assert [CompactionNotLive] * 3 == [type(one) for one in done[1:]]
        assert 1 == (await types(thread)).count("compaction_undone")


@pytest.mark.parametrize("reasons", [("", ""), ("a", "b")])
async def test_of_two_engines_one_undoes_it(tmp_path: Path, reasons: tuple[str, str]) -> None:
    """Two engines on one file, neither of which has seen the other's commit: one event, one state."""
    path = str(tmp_path / "memory.db")
    async with opened(Scripted(), NEVER, path) as one, opened(Scripted(), NEVER, path) as other:
        thread = await one.create_thread("t")
        await say(thread, turns(3))
        await thread.compact()
        await other.thread("t").state()
        done = await asyncio.gather(
            *(engine.thread("t").compaction.undo(reason=r) for engine, r in zip((one, other), reasons, strict=True)),
            return_exceptions=True,
        )
        for outcome in done:
            assert isinstance(outcome, memory_engine.Receipt | CompactionNotLive), outcome
        assert 1 == (await types(thread)).count("compaction_undone")
        for engine in (one, other):  # other processes' commits are seen within `follow_s`
            while ["word1", "word2", "word3"] != await texts(engine.thread("t")):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        assert None is (await other.thread("t").replay.verify()).divergence


async def test_what_another_engine_forgets_meanwhile_stays_away(tmp_path: Path) -> None:
    """An undo that is made of a state which is not the newest is made anew."""
    path = str(tmp_path / "memory.db")
    async with opened(Scripted(), NEVER, path) as one, opened(Scripted(), NEVER, path) as other:
        thread = await one.create_thread("t")
        made = await say(thread, [*turns(2), note("scrap", "disposable")])
        await thread.compact()
        runtime = await kernel_of(one)[OpenThreads].open("t")
        look = kernel_of(one)[CompactionService]._look  # the moment between looking and writing is what this is about

        async def forget_then_go_on(given: object) -> None:
            await look(runtime)
            if runtime.head.seq == 5:
                await other.thread("t").forget(chunk_ids=[made[2], made[0]])

        kernel_of(one)[CompactionService]._look = forget_then_go_on  # type: ignore[method-assign, assignment]
        await thread.compaction.undo()
        assert ["word2"] == await texts(thread)


async def test_events_that_wait_come_after_the_undo() -> None:
    """What is dispatched while an undo is at work waits for it, and a cancelled caller does not stop it."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        await thread.compact()
        undoing = asyncio.ensure_future(thread.compaction.undo())
        await asyncio.sleep(0)
        sent = [asyncio.ensure_future(thread.dispatch(event)) for event in turns(3, start=4)]
        undoing.cancel()
        await asyncio.gather(*sent)
        await thread.compaction.settle()
        assert [f"word{n}" for n in range(1, 7)] == await texts(thread)


async def test_an_event_made_of_an_older_state_is_refused() -> None:
    """The event itself says which state it was made of; after any other it changes nothing."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        one = RestoredChunk(
            original="1.0", type="note", retention="critical", category="working_flow", parent_ids=("1.0",)
        )
        event = CompactionUndone(compaction_id="k", completed=1, summaries=(), restored=(one,), seen=2)
        with pytest.raises(ReducerError, match="after event 2 and comes after event 3") as raised:
            await thread.dispatch(event)
        assert isinstance(raised.value.__cause__, StaleEvent)
        await thread.dispatch(msgspec.structs.replace(event, seen=3))
        with pytest.raises(ReducerError, match="is not a valid Retention"):
            await thread.dispatch(
                msgspec.structs.replace(event, restored=(msgspec.structs.replace(one, retention="x"),), seen=0)
            )
        assert 4 == (await thread.info()).events


async def test_a_closed_thread_is_not_undone() -> None:
    """An archived thread takes no events; a paused one does, as it takes compactions."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        await thread.compact()
        await thread.admin.pause()
        await thread.compaction.undo()
        await thread.admin.resume()
        await thread.compact()
        await thread.admin.archive()
        with pytest.raises(ThreadClosed):
            await thread.compaction.undo()


async def test_originals_that_no_event_can_hold_stay_covered() -> None:
    """Where the originals together are larger than an event may be, a typed error, and the log is as it was."""
    config = EngineConfig(compaction=NEVER, event_bytes_max=2_000)
    async with memory_engine.open(":memory:", compactor=Scripted(), config=config) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(8))
        await thread.compact()
        before = await thread.info()
        with pytest.raises(EventTooLarge):
            await thread.compaction.undo()
        assert before == await thread.info()
        assert None is await thread.admin.blocking_reason()


async def test_what_came_back_is_not_compacted_again_at_once() -> None:
    """The next automatic compaction waits until half a threshold has come."""
    policy = CompactionPolicy(threshold=8, tokens_min=0, keep_recent=0)
    async with opened(Scripted(), policy) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(8))
        await thread.compaction.undo()
        await say(thread, turns(3, start=9))
        assert 11 == len(await texts(thread))
        await say(thread, turns(1, start=12))
        assert ["12"] == await texts(thread)
        await say(thread, turns(8, start=13))
        assert ["12", "8"] == await texts(thread)


@pytest.mark.parametrize("said", [0, 2])
async def test_that_holds_after_reopening(tmp_path: Path, said: int) -> None:
    """A file that is opened again still spares what came back, and counts what came since."""
    path = str(tmp_path / "memory.db")
    policy = CompactionPolicy(threshold=8, tokens_min=0, keep_recent=0)
    async with opened(Scripted(), policy, path) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(8))
        await thread.compaction.undo()
        await say(thread, turns(said, start=9))
    async with opened(Scripted(), policy, path) as engine:
        thread = engine.thread("t")
        await say(thread, turns(3 - said, start=9 + said))
        assert 11 == len(await texts(thread))
        await say(thread, turns(1, start=12))
        assert ["12"] == await texts(thread)


async def test_that_holds_in_another_engine(tmp_path: Path) -> None:
    """Who has the thread open while somebody else undoes a compaction spares what came back too."""
    path = str(tmp_path / "memory.db")
    policy = CompactionPolicy(threshold=8, tokens_min=0, keep_recent=0)
    async with opened(Scripted(), policy, path) as one, opened(Scripted(), policy, path) as other:
        thread = await one.create_thread("t")
        await say(thread, turns(8))
        await other.thread("t").state()
        await thread.compaction.undo()
        await say(other.thread("t"), turns(3, start=9))
        assert 11 == len(await texts(other.thread("t")))
        await say(other.thread("t"), turns(1, start=12))
        assert ["12"] == await texts(other.thread("t"))


async def test_the_hard_limit_holds_all_the_same() -> None:
    """A context over the hard limit compacts what came back."""
    policy = CompactionPolicy(threshold=100, tokens_min=0, soft_tokens=200, hard_tokens=300, keep_recent=0)
    async with opened(Scripted(), policy) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        await thread.compaction.undo("")
        assert 4 >= len(await texts(thread)) >= 1
        while "compaction_undone" in await types(thread) and (await thread.state()).tally.compactable_tokens < 300:
            await say(thread, turns(1, start=9))
        await thread.context()
        assert (await thread.state()).tally.compactable_tokens < 300
