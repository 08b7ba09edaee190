"""Decisions of a model on whether a later statement replaces an earlier one: recorded once, used by every search."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

import memory_engine
from memory_engine import Engine, LlmTextResponse, Models, NewEvent, Thread, UserMessage
from memory_engine import events as e
from memory_engine.errors import EventNotFound, InvalidArgument, ModelError
from memory_engine.llm import Completion, LanguageModel

OLDER = "My locker code is 4471."
NEWER = "The front desk gave the locker another one, so 9026 opens mine."
ASKED = "What is my locker code?"
BEGUN = datetime(2026, 3, 2, 9, tzinfo=UTC)
FILLER = tuple(f"The gym on floor {n} smells of paint." for n in range(6))
Decide = Callable[[str, str], str]


class Decider:
    """A language model that decides by a function of two statements, and counts its calls."""

    name = "decider"

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.asked: list[tuple[str, str]] = []

    async def complete(
        self, messages: Sequence[Mapping[str, object]], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Decide about the pair in the last message."""
        assert temperature == 0
        shown = str(messages[-1]["content"])
        [older] = re.findall(r"<earlier day=.*>\n(.*)\n</earlier>", shown)
        [newer] = re.findall(r"<later day=.*>\n(.*)\n</later>", shown)
        self.asked.append((older, newer))
        return Completion(text=self.decide(older, newer), model="decider-1", usage=e.Usage(7, 1))

    async def aclose(self) -> None:
        """Nothing is open."""


def knows(*replaced: tuple[str, str]) -> Decider:
    """A decider that knows which pairs replace, and finds all others unrelated."""
    return Decider(lambda *pair: "REPLACED" if pair in replaced else "UNRELATED")


async def told(engine: Engine, *texts: str, thread_id: str = "talk") -> Thread:
    """A thread in which a person says these things, one a day, each answered."""
    thread = await engine.create_thread(thread_id, user_id="u1")
    for day, text in enumerate(texts):
        at = BEGUN + timedelta(days=day)
        await thread.dispatch(NewEvent(UserMessage(content=text), occurred_at=at))
        await thread.dispatch(NewEvent(LlmTextResponse(content="Noted."), occurred_at=at))
    return thread


async def order(
    thread: Thread, question: str = ASKED, *, at: int | None = None, as_of: datetime | None = None
) -> list[str]:
    """The two statements in the order in which a search finds them."""
    found = await thread.search(question, at=at, as_of=as_of)
    return [hit.text for hit in found if hit.text in (OLDER, NEWER)]


async def compared(thread: Thread) -> list[e.StatementsCompared]:
    """The recorded decisions."""
    return [one.event async for one in thread.events() if isinstance(one.event, e.StatementsCompared)]


async def test_a_replaced_statement_comes_after_its_replacement() -> None:
    """Before the decision the older one is first. Its hit then names the event that replaces it, and the decision."""
    async with memory_engine.open(":memory:", models=Models(memory=knows((OLDER, NEWER)))) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        assert OLDER == (await order(thread))[0]
        done = await thread.views.statements.compare(ASKED)
        assert ["replaced"] == [one.verdict for one in done.replaced]
        assert [NEWER, OLDER] == await order(thread)
        newer, older = [hit for hit in await thread.search(ASKED, explain=True) if hit.text in (OLDER, NEWER)]
        assert (newer.event_id, done.replaced[0].event_id) == (older.superseded_by, older.decided_by)
        assert ("", "") == (newer.superseded_by, newer.decided_by)
        assert newer.why.startswith("decided ")
        assert newer.score == pytest.approx(sum(newer.parts.values()), abs=1e-4)
        assert older.rendered().endswith(f"{OLDER} (superseded)")
        assert done.replaced[0].event_id == older.as_data()["decided_by"]


async def test_a_replacement_that_the_question_does_not_find_joins_the_hits() -> None:
    """The decision leads to it, also where the search finds one hit."""
    newer = "Reception changed mine to 9026 after the break-in."
    async with memory_engine.open(":memory:", models=Models(memory=knows((OLDER, newer)))) as engine:
        thread = await told(engine, OLDER, *FILLER, "Where is room 9?", newer)
        await thread.dispatch(
            e.StatementsCompared(older=1, newer=(await thread.last_seq()) - 1, verdict="replaced", by="Ada")
        )
        found = await thread.search(ASKED, limit=1)
        assert [newer] == [hit.text for hit in found]


async def test_each_pair_is_asked_about_once() -> None:
    """A second run, another engine on the file, and a fork ask nothing again; the log says which model decided."""
    decider = knows((OLDER, NEWER))
    async with memory_engine.open(":memory:", models=Models(memory=decider)) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        first = await thread.views.statements.compare(ASKED, pairs_max=100)
        count = len(decider.asked)
        assert (count, 0) == (len(set(decider.asked)), first.remain)
        again = await thread.views.statements.compare(ASKED, pairs_max=100)
        assert ((), count) == (again.decisions, len(decider.asked))
        fork = await thread.fork()
        await fork.views.statements.compare(ASKED, pairs_max=100)
        assert count == len(decider.asked)
        assert [NEWER, OLDER] == await order(fork)
        recorded = await compared(thread)
        assert {("decider-1", 1)} == {(one.model, one.prompt) for one in recorded}
        assert count * 7 == first.usage.input_tokens == sum(one.usage.input_tokens for one in recorded if one.usage)


async def test_a_run_asks_about_no_more_pairs_than_it_may() -> None:
    """The rest remains for the next run; together they ask about each once."""
    decider = knows((OLDER, NEWER))
    async with memory_engine.open(":memory:", models=Models(memory=decider)) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        remaining: list[int] = []
        while not remaining or remaining[-1]:
            before = len(decider.asked)
            remaining.append((await thread.views.statements.compare(ASKED, pairs_max=5)).remain)
            assert len(decider.asked) - before <= 5
        assert len(decider.asked) == len(set(decider.asked)) == remaining[0] + 5
        assert [NEWER, OLDER] == await order(thread)


async def test_what_was_searched_for_lately_is_compared() -> None:
    """Without a question, a run takes those of this process's searches and contexts of the thread."""
    async with memory_engine.open(":memory:", models=Models(memory=knows((OLDER, NEWER)))) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        assert () == (await thread.views.statements.compare()).decisions
        await thread.context(query=ASKED, max_tokens=500)
        assert 1 == len((await thread.views.statements.compare()).replaced)


async def test_a_search_asks_no_model() -> None:
    """It uses what is decided so far."""
    decider = knows((OLDER, NEWER))
    async with memory_engine.open(":memory:", models=Models(memory=decider)) as engine:
        thread = await told(engine, OLDER, NEWER)
        await thread.search(ASKED)
        await thread.context(query=ASKED, max_tokens=300)
        assert ([], []) == (decider.asked, await compared(thread))


async def test_a_person_overrules_a_model() -> None:
    """The earlier statement stands first again, unmarked; the model is not asked about that pair any more."""
    decider = knows((OLDER, NEWER))
    async with memory_engine.open(":memory:", models=Models(memory=decider)) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        await thread.views.statements.compare(ASKED, pairs_max=100)
        marked = next(hit for hit in await thread.search(ASKED) if hit.text == OLDER)
        await thread.views.statements.still_holds(marked, by="Ada")
        assert OLDER == (await order(thread))[0]
        assert "" == next(hit for hit in await thread.search(ASKED) if hit.text == OLDER).superseded_by
        count = len(decider.asked)
        await thread.views.statements.compare(ASKED)
        assert count == len(decider.asked)
        last = (await thread.views.statements.decisions())[-1]
        assert ("holds", "Ada") == (last.verdict, last.by)
        with pytest.raises(EventNotFound):
            await thread.views.statements.still_holds("nothing")


async def test_a_decision_that_it_holds_overrules_the_rules() -> None:
    """Of what the built-in rules take for a change, a model knows better."""
    older, newer = "I live in Leeds, right behind the station.", "The boxes are unpacked, I moved my office to Utrecht."
    async with memory_engine.open(":memory:", models=Models(memory=Decider(lambda *_: "HOLDS"))) as engine:
        thread = await told(engine, older, newer)
        assert newer == (await thread.search("Where do I live?"))[0].text
        await thread.views.statements.compare("Where do I live?")
        assert older == (await thread.search("Where do I live?"))[0].text


async def test_a_chain_of_replacements_stands_newest_first() -> None:
    """Also where the newest one was decided about by way of another."""
    chain = [OLDER, NEWER, "After the fire drill mine opens with 1138."]
    async with memory_engine.open(":memory:") as engine:
        thread = await told(engine, *chain, *FILLER)
        for older, newer in ((1, 3), (3, 5)):
            await thread.dispatch(e.StatementsCompared(older=older, newer=newer, verdict="replaced", by="Ada"))
        found = [hit.text for hit in await thread.search(ASKED) if hit.text in chain]
        assert chain[::-1] == found


async def test_the_past_knows_nothing_of_later_decisions() -> None:
    """As of an earlier seq or moment a search is what it was; a question about then asks for the older statement."""
    async with memory_engine.open(":memory:", models=Models(memory=knows((OLDER, NEWER)))) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        before = await thread.last_seq()
        await thread.views.statements.compare(ASKED)
        assert OLDER == (await order(thread, at=before))[0]
        assert OLDER == (await order(await thread.at(before)))[0]
        assert [OLDER] == await order(thread, as_of=BEGUN + timedelta(days=2))
        [hit] = [hit for hit in await thread.search(ASKED, as_of=BEGUN + timedelta(days=2)) if hit.text == OLDER]
        assert "" == hit.superseded_by
        assert OLDER == (await order(thread, "What was my locker code before?"))[0]
        assert () == await thread.views.statements.decisions(at=before)


@pytest.mark.parametrize("forgotten", [0, -1])
async def test_a_decision_goes_with_either_statement(forgotten: int) -> None:
    """Nothing in the view, and in the search, tells of a forgotten statement."""
    async with memory_engine.open(":memory:", models=Models(memory=knows((OLDER, NEWER)))) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        decided = (await thread.views.statements.compare(ASKED)).replaced[0]
        seq = (decided.older, decided.newer)[forgotten]
        await thread.forget(seqs=[seq])
        assert not [one for one in await thread.views.statements.decisions() if seq in (one.older, one.newer)]
        found = await thread.search(ASKED)
        assert not any(hit.superseded_by for hit in found)
        assert 1 == len(await order(thread))
        assert (await thread.verify()).ok


async def test_a_statement_that_is_forgotten_while_the_model_reads_it_leaves_no_decision() -> None:
    """The answer comes too late: it is forgotten too."""
    async with memory_engine.open(":memory:") as engine:
        thread = await told(engine, OLDER, NEWER)

        class Slow(Decider):
            async def complete(
                self, messages: Sequence[Mapping[str, object]], *, temperature: float, max_tokens: int, timeout_s: float
            ) -> Completion:
                await thread.forget(seqs=[1])
                return await super().complete(
                    messages, temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s
                )

        done = await thread.views.statements.compare(ASKED, model=Slow(lambda *_: "REPLACED"))
        assert ((), ()) == (done.decisions, await thread.views.statements.decisions())


async def test_an_erased_statement_takes_its_decision_along(tmp_path: Path) -> None:
    """The proof of erasing finds nothing, and the thread still verifies."""
    path = tmp_path / "memory.db"
    async with memory_engine.open(path, models=Models(memory=knows((OLDER, NEWER)))) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        await thread.views.statements.compare(ASKED)
        await thread.admin.erase(seqs=[1], reason="asked to")
        assert [NEWER] == await order(thread)
        assert not [one for one in await thread.views.statements.decisions() if one.older == 1]
        assert (await thread.verify()).ok


async def test_decisions_come_back(tmp_path: Path) -> None:
    """After a restart, and after an export to another store, without a model: the log decides."""
    path = tmp_path / "memory.db"
    async with memory_engine.open(path, models=Models(memory=knows((OLDER, NEWER)))) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        await thread.views.statements.compare(ASKED)
        kept = await thread.views.statements.decisions()
        await thread.replay.export(tmp_path / "thread.jsonl")
    async with memory_engine.open(path) as engine:
        assert [NEWER, OLDER] == await order(engine.thread("talk"))
        assert kept == await engine.thread("talk").views.statements.decisions()
        await engine.thread("talk").replay.rebuild()
        assert kept == await engine.thread("talk").views.statements.decisions()
    async with memory_engine.open(":memory:") as engine:
        await engine.import_log(tmp_path / "thread.jsonl", user_id="u1")
        assert [NEWER, OLDER] == await order(engine.thread("talk"))


async def test_another_process_sees_what_is_decided(tmp_path: Path) -> None:
    """A search follows the log, whoever wrote it."""
    path = tmp_path / "memory.db"
    config = memory_engine.EngineConfig(follow_s=1e-6)
    async with (
        memory_engine.open(path, models=Models(memory=knows((OLDER, NEWER)))) as one,
        memory_engine.open(path, config=config) as other,
    ):
        thread = await told(one, OLDER, *FILLER, NEWER)
        assert OLDER == (await order(other.thread("talk")))[0]
        await thread.views.statements.compare(ASKED)
        assert [NEWER, OLDER] == await order(other.thread("talk"))


async def test_a_search_over_several_threads_uses_the_decisions_of_each(engine: Engine) -> None:
    """A decision of one thread says nothing of another."""
    talks = [await told(engine, OLDER, *FILLER, NEWER, thread_id=name) for name in ("one", "two")]
    seq = await talks[0].last_seq() - 1
    await talks[0].dispatch(e.StatementsCompared(older=1, newer=seq, verdict="replaced", by="Ada"))
    found = await engine.search(ASKED, thread_ids=["one", "two"])
    marked = [(hit.thread_id, hit.text) for hit in found if hit.superseded_by]
    assert [("one", OLDER)] == marked


@pytest.mark.parametrize("answer", ["", "I cannot say.", "REPLACED or HOLDS, who knows", "{}", "replace"])
async def test_an_unclear_answer_changes_nothing_and_is_not_asked_for_again(answer: str) -> None:
    """It is recorded as what it is."""
    decider = Decider(lambda *_: answer)
    async with memory_engine.open(":memory:", models=Models(memory=decider)) as engine:
        thread = await told(engine, OLDER, NEWER)
        before = [hit.text for hit in await thread.search(ASKED)]
        done = await thread.views.statements.compare(ASKED)
        assert {"unclear"} == {one.verdict for one in done.decisions}
        assert {True} == {bool(one.failure) for one in await compared(thread)}
        assert before == [hit.text for hit in await thread.search(ASKED)]
        count = len(decider.asked)
        await thread.views.statements.compare(ASKED)
        assert count == len(decider.asked)


@pytest.mark.parametrize(
    ("error", "is_recorded"),
    [
        (ModelError("decider", "timeout", "late"), False),
        (ModelError("decider", "unavailable", "down"), False),
        (ModelError("decider", "refused", "no"), True),
        (RuntimeError("a bug"), False),
    ],
)
async def test_a_model_that_fails_stops_the_run(error: Exception, is_recorded: bool) -> None:
    """Nothing is recorded of a pair that another try may decide; a refusal is this pair's own."""

    def fail(*_pair: str) -> str:
        raise error

    decider = Decider(fail)
    async with memory_engine.open(":memory:", models=Models(memory=decider)) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        done = await thread.views.statements.compare(ASKED)
        assert is_recorded == (not done.failure) == bool(await compared(thread))
        if not is_recorded:
            assert (1, True) == (len(decider.asked), done.remain > 0)
            decider.decide = lambda *pair: "REPLACED" if pair == (OLDER, NEWER) else "HOLDS"
            await thread.views.statements.compare(ASKED)
            assert [NEWER, OLDER] == await order(thread)


async def test_a_comparison_needs_a_model(engine: Engine) -> None:
    """The error says how to give one."""
    thread = await told(engine, OLDER, NEWER)
    with pytest.raises(InvalidArgument, match="memory="):
        await thread.views.statements.compare(ASKED)
    with pytest.raises(InvalidArgument):
        await thread.views.statements.compare(ASKED, model=cast("LanguageModel", "gpt"))


async def test_why_names_the_decision() -> None:
    """A context shows the replaced statement as such, and `why` leads to the event that decided so."""
    async with memory_engine.open(":memory:", models=Models(memory=knows((OLDER, NEWER)))) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER, *[f"Tell me about number {n}." for n in range(60)])
        [decided] = (await thread.views.statements.compare(ASKED)).replaced
        context = await thread.context(query=ASKED, max_tokens=400)
        assert f"{OLDER} (superseded)" in str(context.messages)
        tree = await thread.replay.why(context)
        assert f"'decided_by': '{decided.event_id}'" in str(tree.as_data())
        row = f"{decided.older:010d}.0-{decided.newer:010d}.0"
        shown = await thread.replay.why(f"view:statements/{row}")
        assert {decided.older, decided.newer, decided.seq} <= {child.seq for child in shown.children}


async def test_a_decision_does_not_make_a_dispatch_conflict() -> None:
    """It is the memory's own upkeep: what a caller has read still stands."""
    async with memory_engine.open(":memory:", models=Models(memory=knows((OLDER, NEWER)))) as engine:
        thread = await told(engine, OLDER, NEWER)
        read = await thread.last_seq()
        assert (await thread.views.statements.compare(ASKED)).decisions
        await thread.dispatch(UserMessage(content="Thanks."), expected_seq=read)


@pytest.mark.parametrize(("older", "newer"), [(0, 1), (1, 1), (1, 99), (7, 3)])
async def test_a_decision_on_no_pair_of_statements_does_nothing(engine: Engine, older: int, newer: int) -> None:
    """Whoever dispatched it."""
    thread = await told(engine, OLDER)
    await thread.dispatch(e.StatementsCompared(older=older, newer=newer, verdict="replaced"))
    assert () == await thread.views.statements.decisions()
    assert OLDER == (await thread.search(ASKED))[0].text


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Which code should I type at my locker?", NEWER),
        ("What is the locker code, if I want to go in?", NEWER),
        ("What was my locker code before?", OLDER),
    ],
)
async def test_a_plan_is_asked_of_what_is_true_now(engine: Engine, question: str, first: str) -> None:
    """Where only the rules would be in doubt, the decision is not; a question about the past is another matter."""
    thread = await told(engine, OLDER, *FILLER, NEWER)
    await thread.dispatch(e.StatementsCompared(older=1, newer=15, verdict="replaced", by="Ada"))
    assert first == (await order(thread, question))[0]


async def test_what_was_decided_before_a_rewind_is_decided_again() -> None:
    """Once: a decision that was taken back is none, and its pair is asked about and recorded like any other."""
    decider = knows((OLDER, NEWER))
    async with memory_engine.open(":memory:", models=Models(memory=decider)) as engine:
        thread = await told(engine, OLDER, *FILLER, NEWER)
        moment = (await thread.info()).events
        await thread.views.statements.compare(ASKED, pairs_max=100)
        count = len(decider.asked)
        assert count == (await thread.rewind(moment)).events
        assert () == await thread.views.statements.decisions()
        assert OLDER == (await order(thread))[0]
        for _ in range(2):
            await thread.views.statements.compare(ASKED, pairs_max=100)
            assert (2 * count, count) == (len(decider.asked), len(await thread.views.statements.decisions()))
            assert [NEWER, OLDER] == await order(thread)
