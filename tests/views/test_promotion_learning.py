"""Promotion counts what several conversations find, and never lets a secret rise."""

from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, errors
from memory_engine import events as e
from memory_engine.views.promotion.scorers import Frequency, Scorer
from tests.views.test_promotion import DETAIL, lines, noted, targets

PLAIN = "Lisbon has two warehouses"


async def test_S5_what_several_conversations_find_rises(engine: Engine) -> None:
    """Once in each: the second finds it again, the verdict names the first, and the note leads back to its event."""
    first = await noted(engine, PLAIN, thread_id="a")
    assert {PLAIN: ""} == targets((await first.promotion.report_saved("r")).verdicts)
    second = await noted(engine, f"{PLAIN}.", DETAIL, thread_id="b")
    report = await second.promotion.report_saved("r")
    assert {f"{PLAIN}.": "agent_md", DETAIL: ""} == targets(report.verdicts)
    assert "frequency 0.67 ≥ 0.50 (found in 1 analysis and in other conversations (a))" in report.promoted[0].reason
    (written,) = [event.id async for event in first.events() if isinstance(event.event, e.ScratchpadWritten)]
    notes = [event.event async for event in engine.user("u", tenant_id="acme").events()]
    assert [
        e.FindingNoted(content=PLAIN, source_thread="a", sources=(written,)),
        e.FindingNoted(content=DETAIL, source_thread="b", sources=report.verdicts[1].sources),
    ] == notes


async def test_S5_three_conversations_say_more_than_three_times_in_one() -> None:
    """A finding of three conversations scores higher than one of three analyses of the same conversation."""
    scorers: list[Scorer] = [Frequency(threshold=0.99)]
    async with memory_engine.open(":memory:", scorers=scorers) as engine:
        reports = []
        for name, texts in (("a", [PLAIN]), ("b", [PLAIN]), ("c", [PLAIN]), ("d", [DETAIL] * 3)):
            thread = await noted(engine, *texts, thread_id=name)
            reports.append(await thread.promotion.report_saved("r"))
    assert [0.0, 0.6667, 0.8, 0.6667] == [report.verdicts[0].scores[0].value for report in reports]


async def test_S5_a_conversation_counts_once(engine: Engine) -> None:
    """However often it is judged; and what it noted itself is nothing that others found."""
    thread = await noted(engine, PLAIN)
    reports = [await thread.promotion.report_saved("r") for _ in range(3)]
    assert {PLAIN: ""} == targets(reports[-1].verdicts)
    assert 1 == (await engine.user("u", tenant_id="acme").info()).events


async def test_S5_users_do_not_count_for_each_other(engine: Engine) -> None:
    """Neither another user, nor the same name at another tenant."""
    for name, user_id, tenant_id in (("a", "u", "acme"), ("b", "v", "acme"), ("c", "u", "globex"), ("d", "", "acme")):
        thread = await noted(engine, PLAIN, thread_id=name, user_id=user_id, tenant_id=tenant_id)
        assert {PLAIN: ""} == targets((await thread.promotion.report_saved("r")).verdicts)


async def test_S5_forgetting_a_snippet_takes_it_from_the_count(engine: Engine) -> None:
    """The note goes with the event that the snippet came from."""
    first = await noted(engine, PLAIN, thread_id="a")
    (verdict,) = (await first.promotion.report_saved("r")).verdicts
    await first.forget(event_ids=verdict.sources)
    second = await noted(engine, PLAIN, thread_id="b")
    assert {PLAIN: ""} == targets((await second.promotion.report_saved("r")).verdicts)


async def test_S5_findings_are_rebuilt(tmp_path: Path) -> None:
    """From the user's log, after a reopening: the same count."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        await (await noted(engine, PLAIN, thread_id="a")).promotion.report_saved("r")
    async with memory_engine.open(path) as engine:
        assert (await engine.user("u", tenant_id="acme").replay.verify()).ok
        await engine.user("u", tenant_id="acme").replay.rebuild()
        second = await noted(engine, PLAIN, thread_id="b")
        assert {PLAIN: "agent_md"} == targets((await second.promotion.report_saved("r")).verdicts)


# what is never promoted

SECRETS = ("The database password is always hunter2", "Always use ghp_16C7e42F292c6912E7710c838347Ae178B4a to push")


@pytest.mark.parametrize("text", SECRETS)
async def test_S5_a_secret_is_never_promoted(engine: Engine, text: str) -> None:
    """Whoever asks, and no scorer reads it; the verdict does not repeat it, and other conversations do not learn it."""
    thread = await noted(engine, text)
    for report in (await thread.promotion.report_saved("r"), await thread.promotion.request("all")):
        (verdict,) = report.verdicts
        assert ("", "it tells a secret", ()) == (verdict.target, verdict.reason, verdict.scores)
        assert "[secret]" in verdict.content
    assert [] == await lines(engine)
    with pytest.raises(errors.ThreadNotFound):
        await engine.user("u", tenant_id="acme").info()


CODE = (
    "for row in rows:\n    always = True",
    "# always\nretries: 5\nmy_key: never",
    "```\nThis must always hold\n```",
    "> The user always prefers tables",
    "2024-05-01 12:00:01 ERROR the job always fails",
)


@pytest.mark.parametrize("text", CODE)
async def test_S5_code_is_promoted_only_if_somebody_asks(engine: Engine, text: str) -> None:
    """Its words are not its author's; the verdict says so."""
    thread = await noted(engine, text, text)
    report = await thread.promotion.report_saved("r")
    assert ["", ""] == [verdict.target for verdict in report.verdicts]
    assert "it has code, data, a log or a quotation in it" in report.verdicts[0].scores[0].reason
    assert 1 == len((await thread.promotion.request("1.1")).promoted)
