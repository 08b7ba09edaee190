"""Which process may compact a thread, and how compactions of dead processes are ended."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import msgspec

from memory_engine.compaction.protocol import CompactionRun, owner_is_gone
from memory_engine.core.events.base import Event
from memory_engine.core.events.compaction import CompactionAbandoned, CompactionStarted
from memory_engine.core.records import Receipt
from memory_engine.errors import MemoryEngineError
from memory_engine.runtime.correlation import Links, linked
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.store.protocol import Store

_log = logging.getLogger("memory_engine.compaction")
LEASE_POLL_S = 0.05
"""Seconds between two attempts of a waiting compaction to take the lease from another process."""


@asynccontextmanager
async def leased(store: Store, thread_id: str, *, wait_s: float) -> AsyncIterator[bool | None]:
    """Keep other processes from compacting a thread. Yield True on success, `None` if the store does not know.

    Yield False if another process does not release the thread within `wait_s` seconds: it is considered stuck.
    """
    until = asyncio.get_running_loop().time() + wait_s
    while (  # noqa: ASYNC110 - another process has it and cannot notify this one
        is_ours := await store.lease(thread_id)
    ) is False and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(LEASE_POLL_S)
    try:
        yield is_ours
    finally:
        if is_ours:
            await store.release(thread_id)


def _abandonment(started: CompactionStarted, now_us: int, is_ours: bool | None) -> CompactionAbandoned | None:
    """Return the event that ends an open compaction if no process can end it any more, else `None`.

    The holder of the lease knows that no other process works on it.
    """
    late = now_us > started.deadline_us
    if not (late or is_ours or (is_ours is None and owner_is_gone(started.owner))):
        return None
    reason = "past its deadline" if late else "its process is gone"
    return CompactionAbandoned(compaction_id=started.compaction_id, reason=reason)


Append = Callable[[ThreadRuntime, Sequence[Event]], Awaitable[Receipt]]


async def close(kernel: Kernel, runtime: ThreadRuntime, is_ours: bool | None, append: Append) -> None:
    """Record the end of an open compaction, if no other process can."""
    seq = runtime.head.open_compaction
    for stored in await kernel.store.read_at(runtime.id, [seq] if seq else []):
        event = kernel.reader.decode(runtime.id, stored).event
        if not isinstance(event, CompactionStarted):
            return
        abandoned = _abandonment(event, kernel.now_us(), is_ours)
        if abandoned is None:
            continue
        try:
            with linked(Links(stored.id, stored.correlation_id)):
                await append(runtime, [abandoned])
        except MemoryEngineError as error:  # the thread is readable; the next process that opens it tries again
            _log.warning("thread %r: an unfinished compaction cannot be recorded: %s", runtime.id, error)


class ModelsAtWork(msgspec.Struct):
    """Models that are summarizing threads now, whose results no call has to wait for."""

    _hurries: dict[str, asyncio.Event] = msgspec.field(default_factory=dict)

    def __contains__(self, thread_id: str) -> bool:
        return thread_id in self._hurries

    @contextmanager
    def working(self, run: CompactionRun) -> Iterator[None]:
        """Mark a run as under way; it can be given up if it has a `hurry`."""
        if run.hurry is None:
            yield
            return
        self._hurries[run.thread_id] = run.hurry
        try:
            yield
        finally:
            del self._hurries[run.thread_id]

    def give_up(self, thread_id: str) -> None:
        """Stop the work of a thread's model, so that another compactor replaces it."""
        if thread_id in self._hurries:
            self._hurries[thread_id].set()
