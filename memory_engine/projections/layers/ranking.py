"""Relevance without a model: BM25 over words and their inflections, near-duplicates collapsed.

The entries with the most, and rarest, of the query's words are found by bit-sliced sums over the
index; these few are then measured exactly.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from attrs import frozen

from memory_engine.projections.layers.indexing import EntryIndex
from memory_engine.projections.layers.planes import Planes, add, times
from memory_engine.projections.layers.scoring import (
    QueryWord,
    bm25,
    idf,
    inflects,
    is_near_duplicate,
    is_unspaced,
    query_terms,
    telling_words,
    words,
)

POOL_MIN = 100
POOL_PER_HIT = 4
QUERY_WORDS_MAX = 32
"""Of a longer query the rarest words are asked for: a task's whole text may be a query."""
WORDS_READ = 8_192
"""So many characters of an entry are measured."""
_WEIGHT_STEPS = 8


@frozen
class Ranked:
    """An entry's key with its score, the words that it was found by, and the keys of entries that say the same."""

    key: str
    score: float
    words: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()


class Ranker(Protocol):
    """Orders the entries of an index for a query."""

    def __call__(self, index: EntryIndex, query: str, limit: int) -> list[Ranked]:
        """At most `limit` entries, the most relevant first."""
        ...


def rank_by_words(index: EntryIndex, query: str, limit: int) -> list[Ranked]:
    """By words; none where no word of the query is found."""
    asked, pooled = _pool(index, query, max(POOL_MIN, POOL_PER_HIT * limit))
    average = index.average_runs / 2
    measured = []
    for place in pooled:
        counts = Counter(words(index.texts[place][:WORDS_READ]))
        score = round(bm25(asked, counts, average), 6)
        measured.append((score, index.times[place], place, counts))
    measured.sort(key=lambda one: one[:3], reverse=True)
    return _collapsed(index, asked, measured, limit)


def rank_by_keywords(index: EntryIndex, query: str, limit: int) -> list[Ranked]:
    """By the points of keyword search alone."""
    best = index.best(index.points(query_terms(query)), limit)
    return [Ranked(index.keys[place], float(points)) for place, points in best]


def _pool(index: EntryIndex, query: str, limit: int) -> tuple[list[QueryWord], list[int]]:
    """The query's words, the rarest first, and the places of the entries that hold the most of them."""
    found: list[tuple[QueryWord, Planes]] = []
    for word in telling_words(query):
        parts = tuple(word[n : n + 2] for n in range(max(1, len(word) - 1))) if is_unspaced(word) else ()
        here = index.holding(_fitting(index, word, parts))
        if here:
            found.append((QueryWord(word, idf(here.bit_count(), len(index.keys)), parts), (here,)))
    found.sort(key=lambda one: -one[0].idf)
    total: Planes = ()
    for asked, planes in found[:QUERY_WORDS_MAX]:
        total = add(total, times(planes, max(1, round(asked.idf * _WEIGHT_STEPS))))
    return [asked for asked, _ in found[:QUERY_WORDS_MAX]], [place for place, _ in index.best(total, limit)]


def _fitting(index: EntryIndex, word: str, parts: tuple[str, ...]) -> list[str]:
    """The runs that a word of the query may mean."""
    if parts:
        return [run for part in parts for run in index.runs(containing=part)]
    return [run for run in index.runs(beginning=QueryWord.beginning_of(word)) if inflects(word, run)]


def _collapsed(
    index: EntryIndex,
    asked: list[QueryWord],
    measured: list[tuple[float, int, int, Counter[str]]],
    limit: int,
) -> list[Ranked]:
    kept: list[tuple[float, int, Mapping[str, int], list[str]]] = []
    for score, _, place, counts in measured:
        twin = next((one for one in kept if is_near_duplicate(one[2], counts)), None)
        if twin is not None:
            twin[3].append(index.keys[place])
        elif len(kept) < limit:
            kept.append((score, place, counts, []))
    return [
        Ranked(
            index.keys[place],
            score,
            tuple(word.word for word in asked if word.frequency(counts)),
            tuple(alike),
        )
        for score, place, counts, alike in kept
        if score > 0
    ]
