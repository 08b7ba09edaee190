"""Search in layers: by relevance over the index of passages; by keywords over an index of each layer in memory.

The index of a layer is brought up to date by the search that needs it, nothing of it runs when an entry is appended:
such a search asks the rows whether they changed, reads the new ones, and then works in memory.

A keyword is found anywhere in an entry, also inside a word. A term holds no white space, so entries can stand in long
texts, a line each: `str.split` cuts such a text at the term, and the line ends in each piece tell which entry holds
the occurrence. The counts are those of `str.count` over each entry, without a loop over the entries.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate, repeat
from typing import cast
from weakref import ref

from attrs import frozen

from memory_engine.context.ownership import Viewer
from memory_engine.core.loops import OfLoop
from memory_engine.errors import InvalidMemory
from memory_engine.projections.base import ReadableRows
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.layers.entries import MemoryEntry, MemoryHit, SearchMode
from memory_engine.views.layers.events import Layer
from memory_engine.views.layers.fold import EntryRow, LayerRows, keys_of, layer_rows
from memory_engine.views.layers.search import query_terms, recency_points, relevant, searched_text
from memory_engine.views.layers.viewers import rows_for

BLOCK_ENTRIES = 4_096
"""Entries in one long text; the newest, fewer than that, are joined by each search."""
TERMS_KEPT = 128
HIDDEN_FACTOR = 10
"""For a viewer, who may not see every entry, this number of times more of them are looked at."""


class EntryIndex:
    """Entries under keys: which hold a term how often, and which of them count most. Nothing here awaits."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.times: list[int] = []
        self._places: dict[str, int] = {}
        self._dropped: set[int] = set()
        self._is_in_time = True
        self._blocks: list[str] = []
        self._newest: list[str] = []
        self._terms: OrderedDict[str, tuple[int, dict[int, int]]] = OrderedDict()

    def __len__(self) -> int:
        """The number of entries that are not dropped."""
        return len(self._places)

    @property
    def wasted(self) -> int:
        """Entries that were dropped or replaced and still take room."""
        return len(self._dropped)

    def put(self, key: str, text: str, timestamp_us: int) -> None:
        """Index an entry's case-folded text, in place of what stood under its key.

        Entries that come in the order of their times are found faster.
        """
        self.drop(key)
        self._is_in_time &= not self.times or self.times[-1] <= timestamp_us
        self._places[key] = len(self.keys)
        self.keys.append(key)
        self.times.append(timestamp_us)
        self._newest.append(text.replace("\n", " "))
        if len(self._newest) == BLOCK_ENTRIES:
            self._blocks.append("\n".join(self._newest))
            self._newest = []

    def drop(self, key: str) -> None:
        """Drop an entry: it is not found any more."""
        place = self._places.pop(key, None)
        if place is not None:
            self._dropped.add(place)

    def best(self, terms: Iterable[str], limit: int) -> list[tuple[int, int]]:
        """The places of the `limit` entries with the most points, and these; ties: the newest first.

        Two points an occurrence of a term, and one for each term that occurs. A term is case-folded, without white
        space; one given twice counts twice.
        """
        points: dict[int, int] = {}
        for term in terms:
            found = self._points(term)
            if points:
                for place, count in found.items():
                    points[place] = points.get(place, 0) + count
            else:
                points = found
        for place in self._dropped:
            points.pop(place, None)
        least = _least(points, limit)
        best = [place for place, count in points.items() if count > least]
        best += self._latest([place for place, count in points.items() if count == least], limit - len(best))
        scored = [(place, points[place]) for place in best]
        return sorted(scored, key=lambda one: (one[1], self.times[one[0]], one[0]), reverse=True)

    def _latest(self, places: Sequence[int], limit: int) -> list[int]:
        if self._is_in_time:
            return nlargest(limit, places)
        return nlargest(limit, places, key=lambda place: (self.times[place], place))

    def _points(self, term: str) -> dict[int, int]:
        """The points that the term gives each place that holds it; whole texts keep theirs for the next search."""
        read, found = self._terms.pop(term, (0, {}))
        for number in range(read, len(self._blocks)):
            found.update(_points_in(self._blocks[number], term, number * BLOCK_ENTRIES))
        self._terms[term] = len(self._blocks), found
        if len(self._terms) > TERMS_KEPT:
            self._terms.popitem(last=False)
        return found | _points_in("\n".join(self._newest), term, len(self._blocks) * BLOCK_ENTRIES)


def _points_in(text: str, term: str, first: int) -> dict[int, int]:
    """The points of the places, from `first` on, whose lines of a text hold the term."""
    places = accumulate(map(str.count, text.split(term)[:-1], repeat("\n")))
    return {first + place: 2 * count + 1 for place, count in Counter(places).items()}


def _least(points: Mapping[int, int], limit: int) -> int:
    """The points of the last of the `limit` best; 0 where there are fewer."""
    reached = 0
    for level, count in sorted(Counter(points.values()).items(), reverse=True):
        reached += count
        if reached >= limit:
            return level
    return 0


ROWS_AT_ONCE = 500
"""Rows that are read before other tasks get their turn: a few milliseconds."""
INDEXES_MAX = 256
"""Layers whose indexes are kept, the last searched ones; other indexes are built again."""
WASTE_MIN = 1_000


class LayerIndex:
    """An index that follows the rows of one layer."""

    def __init__(self) -> None:
        self.index = EntryIndex()
        self._lock = OfLoop(asyncio.Lock)
        self._tokens: dict[str, object] = {}
        self._entries = 0
        self._last = ""
        self._seen: list[tuple[ref[object], int]] = []

    async def follow(self, thread: ThreadHandle, layer: Layer, at: int | None = None) -> LayerRows:
        """Bring the index up to date, and give the rows it was made from."""
        async with self._lock.here:
            rows = await layer_rows(thread, layer, at)
            if not self._is_current(rows):
                # noted before the rows are read: the next search reads what changes meanwhile
                seen = [(ref(cast("object", part)), part.revision) for part in _row_parts(rows)]
                await self._update(rows)
                self._seen = seen
        return rows

    def _is_current(self, rows: LayerRows) -> bool:
        now = [(part, part.revision) for part in _row_parts(rows)]
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


def _row_parts(rows: LayerRows) -> list[ReadableRows[EntryRow]]:
    return [rows.resident] if rows.entries is None else [rows.resident, rows.entries]


def _token(row: EntryRow) -> object:
    """A value that differs whenever a row's text does: a summary may lose lines."""
    return (row.seq, row.lines) if row.count else row.seq


async def _breathe(count: int) -> None:
    if not count % ROWS_AT_ONCE:
        await asyncio.sleep(0)


def index_of(thread: ThreadHandle, layer: Layer) -> LayerIndex:
    """The index of a thread's layer, kept with the engine."""
    return thread.kernel.caches.made(thread.id, f"layers:{layer}", LayerIndex, at_most=INDEXES_MAX)


@frozen(kw_only=True)
class MemoryQuery:
    """The query of a search, its bounds, and the conversation that it is for (`None`: any)."""

    query: str
    limit: int
    mode: SearchMode = "hybrid"
    at: int | None = None
    viewer: Viewer | None = None

    def __attrs_post_init__(self) -> None:
        if self.mode not in ("hybrid", "keyword"):
            raise InvalidMemory("mode", self.mode, 'it is "hybrid" or "keyword"')
        check_limit("limit", self.limit)


def check_limit(name: str, value: int) -> None:
    """Raise `InvalidMemory` for a number of results below 1."""
    if type(value) is not int or value < 1:
        raise InvalidMemory(name, value, "it is a number of results: 1 or more")


async def search_layers(thread: ThreadHandle, layers: Sequence[Layer], wanted: MemoryQuery) -> list[MemoryHit]:
    """The best hits of these layers together, best first; ties: the newest first."""
    return await search_memories([(thread, layers)], wanted)


async def search_memories(
    sought: Sequence[tuple[ThreadHandle, Sequence[Layer]]], wanted: MemoryQuery
) -> list[MemoryHit]:
    """The best hits of some layers of several memories as one list.

    Where no entry has a word of the query or is near in meaning, parts of words are looked for.
    """
    hits: list[MemoryHit] = []
    if wanted.mode == "hybrid":
        hits = await relevant(sought, wanted.query, wanted.limit, wanted.at, viewer=wanted.viewer)
    if not hits:
        found = [await _by_keywords(thread, layer, wanted) for thread, layers in sought for layer in layers]
        hits = sorted((hit for some in found for hit in some), key=_order, reverse=True)
    return hits[: wanted.limit]


def _order(hit: MemoryHit) -> tuple[object, ...]:
    return (hit.score, hit.entry.timestamp, hit.entry.seq)


async def _by_keywords(thread: ThreadHandle, layer: Layer, wanted: MemoryQuery) -> list[MemoryHit]:
    followed = index_of(thread, layer) if wanted.at is None else LayerIndex()
    rows = await followed.follow(thread, layer, wanted.at)
    now_us = thread.kernel.now_us()
    terms = query_terms(wanted.query)
    limit = wanted.limit if wanted.viewer is None else wanted.limit * HIDDEN_FACTOR
    best = [(points, rows.get(followed.index.keys[place])) for place, points in followed.index.best(terms, limit)]
    points_of = {row.seq: points for points, row in best if row is not None}
    hits = []
    for row in await rows_for(thread, (row for _, row in best if row is not None), wanted.viewer):
        text = searched_text(row.said, row.metadata)
        found = ", ".join(f"{term} ×{text.count(term)}" for term in dict.fromkeys(terms) if term in text)
        if found or wanted.viewer is None:
            score = points_of[row.seq] + recency_points(row.timestamp_us, now_us)
            hits.append(MemoryHit(entry=MemoryEntry.of(row), score=score, why=found, layer=layer))
    return hits
