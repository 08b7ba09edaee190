"""A model's summary is checked: what its sources demand of it, and where each of its lines comes from."""

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import memory_engine
from memory_engine import Chunk, CompactionContext, EngineConfig, LlmTextResponse, UserMessage
from memory_engine.compactors import WorkingHistoryCompactor
from memory_engine.compactors.summary_check import grounded, missing, tokens_min
from memory_engine.compactors.summary_reading import Claim, read_summary
from memory_engine.compactors.summary_values import KnownValues
from memory_engine.core.events.base import SummaryLine, ToolCall
from memory_engine.errors import CompactorFailed, ModelError
from memory_engine.errors.effects import Usage
from memory_engine.events import LlmToolCall, ToolResult
from memory_engine.llm import Completion
from memory_engine.llm.base import Message
from tests.conversations import NEVER, of_type, types

GOOD = """\
### Completed Actions

- Found order W-7731 of ada@example.com: a tent, delivered on 2024-05-02 [1, 2, 3]
- Ada wants to return it and to get 129.90 EUR back [1, 5]

### Next Steps

- Book the refund of order W-7731 [5]
"""
POOR = "### Current State\n\nhalf"
FILLER = " The weather in the valley was fine and the hikers had walked for many hours through old forests."


class Model:
    """Gives its answers one after the other, the last again and again; keeps what it was asked."""

    name = "scripted"

    def __init__(self, *answers: str | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[list[Message], float]] = []

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """The next answer."""
        self.asked.append((list(messages), timeout_s))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Completion(text=answer, model="scripted-1", usage=Usage(input_tokens=7, output_tokens=3))

    async def aclose(self) -> None:
        """Nothing to let go of."""


EVENTS = (
    UserMessage(content=f"I am ada@example.com. Please look at my order W-7731 of 129.90 EUR.{FILLER * 4}"),
    LlmToolCall(calls=(ToolCall.create("c1", "find_order", {"order_id": "W-7731"}),)),
    ToolResult(call_id="c1", content=f"W-7731: a tent, delivered 2024-05-02, status 17.{FILLER * 4}"),
    LlmTextResponse(content=f"It was delivered on 2024-05-02.{FILLER * 4}"),
    UserMessage(content=f"I want to return it.{FILLER * 4}"),
    LlmTextResponse(content=f"I will book the refund.{FILLER * 4}"),
)


async def test_one_word_does_not_replace_a_conversation(caplog: pytest.LogCaptureFixture) -> None:
    """Asked once more, and told what is missing; then the embedded compactor does it, with an event and a warning."""
    model = Model(POOR)
    config = EngineConfig(compaction=NEVER)
    with caplog.at_level(logging.WARNING, "memory_engine"):
        async with memory_engine.open(":memory:", compact_model=model, config=config) as engine:
            thread = await engine.create_thread()
            await thread.dispatch_all(EVENTS)
            report = await thread.compact()
            assert ("embedded", "working_history", 2) == (report.compactor, report.instead_of, len(model.asked))
            failed, started = await of_type(thread, "compaction_failed"), await of_type(thread, "compactor_stood_in")
            assert ("incomplete", "incomplete") == (getattr(failed[0], "reason", ""), getattr(started[0], "reason", ""))
            assert Usage(input_tokens=14, output_tokens=6) == getattr(failed[0], "usage", None)
            assert "W-7731" in str((await thread.context()).messages)
    assert "embedded stands in for it" in caplog.text


async def test_the_model_is_asked_about_what_it_made_up() -> None:
    """The second time it sees its answer and the values that stand nowhere; a good one then stands."""
    model = Model(GOOD.replace("W-7731", "W-7732"), GOOD)
    async with memory_engine.open(":memory:", compact_model=model, config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(EVENTS)
        report = await thread.compact()
        assert ("working_history", Usage(input_tokens=14, output_tokens=6)) == (report.compactor, report.usage)
    again, left_s = model.asked[1]
    assert ["system", "user", "assistant", "user"] == [message["role"] for message in again]
    assert "w-7732" in str(again[3]["content"])
    assert 0 < left_s <= NEVER.deadline_s


async def test_a_line_with_a_value_of_nowhere_goes() -> None:
    """A model that insists keeps its other lines; what it should have said of values used later comes beside them."""
    model = Model(GOOD.replace("129.90", "229.90"))
    async with memory_engine.open(":memory:", compact_model=model, config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(EVENTS)
        assert ("working_history", 2) == ((await thread.compact()).compactor, len(model.asked))
        said = str((await thread.context()).messages)
        assert "229.90" not in said
        assert "a tent, delivered on 2024-05-02" in said


LEAVES_OUT = "### Completed Actions\n\n- Looked up the weather of the valley, where it was fine, hour by hour [2]\n"
RULE = "Bitte niemals vor neun Uhr anrufen."


async def test_peoples_words_stay_whatever_a_model_writes() -> None:
    """A summary that leaves out a rule of the user does not lose it, and does not repeat it beside the brief."""
    config = EngineConfig(compaction=NEVER)
    async with memory_engine.open(":memory:", compact_model=Model(LEAVES_OUT), config=config) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content=RULE), LlmTextResponse(content=f"Gut.{FILLER * 9}")])
        await thread.compact()
        assert 1 == len(next((await thread.state()).chunks()).lines)
        assert 1 == str((await thread.context(max_tokens=8_000)).messages).count(RULE)


async def test_words_that_no_brief_holds_become_lines() -> None:
    """Word for word, with the speaker and the chunk; of a message that a brief holds in part, the rest."""
    chunks = [
        *chunks_of(f"{RULE} Danke schön und bis morgen."),
        Chunk(id="2.0", type="agent_response", content=f"Gut.{FILLER * 9}"),
    ]
    for brief, words in (((), f"{RULE} Danke schön und bis morgen."), ((RULE,), "Danke schön und bis morgen.")):
        told = replace(context(400), brief=brief)
        [_, line] = (await WorkingHistoryCompactor(Model(LEAVES_OUT)).compact(chunks, told)).lines
        assert SummaryLine("said", f"User: {words}", ("1.0",)) == line


async def test_a_good_summary_is_asked_for_once() -> None:
    """No second call where nothing is missing."""
    model = Model(GOOD)
    async with memory_engine.open(":memory:", compact_model=model, config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(EVENTS)
        assert "working_history" == (await thread.compact()).compactor
    assert 1 == len(model.asked)


async def test_a_model_that_is_gone_the_second_time_has_failed_the_first() -> None:
    """The failure says what was wrong with the answer that there was, and what both cost."""
    model = Model(POOR, ModelError("m", "timeout", "late", usage=Usage(input_tokens=1)))
    worked = [Chunk(id="1.0", type="agent_response", content=" ".join(f"day{n}" for n in range(400)))]
    with pytest.raises(CompactorFailed, match="too few to stand for") as failure:
        await WorkingHistoryCompactor(model).compact(worked, context(400))
    assert ("incomplete", Usage(input_tokens=8, output_tokens=3)) == (failure.value.reason, failure.value.usage)


def chunks_of(*texts: str) -> list[Chunk]:
    """Messages of a person."""
    return [Chunk(id=f"{n}.0", type="user_message", content=text) for n, text in enumerate(texts, 1)]


def context(budget_tokens: int) -> CompactionContext:
    """A context with this budget."""
    return CompactionContext(thread_id="t", budget_tokens=budget_tokens, deadline_s=9.0)


def called(n: int, name: str, **arguments: object) -> Chunk:
    """A call."""
    return Chunk(id=f"{n}.0", type="agent_action", calls=(ToolCall.create(f"c{n}", name, arguments),))


def answered(n: int, text: str, call_id: str = "") -> Chunk:
    """A result."""
    return Chunk(id=f"{n}.0", type="action_result", content=text, call_id=call_id or f"c{n - 1}")


def lines(*texts: str) -> list[SummaryLine]:
    """A summary."""
    return [SummaryLine("key_information", text) for text in texts]


HISTORY = [
    *chunks_of("My number is 0171-555."),
    called(2, "find", phone="0171-555"),
    answered(3, "customer C-81, orders A-1 to A-9, tags 11 12 13 14 15, of Ines Okafor"),
    called(4, "open", customer="C-81", deep={"names": ["Ines Okafor"]}, flag=True, none=None),
    answered(5, "opened"),
]


def test_values_that_later_calls_took_are_added() -> None:
    """From anywhere before, each with its tool and key; not what only a result lists, nor what a line names."""
    added = [(line.text, line.sources) for line in missing(lines("It is 0171-555."), HISTORY, 400)]
    assert [("open: names Ines Okafor", ("4.0",)), ("open: customer C-81", ("4.0",))] == added


def test_lines_and_offsets_are_no_identifiers() -> None:
    """Small whole numbers in arguments are places in a text: a summary need not name them."""
    read = [
        part
        for n in range(2, 12, 2)
        for part in (called(n, "read", path="a.py", offset=100 * n), answered(n + 1, f"{100 * n + 200}: x = 1"))
    ]
    assert [] == missing(lines("Read a.py whole."), [*chunks_of("Read a.py."), *read], 400)


def test_open_calls_and_to_dos_are_added() -> None:
    """A call without a result, a to-do that is not done; those that are done need no mention. There is always room."""
    todos = [
        Chunk(id="8.0", type="todo_item", content="send the invoice", status="pending"),
        Chunk(id="9.0", type="todo_item", content="call Ann", status="completed"),
    ]
    added = missing(lines("0171-555 C-81 Ines Okafor"), [*HISTORY, called(7, "wait_for_bank"), *todos], 0)
    assert [("wait_for_bank({}) …", ("7.0",)), ("[ ] send the invoice", ("8.0",))] == [
        (line.text, line.sources) for line in added
    ]
    assert [] == missing(lines("0171-555 C-81 Ines Okafor, wait_for_bank, send the invoice"), [*HISTORY, *todos], 9)


def test_failures_are_added_unless_they_passed() -> None:
    """One that no line cites, with the call; not one whose call succeeded when it was made again."""

    def failed(n: int, text: str) -> Chunk:
        return Chunk(id=f"{n}.0", type="error", content=text, call_id=f"c{n - 1}", status="failed")

    history = [
        called(2, "run", command="make"), failed(3, "no rule"), called(4, "run", command="make"), answered(5, "ok"),
        called(6, "run", command="ship"), failed(7, "permission denied"),
    ]  # fmt: skip
    [line] = missing(lines("They built it."), history, 400)
    assert ('run({"command":"ship"}) ✗ permission denied', ("6.0", "7.0")) == (line.text, line.sources)
    assert [] == missing([SummaryLine("attempted_approaches", "It broke.", ("7.0",))], history, 400)


def test_added_values_fit_their_room() -> None:
    """What hundreds of calls used cannot all be named: the latest come first."""
    history = [called(n, f"get{n}", id=f"id-{n:05}") for n in range(2, 400)]
    known = chunks_of(" ".join(f"id-{n:05}" for n in range(2, 400)))
    open_ends = [answered(n + 1000, "ok", f"c{n}") for n in range(2, 400)]
    added = missing([], [*known, *history, *open_ends], 100)
    assert ("get399: id id-00399", True) == (added[0].text, 5 < len(added) < 30)


def test_a_few_words_do_not_stand_for_a_long_history() -> None:
    """Unless it says the same again and again; people's own words ask for nothing, since they are kept."""
    worked = [Chunk(id="1.0", type="agent_response", content=" ".join(f"word{n}" for n in range(1_000)))]
    assert 50 < tokens_min(worked, 400)
    assert 20 > tokens_min([replace(worked[0], content="Is anybody there? " * 200)] * 9, 400)
    assert 0 == tokens_min(chunks_of("A long story. " * 99), 400)


ENTRIES = [
    "The budget is 40,000 EUR, ORD-58113 is due on 10 May 2026 at srv-14.example.org:8443.",
    'read({"path":"billing/pricing.py","offset":1200,"limit":200}): Invoice.total costs 129.90',
    "read the file once more",
]
KNOWN = [
    "40000 EUR", "40.000 EUR or 40 000", "ORD-58113 by 2026-05-10", "yesterday, 2026-05-08", "up to line 1400",
    "129.9", "billing/pricing.py:1200", "Invoice and total", "all 3 entries", "read in 2 files", "用户在2026年5月10日",
    "the 10th", "entries 1-3 say so", "at 8443, twice", "129 200 1200",
]  # fmt: skip
MADE_UP = [
    "60,000 EUR",
    "900 EUR",
    "2027-05-10",
    "ORD-58114",
    "evil@example.com",
    "billing/new.py",
    "17 files",
    "23:45",
]


@pytest.mark.parametrize("text", KNOWN)
def test_a_value_in_other_words_is_known(text: str) -> None:
    """Signs between thousands, dates in other forms or by the time of an entry, ends of ranges, counts of entries."""
    assert [] == known_values().unknown_in(text, 1)


@pytest.mark.parametrize("text", MADE_UP)
def test_a_value_of_nowhere_is_found(text: str) -> None:
    """An amount, a date, an identifier, an address that no entry holds."""
    assert [] != known_values().unknown_in(text, 1)


@given(st.text(), st.lists(st.text(), max_size=3))
def test_what_the_entries_say_is_known(text: str, others: list[str]) -> None:
    """No text has values that it does not hold itself."""
    assert [] == KnownValues.of([text, *others], [], [], []).unknown_in(text, 0)


def known_values() -> KnownValues:
    """The values of the entries above, on a day in May."""
    return KnownValues.of(ENTRIES, [], ["2026-05-09T10:00:00+00:00"], [1400])


TEXTS = ["Ada lives in Bergen, phone 4711", "The tent arrived torn on 2024-05-02", "We refund 129.90", "用户住在北京市"]
CITED = {
    "as it is": (Claim("k", "Ada lives in Bergen", (0,)), (0,)),
    "without a citation": (Claim("k", "The tent was torn"), (1,)),
    "of several, without a citation": (Claim("k", "Ada gets a refund of 129.90, phone 4711"), (0, 2)),
    "a wrong one": (Claim("k", "Ada lives in Bergen", (2,)), (2, 0)),
    "a value of another entry": (Claim("k", "The tent, torn: 129.90", (1,)), (1, 2)),
    "in a script without blanks": (Claim("k", "住在北京"), (3,)),
    "of nowhere": (Claim("k", "Zzz"), ()),
    "of nowhere, cited": (Claim("k", "Il pleut", (1,)), (1,)),
}


@pytest.mark.parametrize(("claim", "cites"), CITED.values(), ids=CITED)
def test_a_line_cites_what_it_may_come_from(claim: Claim, cites: tuple[int, ...]) -> None:
    """What it says it comes from, and every entry whose values or words it has."""
    assert [cites] == [one.cites for one in grounded([claim], TEXTS)]


@given(st.lists(st.text(), max_size=5), st.lists(st.tuples(st.text(), st.lists(st.integers(0, 4))), max_size=5))
def test_no_claim_is_lost_or_loses_a_citation(texts: list[str], said: list[tuple[str, list[int]]]) -> None:
    """Citations are added, never taken; they name entries that there are."""
    claims = [Claim("k", text, tuple(n for n in cites if n < len(texts))) for text, cites in said]
    found = grounded(claims, texts)
    assert [claim.text for claim in claims] == [claim.text for claim in found]
    for before, after in zip(claims, found, strict=True):
        assert set(before.cites) <= set(after.cites) <= set(range(len(texts)))


def test_a_line_that_cites_what_has_no_sources_may_come_from_anywhere() -> None:
    """Beside others too: to cite less than all would leave it standing when its source is forgotten."""
    [line] = read_summary("### Next Steps\n- ship [1, 2]", [("1.0",), ()])
    assert () == line.sources


async def test_forgetting_takes_lines_and_not_the_summary() -> None:
    """A model that cites nothing leaves lines that stand for their own entries: the others survive a forgetting."""
    uncited = "\n".join(line.partition(" [")[0] for line in GOOD.splitlines())
    async with memory_engine.open(
        ":memory:", compact_model=Model(uncited), config=EngineConfig(compaction=NEVER)
    ) as engine:
        thread = await engine.create_thread()
        made = [chunk.id for event in EVENTS for chunk in (await thread.dispatch(event)).chunks]
        assert "working_history" == (await thread.compact()).compactor
        await thread.forget(chunk_ids=[made[4]])
        said = str((await thread.context()).messages)
        assert "a tent, delivered on 2024-05-02" in said
        assert "withheld" not in said
        assert ["compaction_started", "compaction_completed"] == await types(thread)
