"""The index of passages, kept in step with the log.

A thread has no index until somebody searches it. The first search reads the log; from then on the passages of an
event are written by its own transaction. Where that did not happen (another process had not seen the index yet),
the next search reads what is missing.
"""

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from memory_engine.directory import OpenThreads
from memory_engine.errors import ReadOnly
from memory_engine.kernel import Kernel
from memory_engine.log import decode_row
from memory_engine.recall.passages import PassageChange, passage_step
from memory_engine.recall.storing import LookedUp, LookUp
from memory_engine.runtime import ThreadRuntime

Progress = Callable[[int, int], None]
"""Called with how much is done, and how much there is to do."""
UNFOLDED_MAX = 128
"""Passages whose words a search may read one by one. Of more it has them folded."""
_NOTHING = LookUp()


class Indexing:
    """Brings indexes up to date, each by one task at a time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def look_up(self, thread_id: str, wanted: LookUp) -> LookedUp:
        """What stands in a thread's index, up to date with its log.

        Raises `ThreadNotFound`, `IntegrityError`, and `ReadOnly` where it would have to be made by who only looks.
        """
        passages = self._kernel.store.passages
        looked = await passages.look_up(thread_id, wanted)
        needed = wanted.upto or looked.head  # not what others write meanwhile: they might never stop
        while looked.seq < needed:
            await self.catch_up(thread_id)
            looked = await passages.look_up(thread_id, wanted)
        if looked.unfolded > UNFOLDED_MAX and not self._kernel.config.read_only:
            await passages.fold(thread_id)  # for the searches after this one
        return looked

    async def catch_up(self, thread_id: str, progress: Progress | None = None) -> None:
        """Index what the log has and the index has not; all of it where there is no index."""
        if self._kernel.config.read_only:
            raise ReadOnly(f"the index that a search of thread {thread_id!r} needs")
        lock = self._locks.setdefault(thread_id, asyncio.Lock())
        async with lock:
            passages = self._kernel.store.passages
            await passages.begin(thread_id)
            await self._read(thread_id, progress)
            runtime = await self._kernel[OpenThreads].taken(thread_id)
            if not runtime.indexed:
                await runtime.exclusively(lambda: self._finish(runtime))

    async def is_indexed(self, thread_id: str) -> bool:
        """Whether a thread has an index."""
        return (await self._kernel.store.passages.look_up(thread_id, _NOTHING)).seq >= 0

    async def _finish(self, runtime: ThreadRuntime) -> None:
        """Index the last events while none is committed; every commit from here on brings its own passages."""
        await self._read(runtime.id, None)
        runtime.indexed = True

    async def _read(self, thread_id: str, progress: Progress | None) -> None:
        kernel = self._kernel
        looked = await kernel.store.passages.look_up(thread_id, _NOTHING)
        async for page in kernel.reader.pages(thread_id, after=max(0, looked.seq), upto=looked.head):
            steps = []
            for stored in page:
                event, _ = decode_row(thread_id, stored, kernel.reader.registry)
                step = passage_step(kernel.extractors, thread_id, event, stored)
                if step is not None:
                    steps.append(step)
            change = PassageChange(page[0].seq - 1, page[-1].seq, steps)
            if not await kernel.store.passages.write(thread_id, change):
                return  # somebody else is at it, and has come further
            if progress is not None:
                progress(page[-1].seq, looked.head)
