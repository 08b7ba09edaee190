"""Replies: a passage without a word of the question is found by the question that it answers."""

from collections.abc import Sequence

import pytest

import memory_engine
from memory_engine import Engine, LlmTextResponse, Thread, UserMessage
from memory_engine.recall import Candidate, Ranked

FILLER = [f"Then I went on with chapter {n} and the {thing} of it." for n in range(6) for thing in ("end", "tone")]
MENTIONS = [
    "The pets of my aunt keep everybody busy, pets need a lot of care.",
    "A shop for pets opened around the corner.",
    "I read about pets and how long they live.",
    "She said pets are not allowed in the flats over there.",
    "All those photos of pets on my phone again.",
    "There was a film about pets on the train.",
]
REPLY = "Two, a cat and an old beagle, both rather lazy."


async def _talk(engine: Engine, turns: Sequence[str]) -> Thread:
    """A thread in which Ada and Ben take turns."""
    thread = await engine.create_thread()
    for number, text in enumerate(turns):
        await thread.dispatch(UserMessage(content=text, name=("Ada", "Ben")[number % 2]))
    return thread


def _turns(asked: str) -> list[str]:
    """Many turns, among them one and its reply, and later mentions of the same."""
    turns = [*FILLER[:6], asked, REPLY]
    for one in MENTIONS:
        turns += [FILLER[len(turns) % len(FILLER)], FILLER[(len(turns) + 5) % len(FILLER)], one, "Oh well."]
    return turns


async def _place(asked: str) -> tuple[int, float]:
    """At which place the reply is found, and what its being one adds to its score."""
    async with memory_engine.open(":memory:") as engine:
        thread = await _talk(engine, _turns(asked))
        found = await thread.search("Which pets does Ben have?", limit=20, explain=True)
        texts = [hit.text for hit in found]
        place = texts.index(REPLY)
        return place, found[place].parts.get("reply", 0.0)


@pytest.mark.parametrize(
    "asked", ["And you, do you have any pets?", "Nice day. Any pets at your place? I forgot.", "pets\uff1f"]
)
async def test_a_reply_is_found_by_its_question(asked: str) -> None:
    """What follows a question that asks the same is raised, wherever in its text the question is."""
    _, added = await _place(asked)
    assert added > 0


@pytest.mark.parametrize("said", ["I do not want any pets.", "I have seen many pets. How was your exam?"])
async def test_what_follows_a_statement_is_no_reply(said: str) -> None:
    """What follows a statement, or a question for something else, is ranked by its words and those around it alone."""
    _, added = await _place(said)
    assert added == 0


async def test_a_question_ranks_its_reply_higher_than_a_statement() -> None:
    """The same reply comes earlier behind a question than behind a statement of the same words."""
    asked, _ = await _place("And you, do you keep any pets?")
    said, _ = await _place("And you, do you keep any pets.")
    assert asked < said


async def test_a_speaker_does_not_reply_to_herself() -> None:
    """What the same speaker goes on to say after a question of hers is no reply to it."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        for text in [*FILLER[:6], "Do we have any pets?", REPLY, *MENTIONS]:
            await thread.dispatch(UserMessage(content=text, name="Ada"))
        found = await thread.search("Which pets are there?", limit=20, explain=True)
        assert not any("reply" in hit.parts for hit in found)


async def test_an_assistant_is_asked_and_replies() -> None:
    """The roles of a chat take turns as named speakers do, and scores still fall from hit to hit."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        for text in FILLER[:6]:
            await thread.dispatch(UserMessage(content=text))
        await thread.dispatch(LlmTextResponse(content="Which pets do you own?"))
        await thread.dispatch(UserMessage(content=REPLY))
        for text in MENTIONS:
            await thread.dispatch(LlmTextResponse(content=text))
        found = await thread.search("Which pets do I own?", limit=20, explain=True)
        assert any(hit.text == REPLY and hit.parts["reply"] > 0 for hit in found)
        assert sorted((hit.score for hit in found), reverse=True) == [hit.score for hit in found]
        assert all(abs(sum(hit.parts.values()) - hit.score) < 1e-4 for hit in found)


async def test_a_ranker_of_your_own_keeps_its_order() -> None:
    """Only the built-in ranking looks for replies."""

    def by_place(question: object, candidates: Sequence[Candidate], statistics: object, limit: int) -> list[Ranked]:
        assert question
        assert statistics
        places = sorted(one.place for one in candidates)
        return [Ranked(place=place, score=0.5, parts={}) for place in places[:limit]]

    async with memory_engine.open(":memory:", ranker=by_place) as engine:
        thread = await _talk(engine, _turns("And you, do you have any pets?"))
        found = await thread.search("Which pets does Ben have?", limit=20)
        assert [hit.seq for hit in found] == sorted(hit.seq for hit in found)


async def test_a_forgotten_question_has_no_reply() -> None:
    """A question that was forgotten raises nothing."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        for text in FILLER[:3]:
            await thread.dispatch(UserMessage(content=text, name="Ada"))
        question = await thread.dispatch(UserMessage(content="Do you have any pets?", name="Ada"))
        await thread.dispatch(UserMessage(content=REPLY, name="Ben"))
        for text in MENTIONS:
            await thread.dispatch(UserMessage(content=text, name="Ada"))
        await thread.forget(event_ids=[question.event_id])
        found = await thread.search("Which pets does Ben have?", limit=20, explain=True)
        assert not any("reply" in hit.parts for hit in found)
