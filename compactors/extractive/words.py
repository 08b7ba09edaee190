"""Words of any script: the terms they count as, and how specific they look.

Scripts written with spaces give words; scripts written without (Han, Kana, Thai, Lao, Khmer, Burmese) give overlapping
pairs of characters, the usual language-independent index unit for them (Nie, Gao, Zhang, Zhou 2000). A value is
specific by its shape alone.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import chain
from math import sqrt

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.phrases import is_courteous
from memory_engine.language.text import is_unspaced, pairs, stem

DATE = regex(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?$")
TIME = regex(r"\d{1,2}:\d{2}(?::\d{2})?(?:\+\d+)?$")
_LINE_WITH_DIGIT = regex(r"(?m)^[^0-9\n]*+[0-9].*+")
NUMBER = regex(r"[-+]?\d+(?:[.,]\d+)*$")
HIRAGANA = regex(r"[\u3040-\u309f]+$")
"""Hiragana: Japanese writes endings and particles in it, seldom content."""
_DIGIT = regex("[0-9]")
WORDS_MAX = 65_536
"""Words whose terms are kept: a vocabulary, and the values of a long conversation."""
UNITS_MAX = 16_384
VALUE_MARK = "#"
"""First character of a term that is a specific value, not a word."""
STEM_CHARS = 7
VALUE_CHARS_MAX = 200
GRAMMAR_FACTOR = 0.3
LENGTH_MAX = 8
"""Longer words say more, up to about this length."""
SIZE_MAX = sqrt(LENGTH_MAX)
IDENTIFIER_WORTH = 3.0
CHARACTER_WORTH = 0.6
IDENTIFIER_CHARS_MAX = 30
FEW_DIGITS = 5
"""A number of up to this many digits is not an identifier."""


def is_specific(word: str) -> bool:
    """True for identifiers, codes, numbers, dates, paths and addresses: by shape, not by meaning.

    A digit, an underscore, an inner @, a path, or capitals only: the marks of
    something made to be referred to.
    """
    if word.isalpha():  # most words
        return len(word) > 2 and word.isupper() and word.isascii()
    if has_digit(word):
        return True
    if "_" in word or "@" in word or word.count("/") > 1 or ("/" in word and "." in word):
        return len(word) > 2
    return len(word) > 2 and word.isupper() and word.isascii()


def is_identifier(word: str) -> bool:
    """True for a reference: letters with digits, an address, a path, a long number."""
    return is_specific(word) and refers(word)


def refers(word: str) -> bool:
    """Return True if a specific word is a reference, and not a date, time or number."""
    if word[0].isdecimal() and (DATE.match(word) or TIME.match(word)):
        return False
    return _is_reference(word)


def _is_reference(word: str) -> bool:
    """Return True if a word, not a date or time, is a reference."""
    if " " in word:
        return False
    if word.isdigit() or not (word.lower() != word.upper() if word.isascii() else any(map(str.isalpha, word))):
        return word.isdigit() and len(word) > FEW_DIGITS
    return has_digit(word) or "@" in word or "/" in word or (len(word) > 4 and word.isupper())


def has_digit(word: str) -> bool:
    """Return True if a word has a digit of any script."""
    return _DIGIT.search(word) is not None if word.isascii() else any(map(str.isdigit, word))


def specificity(word: str) -> float:
    """The worth of a specific value (`is_specific`) before anything is known of its use (words count about 1 to 4).

    An identifier is worth more the longer it is, as it cannot be guessed or
    found again without itself; a number of one or two digits could mean anything.
    """
    if word[0].isdecimal():
        if DATE.match(word):
            return 6.0 if len(word) <= 10 else 2.5
        if TIME.match(word):
            return 1.5
    is_reference = _is_reference(word)
    if not is_reference and NUMBER.match(word):
        return (1.0, 1.5, 3.0, 4.0)[min(sum(map(str.isdigit, word)), 4) - 1]
    if not is_reference:
        return 2.5
    return IDENTIFIER_WORTH + CHARACTER_WORTH * min(len(word), IDENTIFIER_CHARS_MAX)


class _Terms(dict[str, tuple[str, ...]]):
    """The terms of each word. A full cache is emptied, and fills again: the values of a long conversation come once."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        if is_unspaced(word):
            found = tuple(pairs(word))
        elif is_specific(word):
            found = (VALUE_MARK + word[:VALUE_CHARS_MAX].lower(),)
        else:
            found = (stem(word.lower())[:STEM_CHARS],)
        if len(word) <= VALUE_CHARS_MAX:
            if len(self) >= WORDS_MAX:
                self.clear()
            self[word] = found
        return found


terms_of: Callable[[str], tuple[str, ...]] = _Terms().__getitem__
"""The terms of a word: itself if specific, seven letters of its stem, or pairs of characters.

The stem is the one of an English word. Its first seven letters join most inflections of other
suffixing languages too, and need no rules of any.
"""


def distinct_terms(said: Iterable[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """The terms of words, each once and in no order, and those of them that are values.

    Words with digits are values. All of them are told and made at once, and not kept: most come in one text only.
    """
    distinct = set(said)
    numbered = _LINE_WITH_DIGIT.findall("\n".join(distinct))
    terms = set(chain.from_iterable(map(terms_of, distinct.difference(numbered))))
    values = [term for term in terms if term[0] == VALUE_MARK]
    if numbered:
        marked = f"\n{VALUE_MARK}".join([word[:VALUE_CHARS_MAX] for word in numbered])
        values += f"{VALUE_MARK}{marked}".lower().split("\n")
        terms.update(values)
    return tuple(terms), frozenset(values)


def worth_max(word: str) -> float:
    """Return a fast upper bound on the worth of a word's terms, before their use is known."""
    terms = terms_of(word)
    return value_worth_max(word) if terms[0][0] == VALUE_MARK else len(terms) * SIZE_MAX


def value_worth_max(word: str) -> float:
    """Return the same bound for a specific word."""
    if len(word) <= FEW_DIGITS and word.isdecimal():
        return specificity(word)
    return IDENTIFIER_WORTH + CHARACTER_WORTH * min(len(word), IDENTIFIER_CHARS_MAX)


class Unit(msgspec.Struct, frozen=True, gc=False):
    """One of the terms that a word counts as, and what its shape alone says of it.

    `size` is the worth of its length, `whole_size` that of the whole run's; `specificity` is 0 for what is no value.
    """

    term: str
    size: float
    whole_size: float
    specificity: float
    is_courteous: bool
    is_capital: bool


@lru_cache(maxsize=UNITS_MAX)
def units_of(word: str) -> tuple[Unit, ...]:
    """Return a word's terms, each with what is the same for it in any text."""
    if word.isascii() and has_digit(word):  # no list of words and no stem has anything to say of it
        size, term = sqrt(min(len(word), LENGTH_MAX)), VALUE_MARK + word[:VALUE_CHARS_MAX].lower()
        return (Unit(term, size, size, specificity(word), False, word[0].isupper()),)
    unspaced = is_unspaced(word)
    return tuple(_unit(word, term, term if unspaced else word) for term in terms_of(word))


def _unit(word: str, term: str, shown: str) -> Unit:
    factor = GRAMMAR_FACTOR if shown is term and HIRAGANA.match(term) else 1.0
    size = sqrt(min(len(shown), LENGTH_MAX)) * factor
    return Unit(
        term,
        size,
        size if shown is word else sqrt(min(len(word), LENGTH_MAX)) * factor,
        specificity(word) if term[0] == VALUE_MARK else 0.0,
        is_courteous(shown),
        word[0].isupper(),
    )
