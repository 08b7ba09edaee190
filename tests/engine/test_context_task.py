"""A context under pressure: what is being worked on is always in, and the budget is used."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Context, ContextPolicy, EngineConfig, errors
from memory_engine import events as e
from memory_engine.core.events.base import Part
from memory_engine.events import Event
from memory_engine.testing import FakeCompactor

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
FOUND = {"type": "function", "function": {"name": "find", "parameters": {}}}
ASKED = "Which of the three invoices is overdue, and by how many days?"


def call(id: str, result: str) -> list[Event]:
    """A call, and its result."""
    return [e.LlmToolCall(calls=(e.ToolCall(id, "look"),)), e.ToolResult(call_id=id, content=result)]


def look_at(place: str) -> str:
    """A tool of one's own, which is not what a provider gets."""
    return place


def text(context: Context) -> str:
    """All that the messages say."""
    return json.dumps(context.messages, ensure_ascii=False)


async def shown(*events: Event, max_tokens: int | None = None) -> Context:
    """The context after these events."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(events)
        return await thread.context(max_tokens)


# The message that is being worked on.


async def test_three_long_results_leave_the_question_in() -> None:
    """Results are cut, not the question; what is over is filled."""
    results = [event for n in range(3) for event in call(f"c{n}", f"result {n}: " + "lorem ipsum " * 250)]
    context = await shown(e.UserMessage(content=ASKED), *results, max_tokens=1_500)
    assert ASKED == context.messages[0]["content"]
    assert ("result 2" in text(context), "result 1" in text(context)) == (True, True)
    assert 1_500 >= context.tokens >= 0.9 * 1_500


async def test_a_hundred_calls_leave_the_question_in() -> None:
    """However many calls follow it."""
    results = [event for n in range(120) for event in call(f"c{n}", f"row {n} of the table, nothing special")]
    context = await shown(*map(say, ["Hello", "And then?"]), say(ASKED), *results, max_tokens=2_000)
    assert ASKED in [message["content"] for message in context.messages]
    assert "row 119" in text(context)
    assert 2_000 >= context.tokens >= 0.9 * 2_000


def say(content: str) -> e.UserMessage:
    """A person's message."""
    return e.UserMessage(content=content)


async def test_a_question_of_great_length_leaves_room_for_the_work() -> None:
    """It is cut to half of the room once newer turns need the rest."""
    events = [event for n in range(5) for event in call(f"c{n}", f"row {n} " + "lorem ipsum " * 60)]
    context = await shown(say("BEGIN " + "please " * 4_000 + " END"), *events, max_tokens=1_000)
    first = str(context.messages[0]["content"])
    assert (first.startswith("BEGIN"), first.endswith("END"), "row 4" in text(context)) == (True, True, True)
    assert context.tokens <= 1_000


async def test_of_a_cut_result_what_was_asked_stays() -> None:
    """Beginning, end, and the part that the question is about; a reference says where the whole is."""
    rows = [f"invoice {n}: paid in time by transfer, no reminder was sent." for n in range(400)]
    rows[237] = "invoice 237: overdue by 41 days, the reminder came back."
    context = await shown(say(ASKED), *call("c", "\n".join(rows)), *call("d", "x " * 100), max_tokens=900)
    assert "overdue by 41 days" in text(context)
    assert ("invoice 0:" in text(context), "characters of 3.0" in text(context)) == (True, True)


@example(sizes=[("u", 210), ("a", 15)], budget=300)
@example(sizes=[("u", 400), ("a", 15), ("a", 20)], budget=500)
@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.tuples(st.sampled_from("uatl"), st.integers(1, 400)), min_size=1, max_size=40),
    budget=st.integers(300, 3_000),
)
async def test_any_history_fits_and_fills_its_budget(sizes: list[tuple[str, int]], budget: int) -> None:
    """For any history: the newest message of a person is in, and the budget is used where there is more to say."""
    events: list[Event] = [e.SessionStarted(content="Be kind.")]
    for n, (kind, words) in enumerate(sizes):
        said = f"{kind}{n} " + "word " * words
        if kind == "u":
            events.append(say(said))
        elif kind == "a":
            events.append(e.LlmTextResponse(content=said))
        else:
            events += call(f"c{n}", said * (10 if kind == "l" else 1))
    context = await shown(*events, max_tokens=budget)
    assert context.tokens <= budget
    spoken = [n for n, (kind, _) in enumerate(sizes) if kind == "u"]
    if spoken:
        assert f"u{spoken[-1]} " in text(context)
    if context.excluded or context.shortened:
        assert context.tokens >= 0.93 * budget - 100  # what is over is less than a turn that is cut short needs


# Scratchpad, task, to-do list, environment.


async def test_a_huge_snippet_does_not_take_the_context() -> None:
    """The scratchpad keeps to its share, the newest snippets first, and says what it leaves out."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.scratchpad.write("found: the first thing")
        await thread.scratchpad.write("y" * 100_000)
        await thread.scratchpad.write("found: the last thing")
        await thread.dispatch(say(ASKED))
        context = await thread.context(400)
        assert ("found: the last thing" in text(context), ASKED in text(context)) == (True, True)
        assert context.tokens <= 400
        many = await engine.create_thread("many")
        for n in range(50):
            await many.scratchpad.write(f"finding number {n} about the matter")
        assert "earlier line(s) left out" in text(await many.context(500))
        assert "finding number 49" in text(await many.context(500))


async def test_a_task_of_any_length_leaves_the_question_in() -> None:
    """So do a to-do list of hundreds of items and a changed environment."""
    items = tuple(e.TodoItem(id=str(n), text=f"step {n} of the plan") for n in range(300))
    events = (
        e.TaskStarted(goal="GOAL " + "because " * 3_000),
        e.TodoSet(items=items),
        e.EnvironmentChange(content="env " * 2_000, key="files"),
        say(ASKED),
    )
    context = await shown(*events, max_tokens=800)
    assert ("GOAL" in text(context), "step 299" in text(context), ASKED in text(context)) == (True, True, True)
    assert context.tokens <= 800


@pytest.mark.parametrize("budget", [100, 200, 201, 500])
async def test_a_budget_that_is_too_small_names_one_that_works(budget: int) -> None:
    """The number in the error is the smallest that does."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([e.SessionStarted(content="rule " * 600), say(ASKED), *call("c", "x " * 900)])
        with pytest.raises(errors.ContextBudgetError) as refused:
            await thread.context(budget)
        assert (await thread.context(refused.value.needed)).tokens <= refused.value.needed
        with pytest.raises(errors.ContextBudgetError):
            await thread.context(refused.value.needed - 1)


async def test_tools_and_the_answer_are_reserved() -> None:
    """Their tokens are taken off the budget; an error names the whole number."""
    tools = [{"type": "function", "function": {"name": "look", "description": "look at it " * 36, "parameters": {}}}]
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([say(f"message {n} " + "so on " * 5) for n in range(100)])
        context = await thread.context(2_000, tools=tools, reserve=500)
        assert 1_200 < context.tokens <= 2_000 - 500 - 100
        with pytest.raises(errors.ContextBudgetError) as refused:
            await thread.context(510, tools=tools, reserve=500)
        assert (510, True) == (refused.value.max_tokens, refused.value.needed > 610)
        await thread.context(refused.value.needed, tools=tools, reserve=500)


# Texts beside images.

IMAGE = e.ImagePart("https://example.org/chart.png")
MIXED = (e.TextPart("Invoice 7 is overdue by 12 days. " + "All else was paid. " * 900), IMAGE, e.TextPart("The chart."))
LINES = tuple(e.TextPart(f"Line {n} of the invoices was paid in time.") for n in range(300))


@pytest.mark.parametrize("result", [MIXED, (*MIXED, *LINES), (*LINES, IMAGE), LINES])
async def test_a_text_beside_an_image_is_shortened_like_any_other(result: tuple[Part, ...]) -> None:
    """The image and short texts stay, and so does the question that the result answers."""
    events = [say(ASKED), e.LlmToolCall(calls=(e.ToolCall("c", "look"),)), e.ToolResult(call_id="c", content=result)]
    context = await shown(*events, max_tokens=1_500)
    assert 1_500 >= context.tokens > 0.7 * 1_500
    assert ASKED == context.messages[0]["content"]
    assert result.count(IMAGE) == text(context).count(IMAGE.url)
    assert "characters of 3.0" in text(context)
    assert ("The chart." in text(context)) or LINES == result or LINES[0] == result[0]
    assert ("3.0",) == context.shortened


async def test_a_question_beside_an_image_is_shortened_and_stays() -> None:
    """Its beginning and its end, and the image, whatever followed it."""
    question = e.UserMessage(content=(e.TextPart(f"{ASKED} Here they are. {'invoice ' * 4_000}That is all."), IMAGE))
    context = await shown(question, *call("c", "x " * 4_000), max_tokens=2_000)
    content = context.messages[0]["content"]
    assert isinstance(content, list)
    assert ["text", "image_url"] == [part["type"] for part in content]
    assert content[0]["text"].startswith(ASKED)
    assert content[0]["text"].endswith("That is all.")
    assert ("1.0", "3.0") == context.shortened


async def test_an_environment_beside_an_image_keeps_to_its_share() -> None:
    """Its heading, its newest lines and its image stay."""
    seen = "\n".join(f"line {n} of the screen" for n in range(900))
    context = await shown(say(ASKED), e.EnvironmentChange(content=(e.TextPart(seen), IMAGE)), max_tokens=8_000)
    assert ASKED == context.messages[0]["content"]
    content = context.messages[1]["content"]
    assert isinstance(content, list)
    words, image = content
    assert words["text"].startswith("[Environment]\n[… ")
    assert words["text"].endswith("line 899 of the screen")
    assert "image_url" == image["type"]
    assert ("2.0",) == context.shortened


LOOKS = {"type": "function", "function": {"name": "look", "parameters": {"at": [1, look_at]}}}


@pytest.mark.parametrize(
    ("tools", "where", "said"),
    [
        ([FOUND, LOOKS], "tools[1].function.parameters.at[1]", "the tool 'look' cannot go to a model: a function is"),
        ([{"name": "see", "input_schema": {1: "x"}}], "tools[0].input_schema", "'see' cannot go"),
        ([FOUND, {"name": "see", "p": float("nan")}], "tools[1].p", "'see' cannot go to a model: nan is"),
        ([look_at], "tools[0]", "a tool cannot go to a model: a function is not a value of JSON"),
        (["look"], "tools[0]", "a tool is an object, this is a text"),
        (FOUND, "tools", "`tools` is a list of tools"),
        (None, "tools", "`tools` is a list of tools"),
    ],
)
async def test_a_tool_that_is_not_json_is_refused(tools: object, where: str, said: str) -> None:
    """With its name and its place: it could not be counted, and no provider would take it."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        with pytest.raises(errors.InvalidTool) as refused:
            await thread.context(tools=tools)  # type: ignore[arg-type]
    assert where == refused.value.where
    assert said in str(refused.value)


# Summaries and the window.


async def test_a_summary_is_cut_by_lines_and_never_dropped_whole() -> None:
    """Its newest lines stay where there is no room for all."""
    policy = CompactionPolicy(threshold=10, tokens_min=2_000, keep_recent=2)
    lines = "### Key Information\n\n" + "\n".join(f"- fact number {n} of the matter" for n in range(60))
    async with memory_engine.open(
        ":memory:", config=EngineConfig(compaction=policy), compactor=FakeCompactor(lines)
    ) as engine:
        thread = await engine.create_thread("t")
        for n in range(12):
            await thread.dispatch(say(f"message {n} " + "x" * 2_000))
        await thread.compaction.settle()
        context = await thread.context(1_400)
    assert context.tokens <= 1_400
    assert context.spent.summary > 0


async def test_a_window_that_is_refilled_less_moves_less_often() -> None:
    """`refill` trades tokens for a warm prompt cache."""
    starts: dict[float, set[str]] = {0.5: set(), 0.75: set(), 0.93: set()}
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        for refill, seen in starts.items():
            thread = await engine.create_thread()
            for n in range(120):
                await thread.dispatch(say(f"message {n:03} " + "x" * 40))
                context = await thread.context(1_000, policy=ContextPolicy(refill=refill))
                seen.add(str(context.messages[0]["content"]))
    assert len(starts[0.5]) < len(starts[0.75]) < len(starts[0.93])


# Instructions.


async def test_only_the_newest_sessions_instructions_are_in() -> None:
    """Also in a log of before, whose state holds those of every session."""
    sessions = [e.SessionStarted(content=f"Rules of day {n}.", session_id=f"s{n}", beside=True) for n in range(5)]
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        for session in sessions:
            await thread.dispatch_all([session, say("Hello")])
        context = await thread.context(1_000)
        ledger = await thread.replay.ledger(max_tokens=1_000)
        await thread.dispatch(e.ExternalInject(content="Be brief.", source="system", retention="critical"))
        system = [m["content"] for m in (await thread.context()).messages if m["role"] == "system"]
    assert ["Rules of day 4."] == [m["content"] for m in context.messages if m["role"] == "system"]
    assert ["Rules of day 4.", "Be brief."] == system
    assert len(sessions) * 2 == ledger.upto
