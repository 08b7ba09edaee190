"""The lines of speech in a summary can be read alone: what they lean on is in the summary, or they are not."""

import pytest

from memory_engine.compactors.extractive import Entry, extract
from memory_engine.language.leaning import brings_in, leans

BUDGETS = range(8, 90, 3)


def people(*said: tuple[str, str]) -> list[Entry]:
    """Return messages of people as entries."""
    return [Entry(id=f"m{n}", kind="user", speaker=speaker, text=text) for n, (speaker, text) in enumerate(said)]


def with_assistant(*said: str) -> list[Entry]:
    """Return messages of a user and an assistant, in turn, as entries."""
    return [Entry(id=f"m{n}", kind="assistant" if n % 2 else "user", text=text) for n, text in enumerate(said)]


def summaries(entries: list[Entry]) -> list[str]:
    """Return the text of the summary at each budget."""
    return ["\n".join(line.text for line in extract(entries, budget)) for budget in BUDGETS]


@pytest.mark.parametrize(
    ("base", "leaning"),
    [
        ("We adopted a greyhound named Otto in May.", "He is afraid of the vacuum cleaner in the hall."),
        ("My cousin runs a vineyard near Colmar.", "They bottled 4,000 litres there last autumn."),
        ("Wir haben im Mai einen Windhund namens Otto geholt.", "Er hat Angst vor dem Staubsauger im Flur."),
        ("Mi prima tiene una bodega cerca de Logroño.", "Ella embotelló 4.000 litros el otoño pasado."),
        ("Ma cousine tient une librairie à Colmar.", "Elle a vendu 4 000 livres cet automne."),
    ],
)
def test_a_pronoun_takes_along_what_it_stands_for(base: str, leaning: str) -> None:
    """Between people, too, nobody has to guess who is meant."""
    other = ("Max", "The ferry to Texel leaves at 9:40.")
    entries = people(("Ida", base), ("Max", "How nice!"), ("Ida", leaning), other)
    kept = summaries(people(("Ida", f"{base} {leaning}"), other))
    assert all(base in summary for summary in kept if leaning in summary)
    assert any(leaning in summary for summary in kept)
    assert all(base in summary for summary in summaries(entries) if leaning in summary)


def test_an_answer_of_a_few_words_takes_along_its_question() -> None:
    """A bare answer between people comes with what was asked, or not at all."""
    asked, answer = "Which colour did the council choose for the Harbour Bridge?", "Cobalt blue with white railings."
    kept = summaries(people(("Ida", asked), ("Max", answer), ("Ida", "The mayor opens it on 3 October 2026.")))
    assert all(asked in summary for summary in kept if answer in summary)
    assert any(answer in summary for summary in kept)


def test_what_leans_on_nothing_that_was_said_is_left_out() -> None:
    """A first message that points to a talk elsewhere gives its place to a line that stands."""
    kept = summaries(people(("Ida", "It really helps her relax after work."), ("Max", "I moved to Ghent in 2019.")))
    assert not any("helps her" in summary for summary in kept)
    assert any("Ghent" in summary for summary in kept)


def test_assent_to_an_assistant_shows_what_it_assents_to() -> None:
    """Its question has another heading: the line quotes it, with what it leans on."""
    entries = with_assistant(
        "I have to return the lamp from order R-5521.",
        "The lamp from order R-5521 can be refunded to the card that ends in 8834. Shall I refund it today?",
        "Yes, both of them, please.",
        "Refund R-5521 is on its way.",
    )
    lines = [line for budget in BUDGETS for line in extract(entries, budget) if "Yes, both" in line.text]
    assert lines
    assert all("8834" in line.text and "Shall I refund it today?" in line.text for line in lines)
    assert {line.sources for line in lines} == {("m2", "m1")}


def test_words_that_announce_a_list_do_not_appear_without_it() -> None:
    """A sentence that ends in a colon says nothing by itself."""
    items = "\n".join(f"{n}. Berth {n}{n}7 on pier {n} is free until 1{n}:30 on 4 May." for n in range(1, 10))
    kept = summaries(with_assistant("Which berths are free?", f"Here is the list of berths:\n{items}", "Thanks."))
    assert all("pier" in summary for summary in kept if "list of berths:" in summary)


def test_people_are_kept_by_what_they_tell_of_themselves() -> None:
    """What somebody says of themselves is news; what they say of the other, the other knows."""
    entries = people(
        ("Ida", "Your sourdough loaf from Tuesday has a splendid dark crust."),
        ("Max", "My orchard near Kassel has ninety old cherry trees."),
    )
    assert "orchard" in "".join(line.text for line in extract(entries, 18))


@pytest.mark.parametrize(
    "text",
    [
        "They close at six.",
        "I love that!",
        "I would take the other one.",
        "Yes, both.",
        "Me too!",
        "Yes, I did.",
        "That sounds expensive.",
        "A neighbour with a van moved it.",
        "It was sent to the old address.",
        "Last Friday with a group of friends I felt it.",
        "I'll check that and call back.",
        "Good idea!",
        "Das klingt gut.",
        "Ich auch.",
        "Eso es caro.",
        "Je suis d'accord.",
        "Anch'io!",
        "Это дорого.",
        "他昨天修好了。",
        "それは高いです。",
    ],
)
def test_a_sentence_that_leans(text: str) -> None:
    """It has no meaning without words outside it."""
    assert leans(text)


@pytest.mark.parametrize(
    "text",
    [
        "It is hard to find a plumber in August.",
        "It seems there are no seats on flight 812.",
        "This week I went to Rome.",
        "I think that the roof leaks.",
        "The book that I lent you is by Calvino.",
        "My sister sold her car because it kept breaking down.",
        "Our neighbours asked whether they could borrow the drill.",
        "I met a man who told me that his dog can swim.",
        "Gestern habe ich meinen Bruder besucht; er wohnt in Köln.",
        "I'd like to book a table for four on 3 May.",
        "",
        "…",
    ],
)
def test_a_sentence_that_stands(text: str) -> None:
    """It brings in what it speaks of, or speaks of nothing before it."""
    assert not leans(text)


def test_what_a_pronoun_may_stand_for() -> None:
    """A sentence of mood brings in nothing; one with a thing or a name does."""
    assert brings_in("We bought a tent.")
    assert brings_in("Greetings from Oslo")
    assert not brings_in("So nice of you!")
    assert not brings_in("Well said, Max!", frozenset({"max"}))


def test_a_long_text_of_pronouns_takes_linear_time() -> None:
    """Every statement leans on the one before it; each looks back a few steps only."""
    text = " ".join(f"They moved it {n} steps." for n in range(4_000))
    lines = extract(people(("Ida", "Our movers came."), ("Ida", text)), 200)
    assert sum(len(line.text) for line in lines) <= 800
