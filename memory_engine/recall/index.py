"""The index of passages, kept in step with the log, and the vectors that come after it.

A thread has no index until its first search. That search has the log read; from then on the passages of an
event are written by its own transaction. Where that did not happen (another process had not seen the index yet),
the next search reads what is missing. Of a long log it waits for a moment only, and answers from what is there; the
rest is read in a task of the engine, a page at a time. An engine that only reads does the same in memory, for the
threads whose stored index is not whole.

Vectors come after the event, by a queue that is the index itself, worked off in batches in the order of the log. The
store knows the passages without a vector, so nothing is lost when the process dies between an event and its vector,
and an embedder that is down delays vectors but never loses them.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from memory_engine.core.aside import aside
from memory_engine.core.chain import decode_event
from memory_engine.core.lazy import lazy_modules
from memory_engine.core.loops import OfLoop
from memory_engine.core.records import StoredEvent
from memory_engine.errors import (
    EngineClosed,
    MemoryEngineError,
    ModelError,
    StorageError,
    StorageRefused,
    ThreadNotFound,
)
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.passages import (
    LookedUp,
    LookUp,
    OverlaidIndex,
    PassageChange,
    PassageIndex,
    PassageStep,
    Threads,
    passage_step,
)
from memory_engine.store.protocol import Store
from memory_engine.store.reader import PAGE

if TYPE_CHECKING:
    from memory_engine.llm import vectors as llm_vectors
    from memory_engine.recall import Embedder, Ranker, Reranker, Vector, VectorIndexFactory, hits, rewound
    from memory_engine.recall.vectors import PassageVectorsFactory
else:
    llm_vectors, hits, rewound = lazy_modules("memory_engine", "llm.vectors recall.hits recall.rewound")

QUIET_S = 1.0
"""After so many seconds without a commit nothing is being written."""
BROUGHT_MAX = 5_000
"""Events that a search waits for to be indexed, however long that takes: a quarter of a second."""
LARGE_BYTES = 65_536
"""Of a larger event only the texts are written at first; their words are taken and indexed later, in parts."""
BYTES_AN_ITEM = 128
"""Bytes of events whose words take as long as an item of other work (see `aside`)."""
RESTS = 4
"""So many times as long as it works, the making of an index rests while something is written."""
PAGES_OF_WORDS = 4
"""Pages of the log whose words are indexed together."""
Gap = Callable[[str], AbstractContextManager[None]]
IndexProgress = Callable[[int, int], None]
"""Called with the number of passages done, and the number to do."""
UNINDEXED_MAX = 128
"""Passages whose words a search may read one by one. If more wait, it has them indexed first."""
ANSWERED_S = 0.1
"""Seconds until a search that has read such words is answered: to index them would hold its reads up."""
_NOTHING = LookUp()
Ended: TypeAlias = "asyncio.Future[Exception | None]"
"""Is done when work has ended, with the error that stopped it."""


class Indexing:
    """Brings indexes up to date, each by one task at a time (of an event loop).

    An engine that only reads has an overlay, which `overlaid` makes at its first search.
    """

    def __init__(self, kernel: Kernel, overlaid: Callable[[Store], OverlaidIndex]) -> None:
        self._kernel = kernel
        self._overlaid = overlaid
        self._made: OverlaidIndex | None = None
        self._making = threading.Lock()
        self._locks = OfLoop[WeakValueDictionary[str, asyncio.Lock]](WeakValueDictionary)
        self._under_way = OfLoop[dict[object, Ended]](dict)
        self._waited_s = 0.0

    @property
    def passages(self) -> PassageIndex:
        """The index that searches ask."""
        overlay = self._overlay
        return self._kernel.store.passages if overlay is None else overlay

    @property
    def _overlay(self) -> OverlaidIndex | None:
        if not self._kernel.config.read_only:
            return None
        store = self._kernel.store
        with self._making:  # event loops of several threads may ask at once
            if self._made is None:
                self._made = self._overlaid(store)
        return self._made

    async def look_up(self, thread_id: str, wanted: LookUp, until_s: float = 0.0) -> LookedUp:
        """The matches in a thread's index, up to date with its log, or within a deadline on the loop's clock.

        Without a time that is `search_index_timeout_s` from now.

        Raises `ThreadNotFound`, `IntegrityError`.
        """
        passages, timeout_s = self.passages, self._kernel.config.search_index_timeout_s
        until_s = until_s or asyncio.get_running_loop().time() + timeout_s
        looked = await passages.look_up(thread_id, wanted)
        # for the past too, of which later events may have forgotten something; not what others write meanwhile
        needed = looked.head
        is_in_time = True
        while looked.seq < needed and is_in_time:
            to_index = looked.to_index or needed - max(0, looked.seq)
            is_in_time = await self._brought(thread_id, to_index, until_s)
            looked = await passages.look_up(thread_id, wanted)
        if looked.unindexed > UNINDEXED_MAX:
            work = partial(passages.index_words, thread_id)
            indexed = self._meanwhile(("words", thread_id), partial(_afterwards, work, has_all=not looked.unread))
            if looked.unread and await self._ended(indexed, until_s):
                looked = await passages.look_up(thread_id, wanted)
        return looked

    async def look_up_among(self, threads: Threads, wanted: LookUp, gap: Gap, until_s: float) -> LookedUp:
        """The same of several threads. `gap` gives a block in which a thread is read: one that is damaged is left out.

        Raises `ThreadNotFound`.
        """
        passages = self.passages
        looked = await passages.look_up_among(threads, wanted)
        if looked.behind:
            for n, thread_id in enumerate(looked.behind):
                is_in_time = True
                with gap(thread_id):
                    is_in_time = await self._brought(thread_id, looked.to_index or looked.lacking, until_s)
                if not is_in_time:
                    self._meanwhile(("threads", threads), partial(self._bring_in, looked.behind[n:]))
                    break
            looked = await passages.look_up_among(threads, wanted)
        if looked.unindexed > UNINDEXED_MAX:
            work = partial(passages.index_words_of, threads)
            indexed = self._meanwhile(("words", threads), partial(_afterwards, work, has_all=not looked.unread))
            if looked.unread and await self._ended(indexed, until_s):
                looked = await passages.look_up_among(threads, wanted)
        return looked

    async def _brought(self, thread_id: str, lacking: int, until_s: float) -> bool:
        """Whether a thread's index has come as far as its log: of many events in all it must have by then."""
        if lacking <= BROUGHT_MAX:
            await self._passages(thread_id, None)
            return True
        self._waited_s = max(self._waited_s, until_s)
        return await self._ended(self._meanwhile(thread_id, lambda: self.catch_up(thread_id, gives_way=True)), until_s)

    async def _bring_in(self, thread_ids: Sequence[str]) -> None:
        for thread_id in thread_ids:
            with suppress(MemoryEngineError):  # a search that waits for this thread gets the error
                await self.catch_up(thread_id, gives_way=True)

    def _meanwhile(self, what: object, work: Callable[[], Coroutine[object, object, None]]) -> Ended:
        """Do this in a task of the engine, unless it is running; returns its end, with the error that stopped it."""
        under_way = self._under_way.here
        ended = under_way.get(what)
        if ended is None or ended.done():
            ended = under_way[what] = asyncio.get_running_loop().create_future()
            self._kernel.tasks.spawn(self._carry_out(what, work, ended), until_close=True)
        return ended

    async def _carry_out(self, what: object, work: Callable[[], Coroutine[object, object, None]], ended: Ended) -> None:
        outcome: Exception | None = EngineClosed()
        try:
            await work()
            outcome = None
        except Exception as error:  # passed on to those who wait
            outcome = error
        finally:
            ended.set_result(outcome)
            under_way = self._under_way.here
            if under_way.get(what) is ended:
                del under_way[what]

    async def _ended(self, work: Ended, until_s: float) -> bool:
        """Whether work has ended by a time of the loop's clock. Raises what stopped it."""
        wait_s = until_s - asyncio.get_running_loop().time()
        await asyncio.wait({work}, timeout=max(0.0, wait_s))
        if not work.done():
            return False
        if (error := work.result()) is not None:
            raise error
        return True

    async def catch_up(self, thread_id: str, progress: IndexProgress | None = None, *, gives_way: bool = False) -> None:
        """Index the events that the index lacks, and their words; all of them where there is no index.

        If it `gives_way`, it leaves most of the time to commits, as long as there are any.
        """
        await self._passages(thread_id, progress, gives_way=gives_way)
        await self.passages.index_words(thread_id)

    async def _passages(self, thread_id: str, progress: IndexProgress | None, *, gives_way: bool = False) -> None:
        lock = self._locks.here.setdefault(thread_id, asyncio.Lock())
        async with lock:
            await self.passages.begin(thread_id)
            while await self._read(thread_id, progress, gives_way=gives_way) > PAGE:
                pass  # events written meanwhile: the last of them are read between writes
            if self._overlay is not None:  # no commit of this engine will keep it
                return
            runtime = await self._kernel[OpenThreads].taken(thread_id)
            if not runtime.indexed:
                await runtime.exclusively(lambda: self._finish(runtime))

    async def close(self) -> None:
        """Let go of indexes in memory."""
        if self._made is not None:
            await self._made.close()

    async def is_indexed(self, thread_id: str) -> bool:
        """Whether a thread has an index: one that cannot be read is one to be made again."""
        with suppress(StorageRefused):
            return (await self._kernel.store.passages.look_up(thread_id, _NOTHING)).seq >= 0
        return True

    async def _finish(self, runtime: ThreadRuntime) -> None:
        """Index the last events while no commit is under way; every later commit writes its own passages."""
        await self._read(runtime.id, None)
        runtime.indexed = True

    async def _read(self, thread_id: str, progress: IndexProgress | None, *, gives_way: bool = False) -> int:
        """Write the passages of the events that the index lacks by now; how many events these were."""
        kernel, passages, overlay = self._kernel, self.passages, self._overlay
        kept = passages if overlay is None else overlay.own
        looked = await kept.look_up(thread_id, _NOTHING)
        first, pages, began_s = max(0, looked.seq), 0, asyncio.get_running_loop().time()
        async for page in kernel.reader.pages(thread_id, after=first, upto=looked.head):
            for part in rewound.parted(page):
                if not await passages.write(thread_id, await self._change(thread_id, part)):
                    return 0  # another process indexes too, and has come further
            pages += 1
            if not pages % PAGES_OF_WORDS:
                await passages.index_words(thread_id)
            if progress is not None:
                progress(page[-1].seq, looked.head)
            if gives_way:
                began_s = await self._give_way(began_s)
        return looked.head - first

    async def _change(self, thread_id: str, rows: Sequence[StoredEvent]) -> PassageChange:
        """The change of these events."""
        if rewound.is_rewind(rows):
            return await rewound.rewinding_change(self._kernel.reader, self._kernel.extractors, thread_id, rows[0].seq)
        size = len(rows) + sum(len(stored.payload) for stored in rows) // BYTES_AN_ITEM
        steps = await aside(partial(self._steps, thread_id, rows), items=size)
        return PassageChange(rows[0].seq - 1, rows[-1].seq, steps)

    async def _give_way(self, began_s: float) -> float:
        """Rest after work that began at a time, where something is written and no search waits; when that ended."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        rests = now_s > self._waited_s and perf_counter() - self._kernel.pace.committed_s < QUIET_S
        await asyncio.sleep((now_s - began_s) * RESTS if rests else 0)
        return loop.time()

    def _steps(self, thread_id: str, page: Sequence[StoredEvent]) -> list[PassageStep]:
        """The changes of events, with the words of all but large ones."""
        reader, extractors = self._kernel.reader, self._kernel.extractors
        found = []
        for stored in page:
            event = decode_event(thread_id, stored, reader.registry)
            is_large = len(stored.payload) > LARGE_BYTES
            found.append(passage_step(extractors, thread_id, event, stored, analysed=not is_large))
        return [step for step in found if step is not None]


async def _afterwards(work: Callable[[], Awaitable[None]], *, has_all: bool) -> None:
    """Do this now, or where a search has all that it needs, once it has been answered."""
    await asyncio.sleep(ANSWERED_S if has_all else 0)
    await work()


class SearchModels(msgspec.Struct, kw_only=True):
    """The models of one engine's searches. The embedder may be changed while the engine is open."""

    embedder: "Embedder | None"
    vector_index: "VectorIndexFactory"
    passage_vectors: "PassageVectorsFactory"
    passage_overlay: Callable[[Store], OverlaidIndex]
    ranker: "Ranker"
    reranker: "Reranker | None"


class DecidedPair(msgspec.Struct, frozen=True):
    """What the event `decided_by` says of two passages of a thread, each a seq and the number within its event."""

    older: tuple[int, int]
    newer: tuple[int, int]
    is_replaced: bool
    decided_by: str


async def _no_decisions(_kernel: "Kernel", _thread_id: str, _upto: int) -> Sequence[DecidedPair]:
    return ()


class StatementDecisions(msgspec.Struct, frozen=True):
    """Reader of the decisions of a thread as of a seq (0: now). The plug-in of statements provides this setting."""

    read: "Callable[[Kernel, str, int], Awaitable[Sequence[DecidedPair]]]" = _no_decisions


_log = logging.getLogger("memory_engine.recall")

NUMBERS_AN_ITEM = 128
"""Numbers of vectors that are quantized in the time of an item of other work (see `aside`)."""
BATCH = 64
"""Passages embedded in one call, by an embedder that is fast enough for this number."""
FEWER = 4
"""A slower one gets this number of times fewer in the next batch."""
RETRY_S = 1.0
RETRY_MAX_S = 60.0
EMBEDDED_CHARS = 8_192
"""Characters of a text that are embedded, from its beginning: models read no more."""


async def embed(
    embedder: "Embedder", texts: list[str], *, is_query: bool = False, timeout_s: float = inf
) -> "list[Vector]":
    """A vector for each text (or query). Raises `ModelError` for everything else, whatever the embedder does."""
    whole = [
        text[:EMBEDDED_CHARS].encode(errors="replace").decode() for text in texts
    ]  # the texts may hold lone surrogates
    return await llm_vectors.embedded(embedder, whole, is_query=is_query, timeout_s=timeout_s)


class Embedding:
    """Embeds the passages that have no vector yet."""

    def __init__(self, kernel: Kernel, models: SearchModels, indexing: Indexing) -> None:
        self._kernel = kernel
        self._models = models
        self._indexing = indexing
        self._dirty: dict[str, None] = {}
        self._at = ""
        self._task: asyncio.Task[None] | None = None
        self._locks = OfLoop[WeakValueDictionary[str, asyncio.Lock]](WeakValueDictionary)

    def touched(self, thread_id: str) -> None:
        """Note that a thread has passages without a vector."""
        if self._models.embedder is None or self._kernel.tasks.closing:
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
        return (await self._indexing.passages.unembedded(thread_id, embedder.name, 0))[1]

    async def catch_up(self, thread_id: str, progress: IndexProgress | None = None) -> None:
        """Embed the passages of a thread's index that have no vector.

        Vectors of other models stay until all is done, and then go. Raises `ModelError`, `ThreadNotFound`.
        """
        embedder = self._models.embedder
        if embedder is None:
            return
        lock = self._locks.here.setdefault(thread_id, asyncio.Lock())
        async with lock:
            passages = self._indexing.passages
            await embed_all(self._kernel, passages, thread_id, embedder, progress)
            others = [model for model in await passages.models(thread_id) if model != embedder.name]
            if others:
                await passages.drop_vectors(thread_id, others)

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
            if isinstance(error, StorageError) or (
                isinstance(error, ModelError) and error.reason != llm_vectors.INVALID
            ):
                self._dirty[thread_id] = None
                _log.warning("passages of thread %r wait for their vectors: %s", thread_id, error)
                return True
            # a retry would fail too: searches say how many wait, and the next event tries again
            _log.warning("passages of thread %r get no vectors: %s", thread_id, error)
        return False


def _quantized(vectors: "Sequence[Vector]") -> list[bytes]:
    return list(map(llm_vectors.quantized, vectors))


class _Batches:
    """How many passages an embedder gets in one go: fewer where it did not keep its time, more where it has plenty."""

    def __init__(self) -> None:
        self.size = BATCH

    async def embedded(self, embedder: "Embedder", texts: list[str], timeout_s: float) -> "list[Vector]":
        """Their vectors. Raises `ModelError`."""
        begun_s = perf_counter()
        try:
            vectors = await embed(embedder, texts, timeout_s=timeout_s)
        except ModelError as error:
            if error.reason == "timeout":
                self.size = max(1, len(texts) // FEWER)
            raise
        if perf_counter() - begun_s < timeout_s / FEWER:
            self.size = min(BATCH, 2 * self.size)
        return vectors


async def embed_all(
    kernel: Kernel, passages: PassageIndex, thread_id: str, embedder: "Embedder", progress: IndexProgress | None
) -> None:
    """Embed the passages that a model has not embedded yet, in batches, each durable with its checkpoint.

    Raises `ModelError`, also where a batch takes longer than `EngineConfig.search_model_timeout_s`.
    """
    batches = kernel.made(_Batches)
    done = 0
    while True:
        places, waiting = await passages.unembedded(thread_id, embedder.name, batches.size)
        if not places:
            return
        found = await hits.read_passages(kernel.reader, kernel.extractors, thread_id, places)
        texts = {place: one.embedded() for place, one in found.items()}
        vectors = await batches.embedded(embedder, list(texts.values()), kernel.config.search_model_timeout_s)
        size = sum(map(len, vectors)) // NUMBERS_AN_ITEM
        numbers = await aside(partial(_quantized, vectors), items=size)
        kept = dict(zip(texts, numbers, strict=True))
        await passages.put_vectors(thread_id, embedder.name, kept, places[-1], first=places[0])
        done += len(places)
        if progress is not None:
            progress(done, done + waiting - len(places))
