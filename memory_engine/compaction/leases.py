"""Which process may compact a thread, and what ends a compaction whose process is gone."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from attrs import define, field

from memory_engine.compaction.protocol import CompactionRun, owner_is_gone
from memory_engine.core.events.compaction import CompactionAbandoned, CompactionStarted
from memory_engine.store.protocol import Store

LEASE_POLL_S = 0.05
"""Seconds between looks of a waiting compaction at whether another process has ended its own."""


@asynccontextmanager
async def leased(store: Store, thread_id: str, *, wait_s: float) -> AsyncIterator[bool | None]:
    """Keep other processes from compacting a thread. Gives whether they can be kept from it.

    One that does not give the thread back within `wait_s` is stuck: nobody waits for it longer.
    """
    until = asyncio.get_running_loop().time() + wait_s
    while (  # noqa: ASYNC110 - another process has it, and none can tell this one
        is_ours := await store.lease(thread_id)
    ) is False and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(LEASE_POLL_S)
    try:
        yield is_ours
    finally:
        if is_ours:
            await store.release(thread_id)


def abandonment(started: CompactionStarted, now_us: int, is_ours: bool | None) -> CompactionAbandoned | None:
    """The end of a compaction that was left open, if nobody can end it: whoever has the lease knows that."""
    late = now_us > started.deadline_us
    if not (late or is_ours or (is_ours is None and owner_is_gone(started.owner))):
        return None
    reason = "past its deadline" if late else "its process is gone"
    return CompactionAbandoned(compaction_id=started.compaction_id, reason=reason)


@define
class ModelsAtWork:
    """The models that summarise threads now, whose results nobody has to wait for."""

    _hurries: dict[str, asyncio.Event] = field(factory=dict)

    def __contains__(self, thread_id: str) -> bool:
        return thread_id in self._hurries

    @contextmanager
    def working(self, run: CompactionRun) -> Iterator[None]:
        """A run is under way, which can be given up if it has a `hurry`."""
        if run.hurry is None:
            yield
            return
        self._hurries[run.thread_id] = run.hurry
        try:
            yield
        finally:
            del self._hurries[run.thread_id]

    def give_up(self, thread_id: str) -> None:
        """End the work of a thread's model, so that another compactor stands in for it."""
        if thread_id in self._hurries:
            self._hurries[thread_id].set()
