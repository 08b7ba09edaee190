"""Compactions that go wrong or meet others' work: the originals stand, the queue goes on, the log says why."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from memory_engine import (
    BlockingReason,
    Chunk,
    CompactionAbandoned,
    CompactionContext,
    CompactionFailed,
    CompactionPolicy,
    CompactionResult,
    ContextPolicy,
)
from memory_engine.errors import CompactorFailed, EngineClosed, MemoryEngineError, NothingToCompact
from memory_engine.events import SummaryLine
from tests.conversations import LONG, NEVER, SMALL, call, log, note, of_type, opened, say, texts, turns, types
from tests.scripted_compactors import Answer, Held, Scripted, Stubborn, Yielding, a_line, raises, summary

MODES = pytest.mark.parametrize("blocking", ["whole", "commit"])
"""Both ways of blocking the queue: how a compaction goes wrong must not differ."""
STARTED, COMPLETED = "compaction_started", "compaction_completed"
FAILED, ABANDONED = "compaction_failed", "compaction_abandoned"


def by(policy: CompactionPolicy, blocking: str) -> CompactionPolicy:
    """The policy, blocking so."""
    return replace(policy, blocking=blocking)


def gives(value: object) -> Answer:
    """An answer of any type."""
    return lambda _chunks, _context: value  # type: ignore[return-value]  # a compactor that breaks its promise


def at_length(chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
    """A summary longer than its source."""
    return summary(" ".join(chunk.text for chunk in chunks) + LONG)


BAD: dict[str, tuple[Answer, str]] = {
    "empty": (gives(CompactionResult(lines=())), "empty"),
    "blank": (lambda _chunks, _context: summary("  \n"), "empty"),
    "without a section": (lambda _chunks, _context: summary("text", section=""), "empty"),
    "an error's text": (gives("I'm sorry, I cannot help with that."), "invalid"),
    "nothing": (gives(None), "invalid"),
    "lines that are dicts": (gives(CompactionResult(lines=({"text": "x"},))), "invalid"),  # type: ignore[arg-type]
    "lines that are no lines": (gives(CompactionResult(lines="some text")), "invalid"),  # type: ignore[arg-type]
    "a number for a text": (gives(CompactionResult(lines=(SummaryLine(section="a", text=7),))), "invalid"),  # type: ignore[arg-type]
    "longer": (at_length, "not_shorter"),
    "no character": (lambda _chunks, _context: summary("\ud800"), "refused"),
    "raising": (raises(ValueError("no")), "raised"),
    "raising at length": (raises(ValueError("no" * 20_000_000)), "raised"),
    "raising no character": (raises(ValueError("\ud800")), "raised"),
    "its own timeout": (raises(TimeoutError("the provider took too long")), "raised"),
    "several at once": (raises(ExceptionGroup("two", [ValueError("a"), ValueError("b")])), "raised"),
}


@pytest.mark.parametrize(("answer", "reason"), BAD.values(), ids=BAD)
@MODES
async def test_a_bad_result_replaces_nothing(answer: Answer, reason: str, blocking: str) -> None:
    """The originals stand, the failure is recorded with its reason, the queue goes on, the log verifies."""
    async with opened(Scripted(answer), by(SMALL, blocking)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        await say(thread, turns(1, start=5))
        assert ["word1", "word2", "word3", "word4", "word5"] == await texts(thread)
        assert [reason] == [e.reason for e in await of_type(thread, FAILED) if isinstance(e, CompactionFailed)]
        assert [STARTED, FAILED] == await types(thread)
        assert (None, None) == (await thread.admin.blocking_reason(), (await thread.replay.verify()).divergence)


@pytest.mark.parametrize("compactor", [Held, Stubborn])
@MODES
async def test_a_compactor_that_hangs_is_left_behind(compactor: type[Held] | type[Stubborn], blocking: str) -> None:
    """Past the deadline the originals stand and the queue goes on, even if the compactor ignores its end."""
    hanging = compactor()
    policy = CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0, deadline_s=0.02)
    async with opened(hanging, by(policy, blocking)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(5))
        hanging.release.set()
        assert ["timeout"] == [e.reason for e in await of_type(thread, FAILED) if isinstance(e, CompactionFailed)]
        assert ["word1", "word2", "word3", "word4", "word5"] == await texts(thread)


async def test_a_compactor_that_cannot_even_say_whether_it_can_is_passed_over() -> None:
    """`can_compact` that raises counts as no: the next compactor does it, and nobody waits for ever."""

    def broken(_chunk: Chunk) -> bool:
        raise ValueError("no")

    async with opened(Scripted(), NEVER) as engine:
        engine.register_compactor(Scripted(name="broken", takes=broken))
        thread = await engine.create_thread()
        await say(thread, turns(2))
        assert "scripted" == (await thread.compact()).compactor


@MODES
async def test_who_asked_for_a_compaction_is_told_why_it_failed(blocking: str) -> None:
    """`compact()` raises what the log records."""
    async with opened(Scripted(raises(ValueError("no"))), by(NEVER, blocking)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        with pytest.raises(CompactorFailed, match="ValueError: no"):
            await thread.compact()


async def test_failures_are_tried_again_less_and_less_often() -> None:
    """A compactor that always fails is asked a few times in a hundred messages, not a hundred times."""
    compactor = Scripted(raises(ValueError("no")))
    async with opened(compactor) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(100))
        assert 2 <= len(compactor.given) <= 8


async def test_after_a_failure_a_compaction_on_request_may_succeed() -> None:
    """The back-off is for automatic compactions only, and a success ends it."""
    answers = [raises(ValueError("no")), a_line, a_line]

    def in_turn(chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        return answers.pop(0)(chunks, context)

    async with opened(Scripted(in_turn)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        await thread.compact()
        await say(thread, turns(4, start=5))
        assert ["4", "4"] == await texts(thread)


@MODES
async def test_over_the_hard_limit_the_embedded_compactor_steps_in(blocking: str) -> None:
    """Where the compactor fails and the hard limit is passed, the local one does it, and the log says both."""
    policy = CompactionPolicy(threshold=1000, tokens_min=0, soft_tokens=100_000, hard_tokens=200, keep_recent=0)
    async with opened(Scripted(raises(ValueError("no"))), by(policy, blocking)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        context = await thread.context(policy=ContextPolicy(blocks=()))
        assert [STARTED, FAILED, STARTED, COMPLETED] == await types(thread)
        assert ["compacted"] == [chunk.type for chunk in context.chunks]


async def test_nothing_compactable_starts_no_compaction() -> None:
    """A thread over its threshold with open work only is left alone, message after message."""
    async with opened(Scripted(), CompactionPolicy(threshold=4, tokens_min=0, keep_recent=50)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(40))
        assert [] == await types(thread)


async def test_an_orphan_call_does_not_stand_in_the_way_for_ever() -> None:
    """A call that nobody answered goes, once a whole exchange has passed it by."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread()
        await say(thread, [call("orphan")[0], *turns(6)])
        assert ["3", "4"] == await texts(thread)


async def test_what_is_written_meanwhile_waits_and_keeps_its_order() -> None:
    """While a compactor works, events wait; they come after its summary, in the order of their senders."""
    compactor = Held()
    async with opened(compactor) as engine:
        thread = await engine.create_thread()
        for event in turns(4):
            await thread.dispatch(event)
        await compactor.entered.wait()
        waiting = [asyncio.ensure_future(thread.dispatch(event)) for event in turns(3, start=5)]
        assert BlockingReason.COMPACTING is await thread.admin.blocking_reason()
        compactor.release.set()
        receipts = await asyncio.gather(*waiting)
        assert ["4", "word5", "word6", "word7"] == await texts(thread)
        assert [7, 8, 9] == [receipt.seq for receipt in receipts]


@MODES
async def test_a_forget_meanwhile_is_not_undone(blocking: str) -> None:
    """What is forgotten while a compactor reads it is in no summary afterwards."""
    compactor = Held(lambda chunks, _context: summary("the key is swordfish", *(chunk.id for chunk in chunks)))
    async with opened(compactor, by(SMALL, blocking)) as engine:
        thread = await engine.create_thread()
        made = [(await thread.dispatch(event)).chunks[0].id for event in turns(4)]
        await compactor.entered.wait()
        forgetting = asyncio.ensure_future(thread.forget(chunk_ids=[made[1]]))
        compactor.release.set()
        await forgetting
        await thread.compaction.settle()
        assert "swordfish" not in str((await thread.context()).messages)


@MODES
async def test_a_caller_who_is_cancelled_does_not_stop_the_compaction(blocking: str) -> None:
    """`compact()` runs to its end in the log, whoever awaits it."""
    compactor = Held()
    async with opened(compactor, by(NEVER, blocking)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        asking = asyncio.ensure_future(thread.compact())
        await compactor.entered.wait()
        asking.cancel()
        compactor.release.set()
        await thread.compaction.settle()
        assert [STARTED, COMPLETED] == await types(thread)


@MODES
async def test_compactions_of_one_thread_come_one_after_the_other(blocking: str) -> None:
    """Two requests at once: the second finds what the first has left."""
    async with opened(Yielding(), by(NEVER, blocking)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        both = await asyncio.gather(thread.compact(), thread.compact(), return_exceptions=True)
        assert [NothingToCompact] == [type(outcome) for outcome in both if isinstance(outcome, Exception)]
        assert [STARTED, COMPLETED] == await types(thread)


@pytest.mark.parametrize("rounds", range(12))
@MODES
async def test_closing_ends_a_compaction_and_loses_no_event(tmp_path: Path, rounds: int, blocking: str) -> None:
    """At close the compaction is recorded as abandoned (or is done), and who waits is told or has a receipt."""
    path = str(tmp_path / "memory.db")
    compactor = Yielding(1000) if rounds % 2 else Yielding(rounds)
    async with opened(compactor, by(SMALL, blocking), path) as engine:
        thread = await engine.create_thread("t")
        for event in turns(4):
            await thread.dispatch(event)
        waiting = [
            asyncio.ensure_future(thread.dispatch(event, event_id=f"e{n}")) for n, event in enumerate(turns(3, start=5))
        ]
        for _ in range(rounds):
            await asyncio.sleep(0)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    acknowledged = {f"e{n}" for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)}
    assert {EngineClosed} >= {type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)}
    async with opened(Scripted(), NEVER, path) as engine:
        thread = engine.thread("t")
        assert acknowledged == {recorded.id for recorded in await log(thread)} & {"e0", "e1", "e2"}
        assert await types(thread) in ([], [STARTED, ABANDONED], [STARTED, COMPLETED])
        assert (None, None) == ((await thread.replay.verify()).divergence, await thread.admin.blocking_reason())


@MODES
async def test_an_abandoned_compaction_leaves_the_originals(tmp_path: Path, blocking: str) -> None:
    """Closing in the middle of a compactor's work changes no state."""
    path = str(tmp_path / "memory.db")
    compactor = Held()
    async with opened(compactor, by(SMALL, blocking), path) as engine:
        thread = await engine.create_thread("t")
        for event in turns(4):
            await thread.dispatch(event)
        await compactor.entered.wait()
    async with opened(Scripted(), NEVER, path) as engine:
        assert ["word1", "word2", "word3", "word4"] == await texts(engine.thread("t"))


@MODES
async def test_no_compaction_starts_while_the_engine_closes(tmp_path: Path, blocking: str) -> None:
    """Events that are committed at close and pass a threshold start nothing that nobody would end."""
    path = str(tmp_path / "memory.db")
    async with opened(Yielding(50), by(SMALL, blocking), path) as engine:
        thread = await engine.create_thread("t")
        waiting = [asyncio.ensure_future(thread.dispatch(event)) for event in turns(8)]
        for _ in range(3):
            await asyncio.sleep(0)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    kept = [outcome.seq for outcome in outcomes if not isinstance(outcome, BaseException)]
    async with opened(Scripted(), NEVER, path) as engine:
        thread = engine.thread("t")
        said = [recorded.seq for recorded in await log(thread) if not recorded.type.startswith("compaction")]
        assert kept == said
        assert await types(thread) in ([], [STARTED, ABANDONED])


async def test_citations_of_what_was_not_there_are_dropped() -> None:
    """A summary cites only chunks that its compactor was given, so that every line leads somewhere."""
    async with opened(Scripted(lambda chunks, _context: summary("short", chunks[0].id, "99.0", "nonsense"))) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        [chunk] = (await thread.state()).chunks()
        assert [(made[0],)] == [line.sources for line in chunk.lines]


async def test_a_single_that_does_not_get_shorter_stays_beside_those_that_do() -> None:
    """One COMPRESSIBLE chunk that its compactor cannot shorten does not spoil the others."""

    def mixed(chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        return at_length(chunks, context) if chunks[0].text.startswith("stiff") else a_line(chunks, context)

    async with opened(Scripted(mixed)) as engine:
        thread = await engine.create_thread()
        await say(thread, [note("stiff", "compressible"), *(note("soft", "compressible") for _ in range(3))])
        assert ["stiff", "1", "1", "1"] == await texts(thread)


@MODES
async def test_an_abandonment_names_its_compaction(blocking: str) -> None:
    """The event that ends an unfinished compaction bears its id and the reason."""
    compactor = Held()
    async with opened(compactor, by(SMALL, blocking)) as engine:
        thread = await engine.create_thread()
        for event in turns(4):
            await thread.dispatch(event)
        await compactor.entered.wait()
        ended: list[CompactionAbandoned] = []
        engine.observe(lambda seen: ended.append(seen.event) if isinstance(seen.event, CompactionAbandoned) else None)
        [started] = await of_type(thread, STARTED)
        await engine.close()
        assert [(getattr(started, "compaction_id", ""), "cancelled")] == [(e.compaction_id, e.reason) for e in ended]


def test_every_reason_is_an_error_of_ours() -> None:
    """What a failed compaction raises can be caught as the package's own."""
    assert issubclass(CompactorFailed, MemoryEngineError)


async def test_who_asked_for_a_compaction_is_told_that_the_engine_closes() -> None:
    """Nobody has cancelled the caller, so it is not told so: a cancelled task would take it for its own end."""
    compactor = Held()
    async with opened(compactor, by(SMALL, "whole")) as engine:
        thread = await engine.create_thread()
        for event in turns(3):
            await thread.dispatch(event)
        asked = asyncio.ensure_future(thread.compact())
        await compactor.entered.wait()
    with pytest.raises(EngineClosed):
        await asked
