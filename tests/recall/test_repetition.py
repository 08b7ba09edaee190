"""Texts that say the same are found among many: as comparing each pair does."""

from hypothesis import given
from hypothesis import strategies as st

from memory_engine.recall.repetition import Repetitions, says_the_same

WORDS = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "7", "8")
TEXTS = st.lists(st.tuples(st.sampled_from("xy"), st.frozensets(st.sampled_from(WORDS), min_size=8)), max_size=12)


def test_nine_of_ten_words_and_all_numbers() -> None:
    """One word of ten may be missing; a number may not."""
    ten = set("abcdefghi") | {"10"}
    assert says_the_same(ten, ten - {"a"})
    assert not says_the_same(ten, ten - {"10"})
    assert not says_the_same(ten, (ten - {"a"}) | {"z"})
    assert not says_the_same((), ())


@given(TEXTS)
def test_the_first_that_says_the_same_is_found(texts: list[tuple[str, frozenset[str]]]) -> None:
    """In its own group alone, whatever the order of words."""
    known: Repetitions[int] = Repetitions()
    for n, (group, said) in enumerate(texts):
        expected = next((m for m, (of, other) in enumerate(texts[:n]) if of == group and says_the_same(said, other)), n)
        assert expected == (found if (found := known.get(group, said)) is not None else n)
        known.add(group, said, n)
