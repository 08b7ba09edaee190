"""Recall, put together for an engine: the index, the vectors' queue, and search."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from memory_engine.caches import Caches
from memory_engine.errors import ModelError, ThreadNotFound
from memory_engine.recall.base import Embedder, checked_embedder
from memory_engine.recall.embedding import Embedding, embed_all
from memory_engine.recall.found import Found
from memory_engine.recall.indexing import Indexing, Progress
from memory_engine.recall.searching import Asked, Searching

if TYPE_CHECKING:
    from memory_engine.engine import Engine
    from memory_engine.runtime import ThreadRuntime


class Recall:
    """What an engine's threads are searched with."""

    def __init__(self, engine: "Engine") -> None:
        parts = engine.parts
        self._engine = engine
        self.store = engine.store
        self.reader = engine.reader
        self.caches: Caches = engine.caches
        self.extractors = parts.extractors
        self.embedder = parts.embedder
        self.vector_index = parts.vector_index
        self.graphs = parts.graphs
        self.ranker = parts.ranker
        self.reranker = parts.reranker
        self.read_only = engine.config.read_only
        self.indexing = Indexing(self)
        self.embedding = Embedding(self)
        self._searching = Searching(self, self.indexing, self.embedding)

    async def search(self, thread_ids: Sequence[str], asked: Asked) -> Found:
        """See `Searching.search`."""
        return await self._searching.search(thread_ids, asked)

    async def prepare(self, thread_id: str, progress: Progress | None = None) -> None:
        """Bring a thread's index and its vectors up to date."""
        await self.indexing.catch_up(thread_id, progress)
        await self.embedding.catch_up(thread_id, progress)

    async def fold(self, thread_id: str) -> None:
        """Take the words of what was just brought into a thread's index, if it has one: searches are fast at once."""
        if (await self.runtime(thread_id)).indexed:
            await self.store.passages.fold(thread_id)

    async def change_embedder(self, embedder: Embedder, progress: Progress | None = None) -> None:
        """Take another model: its vectors are made beside the old ones, then searches use them and the old ones go.

        Until then searches use the old model, which is closed at the end. What this raises (`ModelError`, `TypeError`
        for what is no embedder) leaves it in its place.
        """
        checked_embedder(embedder)
        threads = await self.store.passages.threads()
        for thread_id in threads:
            with suppress(ThreadNotFound):  # it was deleted meanwhile
                await embed_all(self, thread_id, embedder, progress)
        old, self.embedder = self.embedder, embedder
        try:
            for thread_id in threads:
                await self._let_go_of_old(thread_id)
        finally:
            if old is not None and old is not embedder:
                await old.aclose()

    async def _let_go_of_old(self, thread_id: str) -> None:
        """Embed what came meanwhile, drop the vectors of other models; what the new model refuses now is queued."""
        try:
            await self.embedding.catch_up(thread_id)
        except ThreadNotFound:
            pass
        except ModelError:
            self.embedding.touched(thread_id)
        self.caches.drop(thread_id)

    async def aclose(self) -> None:
        """Let go of the models."""
        for model in (self.embedder, self.reranker):
            if model is not None:
                await model.aclose()

    async def forget_thread(self, thread_id: str) -> None:
        """The thread was deleted, or forgot something: what is kept of its vectors beside the store goes."""
        if self.graphs is not None:
            await asyncio.to_thread(self.graphs.drop, thread_id)

    async def settle(self) -> None:
        """Work off the vectors' queue."""
        await self.embedding.settle()

    # what its parts ask of it

    @property
    def closing(self) -> bool:
        """Whether the engine takes nothing new."""
        return self._engine.closing

    def now_us(self) -> int:
        """The engine's time."""
        return self._engine.now_us()

    def spawn(self, work: Coroutine[object, object, None], *, until_close: bool = False) -> asyncio.Task[None]:
        """Run in a task that the engine owns."""
        return self._engine.spawn(work, until_close=until_close)

    async def runtime(self, thread_id: str) -> "ThreadRuntime":
        """A thread in memory."""
        return self._engine.directory.get(thread_id) or await self._engine.directory.open(thread_id)
