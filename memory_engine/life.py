"""A thread's life after it was made: paused, forked, archived, deleted."""

from collections.abc import Mapping

import msgspec

from memory_engine.directory import OpenThreads
from memory_engine.errors import ThreadHasForks
from memory_engine.events.execution import ExecutionPause
from memory_engine.handle import ThreadHandle
from memory_engine.log import live_chunk
from memory_engine.persistence import ACTIVE, DELETED, PAUSED, ForkPoint, Head, check_record
from memory_engine.records import Receipt


async def pause(thread: ThreadHandle, reason: str) -> Receipt:
    """See `Thread.pause`."""
    runtime = await thread.runtime()
    event = ExecutionPause(content=reason)
    if runtime.head.status != PAUSED:
        return await thread.dispatch(event)
    request = thread.kernel.request([event], system=True)  # it would wait for its own end
    return (await runtime.submit(request))[0]


async def fork(thread: ThreadHandle, seq: int, *, thread_id: str, metadata: Mapping[str, str]) -> str:
    """Make a thread that shares the past up to `seq`; its id. Raises what `Thread.fork` raises."""
    kernel = thread.kernel
    kernel.check_writable("a fork")
    loaded = await kernel.store.load(thread.id)
    state = await thread.state(at=seq)
    hash_ = b""
    for stored in await kernel.store.read(thread.id, after=max(0, seq - 1), upto=seq, limit=1):
        hash_ = stored.hash
    record = msgspec.structs.replace(
        loaded.record,
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
    runtime = await thread.runtime()
    await runtime.idle()
    await kernel.store.delete(thread.id)
    for clear in threads.after_delete:
        await clear(thread.id)
    threads.drop(thread.id)
    runtime.end(DELETED)
