"""Questions that ask for several things: they are recognised, and their finds come from more than one evening."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

import memory_engine
from memory_engine import Engine, NewEvent, Thread, UserMessage
from memory_engine.recall.question import read_question

BEGIN = datetime(2026, 2, 2, 18, tzinfo=UTC)
EVENINGS = ("Porto", "Turin", "Graz", "Bergen", "Split")

SEVERAL = [
    "Which places did she visit?",
    "How many tournaments has Omar won?",
    "What are all the passwords that expired?",
    "What kinds of tea does he drink?",
    "Who are the members of the choir?",
    "What sports does Lea do?",
    "Where has the van been parked?",
    "which small towns along the river did we pass",
    "List all bugs that Priya closed.",
    "In what ways can I pay?",
    "What children were at the party?",
    "Welche Städte hat sie besucht?",
    "Welche Orte kennt Paul?",
    "Wie viele Turniere hat er gewonnen?",
    "Was hat sie alles gekauft?",
    "Wo waren wir überall?",
    "Wer sind die Gäste?",
    "¿Cuáles son sus aficiones?",
    "¿Qué ciudades visitó?",
    "¿Cuántos torneos ha ganado?",
    "¿Quiénes son los socios?",
    "她去过哪些地方?",
    "他赢了几次比赛?",
    "列出所有的客户",
    "Quelles villes a-t-elle visitées?",
    "Combien de tournois a-t-il gagnés?",
    "Welke steden heeft ze bezocht?",
    "Hoeveel toernooien won hij?",
    "Quali città ha visitato?",
    "Quais cidades ela visitou?",
    "Какие города она посетила?",
]
ONE = [
    "",
    "?!",
    "Which town did she move to?",
    "What is her address?",
    "What does he think of it?",
    "What kind of tea does he drink?",
    "What makes her happy?",
    "What's the status of the bus?",
    "Which of the hotels was the cheapest?",
    "How many days did it take?",
    "How much did the boat cost?",
    "When was the last news about the lens?",
    "Was hat sie gekauft?",
    "Welche Farbe hat das Auto?",
    "Welcher Zug fährt nach Graz?",
    "Wie viele Stunden dauert es?",
    "¿Qué es un torneo?",
    "¿Qué ciudad visitó?",
    "¿Cuántas horas duró?",
    "她住在哪个城市?",
    "Combien de temps faut-il?",
]


@pytest.mark.parametrize("text", SEVERAL)
def test_it_asks_for_several(text: str) -> None:
    """A question for several things is recognised, in any case."""
    assert read_question(text).several
    assert read_question(text.upper()).several


@pytest.mark.parametrize("text", ONE)
def test_it_asks_for_one(text: str) -> None:
    """A question for one thing, or for a duration, is not taken for one for several."""
    assert not read_question(text).several


async def _told(engine: Engine, sessions: Sequence[Sequence[str]]) -> Thread:
    """A thread with these sessions, three days apart."""
    thread = await engine.create_thread()
    for number, session in enumerate(sessions):
        for minute, text in enumerate(session):
            at = BEGIN + timedelta(days=3 * number, minutes=minute)
            await thread.dispatch(NewEvent(UserMessage(content=text, name="Nadia"), occurred_at=at))
    return thread


async def test_one_evening_does_not_crowd_out_the_others() -> None:
    """Of a matter that one evening was full of, the first finds also hold what other evenings say."""
    things = ("eels", "bells", "hats", "dogs", "tea")
    crowd = [f"To the market we went, and the market had {thing}." for thing in things]
    sessions = [[f"We went to the market in {town} before it rained again, all of us."] for town in EVENINGS]
    sessions[2] += crowd
    async with memory_engine.open(":memory:") as engine:
        thread = await _told(engine, sessions)
        found = await thread.search("Which markets did Nadia go to?", limit=7)
        towns = {town for town in EVENINGS for hit in found if hit.text.startswith(f"We went to the market in {town}")}
        assert set(EVENINGS) - towns <= {EVENINGS[2]}


async def test_scores_and_parts_of_a_spread_order() -> None:
    """The scores of a question for several things still fall from hit to hit, and are the sums of their parts."""
    sessions = [[f"The {thing} of {town} is a market." for thing in ("square", "quay", "hall")] for town in EVENINGS]
    async with memory_engine.open(":memory:") as engine:
        thread = await _told(engine, sessions)
        found = await thread.search("Which markets are there?", limit=15, explain=True)
        scores = [hit.score for hit in found]
        assert sorted(scores, reverse=True) == scores
        assert all(abs(sum(hit.parts.values()) - hit.score) < 1e-4 for hit in found)
        assert any(hit.parts["spread"] < 0 for hit in found)


async def test_what_adds_nothing_comes_after_what_does() -> None:
    """A statement whose words a better one holds comes behind statements that name something else."""
    said = [["We rented a boat on the lake near Bergen, a red one."]]
    said += [["We rented a boat on the lake."], ["A boat, rented on the lake."], ["On the lake we rented a boat."]]
    said += [["The boat that we rented, that red one, on the lake."], ["A red one, the boat on the lake, rented."]]
    said += [["In Split we rented the old canoe of the harbour master, and we paddled until it was dark."]]
    async with memory_engine.open(":memory:") as engine:
        thread = await _told(engine, said)
        found = await thread.search("Which boats did we rent on the lake?", limit=5)
        assert any("Split" in hit.text for hit in found)


async def test_a_question_for_one_thing_is_not_spread() -> None:
    """The order of a question for one thing is by score alone."""
    sessions = [[f"The {thing} of {town} is a market." for thing in ("square", "quay", "hall")] for town in EVENINGS]
    async with memory_engine.open(":memory:") as engine:
        thread = await _told(engine, sessions)
        found = await thread.search("Which market is at the quay of Graz?", explain=True)
        assert found[0].text == "The quay of Graz is a market."
        assert not any("spread" in hit.parts for hit in found)


async def test_long_answers_leave_room_for_the_others() -> None:
    """A context for a question for several things holds something of each, even if each is a long text."""
    sessions = [
        [f"We went to the market in {town}. " + " ".join(f"Number {n}{k} told a story{n * k}." for n in range(30))]
        for k, town in enumerate(EVENINGS)
    ]
    async with memory_engine.open(":memory:") as engine:
        thread = await _told(engine, [*sessions, ["Good night."]])
        context = await thread.context(max_tokens=900, query="Which markets did Nadia go to?")
        shown = "\n".join(hit.text for hit in context.recalled)
        assert all(f"market in {town}" in shown for town in EVENINGS[:4])
