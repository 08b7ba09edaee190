"""When a compaction is worth it: what it takes to start one, what it may take, what a policy may say."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import memory_engine
from memory_engine import (
    CompactionPolicy,
    EngineConfig,
    Event,
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine.compaction.plan import SUMMARY_TOKENS_MIN
from memory_engine.core.threads import decode_policy, encode_policy
from memory_engine.errors import InvalidPolicy
from tests.conversations import LONG, NEVER, call, opened, say, texts, turns, types
from tests.scripted_compactors import Scripted

STARTED, COMPLETED = "compaction_started", "compaction_completed"


def chat(count: int, words: int) -> list[Event]:
    """A conversation of so many messages, each of about so many tokens; every other is an answer."""
    kinds = (UserMessage, LlmTextResponse)
    return [kinds[n % 2](content=f"n{n} " + " ".join(f"word{n}x{w}" for w in range(words // 2))) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "words", "compacted"),
    [(20, 20, False), (60, 20, False), (19, 150, False), (20, 160, True), (30, 110, True), (12, 700, True)],
)
async def test_by_default_it_takes_twenty_chunks_and_a_share_of_the_window(
    count: int, words: int, compacted: bool
) -> None:
    """What fits the window stays as it is; twenty chunks that fill 70 % of it are compacted, or fewer over 80 %."""
    async with opened(Scripted(), CompactionPolicy.for_window(4_000)) as engine:
        thread = await engine.create_thread()
        await say(thread, chat(count, words))
        assert compacted == (COMPLETED in await types(thread))


@pytest.mark.parametrize(("budget", "compacted"), [(None, False), (100_000, False), (4_000, True)])
async def test_the_window_is_the_budget_that_the_loop_asks_for(budget: int | None, compacted: bool) -> None:
    """Without a window in the policy the budget of the thread's own contexts counts, else 128,000 tokens."""
    async with opened(Scripted(), CompactionPolicy()) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content="Hello"))
        await thread.context(max_tokens=budget)
        await say(thread, chat(30, 110))
        assert compacted == (COMPLETED in await types(thread))


@pytest.mark.parametrize("change", ["policy", "window"])
async def test_limits_that_fall_below_what_is_there_are_noticed_at_the_next_event(change: str) -> None:
    """However far from its limits the thread was before."""
    async with opened(Scripted(), CompactionPolicy()) as engine:
        thread = await engine.create_thread()
        await say(thread, chat(40, 110))
        assert STARTED not in await types(thread)
        if change == "policy":
            await thread.admin.update(policy=CompactionPolicy.for_window(4_000))
        else:
            await thread.context(max_tokens=4_000)
        await say(thread, chat(2, 10))
        assert COMPLETED in await types(thread)


async def test_a_window_that_a_policy_names_counts_whatever_is_asked() -> None:
    """A policy for a window of 100,000 tokens compacts nothing for a context of 4,000."""
    async with opened(Scripted(), CompactionPolicy.for_window(100_000)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content="Hello"))
        await thread.context(max_tokens=4_000)
        await say(thread, chat(30, 110))
        assert [] == await types(thread)


@pytest.mark.parametrize("held", ["a message being worked on", "an open call"])
async def test_what_a_compaction_may_not_take_sets_off_none(held: str) -> None:
    """A text larger than the window that has to stay leads to no compaction of the little that follows."""
    async with opened(Scripted(), CompactionPolicy.for_window(4_000)) as engine:
        thread = await engine.create_thread()
        long = "word " * 10_000
        if held == "an open call":
            await thread.dispatch(UserMessage(content="Go on."))
            await thread.dispatch(LlmToolCall(calls=(ToolCall.create("long", "write", {"text": long}),)))
        else:
            await thread.dispatch(UserMessage(content=long))
        for n in range(20):
            called = LlmToolCall(calls=(ToolCall.create(f"c{n}", "look", {"at": n}),))
            await say(thread, [called, ToolResult(call_id=f"c{n}", content=f"found {n}")])
        assert [] == await types(thread)


async def test_an_allergy_told_at_a_short_dinner_chat_is_not_lost() -> None:
    """Thirty short messages take fewer tokens than a summary would be worth: every word still stands."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        talk = [
            UserMessage(content="Ravi is severely allergic to nuts."),
            LlmTextResponse(content="I will remember it."),
        ]
        for n in range(14):
            talk += [UserMessage(content=f"And dish {n}?"), LlmTextResponse(content=f"Dish {n} is a salad.")]
        await say(thread, talk)
        assert [] == await types(thread)
        assert "severely allergic to nuts" in str((await thread.context(100_000)).messages)


async def test_what_a_summary_might_take_as_many_tokens_as_is_left_alone() -> None:
    """Where the newest chunks take nearly all tokens, the few old ones are not worth a summary."""
    async with opened(Scripted(), CompactionPolicy(tokens_min=2_000)) as engine:
        thread = await engine.create_thread()
        await say(thread, [*chat(14, 8), *chat(6, 700)])
        assert (await thread.state()).tally.compactable_tokens > 2_000
        assert [] == await types(thread)
        await say(thread, chat(14, 8))
        assert [STARTED, COMPLETED] == await types(thread)


@pytest.mark.parametrize(("said", "tokens"), [(1_000, 400), (1_900, 400), (4_000, 800), (300, 240), (50_000, 2_000)])
async def test_a_summary_may_always_take_400_tokens(said: int, tokens: int) -> None:
    """Its budget is a fifth of what it replaces, at least 400 tokens, and never nearly as much as the whole."""
    compactor = Scripted()
    async with opened(compactor, NEVER) as engine:
        thread = await engine.create_thread()
        half = "x" * (said * 2)
        await thread.dispatch_all([UserMessage(content=half), LlmTextResponse(content=half)])
        await thread.compact()
        assert [tokens] == [context.budget_tokens for context in compactor.contexts]
    assert 400 == SUMMARY_TOKENS_MIN


@pytest.mark.parametrize("calls", [1, 30])
async def test_the_message_that_is_worked_on_is_never_taken(calls: int) -> None:
    """However many calls follow it, the question stands word for word until its answer does."""
    policy = CompactionPolicy(threshold=8, tokens_min=0, keep_recent=0)
    async with opened(Scripted(), policy) as engine:
        thread = await engine.create_thread()
        await say(thread, [*turns(4), UserMessage(content=f"question{LONG}")])
        for n in range(calls):
            await say(thread, call(f"c{n}"))
        assert "question" in await texts(thread)
        await say(thread, [*turns(1), *turns(4)])
        await thread.compact()
        assert "question" not in await texts(thread)


async def test_not_even_on_request_is_the_message_taken() -> None:
    """A compaction by hand takes the rest; naming the message alone finds nothing to compact."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, [*turns(4), UserMessage(content=f"question{LONG}"), *call("a")])
        await thread.compact()
        assert ["6", "question"] == await texts(thread)
        with pytest.raises(memory_engine.errors.NothingToCompact, match="worked on"):
            await thread.compact([made[4]])


async def test_a_response_that_is_still_thinking_has_not_answered() -> None:
    """A client may deliver one response in parts: a text, then thinking, before its calls. The question stays."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        parts = [LlmTextResponse(content="Well.", response_id="r9"), LlmThinking(content="Hm.", response_id="r9")]
        await say(thread, [*turns(4), UserMessage(content=f"question{LONG}"), *call("a"), *parts])
        await thread.compact()
        assert "question" in await texts(thread)
        await say(thread, [LlmTextResponse(content="It is done.", response_id="r9"), *turns(4)])
        await thread.compact()
        assert "question" not in await texts(thread)


IMPOSSIBLE = {
    "an endless deadline": {"deadline_s": float("inf")},
    "no number": {"deadline_s": float("nan")},
    "half a chunk": {"threshold": 2.5},
    "a truth for a number": {"threshold": True},
    "a word for a truth": {"enabled": "no"},
    "no chunks": {"threshold": 0},
    "fewer than none": {"keep_recent": -1},
    "less than nothing": {"tokens_min": -1},
    "all of it": {"ratio": 1},
    "a text for a number": {"soft_tokens": "many"},
    "another way to block": {"blocking": "never"},
    "an object": {"ratio": object()},
    "no character": {"blocking": "\ud800"},
}


@pytest.mark.parametrize("fields", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_policy_that_could_not_be_read_back_is_refused(fields: dict[str, object]) -> None:
    """When it is made, not when the thread is next opened; the error names the field, the value and why."""
    [(name, value)] = fields.items()
    with pytest.raises(InvalidPolicy, match=f"CompactionPolicy.{name} cannot be ") as refused:
        CompactionPolicy(**fields)  # type: ignore[arg-type]
    assert ascii(value)[:20] in str(refused.value)
    assert isinstance(refused.value, ValueError)
    with pytest.raises(InvalidPolicy):
        msgspec.structs.replace(CompactionPolicy(), **fields)


def test_a_policy_is_what_is_read_back() -> None:
    """A number that may be written in two ways is the one that a record gives back."""
    policy = CompactionPolicy(deadline_s=5, threshold=7, blocking="commit")
    assert (policy, 5.0, float) == (decode_policy(encode_policy(policy)), policy.deadline_s, type(policy.deadline_s))


async def test_a_policy_stored_before_keeps_its_meaning(tmp_path: Path) -> None:
    """A record from before two fields existed asks for no tokens and blocks: its thread compacts as it did."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        await engine.create_thread("t", policy=CompactionPolicy())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute('UPDATE threads SET policy = \'{"threshold":4,"keep_recent":0}\'')
    async with opened(Scripted(), CompactionPolicy(), path) as engine:
        thread = engine.thread("t")
        stored = (await thread.info()).policy
        before = CompactionPolicy(
            threshold=4, keep_recent=0, tokens_min=0, soft_tokens=24_000, hard_tokens=96_000, blocking="whole"
        )
        assert before == stored
        await say(thread, turns(4))
        assert ["4"] == await texts(thread)


async def test_a_new_policy_asks_for_tokens_after_it_was_stored(tmp_path: Path) -> None:
    """The default of today is written down, not left to the reader's default."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        await engine.create_thread("t", policy=CompactionPolicy(threshold=4))
    async with memory_engine.open(path, config=EngineConfig()) as engine:
        assert CompactionPolicy(threshold=4) == (await engine.thread("t").info()).policy
