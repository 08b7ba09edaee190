"""The end of a conversation, from the last events alone, however long the log is.

What is added at the end of a state comes after all that was there before. So whatever these events do to older
chunks, theirs are the last, and in their order.
"""

from collections.abc import Iterable, Sequence

from memory_engine.core.chain import check_hash
from memory_engine.core.chunks import Chunk
from memory_engine.core.codec import decode_reduction
from memory_engine.core.operations import Add, BatchReplace, Delete, Operation, Replace, Update, flattened
from memory_engine.core.records import StoredEvent
from memory_engine.inspector.states import turns_of
from memory_engine.store.reader import LogReader

EVENTS = 400
"""How many events are read."""


Order = dict[str, tuple[Chunk, str]]
"""Chunks by id, each with its container, in the order of the state."""


async def last_turns(reader: LogReader, thread_id: str, seq: int, limit: int) -> Sequence[Sequence[str]] | None:
    """The last turns of the conversation after the event at `seq`; `None` if the last events do not decide.

    Raises `IntegrityError`.
    """
    order: Order = {}
    async for stored in reader.walk(thread_id, after=max(0, seq - EVENTS), upto=seq):
        known = _after(order, stored, thread_id)
        if known is None:
            return None
        order = known
    turns = turns_of(chunk for chunk, _ in order.values())
    return turns[0 if seq <= EVENTS else 1 :][-limit:] or None  # the first may have begun before these events


def _after(order: Order, stored: StoredEvent, thread_id: str) -> Order | None:
    """The end of the chunks added since an event; `None` if these events do not decide it."""
    check_hash(thread_id, stored)
    record = decode_reduction(stored.record)
    made = {chunk.id: chunk for chunk in record.chunks}
    for operation in flattened(record.operations):
        known = _applied(order, operation, made)
        if known is None:
            return None
        order = known
    return order


def _applied(order: Order, operation: Operation, made: dict[str, Chunk]) -> Order | None:
    match operation:
        case Add(before="", after="", first=False):
            return _order_with_chunk(order, operation, made)
        case Add(container=container, before=before, after=after):
            return None if {container, before, after} & order.keys() else order  # else it is among the older ones
        case Update(chunk=chunk, by=by) | Replace(chunk=chunk, by=by):
            return _instead(order, (chunk,), (by,), made)
        case Delete(chunk=chunk):
            return _instead(order, (chunk,), (), made)
        case BatchReplace(chunks=chunks, by=by):
            return _instead(order, chunks, by, made)
        case _:
            return None


def _order_with_chunk(order: Order, operation: Add, made: dict[str, Chunk]) -> Order | None:
    """Add a chunk at the end of the state or of a container; one in an older container does not count."""
    container, chunk = operation.container, made.get(operation.chunk)
    if container and container not in order:
        return order
    if chunk is None or (container and order[container][1]):
        return None
    new = {operation.chunk: (chunk, container)}
    if not container:
        return order | new
    ids = list(order)
    ends = 1 + max(n for n, one in enumerate(ids) if container in (one, order[one][1]))
    return {one: order[one] for one in ids[:ends]} | new | {one: order[one] for one in ids[ends:]}


def _instead(order: Order, gone: Iterable[str], by: Sequence[str], made: dict[str, Chunk]) -> Order | None:
    """Put others in the place of the first that goes; if that was an older one, they are among the older ones."""
    taken = dict.fromkeys(gone)
    place = next((chunk_id for chunk_id in order if chunk_id in taken), None)
    if place is None:
        return order
    if not made.keys() >= set(by) or any(container in taken for _, container in order.values()):
        return None
    is_ours = all(chunk_id in order for chunk_id in taken)
    found: Order = {}
    for chunk_id, placed in order.items():
        if chunk_id == place and is_ours:
            found |= {new: (made[new], placed[1]) for new in by}
        if chunk_id not in taken:
            found[chunk_id] = placed
    return found
