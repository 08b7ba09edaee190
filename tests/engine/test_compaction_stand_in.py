"""A compactor that keeps failing: another stands in for it, the log and the program's log say so, it is tried again."""

import logging
from collections.abc import Sequence

import pytest

import memory_engine
from memory_engine import Chunk, CompactionContext, CompactionPolicy, CompactionResult, EngineConfig, Thread
from memory_engine.compaction.failures import Failures
from memory_engine.errors import CompactorFailed
from memory_engine.events import CompactorStoodIn
from tests.conversations import NEVER, SMALL, call, of_type, opened, say, texts, turns, types
from tests.scripted_compactors import Held, Scripted, a_line

STARTED, COMPLETED, FAILED = "compaction_started", "compaction_completed", "compaction_failed"


class Failing(Scripted):
    """Fails so many times, then does its work."""

    def __init__(self, times: int = 1_000, reason: str = "raised") -> None:
        super().__init__(name="failing")
        self._left = times
        self._reason = reason

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Fail, or answer."""
        self.given.append(tuple(chunks))
        self._left -= 1
        if self._left >= 0:
            raise CompactorFailed(self.name, self._reason, "no network")
        return a_line(chunks, context)


async def stand_ins(thread: Thread) -> list[CompactorStoodIn]:
    """The events that say who stood in for whom."""
    return [event for event in await of_type(thread, "compactor_stood_in") if isinstance(event, CompactorStoodIn)]


async def test_a_compactor_that_keeps_failing_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """After three failures in a row the embedded one compacts; an event and a warning say who, for whom, and why."""
    compactor = Failing()
    async with opened(compactor, SMALL) as engine:
        thread = await engine.create_thread()
        with caplog.at_level(logging.WARNING, "memory_engine"):
            await say(thread, turns(40))
        first = (await stand_ins(thread))[0]
        assert ("embedded", "failing", "raised") == (first.compactor, first.instead_of, first.reason)
        assert "no network" in first.error
        assert [STARTED, FAILED] * 3 + [STARTED, COMPLETED] == (await types(thread))[:8]
        assert (await thread.replay.verify()).ok
    assert "failing failed (raised: no network); embedded stands in for it" in caplog.text
    assert "not compacted, and not tried before" in caplog.text


async def test_a_thread_whose_model_is_gone_does_not_grow_for_ever() -> None:
    """Hundreds of messages with a compactor that always fails: what stands in the state stays bounded."""
    async with opened(Failing(), CompactionPolicy(threshold=20, tokens_min=0)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(240))
        assert (await thread.state()).tally.compactable < 150


def test_it_is_tried_again_less_and_less_often() -> None:
    """Between its failures others compact once, then twice, then four times without asking it, eight at most."""
    failures, failed, rests = Failures(), CompactorFailed("model", "timeout", "late"), []
    assert [False, False, True] == [failures.needs_another(failed, by_hand=False) for _ in range(3)]
    for _ in range(6):
        rest = 0
        while failures.passed_over(by_hand=False) is not None:
            rest += 1
        rests.append(rest)
        assert failures.needs_another(failed, by_hand=False)
    assert [1, 2, 4, 8, 8, 8] == rests


async def test_once_it_works_again_it_does_the_work() -> None:
    """After its rest it is asked, and nobody stands in any more."""
    async with opened(Failing(times=3), SMALL) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(80))
        completed = [getattr(event, "compactor", "") for event in await of_type(thread, COMPLETED)]
        assert ["embedded", "embedded", "failing", "failing"] == completed[:4]
        assert 2 == len(await stand_ins(thread))


async def test_who_asks_by_hand_is_told() -> None:
    """Nobody stands in for a compactor in a compaction on request, however often it has failed."""
    compactor = Failing()
    async with opened(compactor, NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        for asked in range(1, 7):
            with pytest.raises(CompactorFailed, match="no network"):
                await thread.compact()
            assert asked == len(compactor.given)


async def test_the_report_names_who_failed() -> None:
    """Who asks for a compaction learns of the stand-in too."""
    async with opened(Failing(reason="incomplete"), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        report = await thread.compact()
        assert ("embedded", "failing") == (report.compactor, report.instead_of)


async def test_a_summary_that_lacks_what_it_must_hold_is_replaced_at_once() -> None:
    """It was asked twice already: the embedded one compacts, and nothing waits for the next time."""
    async with opened(Failing(reason="incomplete"), SMALL) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        assert [STARTED, FAILED, STARTED, COMPLETED] == await types(thread)
        assert ["incomplete"] == [event.reason for event in await stand_ins(thread)]


async def test_others_go_on_beside_one_that_fails() -> None:
    """Only the compactor that failed is left out: another still gets its chunks."""
    tools = Scripted(name="tools", takes=lambda chunk: bool(chunk.calls or chunk.call_id))
    async with opened(Failing(reason="incomplete"), NEVER) as engine:
        engine.register_compactor(tools)
        thread = await engine.create_thread()
        await say(thread, [*turns(2), *call("a"), *turns(2, start=3)])
        report = await thread.compact()
        assert ({"tools", "embedded"}, "failing") == (set(report.compactor.split("+")), report.instead_of)


async def test_a_timeout_counts_by_the_name_of_who_was_late() -> None:
    """Of several compactors at work in one compaction, the one that hung is the one that is left out."""
    hanging = Held()
    config = EngineConfig(compaction=CompactionPolicy(enabled=False, keep_recent=0, deadline_s=0.02))
    async with memory_engine.open(":memory:", compactor=hanging, config=config) as engine:
        engine.register_compactor(Scripted(name="tools", takes=lambda chunk: bool(chunk.calls or chunk.call_id)))
        thread = await engine.create_thread()
        await say(thread, [*turns(2), *call("a"), *turns(2, start=3)])
        with pytest.raises(CompactorFailed) as failed:
            await thread.compact()
        assert ("held", "timeout") == (failed.value.compactor, failed.value.reason)
        assert ["held"] == [getattr(event, "compactor", "") for event in await of_type(thread, FAILED)]


async def test_where_nobody_is_left_the_failure_stands() -> None:
    """The embedded compactor has nobody to stand in for it: its failure is recorded, the originals stand."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([memory_engine.UserMessage(content="a"), memory_engine.LlmTextResponse(content="b")])
        for _ in range(4):
            with pytest.raises(CompactorFailed):
                await thread.compact()
        assert ["a", "b"] == await texts(thread)
        assert [] == await stand_ins(thread)
