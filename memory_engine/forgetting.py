"""Forgetting: what is hidden from every view, here and where facts of it went."""

from collections.abc import Sequence

from memory_engine.errors import EventNotFound
from memory_engine.events.memory import MemoryForget
from memory_engine.handle import ThreadHandle
from memory_engine.records import Receipt
from memory_engine.relay import Relay


async def forget(
    thread: ThreadHandle, *, chunk_ids: Sequence[str] = (), event_ids: Sequence[str] = (), reason: str = ""
) -> Receipt:
    """See `Thread.forget`."""
    store, reader, relay = thread.kernel.store, thread.kernel.reader, thread.kernel[Relay]
    found = {stored.id: stored.seq for stored in await store.find(thread.id, list(event_ids))}
    missing = [event_id for event_id in event_ids if event_id not in found]
    if missing:
        raise EventNotFound(thread.id, missing[0])
    await reader.chunks(thread.id, list(chunk_ids))
    heads = {int(chunk_id.partition(".")[0]) for chunk_id in chunk_ids}
    told = {*found, *await reader.ids_at(thread.id, heads)}
    versions, summaries = await reader.made_of(thread.id, chunk_ids, found.values(), told)
    chunk_ids = tuple(dict.fromkeys((*chunk_ids, *versions)))
    brought = await reader.ids_at(thread.id, {int(chunk_id.partition(".")[0]) for chunk_id in chunk_ids})
    reach, waiting = await relay.reach(thread.id, {*found, *brought})
    seqs = tuple(sorted({*found.values(), *waiting}))
    event = MemoryForget(
        chunk_ids=chunk_ids,
        seqs=seqs,
        reason=reason,
        summaries=tuple(summaries),
        call_ids=await reader.call_ids(thread.id, chunk_ids, seqs),
        reach=reach,
    )
    receipt = await thread.dispatch(event)
    await relay.deliver(thread.id)
    return receipt
