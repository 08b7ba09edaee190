"""Words of any script, the terms they count as, and how specific they look.

Scripts written with spaces give words; scripts written without (Han, Kana,
Thai, Lao, Khmer, Burmese) give overlapping pairs of characters, the usual
language-independent index unit for them (Nie, Gao, Zhang, Zhou 2000). Nothing
here knows a language: a value is specific by its shape alone.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from memory_engine.regex import regex

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
WORD = regex(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+(?:['’./@+\-][^\W{UNSPACED}]+|:\d+)*")
UNSPACED_CHARACTER = regex(rf"[{UNSPACED}]")
DATE = regex(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?$")
TIME = regex(r"\d{1,2}:\d{2}(?::\d{2})?(?:\+\d+)?$")
NUMBER = regex(r"[-+]?\d+(?:[.,]\d+)*$")
HIRAGANA = regex(r"[\u3040-\u309f]+$")
VALUE_MARK = "#"
"""First character of a term that stands for a specific value, not for a word."""
STEM_CHARS = 7
VALUE_CHARS_MAX = 200


def words(text: str) -> Iterator[re.Match[str]]:
    """The words of a text in order; a run of an unspaced script is one match."""
    return WORD.finditer(text)


def is_unspaced(word: str) -> bool:
    """True for a run of a script that puts no spaces between words."""
    return UNSPACED_CHARACTER.match(word) is not None


@lru_cache(maxsize=65_536)
def is_specific(word: str) -> bool:
    """True for identifiers, codes, numbers, dates, paths and addresses: by shape, not by meaning.

    A digit, an underscore, an inner @, a path, or capitals only: the marks of
    something made to be referred to.
    """
    if any(character.isdigit() for character in word):
        return True
    if "_" in word or "@" in word or word.count("/") > 1 or ("/" in word and "." in word):
        return len(word) > 2
    return len(word) > 2 and word.isupper() and word.isascii()


@lru_cache(maxsize=65_536)
def is_identifier(word: str) -> bool:
    """True for what something is called by: letters with digits, an address, a path, a long number."""
    if not is_specific(word) or " " in word or DATE.match(word) or TIME.match(word):
        return False
    if not any(character.isalpha() for character in word):
        return word.isdigit() and len(word) > 5
    return any(character.isdigit() or character in "@/" for character in word) or (len(word) > 4 and word.isupper())


@lru_cache(maxsize=65_536)
def specificity(word: str) -> float:
    """How much a specific value is worth before anything is known of its use (words count about 1 to 4).

    An identifier is worth more the longer it is, as it cannot be guessed or
    found again without itself; a number of one or two digits could mean anything.
    """
    if DATE.match(word):
        return 6.0 if len(word) <= 10 else 2.5
    if TIME.match(word):
        return 1.5
    if NUMBER.match(word) and not is_identifier(word):
        return (1.0, 1.5, 3.0, 4.0)[min(sum(character.isdigit() for character in word), 4) - 1]
    return 3.0 + 0.6 * min(len(word), 30) if is_identifier(word) else 2.5


@lru_cache(maxsize=65_536)
def terms_of(word: str) -> tuple[str, ...]:
    """What a word counts as: itself if specific, its stem of seven letters, or pairs of characters.

    A prefix of seven letters stands in for a stemmer: it joins most inflections of
    suffixing languages and needs no rules of any.
    """
    if is_unspaced(word):
        return tuple(word[i : i + 2] for i in range(max(1, len(word) - 1)))
    if is_specific(word):
        return (VALUE_MARK + word[:VALUE_CHARS_MAX].lower(),)
    return (word.lower()[:STEM_CHARS],)


def is_grammar(term: str) -> bool:
    """True for a pair of Hiragana: Japanese writes endings and particles in them, seldom content."""
    return HIRAGANA.match(term) is not None


def text_terms(text: str) -> Iterator[str]:
    """Every term of a text, repetitions included."""
    for match in words(text):
        yield from terms_of(match.group())


def word_count(text: str) -> float:
    """Words in a text; two characters of an unspaced script count as one word."""
    return sum(len(word) / 2 if is_unspaced(word) else 1.0 for word in map(re.Match[str].group, words(text)))
