"""Conversation memory: the turn, what the agent receives, crashes in between, the past, forks, forgetting."""

import asyncio
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.context import Message
from memory_engine.runtime.config import ConversationLimits
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from memory_engine.views.conversation.exchanges import Exchange
from memory_engine.views.screen.view import ProactiveTool


async def turn(thread: Thread, question: str, answer: str) -> Exchange:
    """One whole turn."""
    await thread.conversation.prepare_messages(question)
    return await thread.conversation.finalize_cycle(question, answer)


async def turns(thread: Thread, count: int, *, first: int = 0) -> None:
    """Whole turns, numbered."""
    for n in range(first, first + count):
        await turn(thread, f"q{n}", f"a{n}")


def said(messages: list[Message]) -> list[str]:
    """Each message in short."""
    return [f"{message['role']}: {message['content']}" for message in messages]


async def types(thread: Thread) -> list[str]:
    """The types of the events in the log."""
    return [event.type async for event in thread.events()]


async def live(thread: Thread, at: int | None = None) -> list[tuple[str, str]]:
    """The live exchanges."""
    return [(exchange.question, exchange.answer) for exchange in await thread.conversation.exchanges(at=at)]


async def test_C5_the_first_question_stands_alone(thread: Thread) -> None:
    """Nothing came before it; it is in the log as the user's message and as the start of a cycle."""
    assert [{"role": "user", "content": "Hello"}] == await thread.conversation.prepare_messages("Hello")
    assert ["user_message", "cycle_started"] == await types(thread)


async def test_C5_a_turn_becomes_an_exchange(thread: Thread) -> None:
    """Question and answer are recorded once each, and the exchange leads back to its events."""
    exchange = await turn(thread, "q", "a")
    assert ["user_message", "cycle_started", "llm_text_response", "exchange_finished"] == await types(thread)
    assert ("q", "a", True, False, 1, 2, 4) == (
        exchange.question, exchange.answer, exchange.is_answered, exchange.is_shortened, exchange.answer_bytes,
        exchange.seq, exchange.finished_seq,
    )  # fmt: skip
    last = (await thread.replay.latest(1))[0]
    assert (last.id, last.recorded_at) == (exchange.event_id, exchange.finished_at)
    assert [exchange] == await thread.conversation.exchanges()


async def test_C5_exchanges_come_before_the_question(thread: Thread) -> None:
    """In pairs, oldest first, the question last."""
    await turns(thread, 2)
    messages = await thread.conversation.prepare_messages("now")
    assert ["user: q0", "assistant: a0", "user: q1", "assistant: a1", "user: now"] == said(messages)


async def test_C5_the_summary_is_one_turn_before_the_exchanges(engine: Engine) -> None:
    """It stands in place of the older turns; instructions come before it."""
    thread = await engine.create_thread("t", initial_chunks=[e.InitialChunk(content="Be kind.")])
    await turns(thread, 12)
    messages = said(await thread.conversation.prepare_messages("now"))
    assert [
        "system: Be kind.",
        "user: [Brief] What the user said and what still holds of it, in their words:\n- q0\n- q1",
        "user: [Summary of earlier conversation]\n- User: q0\n- Agent: a0\n- User: q1\n- Agent: a1",
        "user: q2",
    ] == messages[:4]
    assert (1 + 1 + 1 + 20 + 1, "user: now") == (len(messages), messages[-1])


async def test_C5_cached_results_stand_before_the_question(thread: Thread) -> None:
    """A call and its result each, in the order of caching, under ids of their own."""
    await turns(thread, 1)
    for n in (2, 1):
        await thread.tool_cache.add("get", {"n": n}, f"r{n}", 2, call_id="same")
    messages = await thread.conversation.prepare_messages("now")
    assert [
        "user: q0", "assistant: a0", "assistant: None", "tool: r2", "assistant: None", "tool: r1", "user: now"
    ] == said(messages)  # fmt: skip
    calls = [message["tool_calls"][0] for message in messages if "tool_calls" in message]  # type: ignore[index]
    assert ['{"n":2}', '{"n":1}'] == [call["function"]["arguments"] for call in calls]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert (2, answered) == (len(set(answered)), [call["id"] for call in calls])


async def test_C5_cached_results_leave_when_their_exchanges_are_spent(thread: Thread) -> None:
    """A result of duration 1 serves the turn in which it was cached and no other."""
    await thread.tool_cache.add("get", {}, "r", 1)
    assert "tool: r" in said(await thread.conversation.prepare_messages("q"))
    await thread.conversation.finalize_cycle("q", "a")
    assert "tool: r" not in said(await thread.conversation.prepare_messages("now"))


async def test_C5_the_beginning_stays_the_same_from_turn_to_turn(thread: Thread) -> None:
    """Until something folds, each turn's messages begin with all of the former's turns: prompt caches hold."""
    await thread.screen.inject("a screen")
    before: list[Message] = []
    for n in range(10):
        messages = await thread.conversation.prepare_messages(f"q{n}")
        assert before == messages[: len(before)]
        await thread.conversation.finalize_cycle(f"q{n}", "a")
        before = messages


async def test_C5_the_screen_stands_where_it_was_told(thread: Thread) -> None:
    """Between the exchanges before it and those after; results without a duration serve one exchange."""
    await turns(thread, 1)
    await thread.screen.inject("Here.", [ProactiveTool(tool="x", result="once")])
    told = "assistant: I can see you're on a specific screen. Here."
    first = said(await thread.conversation.prepare_messages("q1"))
    assert ["user: q0", "assistant: a0", told, "assistant: None", "tool: once", "user: q1"] == first
    await thread.conversation.finalize_cycle("q1", "a1")
    second = said(await thread.conversation.prepare_messages("q2"))
    assert ["user: q0", "assistant: a0", told, "user: q1", "assistant: a1", "user: q2"] == second


async def test_C5_the_same_question_goes_on_with_the_cycle(thread: Thread) -> None:
    """Nothing is recorded twice, and what the agent did so far follows the question."""
    await turns(thread, 1)
    await thread.conversation.prepare_messages("q")
    await thread.dispatch(e.LlmToolCall(calls=(e.ToolCall("c1", "get"), e.ToolCall("c2", "put"))))
    await thread.dispatch(e.ToolResult(call_id="c1", content="r1"))
    events = (await thread.info()).events
    messages = await thread.conversation.prepare_messages("q")
    assert [
        "user: q0", "assistant: a0", "user: q", "assistant: None", "tool: r1", "tool: [no result yet]"
    ] == said(messages)  # fmt: skip
    assert events == (await thread.info()).events


async def test_C5_a_cycle_survives_the_process(tmp_path: Path) -> None:
    """A crash in the middle: the next process goes on where the log stands, and the exchange is one."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.conversation.prepare_messages("q")
        await thread.dispatch(e.LlmToolCall(calls=(e.ToolCall("c1", "get"),)))
        await thread.dispatch(e.ToolResult(call_id="c1", content="r1"))
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        assert ["user: q", "assistant: None", "tool: r1"] == said(await thread.conversation.prepare_messages("q"))
        await thread.conversation.finalize_cycle("q", "a")
        assert [("q", "a")] == await live(thread)
        assert 1 == (await types(thread)).count("cycle_started")


async def test_C5_a_result_in_the_open_cycle_is_not_told_twice(thread: Thread) -> None:
    """The call that the cycle holds with its result is left out of the cached ones."""
    await thread.conversation.prepare_messages("q")
    await thread.dispatch(e.LlmToolCall(calls=(e.ToolCall("c1", "get", '{ "b": 2, "a": 1 }'),)))
    await thread.dispatch(e.ToolResult(call_id="c1", content="r"))
    await thread.tool_cache.add("get", {"a": 1, "b": 2}, "r", 3, call_id="c1")
    assert ["user: q", "assistant: None", "tool: r"] == said(await thread.conversation.messages())
    await thread.conversation.finalize_cycle("q", "a")
    assert "tool: r" in said(await thread.conversation.prepare_messages("next"))


async def test_C5_a_compaction_in_the_middle_of_a_cycle_is_followed() -> None:
    """What the cycle brought stands as a summary then, and nothing is lost or told twice."""
    config = EngineConfig(compaction=memory_engine.CompactionPolicy(enabled=False, keep_recent=0))
    async with memory_engine.open(":memory:", config=config) as engine:
        thread = await engine.create_thread("t")
        await turns(thread, 1)
        await thread.conversation.prepare_messages("q")
        for n in range(6):
            await thread.dispatch(e.LlmToolCall(calls=(e.ToolCall(f"c{n}", "get", f'{{"order": "A-{n}"}}'),)))
            await thread.dispatch(e.ToolResult(call_id=f"c{n}", content=f"order A-{n} was shipped " * 20))
        await thread.compact()
        messages = said(await thread.conversation.prepare_messages("q"))
        assert ["user: q0", "assistant: a0", "user: q"] == messages[:3]
        assert "[Summary of earlier conversation]" in messages[3]
        assert "A-3" in messages[3]


async def test_C5_another_question_leaves_the_open_one_unanswered(thread: Thread) -> None:
    """It is kept as an exchange without an answer, and the messages stay alternating."""
    await thread.conversation.prepare_messages("first")
    messages = await thread.conversation.prepare_messages("second")
    assert ["user: first", "assistant: [no answer]", "user: second"] == said(messages)
    (exchange,) = await thread.conversation.exchanges()
    assert (False, None) == (exchange.is_answered, exchange.finished_at)


async def test_C5_an_overtaken_question_can_be_answered_late(thread: Thread) -> None:
    """Its answer takes the empty place; the open question stays open."""
    await thread.conversation.prepare_messages("first")
    await thread.conversation.prepare_messages("second")
    await thread.conversation.finalize_cycle("first", "late")
    assert [("first", "late")] == await live(thread)
    cycle = await thread.conversation.current()
    assert cycle is not None
    assert "second" == cycle.question


async def test_C5_an_answer_to_another_question_is_refused(thread: Thread) -> None:
    """The error names both questions, and nothing is recorded."""
    await thread.conversation.prepare_messages("open")
    with pytest.raises(errors.AnotherQuestionOpen, match=r"'open'.*'other'"):
        await thread.conversation.finalize_cycle("other", "a")
    assert 2 == (await thread.info()).events


async def test_C5_finalizing_twice_is_one_exchange(tmp_path: Path) -> None:
    """A retry gives the first exchange, at once, later, in another process, and for a long answer too."""
    path, answer = str(tmp_path / "log.db"), "long " * 400
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.conversation.prepare_messages("q")
        both = await asyncio.gather(*(thread.conversation.finalize_cycle("q", answer) for _ in range(2)))
        assert both[0] == both[1] == await thread.conversation.finalize_cycle("q", answer)
    async with memory_engine.open(path) as engine:
        assert both[0] == await engine.thread("t").conversation.finalize_cycle("q", answer)
        assert 1 == (await types(engine.thread("t"))).count("exchange_finished")


async def test_C5_the_same_question_at_once_opens_one_cycle(thread: Thread) -> None:
    """Whoever asks it how often, there is one question to be answered."""
    told = await asyncio.gather(*(thread.conversation.prepare_messages("q") for _ in range(5)))
    assert ([["user: q"]] * 5, 2) == ([said(messages) for messages in told], (await thread.info()).events)


async def test_C5_different_questions_at_once_all_count(thread: Thread) -> None:
    """One stays open, the others are exchanges without an answer; none is lost."""
    asked = {f"q{n}" for n in range(5)}
    await asyncio.gather(*map(thread.conversation.prepare_messages, asked))
    cycle = await thread.conversation.current()
    assert cycle is not None
    assert asked == {question for question, _ in await live(thread)} | {cycle.question}


async def test_C5_an_answer_that_was_recorded_is_not_recorded_again(thread: Thread) -> None:
    """The agent's own response, if it says the very same, is the exchange's answer."""
    for n, (response, expected) in enumerate([("a", 1), ("something else", 2)]):
        before = (await types(thread)).count("llm_text_response")
        await thread.conversation.prepare_messages(f"q{n}")
        await thread.dispatch(e.LlmTextResponse(content=response))
        await thread.conversation.finalize_cycle(f"q{n}", "a")
        assert expected == (await types(thread)).count("llm_text_response") - before


async def test_C5_an_exchange_and_its_answer_are_recorded_together_or_not_at_all() -> None:
    """A commit that fails leaves the cycle open, to be finalized again."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread("t")
        await thread.conversation.prepare_messages("q")
        await thread.conversation.exchanges()
        store.fail(errors.StorageBusy("disk", 1.0))
        with pytest.raises(errors.StorageBusy):
            await thread.conversation.finalize_cycle("q", "a")
        assert ["user_message", "cycle_started"] == await types(thread)
        await thread.conversation.finalize_cycle("q", "a")
        assert [("q", "a")] == await live(thread)


async def test_C5_finalizing_without_preparing_is_a_whole_turn(thread: Thread) -> None:
    """The question is recorded too."""
    await thread.conversation.finalize_cycle("q", "a")
    assert ["user_message", "cycle_started", "llm_text_response", "exchange_finished"] == await types(thread)


async def test_C1_ten_exchanges_are_live(thread: Thread) -> None:
    """The eleventh folds the oldest into the summary."""
    await turns(thread, 10)
    assert (10, None) == (len(await live(thread)), await thread.conversation.summary())
    await turns(thread, 1, first=10)
    summary = await thread.conversation.summary()
    assert summary is not None
    assert ([f"q{n}" for n in range(1, 11)], "User: q0\nAgent: a0", 1) == (
        [question for question, _ in await live(thread)], summary.text, summary.exchanges
    )  # fmt: skip


async def test_C1_the_current_cycle(thread: Thread) -> None:
    """Question, what the agent did, and its final answer once it asked for nothing more."""
    assert await thread.conversation.current() is None
    await thread.conversation.prepare_messages("q")
    seen = []
    for event in (
        e.LlmTextResponse(content="Let me look."),
        e.LlmToolCall(calls=(e.ToolCall("c1", "get"),)),
        e.ToolResult(call_id="c1", content="r"),
        e.LlmTextResponse(content="It is r."),
    ):
        await thread.dispatch(event)
        cycle = await thread.conversation.current()
        assert cycle is not None
        seen.append((cycle.question, len(cycle.agent_messages), cycle.final_answer))
    assert [("q", 1, "Let me look."), ("q", 3, None), ("q", 3, None), ("q", 4, "It is r.")] == seen
    await thread.conversation.finalize_cycle("q", "It is r.")
    assert await thread.conversation.current() is None


async def test_C1_the_memory_as_a_structure(thread: Thread) -> None:
    """Exchanges, summary, current cycle, tool cache and whether the screen was told."""
    await turns(thread, 11)
    await thread.screen.inject("x")
    await thread.tool_cache.add("get", {"n": 1}, "r", 3, call_id="c")
    await thread.conversation.prepare_messages("now")
    memory = await thread.conversation.memory()
    assert {"exchanges", "summary", "current_cycle", "tool_cache", "screen_injection_done"} == set(memory)
    assert (
        {"user_question": "now", "agent_messages": [], "final_answer": None}, "User: q0\nAgent: a0", True
    ) == (memory["current_cycle"], memory["summary"], memory["screen_injection_done"])  # fmt: skip
    exchanges, cached = memory["exchanges"], memory["tool_cache"]
    assert isinstance(exchanges, list)
    assert isinstance(cached, dict)
    (entry,) = cached.values()
    assert ("q1", "a1") == (exchanges[0]["user"], exchanges[0]["assistant"])
    assert ("get", {"n": 1}, "r", 3, 3, "c") == (
        entry["tool_name"], entry["parameters"], entry["result"],
        entry["remaining_duration"], entry["original_duration"], entry["call_id"],
    )  # fmt: skip


async def test_C1_time_travel_and_forks_have_their_own_memory(thread: Thread) -> None:
    """As of an earlier seq it is what it was; a fork goes its own way from there."""
    await turns(thread, 3)
    await thread.conversation.prepare_messages("open")
    head = (await thread.info()).events
    fork = await thread.fork(thread_id="f")
    await thread.conversation.finalize_cycle("open", "here")
    await fork.conversation.finalize_cycle("open", "there")
    assert ["here", "there"] == [(await live(t))[-1][1] for t in (thread, fork)]
    cycle = await thread.conversation.current(at=head)
    assert cycle is not None
    assert ("open", 3, 0) == (cycle.question, len(await live(thread, head)), len(await live(thread, 0)))
    assert ["user: q0", "assistant: a0", "user: q1"] == said(await thread.conversation.messages(at=6))
    assert (True, True) == ((await thread.replay.verify()).ok, (await fork.verify()).ok)


async def test_C1_two_processes_share_one_conversation(tmp_path: Path) -> None:
    """Each sees the other's turns as soon as it writes; nothing is lost."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as two:
        await one.create_thread("t")
        for n in range(6):
            await turn((one, two)[n % 2].thread("t"), f"q{n}", f"a{n}")
        assert [(f"q{n}", f"a{n}") for n in range(6)] == await live(two.thread("t"))


@pytest.mark.parametrize("which", ["user_message", "cycle_started", "llm_text_response", "exchange_finished"])
async def test_C1_a_forgotten_exchange_is_gone(thread: Thread, which: str) -> None:
    """Whichever of its events is forgotten: question and answer leave the memory, the neighbours stay."""
    await turns(thread, 3)
    (event,) = [event async for event in thread.events(after=4, upto=8) if event.type == which]
    await thread.forget(event_ids=[event.id])
    assert [("q0", "a0"), ("q2", "a2")] == await live(thread)


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("later", [0, 12])
async def test_C1_a_forgotten_answer_is_not_given_out_for_an_older_object(
    thread: Thread, which: int, later: int
) -> None:
    """Whichever of its events was forgotten, and also when the exchange is in the summary by then."""
    answer = "The code is 9921. " * 100
    exchange = await thread.conversation.finalize_cycle("q", answer)
    events = [one.id async for one in thread.events()]
    for n in range(later):
        await thread.conversation.finalize_cycle(f"question {n}", "answer")
    assert answer == await thread.conversation.whole_answer(exchange)
    await thread.forget(event_ids=[events[which]])
    assert "" == await thread.conversation.whole_answer(exchange)


async def test_C1_an_answer_to_a_forgotten_question_brings_nothing_back(thread: Thread) -> None:
    """The question was forgotten while its answer was on its way."""
    await thread.conversation.prepare_messages("secret")
    await thread.forget(event_ids=["conversation:question:0"])
    await thread.dispatch(e.ExchangeFinished(question="secret", answer="secret", cycle=2))
    assert ([], None, []) == (
        await live(thread), await thread.conversation.current(), await thread.conversation.messages()
    )  # fmt: skip


async def test_C1_a_forgotten_exchange_leaves_the_summary_too(thread: Thread) -> None:
    """The summary says nothing at once, and is made again from the log, without what was forgotten."""
    await turns(thread, 13)
    (event,) = [event async for event in thread.events(upto=8) if event.event == e.UserMessage(content="q1")]
    await thread.forget(event_ids=[event.id])
    withheld = await thread.conversation.summary()
    assert withheld is not None
    assert ("", True) == (withheld.text, withheld.is_withheld)
    await thread.conversation.prepare_messages("now")
    again = await thread.conversation.summary()
    assert again is not None
    assert ("User: q0\nAgent: a0\nUser: q2\nAgent: a2", 2, False) == (
        again.text, again.exchanges, again.is_withheld
    )  # fmt: skip
    assert (10, True) == (len(await live(thread)), (await thread.replay.verify()).ok)


@pytest.mark.parametrize(
    "limits",
    [
        {"exchanges": 0}, {"exchanges_kept": 11}, {"answer_bytes_target": 751}, {"answer_bytes_max": 10},
        {"summary_bytes_target": 5000}, {"model_timeout_s": 0.0}, {"scratchpad_snippets_max": 0},
    ],
)  # fmt: skip
def test_C1_limits_that_make_no_sense_are_refused(limits: dict[str, int]) -> None:
    """Before anything is opened with them."""
    with pytest.raises(ValueError, match=next(iter(limits))):
        ConversationLimits(**limits)


async def test_C1_a_conversation_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    """Views that were dropped come out bit for bit."""
    async with memory_engine.open(str(tmp_path / "log.db")) as engine:
        thread = await talked_to(engine)
        before = await thread.conversation.memory()
        await thread.replay.rebuild()
        assert (before, True) == (await thread.conversation.memory(), (await thread.replay.verify()).ok)


async def talked_to(engine: Engine) -> Thread:
    """A thread with something of everything."""
    thread = await engine.create_thread("t")
    await thread.screen.inject("x", [ProactiveTool(tool="t", result="r", duration=20)])
    await turns(thread, 12)
    await turn(thread, "long", "x" * 2000)
    await thread.conversation.prepare_messages("open")
    return thread


PICTURE = e.ImagePart("https://example.org/leak.png", alt="a leaking tap")
QUESTIONS = {
    "an image alone": ((PICTURE,), "[image: a leaking tap]"),
    "an image and words": ((e.TextPart("What is this?"), PICTURE), "What is this?\n[image: a leaking tap]"),
    "an image without a description": ((e.ImagePart("https://example.org/x.png"),), "[image: image]"),
}
questions = pytest.mark.parametrize(("parts", "text"), QUESTIONS.values(), ids=QUESTIONS)


def _has_image(messages: list[Message]) -> bool:
    return "example.org" in str(messages[-1])


@questions
async def test_a_question_may_be_an_image(engine: Engine, parts: tuple[e.TextPart | e.ImagePart], text: str) -> None:
    """The cycle says so in words, the model sees the image until it is answered, and nothing is recorded twice."""
    thread = await engine.create_thread()
    for _ in range(2):  # the second continues the cycle
        assert _has_image(await thread.conversation.prepare_messages(parts))
    cycle = await thread.conversation.current()
    assert cycle is not None
    assert (text, 2) == (cycle.question, (await thread.info()).events)
    exchange = await thread.conversation.finalize_cycle(parts, "The washer is worn.")
    assert (text, "The washer is worn.") == (exchange.question, exchange.answer)
    assert exchange == await thread.conversation.finalize_cycle(text, "The washer is worn.")  # in words, as well
    assert [(text, "The washer is worn.")] == [(x.question, x.answer) for x in await thread.conversation.exchanges()]
    assert text == (await thread.conversation.prepare_messages("And now?"))[0]["content"]
    assert (await thread.replay.verify()).ok


@questions
async def test_an_image_that_was_dispatched_before_opens_the_cycle(
    engine: Engine, parts: tuple[e.TextPart | e.ImagePart], text: str
) -> None:
    """As a message of words does: it is the question, and is not recorded again."""
    thread = await engine.create_thread()
    await thread.dispatch(e.UserMessage(content=parts))
    assert _has_image(await thread.conversation.prepare_messages(text))
    await thread.conversation.finalize_cycle(text, "The washer is worn.")
    assert [(text, "The washer is worn.")] == [(x.question, x.answer) for x in await thread.conversation.exchanges()]
    assert 1 == len([1 async for one in thread.events() if one.type == "user_message"])


@pytest.mark.parametrize("question", [7, None, [7], {"type": "text"}, b"text"])
async def test_a_question_that_is_neither_text_nor_parts_is_refused(engine: Engine, question: object) -> None:
    """Before anything is recorded."""
    thread = await engine.create_thread()
    with pytest.raises(errors.InvalidArgument, match="parts"):
        await thread.conversation.prepare_messages(question)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.InvalidArgument, match="parts"):
        await thread.conversation.finalize_cycle(question, "a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert 0 == (await thread.info()).events
