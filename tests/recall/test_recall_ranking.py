"""In which order a search finds: what a question says, and the ranking of passages."""

import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from memory_engine.language.dates import Day
from memory_engine.language.text import terms
from memory_engine.recall.question import TERMS_MAX, Question, read_question
from memory_engine.recall.ranking import Candidate, Ranked, Statistics, Weights, doubt, rank, signals
from memory_engine.store.passages import PLACES_BITS

NOW_US = 1_718_200_000_000_000  # a Wednesday: 2024-06-12, 13:46 UTC
WORDS = "harbour lantern violin copper meadow thunder saffron glacier pebble orchard falcon velvet".split()


def at_us(year: int, month: int, day: int) -> int:
    """Noon of a day."""
    return int(datetime(year, month, day, 12, tzinfo=UTC).timestamp()) * 1_000_000


def said(*turns: tuple[str, str], role: str = "", group: int = 0) -> list[Candidate]:
    """A conversation of (speaker, text), in order, a minute between turns; a speaker who is a role has it."""
    passages: list[Candidate] = []
    for place, (speaker, text) in enumerate(turns, 1):
        passages.append(
            Candidate(
                place=place,
                kind="message",
                role=speaker if speaker in {"user", "assistant", "tool"} else role,
                speaker=speaker,
                at_us=at_us(2024, 5, 1) + place * 60_000_000,
                group=group,
                terms=tuple(terms(text)),
                before=passages[-1] if passages else None,
            )
        )
    return passages


def statistics(passages: Sequence[Candidate]) -> Statistics:
    """What these passages alone would be counted as."""
    return Statistics(
        passages=len(passages),
        average_terms=sum(len(passage.terms) for passage in passages) / len(passages),
        holding=Counter(term for passage in passages for term in set(passage.terms)),
    )


def found(question: str, passages: Sequence[Candidate], limit: int = 10) -> list[Ranked]:
    """The passages ranked for a question."""
    return rank(read_question(question, now_us=NOW_US), passages, statistics(passages), limit)


def first(question: str, passages: Sequence[Candidate]) -> int:
    """The place of the best passage."""
    return found(question, passages, 1)[0].place


# questions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What did we do on 2024-03-05?", [Day(2024, 3, 5)]),
        ("What happened on 5 March 2024?", [Day(2024, 3, 5)]),
        ("What happened on March 5th, 2024?", [Day(2024, 3, 5)]),
        ("Where was I in March?", [Day(month=3)]),
        ("Who came in Sept 2023?", [Day(2023, 9)]),
        ("What changed in 2023?", [Day(2023)]),
        ("What may I eat?", []),
        ("What did I eat in May?", [Day(month=5)]),
        ("Who called on Monday?", [Day(weekday=1)]),
        ("What is on 31 February?", [Day(month=2, day=31)]),
        ("What happened on 2024-99-99?", [Day(2024)]),
    ],
)
def test_a_question_names_days(text: str, expected: list[Day]) -> None:
    """Each date is read once, as fully as it is written."""
    assert expected == list(read_question(text).days)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("What did I do yesterday?", at_us(2024, 6, 11), at_us(2024, 6, 12)),
        ("What did I say today?", at_us(2024, 6, 12), at_us(2024, 6, 13)),
        ("Whom did I meet last week?", at_us(2024, 6, 3), at_us(2024, 6, 10)),
        ("Whom did I meet last month?", at_us(2024, 5, 1), at_us(2024, 6, 1)),
        ("What did I learn this year?", at_us(2024, 1, 1), at_us(2024, 6, 13)),
        ("What was ten days ago?", at_us(2024, 6, 2), at_us(2024, 6, 3)),
        ("What was 2 weeks ago?", at_us(2024, 5, 26), at_us(2024, 6, 2)),
    ],
)
def test_relative_times_are_resolved_against_now(text: str, start: int, end: int) -> None:
    """From midnight to midnight (UTC), as wide as the words are vague; without a now they are left alone."""
    half_a_day = 43_200_000_000
    assert ((start - half_a_day, end - half_a_day),) == read_question(text, now_us=NOW_US).spans
    assert () == read_question(text).spans


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("When did Anna move?", "time"),
        ("Which year was it?", "time"),
        ("How many chairs are there?", "number"),
        ("What did Anna buy?", ""),
    ],
)
def test_a_question_asks_for_a_kind_of_thing(text: str, expected: str) -> None:
    """A time, a number, or neither."""
    assert expected == read_question(text).asks_for


@pytest.mark.parametrize(
    ("text", "of_you", "to_you"),
    [
        ("What did you suggest for the roof?", True, False),
        ("Which of the two had you recommended?", True, False),
        ("What did the agent say about refunds?", True, False),
        ("What was your advice?", False, True),
        ("What would you cook for me?", False, True),
        ("Can you tell me where I live?", False, False),
        ("Do you remember my shoe size?", False, False),
    ],
)
def test_a_question_may_be_about_what_the_assistant_said(text: str, of_you: bool, to_you: bool) -> None:
    """Surely, perhaps, or not at all."""
    question = read_question(text)
    assert (of_you, to_you) == (question.of_you, question.to_you)


def test_a_question_has_distinct_terms_and_names() -> None:
    """At most 32 terms, in its order; a capital inside a sentence makes a name."""
    assert ("anna", "ben", "meet") == read_question("Did Anna and Ben meet, Anna?").terms
    assert {"anna", "ben"} == read_question("Did Anna and Ben meet, Anna?").names
    assert TERMS_MAX == len(read_question(" ".join(f"term{n}" for n in range(99))).terms)


@pytest.mark.parametrize(
    ("day", "told", "expected"),
    [
        (Day(2024, 3, 5), at_us(2024, 3, 5), 1.0),
        (Day(2024, 3, 5), at_us(2024, 3, 9), 0.7),
        (Day(2024, 3, 5), at_us(2024, 9, 5), 0.0),
        (Day(month=12, day=30), at_us(2025, 1, 2), 0.7),
        (Day(month=2, day=31), at_us(2025, 2, 1), 0.0),
        (Day(month=3), at_us(2024, 3, 20), 1.0),
        (Day(month=3), at_us(2024, 4, 2), 0.5),
        (Day(2023, 3), at_us(2024, 3, 20), 0.0),
        (Day(2024), at_us(2024, 3, 20), 0.5),
        (Day(weekday=3), NOW_US, 0.5),
        (Day(2024), 10**30, 0.0),
    ],
)
def test_what_happened_on_a_day_is_told_then_or_soon_after(day: Day, told: int, expected: float) -> None:
    """The nearer after it, the better; half-known dates fit less sharply."""
    assert expected == Question("", (), days=(day,)).nearness(told)


# ranking


def test_an_answer_is_found_by_what_it_answers() -> None:
    """The turn before holds the question's words; the answer itself does not. It comes right behind that turn."""
    talk = said(
        ("Anna", "Lovely weather for a walk, isn't it"),
        ("Ben", "What colour did you paint the old boat shed?"),
        ("Anna", "Bright orange with two white stripes along the top"),
        ("Ben", "My bicycle has a flat tyre again"),
    )
    assert [2, 3] == [hit.place for hit in found("What colour did Anna paint the boat shed?", talk, 2)]


def test_who_is_asked_about_speaks() -> None:
    """Of two who say the same kind of thing, the one who is named comes first."""
    talk = said(("Anna", "I grow tomatoes in the garden"), ("Ben", "I grow cabbages in the garden"))
    assert 1 == first("What does Anna grow in the garden?", talk)
    assert 2 == first("What does Ben grow in the garden?", talk)


def test_a_tool_is_asked_about_by_its_whole_name() -> None:
    """A question in words that happen to be in a tool's name does not ask for all that the tool ever gave."""
    talk = [
        *said(("Anna", "Is the red valve in stock in Rome?")),
        *(
            replace(one, kind="tool", role="tool", place=2 + n)
            for n, one in enumerate(said(("check_stock", "blue hose 4"), ("check_stock", "green pipe 7")))
        ),
    ]
    assert 1 == first("Please check whether the red valve is in stock", [*talk])
    assert "speaker" not in found("Is it in stock?", talk)[0].parts
    assert "speaker" in found("What did check_stock say of the hose?", talk)[0].parts


def test_a_user_is_heard_before_the_assistant_unless_the_assistant_is_asked_about() -> None:
    """What a person said about themselves is what is looked for, and advice when advice is asked for."""
    talk = said(
        ("user", "My budget for the kitchen is small, the oven matters most"),
        ("assistant", "For a small kitchen budget, the oven matters most, buy used cabinets"),
    )
    assert 1 == first("What matters most in my kitchen budget?", talk)
    assert 2 == first("What did you recommend for my kitchen budget?", talk)
    assert "said" not in found("What would you recommend for my kitchen budget?", talk)[0].parts


@pytest.mark.parametrize(("month", "expected"), [("March", 1), ("July", 2)])
def test_the_month_that_is_named_decides(month: str, expected: int) -> None:
    """The date is no part of the text, but it counts."""
    spring, summer = said(("Anna", "We went sailing on the lake"), ("Anna", "We went sailing on the lake with Tom"))
    talk = [replace(spring, at_us=at_us(2024, 3, 3)), replace(summer, at_us=at_us(2024, 7, 3))]
    assert expected == first(f"Did they go sailing on the lake in {month}?", talk)


def test_last_week_is_a_time() -> None:
    """Relative to now, what was said then comes first."""
    older, newer = said(("Anna", "We went sailing"), ("Anna", "We went sailing"))
    talk = [replace(older, at_us=at_us(2024, 6, 5)), replace(newer, at_us=at_us(2024, 6, 12))]
    assert 1 == first("Who went sailing last week?", talk)


@pytest.mark.parametrize(
    ("question", "expected"), [("When did the parcel arrive?", 2), ("How many parcels did arrive?", 3)]
)
def test_a_time_or_a_number_answers_what_asks_for_one(question: str, expected: int) -> None:
    """Among passages that match alike, one that can hold the answer comes first."""
    talk = said(
        ("Anna", "The parcel did arrive without damage"),
        ("Anna", "The parcel did arrive yesterday without"),
        ("Anna", "The parcel did arrive 14 without"),
    )
    talk = [replace(passage, before=None) for passage in talk]
    assert expected == first(question, talk)


def test_a_session_about_the_matter_lends_weight() -> None:
    """Of equal passages, the one among others that match comes first."""
    sailing = said(("Anna", "The lake and the boat"), ("Anna", "Sailing the boat"), ("Anna", "It was great fun"))
    other = [replace(p, place=p.place + 10) for p in said(("Anna", "Trains"), ("Anna", "It was great fun"), group=1)]
    talk = [replace(passage, before=None) for passage in (*sailing, *other)]
    places = [hit.place for hit in found("Was sailing the boat on the lake great fun?", talk)]
    assert places.index(3) < places.index(12)


def test_likeness_by_a_model_finds_what_is_worded_otherwise() -> None:
    """Vectors bring up what shares no word; a passage without a vector yet is judged by its words."""
    talk = said(("Anna", "The cat is ill"), ("Anna", "Our feline friend caught a cold"), ("Anna", "It rains"))
    like = [replace(p, before=None, cosine=c) for p, c in zip(talk, (None, 0.8, 0.1), strict=True)]
    assert 2 == first("Is the pet unwell", like)
    assert 1 == first("Is the cat ill?", like)


def test_a_session_about_the_matter_is_known_by_meaning_too() -> None:
    """Of equal passages, the one in a session where the model finds something comes first, whatever its words."""
    pets = said(("Anna", "Our feline friend caught a cold"), ("Anna", "We stayed at home"))
    other = [replace(p, place=p.place + 10) for p in said(("Anna", "It rains"), ("Anna", "We stayed at home"), group=1)]
    talk = zip((*pets, *other), (0.8, 0.3, 0.1, 0.3), strict=True)
    like = [replace(passage, before=None, cosine=cosine) for passage, cosine in talk]
    assert [1, 2, 12] == [hit.place for hit in found("Is the pet unwell", like, 3)]


def test_talk_that_is_only_somewhat_alike_does_not_outweigh_words_in_a_session() -> None:
    """Of passages that match equally, the one first whose session holds the question's words, not mere likeness."""
    words = said(("Anna", "We moor the boat in Lisbon"), ("Anna", "The mooring costs nine euros"))
    like = said(("Ben", "A ferry"), ("Ben", "Some rowing"), ("Ben", "The mooring costs two euros"))
    far = said(("Carl", "Yes"), ("Carl", "A harbour"))
    other = [replace(p, place=p.place + 10 * group, group=group) for group, one in ((1, like), (2, far)) for p in one]
    pairs = zip((*words, *other), (0.5, 0.5, 0.8, 0.8, 0.5, 0.0, 1.0), strict=True)
    talk = [replace(passage, before=None, cosine=cosine) for passage, cosine in pairs]
    gained = {hit.place: hit.parts["group"] for hit in found("What does it cost to moor the boat in Lisbon?", talk)}
    assert gained[2] > gained[13]


def test_what_stands_beside_a_match_gains_less_by_their_session_than_the_match() -> None:
    """Its session speaks for it less than for the matches, and for what stands far away not at all."""
    talk = said(("Anna", "The lake and the boat"), ("Anna", "Sailing the boat"), ("Anna", "Fun"), ("Anna", "Trains"))
    alone = [replace(one, before=None, beside={2: 1} if one.place == 3 else {}) for one in talk]
    gained = {hit.place: hit.parts["group"] for hit in found("Sailing the boat on the lake", alone)}
    assert min(gained[1], gained[2]) > gained[3] > gained[4] == 0.0


def test_a_repetition_is_listed_once() -> None:
    """The same text by the same speaker is folded into its best place; short ones and other speakers' are not."""
    text = "The garden gate code is seven four one nine, please keep it secret"
    talk = said(("Anna", text), ("Ben", "Yes"), ("Anna", text.upper() + "!"), ("Ben", text), ("Ben", "Yes"))
    hits = found("What is the garden gate code?", talk)
    assert [(1, 3)] == [tuple(sorted((hit.place, *hit.alike))) for hit in hits if hit.alike]
    assert {2, 4, 5} < {hit.place for hit in hits}


def test_parts_explain_the_score() -> None:
    """They add up to it; a weight of 0 takes a signal out; the newest comes first among equals."""
    talk = said(("Anna", "Red apples"), ("Ben", "Red apples"), ("Carl", "Green pears"))
    for hit in found("Does Anna like red apples?", talk):
        assert hit.score == pytest.approx(sum(hit.parts.values()), abs=1e-5)
    nothing = Weights(**dict.fromkeys(Weights.__struct_fields__, 0.0))
    hits = rank(read_question("apples"), talk, statistics(talk), 10, nothing)
    assert [(3, 0.0), (2, 0.0), (1, 0.0)] == [(hit.place, hit.score) for hit in hits]


@pytest.mark.parametrize("limit", [0, -1])
def test_nothing_asked_or_nothing_there_gives_nothing(limit: int) -> None:
    """No candidates, no limit: no hits; a question without words still gets an order."""
    talk = said(("Anna", "Red apples"), ("Ben", ""))
    assert [] == rank(read_question("apples"), talk, statistics(talk), limit)
    assert [] == rank(read_question("apples"), [], Statistics(0, 0.0, {}), 5)
    assert 2 == len(found("", talk))


passages = st.lists(
    st.tuples(st.sampled_from(["Anna", "Ben", "user", "assistant", ""]), st.lists(st.sampled_from(WORDS), max_size=12)),
    min_size=1,
    max_size=12,
)


@given(passages, st.lists(st.sampled_from([*WORDS, "Anna", "when", "2024"]), max_size=8), st.randoms())
@settings(max_examples=50)
def test_the_order_of_candidates_does_not_matter(
    turns: list[tuple[str, list[str]]], asked: list[str], rng: random.Random
) -> None:
    """The same hits in the same order, best first, with scores from 0 to 1."""
    talk = said(*((speaker, " ".join(words)) for speaker, words in turns))
    if rng.random() < 0.5:
        talk = [replace(passage, cosine=math.cos(passage.place)) for passage in talk]
    hits = found(" ".join(asked), talk)
    rng.shuffle(talk)
    assert hits == found(" ".join(asked), talk)
    assert all(0 <= hit.score <= 1 for hit in hits)
    assert sorted((hit.score for hit in hits), reverse=True) == [hit.score for hit in hits]


@given(st.text(min_size=1, max_size=120))
def test_every_text_finds_itself(text: str) -> None:
    """Asked word for word, in any writing, a text comes before one that shares nothing with it."""
    itself, other = said(("", text), ("", "zzyzx"))
    if itself.terms and "zzyzx" not in itself.terms:
        assert 1 == first(text, [itself, replace(other, before=None)])


def test_an_answer_a_few_turns_after_the_words_is_found() -> None:
    """It stands beside the best match: the nearer, the better; what is far away gains nothing."""
    words, _, answer, other = (
        Candidate(place=n, kind="message", role="", speaker="", at_us=0, group=0, terms=text.split(), beside=beside)
        for n, text, beside in (
            (1, "lantern violin copper", {}),
            (2, "thunder saffron", {1: 1}),
            (3, "glacier pebble", {1: 2}),
            (9, "orchard falcon", {}),
        )
    )
    ranked = found("lantern violin", [words, answer, other])
    assert [1, 3] == [one.place for one in ranked][:2]
    assert ranked[1].parts["nearby"] > ranked[-1].parts["nearby"] == 0.0


def test_a_long_answer_that_repeats_the_words_comes_behind_a_brief_remark() -> None:
    """Where everything holds the question's words, brevity decides, whoever speaks; a tool's data is never too long."""
    long = " ".join(f"garden shed {word}" for word in (*WORDS, *WORDS, *WORDS, *WORDS, *WORDS))
    chat = said(("user", "Trains and boats"), ("assistant", long), ("user", "Garden shed, with a red roof"))
    alone = [replace(one, before=None) for one in chat]
    assert 3 == first("Which garden shed?", alone)
    by_role = [replace(one, role="user" if one.role == "assistant" else "assistant") for one in alone]
    assert 3 == first("Which garden shed?", by_role)
    data = [replace(alone[1], kind="tool", role="tool", speaker="look"), alone[0], alone[2]]
    assert 1.0 == signals(read_question("Which garden shed?"), data, statistics(data))["brief"][0]


def test_no_role_is_ahead_of_another() -> None:
    """What an agent concludes, what its tool returns and what a person says rank by what they hold."""
    text = "The alias is reported because of the rescue block"
    for role in ("user", "assistant"):
        talk = [replace(one, before=None) for one in said(("", text), ("", "Please go on"), role=role)]
        other = [replace(one, place=9, role="tool", kind="tool") for one in said(("", "alias unused"))]
        assert 1 == first("Why is the alias reported: what of the rescue block?", [*talk, *other])


def test_an_identifier_is_worth_more_than_likeness() -> None:
    """The passage that holds it comes first, however like the others are; without one, likeness decides."""
    talk = said(("tool", "order KX-7741 status shipped"), *[("tool", f"order status of parcel {n}") for n in range(30)])
    like = [replace(one, before=None, kind="tool", cosine=0.1 if one.place == 1 else 0.9) for one in talk]
    assert 1 == first("What is the status of order KX-7741?", like)
    assert 1 != first("What is the status of the order?", like)
    assert 0.0 == doubt(read_question("What of KX-7741?"), statistics(like))
    assert 0.0 < doubt(read_question("What is the status of the order?"), statistics(like))


def test_words_around_a_passage_count_less_the_further_away_and_the_longer_they_stand() -> None:
    """A detail is told in one turn, the name of what it is about in another; a long text holds many words."""
    question = read_question("What is the phone number of the Lotus restaurant?")
    far = len(WORDS)

    def around(*turns: tuple[str, int]) -> float:
        passages = [
            Candidate(n << PLACES_BITS, "message", "user", "", 0, 0, tuple(terms(text)), before=None)
            for text, n in (("It is their phone number", 100), *turns)
        ]
        return signals(question, passages, statistics(passages))["around"][0]

    alone = around()
    beside, further, long = around(("Lotus", 99)), around(("Lotus", 97)), around(("Lotus " + "so " * far, 99))
    beyond = around(("Lotus", 90))
    assert beside > further > beyond == pytest.approx(alone, abs=0.2)
    assert beside >= long


def test_calls_without_arguments_and_names_of_one_word_answer_nothing() -> None:
    """To look something up asks for no result of a tool `lookup`; a call of it that says nothing else is no passage."""
    call = Candidate(1, "tool", "assistant", "lookup", 0, 0, ("lookup",))
    result = Candidate(2, "tool", "tool", "lookup", 0, 0, ("price", "forti"))
    other = Candidate(3, "message", "user", "user", 0, 0, ("lookup", "tabl", "price"))
    ranked = found("What price is in the lookup table?", [call, result, other])
    assert [3, 2] == [one.place for one in ranked]
    assert not any("speaker" in one.parts for one in ranked)


def test_who_asks_about_himself_is_preferred_only_where_words_leave_doubt() -> None:
    """A question with "my" asks for what the user said; an identifier asks for whoever has it."""
    chat = said(
        *[("user", f"station news {n}") for n in range(12)], *[("assistant", f"station tips {n}") for n in range(12)]
    )
    chat = [replace(one, before=None, place=n) for n, one in enumerate(chat, 1)]
    best = first("What may not be used for my station?", chat)
    assert "user" == chat[best - 1].role
    order = replace(chat[0], place=99, terms=("qx12345",))
    assert "speaker" not in signals(
        read_question("What is my order QX-12345?"), [*chat, order], Statistics(25, 3.0, {"qx12345": 1})
    )


def test_the_passages_of_one_large_event_are_ranked_about_as_fast_as_those_of_many() -> None:
    """A document's passages all stand around each other; only the nearest are read with one."""

    def ranked_s(*, apart: bool) -> float:
        places = range(1, 3_001)
        passages = [
            Candidate(n << PLACES_BITS if apart else (1 << PLACES_BITS) + n, "document", "", "", 0, 0, tuple(WORDS))
            for n in places
        ]
        began = time.thread_time()
        rank(read_question(" ".join(WORDS[:6])), passages, statistics(passages), 10)
        return time.thread_time() - began

    assert min(ranked_s(apart=False) for _ in range(3)) < 10 * min(ranked_s(apart=True) for _ in range(3))
