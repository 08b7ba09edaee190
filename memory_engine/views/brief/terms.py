"""Extracts the terms of a text. Two texts that share terms are about the same thing, in any language.

A path, a number or an identifier is one term. Other words are reduced to their stems. In scripts without an English
stemmer the beginning of a word is used, since endings change; in scripts without spaces, pairs of characters. Function
words are left out.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from memory_engine.core.lazy import regex
from memory_engine.language.identification import function_words
from memory_engine.language.text import COMPOUND_WORD, fold_case, is_unspaced, pairs, stem, stop_words, words

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
    compounds = {*COMPOUND_WORD.findall(folded)}
    values = {*filter(is_value, compounds)}
    found = {*_terms_of_words(_remove_values(values, compounds, folded)), *values}
    if parts:
        found.update(
            _terms_of_words(" ".join(_WITHIN.sub(" ", value) for value in values if value.replace("_", "").isalpha()))
        )
    return frozenset(found)


def _remove_values(values: set[str], compounds: set[str], text: str) -> str:
    if not values:
        return text
    if text.isascii():  # signs of other scripts may be outside of compound words
        return " ".join(compounds - values)
    return COMPOUND_WORD.sub(lambda match: " " if match.group() in values else match.group(), text)


def is_value(term: str) -> bool:
    """Return True if a term is a number, a path, an address or an identifier."""
    return _VALUE.search(term) is not None


def _terms_of_words(text: str) -> Iterator[str]:
    return chain.from_iterable(map(_terms_of_word, {*words(text)}))


@lru_cache(maxsize=1 << 15)
def _terms_of_word(word: str) -> Sequence[str]:
    if is_unspaced(word):
        return pairs(word)
    if _HANGUL.match(word):
        return (word[:2],)
    if word in function_words():
        return ()
    if word.isascii():
        return (stem(word),) if len(word) > 1 and word not in stop_words() else ()
    return (word[:BEGINNING_CHARS],)
