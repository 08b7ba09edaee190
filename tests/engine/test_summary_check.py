"""A model's summary is checked: what its sources demand of it, and where each of its lines comes from."""

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine import Chunk, CompactionContext, EngineConfig, LlmTextResponse, UserMessage
from memory_engine.compactors import WorkingHistoryCompactor
from memory_engine.compactors.summary_check import Claim, Demand, grounded
from memory_engine.compactors.working_history import read_summary
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


async def test_the_model_is_told_what_is_missing() -> None:
    """The second time it sees its answer, what that lacks, and the same budget; a good one then stands."""
    model = Model(POOR, GOOD)
    async with memory_engine.open(":memory:", compact_model=model, config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(EVENTS)
        report = await thread.compact()
        assert ("working_history", Usage(input_tokens=14, output_tokens=6)) == (report.compactor, report.usage)
    again, left_s = model.asked[1]
    assert ["system", "user", "assistant", "user"] == [message["role"] for message in again]
    assert POOR == again[2]["content"]
    told = str(again[3]["content"])
    assert all(value in told for value in ("W-7731", "129.90", "too few"))
    assert 0 < left_s <= NEVER.deadline_s


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
    with pytest.raises(CompactorFailed, match="too few to stand for") as failure:
        await WorkingHistoryCompactor(model).compact(chunks_of(" ".join(f"day{n}" for n in range(400))), context(400))
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


def test_values_that_later_calls_took_are_demanded() -> None:
    """From anywhere before: what a person said, what a tool returned; not what only a result lists."""
    assert ("Ines Okafor", "C-81", "0171-555") == Demand.of(HISTORY, 400).values


def test_numbers_of_a_person_are_demanded() -> None:
    """Amounts, dates and identifiers in their messages, the latest; not single digits or words."""
    said = chunks_of("Meet at 12:45 on 2024-05-02 in room B7, 3 of us, at most 500 EUR.")
    assert ("12:45", "2024-05-02", "B7", "500") == Demand.of(said, 400).values


def test_open_calls_and_to_dos_are_demanded() -> None:
    """A call without a result, a to-do that is not done; those that are done need no mention."""
    todos = [
        Chunk(id="8.0", type="todo_item", content="send the invoice", status="pending"),
        Chunk(id="9.0", type="todo_item", content="call Ann", status="completed"),
    ]
    demand = Demand.of([*HISTORY, called(7, "wait_for_bank"), *todos], 400)
    assert ("wait_for_bank", "send the invoice") == demand.open
    [fault, *_] = demand.unmet(lines("0171-555 C-81 Ines Okafor and more words to fill it"))
    assert "wait_for_bank, send the invoice" in fault


def test_the_values_demanded_fit_into_the_budget() -> None:
    """They may take a third of it: what a thousand calls used cannot all be named."""
    history = [called(n, "get", id=f"id-{n:05}") for n in range(2, 400)]
    known = chunks_of(" ".join(f"id-{n:05}" for n in range(2, 400)))
    values = Demand.of([*known, *history], 400).values
    assert ("id-00399", True) == (values[0], 10 < len(values) < 50)


@pytest.mark.parametrize(
    ("named", "stands"), [(10, True), (8, True), (7, False), (0, False)], ids=["all", "most", "too few", "none"]
)
def test_most_of_the_values_must_be_named(named: int, stands: bool) -> None:
    """Four of five, in any case and anywhere in the summary."""
    values = [f"Key-{n}x{n}" for n in range(10)]
    said = " ".join(value.upper() for value in values[:named])
    unmet = Demand((), tuple(values), 0, 1_000).unmet(lines(f"They are {said}."))
    assert stands == (not unmet)
    assert stands or values[9] in unmet[0]


def test_a_summary_fits_its_budget_and_is_not_far_below() -> None:
    """One and a half times the budget is too long; a few words for a long history are too short."""
    demand = Demand.of(chunks_of(" ".join(f"word{n}" for n in range(1_000))), 400)
    assert ["too many", "too few"] == [
        fault.partition("tokens: ")[2][:8].rstrip()
        for text in ("x" * 2_500, "half")
        for fault in Demand((), (), demand.tokens_min, demand.tokens_max).unmet(lines(text))
    ]
    assert [] == Demand((), (), demand.tokens_min, demand.tokens_max).unmet(lines("word " * 100))


def test_repetition_asks_for_little() -> None:
    """What says the same a hundred times can be said in one line."""
    assert [] == Demand.of(chunks_of(*["Is anybody there? " * 20] * 100), 400).unmet(lines("They asked for someone."))


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
