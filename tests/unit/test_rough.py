"""Rough cuts: sentences and clauses by marks alone, as those callers need them who read each part by itself."""

import pytest

from memory_engine.language.rough import (
    asks,
    begins_sentence,
    behind_conjunction,
    between_marks,
    clause_spans,
    rough_sentences,
    rough_spans,
    spaced_clauses,
)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It costs 3.50. Really? Yes!", ["It costs 3.50.", "Really?", "Yes!"]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("first line\n  second line ", ["first line", "second line"]),
        ("他走了。我留下！好吗", ["他走了。", "我留下！", "好吗"]),  # noqa: RUF001 - marks of Chinese
        ("متى؟ غدا.", ["متى؟", "غدا."]),
        ("  \n ", []),
    ],
)
def test_a_mark_and_white_space_end_a_sentence(text: str, sentences: list[str]) -> None:
    """So do wide marks and line breaks; a point inside a number does not."""
    assert sentences == rough_sentences(text)


def test_spans_are_places_in_the_text() -> None:
    """Without the white space between the sentences."""
    assert [(0, 4), (6, 8)] == list(rough_spans("One.  2."))


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        (
            "first, I paid 1,000 at 7:30; then - later - I left",
            ["first", " I paid 1,000 at 7:30", " then", "later", "I left"],
        ),
        ("see https://a.b (or not)", ["see https://a.b ", "or not", ""]),
        ("先走、再说", ["先走", "再说"]),
    ],
)
def test_clauses_lie_between_marks(text: str, clauses: list[str]) -> None:
    """Marks inside numbers, times and addresses part nothing."""
    assert clauses == [text[start:end] for start, end in clause_spans(text)]


def test_spaced_clauses_need_white_space_beside_the_mark() -> None:
    """A folded text has narrow commas where Chinese has wide ones, and no white space behind them."""
    assert ["a", " b:c", "d,e"] == spaced_clauses("a, b:c - d,e")


def test_a_clause_may_begin_at_an_and() -> None:
    """The conjunction belongs to the clause that it begins."""
    text = "great and thanks"
    spans = list(clause_spans(text, joined=True))
    assert ["great ", "and thanks"] == [text[start:end] for start, end in spans]
    assert ["great ", "thanks"] == [text[behind_conjunction(text, start) : end] for start, end in spans]


def test_parts_between_marks_are_cut_inside_words_too() -> None:
    """For those who look for long stretches without any mark, or for the last few words."""
    assert ["a", "b", " c"] == between_marks("a.b, c")


@pytest.mark.parametrize(
    ("text", "word", "begins"), [("Go. Anna", "Anna", True), ("- Anna", "Anna", True), ("go Anna", "Anna", False)]
)
def test_a_sentence_begins_behind_a_mark(text: str, word: str, begins: bool) -> None:
    """Or at the beginning of a line or of an entry of a list."""
    assert begins == begins_sentence(text, text.index(word))


def test_a_question_may_end_in_a_bracket() -> None:
    """Or in a quotation mark."""
    assert asks("(really?)")
    assert not asks("Really.")
