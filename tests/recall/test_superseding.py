"""What is true now stands first: through searches and contexts, over time, forks, forgetting and other threads."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

import memory_engine
from memory_engine import (
    ContextPolicy,
    Engine,
    EngineConfig,
    LlmTextResponse,
    LlmToolCall,
    MemoryForget,
    NewEvent,
    Thread,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine.errors import InvalidSearch
from memory_engine.recall import Hit
from tests.conversations import NEVER, SMALL, turns

OLDER = "I live in Leeds, right behind the station."
NEWER = "All the boxes are unpacked, I moved into the new flat in Utrecht."
ASKED = "Where do I live?"
BEGUN = datetime(2026, 5, 3, 12, tzinfo=UTC)


async def told(engine: Engine, *texts: str, thread_id: str = "talk") -> Thread:
    """A thread in which a person says these things, one a day, each answered."""
    thread = await engine.create_thread(thread_id, user_id="u1", tenant_id="acme")
    for day, text in enumerate(texts):
        await thread.dispatch(NewEvent(UserMessage(content=text), occurred_at=BEGUN + timedelta(days=day)))
        await thread.dispatch(
            NewEvent(LlmTextResponse(content="Noted, thank you."), occurred_at=BEGUN + timedelta(days=day))
        )
    return thread


def texts(found: Sequence[Hit]) -> list[str]:
    """The texts of what people said, in order."""
    return [hit.text for hit in found if hit.role == "user"]


async def test_the_newer_statement_stands_first(engine: Engine) -> None:
    """The older one answers better by its words, and comes behind it. Nothing says that it is outdated."""
    thread = await told(engine, OLDER, "I like the trains there.", NEWER)
    newer, older = (await thread.search(ASKED))[:2]
    assert (NEWER, OLDER) == (newer.text, older.text)
    assert older.rendered() == f"[3 May 2026] user: {OLDER}"


async def test_a_hit_says_what_lifted_it(engine: Engine) -> None:
    """The lift is a signal among the others: the parts still sum up to the score, and scores still fall."""
    thread = await told(engine, OLDER, NEWER)
    found = await thread.search(ASKED, explain=True)
    assert found[0].why.startswith("current ")
    assert found[0].score == pytest.approx(sum(found[0].parts.values()), abs=1e-4)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


async def test_the_newest_of_several_stands_before_all_before_it(engine: Engine) -> None:
    """It is what is true now."""
    last = "We've relocated again: I live in Ghent now."
    thread = await told(engine, OLDER, NEWER, last)
    found = await thread.search(ASKED)
    assert last == found[0].text
    assert {OLDER, NEWER} == {*texts(found[1:])}


@pytest.mark.parametrize("question", ["Where did I live before?", "Where did I live at first?"])
async def test_a_question_about_then_is_not_turned_round(engine: Engine, question: str) -> None:
    """The older statement is what is asked for."""
    thread = await told(engine, OLDER, NEWER)
    found = [hit for hit in await thread.search(question) if hit.text in {OLDER, NEWER}]
    assert OLDER == found[0].text


async def test_a_limit_of_one_gives_what_is_true_now(engine: Engine) -> None:
    """The newer statement comes in although it ranks below the limit."""
    thread = await told(engine, OLDER, "The station is loud.", NEWER)
    assert [NEWER] == [hit.text for hit in await thread.search(ASKED, limit=1)]


async def test_as_of_a_moment_nothing_later_counts(engine: Engine) -> None:
    """What was newest then stands first; a seq says the same as a moment."""
    thread = await told(engine, OLDER, NEWER)
    for then in (BEGUN + timedelta(hours=1), 2):
        found = await thread.search(ASKED, as_of=then)
        assert [OLDER] == texts(found)
    assert NEWER == (await thread.search(ASKED, as_of=BEGUN + timedelta(days=1)))[0].text
    assert NEWER == (await engine.search(ASKED, thread_ids=[thread.id], as_of=BEGUN + timedelta(days=9)))[0].text
    assert [OLDER] == texts(await engine.search(ASKED, thread_ids=[thread.id], as_of=BEGUN))


async def test_as_of_takes_the_words_of_its_day(engine: Engine) -> None:
    """What "yesterday" means depends on the day on which the question is asked."""
    thread = await told(engine, "The plumber came.", "The painter came.", "The gardener came.")
    found = await thread.search("Who came yesterday?", as_of=BEGUN + timedelta(days=2))
    assert "The painter came." == texts(found)[0]


@pytest.mark.parametrize("wrong", [{"as_of": datetime(2026, 5, 3)}, {"as_of": BEGUN, "at": 1}, {"as_of": "May"}])  # noqa: DTZ001
async def test_an_as_of_that_means_nothing_is_refused(engine: Engine, wrong: dict[str, object]) -> None:
    """A moment has a time zone, and stands alone."""
    thread = await told(engine, OLDER)
    with pytest.raises(InvalidSearch) as refused:
        await thread.search(ASKED, **wrong)  # type: ignore[arg-type]
    assert "as_of" in str(refused.value)


async def test_a_past_thread_knows_nothing_of_what_came_later(engine: Engine) -> None:
    """Before the newer statement the older one is simply true."""
    thread = await told(engine, OLDER, NEWER)
    found = await (await thread.at(2)).search(ASKED)
    assert [OLDER] == texts(found)


async def test_forgetting_the_newer_brings_the_older_back(engine: Engine) -> None:
    """With its successor gone, it stands first."""
    thread = await told(engine, OLDER, NEWER)
    await thread.search(ASKED)
    await thread.dispatch(MemoryForget(seqs=(3,)))
    found = await thread.search(ASKED)
    assert OLDER == found[0].text


async def test_a_fork_from_between_keeps_the_older_value(engine: Engine) -> None:
    """What is true is true of a log; what a fork goes on to say supersedes there only."""
    thread = await told(engine, OLDER, NEWER)
    fork = await (await thread.at(2)).fork()
    assert OLDER == (await fork.search(ASKED))[0].text
    await fork.dispatch(UserMessage(content="I moved to Bergen, the flat is small."))
    assert "I moved to Bergen, the flat is small." == (await fork.search(ASKED))[0].text
    assert NEWER == (await thread.search(ASKED))[0].text


async def test_a_context_recalls_what_is_true_now() -> None:
    """With room for both they stand in the order in which they were said; with room for one the newer is in."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await told(engine, OLDER, "I like the trains there.", NEWER)
        for event in turns(60):
            await thread.dispatch(event)
        block = (await thread.context(max_tokens=600, query=ASKED, policy=ContextPolicy(blocks=()))).recalled_text
        assert f"[3 May 2026]\n- user: {OLDER}" in block
        assert block.index(OLDER) < block.index(NEWER)


async def test_a_compaction_between_the_two_changes_nothing() -> None:
    """The originals are searched, whatever the state shows of them."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=SMALL)) as engine:
        thread = await told(engine, OLDER)
        for event in turns(30):
            await thread.dispatch(event)
            await thread.compaction.settle()
        await thread.dispatch(UserMessage(content=NEWER))
        newer, older = [hit for hit in await thread.search(ASKED) if hit.text in {OLDER, NEWER}]
        assert (NEWER, OLDER) == (newer.text, older.text)


async def test_what_a_user_said_in_another_conversation_counts(engine: Engine) -> None:
    """The newer statement stands first, whatever thread it is in."""
    first = await told(engine, OLDER, thread_id="first")
    second = await engine.create_thread("second", user_id="u1", tenant_id="acme")
    await second.dispatch(NewEvent(UserMessage(content=NEWER), occurred_at=BEGUN + timedelta(days=30)))
    newer, older = (await engine.search(ASKED, user_id="u1", tenant_id="acme"))[:2]
    assert (NEWER, "second") == (newer.text, newer.thread_id)
    assert (OLDER, first.id) == (older.text, older.thread_id)
    context = await first.context(max_tokens=600, query=ASKED, recall_from=[second])
    assert NEWER in context.recalled_text


async def test_people_of_one_chat_speak_of_themselves(engine: Engine) -> None:
    """Who is asked about by name says "I"; what others say of themselves does not touch it."""
    thread = await engine.create_thread()
    for name, text in (
        ("Ann", "I live in Leeds."),
        ("Bo", "I live in Graz."),
        ("Ann", "I finally moved, my flat in Utrecht is tiny."),
    ):
        await thread.dispatch(UserMessage(content=text, name=name))
    of_ann = await thread.search("Where does Ann live?")
    assert "I finally moved, my flat in Utrecht is tiny." == of_ann[0].text
    assert "I live in Graz." == (await thread.search("Where does Bo live?"))[0].text


async def test_the_later_of_two_answers_in_the_same_words_stands_first(engine: Engine) -> None:
    """Both answer equally well, and no word tells of a change: what was said last is true now."""
    older, newer = "The spare key is under the blue flowerpot.", "I put the spare key in the letterbox of number 9."
    thread = await told(engine, older, "The flowerpot is blue.", newer, "The letterbox squeaks.")
    assert [newer, older] == texts(await thread.search("Where is the spare key?"))[:2]
    assert older == (await thread.search("Where was the spare key before?"))[0].text


async def test_another_ones_is_not_mine(engine: Engine) -> None:
    """What is said of Klara's train does not move mine."""
    mine, hers = "My train to Bonn is at 8:20.", "Klara's train to Bonn was moved to 9:50."
    thread = await told(engine, mine, hers)
    assert not any(hit.why.startswith("current") for hit in await thread.search("When is my train to Bonn?"))


async def test_the_last_reading_of_a_tool_stands_first(engine: Engine) -> None:
    """A tool is asked the same twice: the later result is what holds. Another tool's results say nothing of it."""
    thread = await engine.create_thread("readings")
    read = [
        ("gauge", "queue length of worker amber-3: 412 jobs"),
        ("gauge", "queue length of worker amber-3: 7 jobs"),
        ("forecast", "queue length of worker amber-3: 950 jobs"),
    ]
    await thread.dispatch(UserMessage(content="What is the queue length of worker amber-3?"))
    for number, (name, content) in enumerate(read):
        call = ToolCall(id=f"c{number}", name=name, arguments="{}")
        await thread.dispatch_all([LlmToolCall(calls=(call,)), ToolResult(call_id=call.id, name=name, content=content)])
    found = await thread.search("What is the queue length of worker amber-3?")
    order = [hit.text for hit in found if hit.role == "tool"]
    assert order.index(read[1][1]) < order.index(read[0][1])
    assert [read[1][1]] == [hit.text for hit in found if hit.why.startswith("current")]
