"""The later fate of chunks, read from logs: when they left the state, which chunks are versions of them or cover them.

What one event says of it is in `core.lineage`.
"""

from collections.abc import Collection, Iterable, Sequence

from memory_engine.core.chain import decode_record, decode_row
from memory_engine.core.chunks import Chunk
from memory_engine.core.lineage import Carriers, place, taken_chunks
from memory_engine.runtime.handle import PastHandle
from memory_engine.runtime.kernel import Kernel


async def read_chunks(kernel: Kernel, thread_id: str, chunk_ids: Iterable[str]) -> dict[str, Chunk]:
    """Those of the chunks that the log holds, live or not."""
    wanted = set(chunk_ids)
    rows = await kernel.reader.rows_at(thread_id, {place(chunk_id)[0] for chunk_id in wanted} - {0})
    found: dict[str, Chunk] = {}
    for stored in rows.values():
        _, reduction = decode_row(thread_id, stored, kernel.events)
        found.update((chunk.id, chunk) for chunk in reduction.chunks if chunk.id in wanted)
    return found


async def carriers(
    kernel: Kernel, thread_id: str, base: Collection[str], *, after: int, upto: int
) -> dict[str, dict[str, bool]]:
    """Every chunk that was made after one seq, up to another, of chunks in `base`, with those, at any remove."""
    found = Carriers(base)
    if not base or upto <= after:
        return found.carried
    # most events bring chunks without parents: those are not read
    types = kernel.events.of_chunks("any", "versions", "copies", "summaries")
    async for stored in kernel.reader.walk(thread_id, after=after, upto=upto, types=types):
        if stored.record:
            record = decode_record(thread_id, stored)
            found.note(record.operations, record.chunks)
    return found.carried


async def shared_seq(kernel: Kernel, a: tuple[str, int], b: tuple[str, int]) -> int:
    """The last seq up to which two logs, each a thread's up to a seq, are one: a fork's and its origin's, say."""
    upto = min(a[1], b[1])
    if a[0] == b[0] or upto == 0:
        return upto

    async def are_same(seq: int) -> bool:
        one = await kernel.reader.rows_at(a[0], {seq})
        other = await kernel.reader.rows_at(b[0], {seq})
        return one[seq].hash == other[seq].hash

    if await are_same(upto):
        return upto
    low, high = 0, upto
    while high - low > 1:
        middle = (low + high) // 2
        if await are_same(middle):
            low = middle
        else:
            high = middle
    return low


SCANNED = 1_024
"""Events that are looked through for the one that took a chunk away; of more, snapshots show where to look."""


async def removed_at(past: PastHandle, chunk_ids: Sequence[str]) -> dict[str, int]:
    """The seqs of the events after which chunks that are not in the state any more were gone, by halving.

    A chunk never comes back under its id, so that a few states suffice for any number of chunks that went together.
    """
    found: dict[str, int] = {}
    waiting = [(0, past.seq, list(chunk_ids))] if chunk_ids else []
    while waiting:
        low, high, ids = waiting.pop()  # made after `low`, or there at it; gone at `high`
        if high - low <= SCANNED:
            found |= await _taken_between(past, low, high, frozenset(ids))
            ids = [one for one in ids if one not in found]  # what stood inside another went with it
        if not ids:
            continue
        if high - low <= 1:
            found.update(dict.fromkeys(ids, high))
            continue
        middle, there = await _there(past, low, (low + high) // 2)
        later = [one for one in ids if place(one)[0] > middle or one in there]
        earlier = [one for one in ids if place(one)[0] <= middle and one not in there]
        waiting += [(*span, some) for span, some in (((low, middle), earlier), ((middle, high), later)) if some]
    return found


async def _there(past: PastHandle, low: int, middle: int) -> tuple[int, Collection[str]]:
    """The ids of the chunks in the state at a seq, or at that of a snapshot before it that is above `low`."""
    reader = past.kernel.reader
    near = await reader.kept_before(past.id, middle)
    if near is not None and near[0] > low:
        return near
    state = await reader.state_at(past.id, middle)
    return middle, frozenset(placed.chunk.id for placed in state.placed())


async def _taken_between(past: PastHandle, low: int, high: int, chunk_ids: Collection[str]) -> dict[str, int]:
    """The seqs of the events that took these chunks away by themselves, among those after one seq up to another."""
    found: dict[str, int] = {}
    async for stored in past.kernel.reader.walk(past.id, after=low, upto=high):
        if stored.record:
            gone = taken_chunks(decode_record(past.id, stored).operations)
            found.update((one.chunk, stored.seq) for one in gone if one.chunk in chunk_ids)
    return found
