"""Deletes whole threads. Says whether a thread is still the one that an act meant: another may have its id by now."""

from contextlib import suppress

from memory_engine.administration.proof import ErasedPieces
from memory_engine.core.threads import DELETED, ThreadRecord
from memory_engine.errors import EventDecodeError, IntegrityError, ThreadNotFound, UnreadableRow
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import ThreadFilter

UNREADABLE = (IntegrityError, EventDecodeError, UnreadableRow)
"""A log that raises one of these cannot be read. It can be deleted."""


async def record_of(kernel: Kernel, thread_id: str) -> ThreadRecord:
    """The record of a thread. Raises `ThreadNotFound`."""
    found = await kernel.store.threads(ThreadFilter(id=thread_id))
    if not found:
        raise ThreadNotFound(thread_id)
    return found[0][0]


async def is_there(kernel: Kernel, thread_id: str, created_at_us: int) -> bool:
    """Whether a thread is there, and still the one that was meant: another may have its id by now."""
    try:
        return (await record_of(kernel, thread_id)).created_at_us == created_at_us
    except ThreadNotFound:
        return False


async def delete_thread(kernel: Kernel, thread_id: str, created_at_us: int, pieces: ErasedPieces) -> None:
    """Delete a thread, if it exists and still is the one that was meant."""
    threads, runtime, own = kernel[OpenThreads], None, ErasedPieces(kernel.events)
    try:
        record = await record_of(kernel, thread_id)
        if record.created_at_us != created_at_us:
            return
        with suppress(*UNREADABLE):  # a log that cannot be read can be deleted
            first = record.forked_from.seq if record.forked_from is not None else 0
            upto = (await kernel.store.head(thread_id)).seq
            await kernel.reader.walk(thread_id, after=first, upto=upto).feed(own.note_deleted)
            runtime = await threads.taken(thread_id)
            await runtime.idle()
        if not await is_there(kernel, thread_id, created_at_us):  # others may have been first while this read the log
            return  # and that of another thread by its id, which stays
        pieces.add(own)
        await kernel.store.delete(thread_id)
    except ThreadNotFound:  # an earlier attempt has
        runtime = None
    threads.drop(thread_id)
    if runtime is not None:
        runtime.end(DELETED)
