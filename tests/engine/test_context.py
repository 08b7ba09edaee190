"""The context: valid for any provider, within its budget, and the same from turn to turn where it can be."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Context, Engine, EngineConfig, Plugin, Retention, errors
from memory_engine import events as e
from memory_engine.context import ContextPolicy, Message
from memory_engine.context.builder import RENDERED_MAX, ContextBuilder
from memory_engine.context.rendering import NO_RESULT
from memory_engine.context.sources import ChunkSource, Indexed
from memory_engine.context.thread_context import thread_context
from memory_engine.core.tokens import IMAGE_TOKENS
from memory_engine.engine import kernel_of
from memory_engine.events import Event
from memory_engine.testing import FakeCompactor
from memory_engine.thread import handle_of
from tests.engine.test_laws import EVENTS

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
SYSTEM = e.SessionStarted(content="Be kind.")


class Words:
    """A tokenizer that counts words, exactly."""

    name = "words"
    exact = True

    def count(self, text: str) -> int:
        """The words of a text."""
        return len(text.split())


async def shown(*events: Event, max_tokens: int | None = None) -> Context:
    """The context after these events."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(events)
        return await thread.context(max_tokens)


def user(text: str) -> e.UserMessage:
    """A message."""
    return e.UserMessage(content=text)


def call(*ids: str, response: str = "") -> e.LlmToolCall:
    """Parallel calls."""
    return e.LlmToolCall(calls=tuple(e.ToolCall(one, "f") for one in ids), response_id=response)


def result(id: str, text: str = "ok", *, final: bool = True) -> e.ToolResult:
    """An answer."""
    return e.ToolResult(call_id=id, content=text, final=final)


def roles(messages: Sequence[Message]) -> str:
    """The roles in short: s, u, a, and t for a tool's."""
    return "".join(str(message["role"])[0] for message in messages)


def check_chat(messages: Sequence[Message]) -> None:
    """Calls are followed by one answer each, in order, and there is no other tool message."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert waiting
            assert waiting.pop(0) == message["tool_call_id"]
            continue
        assert [] == waiting
        calls = message.get("tool_calls", [])
        assert isinstance(calls, list)
        assert "tool_calls" not in message or calls
        waiting = [one["id"] for one in calls]
    assert [] == waiting


# What chunks look like.

PHOTO = e.ImagePart("https://x/y.png")
SHOWN = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
LOOKS: list[tuple[Event, Message]] = [
    (user("Hi"), {"role": "user", "content": "Hi"}),
    (e.UserMessage(content="Hi", name="Ann"), {"role": "user", "content": "Ann: Hi"}),
    (e.UserMessage(content=(e.TextPart("Look:"), PHOTO), name="Ann"),
     {"role": "user", "content": [{"type": "text", "text": "Ann: Look:"}, SHOWN]}),
    (e.UserMessage(content=(PHOTO, e.TextPart("There.")), name="Ann"),
     {"role": "user", "content": [{"type": "text", "text": "Ann:"}, SHOWN, {"type": "text", "text": "There."}]}),
    (e.LlmTextResponse(content="Hi"), {"role": "assistant", "content": "Hi"}),
    (e.LlmClarification(content="Which?"), {"role": "assistant", "content": "Which?"}),
    (SYSTEM, {"role": "system", "content": "Be kind."}),
    (e.ParentAgentMessage(content="Go", agent_id="p"),
     {"role": "user", "content": "[Message from the parent agent (p)] Go"}),
    (e.SystemFailure(content="No network", code="E"), {"role": "user", "content": "[Error (E)] No network"}),
    (e.ExternalInject(content="Mail", source="inbox"), {"role": "user", "content": "[Note (inbox)] Mail"}),
    (e.TaskStarted(goal="Win."), {"role": "user", "content": "[Task] Win."}),
    (e.EnvironmentChange(content="rain", key="sky"), {"role": "user", "content": "[Environment (sky)] rain"}),
    (e.ExecutionRetry(content="again"), {"role": "user", "content": "[Execution] again"}),
    (
        e.UserMessage(content=(e.TextPart("See:"), PHOTO)),
        {"role": "user", "content": [{"type": "text", "text": "See:"}, SHOWN]},
    ),
    (
        e.TodoSet(items=(e.TodoItem("1", "milk", "completed"), e.TodoItem("2", "eggs", "in_progress"),
                         e.TodoItem("3", "tea"))),
        {"role": "user", "content": "[To-do]\n- [x] milk\n- [~] eggs\n- [ ] tea"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("event", "message"), LOOKS, ids=[event.event_type for event, _ in LOOKS])
async def test_a_chunk_becomes_a_message(event: Event, message: Message) -> None:
    """Each type has its form; what is neither person nor model is a labelled note."""
    assert [message] == (await shown(event)).messages


async def test_reasoning_is_not_shown() -> None:
    """Thinking of earlier turns has no place in chat messages, though it is in the state."""
    context = await shown(e.LlmThinking(content="Hm."), user("Hi"))
    assert (["Hi"], ("1.0", "2.0")) == ([m["content"] for m in context.messages], context.included)


# Pairs.

CHATS: list[tuple[str, list[Event], str]] = [
    ("a call and its result", [call("a"), result("a"), user("x")], "atu"),
    ("a result that came late", [call("a"), user("x"), result("a")], "atu"),
    ("parallel calls, results in any order", [call("a", "b"), result("b"), result("a")], "att"),
    ("a call without a result", [call("a"), user("x")], "atu"),
    ("a result without a call", [user("x"), result("a"), user("y")], "uuu"),
    ("two results for one call", [call("a"), result("a"), result("a", "again")], "atu"),
    ("pieces before the last word", [call("a"), result("a", "1", final=False), result("a", "2")], "atu"),
    ("an error for a result", [call("a"), e.ToolError(call_id="a", content="no")], "at"),
    ("call ids that are used again", [call("a"), result("a"), user("x"), call("a"), result("a")], "atuat"),
    ("a skill", [e.LlmSkillCall(call_id="s", name="plan"), e.SkillResult(call_id="s", content="ok")], "at"),
    ("a sub-agent", [e.LlmSubagentSpawn(call_id="s", agent_id="b", task="go"), user("x"),
                     e.SubagentResult(call_id="s", content="ok")], "atu"),
    ("no calls at all", [e.LlmToolCall(calls=(), content="never mind"), user("x")], "au"),
]  # fmt: skip


@pytest.mark.parametrize(("events", "expected"), [c[1:] for c in CHATS], ids=[c[0] for c in CHATS])
async def test_calls_and_results_are_paired(events: list[Event], expected: str) -> None:
    """A result stands directly after its call; one that has none is a note; one that is missing says so."""
    context = await shown(*events)
    check_chat(context.messages)
    assert expected == roles(context.messages)


async def test_the_last_word_on_a_call_is_its_result() -> None:
    """Of several results the final one answers; a call that has none gets a placeholder."""
    context = await shown(call("a", "b"), result("a", "working", final=False), result("a", "done"))
    assert {"a": "done", "b": NO_RESULT} == {
        str(m["tool_call_id"]): m["content"] for m in context.messages if m["role"] == "tool"
    }


IDS = st.sampled_from("abc")
ANY: st.SearchStrategy[Event] = st.one_of(
    st.builds(user, st.text(max_size=60)),
    st.builds(e.LlmTextResponse, content=st.text(max_size=60), response_id=IDS),
    st.builds(lambda ids, r: call(*ids, response=r), st.lists(IDS, unique=True, max_size=3), IDS | st.just("")),
    st.builds(result, IDS, st.text(max_size=200), final=st.booleans()),
    st.builds(e.ToolError, call_id=IDS, content=st.text(max_size=20)),
    st.builds(e.LlmThinking, content=st.text(max_size=20), response_id=IDS | st.just("")),
    st.builds(e.LlmClarification, content=st.text(max_size=20)),
    st.builds(e.LlmSubagentSpawn, call_id=IDS, agent_id=IDS, task=st.text(max_size=20)),
    st.builds(e.TaskStarted, goal=st.text(max_size=20)),
    st.builds(e.ExternalInject, content=st.text(max_size=40), retention=st.just("critical")),
)


@settings(max_examples=150)
@given(st.lists(ANY, max_size=14), st.none() | st.integers(0, 300))
async def test_any_context_is_valid_and_in_its_budget(events: list[Event], max_tokens: int | None) -> None:
    """Whatever was said: calls answered, nothing over the budget, CRITICAL chunks in, atoms whole."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(events)
        state = await thread.state()
        context: Context | errors.ContextBudgetError
        try:
            context = await thread.context(max_tokens)
        except errors.ContextBudgetError as error:
            context = error
    if isinstance(context, errors.ContextBudgetError):
        assert context.needed > context.max_tokens == max_tokens
        return
    check_chat(context.messages)
    assert max_tokens is None or context.tokens <= max_tokens
    order = [chunk.id for chunk in state.chunks()]
    assert order == sorted([*context.included, *context.excluded], key=order.index)
    critical = {chunk.id for chunk in state.chunks() if chunk.retention is Retention.CRITICAL}
    assert critical <= set(context.included)
    assert max_tokens is not None or () == context.excluded


LOOKS_AT = st.integers(20, 300)
"""Where somebody looks, between events, with this budget."""


@settings(max_examples=60)
@given(st.lists(EVENTS | ANY | LOOKS_AT, max_size=20))
async def test_an_index_gives_what_reading_the_whole_state_gives(steps: list[Event | int]) -> None:
    """Whatever was said, changed and forgotten between two looks: the same context, draft or error."""

    def made(source: ChunkSource, budget: int, *, is_draft: bool) -> object:
        try:
            if not is_draft:
                return builder.build(source, "t", budget)
            draft = builder.draft(source, "t", budget, ContextPolicy())
            return draft.finished(), draft.room, draft.before
        except errors.ContextBudgetError as error:
            return str(error)

    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        builder = kernel_of(engine)[ContextBuilder]
        index = builder.index()
        for step in [*steps, 40, 100]:
            if isinstance(step, int):
                state = await thread.state()
                for is_draft in (False, True):
                    indexed = made(Indexed(state, index), step, is_draft=is_draft)
                    assert made(state, step, is_draft=is_draft) == indexed
            else:
                with suppress(errors.MemoryEngineError):  # of these events some name what is not there
                    await thread.dispatch(step)


@pytest.mark.parametrize("rendered", [RENDERED_MAX, 3])
async def test_a_large_state_is_read_once(rendered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long loops, what changes in place and what is forgotten: as reading it as of now, for any budget.

    Also where turns as of then are made again.
    """
    monkeypatch.setattr("memory_engine.context.builder.RENDERED_MAX", rendered)
    loop = [e.LlmThinking(content="so"), call("a"), result("a", "y " * 30)]
    later: list[list[Event]] = [
        [user("and")],
        loop * 12,
        [e.TodoSet(items=(e.TodoItem("1", "milk"),))],
        [user("then"), call("late")],
        [e.LlmTextResponse(content=f"answer {n}") for n in range(30)],
        [e.TaskCompleted(content="done"), user("?")],
        [result("late"), e.LlmTextResponse(content="so it is")],
        [e.MemoryForget(seqs=(150,))],
        [e.SessionStarted(content="Be brief."), e.LlmClarification(content="Which?"), user("that")],
        loop * 3,
        [e.LlmClarification(content="Which city?", response_id="r"), user("Berlin " + "b " * 20), user("On Monday.")],
        [e.LlmTextResponse(content="Noted. " * 20), e.LlmClarification(content="When?", response_id="r")],
        [user("In the evening."), e.LlmTextResponse(content="Done. " * 20)],
    ]
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([SYSTEM, e.TaskStarted(goal="Win.")])
        await thread.dispatch_all([user(f"message {n} " + "z " * (n % 17)) for n in range(300)])
        for events in later:
            head = (await thread.dispatch_all(events))[-1].seq
            for budget in (300, 1_000):
                context = await thread.context(budget)
                assert await thread.context(budget, at=head) == context
                assert set(context.excluded).isdisjoint(context.included)
            assert await thread.context(500 + head, at=head) == await thread.context(500 + head)  # a budget of its own
            for budget in (120, 300):
                with suppress(errors.ContextBudgetError):
                    asked = await thread_context(handle_of(thread), budget, query="message 77", is_loop=False)
                    assert asked.messages == (await thread.context(budget, query="message 77", at=head)).messages


@pytest.mark.parametrize("budget", range(72, 224, 8))
async def test_a_call_is_never_shown_without_its_result(budget: int) -> None:
    """With any budget a call and its results are in together or out together."""
    turns = [
        [user(f"question {n}"), call(f"a{n}", f"b{n}"), result(f"a{n}", "x " * 30), result(f"b{n}")] for n in range(5)
    ]
    context = await shown(*(event for turn in turns for event in turn), max_tokens=budget)
    atoms = [[f"{4 * n + part}.0" for part in (2, 3, 4)] for n in range(5)]
    assert {0, 3} >= {sum(chunk_id in context.included for chunk_id in atom) for atom in atoms}
    assert NO_RESULT not in [message["content"] for message in context.messages]


# Budgets.


async def test_the_newest_turns_are_kept() -> None:
    """What does not fit goes from the oldest on; the instructions stay."""
    context = await shown(SYSTEM, *(user(f"message {n:04}") for n in range(100)), max_tokens=120)
    texts = [str(message["content"]) for message in context.messages]
    kept = len(texts) - 1
    assert ["Be kind.", *(f"message {n:04}" for n in range(100 - kept, 100))] == texts
    assert 8 <= kept <= 120 // 7


async def test_a_newest_turn_that_is_too_long_is_shortened() -> None:
    """Its head and tail are kept, and it says how much of which chunk is left out."""
    context = await shown(user("old"), user("HEAD" + "x" * 40_000 + "TAIL"), max_tokens=300)
    text = str(context.messages[-1]["content"])
    assert (("2.0",), True) == (context.shortened, context.tokens <= 300)
    assert (True, True, True) == (text.startswith("HEAD"), text.endswith("TAIL"), "characters of 2.0" in text)


async def test_a_long_result_is_shortened_beside_its_call() -> None:
    """Of a turn only what is long is cut."""
    context = await shown(user("old"), call("a"), result("a", "y" * 40_000), max_tokens=300)
    check_chat(context.messages)
    assert (("3.0",), True) == (context.shortened, context.tokens <= 300)


async def test_what_must_be_in_and_does_not_fit_is_an_error() -> None:
    """The error says how many tokens it takes, and with that many it works."""
    events = [e.ExternalInject(content="x" * 4000, retention="critical"), user("Hi")]
    with pytest.raises(errors.ContextBudgetError) as caught:
        await shown(*events, max_tokens=500)
    context = await shown(*events, max_tokens=caught.value.needed)
    assert (2, True) == (len(context.messages), context.tokens <= caught.value.needed)


async def test_an_image_has_a_price() -> None:
    """It takes a flat number of tokens, so that a budget holds with images too."""
    context = await shown(e.UserMessage(content=(e.ImagePart("data:image/png;base64," + "A" * 90_000),)))
    assert IMAGE_TOKENS <= context.tokens < IMAGE_TOKENS + 20


async def test_tokens_are_counted_by_the_tokenizer_given() -> None:
    """The context says what counted and whether exactly; without one it is an estimate."""
    estimated = await shown(user("one two three"))
    async with memory_engine.open(":memory:", tokens=Words()) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(user("one two three"))
        exact = await thread.context()
    assert ("estimate", False) == (estimated.tokenizer, estimated.tokens_exact)
    assert ("words", True, 3 + 4 + 3) == (exact.tokenizer, exact.tokens_exact, exact.tokens)


async def test_an_empty_thread_has_an_empty_context() -> None:
    """Nothing was said; nothing is shown."""
    context = await shown(max_tokens=10)
    assert ([], (), ()) == (context.messages, context.included, context.excluded)


# What changes in place stands at the end.


async def test_the_task_and_the_list_stand_last() -> None:
    """They change in place, so nothing that comes before them moves when they do."""
    todo = e.TodoSet(items=(e.TodoItem("1", "milk"),))
    context = await shown(
        SYSTEM, e.TaskStarted(goal="Win."), user("a"), todo, e.EnvironmentChange(content="rain"), user("b")
    )
    expected = ["Be kind.", "a", "b", "[Task] Win.", "[To-do]\n- [ ] milk", "[Environment] rain"]
    assert expected == [message["content"] for message in context.messages]


TURNS: st.SearchStrategy[list[Event]] = st.one_of(
    st.text(max_size=30).map(lambda text: [user(text)]),
    st.text(max_size=30).map(lambda text: [e.LlmTextResponse(content=text)]),
    st.integers(1, 3).map(lambda n: [call(*"xyz"[:n]), *map(result, "xyz"[:n])]),
    st.just([e.LlmThinking(content="Hm."), call("t"), result("t"), e.LlmTextResponse(content="So.")]),
    st.text(max_size=9).map(lambda text: [e.EnvironmentChange(content=text, key="sky")]),
    st.text(max_size=9).map(lambda text: [e.TaskStarted(goal=text)]),
    st.just([e.TodoSet(items=(e.TodoItem("1", "milk"),))]),
    st.just([e.TodoCompleted(id="1", lenient=True)]),
    st.integers(1, 9).map(lambda n: [e.MemoryMarkCritical(chunk_ids=(f"{n}.0",), lenient=True)]),
    st.just([e.ExecutionRetry(content="again")]),
)


def flow(context: Context, state: memory_engine.State) -> list[Message]:
    """The messages without those of what changes in place."""
    trailing = sum(chunk.category in ("task", "environment") for chunk in state.chunks())
    return context.messages[: len(context.messages) - trailing]


@settings(max_examples=60)
@given(st.lists(TURNS, min_size=2, max_size=10))
async def test_the_prefix_is_stable(turns: list[list[Event]]) -> None:
    """What was shown after a turn is shown unchanged, at the same place, after every later one."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        before: list[Message] = []
        for turn in turns:
            await thread.dispatch_all(turn)
            now = flow(await thread.context(), await thread.state())
            assert before == now[: len(before)]
            before = now


@pytest.mark.parametrize(
    "events", [[call("a", "b"), result("a"), result("b")], [call("b", "a"), result("a"), result("b")]]
)
async def test_the_prefix_before_the_newest_chunk_is_stable(events: list[Event]) -> None:
    """While results of parallel calls come in, everything before the call stays as it was."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([SYSTEM, user("Hi")])
        for event in events:
            await thread.dispatch(event)
            assert "su" == roles((await thread.context()).messages[:2])


async def moves(engine: Engine, count: int, max_tokens: int) -> int:
    """How often the window's start moved while messages came in."""
    thread = await engine.create_thread()
    first, moved = "", 0
    for n in range(count):
        await thread.dispatch(user(f"message {n:06} " + "so " * 12))
        start = str((await thread.context(max_tokens)).messages[0]["content"])
        moved += start != first
        first = start
    return moved - 1


async def test_the_window_moves_once_in_a_while() -> None:
    """Over its budget a context loses several turns at once, so that most turns find the cache warm."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        assert 1 <= await moves(engine, 120, 1000) <= 16


async def test_a_compaction_or_a_forgetting_may_change_the_prefix() -> None:
    """Only then, and only from the first chunk that it touches."""
    async with memory_engine.open(":memory:", config=NEVER, compactor=FakeCompactor("short")) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([SYSTEM, *(user(f"message {n} " * 30) for n in range(4))])
        policy = ContextPolicy(blocks=())
        before = (await thread.context(policy=policy)).messages
        await thread.compact(["3.0", "4.0"])
        after = (await thread.context(policy=policy)).messages
        assert (before[:2], before[-1]) == (after[:2], after[-1])
        await thread.forget(chunk_ids=["5.0"])
        assert after[:-1] == (await thread.context(policy=policy)).messages


async def test_the_past_is_shown_as_it_was() -> None:
    """`at` gives the context as of an earlier seq, whatever happened since."""
    async with memory_engine.open(":memory:", config=NEVER, compactor=FakeCompactor("short")) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([user(f"message {n} " * 30) for n in range(4)])
        then = await thread.context(200)
        await thread.compact()
        assert (then, []) == (await thread.context(200, at=4), (await thread.context(at=0)).messages)


# XML.


async def test_the_xml_form_cites_every_chunk() -> None:
    """One element a chunk with its id; text and attributes are escaped; children are there."""
    todo = e.TodoSet(items=(e.TodoItem("1", "<milk> & more"),))
    sent = [
        user('</user_message> & "quotes"'),
        e.LlmToolCall(calls=(e.ToolCall("c<", 'f"', '{"a":"<"}'),)),
        result("c<"),
        todo,
    ]
    root = ET.fromstring((await shown(*sent)).xml())
    assert ["1.0", "2.0", "3.0", "4.0", "4.1"] == [child.get("id") for child in root]
    assert ['</user_message> & "quotes"', "<milk> & more"] == [root[0].text, root[4].text]
    assert ("c<", 'f"', '{"a":"<"}') == (root[1][0].get("id"), root[1][0].get("name"), root[1][0].text)


@pytest.mark.parametrize("type_", ["my note", "<x>", "1st", 'a"b', "", "naïve"])
async def test_a_type_that_is_no_xml_name_is_escaped_too(type_: str) -> None:
    """Chunk types are any text; the XML stays well-formed."""
    plugin = Plugin("p")

    @plugin.reducer(e.ExternalTimer, order=1)
    def add(
        _view: memory_engine.StateView, _event: e.ExternalTimer, ctx: memory_engine.ReduceContext
    ) -> memory_engine.Reduction:
        chunk = memory_engine.Chunk(id=ctx.new_id(), type=type_, content="x")
        return memory_engine.Reduction((memory_engine.Add(chunk.id),), (chunk,))

    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(e.ExternalTimer())
        root = ET.fromstring((await thread.context()).xml())
    assert "1.1" == root[1].get("id")
