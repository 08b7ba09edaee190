"""Vectors come after the event: a queue that is the index itself, worked off in batches in the order of the log.

What has no vector yet is known from the store, so nothing is lost when the process dies between an event and
its vector, and an embedder that is down delays, never drops.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Protocol
from weakref import WeakValueDictionary

from memory_engine.errors import InvalidVector, MemoryEngineError, ModelError, StorageError, ThreadNotFound
from memory_engine.persistence import Store
from memory_engine.reading import LogReader
from memory_engine.recall.base import Embedder, Vector, checked_vector, dimension_of, packed
from memory_engine.recall.indexing import Progress
from memory_engine.recall.passages import Extractors
from memory_engine.recall.showing import shown

_log = logging.getLogger("memory_engine.recall")

BATCH = 64
"""Passages embedded in one go."""
RETRY_S = 1.0
RETRY_MAX_S = 60.0
EMBEDDED_CHARS = 8_192
"""Of a longer text the beginning is embedded: models read no more."""


class Host(Protocol):
    """What embedding needs of its engine."""

    store: Store
    reader: LogReader
    extractors: Extractors

    @property
    def closing(self) -> bool:
        """Whether the engine takes nothing new."""
        ...

    @property
    def embedder(self) -> Embedder | None:
        """The model, if there is one."""
        ...

    def spawn(self, work: Coroutine[object, object, None], *, until_close: bool = False) -> asyncio.Task[None]:
        """Run in a task that the engine owns."""
        ...


async def embed(embedder: Embedder, texts: list[str]) -> list[Vector]:
    """A vector for each text. Raises `ModelError`, and `InvalidVector` for what is none."""
    whole = [text[:EMBEDDED_CHARS].encode(errors="replace").decode() for text in texts]  # there may be lone surrogates
    vectors = await embedder.embed(whole)
    if len(vectors) != len(texts):
        raise InvalidVector(embedder.name, f"there are {len(vectors)} for {len(texts)} texts")
    dimension = await dimension_of(embedder)
    return [checked_vector(vector, dimension, embedder.name) for vector in vectors]


class Embedding:
    """Works off what is not embedded yet."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._dirty: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.failures: dict[str, str] = {}

    def touched(self, thread_id: str) -> None:
        """A thread has passages without a vector."""
        if self._host.embedder is None or self._host.closing:
            return
        self._dirty[thread_id] = None
        if self._task is None or self._task.done():
            self._task = self._host.spawn(self._work(), until_close=True)

    async def settle(self) -> None:
        """Embed all that waits. Raises `ModelError` where the embedder fails."""
        while self._dirty:
            thread_id = next(iter(self._dirty))
            with suppress(ThreadNotFound):
                await self.catch_up(thread_id)
            self._dirty.pop(thread_id, None)

    async def waiting(self, thread_id: str) -> int:
        """How many passages of a thread have no vector yet."""
        embedder = self._host.embedder
        if embedder is None:
            return 0
        return (await self._host.store.passages.unembedded(thread_id, embedder.name, 0))[1]

    async def catch_up(self, thread_id: str, progress: Progress | None = None) -> None:
        """Embed what a thread's index has and no vector stands for.

        When all is done, vectors of other models go: until then they stand beside. Raises `ModelError`,
        `InvalidVector`, `ThreadNotFound`.
        """
        embedder = self._host.embedder
        if embedder is None:
            return
        lock = self._locks.setdefault(thread_id, asyncio.Lock())
        async with lock:
            await embed_all(self._host, thread_id, embedder, progress)
            store = self._host.store.passages
            others = [model for model in await store.models(thread_id) if model != embedder.name]
            if others:
                await store.drop_vectors(thread_id, others)
            self.failures.pop(thread_id, None)

    async def _work(self) -> None:
        wait_s = RETRY_S
        while self._dirty:
            thread_id = next(iter(self._dirty))
            del self._dirty[thread_id]
            try:
                await self.catch_up(thread_id)
                wait_s = RETRY_S
            except ThreadNotFound:
                continue
            except (ModelError, StorageError) as error:
                self._dirty[thread_id] = None
                self.failures[thread_id] = str(error)
                _log.warning("passages of thread %r wait for their vectors: %s", thread_id, error)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_MAX_S)
            except MemoryEngineError as error:  # it will fail again: searches say so, and the next event tries again
                self.failures[thread_id] = str(error)
                _log.warning("passages of thread %r get no vectors: %s", thread_id, error)


async def embed_all(host: Host, thread_id: str, embedder: Embedder, progress: Progress | None) -> None:
    """Embed with a model what it has not embedded yet, a batch at a time, each durable with its checkpoint."""
    store = host.store.passages
    done = 0
    while True:
        places, waiting = await store.unembedded(thread_id, embedder.name, BATCH)
        if not places:
            return
        found = await shown(host.reader, host.extractors, thread_id, places)
        texts = {place: one.embedded() for place, one in found.items()}
        vectors = await embed(embedder, list(texts.values()))
        kept = {place: packed(vector) for place, vector in zip(texts, vectors, strict=True)}
        await store.put_vectors(thread_id, embedder.name, kept, places[-1])
        done += len(places)
        if progress is not None:
            progress(done, done + waiting - len(places))
