"""The candidates of a search, from lookups: each with the passage before it and its neighbours."""

from collections.abc import Mapping, Sequence
from zlib import crc32

import msgspec

from memory_engine.core.clock import DAY_US
from memory_engine.recall.question import Question
from memory_engine.recall.ranking import Candidate, Statistics
from memory_engine.store.passages import PLACES_BITS, THREAD_BITS, LookedUp, PassageRow

UNORDERED = frozenset({"agent_md", "item", "pattern", "playbook", "preference"})
"""Kinds whose passages have nothing to do with their neighbours."""
_NOWHERE: Mapping[int, int] = {}


class Choice(msgspec.Struct, frozen=True):
    """Candidates of all threads by place, with the counts of these threads, whose ids are by the numbers in places."""

    candidates: Mapping[int, Candidate]
    statistics: Statistics
    keys: Mapping[int, str]
    thread_ids: Sequence[str]

    def terms_at(self, passage: tuple[str, int, int]) -> Sequence[str] | None:
        """The terms of a candidate, by its thread, its event's seq, and which of the event's it is."""
        thread_id, seq, n = passage
        if thread_id not in self.thread_ids:
            return None
        number = self.thread_ids.index(thread_id)
        found = self.candidates.get(number << THREAD_BITS | seq << PLACES_BITS | n)
        return None if found is None else found.terms


class Gathered:
    """The candidates of look-ups, one after the other, with what they count."""

    def __init__(self, question: Question) -> None:
        self.waiting = self.unindexed = 0
        self._asked_for = frozenset((*question.terms, *question.further))
        self._thread_ids: list[str] = []
        self._found: list[Candidate] = []
        self._keys: dict[int, str] = {}
        self._passages = self._terms = 0
        self._holding: dict[str, int] = dict.fromkeys(question.terms, 0)

    def add(self, looked: LookedUp, cosines: Mapping[int, float], thread_ids: Sequence[str]) -> None:
        """Take what a look-up has found; `thread_ids` are by the numbers in its places."""
        offset = len(self._thread_ids) << THREAD_BITS
        self._found += (
            one
            for one in _candidates(looked, cosines, offset)
            if one.beside or one.place - offset in looked.listed or _is_related(one, self._asked_for)
        )
        self._keys.update([(offset + place, row.key) for place, row in looked.rows.items() if row.key])
        self._thread_ids += thread_ids
        self.unindexed += looked.lacking + looked.unread
        self._passages += looked.passages
        self._terms += looked.terms
        for term, count in looked.holding.items():
            self._holding[term] = self._holding.get(term, 0) + count

    def choice(self) -> Choice:
        """All of it."""
        average = self._terms / self._passages if self._passages else 0.0
        counted = Statistics(self._passages, average, self._holding)
        return Choice({one.place: one for one in self._found}, counted, self._keys, self._thread_ids)


def _candidates(looked: LookedUp, cosines: Mapping[int, float], offset: int) -> list[Candidate]:
    rows = looked.rows
    made: dict[int, Candidate] = {}
    beside: dict[int, dict[int, int]] = {}
    for best, around in looked.around.items():
        for place, far in around.items():
            if place in rows and _belong(rows[best], rows[place], far):
                beside.setdefault(place, {})[offset + best] = far

    def candidate(place: int, before: Candidate | None = None) -> Candidate:
        row = rows[place]
        # passages of one day in two threads do not belong together
        group = offset + (place >> THREAD_BITS << THREAD_BITS) + _passage_group(row)
        said, terms = (row.kind, row.role, row.speaker, row.at_us, group), row.terms.split()
        return Candidate(offset + place, *said, terms, cosines.get(place), before, beside.get(place, _NOWHERE))

    for place in sorted(looked.chosen):  # the passage before a candidate is often one itself, and made already
        before = looked.before.get(place)
        if before is None or not _follows(rows[place], rows[before]):
            made[place] = candidate(place)
            continue
        if before not in made:
            made[before] = candidate(before)
        made[place] = candidate(place, made[before])
    return [made[place] for place in looked.chosen]


def _is_related(candidate: Candidate, asked_for: frozenset[str]) -> bool:
    """Whether its words, its meaning or the passage before it brought a passage here, and not only its place."""
    before = candidate.before
    return (
        candidate.cosine is not None
        or not asked_for.isdisjoint(candidate.terms)
        or (before is not None and not asked_for.isdisjoint(before.terms))
    )


def _follows(row: PassageRow, before: PassageRow) -> bool:
    """Whether a passage may answer or continue the one before it."""
    if row.kind in UNORDERED or before.kind in UNORDERED:
        return False
    return _passage_group(row) == _passage_group(before) if row.kind == "document" else before.kind != "document"


def _belong(best: PassageRow, other: PassageRow, far: int) -> bool:
    """Return whether a passage may belong to `best`, `far` places before it (less than 0) or after it."""
    return _follows(other, best) if far > 0 else _follows(best, other)


def _passage_group(row: PassageRow) -> int:
    """The group of a passage: its document, or its day; a passage without an order is a group of its own."""
    if row.kind in UNORDERED:
        return -row.place
    if row.kind == "document":
        return crc32(":".join(row.key.split(":")[:2]).encode(errors="replace"))
    return row.at_us // DAY_US
