"""Vectors come after the event: a queue that is the index itself, worked off in batches in the order of the log.

What has no vector yet is known from the store, so nothing is lost when the process dies between an event and
its vector, and an embedder that is down delays, never drops.
"""

import asyncio
import logging
from contextlib import suppress
from weakref import WeakValueDictionary

from memory_engine.errors import MemoryEngineError, ModelError, StorageError, ThreadNotFound
from memory_engine.kernel import Kernel
from memory_engine.recall.base import INVALID, Embedder, Vector, embedded, packed
from memory_engine.recall.indexing import Progress
from memory_engine.recall.models import SearchModels
from memory_engine.recall.showing import shown

_log = logging.getLogger("memory_engine.recall")

BATCH = 64
"""Passages embedded in one go."""
RETRY_S = 1.0
RETRY_MAX_S = 60.0
EMBEDDED_CHARS = 8_192
"""Of a longer text the beginning is embedded: models read no more."""


async def embed(embedder: Embedder, texts: list[str]) -> list[Vector]:
    """A vector for each text. Raises `ModelError` for everything else, whatever the embedder does."""
    whole = [text[:EMBEDDED_CHARS].encode(errors="replace").decode() for text in texts]  # there may be lone surrogates
    return await embedded(embedder, whole)


class Embedding:
    """Works off what is not embedded yet."""

    def __init__(self, kernel: Kernel, models: SearchModels) -> None:
        self._kernel = kernel
        self._models = models
        self._dirty: dict[str, None] = {}
        self._at = ""
        self._task: asyncio.Task[None] | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def touched(self, thread_id: str) -> None:
        """A thread has passages without a vector."""
        if self._models.embedder is None or self._kernel.tasks.closing:
            return
        self._dirty[thread_id] = None
        if self._task is None or self._task.done():
            self._task = self._kernel.tasks.spawn(self._work(), until_close=True)

    async def settle(self) -> None:
        """Embed all that waits. Raises `ModelError` where the embedder fails."""
        while thread_id := self._at or next(iter(self._dirty), ""):
            with suppress(ThreadNotFound):
                await self.catch_up(thread_id)
            self._dirty.pop(thread_id, None)
            await asyncio.sleep(0)  # the task that was at it goes on, too

    async def waiting(self, thread_id: str) -> int:
        """How many passages of a thread have no vector yet."""
        embedder = self._models.embedder
        if embedder is None:
            return 0
        return (await self._kernel.store.passages.unembedded(thread_id, embedder.name, 0))[1]

    async def catch_up(self, thread_id: str, progress: Progress | None = None) -> None:
        """Embed what a thread's index has and no vector stands for.

        When all is done, vectors of other models go: until then they stand beside. Raises `ModelError`,
        `ThreadNotFound`.
        """
        embedder = self._models.embedder
        if embedder is None:
            return
        lock = self._locks.setdefault(thread_id, asyncio.Lock())
        async with lock:
            await embed_all(self._kernel, thread_id, embedder, progress)
            store = self._kernel.store.passages
            others = [model for model in await store.models(thread_id) if model != embedder.name]
            if others:
                await store.drop_vectors(thread_id, others)

    async def _work(self) -> None:
        wait_s = RETRY_S
        while self._dirty:
            self._at = next(iter(self._dirty))
            del self._dirty[self._at]
            try:
                is_down = await self._try(self._at)
            finally:
                self._at = ""
            if is_down:
                await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_MAX_S) if is_down else RETRY_S

    async def _try(self, thread_id: str) -> bool:
        """Embed what waits of a thread; whether it must be tried again later."""
        try:
            await self.catch_up(thread_id)
        except ThreadNotFound:
            pass
        except MemoryEngineError as error:
            if isinstance(error, StorageError) or (isinstance(error, ModelError) and error.reason != INVALID):
                self._dirty[thread_id] = None
                _log.warning("passages of thread %r wait for their vectors: %s", thread_id, error)
                return True
            # it will fail again: searches say how many wait, and the next event tries again
            _log.warning("passages of thread %r get no vectors: %s", thread_id, error)
        return False


async def embed_all(kernel: Kernel, thread_id: str, embedder: Embedder, progress: Progress | None) -> None:
    """Embed with a model what it has not embedded yet, a batch at a time, each durable with its checkpoint."""
    store = kernel.store.passages
    done = 0
    while True:
        places, waiting = await store.unembedded(thread_id, embedder.name, BATCH)
        if not places:
            return
        found = await shown(kernel.reader, kernel.extractors, thread_id, places)
        texts = {place: one.embedded() for place, one in found.items()}
        vectors = await embed(embedder, list(texts.values()))
        kept = {place: packed(vector) for place, vector in zip(texts, vectors, strict=True)}
        await store.put_vectors(thread_id, embedder.name, kept, places[-1], first=places[0])
        done += len(places)
        if progress is not None:
            progress(done, done + waiting - len(places))
