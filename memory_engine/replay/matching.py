"""Pairs of chunks in two states: versions, summaries and their originals, and moved ones."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec
from attrs import evolve, frozen

from memory_engine.core.aside import aside
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.json_form import JsonForm, as_data
from memory_engine.core.lineage import Carried, place
from memory_engine.core.state import Placed, State
from memory_engine.replay.lineage import carriers, read_chunks
from memory_engine.runtime.handle import PastHandle

_NOT_CONTENT = frozenset({"id", "parent_ids"})
"""Fields that show where a chunk comes from: a new version always has others than the old one."""


@frozen
class Changed(JsonForm):
    """A chunk and another version of it. Without `fields` only the id differs."""

    before: Chunk
    after: Chunk

    @property
    def fields(self) -> dict[str, tuple[object, object]]:
        """Old and new values, as JSON values, of the fields that differ; `None` for one that is not set."""
        old, new = _comparable_fields(self.before), _comparable_fields(self.after)
        names = [*old, *(name for name in new if name not in old)]
        return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}

    def as_data(self) -> dict[str, object]:
        """As plain JSON values: ids for the chunks."""
        return {"before": self.before.id, "after": self.after.id, "fields": as_data(self.fields)}


@frozen
class Compacted:
    """A summary of one side, and its originals among the chunks of the other, in their order."""

    summary: str
    covers: tuple[str, ...]


class Side:
    """One of the two moments: its chunks by id, in order."""

    def __init__(self, past: PastHandle, state: State) -> None:
        self.past = past
        self.state = state
        self.placed: dict[str, Placed] = {placed.chunk.id: placed for placed in state.placed()}

    def chunks(self, ids: Iterable[str]) -> tuple[Chunk, ...]:
        """Chunks by id, in the order of the state."""
        wanted = set(ids)
        return tuple(placed.chunk for chunk_id, placed in self.placed.items() if chunk_id in wanted)


@frozen(kw_only=True)
class Matched:
    """How the chunks of two states differ, from the older to the newer; `pairs` are ids of one chunk on either side."""

    added: tuple[Chunk, ...]
    removed: tuple[Chunk, ...]
    changed: tuple[Changed, ...]
    moved: tuple[str, ...]
    moved_before: tuple[str, ...]
    compacted: tuple[Compacted, ...]
    restored: tuple[Compacted, ...]

    def mirrored(self) -> "Matched":
        """The same from the newer to the older."""
        return evolve(
            self,
            added=self.removed,
            removed=self.added,
            changed=tuple(Changed(change.after, change.before) for change in self.changed),
            moved=self.moved_before,
            moved_before=self.moved,
            compacted=self.restored,
            restored=self.compacted,
        )


async def match(older: Side, newer: Side, shared: int) -> Matched:
    """Matches the chunks of two states whose logs are one up to `shared`; the older state is named first."""
    items = len(older.placed) + len(newer.placed)
    matching = await aside(lambda: _begun(older, newer, shared), items=items)
    if matching.removed and matching.added:
        await _match_by_event(matching, shared)
        matching.match_by_name()
        await _match_by_lineage(matching, shared)
    return await aside(lambda: _matched(matching), items=items)


def _begun(older: Side, newer: Side, shared: int) -> "_Matching":
    both = (chunk_id for chunk_id in older.placed if chunk_id in newer.placed and place(chunk_id)[0] <= shared)
    return _Matching(older, newer, {chunk_id: chunk_id for chunk_id in both})


def _matched(matching: "_Matching") -> Matched:
    older, newer, pairs = matching.older, matching.newer, matching.pairs
    moved = _moved(older, newer, {**matching.common, **pairs})
    return Matched(
        added=newer.chunks(matching.added),
        removed=older.chunks(matching.removed),
        changed=tuple(
            Changed(older.placed[old].chunk, newer.placed[pairs[old]].chunk) for old in older.placed if old in pairs
        ),
        moved=tuple(new for _, new in moved),
        moved_before=tuple(old for old, _ in moved),
        compacted=matching.compacted,
        restored=matching.restored,
    )


class _Matching:
    """The chunks that are not on both sides, and the pairs among them, found step by step."""

    def __init__(self, older: Side, newer: Side, common: dict[str, str]) -> None:
        self.older, self.newer, self.common = older, newer, common
        self.removed = {chunk_id: placed.chunk for chunk_id, placed in older.placed.items() if chunk_id not in common}
        self.added = {chunk_id: placed.chunk for chunk_id, placed in newer.placed.items() if chunk_id not in common}
        self.pairs: dict[str, str] = {}
        self.compacted: tuple[Compacted, ...] = ()
        self.restored: tuple[Compacted, ...] = ()

    def pair(self, old: str, new: str) -> None:
        """These are one chunk; if nothing distinguishes them, it is common to both."""
        before, after = self.removed.pop(old), self.added.pop(new)
        if old == new and _comparable_fields(before) == _comparable_fields(after):
            self.common[old] = new
        else:
            self.pairs[old] = new

    def match_by_name(self) -> None:
        """A name stays when its chunk is changed."""
        named: dict[str, list[str]] = {}
        for chunk in self.removed.values():
            if chunk.name:
                named.setdefault(chunk.name, []).append(chunk.id)
        for chunk in list(self.added.values()):
            if chunk.name and named.get(chunk.name):
                self.pair(named[chunk.name].pop(0), chunk.id)


async def _match_by_event(matching: _Matching, shared: int) -> None:
    """Pair the chunks of the same event, by its id, in two logs that went different ways."""
    old = [chunk_id for chunk_id in matching.removed if place(chunk_id)[0] > shared]
    new = [chunk_id for chunk_id in matching.added if place(chunk_id)[0] > shared]
    if not old or not new:
        return
    made = {key: chunk_id for chunk_id, key in (await _makers(matching.newer.past, new)).items()}
    for chunk_id, key in (await _makers(matching.older.past, old)).items():
        if key in made:
            matching.pair(chunk_id, made[key])


async def _makers(past: PastHandle, chunk_ids: Collection[str]) -> dict[str, tuple[str, int]]:
    """The event's id and the number, by chunk id."""
    rows = await past.kernel.reader.rows_at(past.id, {place(chunk_id)[0] for chunk_id in chunk_ids})
    places = {chunk_id: place(chunk_id) for chunk_id in chunk_ids}
    return {chunk_id: (rows[seq].id, number) for chunk_id, (seq, number) in places.items() if seq in rows}


async def _match_by_lineage(matching: _Matching, shared: int) -> None:
    """Pair versions, and find the originals of summaries, by the sources of both sides."""
    older, newer = matching.older, matching.newer
    base = older.placed if older.past.seq == shared else Side(older.past, await older.past.state(at=shared)).placed
    gone = {chunk_id for chunk_id in base if chunk_id not in matching.common}
    old = await _carried(older, matching.removed, gone, shared)
    new = await _carried(newer, matching.added, gone, shared)
    versions = _versions(old)
    for chunk in list(matching.added.values()):
        for before in (b for origin, covers in new[chunk.id].items() if not covers for b in versions.get(origin, ())):
            if before in matching.removed and matching.removed[before].type == chunk.type:
                matching.pair(before, chunk.id)
                break
    await _match_made_anew(matching, shared)
    undone = await _undone(older, matching.removed, matching.added, base)
    redone = {} if older.past.id == newer.past.id else await _undone(newer, matching.added, matching.removed, base)
    matching.compacted = _covering(new, old, matching.added, matching.removed, redone)
    matching.restored = _covering(old, new, matching.removed, matching.added, undone)


async def _carried(side: Side, loose: Mapping[str, Chunk], gone: Collection[str], shared: int) -> dict[str, Carried]:
    """By each of a side's loose chunks: the chunks of the common past that it is, is made of, or covers."""
    made: Mapping[str, Carried] = {}
    if any(chunk.parent_ids and chunk.seq > shared for chunk in loose.values()):
        made = await carriers(side.past.kernel, side.past.id, gone, after=shared, upto=side.past.seq)
    return {chunk_id: {chunk_id: False} if chunk_id in gone else made.get(chunk_id, {}) for chunk_id in loose}


def _versions(carried: Mapping[str, Carried]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for chunk_id, origins in carried.items():
        for origin, covers in origins.items():
            if not covers:
                found.setdefault(origin, []).append(chunk_id)
    return found


async def _match_made_anew(matching: _Matching, shared: int) -> None:
    """Pair summaries of the very same chunks: one replaces the other."""
    old = {chunk.parent_ids: chunk.id for chunk in matching.removed.values() if chunk.type == ChunkType.COMPACTED}
    for chunk in list(matching.added.values()):
        parents = chunk.parent_ids
        if chunk.type == ChunkType.COMPACTED and parents in old:
            later = [parent for parent in parents if place(parent)[0] > shared]
            if await _makers(matching.older.past, later) == await _makers(matching.newer.past, later):
                matching.pair(old.pop(parents), chunk.id)


async def _undone(
    side: Side, summaries: Mapping[str, Chunk], loose: Mapping[str, Chunk], base: Collection[str]
) -> dict[str, set[str]]:
    """By each summary of a side: chunks of the other whose older version it covers, from before either of the two.

    So it is after an undone compaction: its originals are there again, as new versions.
    """
    wanted = {parent: chunk.id for chunk in loose.values() for parent in chunk.parent_ids if parent not in base}
    tops = [chunk for chunk in summaries.values() if chunk.type == ChunkType.COMPACTED and chunk.id in base]
    if not wanted or not tops:
        return {}
    kernel, thread_id = side.past.kernel, side.past.id
    earlier = [parent for parent in wanted if place(parent)[0] <= max(top.seq for top in tops)]
    known = await read_chunks(kernel, thread_id, earlier)
    missing = {parent for parent, chunk in known.items() if chunk.type == loose[wanted[parent]].type}
    found: dict[str, set[str]] = {top.id: set() for top in tops}
    levels = {top.id: top.parent_ids for top in tops}
    while missing and any(levels.values()):
        for top, covered in levels.items():
            found[top].update(wanted[parent] for parent in covered if parent in missing)
        reached = {parent for covered in levels.values() for parent in covered}
        missing -= reached
        inner = await read_chunks(kernel, thread_id, reached) if missing else {}
        opened = {chunk.id: chunk.parent_ids for chunk in inner.values() if chunk.type == ChunkType.COMPACTED}
        levels = {top: tuple(p for one in covered for p in opened.get(one, ())) for top, covered in levels.items()}
    return found


def _covering(
    carried: Mapping[str, Carried],
    other: Mapping[str, Carried],
    loose: Mapping[str, Chunk],
    covered: Mapping[str, Chunk],
    more: Mapping[str, Collection[str]],
) -> tuple[Compacted, ...]:
    """The loose chunks of one side that summarise some of the other."""
    versions = _versions({chunk_id: other[chunk_id] for chunk_id in covered})
    result = []
    for chunk_id in loose:
        found = {one for origin, covers in carried[chunk_id].items() if covers for one in versions.get(origin, ())}
        found.update(more.get(chunk_id, ()))
        if found:
            result.append(Compacted(chunk_id, tuple(one for one in covered if one in found)))
    return tuple(result)


def _moved(older: Side, newer: Side, pairs: Mapping[str, str]) -> list[tuple[str, str]]:
    """The fewest of the chunks common to both sides whose moving gives the newer order, by both ids."""
    if list(pairs.values()) == list(newer.placed) and list(pairs) == list(older.placed):
        return []
    at = {pairs[old]: (n, old) for n, old in enumerate(older.placed) if old in pairs}
    siblings: dict[str, list[str]] = {}
    moved: set[str] = set()
    for new, placed in newer.placed.items():
        if new not in at:
            continue
        container = older.placed[at[new][1]].container
        if placed.container == (pairs.get(container, container) if container else ""):
            siblings.setdefault(placed.container, []).append(new)
        else:
            moved.add(new)
    for ids in siblings.values():
        kept = longest_rising([at[new][0] for new in ids])
        moved.update(new for n, new in enumerate(ids) if n not in kept)
    return [(at[new][1], new) for new in newer.placed if new in moved]


def longest_rising(values: Sequence[int]) -> set[int]:
    """The positions of a longest rising subsequence (patience sorting, Fredman 1975)."""
    if all(a < b for a, b in pairwise(values)):
        return set(range(len(values)))
    ends: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for n, value in enumerate(values):
        length = bisect_left(ends, value)
        before.append(at[length - 1] if length else -1)
        if length == len(ends):
            ends.append(value)
            at.append(n)
        else:
            ends[length], at[length] = value, n
    kept: set[int] = set()
    n = at[-1] if at else -1
    while n >= 0:
        kept.add(n)
        n = before[n]
    return kept


def _comparable_fields(chunk: Chunk) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(chunk)
    return {name: value for name, value in fields.items() if name not in _NOT_CONTENT}
