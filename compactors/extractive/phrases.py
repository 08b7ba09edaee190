"""The word lists of `phrases.toml`, and the questions that are asked of them."""

import re
from functools import cache, lru_cache
from itertools import islice

from memory_engine.core.language import function_words
from memory_engine.core.text import COMPOUND_WORD, is_unspaced, word_lists


@cache
def listed(name: str) -> frozenset[str]:
    """The entries of a list, an underscore in them being a blank."""
    lists = word_lists("memory_engine.compactors.extractive", "phrases.toml")
    return frozenset(entry.replace("_", " ") for entry in lists[name])


@lru_cache(maxsize=65_536)
def is_courteous(word: str) -> bool:
    """Whether a word (two signs of a script without blanks) is one of courtesy, praise or mood."""
    return word.casefold().partition("'")[0].partition("’")[0] in listed("courtesy") or word in listed(
        "courtesy_unspaced"
    )


def says_something(text: str, names: frozenset[str]) -> bool:
    """Whether a text has a word beyond courtesy, function words, assent and the names of those who speak."""
    return any(
        is_unspaced(word) or not (_is_empty(word) or word.casefold() in names)
        for word in map(re.Match[str].group, COMPOUND_WORD.finditer(text))
    )


@lru_cache(maxsize=65_536)
def _is_empty(word: str) -> bool:
    folded = word.casefold().replace("’", "'")
    return (
        is_courteous(word) or folded in listed("answers") or all(part in function_words() for part in folded.split("'"))
    )


def points_back(text: str) -> bool:
    """Whether the first word points to what was said before, or the second one behind an "if"."""
    first, second = [*map(re.Match[str].group, islice(COMPOUND_WORD.finditer(text), 2)), "", ""][:2]
    if is_unspaced(first):
        return first.startswith(tuple(listed("pointers_unspaced")))
    if first.casefold() in listed("pointers"):
        return True
    return first.casefold() in listed("conditionals") and second.casefold() in listed("pointers") | listed("articles")


def says_yes_or_no(text: str) -> bool:
    """Whether the first word assents or refuses."""
    found = COMPOUND_WORD.search(text)
    return found is not None and found.group().casefold() in listed("answers")


@cache
def alternatives(spaced: str, unspaced: str) -> tuple[str, str]:
    """Two lists as the alternatives of a regular expression, longest first."""
    both = (listed(spaced), listed(unspaced))
    first, second = ("|".join(map(re.escape, sorted(entries, key=lambda e: (-len(e), e)))) for entries in both)
    return first, second
