"""Whether a compaction may still take its chunks: events may have come while a compactor worked on them."""

from collections.abc import Collection, Sequence

from memory_engine.compaction.plan import Plan, worked_on, working_flow
from memory_engine.context.invariants import Bonds, Questions, Responses
from memory_engine.core.chunks import Chunk
from memory_engine.core.state import State


def obstacle(plan: Plan, shown: Collection[str], before: State, now: State) -> str:
    """Why a plan made of the state `before` cannot be carried out `now`; `""` if it can.

    `shown` are chunks that a compactor was told of beside those that it takes: its words may be theirs.
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
    """The ids of a chunk and of all that stands in it; none if it is gone."""
    placed = state.placed_at(chunk_id)
    return [inner.chunk.id for inner in state.placed_within(placed)] if placed is not None else []


def _split(plan: Plan, flow: Sequence[Chunk]) -> str:
    """What came since and belongs with a chunk that the plan takes; `""` if nothing does."""
    taken = set(plan.chunk_ids)
    again = next((chunk.id for chunk in worked_on(flow) if chunk.id in taken), "")
    if again:
        return f"message {again} is being worked on again"
    # Loops are left out: the older rounds of one under way stand alone, and the plan may have taken some of them.
    bonds = Bonds(others=(Responses(), Questions()))  # pyright: ignore[reportCallIssue]  # as attrs names `_others`
    for atom in bonds.read(flow).atoms():
        ids = {chunk.id for chunk in atom.chunks}
        met = ids & taken
        if met and (atom.open or met != ids):
            return f"something came meanwhile that belongs with chunk {min(met)}"
    return ""
