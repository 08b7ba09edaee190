"""The word lists of `phrases.toml`, and predicates on them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from itertools import chain
from operator import or_

from memory_engine.core.lazy import regex
from memory_engine.language.identification import function_words
from memory_engine.language.lists import word_lists
from memory_engine.language.text import has_ascii_words, is_unspaced, negations

WORDS_MAX = 16_384


@cache
def phrase_list(name: str) -> frozenset[str]:
    """Return the entries of a list."""
    return word_lists("memory_engine.language", "phrases.toml")[name]


@cache
def _heads(*names: str) -> frozenset[str]:
    """Return the first words of the entries of lists."""
    entries = (phrase_list(name) for name in names)
    return frozenset(head[1].lower() for head in map(_HEAD.match, chain.from_iterable(entries)) if head is not None)


def may_begin(text: str, *names: str) -> bool:
    """Return False only if a text cannot begin with an entry of the lists, ignoring marks before it.

    This fast check spares most texts a regular expression of hundreds of alternatives. It has no false negatives.
    """
    head = _HEAD.match(text)
    if head is None or not head[1].isascii():
        return not text.isascii()
    return head[1].lower() in _heads(*names)


PROMISES, REQUESTS, DONE, DOUBTS, TELLS, COURTEOUS = 1, 2, 4, 8, 16, 32
"""Traits of a word, as bit flags.

In order: an entry of `promises`, or of `requests`, may begin in the word; it says that something is done; it negates,
or says that something may, must or will be; it is more than courtesy, function words and assent; it is courteous.
"""


def traits_of(said: Iterable[str]) -> int:
    """Return the combined traits of words: a fast check that separates most texts from those to examine closely."""
    return reduce(or_, map(_TRAITS.__getitem__, said), 0)


class _Traits(dict[str, int]):
    """Cache of the traits of each word.

    Bounded. Numbers and codes are not cached: no list contains them, and most occur once.
    """

    def __missing__(self, word: str) -> int:
        if word.isascii() and not word.isalpha() and (word.isalnum() or word.lower() == word.upper()):
            return TELLS
        if len(self) >= WORDS_MAX:
            self.clear()
        plain = word.lower() if _is_plain(word) else ""
        found = self[word] = TELLS if plain and plain not in _listed_words() else _traits(plain or word)
        return found


def _is_plain(word: str) -> bool:
    return word.isascii() and word.isalpha()


@cache
def _listed_words() -> frozenset[str]:
    """Return the words of all lists that give traits, and more: no other plain word has any but `TELLS`."""
    lists = map(phrase_list, ("courtesy", "answers", "done", "modals"))
    return negations() | function_words() | _heads("promises", "requests").union(*lists)


def _traits(word: str) -> int:
    folded, parts = word.casefold(), _WORD.findall(word.lower())
    first = folded.partition("'")[0].partition("’")[0]
    is_courteous = first in phrase_list("courtesy") or word in phrase_list("courtesy_unspaced")
    plain = folded.replace("’", "'")
    is_empty = is_courteous or plain in phrase_list("answers") or function_words().issuperset(plain.split("'"))
    return (
        PROMISES * (not _heads("promises").isdisjoint(parts))
        + REQUESTS * (not _heads("requests").isdisjoint(parts))
        + DONE * (folded in phrase_list("done"))
        + DOUBTS * (folded in negations() or folded.endswith(("n't", "n’t")) or folded in phrase_list("modals"))
        + TELLS * (not is_empty or is_unspaced(word))
        + COURTEOUS * is_courteous
    )


_TRAITS = _Traits()


def holds(name: str, text: str, end: int) -> bool:
    """Return True if a text contains an entry of a list, or of its list for unspaced scripts, before `end`."""
    return next(matches(name, text, end), None) is not None


def matches(name: str, text: str, end: int | None = None) -> Iterator[re.Match[str]]:
    """Yield the entries of a list, or of its list for unspaced scripts, in a text before `end`: the longest at a place.

    In text without letters beyond ASCII, only entries that begin with one of its words are looked for: a pattern of a
    whole list takes ten milliseconds to compile.
    """
    end = len(text) if end is None else min(end, len(text))
    if not has_ascii_words(text[:end]):
        yield from _anywhere(name).finditer(text, 0, end)
        return
    by_head, lowered = _by_head(name), text[:end].lower()
    heads = by_head.keys() & _WORD.findall(lowered)
    if not any(entry.lower() in lowered for head in heads for entry in by_head[head]):
        return
    at = 0
    for word in _WORD.finditer(text, 0, end):
        head = word.group().lower()
        if head in heads and word.start() >= at:
            found = _entries_with(name, head).match(text, word.start(), end)
            if found is not None:
                yield found
                at = found.end()


@cache
def _anywhere(name: str) -> re.Pattern[str]:
    spaced, unspaced = alternatives(name, f"{name}_unspaced")
    return re.compile("|".join([rf"(?<![\w'])(?:{spaced})(?!\w)", *filter(None, [unspaced])]), re.IGNORECASE)


@cache
def _by_head(name: str) -> Mapping[str, Sequence[str]]:
    """Return the entries of a list by their first words in lowercase, longest first."""
    found: dict[str, list[str]] = {}
    for entry in sorted(phrase_list(name), key=lambda entry: (-len(entry), entry)):
        found.setdefault(_HEAD.findall(entry)[0].lower(), []).append(entry)
    return found


@cache
def _entries_with(name: str, head: str) -> re.Pattern[str]:
    """Return the entries of a list with this first word as a regular expression."""
    entries = "|".join(map(re.escape, _by_head(name)[head]))
    return re.compile(rf"(?<![\w'])(?:{entries})(?!\w)", re.IGNORECASE)


def begins(name: str, text: str) -> bool:
    """Return True if a text begins with an entry of a list or its list for unspaced scripts, ignoring leading marks."""
    return may_begin(text, name) and _beginning(name).match(text) is not None


@cache
def _beginning(name: str) -> re.Pattern[str]:
    spaced, unspaced = alternatives(name, f"{name}_unspaced")
    return re.compile(rf"\W*(?:(?:{spaced})(?!\w)|{unspaced})", re.IGNORECASE)


_HEAD = regex(r"\W*(\w+)")
_WORD = regex(r"\w+")


def is_courteous(word: str) -> bool:
    """Return True if a word (or a character pair of an unspaced script) expresses courtesy, praise or mood."""
    return _TRAITS[word] & COURTEOUS > 0


def says_something(said: Iterable[str], names: frozenset[str]) -> bool:
    """Return True if words go beyond courtesy, function words, assent and the names of the speakers."""
    return any(_TRAITS[word] & TELLS and (word.casefold() not in names or is_unspaced(word)) for word in said)


def points_back(said: Sequence[str]) -> bool:
    """Return True if the first word, or the second word after an "if", refers to something said before."""
    first, second = [*said[:2], "", ""][:2]
    if is_unspaced(first):
        return first.startswith(tuple(phrase_list("pointers_unspaced")))
    if first.casefold() in phrase_list("pointers"):
        return True
    return first.casefold() in phrase_list("conditionals") and second.casefold() in phrase_list(
        "pointers"
    ) | phrase_list("articles")


def denies(said: Sequence[str]) -> bool:
    """Return True if the first word negates: such a sentence is a prohibition by itself."""
    return bool(said) and (said[0].casefold() in negations() or begins("forbids", said[0]))


def says_yes_or_no(said: Sequence[str]) -> bool:
    """Return True if the first word assents or refuses."""
    return bool(said) and said[0].casefold() in phrase_list("answers")


@cache
def alternatives(spaced: str, unspaced: str) -> tuple[str, str]:
    """Return two lists as alternatives of a regular expression, longest first."""
    both = (phrase_list(spaced), phrase_list(unspaced))
    first, second = ("|".join(map(re.escape, sorted(entries, key=lambda e: (-len(e), e)))) for entries in both)
    return first, second
