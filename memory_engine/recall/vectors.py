"""The vectors of passages, of a thread or of several, in memory for searching."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from typing import Protocol

from memory_engine.core.cancellation import finished
from memory_engine.core.loops import OfLoop
from memory_engine.errors import ThreadNotFound
from memory_engine.llm.vectors import Vector, VectorIndex, VectorIndexFactory
from memory_engine.store.passages import PLACES_BITS, Threads
from memory_engine.store.protocol import Store
from memory_engine.store.snapshots import forgotten_at

_log = logging.getLogger("memory_engine.recall")

SPACES_MAX = 64
"""Threads whose vectors are held in memory; the least recently searched ones are dropped."""
BUILT_MIN = 1_000
"""New vectors that are worth building a thread's graph further, in the background."""

SAVED_EVERY = 20
"""Steps of building after which a graph is written, so that a process that ends early does not lose its work."""


class Spawn(Protocol):
    """Runs work in a task of the engine."""

    def __call__(self, work: Coroutine[object, object, None], *, until_close: bool = False) -> object:
        """With `until_close` it is cancelled when the engine closes."""
        ...


class Graphs(Protocol):
    """Keeps the graphs of vector indexes, which are slow to build. Called from worker threads."""

    def load(self, index: VectorIndex, thread_id: str, model: str) -> bool:
        """Load an earlier graph into an index that holds the thread's vectors. Returns whether there was one."""
        ...

    def save(self, index: VectorIndex, thread_id: str, model: str) -> None:
        """Write the graph. Raises `OSError`."""
        ...

    def drop(self, thread_id: str) -> None:
        """Destroy the graphs of a thread."""
        ...


class VectorSpace:
    """One model's vectors of one thread, or of several. They are read from the store, and later ones as they come."""

    def __init__(self, factory: VectorIndexFactory, dimension: int, graphs: Graphs | None) -> None:
        self._index: VectorIndex = factory(dimension)
        self._graphs = graphs
        self._upto = 0
        self._known: Mapping[int, int] = {}
        self._unbuilt = 0
        self._is_building = False
        self._forgot = 0
        self._lock = OfLoop(asyncio.Lock)

    @property
    def last_seq(self) -> int:
        """The seq of the last event with a vector."""
        return self._upto >> PLACES_BITS

    async def follow(self, store: Store, thread_id: str, model: str, spawn: Spawn) -> None:
        """Read the vectors that came since, and build the graph further in a task of the engine."""
        async with self._lock.here:
            if not self._upto:
                self._forgot = forgotten_at(await store.head(thread_id))
            found = await store.passages.vectors(thread_id, model, self._upto)
            if not found:
                return
            items = [(str(place), packed) for place, packed in found]
            is_first = not self._upto
            await asyncio.to_thread(self._index.put_many, items)
            self._upto = found[-1][0]
            self._unbuilt += len(found)
            if (
                is_first
                and self._graphs is not None
                and await asyncio.to_thread(self._graphs.load, self._index, thread_id, model)
            ):
                self._unbuilt = await asyncio.to_thread(self._index.build, 0)
        self._build_further(store, thread_id, model, spawn)

    async def follow_among(self, store: Store, threads: Threads, model: str, spawn: Spawn) -> Mapping[str, int]:
        """The same of several threads, whose graph is not kept; how many passages wait for a vector, by thread."""
        async with self._lock.here:
            found = await store.passages.vectors_among(threads, model, self._known)
            items = [(str(place), packed) for place, packed in found.vectors]
            await asyncio.to_thread(self._index.put_many, items)
            self._known = found.upto
            self._unbuilt += len(items)
        self._build_further(store, "", model, spawn)
        return found.waiting

    def _build_further(self, store: Store, thread_id: str, model: str, spawn: Spawn) -> None:
        if self._unbuilt >= BUILT_MIN and not self._is_building:
            self._is_building = True
            spawn(self._build(store, thread_id, model), until_close=True)

    async def _build(self, store: Store, thread_id: str, model: str) -> None:
        try:
            self._unbuilt = steps = 0
            while await asyncio.to_thread(self._index.build, BUILT_MIN):  # in steps: the engine may close in between
                steps += 1
                if not steps % SAVED_EVERY:
                    await self._save(store, thread_id, model)
            await self._save(store, thread_id, model)
        except OSError as error:
            _log.warning("the graph of thread %r could not be kept, it will be built again: %s", thread_id, error)
        finally:
            self._is_building = False

    async def _save(self, store: Store, thread_id: str, model: str) -> None:
        """Write the graph, unless the thread was deleted or forgot something since: the graph holds vectors."""
        if self._graphs is None:
            return
        # nothing is written after the engine has closed
        await finished(asyncio.to_thread(self._graphs.save, self._index, thread_id, model))
        try:
            forgot = forgotten_at(await store.head(thread_id))
        except ThreadNotFound:
            forgot = -1
        if forgot != self._forgot:
            await asyncio.to_thread(self._graphs.drop, thread_id)

    def nearest(self, vector: Vector, limit: int, among: Collection[int] | None = None) -> list[int]:
        """The places of the nearest passages, of these if any are given."""
        keys = None if among is None else [str(place) for place in among]
        return [int(key) for key, _ in self._index.search(vector, limit, keys)]

    def cosines(self, vector: Vector, places: Collection[int]) -> dict[int, float]:
        """The likeness of these passages, as far as they have vectors."""
        keys = [str(place) for place in places]
        return {int(key): score for key, score in self._index.search(vector, len(keys), keys)} if keys else {}
