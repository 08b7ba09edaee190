"""Look up passages: the candidates, and their neighbours. Every back end runs this code.

A back end gives the rows (`PassageReader`), all of one moment. A lookup drops what it excludes (other kinds and times,
what has ended) is left out while candidates are gathered, never from a list that was cut before: however much of it
there is, it takes the place of nothing that is looked for.
"""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from itertools import pairwise
from math import log
from typing import Protocol, TypeVar

import msgspec

from memory_engine.storage.passage_rows import Waiting, family
from memory_engine.store.passages import PLACES_BITS, THREAD_BITS, LookedUp, LookUp, PassageRow, index_version

T = TypeVar("T")

READ_MAX = 16_000
READ_MIN = 500
"""Entries read of all terms' lists together, and at least of each: the latest passages that hold it."""
COUNTED_MAX = 512
"""Passages with a term that are counted at most; the rest is inferred from how close together these are.

The same for every question, so that a word's count serves the next question as well (see `Lists`).
"""
LEFT_OUT_MAX = 2_000
"""Up to this many passages that ended are known by their places; of more, each entry is looked up."""
ROWS_MAX = 400
"""Passages of which rows are read to see whether they hold a frequent term; for more of them, its list is read."""
SUCCESSORS_OF = 30
"""The best by words, and by meaning, whose successors become candidates too: these may answer them."""
AROUND_OF = 15
"""The best by words, and by meaning, of which also those a little further on or back become candidates."""
AROUND = 3
"""How far: an answer may come some turns after the words of its question."""
NEVER = 1 << 62
LAST_PLACE = (1 << THREAD_BITS) - 1
"""Beyond all places of a thread."""


class Stand(msgspec.Struct, frozen=True):
    """How far an index has come: its version and seq, the place up to which words are indexed, and its counters.

    `last` is the last place of several threads, 0 for one.
    """

    version: int
    seq: int
    folded: int
    passages: int
    terms: int
    last: int = 0


class ListPart(msgspec.Struct, frozen=True):
    """A part of a thread whose lists are read apart: from which place on, with which kinds, family and prefix of keys.

    `family` is "" where a prefix has none; `prefix` is "" where the family says it all. `unwanted` kinds are left out.
    """

    first: int
    kinds: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    family: str = ""
    prefix: str = ""


class PassageReader(Protocol):
    """Rows of the index of one thread, or of several, of one moment. Places are in the order named, each once.

    Over several threads a place begins with its thread's number, so its neighbours are of the same thread.
    """

    def extent(self, place: int) -> int:
        """How much there is before a place, in any unit: passages are spread evenly over it."""
        ...

    async def stand(self) -> Stand | None:
        """The position that the index has reached; `None` without an index."""
        ...

    async def counted(self, last: int) -> tuple[int, int]:
        """The number of passages up to a place, and of their terms."""
        ...

    async def waiting(self, after: int, last: int) -> tuple[Sequence[Waiting], int]:
        """Passages above a place up to another, in order, and how many others there are.

        As many are read as can be in a quarter of a second, since their words are taken of their texts; of more the
        latest, but the later ones of a long event last.
        """
        ...

    async def said_between(self, since_us: int, until_us: int) -> tuple[int, int] | None:
        """The first and the last place of what was said between two times; `None` for nothing."""
        ...

    async def ended_by(self, seq: int, limit: int) -> Sequence[int]:
        """Places of passages that had ended at a seq, in any order."""
        ...

    async def latest(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        """For each term and each part, the newest indexed passages that hold it, at most `limit`, newest first."""
        ...

    async def counts(
        self, terms: Sequence[str], part: ListPart, span: tuple[int, int], most: int
    ) -> Mapping[str, tuple[int, int]] | None:
        """For each term how many passages `latest` would give, and the last of these.

        `None` where counting them costs as much as reading them.
        """
        ...

    async def latest_fitting(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        """The same, of the passages that the look-up lets through."""
        ...

    async def listed(self, since_us: int, until_us: int, limit: int) -> Sequence[int]:
        """Places of what was said between two times and is let through, by time and then by place."""
        ...

    async def around(self, places: Sequence[int], before: int, after: int, last: int) -> Mapping[int, Sequence[int]]:
        """For each place that many passages before it, and after it up to `last`: all of them in order."""
        ...

    async def neighbours(self, places: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        """For each existing place, the places before and after it in the thread; 0 at an end."""
        ...

    async def rows(self, places: Sequence[int]) -> Mapping[int, PassageRow]:
        """The passages at these places that there are; of several threads, those of others are not."""
        ...


def at_once(work: "Coroutine[object, object, T]") -> T:
    """The result of a coroutine that waits for nothing: one whose reader answers at once."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("it waits for something")


async def look_up(reader: PassageReader, head: int, wanted: LookUp) -> LookedUp:
    """See `PassageIndex.look_up`."""
    stand = await reader.stand()
    if stand is None or stand.version != index_version():
        return LookedUp(head=head, lacking=min(wanted.upto or head, head))
    passages, terms = stand.passages, stand.terms
    last = stand.last or last_place(wanted)
    if wanted.upto:
        passages, terms = await reader.counted(last)
    unindexed, unread = await reader.waiting(stand.folded, last)
    terms += sum(one.size or 0 for one in unindexed)
    rows = _RowsOnce(reader)
    postings = _Postings(reader, rows, (0, min(stand.folded, last)), wanted)
    holding, scores = await postings.score(passages, [one for one in unindexed if _waits(one, wanted)])
    best = _best(scores, wanted.limit)
    near = await _nearest(rows, last, wanted) if wanted.near_max else wanted.near
    sought = _Sought(best, near, await _listed_places(reader, wanted))
    chosen = await _chosen(reader, rows, last, (sought, wanted))
    return LookedUp(
        seq=stand.seq,
        head=head,
        lacking=max(0, (min(wanted.upto, head) if wanted.upto else head) - stand.seq),
        unindexed=len(unindexed) + unread,
        unread=unread,
        passages=passages,
        terms=terms,
        holding=holding,
        near=len(near),
        listed=frozenset(sought.listed),
        chosen=chosen.shown,
        rows=chosen.rows,
        before=chosen.before,
        around={
            place: {other: far for other, far in found.items() if far >= -AROUND}
            for place, found in chosen.around.items()
        },
    )


def _raised(scores: dict[int, float], places: Sequence[int], weight: float) -> dict[int, float]:
    """The scores with so much more for some places, each there once. Walks the fewer of both."""
    if len(places) < len(scores):
        for place in places:
            scores[place] = scores.get(place, 0.0) + weight
        return scores
    raised = dict.fromkeys(places, weight)
    for place, score in scores.items():
        raised[place] = score + raised.get(place, 0.0)
    return raised


def _least(scores: Mapping[int, float], limit: int) -> float:
    """The lowest score among the best `limit`; there are at least `limit`."""
    return sorted(scores.values(), reverse=True)[limit - 1]


def _best(scores: Mapping[int, float], limit: int) -> list[int]:
    """The `limit` places with the greatest scores, best first; of equal ones the latest."""
    if limit < 1:
        return []
    least = _least(scores, limit) if len(scores) > limit else 0.0
    best = sorted(((score, place) for place, score in scores.items() if score >= least), reverse=True)
    return [place for _, place in best[:limit]]


def last_place(wanted: LookUp) -> int:
    """The last place that a look-up sees."""
    return ((wanted.upto + 1) << PLACES_BITS) - 1 if wanted.upto else LAST_PLACE


def first_place(seq: int) -> int:
    """The place of an event's first passage."""
    return seq << PLACES_BITS


async def _nearest(rows: "_RowsOnce", last: int, wanted: LookUp) -> list[int]:
    """The nearest that a look-up lets through: as a rule the first ones, of which the rows are needed anyway."""
    near, most = wanted.near, wanted.near_max
    found: list[int] = []
    for some in (near[:most], near[most:]):
        if len(found) < most:
            there = await rows.at(some)
            found += [place for place, row in there.items() if place <= last and _passes_filters(row, wanted)]
    return found[:most]


async def _listed_places(reader: PassageReader, wanted: LookUp) -> list[int]:
    """The places of the passages of the times that are listed."""
    found: list[int] = []
    for since, until in wanted.listed:
        found += await reader.listed(since, until, wanted.listed_max - len(found))
    return found


def _waits(one: Waiting, wanted: LookUp) -> bool:
    """Whether a look-up lets a passage through whose words are not indexed yet."""
    return _passes_filters(PassageRow(one.place, one.kind, "", "", one.at_us, one.key, "", ended=one.ended), wanted)


class _RowsOnce:
    """The rows of one look-up, each read once."""

    def __init__(self, reader: PassageReader) -> None:
        self._reader = reader
        self._known: dict[int, PassageRow] = {}

    async def at(self, places: Sequence[int]) -> dict[int, PassageRow]:
        """Return the passages at those of the places that hold one."""
        if missing := [place for place in places if place not in self._known]:
            self._known.update(await self._reader.rows(missing))
        return {place: self._known[place] for place in places if place in self._known}


class _Postings:
    """The passages that hold each of the asked terms, and that are let through."""

    def __init__(self, reader: PassageReader, rows: _RowsOnce, span: tuple[int, int], wanted: LookUp) -> None:
        self._reader = reader
        self._rows = rows
        self._wanted = wanted
        self._span = span
        self._parts = list(_list_parts(wanted))
        self._most = max(READ_MIN, wanted.limit, READ_MAX // max(1, len(wanted.terms) * len(self._parts)))

    async def score(self, passages: int, late: Sequence[Waiting]) -> tuple[dict[str, int], dict[int, float]]:
        """How many passages hold each term, and the sum of idf of the passages for which it may be among the greatest.

        The lists are read from the rarest on, until passages that hold only more frequent terms cannot come before the
        best. Of these terms only those that the best may hold are looked for.
        """
        held = _unindexed_holders(late, self._wanted.terms)
        self._span = await _of_time(self._reader, self._span, self._wanted)
        lists = await self._lists()
        holding = {term: found.count + len(held[term]) for term, found in lists.items()}
        weights = {term: log(1 + passages / count) for term, count in holding.items() if count}
        scores: dict[int, float] = {}
        rarest = sorted(weights, key=lambda term: (holding[term], term))
        left, rest = self._wanted.postings_max, sum(weights.values())
        more: Sequence[int] = ()
        while rarest and left > 0 and not self._is_settled(scores, rest):
            if len(rarest) == 1 and lists[rarest[0]].places is None:  # what holds no other term: the latest are best
                term = rarest[0]
                more = [*held[term], *await self._places(term, lists[term], self._wanted.limit + len(scores))]
                break
            term = rarest.pop(0)
            found = [*held[term], *await self._places(term, lists[term])]
            scores = _raised(scores, found[:left], weights[term])
            left -= len(found)
            rest -= weights[term]
        best = self._which_may_be_best(scores, rest) if rarest else []
        for term, places in (await self._among(rarest, best, lists)).items():
            for place in scores.keys() & [*held[term], *places]:
                scores[place] += weights[term]
        for place in more:
            scores.setdefault(place, weights[rarest[0]])
        return holding, scores

    def _is_settled(self, scores: Mapping[int, float], rest: float) -> bool:
        """Whether passages that hold none of the terms so far, but all others, still come after the best so far."""
        limit = self._wanted.limit
        return len(scores) >= limit and _least(scores, limit) > rest

    def _which_may_be_best(self, scores: Mapping[int, float], rest: float) -> list[int]:
        """The places that are among the best if they hold all other terms."""
        limit = self._wanted.limit
        least = _least(scores, limit) - rest if len(scores) > limit else 0.0
        return [place for place, score in scores.items() if score >= least]

    async def _among(
        self, terms: Sequence[str], places: Sequence[int], lists: "Mapping[str, _List]"
    ) -> Mapping[str, Sequence[int]]:
        """Those of some places that hold each term, and maybe others that do."""
        if len(places) > ROWS_MAX or any(lists[term].places is not None for term in terms):
            return {term: await self._places(term, lists[term]) for term in terms}
        rows = await self._rows.at(places) if terms else {}
        words = {place: f" {row.terms} " for place, row in rows.items()}
        return {term: [place for place, of_it in words.items() if f" {term} " in of_it] for term in terms}

    async def _places(self, term: str, known: "_List", most: int = READ_MAX) -> Sequence[int]:
        """A term's list, read now if it was only counted: at most `most`, newest first."""
        if known.places is not None:
            return known.places
        return (await self._reader.latest((term,), self._parts, self._span, min(most, self._most)))[term][0]

    async def _lists(self) -> "dict[str, _List]":
        """For each term how many hold it; with the list, where it had to be read for that."""
        terms = tuple(dict.fromkeys(self._wanted.terms))
        if not terms:
            return {}
        wanted = self._wanted
        left_out = await _ended_places(self._reader, wanted)
        is_narrow = wanted.since_us is not None or wanted.until_us is not None
        if left_out is None or is_narrow or any(part.prefix for part in self._parts):
            lists = await self._reader.latest_fitting(terms, self._parts, self._span, self._most)
            return {term: self._read(lists[term]) for term in terms}
        if not left_out and len(self._parts) == 1 and len(terms) > 1:
            counted = await self._reader.counts(terms, self._parts[0], self._span, COUNTED_MAX)
            if counted is not None:
                return {term: _List(self._count(*counted[term])) for term in terms}
        lists = await self._reader.latest(terms, self._parts, self._span, self._most + len(left_out))
        if not left_out:
            return {term: self._read(lists[term]) for term in terms}
        return {term: self._read([self._left(part, left_out) for part in lists[term]]) for term in terms}

    def _read(self, parts: Sequence[Sequence[int]]) -> "_List":
        places = self._merged(parts)
        counted = places[:COUNTED_MAX]
        return _List(self._count(len(counted), counted[-1] if counted else 0), places)

    def _left(self, places: Sequence[int], without: frozenset[int]) -> list[int]:
        return [place for place in places if place not in without][: self._most]

    def _merged(self, parts: Sequence[Sequence[int]]) -> Sequence[int]:
        if len(parts) == 1:
            return parts[0]
        return sorted({place for part in parts for place in part}, reverse=True)[: self._most]

    def _count(self, latest: int, earliest: int) -> int:
        """The number of passages with a term, of which the newest `latest`, down to `earliest`, were counted."""
        if latest < COUNTED_MAX:
            return latest
        extent = self._reader.extent
        first, last = map(extent, self._span)
        return round(latest * (last - first) / max(1, last - extent(earliest)))


class _List(msgspec.Struct, frozen=True):
    """How many passages hold a term, and the latest of them, where these were read."""

    count: int
    places: Sequence[int] | None = None


def _list_parts(wanted: LookUp) -> Iterator[ListPart]:
    """How to read each term's list."""
    if not wanted.within:
        yield ListPart(0, wanted.kinds, wanted.unwanted)
    for prefix, seq in wanted.within:
        own = family(prefix)
        yield ListPart(first_place(seq), wanted.kinds, wanted.unwanted, own, "" if own == prefix else prefix)


async def _of_time(reader: PassageReader, span: tuple[int, int], wanted: LookUp) -> tuple[int, int]:
    """The part of a span that holds all that was said between the times looked for."""
    if wanted.since_us is None and wanted.until_us is None:
        return span
    since = -(1 << 63) if wanted.since_us is None else wanted.since_us
    until = (1 << 63) - 1 if wanted.until_us is None else wanted.until_us
    bounds = await reader.said_between(since, until)
    return (span[0], span[0]) if bounds is None else (max(bounds[0], span[0]), min(bounds[1], span[1]))


async def _ended_places(reader: PassageReader, wanted: LookUp) -> frozenset[int] | None:
    """The places of what had ended at the moment of the query; `None` where these are too many."""
    found = await reader.ended_by(wanted.upto or NEVER, LEFT_OUT_MAX + 1)
    return frozenset(found) if len(found) <= LEFT_OUT_MAX else None


def _unindexed_holders(late: Sequence[Waiting], terms: Sequence[str]) -> dict[str, list[int]]:
    """The unindexed passages that hold each term."""
    found: dict[str, list[int]] = {term: [] for term in terms}
    for one in late:
        words = f" {one.words} "
        for term, places in found.items():
            if f" {term} " in words:
                places.append(one.place)
    return found


class _Sought(msgspec.Struct, frozen=True):
    """The places that a look-up gathers: those with the rarest words, the nearest, and those of the times listed."""

    best: Sequence[int]
    near: Sequence[int]
    listed: Sequence[int]

    def first(self, count: int) -> list[int]:
        """The best `count` by words, and by meaning."""
        return list(dict.fromkeys((*self.best[:count], *self.near[:count])))


class _Chosen(msgspec.Struct, frozen=True):
    """The candidates' places, their rows and those before them, the place before each, and those around some."""

    shown: list[int]
    rows: dict[int, PassageRow]
    before: dict[int, int]
    around: dict[int, dict[int, int]]


async def _chosen(reader: PassageReader, read: _RowsOnce, last: int, of: tuple[_Sought, LookUp]) -> _Chosen:
    sought, wanted = of
    around = await _neighbour_offsets(reader, last, sought.first(AROUND_OF)) if wanted.terms else {}
    asked = dict.fromkeys((*sought.best, *(place for place in sought.near if place <= last), *sought.listed))
    links = await reader.neighbours([place for place in asked if place not in around])
    before = {after: place for place, (_, after) in links.items() if after}
    before.update((place, earlier) for place, (earlier, _) in links.items() if earlier)
    later = [links[place][1] for place in sought.first(SUCCESSORS_OF) if place in links and 0 < links[place][1] <= last]
    for place, found in around.items():
        before.update((after, earlier) for earlier, after in pairwise(sorted((place, *found))))
    beside = (other for found in around.values() for other, far in found.items() if far >= -AROUND)
    chosen = asked | dict.fromkeys(later) | dict.fromkeys(beside)
    before = {place: before[place] for place in chosen if place in before}
    rows = await read.at(list(dict.fromkeys((*chosen, *before.values()))))
    shown = [place for place in chosen if place in rows and _passes_filters(rows[place], wanted)]
    stands = {place for place, row in rows.items() if _stands(row, wanted)}
    return _Chosen(shown, rows, {place: before[place] for place in shown if before.get(place) in stands}, around)


async def _neighbour_offsets(reader: PassageReader, last: int, places: Sequence[int]) -> dict[int, dict[int, int]]:
    """For each place the few before and after it, with how far on they are (those before it: less than 0).

    One more is before them than is looked at: the words of each are read with those of the one before.
    """
    beside = await reader.around(places, AROUND + 1, AROUND, last) if places else {}
    found: dict[int, dict[int, int]] = {}
    for place in places:
        earlier = [other for other in reversed(beside[place]) if other < place]
        later = [other for other in beside[place] if other > place]
        found[place] = {other: -far for far, other in enumerate(earlier, 1)}
        found[place].update((other, far) for far, other in enumerate(later, 1))
    return found


def _stands(row: PassageRow, wanted: LookUp) -> bool:
    """Whether a passage had not ended yet at the moment of the query."""
    return not row.ended or bool(wanted.upto and row.ended > wanted.upto)


def _passes_filters(row: PassageRow, wanted: LookUp) -> bool:
    return (
        _stands(row, wanted)
        and (not wanted.kinds or row.kind in wanted.kinds)
        and row.kind not in wanted.unwanted
        and (not wanted.within or any(row.key.startswith(key) and row.seq >= seq for key, seq in wanted.within))
        and (wanted.since_us is None or row.at_us >= wanted.since_us)
        and (wanted.until_us is None or row.at_us <= wanted.until_us)
    )
