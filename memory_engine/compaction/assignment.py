"""Assignment of the chunks of a plan to compactors.

A compactor is asked only about chunks that it would receive: first about all remaining atoms, then about runs of atoms,
the longest run first.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from memory_engine.compaction.base import DECLARABLE, Compactor, categories_of
from memory_engine.compaction.plan import Plan, working_flow
from memory_engine.context.invariants import atoms_of
from memory_engine.core.chunks import Category, Chunk, Retention
from memory_engine.core.state import State
from memory_engine.errors import InvalidCompactor

_log = logging.getLogger("memory_engine.compaction")
Afresh = Mapping[str, Sequence[Chunk]]
"""Maps each summary that is recreated to the originals that a compactor receives instead of the summary's lines."""
Pieces = tuple[tuple[Compactor, tuple[str, ...]], ...]
"""Pairs of a compactor and the ids of the chunks that it summarizes together. A compactor may occur several times."""
RUN_ATOMS_MAX = 32
"""Maximum number of atoms in a run that a compactor is asked about, and so of questions per atom."""
_NONE: Afresh = {}


class Again(msgspec.Struct, frozen=True):
    """Chunks to compact again. `afresh` maps a summary to the originals that replace its lines."""

    plan: Plan
    afresh: Afresh = {}

    def chunks_in(self, state: State) -> list[Chunk]:
        """Return the chunks that a compactor receives, read from `state`."""
        standing = ((chunk_id, state.get(chunk_id)) for chunk_id in self.plan.chunk_ids)
        return [
            one
            for chunk_id, chunk in standing
            for one in self.afresh.get(chunk_id, [chunk] if chunk is not None else [])
        ]


class AtomPart(msgspec.Struct, frozen=True, gc=False):
    """Chunks of one atom to compact (`ids`), and the chunks that a compactor receives for them (`given`)."""

    ids: tuple[str, ...]
    given: tuple[Chunk, ...]


def checked_compactor(given: object) -> Compactor:
    """Return the object as a compactor. Raises `InvalidCompactor`, which says what is missing."""
    lacks = _lacks(given)
    if lacks:
        raise InvalidCompactor(ascii(given), lacks)
    return given  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # it satisfies the protocol


def _lacks(given: object) -> str:
    if isinstance(given, str):
        return f"it is a str; to have a model summarize, open with compact_model={given!a}"
    if isinstance(given, type):
        return "it is a class; give an instance of it"
    if hasattr(given, "complete"):
        return "it is a model; open with compact_model=… to have it summarize"
    for method in ("can_compact", "compact"):
        if not callable(getattr(given, method, None)):
            return f"it has no method `{method}` (see docs/how-to/write-a-compactor.md)"
    name = getattr(given, "name", None)
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        return f"its `name` is {name!a}; give it a short one, which the log records with each of its results"
    other = sorted(categories_of(given) - DECLARABLE)
    return f"its `categories` hold {other[0]!a}; only working_flow and environment can be compacted" if other else ""


def assigned(  # noqa: PLR0913 - the inputs of the assignment, and the compactors
    state: State,
    plan: Plan,
    compactors: Sequence[Compactor],
    fallback: Compactor,
    *,
    afresh: Afresh = _NONE,
    groups: Sequence[AtomPart] | None = None,
) -> Pieces:
    """Assign each atom to the first compactor that can take it, else to `fallback`; split a batch by compactor.

    `groups` are the groups of the plan's batch, if the caller has already computed them.
    """
    pieces: list[tuple[Compactor, tuple[str, ...]]] = []
    for chunk_id in plan.singles:
        single = _atom_part(state, (chunk_id,), afresh)
        able = (c for c in compactors if single.given and _takes_flow(c) and can_compact(c, single.given))
        pieces.append((next(able, fallback), single.ids))
    place = {chunk_id: n for n, chunk_id in enumerate(plan.batch)}
    rest = list(grouped(state, plan.batch, afresh) if groups is None else groups)
    for compactor in filter(_takes_flow, compactors):
        for taken in _accepted_runs(compactor, rest):
            ids = _part_ids(taken)
            pieces.append((compactor, tuple(sorted(ids, key=place.__getitem__))))
            gone = set(ids)
            rest = [group for group in rest if group.ids[0] not in gone]
    return (*pieces, (fallback, tuple(sorted(_part_ids(rest), key=place.__getitem__)))) if rest else tuple(pieces)


def declared(
    state: State, plan: Plan, compactors: Sequence[Compactor], wanted: Collection[str] | None, spared: Collection[str]
) -> tuple[Plan, Pieces]:
    """Return the plan with the chunks outside the working flow that compactors take, and the pieces of these chunks.

    A compactor is asked about chunks of the categories that it declares, or of all. `wanted` restricts the chunks to
    these ids; `spared` excludes ids. CRITICAL chunks are never taken.
    """
    pieces: list[tuple[Compactor, tuple[str, ...]]] = []
    rest = list(state.chunks())
    for compactor in compactors:
        outside = categories_of(compactor) - {Category.WORKING_FLOW}
        if not outside:
            continue
        groups = [
            AtomPart((chunk.id,), (chunk,))
            for chunk in rest
            if chunk.category in outside
            and chunk.retention is not Retention.CRITICAL
            and not chunk.is_container
            and chunk.id not in spared
            and (wanted is None or chunk.id in wanted)
        ]
        pieces += ((compactor, _part_ids(taken)) for taken in _accepted_runs(compactor, groups))
        gone = {chunk_id for _, ids in pieces for chunk_id in ids}
        rest = [chunk for chunk in rest if chunk.id not in gone]
    return replace(plan, outside=tuple(chunk_id for _, ids in pieces for chunk_id in ids)), tuple(pieces)


def _accepted_runs(compactor: Compactor, groups: Sequence[AtomPart]) -> list[list[AtomPart]]:
    """Return the groups that a compactor takes: all together if it can, else in runs."""
    if not groups:
        return []
    if can_compact(compactor, _given(groups)):
        return [list(groups)]
    runs = list(_runs(compactor, groups))
    together = [group for run in runs for group in run]
    return [together] if len(runs) > 1 and can_compact(compactor, _given(together)) else runs


def _runs(compactor: Compactor, groups: Sequence[AtomPart]) -> Iterator[list[AtomPart]]:
    """Yield runs of groups that a compactor can take, from the first group on, each as long as possible."""
    start = 0
    while start < len(groups):
        window = groups[start : start + RUN_ATOMS_MAX]
        ends = range(len(window), 0, -1)
        size = next((end for end in ends if can_compact(compactor, _given(window[:end]))), 0)
        if size:
            yield list(window[:size])
        start += size or 1


def grouped(state: State, batch: Sequence[str], afresh: Afresh) -> list[AtomPart]:
    """Return the chunks of a batch grouped by atom, in order. A summary is a group of its own."""
    leaders = {chunk.id: n for n, atom in enumerate(atoms_of(working_flow(state))) for chunk in atom.chunks}
    by_atom: dict[object, list[str]] = {}
    for chunk_id in batch:
        by_atom.setdefault(leaders.get(chunk_id, chunk_id), []).append(chunk_id)
    return [_atom_part(state, ids, afresh) for ids in by_atom.values()]


def _atom_part(state: State, ids: Sequence[str], afresh: Afresh) -> AtomPart:
    return AtomPart(tuple(ids), tuple(chunk for chunk_id in ids for chunk in _given_for(state, chunk_id, afresh)))


def _given_for(state: State, chunk_id: str, afresh: Afresh) -> Sequence[Chunk]:
    """Return the chunks that a compactor receives for a chunk; empty if the chunk no longer exists."""
    if chunk_id in afresh:
        return afresh[chunk_id]
    chunk = state.get(chunk_id)
    return (chunk,) if chunk is not None else ()


def _given(groups: Sequence[AtomPart]) -> list[Chunk]:
    return [chunk for group in groups for chunk in group.given]


def _part_ids(groups: Sequence[AtomPart]) -> tuple[str, ...]:
    return tuple(chunk_id for group in groups for chunk_id in group.ids)


def refused(state: State, plan: Plan, compactor: Compactor, afresh: Afresh) -> Sequence[Chunk]:
    """Return the chunks of the first part of a plan that a compactor cannot take alone; empty if it can take all."""
    parts = [*((chunk_id,) for chunk_id in plan.singles), *([plan.batch] if plan.batch else [])]
    given = (_atom_part(state, part, afresh).given for part in parts)
    return next((chunks for chunks in given if not can_compact(compactor, chunks)), ())


def _takes_flow(compactor: Compactor) -> bool:
    return Category.WORKING_FLOW in categories_of(compactor)


def can_compact(compactor: Compactor, chunks: Sequence[Chunk]) -> bool:
    """Return True if a compactor says that it can handle the chunks."""
    try:
        return bool(compactor.can_compact(chunks))
    except Exception:  # boundary to user code: a compactor that raises here is skipped
        _log.exception("compactor %s cannot say whether it can take %d chunks", compactor.name, len(chunks))
        return False
