"""What-if: a log run again with edits, other thresholds, compactors or reducers, into a fork that verifies."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import (
    Chunk,
    CompactionPolicy,
    Compactor,
    Engine,
    EngineConfig,
    Event,
    LlmTextResponse,
    LlmToolCall,
    MemoryForget,
    NewEvent,
    Plugin,
    Thread,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine import events as e
from memory_engine.compactors import EmbeddedCompactor
from memory_engine.context.rendering import Message
from memory_engine.engine import kernel_of
from memory_engine.errors import (
    InvalidChange,
    InvalidEvent,
    InvalidIdentifier,
    ReadOnly,
    ThreadExists,
    ThreadNotFound,
)
from memory_engine.replay.what_if import Change, InsertEvent, Prices, ReplaceEvent, SkipEvent
from memory_engine.replay.what_if.change import Edit
from tests.conversations import NEVER, SMALL, call, log, opened, say, texts, turns, types
from tests.replay.reruns import rows, tried
from tests.scripted_compactors import Scripted, a_line_each, summary

SECRET = "zyzzyva"
POLICIES = (
    SMALL,
    CompactionPolicy(threshold=6, tokens_min=0, keep_recent=2),
    CompactionPolicy(threshold=9, tokens_min=0, keep_recent=1),
)


# The fork among real threads.


async def test_searches_over_many_threads_leave_what_ifs_out(tmp_path: Path) -> None:
    """What never happened is no answer to a user: only who names the fork finds it, until its mark is removed."""
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        thread = await engine.create_thread("t", user_id="u1")
        await thread.dispatch(UserMessage(content="The budget is forty euros."))
        change = Change(edits=[ReplaceEvent(1, UserMessage(content="The budget is ninety euros."))])
        fork = engine.thread((await thread.replay.what_if(change)).fork_id)
        other = await fork.fork(thread_id="of-the-fork")
        assert [False, True, True] == [info.is_what_if for info in await engine.threads(user_id="u1")]

        for found in (await engine.search("budget"), await engine.search("budget", user_id="u1")):
            assert [("t", "The budget is forty euros.")] == [(hit.thread_id, hit.text) for hit in found]
        named = await engine.search("budget", thread_ids=["t", fork.id])
        assert {"t", fork.id} == {hit.thread_id for hit in named}
        assert ["The budget is ninety euros."] == [hit.text for hit in await other.search("budget")]

        await fork.admin.update(metadata={"what_if": None})
        assert {"t", fork.id} == {hit.thread_id for hit in await engine.search("budget", user_id="u1")}


# Edits.


async def test_a_skipped_event_leaves_its_place(tmp_path: Path) -> None:
    """Nothing comes of it, and every later event stands where it stood, with its id, its time and its chunks."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([*turns(3), *call("c1")])
        report, fork = await tried(thread, Change(edits=[SkipEvent(2)]))
        assert (1, 1, 3, ()) == (report.shared, report.events.skipped, report.events.kept, report.refused)
    async with memory_engine.open(path) as engine:
        fork = engine.thread(report.fork_id)
        original, made = await log(engine.thread("t")), await log(fork)
        skipped = e.EventSkipped(skipped_type="user_message", skipped_id=original[1].id, reason="skipped")
        assert skipped == made[1].event
        assert [(one.seq, one.id, one.recorded_at, one.chunks) for one in (*original[:1], *original[2:])] == [
            (one.seq, one.id, one.recorded_at, one.chunks) for one in (*made[:1], *made[2:])
        ]
        assert ["1.0", "3.0", "4.0", "5.0"] == [chunk.id for chunk in (await fork.state()).chunks()]
        await fork.dispatch(UserMessage(content="and now?"))
        assert (True, 6, 5) == (
            (await fork.replay.verify()).ok,
            (await fork.state()).seq,
            (await engine.thread("t").state()).seq,
        )


async def test_a_replaced_event_says_something_else(thread: Thread) -> None:
    """Another event, also one of another type, stands under the id of the first."""
    await thread.dispatch_all(turns(4))
    edits = [ReplaceEvent(1, UserMessage(content="first")), ReplaceEvent(4, e.ExternalTimer(content="tick"))]
    report, fork = await tried(thread, Change(edits=edits))
    assert (0, 2, 2) == (report.shared, report.events.replaced, report.events.kept)
    assert ["first", "word2", "word3", "tick"] == await texts(fork)
    assert [one.id for one in await log(thread)] == [one.id for one in await log(fork)]


async def test_inserted_events_come_in_their_order(thread: Thread) -> None:
    """Before the first, after the last, several at one place: later events move, and know it."""
    await thread.dispatch_all(turns(2))
    await thread.compaction.mark_critical("2.0")
    edits = [InsertEvent(0, UserMessage(content="a")), InsertEvent(0, NewEvent(UserMessage(content="b"), id="b!")),
             InsertEvent(3, UserMessage(content="z"))]  # fmt: skip
    report, fork = await tried(thread, Change(edits=edits))
    assert (0, 3, 2, 1) == (
        report.shared, report.events.inserted, report.events.kept, report.events.renumbered
    )  # fmt: skip
    assert ["a", "b", "word1", "word2", "z"] == await texts(fork)
    made = await log(fork)
    assert ("b!", e.MemoryMarkCritical(chunk_ids=("4.0",))) == (made[1].id, made[4].event)
    assert "critical" == (await fork.replay.chunk("5.0")).retention
    assert made[2].recorded_at == made[0].recorded_at == (await log(thread))[0].recorded_at


async def test_an_event_may_be_inserted_into_an_empty_log(thread: Thread) -> None:
    """There is no event whose time it could take: it takes the thread's."""
    _, fork = await tried(thread, Change(edits=[InsertEvent(0, UserMessage(content="hi"))]))
    assert ["hi"] == await texts(fork)


async def test_the_rest_of_the_log_can_be_left_out(thread: Thread) -> None:
    """With `upto`, by seq or id, the rerun ends there."""
    receipts = await thread.dispatch_all(turns(5))
    for upto in (3, receipts[2].event_id):
        report, fork = await tried(thread, Change(edits=[SkipEvent(1)], upto=upto))
        assert (3, ["word2", "word3"]) == (report.upto, await texts(fork))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["keep", "skip", "replace", "insert"]), min_size=1, max_size=12))
async def test_editing_is_as_if_it_had_been_said_so(steps: list[str]) -> None:
    """A rerun with edits comes to the state of a thread to which the edited events were dispatched."""
    said = turns(len(steps))
    edits: list[Edit] = []
    expected: list[Event] = []
    for seq, (event, step) in enumerate(zip(said, steps, strict=True), 1):
        other = UserMessage(content=f"other{seq}")
        if step == "keep":
            expected.append(event)
        elif step == "skip":
            edits.append(SkipEvent(seq))
        elif step == "replace":
            edits.append(ReplaceEvent(seq, other))
            expected.append(other)
        else:
            edits.append(InsertEvent(seq, other))
            expected += [event, other]
    async with memory_engine.open(":memory:") as engine:
        thread, live = await engine.create_thread("t"), await engine.create_thread("live")
        await thread.dispatch_all(said)
        await live.dispatch_all(expected)
        if edits:
            _, fork = await tried(thread, Change(edits=edits))
            assert await texts(live) == await texts(fork)
            assert (await live.context()).messages == (await fork.context()).messages


@pytest.mark.parametrize(
    "edits",
    [[SkipEvent(0)], [SkipEvent(4)], [ReplaceEvent(9, UserMessage(content="x"))],
     [InsertEvent(4, UserMessage(content="x"))], [InsertEvent(-1, UserMessage(content="x"))],
     [SkipEvent(1), SkipEvent(1)],
     [SkipEvent(1), ReplaceEvent(1, UserMessage(content="x"))],
     [InsertEvent(1, NewEvent(UserMessage(content="x"), id="taken"))],
     [InsertEvent(n, NewEvent(UserMessage(content="x"), id="twice")) for n in (1, 2)], []],
)  # fmt: skip
async def test_edits_that_fit_nothing_are_refused(engine: Engine, thread: Thread, edits: Sequence[Edit]) -> None:
    """Seqs that the log does not have, two edits of one event, ids that are taken, no change at all: no fork."""
    await thread.dispatch_all([NewEvent(turns(1)[0], id="taken"), *turns(2)])
    with pytest.raises(InvalidChange):
        await thread.replay.what_if(Change(edits=edits), fork_id="f")
    assert ["t"] == [info.id for info in await engine.threads()]
    await thread.replay.what_if(Change(edits=[SkipEvent(1)]), fork_id="f")


async def test_what_cannot_be_recorded_makes_no_fork(engine: Engine, thread: Thread) -> None:
    """A value that JSON cannot hold is refused as `dispatch` refuses it, and the fork's id stays free."""
    await thread.dispatch_all(turns(3))
    bad = e.FlowCompleted(flow_id="f", flow_dact="d", user_query="q", slots={"x": float("nan")})
    with pytest.raises(InvalidEvent):
        await thread.replay.what_if(Change(edits=[ReplaceEvent(2, bad)]), fork_id="f")
    for fork_id in ("\x00", "x" * 5_000):
        with pytest.raises(InvalidIdentifier):
            await thread.replay.what_if(Change(edits=[SkipEvent(1)]), fork_id=fork_id)
    await thread.replay.what_if(Change(edits=[SkipEvent(1)]), fork_id="f")
    with pytest.raises(ThreadExists):
        await thread.replay.what_if(Change(edits=[SkipEvent(1)]), fork_id="f")
    with pytest.raises(ThreadNotFound):
        await engine.thread("nobody").replay.what_if(Change(edits=[SkipEvent(1)]))


async def test_an_engine_that_only_reads_makes_no_fork(tmp_path: Path) -> None:
    """It says so before anything is done."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        await (await engine.create_thread("t")).dispatch_all(turns(2))
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        with pytest.raises(ReadOnly):
            await engine.thread("t").replay.what_if(Change(edits=[SkipEvent(1)]))


# Recorded compactions.


async def test_recorded_compactions_are_taken_as_they_are() -> None:
    """Where all that they cover is there, no compactor is asked, and the summary is the recorded one."""
    compactor = Scripted(a_line_each)
    async with opened(compactor) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(9))
        asked = len(compactor.given)
        report, fork = await tried(thread, Change(edits=[InsertEvent(0, UserMessage(content="new"))]))
        assert (asked, 2, 2, ()) == (
            len(compactor.given),
            report.before.completed,
            report.after.completed,
            report.refused,
        )
        assert ["new", *await texts(thread)] == await texts(fork)
        assert e.SummaryLine("key_information", "word1", ("2.0",)) == (await fork.replay.chunk("7.0")).lines[0]


@pytest.mark.parametrize("edit", [SkipEvent(3), ReplaceEvent(3, UserMessage(content="other"))])
async def test_a_summary_of_what_is_not_there_is_left_out(edit: SkipEvent | ReplaceEvent) -> None:
    """A compaction that covers a skipped or replaced message is abandoned, listed, and leaves the others standing."""
    async with opened(Scripted(a_line_each)) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(10))
        report, fork = await tried(thread, Change(edits=[edit]))
        assert [(6, "compaction_completed")] == [(one.seq, one.event_type) for one in report.refused]
        there = ["word1", "word2", "word4"] if isinstance(edit, SkipEvent) else ["word1", "word2", "other", "word4"]
        assert there == (await texts(fork))[: len(there)]
        assert ["started", "abandoned", "started", "completed"] == [
            name.removeprefix("compaction_") for name in await types(fork)
        ]
        assert 0 == (await kernel_of(engine).store.head(fork.id)).open_compaction
        await say(fork, turns(2, start=20))
        assert (await fork.replay.verify()).ok


async def test_a_skipped_compaction_leaves_the_originals() -> None:
    """To skip the end of a compaction is to ask what the context were without it."""
    async with opened(Scripted(a_line_each)) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        report, fork = await tried(thread, Change(edits=[SkipEvent(6)]))
        assert ["word1", "word2", "word3", "word4"] == await texts(fork)
        assert (1, 0) == (report.before.completed, report.after.completed)
        assert 0 == (await kernel_of(engine).store.head(fork.id)).open_compaction


async def test_an_undone_compaction_is_undone_in_the_fork() -> None:
    """What came back stands there, under its new ids; nothing that the change forgets comes back."""
    async with opened(Scripted(a_line_each), NEVER) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        await thread.compact()
        await thread.compaction.undo()
        _, fork = await tried(thread, Change(edits=[InsertEvent(1, UserMessage(content="new"))]))
        assert ["word1", "word2", "word3", "word4", "new"] == await texts(fork)
        with pytest.raises(InvalidChange, match="forgets"):
            await thread.replay.what_if(Change(edits=[InsertEvent(6, MemoryForget(chunk_ids=("2.0",)))]))


@pytest.mark.parametrize("forget", [MemoryForget(chunk_ids=("1.0",)), MemoryForget(seqs=(1,))])
async def test_an_inserted_forgetting_reaches_summaries(forget: MemoryForget) -> None:
    """As `Thread.forget` does: also those whose lines cite nothing."""
    async with opened(Scripted(lambda chunks, _: summary(" ".join(c.text[:5] for c in chunks))), NEVER) as engine:
        thread = await engine.create_thread("t")
        await say(thread, [UserMessage(content=f"{SECRET[:5]} {'and so on' * 40}"), *turns(3)])
        await thread.compact()
        head = (await thread.info()).events
        assert SECRET[:5] in str(await texts(thread))
        for edit in (InsertEvent(head, forget), InsertEvent(head - 1, forget)):
            _, fork = await tried(thread, Change(edits=[edit]))
            assert SECRET[:5] not in str((await fork.context()).messages)


async def test_what_a_replaced_event_forgets_does_not_come_back() -> None:
    """Also where events before it have moved."""
    async with opened(Scripted(a_line_each), NEVER) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        await thread.compact()
        gap = await thread.dispatch(UserMessage(content="gap"))
        await thread.compaction.undo()
        edits: list[Edit] = [
            InsertEvent(0, UserMessage(content="new")),
            ReplaceEvent(gap.seq, MemoryForget(chunk_ids=("1.0",))),
        ]
        with pytest.raises(InvalidChange, match="forgets"):
            await thread.replay.what_if(Change(edits=edits))


async def test_an_undo_that_was_skipped_can_be_made_after_all() -> None:
    """The skipped one has left its id to what stands in its place."""
    async with opened(Scripted(a_line_each), NEVER) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(4))
        await thread.compact()
        undone = await thread.compaction.undo()
        _, fork = await tried(thread, Change(edits=[SkipEvent(undone.seq)]))
        await fork.compaction.undo()
        assert ["word1", "word2", "word3", "word4"] == await texts(fork)
        assert None is (await fork.replay.verify()).divergence


async def test_a_rerun_can_be_run_again() -> None:
    """Edits of a what-if's fork are a what-if too; each goes its own way, and all of them verify."""
    async with opened(Scripted(a_line_each)) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(9))
        report, fork = await tried(thread, Change(edits=[InsertEvent(1, UserMessage(content="new"))]))
        again, other = await tried(fork, Change(edits=[SkipEvent(2), InsertEvent(3, UserMessage(content="newer"))]))
        assert (1, 1) == (report.shared, again.shared)
        _, last = await tried(other, Change(policy=CompactionPolicy(enabled=False)))
        assert ["word1", "word2", "newer", "word3", "word4"] == (await texts(last))[:5]
        assert [] == [found for found in await engine.verify() if not found.ok]


# The report.


async def test_the_report_counts_tokens_and_money_for_each_call() -> None:
    """What each context took, what of it a cache still held, and what it costs, on both sides."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content="a" * 400), LlmTextResponse(content="b" * 40)])
        await thread.dispatch_all([UserMessage(content="c" * 400), LlmTextResponse(content="d" * 80)])
        prices = Prices(input=2.0, cached_input=1.0, output=10.0)
        report, fork = await tried(
            thread, Change(edits=[ReplaceEvent(3, UserMessage(content="e" * 40))], prices=prices)
        )
        (turn,) = report.turns
        first, second = await thread.context(at=1), await thread.context(at=3)
        assert 1 == report.calls_shared
        assert turn.original is not None
        assert turn.fork is not None
        assert (4, second.tokens, first.tokens - 3, 20) == (
            turn.original.seq, turn.original.tokens, turn.original.kept_tokens, turn.original.output_tokens
        )  # fmt: skip
        assert (await fork.context(at=3)).tokens == turn.fork.tokens
        assert turn.original.tokens == turn.original.kept_tokens + turn.original.fresh_tokens
        cost = (turn.original.fresh_tokens * 2 + turn.original.kept_tokens * 1 + 20 * 10) / 1e6
        assert pytest.approx(cost) == report.original.cost_usd
        assert (report.fork.cost_usd or 0) < cost
        data = report.as_data()
        assert {"thread_id", "fork_id", "events", "turns", "totals", "state", "compactions", "refused"} <= data.keys()


async def test_a_message_of_both_sides_is_rendered_once() -> None:
    """Once for the calls of both; and once a side for the last states, which are compared apart from them."""
    plugin, rendered = Plugin("counting"), Counter[str]()

    @plugin.renderer("user_message")
    def render(chunk: Chunk) -> list[Message]:
        rendered[chunk.id] += 1
        return [{"role": "user", "content": chunk.text}]

    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER), plugins=[plugin]) as engine:
        thread = await engine.create_thread("t")
        for n in range(4):
            await thread.dispatch_all([UserMessage(content=f"Say {n}"), LlmTextResponse(content=f"{n}")])
        await thread.replay.what_if(Change(edits=[ReplaceEvent(3, UserMessage(content="Say one"))]))
    assert {"1.0": 3, "3.0": 4, "5.0": 3, "7.0": 3} == rendered


async def test_parts_of_one_response_are_one_call() -> None:
    """Thinking, text and calls of a response are one call; a skipped part of it does not end it."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([
            UserMessage(content="look"), e.LlmThinking(content="hm", response_id="r1"),
            LlmToolCall(calls=(ToolCall(id="c1", name="look"),), response_id="r1"),
            ToolResult(call_id="c1", content="x"),
            LlmTextResponse(content="done", response_id="r2"), LlmTextResponse(content="again", response_id="r3"),
        ])  # fmt: skip
        report, _ = await tried(thread, Change(edits=[SkipEvent(2)]))
        assert [(2, 3), (5, 5), (6, 6)] == [
            (turn.original.seq, turn.fork.seq) for turn in report.turns if turn.original and turn.fork
        ]


async def test_a_budget_that_does_not_fit_is_told() -> None:
    """A call whose context does not fit `max_tokens` says how much it needs."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([e.SessionStarted(content="rules " * 200), *turns(2)])
        report, _ = await tried(thread, Change(edits=[SkipEvent(1)], max_tokens=250))
        (turn,) = report.turns
        assert turn.original is not None
        assert turn.fork is not None
        assert (False, True) == (turn.original.fits, turn.fork.fits)


@pytest.mark.parametrize("compactor", [EmbeddedCompactor(), Scripted(a_line_each)])
async def test_the_same_change_comes_to_the_same(compactor: Compactor) -> None:
    """Two reruns of one change have the same events under the same ids, and equal states."""
    async with opened(Scripted()) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(15))
        change = Change(compactor=compactor, edits=[InsertEvent(2, UserMessage(content="new"))])
        (_, one), (_, other) = await tried(thread, change), await tried(thread, change)
        assert [(row.id, row.type, row.recorded_at_us) for row in await rows(one)] == [
            (row.id, row.type, row.recorded_at_us) for row in await rows(other)
        ]
        assert list((await one.state()).placed()) == list((await other.state()).placed())
