"""Likeness of texts by their words, without any model."""

from collections.abc import Mapping
from heapq import nlargest, nsmallest
from math import log, sqrt

from memory_engine.recall.base import Match
from memory_engine.recall.words import features

COMMON_ENTRIES_MIN = 200
"""From so many entries on, a feature that more than half of them have is skipped: it tells none from another."""
VISITS_MAX = 12_000
"""What one search may visit in the postings, rarest features first: a few milliseconds."""
CANDIDATES_MIN = 64
CANDIDATES_PER_RESULT = 4
SCORE_DIGITS = 6
"""Scores are rounded: the same entries give the same figures, whatever order they came in."""


class LexicalIndex:
    """Texts by key, and which are like another: cosine of weighted words and pieces of words (tf-idf).

    What it answers depends on the entries alone, not on the order in which they came or
    changed. A candidate is chosen by what it has in common with the query, then measured
    exactly; with up to 64 entries all are. Any script, any text; the first 8,192 characters count.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._entries: dict[int, tuple[str, tuple[str, ...], tuple[float, ...]]] = {}
        # a posting's weight is the feature's share of its entry
        self._postings: dict[str, dict[int, float]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: str, text: str) -> None:
        """Add an entry, or replace the one under this key."""
        self.remove(key)
        weights, _ = features(text)
        number, self._next = self._next, self._next + 1
        self._numbers[key] = number
        length = sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        self._entries[number] = (key, tuple(weights), tuple(weights.values()))
        for feature, weight in weights.items():
            self._postings.setdefault(feature, {})[number] = weight / length

    def remove(self, key: str) -> None:
        """Remove the entry under a key, if there is one."""
        number = self._numbers.pop(key, None)
        if number is None:
            return
        for feature in self._entries.pop(number)[1]:
            postings = self._postings[feature]
            del postings[number]
            if not postings:
                del self._postings[feature]

    def search(self, text: str, limit: int, *, threshold: float = 0.0) -> list[Match]:
        """At most `limit` entries with a score of at least `threshold` and above 0, best first, equal ones by key.

        An empty text is like nothing.
        """
        found, shown = features(text)
        query = {feature: weight * self._rarity(feature) for feature, weight in found.items()}
        length = sqrt(sum(weight * weight for weight in query.values()))
        if limit < 1 or not length:
            return []
        candidates = self._candidates(query, max(CANDIDATES_MIN, CANDIDATES_PER_RESULT * limit))
        rarities: dict[str, float] = {}
        scored = [(self._score(query, number, rarities) / length, number) for number in candidates]
        rounded = [(round(score, SCORE_DIGITS), self._entries[number][0], number) for score, number in scored]
        good = [(-score, key, number) for score, key, number in rounded if score >= threshold and score > 0]
        return [
            Match(key, min(1.0, -negative), self._shared(number, query, shown))
            for negative, key, number in nsmallest(limit, good)
        ]

    def _rarity(self, feature: str) -> float:
        return log(1 + len(self._entries) / (len(self._postings.get(feature, ())) or 1))

    def _candidates(self, query: Mapping[str, float], limit: int) -> list[int]:
        """The entries (by number) that have most in common with the query for their own size."""
        overlaps = self._overlaps(query)
        if len(overlaps) <= limit:
            return list(overlaps)
        least = nlargest(limit, overlaps.values())[-1]
        best = [number for number, overlap in overlaps.items() if overlap >= least]
        return sorted(best, key=lambda number: (-overlaps[number], self._entries[number][0]))[:limit]

    def _overlaps(self, query: Mapping[str, float]) -> dict[int, float]:
        """What entries have in common with the query, the common features weighed by their share of the entry."""
        postings = self._postings
        held = sorted((len(postings[feature]), feature) for feature in query if feature in postings)
        many = len(self._entries) >= COMMON_ENTRIES_MIN
        overlaps: dict[int, float] = {}
        visited = 0
        for count, feature in held:
            if visited and (visited + count > VISITS_MAX or (many and 2 * count > len(self._entries))):
                break
            visited += count
            factor = query[feature] * self._rarity(feature)
            for number, share in postings[feature].items():
                overlaps[number] = overlaps.get(number, 0.0) + factor * share
        return overlaps

    def _score(self, query: Mapping[str, float], number: int, rarities: dict[str, float]) -> float:
        """The cosine of an entry and the query, but for the query's length."""
        _, names, weights = self._entries[number]
        common = squares = 0.0
        for feature, weight in zip(names, weights, strict=True):
            rarity = rarities.get(feature)
            if rarity is None:
                rarity = rarities[feature] = self._rarity(feature)
            value = weight * rarity
            squares += value * value
            if feature in query:
                common += value * query[feature]
        return common / sqrt(squares)

    def _shared(self, number: int, query: Mapping[str, float], shown: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(shown[feature] for feature in self._entries[number][1] if feature in query and feature in shown)
