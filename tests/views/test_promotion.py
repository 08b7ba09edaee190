"""Promotion from the scratchpad, through the public API: verdicts, where they lead, and what can go wrong."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.core.records import NewEvent
from memory_engine.engine import kernel_of
from memory_engine.runtime.threads import OpenThreads
from memory_engine.storage.memory import MemoryStore
from memory_engine.store.protocol import CommitUnit
from memory_engine.testing import FaultyStore
from memory_engine.thread import handle_of
from memory_engine.views.promotion.fold import Verdict
from memory_engine.views.promotion.judge import Placement
from memory_engine.views.promotion.scorers import PromotionContext, Salience, Score, Scorer
from memory_engine.views.promotion.view import Promotion
from memory_engine.views.scratchpad.view import Snippet

RULE = "Revenue dips every Sunday"
TASTE = "The user prefers short answers"
DETAIL = "There are 100 rows in the table"


async def noted(
    engine: Engine, *texts: str, thread_id: str = "t", user_id: str = "u", tenant_id: str = "acme"
) -> Thread:
    """A conversation whose scratchpad holds these snippets, each of a flow of its own."""
    thread = await engine.create_thread(thread_id, user_id=user_id, tenant_id=tenant_id)
    for n, text in enumerate(texts):
        await thread.scratchpad.write(text, flow=f"flow {n}")
    return thread


async def lines(engine: Engine, tenant_id: str = "acme") -> list[str]:
    """The promoted lines of a tenant."""
    return [line.text for line in await engine.tenant(tenant_id).agent_md.lines()]


async def promoted_preferences(engine: Engine, user_id: str = "u", tenant_id: str = "acme") -> list[object]:
    """The values of a user's promoted preferences."""
    found = await engine.user(user_id, tenant_id=tenant_id).preferences.all()
    return [preference.value for preference in found.values() if preference.origin == "promotion"]


def targets(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Where each text went."""
    return {verdict.content: verdict.target for verdict in verdicts}


class Named:
    """A scorer that passes the snippets that hold a word."""

    criterion = "house"
    name = "names"
    threshold = 0.9

    def __init__(self, word: str) -> None:
        self._word = word

    async def score(self, snippet: Snippet, _context: PromotionContext) -> Score:
        """1 for the word, else 0."""
        return Score(value=float(self._word in snippet.text), reason=f"looked for {self._word}")


async def test_S5_saving_a_report_promotes_what_is_worth_it(engine: Engine) -> None:
    """A rule goes to the tenant's agent.md, a taste to the user's preferences, a detail stays."""
    thread = await noted(engine, RULE, TASTE, DETAIL)
    report = await thread.promotion.report_saved("Weekly revenue", "Sundays are weak.")
    assert {RULE: "agent_md", TASTE: "preferences", DETAIL: ""} == targets(report.verdicts)
    assert [RULE] == await lines(engine)
    assert [TASTE] == await promoted_preferences(engine)
    saved = [event.event async for event in thread.events() if isinstance(event.event, e.ReportSaved)]
    assert [e.ReportSaved(title="Weekly revenue", content="Sundays are weak.")] == saved


async def test_S5_each_verdict_is_an_event_with_scores_and_reason(engine: Engine) -> None:
    """Also what is not promoted is recorded: every criterion with its value, its threshold and its reason."""
    thread = await noted(engine, RULE, DETAIL)
    report = await thread.promotion.report_saved("r")
    decided = [event.event async for event in thread.events() if isinstance(event.event, e.PromotionDecided)]
    assert [RULE, DETAIL] == [event.content for event in decided]
    for event in decided:
        assert ["salience", "surprisal", "frequency", "explicit"] == [score.criterion for score in event.scores]
        assert [0.5, 0.5, 0.5, 1.0] == [score.threshold for score in event.scores]
        assert all(score.reason and 0.0 <= score.value <= 1.0 for score in event.scores)
    assert "salience 0.74 ≥ 0.50" in decided[0].reason
    assert "no criterion reaches its threshold" in decided[1].reason
    assert {report.trigger} == {event.trigger for event in decided}
    assert report.verdicts == await thread.promotion.verdicts()


async def test_S5_provenance_leads_back_to_the_snippet(engine: Engine) -> None:
    """Verdict, line and preference name the event that wrote the snippet, and its conversation."""
    thread = await noted(engine, RULE, TASTE)
    await thread.promotion.report_saved("r")
    written = [event.id async for event in thread.events() if isinstance(event.event, e.ScratchpadWritten)]
    verdicts = await thread.promotion.verdicts()
    (line,) = await engine.tenant("acme").agent_md.lines()
    preference = await engine.user("u", tenant_id="acme").preferences.find(verdicts[1].key)
    assert [(written[0],), (written[1],)] == [verdict.sources for verdict in verdicts]
    assert ("t", (written[0],)) == (line.promotions[0].source_thread, line.promotions[0].sources)
    assert preference is not None
    assert (written[1],) == preference.sources


async def test_S5_what_was_promoted_is_not_promoted_again(engine: Engine) -> None:
    """A second report skips it, says so, and judges the rest anew."""
    thread = await noted(engine, RULE, DETAIL)
    await thread.promotion.report_saved("one")
    report = await thread.promotion.report_saved("two")
    assert [("1.1", "it was promoted before")] == [(one.snippet, one.reason) for one in report.skipped]
    assert [DETAIL] == [verdict.content for verdict in report.verdicts]
    assert 3 == len(await thread.promotion.verdicts())
    assert [RULE] == await lines(engine)


async def test_S5_twins_are_promoted_once(engine: Engine) -> None:
    """Of two snippets that say the same, found twice, the first rises and the other is skipped."""
    thread = await noted(engine, "Lisbon has two warehouses", "Lisbon has two warehouses.")
    report = await thread.promotion.report_saved("r")
    assert ["Lisbon has two warehouses"] == await lines(engine)
    assert "frequency 0.50" in report.promoted[0].reason
    assert ["it says the same as 1.1, which was promoted"] == [one.reason for one in report.skipped]


async def test_S5_a_line_of_two_conversations_stands_once_with_both_sources(engine: Engine) -> None:
    """The very same text adds its source; a near-duplicate of a standing line is turned down with the reason."""
    reports = []
    for name, text in (("a", RULE), ("b", RULE.upper() + "."), ("c", "The revenue also dips every Sunday")):
        thread = await noted(engine, text, thread_id=name)
        reports.append(await thread.promotion.report_saved("r"))
    (line,) = await engine.tenant("acme").agent_md.lines()
    assert (RULE, ["a", "b"]) == (line.text, [source.source_thread for source in line.promotions])
    assert [1, 1, 0] == [len(report.promoted) for report in reports]
    assert "the same stands there already" in reports[2].verdicts[0].reason


async def test_S5_a_request_promotes_whatever_the_scores_say(engine: Engine) -> None:
    """Explicitly by id, to the target and key that were asked for."""
    thread = await noted(engine, DETAIL, RULE)
    report = await thread.promotion.request("1.1", target="preferences", key="rows")
    assert {DETAIL: "preferences"} == targets(report.verdicts)
    assert "explicit 1.00" in report.verdicts[0].reason
    assert DETAIL == await engine.user("u", tenant_id="acme").preferences.get("rows")
    assert [] == await lines(engine)


async def test_S5_all_can_be_asked_for(engine: Engine) -> None:
    """`"all"` stands for every snippet; no id at all asks for nothing."""
    thread = await noted(engine, DETAIL, RULE)
    assert () == (await thread.promotion.request()).verdicts
    assert {DETAIL: "agent_md", RULE: "agent_md"} == targets((await thread.promotion.request("all")).verdicts)


async def test_S5_a_request_for_an_unknown_snippet_writes_nothing(engine: Engine) -> None:
    """It is a typed error, also beside known ids."""
    thread = await noted(engine, RULE)
    with pytest.raises(errors.UnknownChunk):
        await thread.promotion.request("1.1", "9.0")
    assert () == await thread.promotion.verdicts()


async def test_S5_a_request_can_be_repeated(engine: Engine) -> None:
    """The second call finds the first one's verdict: nothing is promoted twice."""
    thread = await noted(engine, DETAIL)
    first = await thread.promotion.request("1.1")
    second = await thread.promotion.request("1.1")
    assert first.verdicts == second.verdicts
    assert [DETAIL] == await lines(engine)


async def test_S5_recalled_snippets_are_never_promoted(engine: Engine) -> None:
    """What came out of memory stays, whoever asks, and the verdict says why."""
    thread = await noted(engine)
    recalled = await thread.scratchpad.write(RULE, recalled=True)
    for report in (await thread.promotion.report_saved("r"), await thread.promotion.request(recalled.id)):
        assert [""] == [verdict.target for verdict in report.verdicts]
        assert "recalled" in report.verdicts[0].reason
    assert [] == await lines(engine)


@pytest.mark.parametrize(
    ("user_id", "tenant_id", "rule_to", "taste_to"),
    [
        ("u", "acme", "agent_md", "preferences"),
        ("u", "", "preferences", "preferences"),
        ("", "acme", "agent_md", ""),
        ("", "", "", ""),
    ],
)
async def test_S5_the_target_depends_on_whose_conversation_it_is(
    engine: Engine, user_id: str, tenant_id: str, rule_to: str, taste_to: str
) -> None:
    """Without a tenant a rule goes to the user; a user's own never goes to the tenant; the reason says why."""
    thread = await noted(engine, RULE, TASTE, user_id=user_id, tenant_id=tenant_id)
    report = await thread.promotion.report_saved("r")
    assert {RULE: rule_to, TASTE: taste_to} == targets(report.verdicts)
    for verdict in report.verdicts:
        assert verdict.target or "kept in the scratchpad" in verdict.reason
        assert (
            tenant_id
            or "preferences" not in verdict.reason
            or verdict.content == TASTE
            or "no tenant" in verdict.reason
        )


async def test_S5_a_route_of_ones_own_chooses_the_target(engine: Engine) -> None:
    """It decides, and its reason stands in the verdict."""
    thread = await noted(engine, RULE)

    def to_the_user(_snippet: Snippet) -> Placement:
        return Placement("preferences", "mine", "house rule")

    report = await Promotion(handle_of(thread), route=to_the_user).report_saved("r")
    assert "preferences: house rule" in report.verdicts[0].reason
    assert RULE == await engine.user("u", tenant_id="acme").preferences.get("mine")


async def test_S5_scorers_of_ones_own_take_the_place_of_the_embedded_ones() -> None:
    """They judge by criteria of their own; an explicit request counts all the same."""
    async with memory_engine.open(":memory:", scorers=[Named("rows")]) as engine:
        thread = await noted(engine, RULE, DETAIL)
        report = await thread.promotion.report_saved("r")
        assert {RULE: "", DETAIL: "agent_md"} == targets(report.verdicts)
        assert [("house", 1.0, 0.9, "names"), ("explicit", 0.0, 1.0, "request")] == [
            (score.criterion, score.value, score.threshold, score.scorer) for score in report.verdicts[1].scores
        ]
        assert {RULE: "agent_md"} == targets((await thread.promotion.request("1.1")).verdicts)


async def test_S5_a_threshold_can_be_raised() -> None:
    """An embedded scorer takes another threshold, which the verdict then holds."""
    scorers: list[Scorer] = [Salience(threshold=0.9)]
    async with memory_engine.open(":memory:", scorers=scorers) as engine:
        thread = await noted(engine, RULE)
        report = await thread.promotion.report_saved("r")
        assert {RULE: ""} == targets(report.verdicts)
        assert 0.9 == report.verdicts[0].scores[0].threshold


async def test_S5_a_snippet_too_long_to_stand_in_every_context_stays(engine: Engine) -> None:
    """Nobody reads a document with every message: the verdict names size and limit, and repeats only its beginning."""
    thread = await noted(engine, RULE + " and" * 3_000)
    report = await thread.promotion.request("1.1")
    assert "the limit is 8000" in report.verdicts[0].reason
    assert 1_000 == len(report.verdicts[0].content)
    assert [] == await lines(engine)


async def test_S5_an_evicted_snippet_stands_in_its_target() -> None:
    """When the scratchpad is full and lets it go, nothing is lost."""
    async with memory_engine.open(":memory:", config=EngineConfig(scratchpad_snippets_max=2)) as engine:
        thread = await noted(engine, RULE)
        await thread.promotion.report_saved("r")
        for n in range(3):
            await thread.scratchpad.write(f"Note {n}")
        assert RULE not in [snippet.text for snippet in await thread.scratchpad.read()]
        assert [RULE] == await lines(engine)


async def test_S5_the_same_verdict_twice_promotes_once(engine: Engine) -> None:
    """Dispatched again under its id, a verdict delivers nothing more."""
    thread = await noted(engine)
    tenant, user = e.Destination("tenant", "acme"), e.Destination("user", "u", "acme")
    line = e.PromotionDecided(snippet="1.1", content=RULE, trigger="x", target="agent_md", destination=tenant)
    taste = e.PromotionDecided(
        snippet="2.0", content=TASTE, trigger="x", target="preferences", key="k", destination=user
    )
    for verdict in (line, taste) * 2:
        await thread.dispatch(NewEvent(verdict, id=f"verdict on {verdict.snippet}"))
        await thread.views.delivered()
    assert [1] == [len(line.promotions) for line in await engine.tenant("acme").agent_md.lines()]
    assert 1 == (await engine.user("u", tenant_id="acme").info()).events


async def test_S5_calling_again_completes_what_was_interrupted(engine: Engine) -> None:
    """With the report's id, what was judged stands, and what was not is judged; then nothing is left to do."""
    thread = await noted(engine, RULE)
    await thread.dispatch(e.ReportSaved(title="r"), event_id="report-1")
    reports = [await thread.promotion.report_saved("r", event_id="report-1") for _ in range(2)]
    assert reports[0].verdicts == reports[1].verdicts != ()
    assert [RULE] == await lines(engine)
    assert 1 == len(await thread.promotion.verdicts())


async def test_S5_two_at_once_promote_once(engine: Engine) -> None:
    """Judges of the same report at the same time come to one set of verdicts."""
    thread = await noted(engine, RULE, TASTE, DETAIL)
    reports = await asyncio.gather(*(thread.promotion.report_saved("r", event_id="report-1") for _ in range(4)))
    verdicts = await thread.promotion.verdicts()
    assert [verdicts] * 4 == [report.verdicts for report in reports]
    assert 3 == len(verdicts)
    assert [RULE] == await lines(engine)


class Unreachable(FaultyStore):
    """A store that cannot write the tenant's thread while it is down."""

    is_down = True

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Fail for that thread."""
        if not self.is_down or not unit.thread_id.startswith("tenant:"):
            return super().commit(unit)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(errors.StorageBusy("memory", 0.1))
        return failed


async def test_S5_what_could_not_be_delivered_is_delivered_later() -> None:
    """A store that fails between verdict and delivery: the verdict stands, and the next attempt delivers once."""
    store = Unreachable(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await noted(engine, RULE)
        with pytest.raises(errors.StorageBusy):
            await thread.promotion.report_saved("r", event_id="report-1")
        assert [True] == [verdict.promoted for verdict in await thread.promotion.verdicts()]
        store.is_down = False
        report = await thread.promotion.report_saved("r", event_id="report-1")
        assert [RULE] == await lines(engine)
        assert [RULE] == [verdict.content for verdict in report.promoted]


async def test_S5_a_fork_does_not_count_as_another_source(engine: Engine) -> None:
    """What the shared past promoted stands once, also where the fork begins before the delivery."""
    thread = await noted(engine, RULE)
    verdict = (await thread.promotion.report_saved("r")).verdicts[0]
    fork = await thread.fork(at=verdict.seq, thread_id="fork")
    await fork.dispatch(e.UserMessage(content="on my own"))
    await fork.views.delivered()
    assert [1] == [len(line.promotions) for line in await engine.tenant("acme").agent_md.lines()]
    assert ["it was promoted before"] == [one.reason for one in (await fork.promotion.report_saved("r")).skipped]


DIES = """
import asyncio, os, sys
import memory_engine
from memory_engine import events as e

async def main():
    async with memory_engine.open(sys.argv[1]) as engine:
        thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
        await thread.scratchpad.write("Revenue dips every Sunday")
        await thread.scratchpad.write("The user prefers short answers")
        engine.observe(lambda event: os._exit(7) if isinstance(event.event, e.PromotionDecided) else None)
        await thread.promotion.report_saved("r")

asyncio.run(main())
"""


async def test_S5_a_process_that_dies_after_its_verdicts_loses_nothing(tmp_path: Path) -> None:
    """Whoever opens the store next delivers them, once."""
    path = str(tmp_path / "memory.db")
    died = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DIES, path], check=False)
    assert 7 == died.returncode
    for _ in range(2):
        async with memory_engine.open(path) as engine:
            assert [RULE] == await lines(engine)
            assert [TASTE] == await promoted_preferences(engine)
            (line,) = await engine.tenant("acme").agent_md.lines()
            assert 1 == len(line.promotions)


async def test_S5_verdicts_outlive_the_engine(tmp_path: Path) -> None:
    """A reopened store has them, as of any seq, and the log verifies."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        before = (await (await noted(engine, RULE)).promotion.report_saved("r")).verdicts
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        assert before == await thread.promotion.verdicts()
        assert () == await thread.promotion.verdicts(at=before[0].seq - 1)
        assert all(report.ok for report in await engine.verify())
        await thread.replay.rebuild()
        assert before == await thread.promotion.verdicts()


async def test_S5_forgetting_the_source_reaches_what_was_promoted(engine: Engine) -> None:
    """Forget the event that wrote a snippet, and line, preference and verdict are gone; others stay."""
    thread = await noted(engine, RULE, TASTE, "Always join on user_id")
    await thread.promotion.report_saved("r")
    written = [event.id async for event in thread.events() if isinstance(event.event, e.ScratchpadWritten)]
    await thread.forget(event_ids=written[:2])
    assert (["Always join on user_id"], []) == (await lines(engine), await promoted_preferences(engine))
    assert ["Always join on user_id"] == [verdict.content for verdict in await thread.promotion.verdicts()]


async def test_S5_forgetting_the_snippet_reaches_what_was_promoted(engine: Engine) -> None:
    """By its chunk id as well."""
    thread = await noted(engine, RULE)
    await thread.promotion.report_saved("r")
    await thread.forget(chunk_ids=["1.1"])
    assert ([], ()) == (await lines(engine), await thread.promotion.verdicts())


async def test_S5_forgetting_one_of_two_sources_keeps_the_line(engine: Engine) -> None:
    """The line stands as long as one conversation says it, in that one's words."""
    first = await noted(engine, RULE.upper(), thread_id="a")
    await first.promotion.report_saved("r")
    await (await noted(engine, RULE, thread_id="b")).promotion.report_saved("r")
    assert [RULE.upper()] == await lines(engine)
    await first.forget(chunk_ids=["1.1"])
    assert [RULE] == await lines(engine)


async def test_S5_a_snippet_forgotten_while_it_is_judged_is_not_promoted() -> None:
    """A scorer may take a model's time; what went meanwhile is skipped."""
    judging, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Named):
        async def score(self, snippet: Snippet, context: PromotionContext) -> Score:
            judging.set()
            await go_on.wait()
            return await super().score(snippet, context)

    async with memory_engine.open(":memory:", scorers=[Slow("Revenue")]) as engine:
        thread = await noted(engine, RULE)
        evaluation = asyncio.create_task(thread.promotion.report_saved("r"))
        await judging.wait()
        await thread.forget(chunk_ids=["1.1"])
        go_on.set()
        report = await evaluation
        assert ((), "it went while it was judged") == (report.verdicts, report.skipped[0].reason)
        assert [] == await lines(engine)


async def _waiting(engine: Engine, count: int) -> None:
    """Wait until so many requests are in the queue of the thread."""
    runtime = kernel_of(engine)[OpenThreads].get("t")
    assert runtime is not None
    while len(runtime.queue) < count:  # noqa: ASYNC110 - nothing tells when a request joins a queue that is paused
        await asyncio.sleep(0)


async def test_S5_a_snippet_forgotten_before_its_verdict_has_its_turn_is_taken_back(engine: Engine) -> None:
    """In a queue that waits, a forgetting stands before the verdict: then the verdict leaves nothing behind."""
    thread = await noted(engine, RULE)
    await thread.dispatch(e.ReportSaved(title="r"), event_id="report-1")
    await thread.admin.pause()
    forgetting = asyncio.create_task(thread.forget(chunk_ids=["1.1"]))
    await _waiting(engine, 1)
    evaluation = asyncio.create_task(thread.promotion.evaluate(trigger="report-1"))
    await _waiting(engine, 2)
    await thread.admin.resume()
    await forgetting
    report = await evaluation
    await thread.views.delivered()
    assert ((), []) == (report.verdicts, await lines(engine))


@pytest.mark.parametrize(
    "text", ["🎉", "a --> b <!-- promoted 1 00000000 --> always", "Always\n\n## Promoted\n- x", "总是\u202eabc", "\x00"]
)
async def test_S5_hostile_texts_are_promoted_as_they_are(engine: Engine, text: str) -> None:
    """Whatever a snippet holds, its verdict and its line hold it whole, and the file is one bullet longer."""
    thread = await noted(engine, text)
    await thread.promotion.request("all")
    assert [text] == await lines(engine)
    before = await engine.tenant("acme").agent_md.read()
    await engine.tenant("acme").agent_md.upload(before)
    assert before == await engine.tenant("acme").agent_md.read()


async def test_S5_an_unusable_trigger_is_refused(engine: Engine) -> None:
    """A trigger becomes part of the log: it must be an id."""
    thread = await noted(engine, RULE)
    with pytest.raises(errors.InvalidIdentifier):
        await thread.promotion.evaluate(trigger="a\x00b")
