"""How a context with recall divides its budget, and that its beginning stays whatever is asked."""

import random
from itertools import combinations, pairwise

import pytest

import memory_engine
from memory_engine import (
    ContextPolicy,
    LlmTextResponse,
    SessionStarted,
)
from memory_engine.context import Room, Split
from memory_engine.language.text import terms
from tests.conversations import turns
from tests.recall.recalled import ASKED, CODE, COMPACTS, KEPT, asked, block_at, content, talk, user

# Budgets and policies.


async def test_without_a_question_nothing_changes() -> None:
    """A policy divides for recall only; the context without a query is what it was."""
    async with memory_engine.open(":memory:", config=COMPACTS) as engine:
        thread = await engine.create_thread()
        for event in talk(20):
            await thread.dispatch(event)
            await thread.compaction.settle()
        plain = await thread.context(600)
        await thread.context(600, query=ASKED)
        assert plain == await thread.context(600, policy=ContextPolicy(summary=0, recent=0))
    assert ((), "", 0) == (plain.recalled, plain.recalled_text, plain.spent.recalled)


async def test_everything_that_fits_is_in() -> None:
    """A conversation that no summary stands for and that fits is shown whole, whatever the shares."""
    context = await asked([*talk(12), user("bye")], max_tokens=2_000)
    assert ((), 14) == (context.excluded, len(context.messages))


async def test_most_of_the_room_goes_to_what_is_recalled() -> None:
    """By default recent turns and summaries take a small part each, and what they leave over is recalled."""
    said = [user(f"The warehouse code of hall {n} is {n:04}-KX, and that is all I know.") for n in range(60)]
    spent = (await asked([*said, *turns(20), user("Which?")], max_tokens=1_000)).spent
    assert spent.recalled > 800
    assert 0 < spent.recent < 150
    assert 1_000 >= spent.pinned + spent.summary + spent.recent + spent.recalled


async def test_a_compaction_takes_little_from_what_is_recalled() -> None:
    """Of a small budget a summary, which the question does not choose, takes a sixteenth."""
    said = [user(f"The warehouse code of hall {n} is {n:04}-KX, and that is all I know.") for n in range(60)]
    events = [*said, user("Which code is it?")]
    whole = (await asked(events, max_tokens=1_000)).spent
    compacted = (await asked(events, max_tokens=1_000, config=COMPACTS)).spent
    assert (0, True) == (whole.summary, 0 < compacted.summary <= 60)
    assert compacted.recalled > whole.recalled - 90


async def test_of_a_summary_that_does_not_fit_whole_statements_are_shown() -> None:
    """The newest that fit, each as it is, and not the beginning and the end of one: half of it says something else."""
    long = "unless the depot at Leeds, which answers to nobody but itself, has said by noon that it will not do so"
    said = [
        user(f"Order {n} must not leave before Friday, {long if n % 2 else 'whatever they say'}.") for n in range(40)
    ]
    async with memory_engine.open(":memory:", config=COMPACTS) as engine:
        thread = await engine.create_thread()
        for event in said:
            await thread.dispatch(event)
            await thread.compaction.settle()
        statements = {line.text for chunk in (await thread.state()).chunks() for line in chunk.lines}
        for budget in range(150, 1_600, 50):
            context = await thread.context(budget, query="Who brings the cake?")
            shown = [content(m).split("\n")[1:] for m in context.messages if content(m).startswith("[Summary")]
            lines = [line for summary in shown for line in summary]
            told = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
            assert statements.issuperset(told)
            assert len(told) == sum(not line.startswith(("#", "[…")) for line in lines if line)
            assert all(below.startswith("- ") for above, below in pairwise(lines) if above[:1] == "#" and below)


async def test_of_a_large_room_recent_turns_take_most() -> None:
    """More than `recalled_max` tokens are never recalled; recent turns get the rest."""
    said = [user(f"The warehouse code of hall {n} is {n:04}-KX, and that is all I know.") for n in range(300)]
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([*said, *turns(40)])
        context = await thread.context(6_000, query=ASKED, policy=ContextPolicy(recalled_max=1_000))
    assert 900 < context.spent.recalled <= 1_000
    assert 3_300 < context.spent.recent


async def test_a_newest_turn_is_whole_wherever_it_fits() -> None:
    """What is recalled takes what it leaves over."""
    newest = "Please read this: " + "x" * 1_600
    context = await asked([*talk(20), user(newest)], max_tokens=2_680)
    assert newest == content(context.messages[-1])
    assert (True, ()) == (0 < context.spent.recalled < 160, context.shortened)


async def test_what_was_said_right_before_is_there() -> None:
    """The agent's last answer is in, if it takes no more than a quarter: "and the other one?" needs it."""
    said = [*talk(20), LlmTextResponse(content="Either. " * 30), user("And the other one?")]
    context = await asked(said, max_tokens=500)
    kept = await asked([*said[:-2], LlmTextResponse(content="Either. " * 90), said[-1]], max_tokens=500)
    assert ["22.0", "23.0"] == [*context.included]
    assert ["23.0"] == [*kept.included]


async def test_of_a_newest_turn_that_does_not_fit_something_is_spared() -> None:
    """It is cut anyway; a quarter of the room is kept for what is recalled."""
    context = await asked([*talk(20), user("x" * 40_000)], max_tokens=600)
    assert ("22.0",) == context.shortened
    assert 0 < context.spent.recalled <= 150
    assert CODE in context.recalled_text


async def test_what_a_question_leaves_over_is_filled_with_earlier_turns() -> None:
    """A question that matches nothing leaves no hole: the turns before the newest are in the block."""
    context = await asked(turns(20), "zzz", 900)
    assert context.recalled
    assert {"said lately"} == {hit.why for hit in context.recalled}
    first_shown = min(int(chunk_id.partition(".")[0]) for chunk_id in context.included)
    assert [*range(first_shown - len(context.recalled), first_shown)] == [hit.seq for hit in context.recalled]


async def test_it_is_filled_with_what_was_compacted_too() -> None:
    """The originals that a summary stands for are no less at hand than turns that had no room."""
    context = await asked(turns(24), "zzz", 1_200, COMPACTS)
    included = {int(chunk_id.partition(".")[0]) for chunk_id in context.included}
    assert context.recalled
    assert {"said lately"} == {hit.why for hit in context.recalled}
    assert not included & {hit.seq for hit in context.recalled}
    assert context.spent.recalled > 700


async def test_without_a_budget_all_of_the_state_is_in() -> None:
    """Beside it stands what was compacted and the summaries do not quote, up to what the policy allows."""
    context = await asked(talk(20), max_tokens=None, config=COMPACTS)
    assert () == context.excluded
    assert CODE in str(context.messages)
    assert 0 < context.spent.recalled <= 4_000


async def test_a_policy_of_ones_own() -> None:
    """A function divides the room; it is told what there is, and not what was asked."""
    rooms: list[Room] = []

    def no_recall(room: Room) -> Split:
        rooms.append(room)
        return Split(summary=0, recent=room.flowing, recalled=0)

    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([*talk(20), user("So?")])
        context = await thread.context(600, query=ASKED, policy=no_recall)
        assert 0 == context.spent.recalled
        assert 3 * context.spent.recent > 600
        with pytest.raises(ValueError, match="from 0 on"):
            await thread.context(600, query=ASKED, policy=lambda _room: Split(summary=0, recent=-1, recalled=9))
    assert [(597, True)] == [(room.flowing, room.newest < room.recent) for room in rooms]


@pytest.mark.parametrize("wrong", [{"summary": 1.1}, {"recent": -0.1}, {"previous": 2.0}, {"recalled_max": -1}])
def test_shares_are_checked(wrong: dict[str, float]) -> None:
    """A share is from 0 to 1, a number of tokens is not negative."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ContextPolicy(**wrong)  # type: ignore[arg-type]


# The prompt cache.


async def test_the_question_changes_nothing_before_the_block() -> None:
    """Two questions, the same prefix: what is recalled stands behind all that stays."""
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([SessionStarted(content="Be kind."), *talk(30), user("So?")])
        found = [await thread.context(1_400, query=query) for query in (ASKED, "word7", "zzz", "")]
    ats = [block_at(context.messages) for context in found]
    assert 1 == len({str(context.messages[:at]) for context, at in zip(found, ats, strict=True)})
    assert 1 == len({str(context.messages[at + 1 :]) for context, at in zip(found, ats, strict=True)})
    assert ats[0] > 1


async def test_the_prefix_stays_from_turn_to_turn() -> None:
    """With a new question at every turn the beginning moves once in a while, not at every turn."""
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        moved, before = 0, ""
        for n in range(60):
            await thread.dispatch_all([user(f"message {n:06} " + "x" * 40), LlmTextResponse(content=f"answer {n:06}")])
            context = await thread.context(1_500, query=f"What was message {n // 2:06}?")
            stable = context.messages[: block_at(context.messages)] if context.recalled else context.messages[:1]
            moved += bool(before) and content(stable[0]) != before
            before = content(stable[0])
    assert 1 <= moved <= 15


async def test_what_is_no_policy_is_refused() -> None:
    """By what it is, before anything is built; so is a share that is none, and tokens that cannot be kept free."""
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        with pytest.raises(TypeError, match="a function that divides a room, not 'lots'"):
            await thread.context(600, policy="lots")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="reserve is a number of tokens, not -5"):
            await thread.context(600, reserve=-5)
    with pytest.raises(ValueError, match="the block 'preferences' takes a share"):
        ContextPolicy(blocks={"preferences": 7})
    with pytest.raises(TypeError, match="blocks is a list of names"):
        ContextPolicy(blocks="preferences")


def varied(chance: random.Random, number: int) -> str:
    """A sentence of many words of which a few are others each time; some of them say a number."""
    words = [f"{sign}ord" for sign in "abcdefghijklmnoprstu"]
    for _ in range(chance.randint(0, 4)):
        words[chance.randrange(len(words))] = f"{chance.choice('vwxyz')}ther"
    return " ".join([*words, *([str(number)] if chance.random() < 0.1 else [])])


def near(one: str, other: str) -> bool:
    """Whether texts share nine tenths of their terms, and the numbers."""
    said, also = frozenset(terms(one)), frozenset(terms(other))
    shares = len(said & also) >= 0.9 * len(said | also)
    return shares and not any(sign.isdigit() for term in said ^ also for sign in term)


@pytest.mark.parametrize("seed", range(6))
async def test_of_many_near_duplicates_a_block_has_one(seed: int) -> None:
    """No two passages of a speaker are alike, however many there are and in whatever words they differ."""
    chance = random.Random(seed)
    said = [user(varied(chance, number), chance.choice(("Ann", "Bo"))) for number in range(120)]
    context = await asked([*said, *turns(30)], "aord bord cord", 1_500)
    pairs = list(combinations([hit for hit in context.recalled if hit.speaker], 2))
    assert len(pairs) > 40
    assert [] == [(a.text, b.text) for a, b in pairs if a.speaker == b.speaker and near(a.text, b.text)]
