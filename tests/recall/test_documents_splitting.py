"""From sections to passages: sizes, overlaps, all words."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine import errors
from memory_engine.views.documents.readers.document import DocumentSection
from memory_engine.views.documents.readers.splitting import Splitting, split, split_simply
from tests.recall.document_files import without

WORDS = st.text("ab .\n!é", max_size=900)
SPLITTINGS = st.builds(Splitting, st.integers(200, 300), st.integers(0, 100))


@settings(max_examples=150)
@given(WORDS, SPLITTINGS, st.booleans())
def test_S7_passages_hold_all_words_and_stay_in_bounds(text: str, splitting: Splitting, is_markdown: bool) -> None:
    """None is too long or blank, each is a piece of the text, and every word stands in one of them in order."""
    pieces = [piece.text for piece in split([DocumentSection(text=text, is_markdown=is_markdown)], splitting)]
    _check(text, pieces, splitting)


@settings(max_examples=150)
@given(WORDS, SPLITTINGS)
def test_S7_the_small_splitter_keeps_the_same_promises(text: str, splitting: Splitting) -> None:
    """Which serves where the extra is not installed."""
    _check(text, split_simply(text, splitting), splitting)


def _check(text: str, pieces: list[str], splitting: Splitting) -> None:
    assert all(piece.strip() and len(piece) <= splitting.chars for piece in pieces)
    covered = 0
    start = 0
    for piece in pieces:
        at = text.find(piece, start)
        assert at >= 0
        assert not text[covered:at].strip()
        start, covered = at, max(covered, at + len(piece))
    assert not text[covered:].strip()


def test_S7_passages_overlap() -> None:
    """The end of one is the beginning of the next, at sentences, with either splitter."""
    text = " ".join(f"Sentence {n} is about bicycles." for n in range(60))
    for pieces in (
        [one.text for one in split([DocumentSection(text=text)], Splitting(400, 80))],
        split_simply(text, Splitting(400, 80)),
    ):
        for before, after in itertools.pairwise(pieces):
            shared = after[: after.index(".") + 1]
            assert before.endswith(shared) or shared in before[-81:]


def test_S7_without_the_extra_documents_are_split_all_the_same() -> None:
    """By paragraphs, sentences and words."""
    code = """
from memory_engine.views.documents.readers.splitting import Splitting, split
from memory_engine.views.documents.readers.document import DocumentSection
pieces = split([DocumentSection(text="One two three. " * 40)], Splitting(200, 0))
print(len(pieces), {piece.text[-1] for piece in pieces})
"""
    assert "4 {'.'}" == without("semantic_text_splitter", code).strip()


@pytest.mark.parametrize(("chars", "overlap"), [(199, 0), (4_001, 0), (800, 401), (800, -1)])
def test_S7_sizes_out_of_bounds_are_refused(chars: int, overlap: int) -> None:
    """Before anything is read."""
    with pytest.raises(errors.InvalidDocument, match="use"):
        Splitting(chars, overlap)
