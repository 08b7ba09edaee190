"""English prose has marks beyond ASCII; the short ways for ASCII read it as the long ways do."""

from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine.language import phrases
from memory_engine.language.leaning import leans
from memory_engine.language.sentences import word_count, words
from memory_engine.language.text import COMPOUND_WORD, has_ascii_words
from memory_engine.language.text import words as folded_words

WORDS = st.sampled_from(
    "I'll could you please the mill isn't it's that's 7:30 a.b@c.de done Ann's don't they let's x_y".split()
)
MARKS = st.sampled_from([" ", "… ", " …", "“", "” ", " – ", "—", ", ", ". ", "'", "…'"])
PROSE = st.lists(st.tuples(WORDS, MARKS), min_size=1, max_size=12).map(
    lambda pairs: "".join(word + mark for word, mark in pairs)
)


@given(PROSE)
@settings(max_examples=300)
def test_words_are_the_same(text: str) -> None:
    """Marks belong to no word."""
    assert has_ascii_words(text)
    assert COMPOUND_WORD.findall(text) == words(text)
    assert float(len(words(text))) == word_count(text)


@given(st.text(st.characters(max_codepoint=127)))
@settings(max_examples=300)
def test_folded_words_are_the_same(text: str) -> None:
    """A letter beyond ASCII at the end sends the text the long way."""
    assert [*folded_words(text), "ä"] == folded_words(f"{text} ä")


@given(PROSE, st.sampled_from(["promises", "requests"]), st.integers(0, 90))
@settings(max_examples=300)
def test_phrases_are_found_by_the_long_way_too(text: str, name: str, end: int) -> None:
    """A list's entries, before an end."""
    assert (phrases._anywhere(name).search(text, 0, end) is not None) == phrases.holds(name, text, end)


FORCEFUL = st.sampled_from("never always please do not don't must no instead I should you a the it rather".split())


@given(st.lists(st.one_of(WORDS, FORCEFUL), max_size=12), st.sampled_from(["forbids", "binds", "prefers", "corrects"]))
@settings(max_examples=400)
def test_all_phrases_are_found_by_the_long_way_too(said: list[str], name: str) -> None:
    """In their places, the longest where several begin."""
    text = " ".join(said)
    long_way = [match.span() for match in phrases._anywhere(name).finditer(text)]
    assert long_way == [match.span() for match in phrases.matches(name, text)]


@given(PROSE)
@settings(max_examples=300)
def test_a_sentence_leans_as_with_a_letter_beyond_ascii(text: str) -> None:
    """A word in Greek at its end brings nothing in, and sends the text the long way."""
    marked = f"{text} …"
    assert leans(f"{marked} και") == leans(f"{marked} kk")


def test_letters_beyond_ascii_are_no_marks() -> None:
    """Nor is the typographic apostrophe, which is a part of words."""
    assert [False] * 3 == list(map(has_ascii_words, ("naïve", "it’s", "磨坊")))
