"""Search in a layer: an index for each layer of a thread, brought up to date by the search that needs it.

Nothing of this runs when an entry is appended. A search asks the rows whether they changed, reads the
new ones, and then works in memory.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast
from weakref import ref

from attrs import evolve, frozen

from memory_engine.errors import InvalidMemory
from memory_engine.events import Layer
from memory_engine.projections.base import ReadableRows
from memory_engine.projections.layers.entries import EPISODIC, LAYERS, EntryRow, keys_of
from memory_engine.projections.layers.indexing import EntryIndex
from memory_engine.projections.layers.ranking import Ranked, Ranker, rank_by_keywords, rank_by_words
from memory_engine.projections.layers.scoring import query_terms, recency_points, searched_text
from memory_engine.projections.layers.values import MemoryEntry, MemoryHit, SearchMode
from memory_engine.recall.similarity import Corpus, Thresholds

if TYPE_CHECKING:
    from memory_engine.thread import Thread

ROWS_AT_ONCE = 500
"""Rows that are read before other tasks get their turn: a few milliseconds."""
INDEXES_MAX = 256
"""Layers whose indexes are kept; of those searched longest ago they are made anew."""
WASTE_MIN = 1_000
VECTORS_PER_HIT = 4
VECTOR_THRESHOLDS = Thresholds(lexical=1.0, embedding=0.3)
FUSION_RANK = 60
"""Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): each list gives 1 / (60 + rank)."""


@frozen
class LayerRows:
    """The rows of one layer: those of `layers`, and for the episodic layer those of `episodic`."""

    layer: Layer
    resident: ReadableRows[EntryRow]
    entries: ReadableRows[EntryRow] | None = None

    def keys(self) -> list[str]:
        """The keys in order: a summary first, then the entries. Those of `episodic` begin with a digit."""
        own = [] if self.entries is None else list(self.entries.keys())
        return [*keys_of(self.resident, self.layer), *own]

    def get(self, key: str) -> EntryRow | None:
        """The row under a key."""
        if self.entries is not None and key[0].isdigit():
            return self.entries.get(key)
        return self.resident.get(key)

    def rows(self) -> list[EntryRow]:
        """All rows: by place, knowledge by the time it was learned."""
        found = [row for key in self.keys() if (row := self.get(key)) is not None]
        return sorted(found, key=lambda row: row.seq) if self.layer == "semantic" else found


async def layer_rows(thread: "Thread", layer: Layer, at: int | None = None) -> LayerRows:
    """The rows of a layer as they are, or were. Read what you need of them before you await anything else."""
    entries = await thread.rows(EPISODIC, at=at) if layer == "episodic" else None
    return LayerRows(layer, await thread.rows(LAYERS, at=at), entries)


class LayerIndex:
    """An index that follows the rows of one layer."""

    def __init__(self) -> None:
        self.index = EntryIndex()
        self._lock = asyncio.Lock()
        self._tokens: dict[str, object] = {}
        self._entries = 0
        self._last = ""
        self._seen: list[tuple[ref[object], int]] = []

    async def follow(self, thread: "Thread", layer: Layer, at: int | None = None) -> LayerRows:
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


def index_of(thread: "Thread", layer: Layer) -> LayerIndex:
    """The index of a thread's layer, kept with the engine."""
    return thread.engine.caches.made(thread.id, f"layers:{layer}", LayerIndex, at_most=INDEXES_MAX)


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


async def search_layers(thread: "Thread", layers: Sequence[Layer], wanted: Wanted) -> list[MemoryHit]:
    """The best hits of these layers together, best first; ties: the newest first.

    Where no layer has a word of the query, nor anything of its meaning, parts of words are looked for.
    """
    hits: list[MemoryHit] = []
    if wanted.mode == "hybrid":
        hits = [hit for layer in layers for hit in await _by_relevance(thread, layer, wanted)]
    if not hits:
        hits = [hit for layer in layers for hit in await _by_keywords(thread, layer, wanted)]
    hits.sort(key=lambda hit: (hit.score, hit.entry.timestamp, hit.entry.seq), reverse=True)
    return hits[: wanted.limit]


def _index(thread: "Thread", layer: Layer, wanted: Wanted) -> LayerIndex:
    return index_of(thread, layer) if wanted.at is None else LayerIndex()


async def _by_keywords(thread: "Thread", layer: Layer, wanted: Wanted) -> list[MemoryHit]:
    followed = _index(thread, layer, wanted)
    rows = await followed.follow(thread, layer, wanted.at)
    return _keyword_hits(followed.index, rows, wanted, thread.engine.now_us())


async def _by_relevance(thread: "Thread", layer: Layer, wanted: Wanted) -> list[MemoryHit]:
    followed = _index(thread, layer, wanted)
    nearest = await _nearest(thread, layer, wanted)
    rows = await followed.follow(thread, layer, wanted.at)
    ranker: Ranker = rank_by_words
    ranked = ranker(followed.index, wanted.query, wanted.limit if not nearest else wanted.limit * VECTORS_PER_HIT)
    hits = _word_hits(rows, ranked)
    return _fused(rows, hits, nearest)[: wanted.limit] if nearest else hits


def _keyword_hits(index: EntryIndex, rows: LayerRows, wanted: Wanted, now_us: int) -> list[MemoryHit]:
    terms = query_terms(wanted.query)
    hits = []
    for ranked in rank_by_keywords(index, wanted.query, wanted.limit):
        row = rows.get(ranked.key)
        if row is not None:
            score = ranked.score + recency_points(row.timestamp_us, now_us)
            text = searched_text(row.said, row.metadata)
            found = ", ".join(f"{term} ×{text.count(term)}" for term in dict.fromkeys(terms) if term in text)
            hits.append(MemoryHit(entry=MemoryEntry.of(row), score=score, why=found, layer=rows.layer))
    return hits


def _word_hits(rows: LayerRows, ranked: Iterable[Ranked]) -> list[MemoryHit]:
    hits = []
    for one in ranked:
        row = rows.get(one.key)
        if row is not None:
            alike = tuple(other.id for key in one.alike if (other := rows.get(key)) is not None)
            why = f"words: {', '.join(one.words)}"
            why += f"; {len(alike)} more say the same" if alike else ""
            entry = MemoryEntry.of(row)
            hits.append(MemoryHit(entry=entry, score=one.score, why=why, layer=rows.layer, alike=alike))
    return hits


async def _nearest(thread: "Thread", layer: Layer, wanted: Wanted) -> list[tuple[str, float]]:
    """The entries nearest in meaning, where the engine has an embedder and can ask it."""
    if thread.engine.parts.embedder is None or wanted.at is not None:
        return []
    rows = await layer_rows(thread, layer)
    texts = {key: (_token(row), row.said) for key in rows.keys() if (row := rows.get(key)) is not None}  # noqa: SIM118
    corpus = Corpus({key: token for key, (token, _) in texts.items()}, lambda key: texts[key][1])
    index = thread.engine.similarity(thread.id, f"layers:{layer}")
    limit = wanted.limit * VECTORS_PER_HIT
    matches = await index.search(wanted.query, corpus, limit=limit, threshold=VECTOR_THRESHOLDS)
    return [(match.key, match.score) for match in matches if match.how == "embedding"]


def _fused(rows: LayerRows, hits: Sequence[MemoryHit], nearest: Sequence[tuple[str, float]]) -> list[MemoryHit]:
    """Both lists as one, by reciprocal ranks."""
    fused: dict[str, MemoryHit] = {}
    for rank, hit in enumerate(hits, 1):
        fused[hit.entry.event_id] = evolve(hit, score=1 / (FUSION_RANK + rank))
    left_out = {entry_id for hit in hits for entry_id in hit.alike}
    for rank, (key, cosine) in enumerate(nearest, 1):
        row = rows.get(key)
        if row is None or row.id in left_out:
            continue
        known = fused.get(row.event_id)
        hit = known or MemoryHit(entry=MemoryEntry.of(row), score=0.0, why="", layer=rows.layer)
        why = "; ".join(filter(None, (hit.why, f"meaning: {cosine:.2f}")))
        fused[row.event_id] = evolve(hit, score=hit.score + 1 / (FUSION_RANK + rank), why=why)
    return sorted(fused.values(), key=lambda hit: (hit.score, hit.entry.timestamp, hit.entry.seq), reverse=True)
