"""What a search finds by: terms of texts, their stems, and the part of a long text that has what is asked for."""

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snowballstemmer.english_stemmer import EnglishStemmer

from memory_engine.context.excerpt import excerpt
from memory_engine.language.text import TERM_CHARS_MAX, TEXT_CHARS_MAX, has_any, stem, terms

TERM = re.compile(rf"(?:[a-z0-9]|[^\x00-\x7f]){{1,{TERM_CHARS_MAX}}}")
WORDS = "harbour lantern violin copper meadow thunder saffron glacier pebble orchard falcon velvet".split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Runners were RUNNING, run!", "runner run run"),
        ("Zoë's café, naïve", "zoe cafe naiv"),
        ("we don't, they've", ""),
        ("O'Brien", "obrien o brien"),
        ("ABC-123 user_id foo.bar", "abc123 abc 123 userid user id foobar foo bar"),
        ("at 7:30 for 1,200 on the 3rd", "7·30 7 30 1200 3"),
        ("Straße Übergrößen", "strass ubergrossen"),
        ("日本語", "日本 本語"),
        ("猫", "猫"),
        ("مرحبا بالعالم", "مرحبا بالعالم"),
        ("\ud800 \x00 \udfff ... _ -", ""),
        ("x" * 100, "x" * 64),
    ],
)
def test_a_text_is_cut_into_terms(text: str, expected: str) -> None:
    """Case, accents, endings and words of little meaning go; a word of parts stands whole and in parts."""
    if expected:
        assert expected.split() == terms(text)
    else:
        assert all(TERM.fullmatch(term) for term in terms(text))


def test_words_of_little_meaning_stay_where_there_is_nothing_else() -> None:
    """A question such as this would otherwise find nothing."""
    assert ["who", "are", "you"] == terms("Who are you?")


@pytest.mark.parametrize(
    "words",
    [
        "connect connected connecting connection connections",
        "hike hiked hiking hikes",
        "relate related relating",
        "city cities",
        "happy happiness happily",
        "plan planned planning plans",
        "adopt adopted adopting adoption",
    ],
)
def test_forms_of_a_word_have_one_stem(words: str) -> None:
    """What is asked in one form is found in another."""
    assert 1 == len({stem(word) for word in words.split() if word != "happily"})


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("generalizations", "general"),
        ("generously", "generous"),
        ("consignment", "consign"),
        ("knightly", "knight"),
        ("oscillators", "oscil"),
        ("agreed", "agre"),
        ("sky", "sky"),
        ("controll", "control"),
    ],
)
def test_stems_are_snowballs(word: str, expected: str) -> None:
    """The examples of the algorithm's description come out as it has them."""
    assert expected == stem(word)


@given(word=st.text("abcdefghijklmnopqrstuvwxyz", max_size=8), end=st.text("abcdefghilmnorstvyz", max_size=4))
@settings(max_examples=2_000)
def test_every_word_has_the_stem_that_snowball_gives_it(word: str, end: str) -> None:
    """Also those that are not given to it, since they have none of the endings that it knows."""
    assert EnglishStemmer().stemWord(word + end) == stem(word + end)


def test_a_stem_loads_the_stemmer_of_english_alone() -> None:
    """The library's package would import those of thirty other languages with it."""
    program = """import sys; from memory_engine.language.text import stem, stemmer_version
print(stem("running"), stemmer_version() > 0, sorted(name for name in sys.modules if "snowballstemmer" == name))"""
    assert "run True []\n" == subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        *("go went gone goes going", "child children", "woman women", "buy bought buying", "tell told", "wife wives"),
        *("gehen ging gegangen", "finden fand gefunden", "tener tuvo tiene", "fallen fell falls", "swim swam swum"),
    ],
)
def test_irregular_forms_are_found_as_their_word(words: str) -> None:
    """No rule of endings leads from them to it."""
    assert 1 == len({tuple(terms(word)) for word in words.split()})


@pytest.mark.parametrize(
    "text", ["I don't eat nuts", "We can\u2019t eat any nuts", "not nuts: eat", "She won't eat nuts"]
)
def test_what_denies_is_found(text: str) -> None:
    """However it is written: a question for what is not eaten finds it."""
    assert {"not", "eat", "nut"} <= set(terms(text))
    assert "eat nut".split() == terms("You should eat these nuts")


def test_only_the_beginning_of_a_text_counts() -> None:
    """A megabyte costs no more than what is read of it."""
    assert ["a" * TERM_CHARS_MAX] == terms("a" * 1_000_000)
    assert "late" not in terms("word " * (TEXT_CHARS_MAX // 5 + 1) + "late")


PIECES = st.lists(
    st.sampled_from([".", "!", " ", "  ", "\n", "\t", "\r\n", "x", "velvet", "copper meadow"]), max_size=40
)


class _Characters:
    """A token is a character."""

    name = "characters"
    exact = True

    def count(self, text: str) -> int:
        """The characters of a text."""
        return len(text)


@given(PIECES, st.integers(5, 60))
def test_an_excerpt_ends_where_it_does_in_any_writing(pieces: list[str], tokens: int) -> None:
    """Sentences and lines of plain ASCII are those of the same text with an accent."""
    text, asked = "".join(pieces), frozenset({"velvet"})
    accented = excerpt(text.replace("x", "\u00f8"), asked, tokens, _Characters())
    assert accented.replace("\u00f8", "x") == excerpt(text, asked, tokens, _Characters())


SAYINGS = st.lists(
    st.sampled_from(["the", "are", "who", "user_id", "don't", "nuts", "7:30", "皇帝", "...", *WORDS]), max_size=8
)


@given(SAYINGS, SAYINGS)
def test_a_text_has_a_term_that_is_among_its_terms(said: list[str], asked: list[str]) -> None:
    """Whether a text has any of some terms is told as its list of terms tells it."""
    text, wanted = " ".join(said), frozenset(terms(" ".join(asked)))
    assert bool(wanted.intersection(terms(text))) == has_any(text, wanted)


@given(st.text(st.characters(exclude_categories=[]), max_size=200))
def test_every_term_can_be_indexed(text: str) -> None:
    """No blanks, no marks, nothing that cannot be encoded: an index for ASCII words takes each as one word."""
    for term in terms(text):
        assert TERM.fullmatch(term)
        assert not term.isspace()
        term.encode()


@given(st.text(max_size=200))
def test_a_text_has_the_terms_of_its_other_spellings(text: str) -> None:
    """The same text gives the same terms, before and after others were read, however it is set apart by blanks."""
    before = terms(text)
    terms(text.upper() + " another text")
    assert before == terms(f"  {text}\n") or len(text) > TEXT_CHARS_MAX
