"""When chunks left the state."""

from collections.abc import Sequence

from memory_engine.handle import PastHandle
from memory_engine.operations import Batch, BatchReplace, Delete, Operation, Replace, Update
from memory_engine.replay.diffing.lineage import place


async def removed_at(past: PastHandle, chunk_ids: Sequence[str]) -> dict[str, int]:
    """The seqs of the events after which chunks that are not in the state any more were gone, by halving.

    A chunk never comes back under its id, so that a few states tell it of any number of chunks that went together.
    """
    found: dict[str, int] = {}
    waiting = [(0, past.seq, list(chunk_ids))] if chunk_ids else []
    while waiting:
        low, high, ids = waiting.pop()  # made after `low`, or there at it; gone at `high`
        if high - low <= 1:
            found.update(dict.fromkeys(ids, high))
            continue
        middle = (low + high) // 2
        state = await past.state(at=middle)
        later = [one for one in ids if place(one)[0] > middle or state.get(one) is not None]
        earlier = [one for one in ids if place(one)[0] <= middle and state.get(one) is None]
        waiting += [(*span, some) for span, some in (((low, middle), earlier), ((middle, high), later)) if some]
    return found


def taken_by(operations: Sequence[Operation]) -> list[str]:
    """The chunks that operations take out of the state, without those that stand inside them."""
    taken: list[str] = []
    for operation in operations:
        match operation:
            case Batch():
                taken += taken_by(operation.operations)
            case BatchReplace():
                taken += operation.chunks
            case Update() | Replace() | Delete():
                taken.append(operation.chunk)
    return taken
