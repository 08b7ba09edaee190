"""The word lists of `phrases.toml`, and the questions that are asked of them."""

import re
from functools import cache, lru_cache

from memory_engine.core.text import word_lists


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


@cache
def alternatives(spaced: str, unspaced: str) -> tuple[str, str]:
    """Two lists as the alternatives of a regular expression, longest first."""
    both = (listed(spaced), listed(unspaced))
    first, second = ("|".join(map(re.escape, sorted(entries, key=lambda e: (-len(e), e)))) for entries in both)
    return first, second
