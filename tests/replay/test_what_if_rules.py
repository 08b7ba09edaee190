"""What-if: a log run again under other thresholds, compactors and reducers; what is forgotten and what is told once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import (
    Chunk,
    CompactionPolicy,
    Engine,
    EngineConfig,
    Event,
    LlmTextResponse,
    ReduceContext,
    Reduction,
    StateView,
    ToolResult,
    UserMessage,
)
from memory_engine import events as e
from memory_engine.compactors import EmbeddedCompactor, Pipeline
from memory_engine.core.operations import Add
from memory_engine.engine import kernel_of
from memory_engine.errors import (
    DuplicateRegistration,
    InvalidChange,
    ModelNotAllowed,
    ReducerError,
)
from memory_engine.plugins import Plugin
from memory_engine.replay.what_if import Change, InsertEvent, SkipEvent, fork_log
from memory_engine.runtime.threads import OpenThreads
from memory_engine.testing import FakeCompactor
from tests.cancelling import by_task, moments
from tests.conversations import LONG, NEVER, SMALL, call, log, note, opened, say, texts, turns, types
from tests.replay.reruns import tried
from tests.scripted_compactors import Held, Scripted, a_line_each

SECRET = "zyzzyva"
POLICIES = (
    SMALL,
    CompactionPolicy(threshold=6, tokens_min=0, keep_recent=2),
    CompactionPolicy(threshold=9, tokens_min=0, keep_recent=1),
)


# Other thresholds, other compactors.


async def test_another_compactor_is_compared_under_the_policy_of_the_log(tmp_path: Path) -> None:
    """A log says by which limits it was compacted: opened with others, it is run again by its own."""
    path = str(tmp_path / "memory.db")
    async with opened(EmbeddedCompactor(), SMALL, path) as engine:
        await say(await engine.create_thread("t"), turns(12))
    async with memory_engine.open(path) as engine:
        report, _ = await tried(engine.thread("t"), Change(compactor=EmbeddedCompactor()))
        assert report.before.completed == report.after.completed > 1
        await engine.thread("t").admin.update(policy=CompactionPolicy(enabled=False))
        report, _ = await tried(engine.thread("t"), Change(compactor=EmbeddedCompactor()))
        assert 0 == report.after.completed


@pytest.mark.parametrize("recorded", [*POLICIES, NEVER])
@pytest.mark.parametrize("policy", POLICIES)
async def test_other_thresholds_come_to_what_would_have_been(
    recorded: CompactionPolicy, policy: CompactionPolicy
) -> None:
    """The rerun has the events, at their seqs, and the state of a thread that lived under the policy from the start."""
    said = [*turns(7), *call("c1"), *turns(12, start=8)]
    async with opened(EmbeddedCompactor(), recorded) as engine, opened(EmbeddedCompactor(), policy) as other:
        thread, live = await engine.create_thread("t"), await other.create_thread("t")
        await say(thread, said)
        await say(live, said)
        report, fork = await tried(thread, Change(policy=policy))
        assert [one.type for one in await log(live)] == [one.type for one in await log(fork)]
        assert list((await live.state()).placed()) == list((await fork.state()).placed())
        assert policy == (await kernel_of(engine).store.load(fork.id)).record.policy
        if recorded == policy:
            assert await texts(thread) == await texts(fork)
        assert report.after.completed == sum(name == "compaction_completed" for name in await types(fork))


SAYING = st.one_of(
    st.sampled_from(["user", "assistant", "long"]).map(lambda kind: (kind, 0)),
    st.tuples(st.just("call"), st.integers(1, 9)),
    st.tuples(st.sampled_from(["disposable", "compressible", "critical", "ephemeral"]), st.just(0)),
)
THRESHOLDS = st.builds(
    CompactionPolicy,
    threshold=st.integers(2, 9),
    keep_recent=st.integers(0, 4),
    soft_tokens=st.sampled_from([600, 1_500, 24_000]),
    hard_tokens=st.sampled_from([900, 2_000, 96_000]),
    summary_tokens_max=st.sampled_from([30, 4_000]),
)


def spoken(steps: Sequence[tuple[str, int]]) -> list[Event]:
    """What is said, each with a first word of its own."""
    said: list[Event] = []
    for n, (kind, number) in enumerate(steps):
        text = f"word{n}{LONG}"
        match kind:
            case "user":
                said.append(UserMessage(content=text))
            case "assistant":
                said.append(LlmTextResponse(content=text))
            case "long":
                said.append(UserMessage(content=text * 5))
            case "call":
                said += call(f"c{number}", text)
            case _:
                said.append(note(f"word{n}", kind))
    return said


@settings(max_examples=50, deadline=None)
@given(st.lists(SAYING, min_size=1, max_size=25), THRESHOLDS, THRESHOLDS)
async def test_any_thresholds_come_to_what_would_have_been(
    steps: list[tuple[str, int]], recorded: CompactionPolicy, policy: CompactionPolicy
) -> None:
    """Whatever was said: the events and the state of a thread that lived under the policy from the start."""
    said = spoken(steps)
    recorded = msgspec.structs.replace(recorded, hard_tokens=10**6)  # nobody asks for a context while it is recorded
    policy = msgspec.structs.replace(policy, hard_tokens=10**6)
    async with opened(Scripted(a_line_each), recorded) as engine, opened(Scripted(a_line_each), policy) as other:
        thread, live = await engine.create_thread("t"), await other.create_thread("t")
        await say(thread, said)
        await say(live, said)
        _, fork = await tried(thread, Change(policy=policy, compactor=Scripted(a_line_each)))
        assert [one.type for one in await log(live)] == [one.type for one in await log(fork)]
        assert list((await live.state()).placed()) == list((await fork.state()).placed())


async def test_without_compaction_everything_stands() -> None:
    """Under a policy that is not enabled nothing is compacted, nor where somebody had asked for it."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(6))
        await thread.compact()
        report, fork = await tried(thread, Change(policy=CompactionPolicy(enabled=False)))
        assert ([f"word{n}" for n in range(1, 7)], []) == (await texts(fork), await types(fork))
        assert (4, 0, 0) == (report.events.left_out, report.events.added, report.after.completed)


async def test_another_compactor_compacts_where_it_was_asked_for() -> None:
    """By hand: everything where everything was meant, else the chunks that were chosen."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(6))
        await thread.compact(["1.0", "2.0"])
        await say(thread, turns(2, start=7))
        await thread.compact()
        report, fork = await tried(thread, Change(compactor=Scripted(a_line_each, name="other")))
        assert ["word1\nword2", "word3\nword4\nword5\nword6\nword7\nword8"] == [
            chunk.text for chunk in (await fork.state()).chunks()
        ]
        assert ("other", 2) == ((await log(fork))[-1].event.compactor, report.after.completed)  # type: ignore[union-attr]


async def test_over_the_hard_limit_it_compacts_before_the_call() -> None:
    """A model call whose context would be over the hard limit comes after a compaction, as it did live."""
    policy = CompactionPolicy(threshold=99, tokens_min=0, soft_tokens=99_999, hard_tokens=400, keep_recent=0)
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread("t")
        await say(thread, [UserMessage(content=f"word{n}{LONG}") for n in range(5)])
        await say(thread, [LlmTextResponse(content="yes")])
        _, fork = await tried(thread, Change(policy=policy, compactor=Scripted()))
        assert ["started", "completed"] == [name.removeprefix("compaction_") for name in await types(fork)]
        assert ["4", "word4", "yes"] == await texts(fork)


async def test_a_compactor_that_fails_is_recorded_and_does_not_end_it() -> None:
    """The rerun goes on with the originals, as the thread would have."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(12))
        report, fork = await tried(thread, Change(compactor=FakeCompactor(RuntimeError("boom"), "done")))
        assert (1, 1) == (report.after.failed, min(report.after.completed, 1))
        assert "compaction_failed" in await types(fork)


async def test_no_model_is_called_unless_it_is_said() -> None:
    """Neither the engine's own compactor nor a given one that asks a model, nor a pipeline with one in it."""

    class Asking(Scripted):
        calls_model = True

    own, given_one = Asking(a_line_each, name="own"), Asking(a_line_each, name="given")
    async with opened(own) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        asked = len(own.given)
        _, fork = await tried(thread, Change(policy=CompactionPolicy(threshold=4, tokens_min=0, keep_recent=1)))
        assert (asked, "embedded") == (len(own.given), (await log(fork))[-1].event.compactor)  # type: ignore[union-attr]
        for compactor in (given_one, Pipeline(EmbeddedCompactor(), given_one)):
            with pytest.raises(ModelNotAllowed, match="call_models"):
                await thread.replay.what_if(Change(compactor=compactor))
        await tried(thread, Change(compactor=given_one, call_models=True))
        await tried(thread, Change(policy=SMALL, call_models=True))
        assert (1, asked + 1) == (len(given_one.given), len(own.given))


@pytest.mark.parametrize("policy", POLICIES)
async def test_what_was_forgotten_stays_forgotten(policy: CompactionPolicy) -> None:
    """Whatever summaries the rerun makes of it, and summaries of summaries, before it is forgotten or after."""
    small = CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0, summary_tokens_max=40)
    rerun_policy = CompactionPolicy(threshold=policy.threshold, tokens_min=0, keep_recent=0, summary_tokens_max=40)
    async with opened(Scripted(a_line_each), small) as engine:
        thread = await engine.create_thread("t")
        receipt = await thread.dispatch(UserMessage(content=SECRET + LONG))
        await thread.compaction.settle()
        await say(thread, turns(25))
        await thread.forget(event_ids=[receipt.event_id])
        await say(thread, turns(9, start=30))
        assert SECRET not in str((await thread.context()).messages)
        for change in (
            Change(policy=rerun_policy, compactor=Scripted(a_line_each)),
            Change(edits=[InsertEvent(0, UserMessage(content="new"))]),
            Change(policy=CompactionPolicy(enabled=False)),
        ):
            _, fork = await tried(thread, change)
            assert SECRET not in str((await fork.context()).messages)


async def test_facts_for_others_are_not_delivered_again(tmp_path: Path) -> None:
    """What events of a rerun bring to users and agents has arrived from the original; what comes later arrives."""
    path = str(tmp_path / "m.db")

    def fact(text: str) -> Event:
        return e.MemoryShared(destination=e.Destination("agent", "b"), layer="episodic", content=text)

    async def known(engine: Engine) -> list[str]:
        return [entry.content for entry in await engine.agent("b").memory.entries("episodic")]

    async with memory_engine.open(path) as engine:
        sender = await engine.create_thread("t")
        await sender.dispatch_all([*turns(2), fact("one"), *turns(1)])
        await sender.views.delivered()
        _, fork = await tried(sender, Change(edits=[SkipEvent(1), InsertEvent(2, fact("not said"))]))
        await fork.views.delivered()
        await engine.settle()
        assert ["one"] == await known(engine)
    async with memory_engine.open(path) as engine:
        await engine.settle()
        assert ["one"] == await known(engine)
        await engine.thread(fork.id).dispatch(fact("two"))
        await engine.thread(fork.id).views.delivered()
        assert ["one", "two"] == await known(engine)


# Other reducers.

shouting = Plugin("shouting")


@shouting.replaces_reducer("reduce_user_message")
def shout(_view: StateView, event: UserMessage, ctx: ReduceContext) -> Reduction:
    """A message in capitals."""
    chunk = Chunk(id=ctx.new_id(), type="user_message", content=str(event.content).upper())
    return Reduction(operations=(Add(chunk.id),), chunks=(chunk,))


async def test_other_reducers_make_another_state() -> None:
    """The past is shared up to the first event that they reduce otherwise; an engine with them verifies the fork."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([LlmTextResponse(content="hello"), UserMessage(content="hi"), *call("c1")])
        report = await thread.replay.what_if(Change(plugins=[shouting]))
        fork = engine.thread(report.fork_id)
        assert (1, ["hello", "HI"]) == (report.shared, (await texts(fork))[:2])
        divergence = (await fork.replay.verify()).divergence
        assert ("operations", 2) == (divergence.kind, divergence.seq) if divergence is not None else False
        async with memory_engine.open(kernel_of(engine).store, plugins=[shouting]) as other:
            assert (await other.thread(report.fork_id).replay.verify()).ok


async def test_a_reducer_that_refuses_names_the_event() -> None:
    """Nothing is left of the rerun but the error, and the fork's id is free."""
    failing = Plugin("failing")

    @failing.reducer(ToolResult)
    def refuse(_view: StateView, event: ToolResult, _ctx: ReduceContext) -> Reduction:
        raise ValueError(f"no {event.call_id}")

    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([*turns(2), *call("c1")])
        with pytest.raises(ReducerError, match="event 4: ValueError: no c1"):
            await thread.replay.what_if(Change(plugins=[failing]), fork_id="f")
        assert ["t"] == [info.id for info in await engine.threads()]
        await thread.replay.what_if(Change(edits=[SkipEvent(1)]), fork_id="f")
        with pytest.raises(DuplicateRegistration):
            await thread.replay.what_if(Change(plugins=[failing, failing]))
        with pytest.raises(InvalidChange, match="nobody"):
            await thread.replay.what_if(Change(plugins=[Plugin("p", replaced_reducers=[("nobody", shout)])]))  # type: ignore[list-item]


billing = Plugin("billing")


@billing.event("bill_sent")
class BillSent(Event, frozen=True):
    """An event of a plug-in, which names a chunk."""

    content: str
    chunk_ids: tuple[str, ...] = ()


@billing.reducer(BillSent)
def reduce_bill_sent(view: StateView, event: BillSent, ctx: ReduceContext) -> Reduction:
    """A note, if what it is about is there."""
    if any(view.get(chunk_id) is None for chunk_id in event.chunk_ids):
        raise ValueError("there is nothing to bill")
    chunk = Chunk(id=ctx.new_id(), type="bill", content=event.content)
    return Reduction(operations=(Add(chunk.id),), chunks=(chunk,))


async def test_an_event_that_no_longer_fits_is_listed() -> None:
    """Where an edit takes away what a reducer needs, a placeholder stands there, and the report says why."""
    async with memory_engine.open(":memory:", plugins=[billing]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([*turns(2), BillSent(content="bill", chunk_ids=("1.0",)), *turns(1, start=3)])
        report, fork = await tried(thread, Change(edits=[SkipEvent(1)]))
        assert ["word2", "word3"] == await texts(fork)
        assert [(3, "bill_sent", "ValueError: there is nothing to bill")] == [
            (one.seq, one.event_type, one.why) for one in report.refused
        ]
        report, fork = await tried(thread, Change(edits=[InsertEvent(0, UserMessage(content="new"))]))
        assert (["new", "word1", "word2", "bill", "word3"], ()) == (await texts(fork), report.refused)


async def test_an_unknown_event_must_be_known_or_skipped(tmp_path: Path) -> None:
    """It can be shared, and it can be left out; it cannot be reduced without its plug-in."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path, plugins=[billing]) as engine:
        await (await engine.create_thread("t")).dispatch_all([*turns(1), BillSent(content="bill"), *turns(2, start=2)])
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        assert ["word1", "bill", "word3"] == await texts(engine.thread((await thread.replay.what_if(
            Change(edits=[SkipEvent(3)]))).fork_id))  # fmt: skip
        with pytest.raises(InvalidChange, match=r"bill_sent.*plug-in"):
            await thread.replay.what_if(Change(edits=[SkipEvent(1)]))
        report, fork = await tried(thread, Change(edits=[SkipEvent(1), SkipEvent(2)]))
        assert (2, ["word2", "word3"]) == (report.events.skipped, await texts(fork))
        report = await thread.replay.what_if(Change(edits=[SkipEvent(1)], plugins=[billing]))
        assert ["bill", "word2", "word3"] == await texts(engine.thread(report.fork_id))


# Large logs, and what ends in the middle.


async def test_a_long_rerun_is_written_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More events than are held in memory: summaries are made of originals that were written already."""
    monkeypatch.setattr(fork_log, "PENDING_MAX", 7)
    monkeypatch.setattr(fork_log, "BATCH", 3)
    policy = CompactionPolicy(threshold=5, tokens_min=0, keep_recent=1, summary_tokens_max=60)
    said = turns(60)
    path = str(tmp_path / "m.db")
    async with opened(Scripted(a_line_each), NEVER, path) as engine, opened(Scripted(a_line_each), policy) as other:
        thread, live = await engine.create_thread("t"), await other.create_thread("t")
        await thread.dispatch_all(said)
        await say(live, said)
        _, fork = await tried(thread, Change(policy=policy, compactor=Scripted(a_line_each)))
        assert list((await live.state()).placed()) == list((await fork.state()).placed())
        assert [one.type for one in await log(live)] == [one.type for one in await log(fork)]


async def test_a_rerun_that_fails_late_leaves_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a part of it was written: it is deleted again."""
    monkeypatch.setattr(fork_log, "PENDING_MAX", 2)
    failing = Plugin("failing")

    @failing.reducer(UserMessage)
    def refuse(_view: StateView, event: UserMessage, _ctx: ReduceContext) -> Reduction:
        if str(event.content).startswith("word11"):
            raise ValueError("not this one")
        return Reduction()

    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(12))
        with pytest.raises(ReducerError, match="event 11"):
            await thread.replay.what_if(Change(plugins=[failing], edits=[SkipEvent(1)]))
        assert ["t"] == [info.id for info in await engine.threads()]


async def test_a_long_past_is_not_read() -> None:
    """An edit near the end of a long log begins at a snapshot, and finds the model call before it."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"m{n}") for n in range(3_000)])
        await thread.dispatch_all([LlmTextResponse(content="yes"), *turns(2, start=2)])
        seen: list[int] = []
        report = await thread.replay.what_if(Change(edits=[SkipEvent(3_002)]), progress=seen.append)
        assert (3_001, True) == (report.shared, max(seen) < 1_000)
        (turn,) = report.turns
        assert turn.original is not None
        assert turn.fork is not None
        assert 3_000 * 4 < turn.original.kept_tokens
        assert turn.original.tokens - turn.fork.tokens == turn.original.fresh_tokens - turn.fork.fresh_tokens


async def test_a_cancelled_rerun_leaves_no_fork() -> None:
    """Whoever waits for a compactor may give up; the original is as it was, and takes events."""
    held = Held()
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(9))
        task = asyncio.create_task(thread.replay.what_if(Change(policy=SMALL, compactor=held), fork_id="f"))
        await held.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ["t"] == [info.id for info in await engine.threads()]
        await thread.dispatch_all(turns(1))
        assert (await thread.replay.verify()).ok


@pytest.mark.parametrize("place", [":memory:", "m.db"])
async def test_a_rerun_that_was_cancelled_can_be_asked_for_again(place: str, tmp_path: Path) -> None:
    """With the same fork's id, whenever it was cancelled: there is the fork, or none, and the second call makes it."""
    change = Change(edits=[SkipEvent(2)])
    async with memory_engine.open(place if place == ":memory:" else tmp_path / place) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(3))
        expected = (await thread.replay.what_if(change, fork_id="whole")).head
        await engine.thread("whole").admin.delete()
        for moment in moments():
            await by_task(lambda: thread.replay.what_if(change, fork_id="f"), moment)
            if moment.untouched:
                break
            assert ["t"] == [info.id for info in await engine.threads()], moment
            assert expected == (await thread.replay.what_if(change, fork_id="f")).head, moment
            fork = engine.thread("f")
            assert (await fork.replay.verify()).ok, moment
            assert (await fork.dispatch(e.UserMessage(content="on"))).seq == expected + 1
            await kernel_of(engine).store.delete("f")
            kernel_of(engine)[OpenThreads].drop("f")


async def test_a_compaction_under_way_is_the_originals() -> None:
    """A fork made meanwhile has none open: it takes events, and nobody abandons one there."""
    held = Held(a_line_each)
    async with opened(held, SMALL) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(2))
        compacting = asyncio.create_task(thread.compact())
        await held.entered.wait()
        report = await thread.replay.what_if(Change(edits=(SkipEvent(1),)))
        assert 0 == (await kernel_of(engine).store.head(report.fork_id)).open_compaction
        await engine.thread(report.fork_id).dispatch(UserMessage(content="another way"))
        held.release.set()
        await compacting
        assert (await thread.replay.verify()).ok


@pytest.mark.parametrize(
    "wrong",
    [{"edits": [3]}, {"edits": SkipEvent(1)}, {"policy": {}}, {"compactor": "embedded"}],
)
def test_what_is_no_change_is_refused(wrong: dict[str, object]) -> None:
    """Values of other types are named before anything is run."""
    with pytest.raises(InvalidChange, match=next(iter(wrong))):
        Change(**wrong)  # type: ignore[arg-type]


async def test_an_edit_alone_is_no_change() -> None:
    """What is to be put into a `Change` says so."""
    async with opened(EmbeddedCompactor(), SMALL) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(1))
        with pytest.raises(InvalidChange, match="a Change"):
            await thread.replay.what_if(SkipEvent(1))  # type: ignore[arg-type]
