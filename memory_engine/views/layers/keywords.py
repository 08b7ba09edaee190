"""Search in layers: by relevance over the index of passages; by keywords over an index of each layer in memory.

The index of a layer is brought up to date by the search that needs it, nothing of it runs when an entry is appended:
such a search asks the rows whether they changed, reads the new ones, and then works in memory.

An index of entries in memory: every occurrence of any query term, found without reading the entries.

A term holds no white space, and each of its runs of letters, of digits or of other characters
lies within one such run of the text. So the index keeps the distinct runs (the vocabulary, one
long text that `str.find` scans) and in which entries each stands. A term of one run needs nothing
else; one of several names few entries in which it is then counted. Exact: the counts are those
of `str.count` over the text.
"""

import asyncio
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from itertools import repeat
from typing import cast
from weakref import ref

from attrs import frozen

from memory_engine.errors import InvalidMemory
from memory_engine.projections.base import ReadableRows
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.layers.entries import MemoryEntry, MemoryHit, SearchMode
from memory_engine.views.layers.events import Layer
from memory_engine.views.layers.fold import EntryRow, LayerRows, keys_of, layer_rows
from memory_engine.views.layers.planes import (
    Planes,
    add,
    counted,
    largest,
    members,
    of_column,
    of_counts,
    present,
    times,
    value_of,
)
from memory_engine.views.layers.search import query_terms, recency_points, relevant, searched_text, segments

_DENSE_SHARE = 128
"""Runs that stand in more than one of so many entries keep their sets; those of rarer ones are made when asked for."""
_MANY_RUNS = 8
"""Where more than one in so many runs match, trying each is faster than looking for the next."""
_TERMS_KEPT = 128
_LATE_MAX = 4_096
"""So many new entries are read for a term that is kept; for more it is looked up anew."""


class Vocabulary:
    """The distinct runs, each with its place: the order in which they came."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.names: list[str] = []
        self._joined = "\n"
        self._starts: list[int] = []

    def containing(self, run: str) -> list[int]:
        """The places of the runs that hold `run`."""
        return self._found(run, 0, lambda name: run in name)

    def ending(self, run: str) -> list[int]:
        """The places of the runs that end with `run`."""
        return self._found(run + "\n", 0, lambda name: name.endswith(run))

    def beginning(self, run: str) -> list[int]:
        """The places of the runs that begin with `run`."""
        return self._found("\n" + run, 1, lambda name: name.startswith(run))

    def _found(self, pattern: str, skip: int, fits: Callable[[str], bool]) -> list[int]:
        if len(self.names) < len(self.places):
            self._join()
        joined, starts, names = self._joined, self._starts, self.names
        if joined.count(pattern) * _MANY_RUNS > len(names):
            return [place for place, name in enumerate(names) if fits(name)]
        found = []
        at = joined.find(pattern)
        while at >= 0:
            place = bisect_right(starts, at + skip) - 1
            found.append(place)
            at = joined.find(pattern, starts[place] + len(names[place]))
        return found

    def _join(self) -> None:
        new = list(self.places)[len(self.names) :]
        at = len(self._joined)
        for name in new:
            self._starts.append(at)
            at += len(name) + 1
        self._joined += "\n".join([*new, ""])
        self.names += new


class EntryIndex:
    """Entries under keys: which hold a term how often, and which of them count most. Nothing here awaits."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.texts: list[str] = []
        self.times: list[int] = []
        self._places: dict[str, int] = {}
        self._dead = 0
        self._is_in_time = True
        self._vocabulary = Vocabulary()
        self._postings: list[array[int]] = []
        self._dense: dict[int, tuple[int, Planes]] = {}
        self._terms: OrderedDict[str, tuple[int, Planes]] = OrderedDict()

    def __len__(self) -> int:
        """The number of entries that are not dropped."""
        return len(self._places)

    @property
    def wasted(self) -> int:
        """Entries that were dropped or put anew and still take room."""
        return len(self.keys) - len(self._places)

    def put(self, key: str, text: str, timestamp_us: int) -> None:
        """Index an entry's case-folded text, in place of what stood under its key.

        Entries that come in the order of their times are found faster.
        """
        self.drop(key)
        place = len(self.keys)
        self._is_in_time &= not self.times or self.times[-1] <= timestamp_us
        self._places[key] = place
        self.keys.append(key)
        self.texts.append(text)
        self.times.append(timestamp_us)
        runs = segments(text)
        known, postings = self._vocabulary.places, self._postings
        for run in runs:
            at = known.get(run)
            if at is None:
                known[run] = len(postings)
                postings.append(array("I", (place,)))
            else:
                postings[at].append(place)

    def drop(self, key: str) -> None:
        """Find an entry no more."""
        place = self._places.pop(key, None)
        if place is not None:
            self._dead |= 1 << place
            self.texts[place] = ""

    def points(self, terms: Sequence[str]) -> Planes:
        """For each entry: two points an occurrence of a term, and one for each term that occurs."""
        total: Planes = ()
        for term in terms:
            occurrences = self.occurrences(term)
            total = add(total, (present(occurrences), *occurrences)) if occurrences else total
        return total

    def best(self, points: Planes, limit: int) -> list[tuple[int, int]]:
        """The places of the `limit` entries with the most points, and these; ties: the newest first."""
        alive = ((1 << len(self.keys)) - 1) ^ self._dead
        sure, tied = largest(points, alive, limit)
        found = members(sure)
        found += self._newest(tied, limit - len(found))
        scored = [(place, value_of(points, place)) for place in found]
        return sorted(scored, key=lambda one: (one[1], self.times[one[0]], one[0]), reverse=True)

    def _newest(self, tied: int, limit: int) -> list[int]:
        if not self._is_in_time:
            return nlargest(limit, members(tied), key=lambda place: (self.times[place], place))
        found: list[int] = []
        while tied and len(found) < limit:
            last = tied.bit_length() - 1
            found.append(last)
            tied ^= 1 << last
        return found

    def occurrences(self, term: str) -> Planes:
        """How often each entry holds a term (case-folded, without white space)."""
        size = len(self.keys)
        upto, planes = self._terms.pop(term, (0, ()))
        if upto < size:
            if upto and size - upto <= _LATE_MAX:
                late = range(upto, size)
                planes = add(planes, of_counts(late, [self.texts[n].count(term) for n in late], size))
            else:
                planes = self._look_up(term)
        self._terms[term] = size, planes
        if len(self._terms) > _TERMS_KEPT:
            self._terms.popitem(last=False)
        return planes

    def _look_up(self, term: str) -> Planes:
        runs = segments(term)
        vocabulary = self._vocabulary
        if len(runs) == 1:
            found = vocabulary.containing(term)
            return self._standing(found, [vocabulary.names[at].count(term) for at in found])
        candidates = self._holding(vocabulary.ending(runs[0])) & self._holding(vocabulary.beginning(runs[-1]))
        for run in runs[1:-1]:
            candidates &= self._holding([vocabulary.places[run]] if run in vocabulary.places else [])
        if candidates.bit_count() * 2 > len(self.keys):
            return of_column(list(map(str.count, self.texts, repeat(term))))
        places = members(candidates)
        return of_counts(places, [self.texts[n].count(term) for n in places], len(self.keys))

    def _holding(self, runs: Sequence[int]) -> int:
        return present(self._standing(runs))

    def _standing(self, runs: Sequence[int], factors: Sequence[int] = ()) -> Planes:
        """How often each entry holds one of these runs, each times its factor (default: 1)."""
        size = len(self.keys)
        postings = self._postings
        rare: list[int] = []
        total: Planes = ()
        for n, at in enumerate(runs):
            factor = factors[n] if factors else 1
            posting = postings[at]
            if len(posting) * _DENSE_SHARE < size:
                rare += posting if factor == 1 else list(posting) * factor
            else:
                planes = self._dense_planes(at)
                total = add(total, planes if factor == 1 else times(planes, factor))
        return add(total, counted(rare, size)) if rare else total

    def _dense_planes(self, at: int) -> Planes:
        """The sets of a run that stands in many entries: kept, and brought up to date with new ones."""
        posting = self._postings[at]
        upto, planes = self._dense.get(at, (0, ()))
        if upto < len(posting):
            planes = add(planes, counted(posting[upto:], len(self.keys)))
            self._dense[at] = len(posting), planes
        return planes

    def warming(self) -> Iterator[None]:
        """Make what the first search would have to make; pauses after each step, so that others get their turn."""
        self._vocabulary.containing("\n")
        for at, posting in enumerate(self._postings):
            if len(posting) * _DENSE_SHARE >= len(self.keys):
                self._dense_planes(at)
                yield


ROWS_AT_ONCE = 500
"""Rows that are read before other tasks get their turn: a few milliseconds."""
INDEXES_MAX = 256
"""Layers whose indexes are kept; of those searched longest ago they are made anew."""
WASTE_MIN = 1_000


class LayerIndex:
    """An index that follows the rows of one layer."""

    def __init__(self) -> None:
        self.index = EntryIndex()
        self._lock = asyncio.Lock()
        self._tokens: dict[str, object] = {}
        self._entries = 0
        self._last = ""
        self._seen: list[tuple[ref[object], int]] = []

    async def follow(self, thread: ThreadHandle, layer: Layer, at: int | None = None) -> LayerRows:
        """Bring the index up to date, and give the rows it was made from."""
        async with self._lock:
            rows = await layer_rows(thread, layer, at)
            if not self._is_current(rows):
                # noted before the rows are read: what changes meanwhile is read by the next search
                seen = [(ref(cast("object", part)), part.revision) for part in _parts(rows)]
                await self._update(rows)
                self._seen = seen
        return rows

    def _is_current(self, rows: LayerRows) -> bool:
        now = [(part, part.revision) for part in _parts(rows)]
        return len(now) == len(self._seen) and all(
            seen() is part and then == revision for (seen, then), (part, revision) in zip(self._seen, now, strict=True)
        )

    async def _update(self, rows: LayerRows) -> None:
        changed, gone = self._differences(rows)
        for key in gone:
            self._drop(key)
        if self.index.wasted > WASTE_MIN + len(self.index):
            self.index, self._tokens, self._entries, self._last = EntryIndex(), {}, 0, ""
            changed, _ = self._differences(rows)
        found = []
        for count, key in enumerate(changed, 1):
            row = rows.get(key)
            if row is not None:
                found.append((row.timestamp_us, row.seq, key, row))
            await _breathe(count)
        found.sort(key=lambda one: one[:3])
        for count, (timestamp_us, _, key, row) in enumerate(found, 1):
            self.index.put(key, searched_text(row.said, row.metadata), timestamp_us)
            self._note(key, row)
            await _breathe(count)
        if len(found) > WASTE_MIN:
            for _ in self.index.warming():
                await asyncio.sleep(0)

    def _note(self, key: str, row: EntryRow) -> None:
        is_new = key not in self._tokens
        self._tokens[key] = _token(row)
        if key[0].isdigit():
            self._entries += is_new
            self._last = max(self._last, key)

    def _drop(self, key: str) -> None:
        self.index.drop(key)
        if self._tokens.pop(key, None) is not None:
            self._entries -= key[0].isdigit()

    def _differences(self, rows: LayerRows) -> tuple[list[str], list[str]]:
        """The keys to be read, and those to be dropped. Of episodic entries, whose rows never change, only the new."""
        changed, gone = [], []
        resident = keys_of(rows.resident, rows.layer)
        present = set(resident)
        for key in resident:
            row = rows.resident.get(key)
            if row is not None and self._tokens.get(key) != _token(row):
                changed.append(key)
        if len(self._tokens) - self._entries > len(resident) - len(changed):
            gone = [key for key in self._tokens if not key[0].isdigit() and key not in present]
        if rows.entries is not None:
            new = rows.entries.between(self._last + "\0" if self._last else "", ":")
            changed += new
            if self._entries + len(new) != len(rows.entries):
                alive = set(rows.entries.keys())
                gone += [key for key in self._tokens if key[0].isdigit() and key not in alive]
        return changed, gone


def _parts(rows: LayerRows) -> list[ReadableRows[EntryRow]]:
    return [rows.resident] if rows.entries is None else [rows.resident, rows.entries]


def _token(row: EntryRow) -> object:
    """What is different whenever a row's text is: a summary may lose lines."""
    return (row.seq, row.lines) if row.count else row.seq


async def _breathe(count: int) -> None:
    if not count % ROWS_AT_ONCE:
        await asyncio.sleep(0)


def index_of(thread: ThreadHandle, layer: Layer) -> LayerIndex:
    """The index of a thread's layer, kept with the engine."""
    return thread.kernel.caches.made(thread.id, f"layers:{layer}", LayerIndex, at_most=INDEXES_MAX)


@frozen(kw_only=True)
class Wanted:
    """What is looked for."""

    query: str
    limit: int
    mode: SearchMode = "hybrid"
    at: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.mode not in ("hybrid", "keyword"):
            raise InvalidMemory("mode", self.mode, 'it is "hybrid" or "keyword"')
        check_limit("limit", self.limit)


def check_limit(name: str, value: int) -> None:
    """Raise `InvalidMemory` for a number of results below 1."""
    if value < 1:
        raise InvalidMemory(name, value, "it is a number of results: 1 or more")


async def search_layers(thread: ThreadHandle, layers: Sequence[Layer], wanted: Wanted) -> list[MemoryHit]:
    """The best hits of these layers together, best first; ties: the newest first."""
    return await search_memories([(thread, layers)], wanted)


async def search_memories(sought: Sequence[tuple[ThreadHandle, Sequence[Layer]]], wanted: Wanted) -> list[MemoryHit]:
    """The best hits of some layers of several memories as one list.

    Where none has a word of the query, nor anything of its meaning, parts of words are looked for.
    """
    hits: list[MemoryHit] = []
    if wanted.mode == "hybrid":
        hits = await relevant(sought, wanted.query, wanted.limit, wanted.at)
    if not hits:
        found = [await _by_keywords(thread, layer, wanted) for thread, layers in sought for layer in layers]
        hits = sorted((hit for some in found for hit in some), key=_order, reverse=True)
    return hits[: wanted.limit]


def _order(hit: MemoryHit) -> tuple[object, ...]:
    return (hit.score, hit.entry.timestamp, hit.entry.seq)


async def _by_keywords(thread: ThreadHandle, layer: Layer, wanted: Wanted) -> list[MemoryHit]:
    followed = index_of(thread, layer) if wanted.at is None else LayerIndex()
    rows = await followed.follow(thread, layer, wanted.at)
    now_us = thread.kernel.now_us()
    terms = query_terms(wanted.query)
    hits = []
    for place, points in followed.index.best(followed.index.points(terms), wanted.limit):
        row = rows.get(followed.index.keys[place])
        if row is not None:
            text = searched_text(row.said, row.metadata)
            found = ", ".join(f"{term} ×{text.count(term)}" for term in dict.fromkeys(terms) if term in text)
            score = points + recency_points(row.timestamp_us, now_us)
            hits.append(MemoryHit(entry=MemoryEntry.of(row), score=score, why=found, layer=layer))
    return hits
