"""A thread's life after its creation: pausing, forking, archiving, deleting and forgetting."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from memory_engine.core.arguments import checked_list
from memory_engine.core.chain import live_chunk
from memory_engine.core.events.memory import ExecutionPause, MemoryForget
from memory_engine.core.records import Receipt
from memory_engine.core.threads import ACTIVE, DELETED, PAUSED, DamagedRecord, ForkPoint, Head, check_record
from memory_engine.errors import EventDecodeError, EventNotFound, IntegrityError, ThreadHasForks, UnreadableRow
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.threads import OpenThreads


async def pause(thread: ThreadHandle, reason: str) -> Receipt:
    """See `Thread.pause`."""
    runtime = await thread.runtime()
    event = ExecutionPause(content=reason)
    if runtime.head.status != PAUSED:
        return await thread.dispatch(event)
    request = thread.kernel.request([event], system=True)  # it would wait for its own end
    return (await runtime.submit(request))[0]


async def fork(thread: ThreadHandle, seq: int, *, thread_id: str, metadata: Mapping[str, str]) -> str:
    """Make a thread that shares the past up to `seq`; its id. Raises the errors of `Thread.fork`."""
    kernel = thread.kernel
    kernel.check_writable("a fork")
    loaded = await kernel.store.load(thread.id)
    state = await kernel.reader.state_at(thread.id, seq)
    hash_ = b""
    for stored in await kernel.store.read(thread.id, after=max(0, seq - 1), upto=seq, limit=1):
        hash_ = stored.hash
    origin = loaded.record.mended() if isinstance(loaded.record, DamagedRecord) else loaded.record
    record = msgspec.structs.replace(
        origin,
        id=thread_id or kernel.new_id(),
        created_at_us=kernel.now_us(),
        metadata={**loaded.record.metadata, **metadata},
        forked_from=ForkPoint(thread.id, seq),
    )
    check_record(record)
    head = Head(
        seq=seq,
        hash=hash_,
        status=ACTIVE,
        chunks=state.tally.chunks,
        tokens=state.tally.tokens,
        marks={name: min(mark, seq) for name, mark in loaded.head.marks.items()},
    )
    live = [row for placed in state.placed() if (row := live_chunk(placed)) is not None]
    await kernel.store.create(record, head, live)
    return record.id


async def archive(thread: ThreadHandle) -> None:
    """See `Thread.archive`. No compaction may be under way."""
    thread.kernel.check_writable("archiving")
    await (await thread.runtime()).archive()


async def delete(thread: ThreadHandle) -> None:
    """See `Thread.delete`. No compaction may be under way."""
    kernel, threads = thread.kernel, thread.kernel[OpenThreads]
    kernel.check_writable("deleting")
    forks = await kernel.store.forks(thread.id)
    if forks:
        raise ThreadHasForks(thread.id, tuple(forks))
    for prepare in threads.before_delete:
        await prepare(thread.id)
    runtime = None
    with suppress(IntegrityError, EventDecodeError, UnreadableRow):  # a log that cannot be read can be deleted
        runtime = await thread.runtime()
        await runtime.idle()
    await kernel.store.delete(thread.id)
    for clear in threads.after_delete:
        await clear(thread.id)
    threads.drop(thread.id)
    if runtime is not None:
        runtime.end(DELETED)


async def forget(
    thread: ThreadHandle, *, chunk_ids: Sequence[str] = (), event_ids: Sequence[str] = (), reason: str = ""
) -> Receipt:
    """See `Thread.forget`."""
    event_ids = checked_list("event_ids", event_ids, str, each="ids of events")
    chunk_ids = checked_list("chunk_ids", chunk_ids, str, each="ids of chunks")
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
