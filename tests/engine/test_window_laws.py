"""The window of a context: more room never shows less, what was covered comes back, a loop's window moves seldom."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Context, EngineConfig, Event, Thread
from memory_engine import events as e
from memory_engine.core.json_form import as_data
from memory_engine.errors import ContextBudgetError
from tests.conversations import NEVER

OFTEN = EngineConfig(compaction=CompactionPolicy(threshold=6, tokens_min=0, keep_recent=2))
"""Compacts far more often than any of the budgets below asks for."""

WORDS = "plum lathe onyx tide ferry moss quill ember gorge velvet".split()
SAID = st.tuples(st.sampled_from("uatlwx"), st.integers(1, 60))
"""A message of a person, an answer, a call with its result, a long result, a call that writes much, a critical note;
and its words."""


def said(n: int, kind: str, words: int) -> list[Event]:
    """The events of one step."""
    text = f"n{n} " + " ".join(f"{WORDS[(n + k) % 10]}{n * 7 + k}" for k in range(words * (6 if kind in "lw" else 1)))
    match kind:
        case "u":
            return [e.UserMessage(content=text)]
        case "a":
            return [e.LlmTextResponse(content=text)]
        case "x":
            return [e.ExternalInject(content=text, retention="critical")]
    call = e.ToolCall.create(f"c{n}", "look", {"at": n} | ({"text": text} if kind == "w" else {}))
    return [e.LlmToolCall(calls=(call,)), e.ToolResult(call_id=f"c{n}", content="Written." if kind == "w" else text)]


async def filled(thread: Thread, steps: Sequence[tuple[str, int]]) -> None:
    """Dispatch the steps, each waiting for a compaction under way."""
    for n, (kind, words) in enumerate(steps):
        await thread.dispatch_all(said(n, kind, words))
        await thread.compaction.settle()


def whole_of(context: Context) -> set[str]:
    """The ids of the chunks that a context shows whole, without summaries."""
    summaries = {chunk.id for chunk in context.chunks if chunk.lines}
    return set(context.included) - set(context.shortened) - summaries


def summarised_in(context: Context) -> set[str]:
    """The ids that the lines of a context cite."""
    return {source for chunk in context.chunks for line in chunk.lines for source in line.sources}


@settings(max_examples=60)
@given(st.lists(SAID, min_size=4, max_size=40), st.lists(st.integers(60, 3_000), min_size=2, max_size=6))
async def test_more_room_never_shows_less(steps: list[tuple[str, int]], budgets: list[int]) -> None:
    """Of two budgets of a moment the larger shows whole what the smaller does, and the rest at least by a summary."""
    async with memory_engine.open(":memory:", config=OFTEN) as engine:
        thread = await engine.create_thread()
        await filled(thread, steps)
        contexts = []
        for budget in sorted(set(budgets)):
            try:
                contexts.append(await thread.context(budget))
            except ContextBudgetError:
                assert not contexts
        for less, more in pairwise(contexts):
            assert whole_of(less) <= whole_of(more)
            assert summarised_in(less) <= summarised_in(more) | whole_of(more)


@settings(max_examples=30)
@given(st.lists(SAID, min_size=8, max_size=40))
async def test_what_fits_is_there_whole_however_often_it_was_compacted(steps: list[tuple[str, int]]) -> None:
    """A context with room for everything shows what it shows of a thread that was never compacted."""
    texts = []
    for config in (OFTEN, EngineConfig(compaction=NEVER)):
        async with memory_engine.open(":memory:", config=config) as engine:
            thread = await engine.create_thread()
            await filled(thread, steps)
            context = await thread.context(100_000)
            assert not context.excluded
            texts.append([json.dumps(message) for message in context.messages])
    assert texts[1] == texts[0]


async def test_a_context_with_room_left_fills_it_with_originals() -> None:
    """After a compaction for a small window a large budget is filled to the last turn that fits."""
    async with memory_engine.open(":memory:", config=OFTEN) as engine:
        thread = await engine.create_thread()
        await filled(thread, [("uatl"[n % 4], 20) for n in range(120)])
        for budget in (1_000, 2_000, 4_000):
            context = await thread.context(budget)
            assert 0.93 * budget <= context.tokens <= budget
            assert context.spent.summary > 0


@pytest.mark.parametrize("budget", [1_000, 3_000])
async def test_the_window_of_a_loop_moves_once_in_many_calls(budget: int) -> None:
    """The prompt of a call mostly begins with the whole prompt before, also where compactions come in between."""
    moved, before = 0, list[str]()
    async with memory_engine.open(":memory:", config=OFTEN) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(e.UserMessage(content="Count the parts."))
        for n in range(200):
            await thread.dispatch_all(said(n, "t", 4))
            await thread.compaction.settle()
            shown = [json.dumps(message) for message in (await thread.context(budget)).messages]
            moved += before != shown[: len(before)]
            before = shown
    assert 1 <= moved <= 200 * 25 // (budget // 5)


async def test_a_compaction_moves_no_window() -> None:
    """What a summary covers stays where it was shown, and the summary says nothing of it yet."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await filled(thread, [("ua"[n % 2], 10) for n in range(20)])
        before = await thread.context(10_000)
        await thread.compact()
        after = await thread.context(10_000)
        assert before.messages == after.messages
        assert (before.included, ()) == (after.included, after.excluded)


async def test_forgotten_originals_do_not_come_back() -> None:
    """A chunk that was covered, and then forgotten, is in no window."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await filled(thread, [("ua"[n % 2], 10) for n in range(20)])
        await thread.compact()
        assert "n4 " in str((await thread.context(10_000)).messages)
        await thread.forget(chunk_ids=["5.0"])
        assert "n4 " not in str((await thread.context(10_000)).messages)
        assert "n5 " in str((await thread.context(10_000)).messages)


async def test_the_window_of_a_moment_shows_the_originals_of_then() -> None:
    """`at=` gives what that moment covered, also after the thread was compacted again."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await filled(thread, [("ua"[n % 2], 10) for n in range(12)])
        await thread.compact()
        seq = (await thread.info()).events
        then = await thread.context(5_000)
        await filled(thread, [("ua"[n % 2], 10) for n in range(12)])
        await thread.compact()
        assert then.messages == (await thread.context(5_000, at=seq)).messages


async def test_what_a_compaction_tells_of_turns_before_the_window_is_shown_at_once() -> None:
    """A loop's window had moved past them before they were compacted: the next context has their lines."""
    policy = CompactionPolicy(threshold=200, tokens_min=0, keep_recent=2)
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(e.UserMessage(content="Find out why the press stops."))
        for n in range(24):
            call = e.ToolCall.create(f"c{n}", "run_command", {"command": f"check part-{n}"})
            await thread.dispatch(e.LlmToolCall(calls=(call,)))
            await thread.dispatch(e.ToolResult(call_id=f"c{n}", content=f"part-{n} is fine\n" + f"tick {n} " * 80))
            await thread.context(3_000)
        before = await thread.context(3_000)
        await thread.compact()
        after, again = [await thread.context(3_000) for _ in range(2)]
    assert not summarised_in(before)
    assert "check part-20" in str([chunk.text for chunk in after.chunks if chunk.lines])
    assert after.messages == again.messages


async def test_lines_about_the_request_in_work_come_before_older_ones() -> None:
    """Where not all have room."""
    policy = CompactionPolicy(enabled=False, keep_recent=0)
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread()
        for request in ("Check the mill.", "Check the press."):
            name = request.split()[-1].rstrip(".")
            await thread.dispatch(e.UserMessage(content=request))
            for n in range(12):
                call = e.ToolCall.create(f"{name}{n}", "run_command", {"command": f"check {name}-{n}"})
                await thread.dispatch(e.LlmToolCall(calls=(call,), content=f"I decided to look at {name}-{n} next."))
                await thread.dispatch(e.ToolResult(call_id=f"{name}{n}", content=f"{name}-{n} is fine. " * 20))
        await thread.compact()
        call = e.ToolCall.create("last", "run_command", {"command": "sum up"})
        await thread.dispatch(e.LlmToolCall(calls=(call,)))
        await thread.dispatch(e.ToolResult(call_id="last", content="tick " * 300))
        shown = str((await thread.context(900)).messages)
    assert sum(f"check press-{n}" in shown for n in range(12)) > sum(f"check mill-{n}" in shown for n in range(12))


WRITTEN = "".join(f"line {n}: {WORDS[n % 10]} = {n}\n" for n in range(2_000))


async def wrote_a_long_file(thread: Thread, native: str = "") -> None:
    """A request, and a call that writes a file of some 15,000 tokens."""
    await thread.dispatch(e.UserMessage(content="Write the parts down."))
    arguments = {"path": "parts/" + "deep/" * 60 + "all.py", "edits": [{"line": 7, "text": WRITTEN}]}
    call = e.ToolCall.create("c1", "write", arguments)
    await thread.dispatch(e.LlmToolCall(calls=(call,), native=native))
    await thread.dispatch(e.ToolResult(call_id="c1", content="Written."))


async def test_a_call_that_writes_a_long_file_leaves_no_room_unused() -> None:
    """Its text is cut to what the turns after it leave; it stays a call with its result, and its path stays whole."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await wrote_a_long_file(thread)
        for n in range(5):
            await thread.dispatch_all(said(n, "t", 20))
        for budget in (1_500, 3_000, 8_000):
            context = await thread.context(budget)
            assert 0.93 * budget <= context.tokens <= budget
            [calls] = [m["tool_calls"] for m in context.messages if "write" in str(m)]
            assert isinstance(calls, list)
            shown = json.loads(calls[0]["function"]["arguments"])
            assert shown["path"].endswith("all.py")
            assert "characters of 2.0 …]" in shown["edits"][0]["text"]
            assert shown["edits"][0]["line"] == 7
        opened = (await thread.compaction.open("2.0", chars=200_000)).text
        assert json.loads(opened.removeprefix("write "))["edits"] == [{"line": 7, "text": WRITTEN}]


async def test_the_newest_call_fits_however_much_it_writes() -> None:
    """The smallest budget does not grow with the text that a call writes, in the form of any provider."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await wrote_a_long_file(thread)
        context = await thread.context(1_000)
        for form in ("openai.chat", "openai.responses", "anthropic", "gemini"):
            assert "characters of 2.0" in str(as_data(context.render(form)))


async def test_a_call_that_its_provider_signed_is_never_cut() -> None:
    """Such a call goes back as it came, or not at all."""
    native = '{"gemini":{"message":[{"thoughtSignature":"c2VhbA=="}]}}'
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await wrote_a_long_file(thread, native)
        with pytest.raises(ContextBudgetError):
            await thread.context(1_000)
        for n in range(5):
            await thread.dispatch_all(said(n, "t", 20))
        assert "write" not in str((await thread.context(3_000)).messages)


@pytest.mark.parametrize("budget", [2_500, 4_000, 8_000])
async def test_thinking_takes_room_only_with_its_turn(budget: int) -> None:
    """That of turns before the window leaves its room to others; with what goes back, a request fits its budget."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(e.UserMessage(content="Count the parts."))
        for n in range(60):
            thought = " ".join(f"{WORDS[(n + k) % 10]}{k}" for k in range(600 if n == 20 else 4))
            await thread.dispatch(e.LlmThinking(content=thought, signature=f"s{n}", response_id=f"r{n}"))
            call = e.ToolCall.create(f"c{n}", "look", {"at": n})
            await thread.dispatch(e.LlmToolCall(calls=(call,), response_id=f"r{n}"))
            await thread.dispatch(e.ToolResult(call_id=f"c{n}", content=f"n{n} " + "plum lathe onyx tide " * 25))
        context = await thread.context(budget)
        assert context.thinking
        assert 0.9 * budget <= context.tokens + context.thinking_tokens <= budget
        again = await thread.context(budget)
        assert (again.messages, again.thinking) == (context.messages, context.thinking)


NOTICE = "<task-notification>\n<task-id>b77</task-id>\n<summary>The build is done.</summary>\n</task-notification>"


@pytest.mark.parametrize("config", [EngineConfig(compaction=NEVER), OFTEN])
async def test_what_the_client_said_last_stays_while_it_is_worked_on(config: EngineConfig) -> None:
    """Beside the person's request, however much work follows it; the next request lets it go."""
    async with memory_engine.open(":memory:", config=config) as engine:
        thread = await engine.create_thread("t")
        await filled(thread, [("u", 20), ("t", 20)])
        await thread.dispatch(e.UserMessage(content=NOTICE, origin="client"))
        for n in range(100, 160):
            await thread.dispatch_all(said(n, "l", 30))
            await thread.compaction.settle()
        shown = str((await thread.context(2_000)).messages)
        assert (True, True) == ("The build is done." in shown, "n0 plum0" in shown)
        await thread.dispatch(e.UserMessage(content="Thanks. Now the docs, please."))
        for n in range(160, 200):
            await thread.dispatch_all(said(n, "l", 30))
            await thread.compaction.settle()
        assert "The build is done." not in str((await thread.context(2_000)).messages)
