"""Checks whether a plan is still valid after events arrived while a compactor worked."""

from collections.abc import Collection, Sequence

from memory_engine.compaction.plan import Plan, worked_on, working_flow
from memory_engine.context.invariants import Bonds, Questions, Responses
from memory_engine.core.chunks import Chunk
from memory_engine.core.state import State


def obstacle(plan: Plan, shown: Collection[str], before: State, now: State) -> str:
    """Return why a plan made from the state `before` cannot be applied to `now`; `""` if it can.

    `shown` are chunks that the compactor saw in addition to the chunks it takes: its summary may contain their text.
    """
    if before.seq == now.seq or now.has_chunks_of(before):
        return ""
    for chunk_id in plan.chunk_ids:
        if _contents(before, chunk_id) != _contents(now, chunk_id):
            return f"chunk {chunk_id} was changed or forgotten meanwhile"
    for chunk_id in shown:
        if now.get(chunk_id) is None:
            return f"chunk {chunk_id}, which the compactor was shown, was changed or forgotten meanwhile"
    return _split(plan, working_flow(now))


def _contents(state: State, chunk_id: str) -> list[str]:
    """Return the ids of a chunk and of everything it contains, at any depth; empty if the chunk no longer exists."""
    placed = state.placed_at(chunk_id)
    return [inner.chunk.id for inner in state.placed_within(placed)] if placed is not None else []


def _split(plan: Plan, flow: Sequence[Chunk]) -> str:
    """Return why the plan would split an atom after new chunks arrived; `""` if it does not."""
    taken = set(plan.chunk_ids)
    again = next((chunk.id for chunk in worked_on(flow) if chunk.id in taken), "")
    if again:
        return f"message {again} is being worked on again"
    # Loops are not checked: older rounds of an unfinished loop are independent, and the plan may have taken some of
    # them.
    bonds = Bonds(_others=(Responses(), Questions()))
    for atom in bonds.read(flow).atoms():
        ids = {chunk.id for chunk in atom.chunks}
        met = ids & taken
        if met and (atom.open or met != ids):
            return f"something came meanwhile that belongs with chunk {min(met)}"
    return ""
