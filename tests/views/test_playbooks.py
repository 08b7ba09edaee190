"""Playbooks: flows that went well, from the conversation to the user and back before the next one of the kind."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, Thread, errors
from memory_engine import events as e
from memory_engine.llm.vectors import Vector
from memory_engine.thread import handle_of
from memory_engine.views.playbooks.events import playbook_id
from memory_engine.views.playbooks.flows import Flows
from memory_engine.views.playbooks.playbook import Playbook
from memory_engine.views.playbooks.reactions import Reaction
from memory_engine.views.playbooks.view import Playbooks

QUERY = "Show me revenue by month for 2026"
LIKE_IT = "Show revenue by month for 2025"
CALLS = (
    e.PlaybookCall("query_table", {"table": "orders", "group_by": ["month"]}),
    e.PlaybookCall("plot", {"kind": "line"}),
)


async def conversation(engine: Engine, thread_id: str = "t", *, user_id: str = "u") -> Thread:
    """A conversation of a user of a tenant."""
    return await engine.create_thread(thread_id, user_id=user_id, tenant_id="acme")


async def revenue_flow(thread: Thread, flow_id: str = "f1", query: str = QUERY) -> None:
    """A flow that completes."""
    await thread.views.flows.completed(
        "revenue_report",
        user_query=query,
        slots={"metric": "revenue"},
        tool_calls=CALLS,
        outcome="a line chart",
        flow_id=flow_id,
    )


def of_user(engine: Engine) -> Playbooks:
    """The playbooks of the conversation's user."""
    return engine.user("u", tenant_id="acme").playbooks


async def statuses(thread: Thread) -> list[str]:
    """What became of each flow."""
    return [record.status for record in await thread.views.flows.all()]


async def test_S6_positive_feedback_promotes_at_once(engine: Engine) -> None:
    """The whole trajectory is the user's playbook then, with the way back to its flow."""
    thread = await conversation(engine)
    await revenue_flow(thread)
    record = await thread.views.flows.feedback(True, content="just right")
    (playbook,) = await of_user(engine).all()
    assert ("revenue_report", {"metric": "revenue"}, CALLS) == (
        playbook.flow_dact,
        playbook.slots,
        playbook.tool_calls,
    )
    assert (QUERY, "a line chart", 1) == (playbook.user_query, playbook.outcome, playbook.count)
    said = next(event.id for event in await thread.replay.latest(3) if isinstance(event.event, e.FeedbackGiven))
    assert ("t", (record.event_id, said)) == (playbook.times[0].source_thread, playbook.times[0].sources)
    assert ("promoted", "positive feedback: just right") == (record.status, record.reason)


async def test_S6_a_flow_by_itself_is_no_playbook(engine: Engine) -> None:
    """That it completed is not enough: somebody must be satisfied."""
    thread = await conversation(engine)
    await revenue_flow(thread)
    assert ["completed"] == await statuses(thread)
    assert () == await of_user(engine).all()


@pytest.mark.parametrize(
    "message", ["Now show churn for Germany", "What about EMEA?", "thanks!", "Теперь покажи отток"]
)
async def test_S6_going_on_without_a_correction_promotes(engine: Engine, message: str) -> None:
    """The next request, or thanks, is satisfaction; the reason is recorded."""
    thread = await conversation(engine)
    await revenue_flow(thread)
    (promoted,) = await thread.views.flows.review(message)
    assert "f1" == promoted.flow_id
    assert promoted.reason.startswith(("request:", "satisfaction:"))
    assert [QUERY] == [playbook.user_query for playbook in await of_user(engine).all()]


@pytest.mark.parametrize(
    "message", ["No, by week", "That's not what I asked for", "Nein, das ist falsch", "不对", QUERY]
)
async def test_S6_a_correction_leaves_it_unpromoted_with_the_reason(engine: Engine, message: str) -> None:
    """It is recorded as feedback; what the user says afterwards about other things does not promote it."""
    thread = await conversation(engine)
    await revenue_flow(thread)
    assert () == await thread.views.flows.review(message)
    assert () == await thread.views.flows.review("Now show churn for Germany")
    (feedback,) = [event.event async for event in thread.events() if isinstance(event.event, e.FeedbackGiven)]
    assert (False, "f1") == (feedback.satisfied, feedback.flow_id)
    assert feedback.content
    assert ["rejected"] == await statuses(thread)
    assert () == await of_user(engine).all()


@pytest.mark.parametrize("message", ["", "ok", "hm", "?", "🎈"])
async def test_S6_what_says_too_little_decides_nothing(engine: Engine, message: str) -> None:
    """The flow waits for the next message."""
    thread = await conversation(engine)
    await revenue_flow(thread)
    assert () == await thread.views.flows.review(message)
    assert ["completed"] == await statuses(thread)
    assert 1 == len(await thread.views.flows.review("Now show churn for Germany"))


async def test_S6_a_correction_is_of_the_last_flow(engine: Engine) -> None:
    """A flow before it waits for the message after; going on promotes what waits."""
    thread = await conversation(engine)
    await revenue_flow(thread, "f1")
    await revenue_flow(thread, "f2", "Show churn")
    await thread.views.flows.review("No, that's wrong")
    assert ["completed", "rejected"] == await statuses(thread)
    assert ["f1"] == [event.flow_id for event in await thread.views.flows.review("Next, the margins please")]


async def test_S6_feedback_outweighs_a_correction(engine: Engine) -> None:
    """A person's explicit word decides, whatever their message sounded like; negative feedback keeps it out."""
    thread = await conversation(engine)
    await revenue_flow(thread)
    await thread.views.flows.feedback(False, content="too slow")
    assert ("rejected", "too slow") == (
        (await thread.views.flows.get("f1")).status,
        (await thread.views.flows.get("f1")).reason,
    )
    await thread.views.flows.feedback(True, flow_id="f1")
    assert ["promoted"] == await statuses(thread)
    assert 1 == len(await of_user(engine).all())


async def test_S6_a_flow_is_promoted_once(engine: Engine) -> None:
    """Feedback, reviews and a second end of the same run add nothing; a playbook stays one."""
    thread = await conversation(engine)
    await revenue_flow(thread)
    await asyncio.gather(
        thread.views.flows.feedback(True),
        thread.views.flows.feedback(True),
        thread.views.flows.review("thanks!"),
        return_exceptions=False,
    )
    await revenue_flow(thread)
    await thread.views.flows.feedback(True)
    await thread.views.flows.feedback(False)
    await thread.views.flows.review("Now show churn for Germany")
    assert ["promoted"] == await statuses(thread)
    assert [1] == [playbook.count for playbook in await of_user(engine).all()]


async def test_S6_without_a_user_nobody_keeps_it(engine: Engine) -> None:
    """The satisfaction is recorded; there is no one whose playbook it could be."""
    thread = await conversation(engine, user_id="")
    await revenue_flow(thread)
    assert "liked" == (await thread.views.flows.feedback(True)).status
    assert () == await thread.views.flows.review("Now show churn for Germany")
    assert None is await thread.views.flows.prepare("revenue_report", QUERY)


async def test_S6_feedback_on_no_flow_is_an_error(engine: Engine) -> None:
    """Before any flow, or on one that is not there, nothing is written."""
    thread = await conversation(engine)
    with pytest.raises(errors.UnknownFlow, match="no flow yet"):
        await thread.views.flows.feedback(True)
    await revenue_flow(thread)
    with pytest.raises(errors.UnknownFlow, match="no flow 'f9'"):
        await thread.views.flows.feedback(True, flow_id="f9")
    assert 1 == (await thread.info()).events


async def test_S6_a_judge_of_ones_own_reads_the_messages() -> None:
    """It takes the place of the embedded one."""

    class Strict:
        async def judge(self, _message: str, user_query: str) -> Reaction:
            return Reaction("correction", f"nothing pleases about {user_query}")

    async with memory_engine.open(":memory:") as engine:
        thread = await conversation(engine)
        await revenue_flow(thread)
        assert () == await Flows(handle_of(thread), judge=Strict()).review("thanks!")
        assert f"nothing pleases about {QUERY}" == (await thread.views.flows.get("f1")).reason


# the user's side


async def test_S6_found_by_flow(engine: Engine) -> None:
    """Exactly by its flow, the most proven recipe first."""
    playbooks = of_user(engine)
    for n, query in enumerate(("a", "b", "b")):
        await playbooks.save("revenue_report", user_query=query, slots={"q": query}, outcome=f"{n}")
    await playbooks.save("revenue", user_query="c")
    found = await playbooks.find(flow="revenue_report")
    assert [("b", 2, 1.0, "flow"), ("a", 1, 1.0, "flow")] == [
        (match.playbook.user_query, match.playbook.count, match.score, match.how) for match in found
    ]
    assert () == await playbooks.find(flow="revenue_%")
    assert 1 == len(await playbooks.find(flow="revenue_report", limit=1))
    assert () == await playbooks.find(flow="revenue_report", limit=0)


async def test_S6_found_by_likeness_above_a_threshold(engine: Engine) -> None:
    """A request like the one that it answered finds it, another does not; the threshold can be set."""
    playbooks = of_user(engine)
    await playbooks.save("revenue_report", user_query=QUERY)
    await playbooks.save("churn_report", user_query="Which customers are about to cancel?")
    (match,) = await playbooks.find(LIKE_IT)
    assert ("revenue_report", "lexical") == (match.playbook.flow_dact, match.how)
    assert {"revenue", "month"} <= set(match.shared)
    assert 0.5 <= match.score <= 1.0
    assert () == await playbooks.find("Book a table for two")
    assert () == await playbooks.find(LIKE_IT, threshold=0.99)
    assert () == await playbooks.find(LIKE_IT, flow="churn_report")


async def test_S6_found_by_meaning_with_an_embedder() -> None:
    """With an embedder, what means the same is found whatever its words."""

    class Topics:
        name = "topics"
        dimension = 2

        async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
            """One direction for money, another for the rest."""
            return [(1.0, 0.0) if {"revenue", "sales"} & set(text.lower().split()) else (0.0, 1.0) for text in texts]

        async def aclose(self) -> None:
            """Nothing to close."""

    async with memory_engine.open(":memory:", embedder=Topics()) as engine:
        playbooks = of_user(engine)
        await playbooks.save("revenue_report", user_query=QUERY)
        await playbooks.save("churn_report", user_query="Who leaves?")
        (match,) = await playbooks.find("How are sales going?")
        assert ("revenue_report", "embedding", 1.0) == (match.playbook.flow_dact, match.how, match.score)


async def test_S6_equal_recipes_are_one_playbook(engine: Engine) -> None:
    """The same flow, slots and calls, in whatever order of keys: one playbook, found by each of its requests."""
    playbooks = of_user(engine)
    first = await playbooks.save("f", user_query="alpha beta", slots={"a": 1, "b": 2}, outcome="one")
    again = await playbooks.save("f", user_query="gamma delta", slots={"b": 2, "a": 1})
    other = await playbooks.save("f", user_query="alpha beta", slots={"a": 2, "b": 2})
    assert first.id == again.id != other.id
    assert (2, "gamma delta", "one") == (again.count, again.user_query, again.outcome)
    for query in ("alpha beta", "gamma delta"):
        assert first.id in [match.playbook.id for match in await playbooks.find(query)]
    assert 2 == len(await playbooks.find("alpha beta"))


async def test_S6_a_playbook_can_be_removed(engine: Engine) -> None:
    """It is found no more; there is nothing to remove twice; it may come back."""
    playbooks = of_user(engine)
    saved = await playbooks.save("f", user_query=QUERY)
    assert [True, False] == [await playbooks.remove(saved.id), await playbooks.remove(saved.id)]
    assert () == await playbooks.find(QUERY)
    assert None is await playbooks.get(saved.id)
    assert saved.id == (await playbooks.save("f", user_query=QUERY)).id


async def test_S6_forgetting_the_flow_reaches_the_playbook(engine: Engine) -> None:
    """Of two sources one goes, and its request with it; with the last one the playbook goes."""
    for name, query in (("a", "Show me the secret project"), ("b", QUERY)):
        thread = await conversation(engine, name)
        await revenue_flow(thread, "f1", query)
        await thread.views.flows.feedback(True)
    assert [2] == [playbook.count for playbook in await of_user(engine).all()]
    for name, left in (("a", [QUERY]), ("b", [])):
        thread = engine.thread(name)
        await thread.forget(event_ids=[(await thread.views.flows.get("f1")).event_id])
        assert left == [playbook.user_query for playbook in await of_user(engine).all()]
        assert () == await thread.views.flows.all()
    assert () == await of_user(engine).find("secret project")


async def test_S6_forgetting_feedback_lets_the_flow_wait_again(engine: Engine) -> None:
    """What was said is gone; the run is as it was before."""
    thread = await conversation(engine)
    await revenue_flow(thread)
    record = await thread.views.flows.feedback(False, content="my boss hates it")
    await thread.forget(event_ids=[record.judged_event_id])
    assert ("completed", "") == ((await thread.views.flows.get("f1")).status, (await thread.flows.get("f1")).reason)


async def test_X4_playbooks_of_the_past(tmp_path: Path) -> None:
    """As of any seq, by flow and by likeness, also after a reopening; the logs verify and rebuild."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        thread = await conversation(engine)
        await revenue_flow(thread)
        await thread.views.flows.feedback(True)
        before = await of_user(engine).all()
        await of_user(engine).remove(before[0].id)
    async with memory_engine.open(path) as engine:
        playbooks = of_user(engine)
        assert () == await playbooks.find(LIKE_IT)
        assert before == await playbooks.all(at=1)
        assert list(before) == [match.playbook for match in await playbooks.find(LIKE_IT, at=1)]
        assert ["completed"] == [record.status for record in await engine.thread("t").views.flows.all(at=1)]
        for report in await engine.verify():
            assert report.ok
        await engine.user("u", tenant_id="acme").replay.rebuild()
        assert before == await playbooks.all(at=1)


# before the skill


async def test_S6_prepare_puts_the_playbook_on_the_scratchpad(engine: Engine) -> None:
    """In another conversation of the user: the recipe, marked as recalled, for the skill to follow."""
    first = await conversation(engine, "first")
    await revenue_flow(first)
    await first.views.flows.feedback(True)
    second = await conversation(engine, "second")
    playbook = await second.views.flows.prepare("revenue_report", LIKE_IT)
    (snippet,) = await second.scratchpad.read()
    assert isinstance(playbook, Playbook)
    assert (playbook.text, "revenue_report", True) == (snippet.text, snippet.flow, snippet.recalled)
    assert (
        "Playbook for the flow revenue_report: it worked once for this user.\n"
        "Request: Show me revenue by month for 2026\n"
        'Slots: metric = "revenue"\n'
        'Step 1: query_table(group_by=["month"], table="orders")\n'
        'Step 2: plot(kind="line")\n'
        "Outcome: a line chart"
    ) == snippet.text


async def test_S6_prepare_writes_once_a_request(engine: Engine) -> None:
    """A retry of the same request writes nothing more; the next message of the user is another request."""
    await of_user(engine).save("revenue_report", user_query=QUERY)
    thread = await conversation(engine)
    await thread.dispatch(e.UserMessage(content=LIKE_IT))
    for _ in range(2):
        await thread.views.flows.prepare("revenue_report", LIKE_IT)
        await thread.scratchpad.read(flow="revenue_report")
    await asyncio.gather(*(thread.views.flows.prepare("revenue_report", LIKE_IT) for _ in range(3)))
    assert 1 == len(await thread.scratchpad.read())
    await thread.dispatch(e.UserMessage(content=LIKE_IT))
    await thread.views.flows.prepare("revenue_report", LIKE_IT)
    assert 2 == len(await thread.scratchpad.read())


async def test_S6_prepare_leaves_what_does_not_fit(engine: Engine) -> None:
    """Of another flow, another user or another request there is nothing to recall, and nothing is written."""
    await of_user(engine).save("revenue_report", user_query=QUERY)
    thread = await conversation(engine)
    stranger = await conversation(engine, "s", user_id="v")
    assert None is await thread.views.flows.prepare("churn_report", LIKE_IT)
    assert None is await thread.views.flows.prepare("revenue_report", "Book a table for two")
    assert None is await thread.views.flows.prepare("revenue_report", LIKE_IT, threshold=1.0)
    assert None is await stranger.views.flows.prepare("revenue_report", LIKE_IT)
    assert () == await thread.scratchpad.read()


async def test_S6_a_recalled_playbook_is_not_promoted_as_a_finding(engine: Engine) -> None:
    """It came out of memory: saving a report does not carry it to agent.md."""
    await of_user(engine).save("revenue_report", user_query="Always show revenue by month", outcome="always good")
    thread = await conversation(engine)
    await thread.views.flows.prepare("revenue_report", "Always show revenue by month")
    report = await thread.promotion.report_saved("r")
    assert () == report.promoted
    assert () == await engine.tenant("acme").agent_md.lines()


DIES = """
import asyncio, os, sys
import memory_engine
from memory_engine import events as e

async def main():
    async with memory_engine.open(sys.argv[1]) as engine:
        thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
        await thread.flows.completed("revenue_report", user_query="Show revenue", flow_id="f1")
        engine.observe(lambda event: os._exit(7) if isinstance(event.event, e.PlaybookPromoted) else None)
        await thread.flows.feedback(True)

asyncio.run(main())
"""


async def test_S6_a_process_that_dies_after_promoting_loses_nothing(tmp_path: Path) -> None:
    """Whoever opens the store next delivers the playbook, once."""
    path = str(tmp_path / "memory.db")
    died = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DIES, path], check=False)
    assert 7 == died.returncode
    for _ in range(2):
        async with memory_engine.open(path) as engine:
            assert [1] == [playbook.count for playbook in await of_user(engine).all()]


@pytest.mark.parametrize("text", ["", "\x00", "🎉" * 3_000, "\u202e", "a\nb", "x" * 1_000_000])
async def test_S6_any_text_makes_a_bounded_playbook(engine: Engine, text: str) -> None:
    """Empty, huge or strange texts are kept whole, found by flow, and shown in at most 4,000 bytes."""
    playbooks = of_user(engine)
    saved = await playbooks.save(
        "f", user_query=text, slots={"s": text}, tool_calls=[e.PlaybookCall("t", {"p": text})], outcome=text
    )
    (match,) = await playbooks.find(flow="f")
    assert saved == match.playbook
    assert text == match.playbook.user_query
    assert len(saved.text.encode()) <= 4_000
    await playbooks.find(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
async def test_S6_a_recipe_has_one_id(slots: dict[str, object]) -> None:
    """Whatever order its slots come in, live or from the log, a recipe has the id of its playbook."""
    turned = dict(reversed(list(slots.items())))
    assert playbook_id("f", slots, CALLS) == playbook_id("f", turned, CALLS)
    async with memory_engine.open(":memory:") as engine:
        first = await of_user(engine).save("f", user_query="a", slots=slots, tool_calls=CALLS)
        again = await of_user(engine).save("f", user_query="b", slots=turned, tool_calls=CALLS)
        assert (first.id, 2) == (again.id, again.count)


@pytest.mark.parametrize(
    ("query", "parameters", "outcome"),
    [
        ("Log in with password hunter2", {}, ""),
        ("Log in", {"user": "app", "password": "hunter2"}, ""),
        ("Log in", {}, "token: ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    ],
)
async def test_S6_a_flow_with_a_secret_becomes_no_playbook(
    engine: Engine, query: str, parameters: dict[str, object], outcome: str
) -> None:
    """However content its user is: its recipe would come back into prompts. The feedback is kept."""
    thread = await conversation(engine)
    calls = [e.PlaybookCall("login", parameters)]
    await thread.views.flows.completed("login", user_query=query, tool_calls=calls, outcome=outcome, flow_id="f1")
    assert () == await thread.views.flows.review("Perfect, thanks!")
    assert "liked" == (await thread.views.flows.feedback(True)).status
    assert () == await of_user(engine).all()


async def test_S6_what_follows_a_doubt_promotes_nothing(engine: Engine) -> None:
    """A reply that is neither praise nor a request alone keeps the flow out: later thanks may be for something else."""
    thread = await conversation(engine)
    await revenue_flow(thread)
    assert () == await thread.views.flows.review("Great, now it's broken")
    assert () == await thread.views.flows.review("Perfect, thanks!")
    assert "it says more than praise: 'now it's broken'" == (await thread.views.flows.get("f1")).reason
    assert ["rejected"] == await statuses(thread)
