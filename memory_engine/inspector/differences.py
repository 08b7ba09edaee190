"""The difference of two states as a page shows it; of very large ones, the changed chunks only."""

from collections.abc import Collection, Sequence

from memory_engine.core.state import Placed, State
from memory_engine.inspector.offload import apart, beside
from memory_engine.inspector.states import Laid, Seen
from memory_engine.replay.diff import ContextDiff, Diff, Point, diff
from memory_engine.replay.lineage import shared_seq
from memory_engine.replay.matching import Side, match
from memory_engine.runtime.handle import PastHandle

WHOLE_MAX = 2_000
"""The most chunks in a state for comparing contexts and views too; more would take too long for a page."""
DIFFERENT_MAX = 2_000
"""How many chunks of either side are compared in larger states."""


async def difference(a: Seen, b: Seen) -> dict[str, object]:
    """The difference as data (see `replay.diff.Diff`).

    For larger states `context` and `views` are `None`, and `left_out` counts the oldest chunks of either side
    that differ and were not compared.
    """
    one, other = await a.laid(), await b.laid()
    if max(len(one), len(other)) <= WHOLE_MAX:
        before, after = await a.held(), await b.held()
        return await apart(a.kernel, lambda: _full_difference(before, after))
    shared = await shared_seq(a.kernel, (a.id, a.seq), (b.id, b.seq))
    only_one, only_other, moved = await beside(lambda: _different(one, other, shared))
    is_forward = (a.seq, a.id) <= (b.seq, b.id)
    left, right = Side(a, await _narrowed(a, only_one)), Side(b, await _narrowed(b, only_other))
    found = await (match(left, right, shared) if is_forward else match(right, left, shared))
    chunks = found if is_forward else found.mirrored()
    whole = Diff(
        a=Point(a.id, a.seq, len(one), one.state.tally.tokens),
        b=Point(b.id, b.seq, len(other), other.state.tally.tokens),
        added=chunks.added,
        removed=chunks.removed,
        changed=chunks.changed,
        moved=tuple(moved),
        compacted=chunks.compacted,
        restored=chunks.restored,
        context=ContextDiff(tokens=(0, 0), bytes=(0, 0), kept_bytes=0, lines=()),
    )
    left_out = [max(0, len(only) - DIFFERENT_MAX) for only in (only_one, only_other)]
    return whole.as_data() | {"context": None, "views": None, "left_out": left_out}


async def _full_difference(a: PastHandle, b: PastHandle) -> dict[str, object]:
    return (await diff(a, b)).as_data()


def _different(one: Laid, other: Laid, shared: int) -> tuple[Sequence[Placed], Sequence[Placed], Sequence[str]]:
    """The chunks on one side only, in its order, and the ids of those that moved.

    A chunk made after the shared part of two logs is never the same as one of the other log, even with the same id.
    """
    before = {placed.chunk.id: placed for placed in one.placed if placed.chunk.seq <= shared}
    after = {placed.chunk.id: placed for placed in other.placed if placed.chunk.seq <= shared}
    moved = [
        chunk_id
        for chunk_id, placed in after.items()
        if (old := before.get(chunk_id)) is not None and (old.key, old.container) != (placed.key, placed.container)
    ]
    return _without_common(one.placed, after), _without_common(other.placed, before), moved


def _without_common(placed: Sequence[Placed], common: Collection[str]) -> Sequence[Placed]:
    return [place for place in placed if place.chunk.id not in common]


async def _narrowed(past: Seen, placed: Sequence[Placed]) -> State:
    """A flat state of only the latest of these chunks, with their contents."""
    some = placed[-DIFFERENT_MAX:]
    chunks = await past.chunks([place.chunk.id for place in some])
    draft = State().draft()
    for n, place in enumerate(some):
        draft.insert(Placed(chunks[place.chunk.id], n.to_bytes(8, "big"), ""))
    return draft.freeze(past.seq)
