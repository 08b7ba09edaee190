"""Asynchronous projections: one engine task follows the log, thread by thread, from checkpoint to head."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import Head
from memory_engine.errors import MemoryEngineError, ReadOnly
from memory_engine.projections.base import Projection, Rows, apply_one
from memory_engine.store.protocol import ProjectionChange, Store
from memory_engine.store.reader import LogReader
from memory_engine.store.snapshots import rewound_at

if TYPE_CHECKING:
    from memory_engine.store import rewinds
else:
    rewinds = lazy_module("memory_engine.store.rewinds")

_log = logging.getLogger("memory_engine.projections")


class ProjectionWorker:
    """Keeps the asynchronous projections of a store up to date. A projection that fails stops for that thread only."""

    def __init__(self, store: Store, reader: LogReader, projections: Sequence[Projection[object]]) -> None:
        self._store = store
        self._reader = reader
        self._projections = projections
        self._dirty: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self.failures: dict[tuple[str, str], MemoryEngineError] = {}

    @property
    def is_needed(self) -> bool:
        """Whether there is any asynchronous projection."""
        return bool(self._projections)

    def touched(self, thread_id: str) -> None:
        """A thread has new events."""
        if self._projections:
            self._dirty[thread_id] = None
            self._wake.set()

    async def run(self) -> None:
        """Catch up with every log that is ahead, then follow. Ends only by cancellation."""
        for projection in self._projections:
            for thread_id in await self._store.behind(projection.name, projection.version):
                self._dirty[thread_id] = None
        while True:
            while self._dirty:
                thread_id = next(iter(self._dirty))
                del self._dirty[thread_id]
                await self._catch_up_all(thread_id)
            self._wake.clear()
            await self._wake.wait()

    async def _catch_up_all(self, thread_id: str) -> None:
        for projection in self._projections:
            try:
                await self.catch_up(projection, thread_id)
            except MemoryEngineError as error:
                _log.warning("projection %s stopped for thread %r: %s", projection.name, thread_id, error)

    async def bring(self, projection: Projection[object], thread_id: str) -> bool:
        """Bring the stored rows of one thread to the head, without reading them where they are there already.

        False if the engine only reads, and they are not there.
        """
        head = await self._store.head(thread_id)
        if await self._store.checkpoint(projection.name, projection.version, thread_id) >= head.seq:
            return True
        await self.catch_up(projection, thread_id)
        return await self._store.checkpoint(projection.name, projection.version, thread_id) >= head.seq

    async def catch_up(self, projection: Projection[object], thread_id: str) -> Rows[object]:
        """Bring one projection of one thread to the head, and return its rows.

        Raises `ReducerError` if the projection fails; the rows are then those of their checkpoint.
        """
        lock = self._locks.setdefault((projection.name, thread_id), asyncio.Lock())
        async with lock:
            checkpoint, stored = await self._store.rows(projection.name, projection.version, thread_id)
            rows = Rows(projection.row, stored)
            head = await self._reader.head(thread_id)
            if checkpoint < rewound_at(head):
                rows.clear()
                checkpoint = 0
            try:
                await self._apply(projection, thread_id, rows, checkpoint, head)
            except MemoryEngineError as error:
                self.failures[projection.name, thread_id] = error
                raise
            self.failures.pop((projection.name, thread_id), None)
            return rows

    async def _apply(
        self, projection: Projection[object], thread_id: str, rows: Rows[object], checkpoint: int, head: Head
    ) -> None:
        shown = await rewinds.shown_at(self._reader, thread_id, head.seq, head)

        def apply(stored: StoredEvent) -> None:
            if shown.shows(stored):
                apply_one(projection, rows, self._reader.decode(thread_id, stored))

        async def write(page: Sequence[StoredEvent]) -> None:
            changes = rows.changes()
            change = ProjectionChange(projection.name, projection.version, changes.rows, page[-1].seq, changes.ranges)
            with suppress(ReadOnly):  # the rows are here only
                await self._store.write_projection(thread_id, change)
            rows.keep()

        await self._reader.walk(thread_id, after=checkpoint, upto=head.seq).feed(apply, then=write)
