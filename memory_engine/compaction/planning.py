"""What a compaction takes: whole, closed atoms; DISPOSABLE first; never what is CRITICAL or too new."""

from collections.abc import Collection, Sequence

from attrs import frozen

from memory_engine.chunks import Category, Chunk, ChunkType, Retention
from memory_engine.context.invariants import INVARIANTS, Atom, atoms_of
from memory_engine.persistence import CompactionPolicy
from memory_engine.state import State, Tally

SINGLE_TOKENS_MIN = 64
"""A COMPRESSIBLE chunk below this stays as it is: nothing is won by a summary of one line."""


@frozen(kw_only=True)
class Plan:
    """Chunk ids: those to drop, those to replace one by one, and those to replace together (in order)."""

    drops: tuple[str, ...] = ()
    singles: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()

    @property
    def chunk_ids(self) -> tuple[str, ...]:
        """Everything the plan touches."""
        return (*self.drops, *self.singles, *self.batch)

    def __bool__(self) -> bool:
        return bool(self.chunk_ids)


def is_due(tally: Tally, policy: CompactionPolicy) -> bool:
    """Whether the thresholds ask for a compaction. O(1): the counters are kept with the state."""
    return policy.enabled and (
        tally.compactable >= policy.threshold or tally.compactable_tokens > policy.soft_tokens
    )


def is_overdue(tally: Tally, policy: CompactionPolicy) -> bool:
    """Whether the hard limit asks for a compaction before the next context."""
    return policy.enabled and tally.compactable_tokens > policy.hard_tokens


def plan_auto(state: State, policy: CompactionPolicy) -> Plan:
    """What to compact when a threshold is passed; empty where no cut makes progress.

    If dropping DISPOSABLE chunks gets below the thresholds, no more is done.
    """
    flow = _flow(state)
    kept = {chunk.id for chunk in flow[len(flow) - policy.keep_recent :]} if policy.keep_recent else set()
    plan = _plan(state, [a for a in _closed(flow) if not kept.intersection(c.id for c in a.chunks)], policy)
    if plan.drops:
        left = state.tally
        for chunk in flow:
            if chunk.id in plan.drops:
                left = left.plus(chunk, -1)
        if not is_due(left, policy):
            return Plan(drops=plan.drops)
    return plan


def plan_manual(state: State, policy: CompactionPolicy, chunk_ids: Collection[str] | None) -> Plan:
    """Everything compactable, or those of the given chunks whose atoms may be taken (with their partners)."""
    atoms = _closed(_flow(state))
    if chunk_ids is not None:
        wanted = set(chunk_ids)
        atoms = [atom for atom in atoms if wanted.intersection(c.id for c in atom.chunks)]
    return _plan(state, atoms, policy)


def _flow(state: State) -> list[Chunk]:
    return [c for c in state.chunks() if c.category is Category.WORKING_FLOW]


def _closed(flow: Sequence[Chunk]) -> list[Atom]:
    return [atom for atom in atoms_of(flow, INVARIANTS) if not atom.open]


def _plan(state: State, atoms: Sequence[Atom], policy: CompactionPolicy) -> Plan:
    drops: list[str] = []
    singles: list[str] = []
    batch: list[Chunk] = []
    for atom in atoms:
        left = [chunk for chunk in atom.chunks if chunk.retention is not Retention.DISPOSABLE or _is_bound(chunk)]
        drops += [chunk.id for chunk in atom.chunks if chunk not in left]
        if not all(chunk.is_compactable for chunk in left):
            continue
        if len(left) == 1 and left[0].retention is Retention.COMPRESSIBLE:
            if left[0].tokens >= SINGLE_TOKENS_MIN:
                singles.append(left[0].id)
        else:
            batch += left
    order = {chunk.id: n for n, chunk in enumerate(state.chunks())}
    summaries = _summaries_to_merge(state, policy) if batch else []
    ids = tuple(chunk.id for chunk in sorted([*summaries, *batch], key=lambda chunk: order[chunk.id]))
    return Plan(drops=tuple(drops), singles=tuple(singles), batch=ids if len(ids) > 1 else ())


def _is_bound(chunk: Chunk) -> bool:
    return bool(chunk.calls or chunk.call_id)


def _summaries_to_merge(state: State, policy: CompactionPolicy) -> list[Chunk]:
    """The summaries, once together they pass the limit; until then they stand, and the prefix with them."""
    summaries = [
        c for c in state.chunks() if c.type == ChunkType.COMPACTED and c.retention is Retention.COMPRESSIBLE
    ]
    return summaries if sum(chunk.tokens for chunk in summaries) > policy.summary_tokens_max else []
