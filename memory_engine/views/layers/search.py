"""Search of layers by relevance: the index of passages finds, the rows say which entries are live.

The index holds everything in the log, also entries that a summary covers or that working memory let go of. It is
asked from the first entry of each layer on, and a hit counts only if its row is still live. Whether an
entry is relevant, and a rule of procedural memory applies to a task, is a pure function of texts and times.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from memory_engine.context.ownership import Viewer
from memory_engine.core.clock import DAY_US
from memory_engine.language.text import common_words, fold_case, stem, terms, words
from memory_engine.projections.base import seq_key
from memory_engine.recall.extractors import MEMORY, SUMMARY, pieces
from memory_engine.recall.hits import Hit
from memory_engine.recall.question import read_question
from memory_engine.recall.repetition import Repetitions
from memory_engine.recall.search import LIMIT_MAX, Asked, Part
from memory_engine.recall.service import Recall
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store.passages import PLACES_BITS
from memory_engine.views.layers.entries import MemoryEntry, MemoryHit, ProceduralRule
from memory_engine.views.layers.events import Layer, MemoryAppended
from memory_engine.views.layers.fold import EntryRow, LayerRows, keys_of, layer_rows, summary_of
from memory_engine.views.layers.viewers import rows_for

RECENCY_POINTS = 0.5
"""The bonus of an entry of this very moment; it shrinks with age, to nothing after a day."""


def searched_text(content: str, metadata: str) -> str:
    """The text for keyword search: content and metadata (JSON), case-folded."""
    return f"{content}\n{metadata}".casefold()


def query_terms(query: str) -> list[str]:
    """The query at its white space, without differences of case. A term given twice counts twice."""
    return query.casefold().split()


def recency_points(timestamp_us: int, now_us: int) -> float:
    """Up to half a point, falling evenly to nothing over a day. Times in the future count as now."""
    age_us = max(0, now_us - timestamp_us)
    return RECENCY_POINTS * max(0.0, 1 - age_us / DAY_US)


HIDDEN_FACTOR = 4
"""Factor of the number of passages to search for a viewer, who may not see every entry."""
PASSAGES_PER_HIT = 3
"""Number of passages to search for per hit: several passages of a long entry may match."""
WORDS_READ = 8_192
"""Maximum number of characters of an entry that are compared with other entries."""
FEW = 2_000
"""Maximum number of entries among which the nearest in meaning are searched; with more, all of the thread is."""
LIKENESS_MIN = 0.3
"""Minimum cosine of an entry that contains no word of the query."""


class _Memory(msgspec.Struct, frozen=True):
    """Layers of one thread."""

    thread: ThreadHandle
    layers: Mapping[str, LayerRows]

    def part(self) -> Part:
        """The filter for the passages of these layers."""
        within = tuple(span for rows in self.layers.values() for span in _spans(rows))
        count = sum(
            len(rows.resident) + (0 if rows.entries is None else len(rows.entries)) for rows in self.layers.values()
        )
        if count > FEW or self.thread.kernel[Recall].embedder is None:
            return Part(within)
        return Part(
            within, tuple(place for rows in self.layers.values() for row in rows.rows() for place in _places(row))
        )

    def row(self, hit: Hit) -> EntryRow | None:
        """The row of a passage, if it is live."""
        _, layer, own = hit.key.split(":", 2)
        rows = self.layers.get(layer)
        return None if rows is None else _row_of_hit(rows, hit, own)


async def relevant(
    sought: Sequence[tuple[ThreadHandle, Sequence[Layer]]],
    query: str,
    limit: int,
    at: int | None,
    *,
    viewer: Viewer | None = None,
) -> list[MemoryHit]:
    """The entries that say most about a query, best first; none where nothing has a word of it or is near in meaning.

    Only what the `viewer` may see. Raises the errors of a search.
    """
    memories = {thread.id: await _memory(thread, layers, at) for thread, layers in sought}
    parts = {thread_id: part for thread_id, memory in memories.items() if (part := memory.part()).within}
    if not parts:
        return []
    kernel = sought[0][0].kernel
    asked = Asked(
        query=query,
        limit=min(LIMIT_MAX, PASSAGES_PER_HIT * limit * (1 if viewer is None else HIDDEN_FACTOR)),
        kinds=(MEMORY, SUMMARY),
        parts=parts,
        upto=at or 0,
    )
    found = await kernel[Recall].search(tuple(parts), asked)
    if at is None:  # while a text was embedded entries may have come and gone
        memories = {thread.id: await _memory(thread, layers, at) for thread, layers in sought}
    said = _Query(query)
    rows: dict[tuple[str, int, str], tuple[Hit, EntryRow]] = {}
    for hit in found:
        row = memories[hit.thread_id].row(hit)
        if row is not None and (said.words_of(hit) or (hit.likeness or 0.0) >= LIKENESS_MIN):
            rows.setdefault((hit.thread_id, row.seq, row.layer), (hit, row))
    best = _collapsed(await _seen(memories, list(rows.values()), viewer))
    if kernel[Recall].reranker is None:
        best.sort(key=lambda one: (one.hits[0].score, one.rows[0].timestamp_us, one.rows[0].seq), reverse=True)
    best = best[:limit]
    ids = await _entry_ids(memories, [hit for one in best for hit in one.hits])
    return [_memory_hit(one, said, ids) for one in best]


async def _seen(
    memories: Mapping[str, _Memory], found: Sequence[tuple[Hit, EntryRow]], viewer: Viewer | None
) -> Iterable[tuple[Hit, EntryRow]]:
    """The hits whose rows a viewer may see, with these rows."""
    if viewer is None:
        return found
    seen: dict[tuple[str, str, int], EntryRow] = {}
    for thread_id, memory in memories.items():
        rows = await rows_for(memory.thread, (row for hit, row in found if hit.thread_id == thread_id), viewer)
        seen |= {(thread_id, row.layer, row.seq): row for row in rows}
    shown = ((hit, seen.get((hit.thread_id, row.layer, row.seq))) for hit, row in found)
    return [
        (hit, row)
        for hit, row in shown
        if row is not None and (not row.count or any(line.text.strip() == hit.text for line in row.lines))
    ]


async def _memory(thread: ThreadHandle, layers: Sequence[Layer], at: int | None) -> _Memory:
    return _Memory(thread, {layer: await layer_rows(thread, layer, at) for layer in layers})


def _spans(rows: LayerRows) -> Iterator[tuple[str, int]]:
    """The prefix of the keys of a layer's passages, and the seq from which on they may be in it."""
    held = keys_of(rows.resident, rows.layer)
    summary = summary_of(rows.resident, rows.layer)
    if summary is not None:
        yield f"{SUMMARY}:{rows.layer}:", summary.seq
        held = held[1:]
    first = next(iter(rows.entries.keys() if rows.entries is not None else held), None)
    if first is not None:
        yield f"{MEMORY}:{rows.layer}:", 0 if rows.layer == "semantic" else int(first.rpartition("/")[2])


def _places(row: EntryRow) -> Iterator[int]:
    """The places that a row's passages may have."""
    said = f"{row.condition} → {row.content}" if row.condition else row.content
    count = len(row.lines) if row.count else sum(1 for _ in pieces(said))
    return (row.seq << PLACES_BITS | n for n in range(count))


def _row_of_hit(rows: LayerRows, hit: Hit, own: str) -> EntryRow | None:
    if hit.kind == SUMMARY:
        summary = summary_of(rows.resident, rows.layer)
        stands = summary is not None and any(line.text.strip() == hit.text for line in summary.lines)
        return summary if stands else None
    if rows.layer == "semantic":
        keys = [f"semantic/{own}", f"semantic/{hit.event_id}"]
    else:
        keys = [seq_key(hit.seq) if rows.entries is not None else f"{rows.layer}/{seq_key(hit.seq)}"]
    found = (rows.get(key) for key in keys)
    return next((row for row in found if row is not None and row.seq == hit.seq), None)


class _Query:
    """The words of a query, with the terms that find them."""

    def __init__(self, query: str) -> None:
        asked = frozenset(read_question(query, now_us=0).terms)
        found = {word: asked.intersection(terms(word)) for word in words(fold_case(query))}
        self._terms = {word: wanted for word, wanted in found.items() if wanted}

    def words_of(self, hit: Hit) -> list[str]:
        """Those of them that a passage has."""
        held = frozenset(terms(f"{hit.about} {hit.text}"))
        return [word for word, wanted in self._terms.items() if not wanted.isdisjoint(held)]


class _Same(msgspec.Struct, frozen=True):
    """Entries that say the same, the newest first, with the passages that they were found by, the best first."""

    hits: tuple[Hit, ...]
    rows: tuple[EntryRow, ...]


def _collapsed(found: Iterable[tuple[Hit, EntryRow]]) -> list[_Same]:
    """Those of one layer that say the same together, in the order of the best of each."""
    groups: list[tuple[list[Hit], list[EntryRow]]] = []
    known: Repetitions[tuple[list[Hit], list[EntryRow]]] = Repetitions()
    for hit, row in found:
        said = frozenset(words(fold_case(row.said[:WORDS_READ])))
        hits, rows = same = known.get_or_add((hit.thread_id, row.layer), said, lambda: ([], []))
        if not hits:
            groups.append(same)
        hits.append(hit)
        rows.append(row)
    return [
        _Same(tuple(hits), tuple(sorted(rows, key=lambda row: (row.timestamp_us, row.seq), reverse=True)))
        for hits, rows in groups
    ]


async def _entry_ids(memories: Mapping[str, _Memory], hits: Sequence[Hit]) -> dict[str, str]:
    """The ids of entries by those of the events that say the same as a hit."""
    found: dict[str, str] = {}
    for thread_id, memory in memories.items():
        ids = [event_id for hit in hits if hit.thread_id == thread_id for event_id in hit.alike]
        kernel = memory.thread.kernel
        for stored in await kernel.store.find(thread_id, ids) if ids else ():
            event = kernel.reader.decode(thread_id, stored).event
            found[stored.id] = (event.entry_id if isinstance(event, MemoryAppended) else "") or stored.id
    return found


def _memory_hit(same: _Same, said: _Query, ids: Mapping[str, str]) -> MemoryHit:
    hit, row = same.hits[0], same.rows[0]
    repeated = (ids.get(event_id, event_id) for one in same.hits for event_id in one.alike)
    alike = tuple(dict.fromkeys((*(other.id for other in same.rows[1:]), *repeated)))
    shared = said.words_of(hit)
    why = [f"words: {', '.join(shared)}"] if shared else []
    why += [f"meaning: {hit.likeness:.2f}"] if hit.likeness is not None else []
    why += [f"{len(alike)} more say the same"] if alike else []
    entry = MemoryEntry.of(row)
    return MemoryHit(entry=entry, score=hit.score, why="; ".join(why), layer=entry.layer or "working", alike=alike)


SHARE_MIN = 0.5
_NOT_TELLING = frozenset("happens occurs task asked need needs someone somebody".split())
_BEGINNING_CHARS_MIN, _BEGINNING_CHARS_MAX, _ENDING_CHARS_MAX = 4, 7, 5


def applicable(rules: Iterable[ProceduralRule], text: str) -> list[ProceduralRule]:
    """The rules whose condition is met by a task's text, as they come.

    A condition is met if the text has at least half of its significant words, in any form; one without
    telling words always is.
    """
    said = frozenset(words(fold_case(text)))
    return [rule for rule in rules if _is_met(rule.condition, said)]


def _is_met(condition: str, said: Collection[str]) -> bool:
    unwanted = common_words() | _NOT_TELLING
    asked = {word for word in words(fold_case(condition)) if word not in unwanted}
    return sum(any(_are_forms(word, other) for other in said) for word in asked) >= SHARE_MIN * len(asked)


def _are_forms(one: str, other: str) -> bool:
    """Whether two words are forms of one: of one English stem, or begun alike and about as long, in any language."""
    if stem(one) == stem(other):
        return True
    shorter, longer = sorted((len(one), len(other)))
    beginning = max(_BEGINNING_CHARS_MIN, min(_BEGINNING_CHARS_MAX, shorter - 2))
    alike = one[:beginning] == other[:beginning] and longer <= beginning + _ENDING_CHARS_MAX
    return alike and not any(map(str.isdigit, (one, other)))
