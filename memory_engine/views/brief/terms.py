"""Extracts the terms of a text. Two texts that share terms are about the same thing, in any language.

A path, a number or an identifier is one term. Other words are reduced to their stems. In scripts without an English
stemmer the beginning of a word is used, since endings change; in scripts without spaces, pairs of characters. Function
words are left out.
"""

import re
from collections.abc import Iterator

from memory_engine.core.language import function_words
from memory_engine.core.lazy import regex
from memory_engine.core.text import COMPOUND_WORD, fold_case, is_unspaced, pairs, stem, stop_words, words

READ_CHARS_MAX = 6_000
"""Maximum number of characters of a text that are read: two thirds at its beginning, one third at its end."""
BEGINNING_CHARS = 5
_HANGUL = regex("[\uac00-\ud7af]")
_WITHIN = regex(r"[_\-]+")
_VALUE = regex(r"[\d_/.@]")


def terms_of(text: str, *, parts: bool = False) -> frozenset[str]:
    """Return the terms of a text. With `parts`, also those inside identifiers (`user_id`)."""
    if len(text) > READ_CHARS_MAX:
        text = f"{text[: READ_CHARS_MAX * 2 // 3]} {text[-READ_CHARS_MAX // 3 :]}"
    folded = fold_case(text)
    values = [match.group() for match in COMPOUND_WORD.finditer(folded) if _VALUE.search(match.group())]
    found = {*values, *_plain(COMPOUND_WORD.sub(_without_values, folded) if values else folded)}
    if parts:
        found.update(_plain(" ".join(_WITHIN.sub(" ", value) for value in values if value.replace("_", "").isalpha())))
    return frozenset(found)


def _without_values(match: re.Match[str]) -> str:
    return " " if _VALUE.search(match.group()) else match.group()


def is_value(term: str) -> bool:
    """Return True if a term is a number, a path, an address or an identifier."""
    return _VALUE.search(term) is not None


def _plain(text: str) -> Iterator[str]:
    for word in words(text):
        if is_unspaced(word):
            yield from pairs(word)
        elif _HANGUL.match(word):
            yield word[:2]
        elif word.isascii():
            if len(word) > 1 and word not in function_words() and word not in stop_words():
                yield stem(word)
        elif word not in function_words():
            yield word[:BEGINNING_CHARS]
