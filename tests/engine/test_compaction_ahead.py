"""Compactions whose result is there before they start: nobody waits for them, the log shows what came of them."""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

import memory_engine
from memory_engine import (
    Chunk,
    CompactionContext,
    CompactionPolicy,
    CompactionResult,
    EngineConfig,
    LlmTextResponse,
    UserMessage,
)
from memory_engine.compactors import EmbeddedCompactor
from memory_engine.compactors.extractive import Entry, extract, texts
from memory_engine.core import slices
from memory_engine.core.slices import BUSY_S, IDLE_S_MAX, Pace, Steps, finish, in_slices
from memory_engine.errors import CompactorFailed
from tests.conversations import opened, turns, types
from tests.conversations import texts as texts_of
from tests.scripted_compactors import Held, a_line, raises

AT_FOUR = CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0)
STARTED, COMPLETED, FAILED = "compaction_started", "compaction_completed", "compaction_failed"
SAID = [
    f"{who} order 77{n:02} on 2026-03-{n:02}, at 14.{n:02} EUR." for n in range(1, 26) for who in ("I want", "We sent")
]
TALK = [LlmTextResponse(content=text) if n % 2 else UserMessage(content=text) for n, text in enumerate(SAID)]


class Ahead(Held):
    """Waits for the test, and says that it works ahead."""

    works_ahead = True


class Gated(Ahead):
    """Waits for the test in one thread alone."""

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """A line, in all other threads at once."""
        return await super().compact(chunks, context) if context.thread_id == "slow" else a_line(chunks, context)


class Paused:
    """Pauses thrice, and notes for which thread it works."""

    name, works_ahead = "paused", True

    def __init__(self) -> None:
        self.worked: list[str] = []

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Whatever comes."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """A line, after some time."""
        for _ in range(3):
            self.worked.append(context.thread_id)
            await context.pause()
        return a_line(chunks, context)


async def test_one_compaction_is_done_after_the_other() -> None:
    """Where many threads wait for one: the first need not wait for all."""
    compactor = Paused()
    async with opened(compactor, AT_FOUR) as engine:
        threads = [await engine.create_thread(f"t{n}") for n in range(3)]
        await asyncio.gather(*(thread.dispatch_all(turns(4)) for thread in threads))
        await asyncio.gather(*(thread.compaction.settle() for thread in threads))
        assert ["t0", "t1", "t2"] == sorted(compactor.worked)[::3]
        assert 3 == len(list(groupby(compactor.worked)))


async def test_what_presses_does_not_wait_for_others() -> None:
    """A thread that is flooded would hold its senders up until the compaction of another has ended."""
    compactor = Gated()
    async with opened(compactor, AT_FOUR) as engine:
        slow, flooded = [await engine.create_thread(name) for name in ("slow", "flooded")]
        await slow.dispatch_all(turns(4))
        await compactor.entered.wait()
        for n in range(15):
            await flooded.dispatch_all(turns(4, start=4 * n + 1))
        assert ([], True) == (await types(slow), COMPLETED in await types(flooded))
        compactor.release.set()
        await slow.compaction.settle()
        assert [STARTED, COMPLETED] == await types(slow)


async def test_events_go_on_and_start_and_end_are_recorded_together() -> None:
    """Nothing is in the log while it works, and nothing is blocked; then both come behind what came meanwhile."""
    compactor = Ahead()
    async with opened(compactor, AT_FOUR) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(4))
        await compactor.entered.wait()
        receipts = [await thread.dispatch(event) for event in turns(2, start=5)]
        assert None is await thread.admin.blocking_reason()
        assert ([5, 6], []) == ([receipt.seq for receipt in receipts], await types(thread))
        compactor.release.set()
        await thread.compaction.settle()
        assert ["4", "word5", "word6"] == await texts_of(thread)
        assert [STARTED, COMPLETED] == await types(thread)
        assert (await thread.replay.verify()).ok


async def test_what_changed_its_chunks_meanwhile_stands() -> None:
    """A forgetting gives the result up; start and failure are recorded then."""
    compactor = Ahead()
    async with opened(compactor, AT_FOUR) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(4))
        await compactor.entered.wait()
        await thread.forget(chunk_ids=["2.0"], reason="private")
        compactor.release.set()
        await thread.compaction.settle()
        assert ["word1", "word3", "word4"] == await texts_of(thread)
        assert [STARTED, FAILED] == await types(thread)


async def test_a_failure_is_recorded_with_its_start() -> None:
    """As of any compactor; the originals stand."""
    compactor = Ahead(raises(ValueError("no")))
    compactor.release.set()
    async with opened(compactor, AT_FOUR) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(4))
        await thread.compaction.settle()
        assert [STARTED, FAILED] == await types(thread)
        assert ["word1", "word2", "word3", "word4"] == await texts_of(thread)


async def test_closing_meanwhile_leaves_nothing_behind(tmp_path: Path) -> None:
    """It had not started; the next message after opening has it done."""
    compactor, path = Ahead(), str(tmp_path / "a.db")
    async with opened(compactor, AT_FOUR, path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(4))
        await compactor.entered.wait()
    async with opened(Ahead(a_line), AT_FOUR, path) as engine:
        assert [] == await types(engine.thread("t"))


async def test_one_that_somebody_waits_for_starts_at_once() -> None:
    """By hand, events wait as with any compactor."""
    compactor = Ahead()
    async with opened(compactor, CompactionPolicy(enabled=False)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(4))
        asked = asyncio.ensure_future(thread.compact())
        await compactor.entered.wait()
        assert [STARTED] == await types(thread)
        compactor.release.set()
        assert ("1.0", "2.0", "3.0", "4.0") == (await asked).covered


async def test_what_is_said_at_once_is_compacted_when_it_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the default compactor, once: not in the midst of what others wait for.

    A machine may take the processor away for longer than a moment's quiet, so here quiet is only what settling gives.
    """
    monkeypatch.setattr(slices, "QUIET_S", 300.0)
    monkeypatch.setattr(slices, "PATIENCE_S", 300.0)
    policy = CompactionPolicy(threshold=8, tokens_min=0, keep_recent=2)
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread("t")
        for event in TALK:
            await thread.dispatch(event)
        await thread.compaction.settle()
        first, *others = (await thread.state()).chunks()
        assert ("compacted", 2) == (first.type, len(others))
        assert (await thread.replay.verify()).ok


def test_what_is_known_of_texts_changes_no_line() -> None:
    """Whether they were read before, or forgotten in between."""
    entries = [Entry(f"{n}.0", "user" if n % 2 else "assistant", text) for n, text in enumerate(SAID)]
    first = extract(entries, 200)
    assert first == extract(entries, 200) == extract([*entries], 200)
    for n in range(texts.KEPT_CHARS_MAX // 32_000 + 1):
        texts.source_text(f"{n}" * 32_000)
    assert first == extract(entries, 200)


async def test_steps_are_done_in_slices() -> None:
    """Each as long as its pause allows; what they raise is raised."""

    def work(error: Exception | None = None) -> Steps[int]:
        for _ in range(50):
            yield
        if error is not None:
            raise error
        return 7

    given: list[float] = []

    async def pause() -> float:
        given.append(0.0)
        return 0.0 if len(given) < 4 else 1.0

    assert (7, 7, 4) == (finish(work()), await in_slices(work(), pause), len(given))
    with pytest.raises(CompactorFailed):
        await in_slices(work(CompactorFailed("x", "raised", "no")), pause)


async def test_a_pause_ends_with_a_commit_or_when_none_comes() -> None:
    """After a commit there is room for little, and for more the longer nothing happens; one at a time."""
    pace = Pace()
    waiting = [asyncio.ensure_future(pace.pause()) for _ in range(2)]
    await asyncio.sleep(0)
    pace.committed()
    assert BUSY_S <= await waiting[0] < IDLE_S_MAX
    assert not waiting[1].done()
    rooms = [await waiting[1], await pace.pause(), await pace.pause()]
    assert rooms == sorted(rooms)
    assert IDLE_S_MAX == rooms[-1]


async def test_the_embedded_compactor_pauses() -> None:
    """As its context says, so that an engine's commits come first."""
    paused: list[None] = []

    async def pause() -> float:
        paused.append(None)
        return 0.0 if len(paused) < 5 else 9.0

    async with memory_engine.open(
        ":memory:", config=EngineConfig(compaction=CompactionPolicy(enabled=False))
    ) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(TALK)
        chunks = list((await thread.state()).chunks())
    context = CompactionContext(thread_id="t", budget_tokens=200, pause=pause)
    slowly = await EmbeddedCompactor().compact(chunks, context)
    assert 5 == len(paused)
    assert slowly == await EmbeddedCompactor().compact(chunks, CompactionContext(thread_id="t", budget_tokens=200))


async def test_who_writes_without_rest_is_compacted_too() -> None:
    """No quiet moment comes, but once two thresholds wait none is waited for: the state does not grow with the log."""
    policy = CompactionPolicy(threshold=10, tokens_min=0)
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread("t")
        most = 0
        for n in range(3_000):
            await thread.dispatch(TALK[n % len(TALK)])
            most = max(most, (await thread.state()).tally.compactable)
        assert most <= 100
        assert 2 <= (await types(thread)).count(COMPLETED)


async def test_who_floods_a_thread_waits_for_its_compaction() -> None:
    """From ten thresholds on events wait, as long as it works; none is lost and their order stays."""
    compactor = Ahead()
    async with opened(compactor, AT_FOUR) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(39))
        await compactor.entered.wait()
        assert None is await thread.admin.blocking_reason()
        await thread.dispatch(*turns(1, start=40))
        assert "compacting" == await thread.admin.blocking_reason()
        late = [asyncio.ensure_future(thread.dispatch(event)) for event in turns(2, start=41)]
        await asyncio.sleep(0.05)
        assert not any(waiting.done() for waiting in late)
        compactor.release.set()
        assert [43, 44] == [(await waiting).seq for waiting in late]
        await thread.compaction.settle()
        assert ["39", "word40", "word41", "word42"] == await texts_of(thread)
        assert (await thread.replay.verify()).ok


async def test_events_of_a_flooded_thread_go_on_where_its_compaction_fails() -> None:
    """Nobody waits for a summary that does not come."""
    compactor = Ahead(raises(CompactorFailed("held", "raised", "out of words")))
    async with opened(compactor, AT_FOUR) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(40))
        await compactor.entered.wait()
        late = asyncio.ensure_future(thread.dispatch(*turns(1, start=41)))
        compactor.release.set()
        await late
        await thread.compaction.settle()
        assert FAILED in await types(thread)
        assert None is await thread.admin.blocking_reason()
