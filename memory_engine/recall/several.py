"""Recognize questions for several things ("which places did she visit?"), and spread their hits over sessions.

People mention the things that such a question asks for at different times. The best hits keep their order. Each other
hit counts less for every better hit of its session or section, and one that adds no word to a better hit counts half.
So five hits from one evening leave room for four other evenings.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Protocol

from memory_engine.core.lazy import regex
from memory_engine.language.lists import word_lists
from memory_engine.language.text import is_unspaced, words

UNSPREAD = 3
"""The best finds keep their order: what looks like a question for several things may ask for one."""
GROUP_DECAY = 0.97
"""The factor on a find's score for each better find of its session or section."""
ADDS_NOTHING = 0.5
"""The factor on the score of a find whose words are all in a better one of the same speaker."""
TERMS_MIN, TERMS_MAX = 3, 30
"""The terms of a find that can add nothing: "yes, that one" may mean different things, and a long text adds a word."""
PLURAL_WITHIN = 3
"""Maximum number of words between "which" and its plural: "which small towns"."""
VERB_WITHIN = 6
"""Maximum number of words between a plural and its verb: "what clubs at her school has she"."""

_SINGULAR_ENDINGS = ("ss", "us", "is")
_PLURAL_ENDINGS: Mapping[str, tuple[str, ...]] = {
    "what": ("s",),
    "which": ("s",),
    "qué": ("os", "as", "es"),
    "welche": ("e", "n", "r", "s"),
    "welchen": ("n", "s"),
    "welke": ("en", "s"),
}
"""How a plural ends, by the word for "which" before it."""
_NEEDS_A_VERB = frozenset({"what"})
"""A verb in -s may follow these words as well as a plural: "what makes her happy?" and "what sports does she do?"."""
_APOSTROPHES = regex("(?<=[^\\W\\d_])['\u2019](?=[^\\W\\d_])")


def asks_for_several(text: str) -> bool:
    """Return True if a question asks for several things. Accepts any string.

    In doubt it does not: "what kind of tea" asks for one thing. It knows English, German, Spanish and Chinese, and the
    plain forms of French, Dutch, Italian, Portuguese and Russian.
    """
    said = words(_APOSTROPHES.sub(" ", text.lower()))
    lists = word_lists("memory_engine.recall")
    if any(is_unspaced(run) and any(one in run for one in lists["several_unspaced"]) for run in said):
        return True
    return _has_phrase(said, lists) or _has_plural(said, lists) or _asks_throughout(said, lists)


def _has_phrase(said: Sequence[str], lists: Mapping[str, frozenset[str]]) -> bool:
    """Return True for "how many", "who are", "quelles": but "how many days" asks for one duration."""
    phrases, durations = lists["several"], lists["durations"]
    for n, word in enumerate(said):
        size = 1 if word in phrases else 2 if " ".join(said[n : n + 2]) in phrases else 0
        if size and durations.isdisjoint(said[n + size : n + size + 1]):
            return True
    return False


def _has_plural(said: Sequence[str], lists: Mapping[str, frozenset[str]]) -> bool:
    """Return True for "which small towns" and "what sports does", not for "what does he" nor "which of the towns"."""
    ends, plurals, singulars = lists["auxiliaries"] | {"of"}, lists["plurals"], lists["singulars"]
    for n, word in enumerate(said):
        endings = _PLURAL_ENDINGS.get(word, ())
        for at in range(n + 1, min(n + 1 + PLURAL_WITHIN, len(said))) if endings else ():
            noun = said[at]
            if noun in ends:
                break
            ends_so = len(noun) > 3 and noun.endswith(endings) and not noun.endswith(_SINGULAR_ENDINGS)
            is_plural = noun in plurals or (ends_so and noun not in singulars)
            has_verb = word not in _NEEDS_A_VERB or not lists["auxiliaries"].isdisjoint(said[at : at + VERB_WITHIN])
            if is_plural and has_verb:
                return True
    return False


def _asks_throughout(said: Sequence[str], lists: Mapping[str, frozenset[str]]) -> bool:
    """Return True for "wo war sie überall": a question word, and later a word for all."""
    asks = next((n for n, word in enumerate(said) if word in lists["asks_throughout"]), len(said))
    return not lists["throughout"].isdisjoint(said[asks + 1 :])


class Spreadable(Protocol):
    """The properties of a find: its place, its speaker, and its terms."""

    @property
    def group(self) -> int:
        """Its session or section."""
        ...

    @property
    def role(self) -> str:
        """The role of who says it."""
        ...

    @property
    def speaker(self) -> str:
        """The name of who says it."""
        ...

    @property
    def terms(self) -> Sequence[str]:
        """Its terms, in the text's order."""
        ...


def spread(found: Sequence[Spreadable], scores: Sequence[float]) -> list[tuple[int, float]]:
    """Return the numbers of finds, best first, with what is left of their scores.

    `found` come best first, with their `scores`.
    """
    left = [(n, scores[n]) for n in range(min(UNSPREAD, len(found)))]
    groups: dict[int, list[tuple[float, int]]] = {}
    counts: dict[int, int] = {}
    for n, _ in left:
        counts[found[n].group] = counts.get(found[n].group, 0) + 1
    adding = list(_adding(found))
    for n in range(len(left), len(found)):
        groups.setdefault(found[n].group, []).append((scores[n] * (1.0 if adding[n] else ADDS_NOTHING), n))
    for of_group in groups.values():
        of_group.sort(key=lambda one: (one[0], -one[1]))  # the best is the last
    heads = [_group_rank(group, of_group, counts.get(group, 0)) for group, of_group in groups.items()]
    heapify(heads)
    while heads:
        score, n, group = heads[0]
        left.append((n, -score))
        groups[group].pop()
        counts[group] = counts.get(group, 0) + 1
        if groups[group]:
            heapreplace(heads, _group_rank(group, groups[group], counts[group]))
        else:
            heappop(heads)
    return left


def _group_rank(group: int, of_group: Sequence[tuple[float, int]], count: int) -> tuple[float, int, int]:
    score, n = of_group[-1]
    return -score * GROUP_DECAY**count, n, group


def _adding(found: Sequence[Spreadable]) -> Iterator[bool]:
    """Yield for each find whether it adds a word to all better ones of the same speaker."""
    terms = [frozenset(one.terms) for one in found]
    rarest = [max(own, key=len) if TERMS_MIN <= len(own) <= TERMS_MAX else "" for own in terms]  # long words are rare
    sought = frozenset(rarest)
    said: dict[tuple[str, str, str], list[frozenset[str]]] = {}
    for one, own, rare in zip(found, terms, rarest, strict=True):
        better = said.get((one.role, one.speaker, rare), ()) if rare else ()
        yield not any(own <= other for other in better)
        for term in sought & own:
            said.setdefault((one.role, one.speaker, term), []).append(own)
