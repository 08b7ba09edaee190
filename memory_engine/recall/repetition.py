"""Repetition: whether two texts say the same by their words, and a search for such texts among many."""

from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

REPEATED_TERMS_MIN = 8
"""Minimum terms of passages that repeat each other: "yes, that one" may mean different things."""
REPEATED_SHARE = 0.9
"""Share of common words from which on two texts say the same, unless a number differs."""


def says_the_same(one: Collection[str], other: Collection[str]) -> bool:
    """Return whether texts of these distinct words say the same: nine of ten words, and all numbers."""
    fewer, more = sorted((len(one), len(other)))
    if not fewer or fewer < more * REPEATED_SHARE:
        return False  # most pairs end here: their words need not be looked at
    first, second = frozenset(one), frozenset(other)
    if len(first & second) < REPEATED_SHARE * len(first | second):
        return False
    return not any(sign.isdigit() for word in first ^ second for sign in word)


class Repetitions(Generic[T]):
    """Values by the words of a text, each in a group (a speaker, a layer) that it is compared within.

    Texts that say the same share enough words that, in any fixed order, they share one of the first few. Texts are
    indexed by these (S. Chaudhuri, V. Ganti, R. Kaushik, "A Primitive Operator for Similarity Joins in Data Cleaning",
    2006).
    """

    def __init__(self) -> None:
        self._added: list[tuple[frozenset[str], T]] = []
        self._by_word: dict[tuple[Hashable, str], list[int]] = {}

    def get(self, group: Hashable, said: frozenset[str]) -> T | None:
        """Return the first value that was added to the group with a text that says the same, or `None`."""
        places = {place for word in _first(said) for place in self._by_word.get((group, word), ())}
        return next((self._added[n][1] for n in sorted(places) if says_the_same(said, self._added[n][0])), None)

    def add(self, group: Hashable, said: frozenset[str], value: T) -> None:
        """Add a value with the words of its text."""
        for word in _first(said):
            self._by_word.setdefault((group, word), []).append(len(self._added))
        self._added.append((said, value))

    def get_or_add(self, group: Hashable, said: frozenset[str], made: Callable[[], T]) -> T:
        """Return the value of the first text in the group that says the same; `made` makes one if none does."""
        found = self.get(group, said)
        if found is None:
            self.add(group, said, found := made())
        return found


def _first(said: frozenset[str]) -> list[str]:
    """Return the first words in sorted order, one more than a text that says the same may lack."""
    return sorted(said)[: len(said) - int(REPEATED_SHARE * len(said)) + 1]
