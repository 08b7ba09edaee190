"""The index of passages, kept in step with the log, and the vectors that come after it.

A thread has no index until somebody searches it. The first search reads the log; from then on the passages of an
event are written by its own transaction. Where that did not happen (another process had not seen the index yet),
the next search reads what is missing.

Vectors come after the event, by a queue that is the index itself, worked off in batches in the order of the log. What
has no vector yet is known from the store, so nothing is lost when the process dies between an event and its vector,
and an embedder that is down delays vectors but never loses them.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from memory_engine.core.chain import decode_row
from memory_engine.errors import MemoryEngineError, ModelError, ReadOnly, StorageError, StorageRefused, ThreadNotFound
from memory_engine.llm.vectors import INVALID, Embedder, Vector, VectorIndexFactory, embedded, packed
from memory_engine.recall.hits import shown
from memory_engine.recall.ranking import Ranker
from memory_engine.recall.rerankers import Reranker
from memory_engine.recall.vectors import Graphs
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.passages import LookedUp, LookUp, PassageChange, Threads, passage_step

AHEAD_MIN = 2_000
"""Events of logs without an index, together, from which on they are indexed when nothing is written: a search that had
to index them would take a tenth of a second."""
QUIET_S = 1.0
"""How long nothing was written when that begins."""
Gap = Callable[[str], AbstractContextManager[None]]
IndexProgress = Callable[[int, int], None]
"""Called with the number of passages done, and the number to do."""
UNINDEXED_MAX = 128
"""Passages whose words a search may read one by one. If more wait, it has them indexed first."""
_NOTHING = LookUp()


class Indexing:
    """Brings indexes up to date, each by one task at a time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def look_up(self, thread_id: str, wanted: LookUp) -> LookedUp:
        """The matches in a thread's index, up to date with its log.

        Raises `ThreadNotFound`, `IntegrityError`, and `ReadOnly` where a read-only engine would have to make the index.
        """
        passages = self._kernel.store.passages
        looked = await passages.look_up(thread_id, wanted)
        needed = wanted.upto or looked.head  # not the events that others write meanwhile: they might never stop
        while looked.seq < needed:
            await self.catch_up(thread_id)
            looked = await passages.look_up(thread_id, wanted)
        if looked.unindexed > UNINDEXED_MAX and not self._kernel.config.read_only:
            await passages.index_words(thread_id)  # for the searches after this one
        return looked

    async def look_up_among(self, threads: Threads, wanted: LookUp, gap: Gap) -> LookedUp:
        """The matches in the indexes of several threads, each up to date with its log as it stood.

        `gap` gives a block in which a thread is read: one that is damaged is left out. Raises `ThreadNotFound`.
        """
        passages = self._kernel.store.passages
        looked = await passages.look_up_among(threads, wanted)
        if looked.behind:
            for thread_id in looked.behind:
                with gap(thread_id):
                    await self.catch_up(thread_id)
            looked = await passages.look_up_among(threads, wanted)
        if looked.unindexed > UNINDEXED_MAX and not self._kernel.config.read_only:
            await passages.index_words_of(threads)  # for the searches after this one
        return looked

    async def catch_up(self, thread_id: str, progress: IndexProgress | None = None) -> None:
        """Index the events that the index lacks; all of them where there is no index."""
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
        """Whether a thread has an index: one that cannot be read is one to be made again."""
        with suppress(StorageRefused):
            return (await self._kernel.store.passages.look_up(thread_id, _NOTHING)).seq >= 0
        return True

    async def _finish(self, runtime: ThreadRuntime) -> None:
        """Index the last events while no commit is under way; every later commit writes its own passages."""
        await self._read(runtime.id, None)
        runtime.indexed = True

    async def _read(self, thread_id: str, progress: IndexProgress | None) -> None:
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
                return  # another process indexes too, and has come further
            if progress is not None:
                progress(page[-1].seq, looked.head)


class IndexingAhead:
    """Indexes threads that were written to, while nothing is written, so that no first search has to for seconds.

    It begins where the logs that wait have so many events (`AHEAD_MIN`) that a search would take long, and stops at
    the next commit, to go on when it is quiet again.
    """

    def __init__(self, kernel: Kernel, indexing: Indexing) -> None:
        self._kernel = kernel
        self._indexing = indexing
        self._waiting: dict[str, int] = {}
        self._events = 0
        self._wrote_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def wrote(self, runtime: ThreadRuntime, *, forgot: bool) -> None:
        """Note a commit to a thread whose index is not there, or not whole; where it `forgot`, that goes on at once."""
        self._events += runtime.head.seq - self._waiting.get(runtime.id, 0)
        self._waiting[runtime.id] = runtime.head.seq
        self._wrote_s = asyncio.get_running_loop().time() - (QUIET_S if forgot else 0.0)
        if self._events >= AHEAD_MIN and (self._task is None or self._task.done()) and not self._kernel.tasks.closing:
            self._task = self._kernel.tasks.spawn(self._work(), until_close=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            wait_s = self._wrote_s + QUIET_S - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
                continue
            thread_id, began_s = next(iter(self._waiting)), self._wrote_s
            try:
                await self._indexing.catch_up(thread_id, partial(self._go_on, began_s))
            except _NotQuietError:
                continue
            except MemoryEngineError as error:
                _log.warning("thread %r is not indexed before it is searched: %s", thread_id, error)
            self._events -= self._waiting.pop(thread_id)

    def _go_on(self, began_s: float, _done: int, _all: int) -> None:
        if self._wrote_s != began_s:
            raise _NotQuietError


class _NotQuietError(Exception):
    """Something is written again."""


class SearchModels(msgspec.Struct, kw_only=True):
    """The models of one engine's searches. The embedder may be changed while the engine is open."""

    embedder: Embedder | None
    vector_index: VectorIndexFactory
    graphs: Graphs | None
    ranker: Ranker
    reranker: Reranker | None


_log = logging.getLogger("memory_engine.recall")

BATCH = 64
"""Passages embedded in one go."""
RETRY_S = 1.0
RETRY_MAX_S = 60.0
EMBEDDED_CHARS = 8_192
"""Characters of a text that are embedded, from its beginning: models read no more."""


async def embed(embedder: Embedder, texts: list[str], *, is_query: bool = False) -> list[Vector]:
    """A vector for each text (or query). Raises `ModelError` for everything else, whatever the embedder does."""
    whole = [
        text[:EMBEDDED_CHARS].encode(errors="replace").decode() for text in texts
    ]  # the texts may hold lone surrogates
    return await embedded(embedder, whole, is_query=is_query)


class Embedding:
    """Embeds the passages that have no vector yet."""

    def __init__(self, kernel: Kernel, models: SearchModels) -> None:
        self._kernel = kernel
        self._models = models
        self._dirty: dict[str, None] = {}
        self._at = ""
        self._task: asyncio.Task[None] | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def touched(self, thread_id: str) -> None:
        """Note that a thread has passages without a vector; one that only reads leaves them to others."""
        if self._models.embedder is None or self._kernel.tasks.closing or self._kernel.config.read_only:
            return
        self._dirty[thread_id] = None
        if self._task is None or self._task.done():
            self._task = self._kernel.tasks.spawn(self._work(), until_close=True)

    async def settle(self) -> None:
        """Embed all waiting passages. Raises `ModelError` where the embedder fails."""
        while thread_id := self._at or next(iter(self._dirty), ""):
            with suppress(ThreadNotFound):
                await self.catch_up(thread_id)
            self._dirty.pop(thread_id, None)
            await asyncio.sleep(0)  # the task that embeds already goes on, too

    async def waiting(self, thread_id: str) -> int:
        """How many passages of a thread have no vector yet."""
        embedder = self._models.embedder
        if embedder is None:
            return 0
        return (await self._kernel.store.passages.unembedded(thread_id, embedder.name, 0))[1]

    async def catch_up(self, thread_id: str, progress: IndexProgress | None = None) -> None:
        """Embed the passages of a thread's index that have no vector.

        Vectors of other models stay until all is done, and then go. Raises `ModelError`, `ThreadNotFound`.
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
        """Embed a thread's waiting passages. Returns whether it must be tried again later."""
        try:
            await self.catch_up(thread_id)
        except ThreadNotFound:
            pass
        except MemoryEngineError as error:
            if isinstance(error, StorageError) or (isinstance(error, ModelError) and error.reason != INVALID):
                self._dirty[thread_id] = None
                _log.warning("passages of thread %r wait for their vectors: %s", thread_id, error)
                return True
            # a retry would fail too: searches say how many wait, and the next event tries again
            _log.warning("passages of thread %r get no vectors: %s", thread_id, error)
        return False


async def embed_all(kernel: Kernel, thread_id: str, embedder: Embedder, progress: IndexProgress | None) -> None:
    """Embed the passages that a model has not embedded yet, in batches, each durable with its checkpoint."""
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
