"""What holds for any text and any order of turns: limits, whole characters, nothing lost from the log."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Thread
from memory_engine import events as e
from memory_engine.context import Message
from memory_engine.runtime.config import ConversationLimits
from memory_engine.views.conversation.texts import cut, fewer_lines, format_exchange, head_and_tail, utf8_bytes

FAMILY = "👨‍👩‍👧‍👦"
FLAGS = "🇩🇪🇫🇷🇯🇵"
HARD = [
    "",
    " ",
    "\x00",
    "\n\n",
    FAMILY,
    FLAGS,
    "e\u0301",
    "\u202e\u05e9\u05dc\u05d5\u05dd\u202c",
    "नमस्ते",
    "각",
    "👍🏽",
    "a\u0300" * 50,
    "\r\n",
]
ODD = st.one_of(
    st.text(max_size=60),
    st.sampled_from(HARD),
    st.builds(lambda part, count: part * count, st.sampled_from([*HARD, "word ", "語"]), st.integers(0, 400)),
)
SMALL = ConversationLimits(
    exchanges=3,
    exchanges_kept=2,
    answer_bytes_max=100,
    answer_bytes_target=64,
    summary_bytes_max=300,
    summary_bytes_target=200,
    scratchpad_snippets_max=4,
)


@given(ODD, st.integers(3, 200))
def test_C2_a_cut_text_fits_and_is_a_beginning(text: str, most: int) -> None:
    """It is the text itself, or a part of its beginning with an ellipsis, within the bytes."""
    short = cut(text, most)
    assert utf8_bytes(short) <= max(most, 0)
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))
    assert bool(short) == bool(text)


@given(st.lists(st.sampled_from([FAMILY, "e\u0301", "👍🏽", "각", "क्षि", "x"]), max_size=60), st.integers(40, 200))
def test_C2_a_cut_tears_no_character_as_people_see_it(clusters: list[str], most: int) -> None:
    """What is left is whole clusters."""
    short = cut("".join(clusters), most).removesuffix("…")
    while short and clusters:
        assert short.startswith(clusters[0])
        short = short.removeprefix(clusters.pop(0))
    assert "" == short


@given(st.integers(0, 40), st.integers(3, 200))
def test_C2_a_cut_tears_no_flag(count: int, most: int) -> None:
    """Flags are pairs of letters; half of one is another sign."""
    assert 0 == len(cut("🇩🇪" * count, most).removesuffix("…")) % 2


def test_C2_a_cut_falls_between_words_where_there_are_words() -> None:
    """And inside one that is as long as the room."""
    assert ("one two…", "onetwothreefour…") == (cut("one two three four", 14), cut("onetwothreefourfive", 18))


@given(ODD, st.integers(64, 300))
def test_C2_head_and_tail_fit(text: str, most: int) -> None:
    """The whole text, or its two ends within the bytes."""
    both = head_and_tail(text, most)
    assert both == text or utf8_bytes(both) <= most
    assert both == text or text.startswith(both.split("\n[…]\n")[0])


@given(st.lists(st.tuples(ODD, ODD), max_size=30), st.integers(64, 2000))
def test_C2_fewer_lines_fit_and_keep_the_newest(exchanges: list[tuple[str, str]], most: int) -> None:
    """Whatever was said, the text is within its bytes, and its last line is the newest's beginning."""
    text = "\n".join(format_exchange(q, a, question_bytes=200, answer_bytes=300) for q, a in exchanges)
    short = fewer_lines(text, most)
    assert utf8_bytes(short) <= most
    if text.strip():
        newest = next(line for line in reversed(text.splitlines()) if line.strip())
        assert newest.strip().startswith(short.splitlines()[-1].removesuffix("…"))


@given(st.lists(ODD, min_size=1, max_size=60))
def test_C2_lines_left_out_are_counted_through_any_number_of_compressions(texts: list[str]) -> None:
    """The marker's number is that of all lines that went, not only of the last ones."""
    summary, lines = "", 0
    for text in texts:
        summary = fewer_lines("\n".join(filter(None, (summary, f"User: {' '.join(text.split())}".strip()))), 200)
        lines += 1
    first, *rest = summary.splitlines()
    gone = int(first.split()[0][1:]) if first.endswith("left out]") else 0
    assert lines == gone + len(rest) + (not gone)


def assert_valid(messages: list[Message]) -> None:
    """Every call is directly followed by its results; nothing a person or the agent said is empty."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert waiting.pop(0) == message["tool_call_id"]
            continue
        assert [] == waiting
        calls = message.get("tool_calls")
        waiting = [call["id"] for call in calls] if isinstance(calls, list) else []
        assert waiting or message["content"]
    assert [] == waiting


async def assert_limits(thread: Thread, limits: ConversationLimits) -> None:
    """Nothing that the memory holds is over its limit."""
    exchanges = await thread.conversation.exchanges()
    assert len(exchanges) <= limits.exchanges
    for exchange in exchanges:
        most = limits.answer_bytes_target if exchange.is_shortened else limits.answer_bytes_max
        assert len(exchange.answer.encode()) <= most
    summary = await thread.conversation.summary()
    assert summary is None or len(summary.text.encode()) <= limits.summary_bytes_max


STEP = st.one_of(
    st.tuples(st.just("turn"), ODD, ODD),
    st.tuples(st.just("ask"), ODD, st.just("")),
    st.tuples(st.just("note"), ODD.filter(lambda text: text.strip() != ""), st.just("")),
    st.tuples(st.just("cache"), st.sampled_from("abc"), ODD),
    st.tuples(st.just("forget"), st.integers(1, 40).map(str), st.just("")),
)


@settings(max_examples=40)
@given(st.lists(STEP, max_size=14))
async def test_C2_limits_hold_for_any_turns(steps: list[tuple[str, str, str]]) -> None:
    """Through questions, answers, findings, cached results and forgetting, of any text; replay agrees."""
    async with memory_engine.open(":memory:", config=EngineConfig(conversation=SMALL)) as engine:
        thread = await engine.create_thread("t")
        answers: list[str] = []
        for what, one, other in steps:
            if what == "turn":
                await thread.conversation.prepare_messages(one)
                await thread.conversation.finalize_cycle(one, other)
                answers.append(other)
                await assert_limits(thread, SMALL)
            elif what == "ask":
                assert_valid(await thread.conversation.prepare_messages(one))
                await assert_limits(thread, SMALL)
            elif what == "note":
                await thread.scratchpad.write(one)
            elif what == "cache":
                await thread.tool_cache.add(one, {"x": other}, other, 2)
            else:
                await forget(thread, int(one))
            assert_valid(await thread.conversation.messages())
        told = [event.event.answer async for event in thread.events() if isinstance(event.event, e.ExchangeFinished)]
        assert answers == told
        assert (await thread.replay.verify()).ok


async def forget(thread: Thread, seq: int) -> None:
    """Forget an event, if the log has it."""
    if seq <= (await thread.info()).events:
        (event,) = [event async for event in thread.events(after=seq - 1, upto=seq)]
        await thread.forget(event_ids=[event.id])


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "😀" * 250_000, " " * 1_000_000, "\x00" * 100_000, "a\u0301" * 300_000]
)
async def test_C2_a_megabyte_is_an_answer_like_any_other(text: str) -> None:
    """As question and as answer: in the log whole, in the memory within its limits."""
    limits = ConversationLimits(exchanges=3, exchanges_kept=1)
    config = EngineConfig(compaction=CompactionPolicy(enabled=False), conversation=limits)
    async with memory_engine.open(":memory:", config=config) as engine:
        thread = await engine.create_thread("t")
        for _ in range(5):  # some are live, and some are in the summary
            await thread.conversation.prepare_messages(text)
            await thread.conversation.finalize_cycle(text, text)
        exchange = (await thread.conversation.exchanges())[-1]
        assert (text, True) == (await thread.conversation.whole_answer(exchange), exchange.answer.endswith("…"))
        await assert_limits(thread, limits)


@settings(max_examples=20)
@given(st.lists(st.tuples(ODD, ODD), min_size=1, max_size=12), st.integers(0, 11))
async def test_C2_what_was_forgotten_is_in_nothing_that_is_told(pairs: list[tuple[str, str]], which: int) -> None:
    """Wherever the exchange was by then, live or folded: after the next turn no message holds its mark."""
    mark = "⟦the secret⟧"
    at = which % len(pairs)
    async with memory_engine.open(":memory:", config=EngineConfig(conversation=SMALL)) as engine:
        thread = await engine.create_thread("t")
        secret = 0
        for n, (question, answer) in enumerate(pairs):
            asked = f"{mark} {question}" if n == at else question
            await thread.conversation.prepare_messages(asked)
            exchange = await thread.conversation.finalize_cycle(asked, answer)
            secret = exchange.seq if n == at else secret
        await forget(thread, secret)
        assert mark not in str(await thread.conversation.messages())
        assert mark not in str(await thread.conversation.prepare_messages("next"))
