"""Which compactor gets which chunks of a plan."""

import logging
from collections.abc import Mapping, Sequence

from memory_engine.compaction.base import Compactor
from memory_engine.compaction.plan import Plan
from memory_engine.core.chunks import Chunk
from memory_engine.core.state import State

_log = logging.getLogger("memory_engine.compaction")
Afresh = Mapping[str, Sequence[Chunk]]
"""By summary that is made again: the originals that a compactor gets in place of its lines."""
_NONE: Afresh = {}


def assigned(
    state: State, plan: Plan, compactors: Sequence[Compactor], fallback: Compactor, afresh: Afresh = _NONE
) -> tuple[tuple[Compactor, tuple[str, ...]], ...]:
    """Give each chunk to the first compactor that can take it, else to `fallback`; a batch is split by compactor."""

    def taker(chunk_id: str) -> Compactor:
        chunks = given(state, chunk_id, afresh)
        return next((c for c in compactors if chunks and all(can_compact(c, chunk) for chunk in chunks)), fallback)

    pieces = [(taker(chunk_id), (chunk_id,)) for chunk_id in plan.singles]
    batches: dict[int, tuple[Compactor, list[str]]] = {}
    for chunk_id in plan.batch:
        compactor = taker(chunk_id)
        batches.setdefault(id(compactor), (compactor, []))[1].append(chunk_id)
    return (*pieces, *((compactor, tuple(ids)) for compactor, ids in batches.values()))


def given(state: State, chunk_id: str, afresh: Afresh) -> Sequence[Chunk]:
    """The chunks that a compactor is asked about for a chunk; none for one that is gone."""
    if chunk_id in afresh:
        return afresh[chunk_id]
    chunk = state.get(chunk_id)
    return (chunk,) if chunk is not None else ()


def can_compact(compactor: Compactor, chunk: Chunk) -> bool:
    """Whether a compactor says that it knows how to handle a chunk."""
    try:
        return compactor.can_compact((chunk,))
    except Exception:  # the boundary to user code: a compactor that raises here is passed over
        _log.exception("compactor %s cannot say whether it can take chunk %s", compactor.name, chunk.id)
        return False
