"""Which words a telegram leaves out: from the input's own statistics, helped by a short list.

In any language the commonest words are short and say little (Zipf's law of
abbreviation): a word counts as a function word if it occurs in a share of the
passages that grows with its length. The lists in languages.py only sharpens that for a few
languages that the input is seen to be written in; every other language, and an
empty list, rest on the statistics alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from memory_engine.compactors.extractive.languages import FUNCTION_WORDS, NEGATIONS
from memory_engine.compactors.extractive.words import is_specific, is_unspaced, words

LANGUAGE_SHARE_MIN = 0.15
PASSAGE_SHARE_PER_LETTER = 0.002
PASSAGES_MIN = 4


@lru_cache(maxsize=65_536)
def _parts(word: str) -> tuple[str, ...]:
    return tuple(part for part in word.lower().replace("’", "'").replace("-", "'").split("'") if part)


class FunctionWords:
    """The function words of one input, and the test a telegram applies to each word."""

    def __init__(self, passages: Iterable[str], languages: Mapping[str, frozenset[str]] = FUNCTION_WORDS) -> None:
        """Count the passages (sentences, turns) of the input once; linear in their length."""
        frequency: Counter[str] = Counter()
        spread: Counter[str] = Counter()
        capitals: Counter[str] = Counter()
        passage_count = 0
        for passage in passages:
            passage_count += 1
            found = [match.group() for match in words(passage)]
            frequency.update(part for word in found for part in _parts(word))
            capitals.update(word.lower() for word in found[1:] if word[0].isupper())
            spread.update({word.lower(): 1 for word in found}.keys())
        self._listed = self._of_languages(frequency, languages)
        self._frequent = frozenset() if self._listed else self._by_spread(spread, capitals, passage_count)

    @staticmethod
    def _of_languages(frequency: Counter[str], languages: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """The lists of those languages in which a real share of the running words is found."""
        floor = LANGUAGE_SHARE_MIN * max(1, frequency.total())
        spoken = [listed for listed in languages.values() if sum(frequency[word] for word in listed) >= floor]
        return frozenset().union(*spoken)

    @staticmethod
    def _by_spread(spread: Counter[str], capitals: Counter[str], passage_count: int) -> frozenset[str]:
        """Words met in at least 0.2 % of the passages for one letter, twice that for two, and so on doubling.

        Words mostly written with a capital inside sentences are names (or German
        nouns), however often they occur.
        """
        return frozenset(
            word
            for word, count in spread.items()
            if len(word) <= 8
            and count >= max(PASSAGES_MIN, PASSAGE_SHARE_PER_LETTER * passage_count * 2 ** (len(word) - 1))
            and 2 * capitals[word] <= count
        )

    def drops(self, word: str, *, first: bool) -> bool:
        """Whether a telegram leaves this word out; `first` says that it opens its sentence."""
        if is_unspaced(word) or is_specific(word):
            return False
        parts = _parts(word)
        if any(part in NEGATIONS for part in parts) or parts[-1:] == ("t",):
            return False
        if word[0].isupper() and not first and len(parts[0] if parts else "") > 1:
            return False
        if word.lower() in self._frequent:
            return True
        return bool(parts) and all(part in self._listed for part in parts)
