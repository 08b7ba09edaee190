"""What no cut may split: tables of cases, and laws over random conversations."""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_engine import (
    Chunk,
    CompactionPolicy,
    Event,
    LlmClarification,
    LlmSubagentSpawn,
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
    State,
    SubagentResult,
    ToolCall,
    ToolError,
    ToolResult,
    UserMessage,
)
from memory_engine.errors import CompactionError, ContextBudgetError
from tests.conversations import LONG, NEVER, flaws, log, note, opened, say, texts, turns
from tests.scripted_compactors import Scripted

USER = UserMessage(content=f"user{LONG}")
SEEN = UserMessage(content=f"seen{LONG}", origin="tool")
AGENT = LlmTextResponse(content=f"agent{LONG}")
THINK = LlmThinking(content=f"think{LONG}")
ASK = LlmClarification(content=f"ask{LONG}")
ALLOW = LlmClarification(content=f"allow{LONG}", approval=True)
SPAWN = LlmSubagentSpawn(call_id="s", agent_id="helper", task=f"spawn{LONG}")


def call(*ids: str, response: str = "", long_running: bool = False) -> LlmToolCall:
    """A response that calls one tool or several."""
    calls = tuple(
        ToolCall(id=i, name="look", arguments='{"x": "' + "y" * 200 + '"}', long_running=long_running) for i in ids
    )
    return LlmToolCall(calls=calls, content=f"call-{'-'.join(ids)}{LONG}", response_id=response)


def result(call_id: str, *, final: bool = True) -> ToolResult:
    """What a tool returned."""
    return ToolResult(call_id=call_id, content=f"result-{call_id}{LONG}", final=final)


def failed(call_id: str) -> ToolError:
    """A call that failed or was rejected."""
    return ToolError(call_id=call_id, content=f"failed-{call_id}{LONG}")


OPEN: dict[str, tuple[list[Event], list[str]]] = {
    "a call without its result": ([USER, AGENT, USER, call("a")], ["user", "call-a"]),
    "one of two parallel calls unanswered": (
        [USER, AGENT, USER, call("a", "b"), result("a")],
        ["user", "call-a-b", "result-a"],
    ),
    "one of two calls of a response unanswered": (
        [USER, AGENT, USER, call("a", response="r"), call("b", response="r"), result("a")],
        ["user", "call-a", "call-b", "result-a"],
    ),
    "a long-running call with intermediate results": (
        [call("a", long_running=True), result("a", final=False), USER, AGENT, USER, AGENT],
        ["call-a", "result-a"],
    ),
    "a sub-agent at work": ([SPAWN, USER, AGENT, USER, AGENT], [""]),
    "a question that waits": ([USER, AGENT, ASK], ["ask"]),
    "a call that waits for approval": ([USER, AGENT, USER, call("a"), ALLOW], ["user", "call-a", "allow"]),
    "a thinking loop that goes on": (
        [USER, AGENT, USER, THINK, call("a"), result("a")],
        ["user", "think", "call-a", "result-a"],
    ),
    "a message without an answer": ([USER, AGENT, USER], ["user"]),
    "a message that many calls are made for": (
        [USER, AGENT, USER, *(step for n in "abcdef" for step in (call(n), result(n)))],
        ["user"],
    ),
    "a message that a first word and calls follow": ([USER, AGENT, USER, AGENT, call("a"), result("a")], ["user"]),
    "a message whose loop has only said a text so far, of a response that may go on": (
        [USER, AGENT, USER, call("a"), result("a"), LlmTextResponse(content=f"agent{LONG}", response_id="r")],
        ["user"],
    ),
    "a message that actions as texts are made for": (
        [USER, AGENT, USER, AGENT, SEEN, AGENT, SEEN],
        ["user"],
    ),
    "a message whose last action as a text waits for its result": (
        [USER, AGENT, USER, AGENT, SEEN, AGENT],
        ["user"],
    ),
    "a message that a written call is made for": (
        [USER, AGENT, USER, LlmTextResponse(content=f"act{LONG}\n<function=look>\n</function>")],
        ["user"],
    ),
    "a message whose call is answered in the same response": (
        [USER, AGENT, USER, call("a", response="r"), LlmTextResponse(content=f"agent{LONG}", response_id="r")],
        ["user", "call-a", "agent"],
    ),
}
CLOSED: dict[str, tuple[list[Event], set[int]]] = {
    "a call with its result": ([call("a"), result("a")], {0, 1}),
    "a failed call": ([call("a"), failed("a")], {0, 1}),
    "parallel calls": ([call("a", "b"), USER, result("b"), result("a")], {0, 2, 3}),
    "the calls of one response": (
        [call("a", response="r"), call("b", response="r"), result("b"), result("a")],
        {0, 1, 2, 3},
    ),
    "a long-running call that is done": (
        [call("a", long_running=True), result("a", final=False), USER, result("a")],
        {0, 1, 3},
    ),
    "a sub-agent that is done": ([SPAWN, USER, SubagentResult(call_id="s", content=f"done{LONG}")], {0, 2}),
    "a question with its answer": ([ASK, USER, AGENT], {0, 1}),
    "an approval with its answer": ([call("a"), ALLOW, USER, result("a"), AGENT], {1, 2}),
    "an approved call with its result": ([call("a"), ALLOW, USER, result("a"), AGENT], {0, 3}),
    "a round of a thinking loop that has ended": (
        [THINK, call("a"), result("a"), THINK, call("b"), failed("b"), AGENT],
        {0, 1, 2},
    ),
    "an action as a text with what was seen": ([AGENT, SEEN, AGENT, SEEN, USER], {0, 1}),
    "thinking, words and a call without ids": ([THINK, AGENT, call("a"), result("a"), AGENT], {0, 1, 2, 3}),
    "a round whose blocks came as messages of their own": (
        [
            LlmThinking(content=f"think{LONG}", response_id="r"),
            LlmTextResponse(content=f"agent{LONG}", response_id="r"),
            call("a", response="r"),
            result("a"),
            AGENT,
        ],
        {0, 1, 2, 3},
    ),
    "thinking and answer of one response": (
        [
            LlmThinking(content=f"think{LONG}", response_id="r"),
            LlmTextResponse(content=f"agent{LONG}", response_id="r"),
        ],
        {0, 1},
    ),
}


@pytest.mark.parametrize(("events", "kept"), OPEN.values(), ids=OPEN)
async def test_what_is_open_is_left_alone(events: Sequence[Event], kept: list[str]) -> None:
    """Work that waits for more stays word for word, though everything else is compacted."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, events)
        await thread.compact()
        assert kept == [word for word in await texts(thread) if not word.isdecimal()]
        assert [] == flaws(await thread.context())


@pytest.mark.parametrize(("events", "group"), CLOSED.values(), ids=CLOSED)
async def test_what_belongs_together_goes_together(events: Sequence[Event], group: set[int]) -> None:
    """Naming any one of its chunks compacts them all, and nothing that stands beside them."""
    for named in group:
        async with opened(Scripted(), NEVER) as engine:
            thread = await engine.create_thread()
            await say(thread, [USER, AGENT])
            made = await say(thread, events)
            report = await thread.compact([made[named]])
            assert {made[n] for n in group} == {*report.covered, *report.dropped}
            assert [] == flaws(await thread.context())


@pytest.mark.parametrize("at", range(4))
async def test_what_is_critical_keeps_its_partners(at: int) -> None:
    """One critical chunk of a round keeps the whole round, its thinking too."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [USER, AGENT])
        made = await say(thread, [THINK, call("a", "b"), result("a"), result("b"), AGENT])
        await thread.compaction.mark_critical(made[at])
        await thread.compact()
        assert ["think", "call-a-b", "result-a", "result-b"] == [t for t in await texts(thread) if not t.isdecimal()]


async def test_dropping_disposable_chunks_splits_no_loop() -> None:
    """Where dropping scraps is enough, the thinking of a loop whose calls stay is no scrap."""
    async with opened(Scripted(), CompactionPolicy(threshold=8, tokens_min=0, keep_recent=0)) as engine:
        thread = await engine.create_thread()
        await say(thread, [THINK, call("a"), result("a"), AGENT, USER, note("scrap", "disposable"), USER, AGENT])
        assert ["think", "call-a", "result-a", "agent", "user", "user", "agent"] == await texts(thread)


async def test_more_recent_chunks_than_there_are_is_all_of_them() -> None:
    """`keep_recent` above the length of the thread keeps everything."""
    async with opened(Scripted(), CompactionPolicy(threshold=4, tokens_min=0, keep_recent=7)) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(6))
        assert [f"word{n}" for n in range(1, 7)] == await texts(thread)


async def test_call_ids_that_come_again_are_other_calls() -> None:
    """Models that number their calls anew in each response: an open call does not hold back the old ones."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [call("1"), result("1"), USER, AGENT, call("1"), result("1"), USER, AGENT, USER, call("1")])
        context = await thread.context()
        answers = [m["content"] for m in context.messages if m["role"] == "tool"]
        assert ["result-1", "result-1", "[no"] == [str(answer).partition(" ")[0] for answer in answers]
        await thread.compact()
        assert ["8", "user", "call-1"] == await texts(thread)


async def test_an_endless_loop_is_compacted_in_the_end() -> None:
    """An agent that works for hours between two messages keeps its last rounds whole; the older ones go."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        for n in range(12):
            await say(thread, [THINK, call(f"c{n}"), result(f"c{n}")])
        await thread.compact()
        words = await texts(thread)
        assert [8, "think", "call-c4", "result-c4"] == [words.count("think"), *words[1:4]]


async def test_one_thought_at_its_start_does_not_hold_a_loop() -> None:
    """Of a loop whose first response alone has thinking stay that response and the newest rounds."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [USER, THINK])
        for n in range(20):
            await say(thread, [call(f"c{n}"), result(f"c{n}")])
        await thread.compact()
        kept = [word for word in await texts(thread) if not word.isdecimal()]
        assert ["user", "think", "call-c0", "result-c0", "call-c12"] == kept[:5]
        assert 4 + 2 * 8 == len(kept)


@pytest.mark.parametrize("thoughts", ["none", "first", "every"])
async def test_the_smallest_budget_is_flat_however_long_a_loop_runs(thoughts: str) -> None:
    """A loop that is compacted in between needs no more room after many steps than after few, wherever it thinks."""
    async with opened(Scripted(), CompactionPolicy(threshold=20, tokens_min=0)) as engine:
        thread = await engine.create_thread()
        await say(thread, [USER])
        needed = []
        for n in range(120):
            thought = [] if thoughts == "none" or (thoughts == "first" and n) else [THINK]
            await say(thread, [*thought, call(f"c{n}"), result(f"c{n}")])
            await thread.compaction.settle()
            if n in (39, 119):
                with pytest.raises(ContextBudgetError) as caught:
                    await thread.context(max_tokens=10)
                needed.append(caught.value.needed)
                assert len(await thread.state()) < n
        assert needed[1] <= needed[0] * 1.1


# Random conversations: each step is drawn, so that results may be missing, late, doubled or of nobody.

IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
RESPONSES = st.sampled_from(["", "", "r1", "r2"])
STEPS = st.one_of(
    st.sampled_from([USER, AGENT, THINK, ASK, ALLOW, note("scrap", "disposable"), note("alone", "compressible")]),
    st.builds(
        lambda ids, r, long: call(*ids, response=r, long_running=long),
        st.lists(IDS, min_size=1, max_size=3, unique=True),
        RESPONSES,
        st.booleans(),
    ),
    st.builds(lambda i, final: result(i, final=final), IDS, st.booleans()),
    st.builds(failed, IDS),
)
POLICIES = st.builds(
    CompactionPolicy,
    threshold=st.integers(2, 8),
    keep_recent=st.integers(0, 3),
    summary_tokens_max=st.sampled_from([1, 20, 4000]),
)
LAW = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def groups(chunks: Sequence[Chunk]) -> set[frozenset[str]]:
    """Ids of chunks that belong together: a call and what answers it, up to the next call of that id."""
    found: set[frozenset[str]] = set()
    asking: dict[str, str] = {}
    for chunk in chunks:
        asking.update((made.id, chunk.id) for made in chunk.calls)
        if chunk.call_id in asking:
            found.add(frozenset({asking[chunk.call_id], chunk.id}))
    responses: dict[str, list[str]] = {}
    for chunk in chunks:
        if chunk.response_id:
            responses.setdefault(chunk.response_id, []).append(chunk.id)
    found.update(map(frozenset, responses.values()))
    return found | thoughts(chunks)


def thoughts(chunks: Sequence[Chunk]) -> set[frozenset[str]]:
    """Thinking, and the model's chunk right after it, unless that says that it is of another response."""
    return {
        frozenset({one.id, after.id})
        for one, after in itertools.pairwise(chunks)
        if one.type == "thinking" and after.type in {"thinking", "agent_action", "agent_response"}
        if after.response_id in ("", one.response_id)
    }


def unanswered(chunks: Sequence[Chunk]) -> set[str]:
    """Ids of the chunks with a call that waits, and no person has spoken since."""
    waiting: dict[str, str] = {}
    for chunk in chunks:
        if chunk.type == "user_message":
            waiting.clear()
        waiting.update((made.id, chunk.id) for made in chunk.calls)
        if chunk.call_id and chunk.final:
            waiting.pop(chunk.call_id, None)
    return set(waiting.values())


async def converse(events: Sequence[Event], policy: CompactionPolicy) -> None:
    """Say it all, compacting when it is due and once more at the end; then check the laws."""
    async with opened(Scripted(), policy) as engine:
        thread = await engine.create_thread()
        made: set[str] = set()
        for event in events:
            made.update(chunk.id for chunk in (await thread.dispatch(event)).chunks if chunk.retention != "disposable")
            await thread.compaction.settle()
            assert [] == flaws(await thread.context())
        with contextlib.suppress(CompactionError):
            await thread.compact()
        assert [] == flaws(await thread.context())
        for recorded in await log(thread):
            if recorded.type == "compaction_completed":
                before, after = [await thread.state(at=seq) for seq in (recorded.seq - 1, recorded.seq)]
                check(list(before.chunks()), after)
        left = {chunk.id for chunk in (await thread.state()).chunks()}
        assert made <= left | {o.id for chunk_id in left for o in await thread.compaction.originals(chunk_id)}
        assert None is (await thread.replay.verify()).divergence


def check(before: Sequence[Chunk], after: State) -> None:
    """A compaction leaves every group whole or takes it whole, keeps the order, and leaves alone what waits."""
    left = [chunk.id for chunk in after.chunks()]
    assert [chunk.id for chunk in before if chunk.id in left] == [i for i in left if i in {c.id for c in before}]
    assert [] == [sorted(group) for group in groups(before) if group & set(left) and group - set(left)]
    assert set() == unanswered(before) - set(left)


@LAW
@given(events=st.lists(STEPS, min_size=1, max_size=25), policy=POLICIES)
def test_no_compaction_splits_what_belongs_together(events: list[Event], policy: CompactionPolicy) -> None:
    """Whatever is said: groups survive whole or go whole, order stays, and each context is valid."""
    asyncio.run(converse(events, policy))
