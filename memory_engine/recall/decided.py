"""Decided pairs of statements: which of a search's hits a later one is known to replace.

A model or a person decided that, and the log recorded it (see `views.statements`): a search only reads decisions. A
replaced statement comes after its replacement, which joins the hits if it fits the search, and the hit names both
events. Where they decided that a statement still holds, the rules of `superseding` do not move it either.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from memory_engine.recall.hits import Hit, passage_of
from memory_engine.recall.index import DecidedPair
from memory_engine.recall.ranking import SCORE_DIGITS, Ranked
from memory_engine.store.passages import PLACES_BITS, THREAD_BITS

DECIDED = "decided"
"""Signal of a hit that is lifted because a decision says that it replaces another."""
THREADS_READ = 8
"""Maximum number of threads whose decisions one search reads: those with the best hits."""
ADDED_MAX = 20
"""Maximum number of replacements of one hit that join the hits of a search: the newest."""
RANKED_READ = 80
"""Number of best hits for whose replacements a search looks."""
Passage = tuple[str, int, int]
"""A passage: its thread, its event's seq, and which of the event's (see `Hit.passage`)."""


class Decided:
    """The decided pairs that a search may have to do with."""

    def __init__(self, pairs: Mapping[str, Sequence[DecidedPair]]) -> None:
        """Make it of the pairs of each thread."""
        self._decided_by: dict[tuple[Passage, Passage], str] = {}
        self._newer: dict[Passage, list[Passage]] = {}
        self._older: dict[Passage, list[Passage]] = {}
        self._holding: set[tuple[Passage, Passage]] = set()
        for thread_id, pair in ((thread_id, pair) for thread_id, found in pairs.items() for pair in found):
            older, newer = (thread_id, *pair.older), (thread_id, *pair.newer)
            if not pair.is_replaced:
                self._holding.add((older, newer))
                continue
            self._decided_by[older, newer] = pair.decided_by
            self._newer.setdefault(older, []).append(newer)
            self._older.setdefault(newer, []).append(older)
        for newer_ones in self._newer.values():
            newer_ones.sort(reverse=True)

    def holds(self, older: Hit, newer: Hit) -> bool:
        """Return True if a decision says that the newer hit does not replace the older one."""
        return (older.passage, newer.passage) in self._holding

    def concerned(self, ranked: Iterable[Ranked], thread_ids: Sequence[str]) -> Iterator[int]:
        """Yield the places of the ranked that are replaced or replace another."""
        if self._newer:
            for one in ranked:
                if (passage := passage_of(one.place, thread_ids)) in self._newer or passage in self._older:
                    yield one.place

    def lacking(self, ranked: Sequence[Ranked], thread_ids: Sequence[str]) -> dict[str, list[int]]:
        """Return the places, by thread, of what replaces the best of the ranked and is not among all of them."""
        if not self._newer:
            return {}
        known = {passage_of(one.place, thread_ids) for one in ranked}
        found: dict[str, list[int]] = {}
        for one in ranked[:RANKED_READ]:
            reached = _reached(passage_of(one.place, thread_ids), self._newer) - known
            for passage in sorted(reached, reverse=True)[:ADDED_MAX]:
                known.add(passage)
                found.setdefault(passage[0], []).append(passage[1] << PLACES_BITS | passage[2])
        return found

    def replaces(self, hit: Hit) -> bool:
        """Return True if a decision says that the hit replaces another statement."""
        return hit.passage in self._older

    def settled(self, hits: Sequence[Hit], asks: Literal["now", "before", "event"]) -> list[Hit]:
        """Return the hits, replaced ones after their replacements, and marked.

        If the question asks what was before, the order is the reverse; if for a past event, it stays. Added
        replacements that do not come before what they replace are left out.
        """
        if not self._newer:
            return list(hits)
        events = {hit.passage: hit.event_id for hit in hits}
        known = {hit.passage: self._marked(hit, events) for hit in hits}
        ahead: dict[str, Mapping[Passage, Sequence[Passage]]] = {"now": self._newer, "before": self._older}
        order: dict[Passage, Hit] = {}
        for hit in known.values():
            if not hit.why:
                continue
            first = [known[one] for one in _reached(hit.passage, ahead.get(asks, {})) if one in known]
            for other in sorted(first, key=lambda one: (one.at, one.passage), reverse=asks == "now"):
                order.setdefault(other.passage, lifted(other, hit))
            order.setdefault(hit.passage, hit)
        return list(order.values())

    def _marked(self, hit: Hit, events: Mapping[Passage, str]) -> Hit:
        """The hit with the newest of the hits that replaces it, if one does."""
        newer = next((one for one in self._newer.get(hit.passage, ()) if one in events), None)
        if newer is None:
            return hit
        return replace(hit, superseded_by=events[newer], decided_by=self._decided_by[hit.passage, newer])


def _reached(passage: Passage, ahead: Mapping[Passage, Sequence[Passage]]) -> set[Passage]:
    """Return all passages that can be reached from one by steps to a passage ahead."""
    found: set[Passage] = set()
    waiting = [passage]
    while waiting:
        new = set(ahead.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def lifted(hit: Hit, other: Hit, signal: str = DECIDED) -> Hit:
    """Return the hit with the score of the hit whose place it takes; the gain is a separate signal."""
    gained = round(other.score - hit.score, SCORE_DIGITS)
    why = f"{signal} {gained:.2f}" + (f", {hit.why}" if hit.why else "")
    return replace(hit, score=other.score, parts={**hit.parts, signal: gained}, why=why)


def threads_to_read(ranked: Sequence[Ranked], thread_ids: Sequence[str]) -> list[str]:
    """Return the threads of the best hits."""
    return list(dict.fromkeys(thread_ids[one.place >> THREAD_BITS] for one in ranked[:RANKED_READ]))[:THREADS_READ]
