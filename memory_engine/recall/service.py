"""Recall for an engine: the index, the vectors' queue, and search in one service.

The arguments of a search are checked first: a wrong value is refused, never searched for as something else.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING

from attrs import evolve

from memory_engine.core.aside import imported
from memory_engine.core.clock import to_us, zone_of
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.threads import TIMEZONE, WHAT_IF
from memory_engine.errors import InvalidArgument, InvalidSearch, ModelError, SeqNotInLog, ThreadNotFound
from memory_engine.recall.ahead import IndexingAhead
from memory_engine.recall.index import Embedding, Indexing, IndexProgress, SearchModels, embed_all
from memory_engine.runtime.commit import Reduced
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.passages import Threads
from memory_engine.store.protocol import ThreadFilter
from memory_engine.store.snapshots import forgotten_at, rewound_at

if TYPE_CHECKING:
    from memory_engine.core import origins
    from memory_engine.llm import base, vectors
    from memory_engine.llm.vectors import Embedder
    from memory_engine.recall import hits, likeness, search, trust
    from memory_engine.recall.candidates import Choice
    from memory_engine.recall.hits import Found, Hit
    from memory_engine.recall.likeness import TextIndex
    from memory_engine.recall.rerankers import Reranker
    from memory_engine.recall.search import Asked
    from memory_engine.store import rewinds
else:
    origins = lazy_module("memory_engine.core.origins")
    base, vectors = lazy_modules("memory_engine.llm", "base vectors")
    hits, likeness, search, trust = lazy_modules("memory_engine.recall", "hits likeness search trust")
    rewinds = lazy_module("memory_engine.store.rewinds")

_log = logging.getLogger("memory_engine.recall")

SIMILARITIES_MAX = 256
"""Indexes of likeness that are kept in memory, each of one view of one thread."""

QUESTIONS_MAX = 16
"""Number of questions that are remembered of a thread, to compare statements for them."""
QUESTIONED_MAX = 256
"""Number of threads of which questions are remembered."""


class Recall:
    """The search of an engine's threads."""

    def __init__(self, kernel: Kernel, models: SearchModels) -> None:
        self._kernel = kernel
        self._models = models
        self._mask = kernel.mask
        if models.embedder is not None:
            models.embedder = vectors.masked_embedder(models.embedder, self._mask)
        self.indexing = Indexing(kernel, models.passage_overlay)
        self.embedding = Embedding(kernel, models, self.indexing)
        self._ahead = IndexingAhead(kernel, self.indexing)

    @cached_property
    def _searching(self) -> "search.Searching":
        return search.Searching(self._kernel, self._models, self.indexing, self.embedding)

    @property
    def embedder(self) -> "Embedder | None":
        """The model that makes vectors, if there is one, unwrapped."""
        embedder = self._models.embedder
        return embedder.inner if isinstance(embedder, vectors.MaskedEmbedder) else embedder

    @property
    def reranker(self) -> "Reranker | None":
        """The re-ranker, if there is one."""
        return self._models.reranker

    async def search(self, thread_ids: Sequence[str], asked: "Asked") -> "Found":
        """See `Searching.search_in_parts`; these threads, and all hits at once."""
        return await self._search(Threads(thread_ids=tuple(dict.fromkeys(thread_ids))), asked)

    async def search_in_parts(
        self, thread_ids: Sequence[str], asked: "Asked", count: int
    ) -> "tuple[Found, AsyncGenerator[list[Hit]], Choice]":
        """See `Searching.search_in_parts`; these threads."""
        return await self._in_parts(Threads(thread_ids=tuple(dict.fromkeys(thread_ids))), asked, count)

    async def _search(self, threads: Threads, asked: "Asked") -> "Found":
        if asked.min_trust is None:
            return (await self._in_parts(threads, asked, search.LIMIT_MAX))[0]
        found = await self._trusted(threads, evolve(asked, limit=search.LIMIT_MAX), asked.limit)
        if len(found) < asked.limit and found.untrusted and not asked.kinds:  # many of a low origin hide no other
            kinds = trust.TRUSTED_KINDS
            others = await self._trusted(threads, evolve(asked, limit=search.LIMIT_MAX, kinds=kinds), asked.limit)
            found = evolve(others, untrusted=found.untrusted) if len(others) > len(found) else found
        return found

    async def _trusted(self, threads: Threads, asked: "Asked", limit: int) -> "Found":
        found, behind, _ = await self._in_parts(threads, asked, search.LIMIT_MAX)
        await behind.aclose()
        assert asked.min_trust is not None
        hits = await trust.trusted_hits(self._kernel, found.hits, asked.min_trust)
        shown = hits[:limit]
        before = found.hits.index(shown[-1]) + 1 if len(hits) >= limit else len(found.hits)
        return evolve(found, hits=tuple(shown), untrusted=before - len(shown))

    async def _in_parts(
        self, threads: Threads, asked: "Asked", count: int
    ) -> "tuple[Found, AsyncGenerator[list[Hit]], Choice]":
        where = threads.exact if threads.thread_ids is None else threads.thread_ids
        if asked.zone is None and len(threads.thread_ids or ()) == 1:
            asked = evolve(asked, zone=await self.zone(*threads.thread_ids or ()))
        with self._kernel.span("search_memory", {"threads": where, "query": asked.query}) as span:
            parts = await self._searching.search_in_parts(threads, asked, count)
            span.say({"hits": len(parts[0])})
            return parts

    async def zone(self, thread_id: str) -> tzinfo:
        """Return the zone of a thread's days: the one that its metadata names, else the engine's.

        Raises `MissingTimeZones`.
        """
        runtime = self._kernel[OpenThreads].get(thread_id)
        found = () if runtime is not None else await self._kernel.store.threads(ThreadFilter(id=thread_id))
        records = (record for record, _ in found) if runtime is None else (runtime.record,)
        name = next((record.metadata.get(TIMEZONE, "") for record in records), "")
        try:
            return zone_of(name or self._kernel.config.timezone)
        except InvalidArgument as error:
            _log.warning("a search goes by the engine's time zone: in the metadata of thread %r, %s", thread_id, error)
            return zone_of(self._kernel.config.timezone)

    async def search_store(self, asked: "Asked", thread_ids: Sequence[str] | None, where: ThreadFilter) -> "Found":
        """Search these threads, or all that match: no what-ifs, and a pooled kind only where `where` names it."""
        if thread_ids is not None:
            return await self.search(thread_ids, asked)
        threads = Threads(
            tenant_id=where.tenant_id or "",
            user_id=where.user_id,
            agent_id=where.agent_id,
            kind=where.kind,
            without_kinds=() if where.kind else self._kernel.pooled_kinds,
            without_key=WHAT_IF,
        )
        while True:
            with suppress(ThreadNotFound):  # one was deleted meanwhile: list them again
                return await self._search(threads, asked)

    def similarity(self, thread_id: str, view: str) -> "TextIndex":
        """The index over the texts of a thread's view, by likeness. The least recently used ones are dropped."""
        embedder, runtime = self._models.embedder, self._kernel[OpenThreads].get(thread_id)
        forgot = forgotten_at(runtime.head) if runtime is not None else 0
        return self._kernel.caches.made(
            thread_id,
            f"similar:{view}:{embedder.name if embedder is not None else ''}",
            lambda: likeness.TextIndex(
                embedder,
                self._models.vector_index,
                likeness.KeptVectors(self._kernel.store, thread_id, view, forgotten_at=forgot),
                timeout_s=self._kernel.config.search_model_timeout_s,
            ),
            at_most=SIMILARITIES_MAX,
        )

    def similarity_now(self) -> "TextIndex":
        """An index of likeness that is used once: for a view of the past."""
        timeout_s = self._kernel.config.search_model_timeout_s
        return likeness.TextIndex(self._models.embedder, self._models.vector_index, timeout_s=timeout_s)

    async def prepare(self, thread_id: str, progress: IndexProgress | None = None) -> None:
        """Bring a thread's stored index and its vectors up to date. Raises `ReadOnly`."""
        self._kernel.check_writable(f"the search index of thread {thread_id!r}")
        await self.indexing.catch_up(thread_id, progress)
        await self.embedding.catch_up(thread_id, progress)

    async def index_words(self, thread_id: str) -> None:
        """Index the words of the newest passages of a thread, if it has an index, so that searches are fast at once."""
        if (await self._kernel[OpenThreads].taken(thread_id)).indexed:
            await self._kernel.store.passages.index_words(thread_id)

    async def change_embedder(self, embedder: "Embedder", progress: IndexProgress | None = None) -> None:
        """Change the model: once its vectors are made, searches use them and the old ones are deleted.

        Until then searches use the old model, which is closed at the end. If this raises (`ModelError`, or `TypeError`
        for a value that is not an embedder), the old model stays.
        """
        given, embedder = vectors.checked_embedder(embedder), vectors.masked_embedder(embedder, self._mask)
        passages = self.indexing.passages
        threads = await passages.threads()
        for thread_id in threads:
            with suppress(ThreadNotFound):  # it was deleted meanwhile
                await embed_all(self._kernel, passages, thread_id, embedder, progress)
        old, self._models.embedder = self.embedder, embedder
        self._embed_after_commits()
        try:
            for thread_id in threads:
                await self._let_go_of_old(thread_id)
        finally:
            if old is not None and old is not given:
                await base.close(old, self._kernel.config.search_model_timeout_s)

    async def _let_go_of_old(self, thread_id: str) -> None:
        """Embed the newest passages, drop the vectors of other models, queue passages that the model refuses."""
        try:
            await self.embedding.catch_up(thread_id)
        except ThreadNotFound:
            pass
        except ModelError:
            self.embedding.touched(thread_id)
        self._kernel.caches.drop(thread_id)

    def listen(self, threads: OpenThreads) -> None:
        """Hear what search has to do after commits: in quiet times, and with an embedder after each."""
        self._ahead.listen()
        self._kernel.home.moved.append(self._ahead.listen)
        threads.on_event[MemoryForget.event_type].append(lambda runtime, _: self._ahead.forgot(runtime))
        self._threads = threads
        self._embed_after_commits()

    def _embed_after_commits(self) -> None:
        """Hear of commits from now on, where an embedder makes vectors of them."""
        if self._models.embedder is not None and self._queue_passages not in self._threads.on_commit:
            self._threads.on_commit.append(self._queue_passages)

    def _queue_passages(self, runtime: ThreadRuntime, _reduced: Sequence[Reduced]) -> None:
        """Queue the new passages of a thread for their vectors."""
        if runtime.indexed:
            self.embedding.touched(runtime.id)

    async def settle(self) -> None:
        """Work off the vectors' queue."""
        await self.embedding.settle()

    async def aclose(self) -> None:
        """Close the models, and indexes in memory."""
        await self.indexing.close()
        for model in (self._models.embedder, self._models.reranker):
            if model is not None:
                await base.close(model, self._kernel.config.search_model_timeout_s)


async def search_thread(  # noqa: PLR0913 - what narrows a search, by keyword
    thread: ThreadHandle,
    query: str,
    *,
    limit: int = 10,
    kinds: Sequence[str] = (),
    at: int | None = None,
    as_of: datetime | int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    explain: bool = False,
    min_trust: str | None = None,
) -> "Found":
    """See `Thread.search`."""
    await imported(search)
    if as_of is not None and at is not None:
        raise InvalidSearch("as_of", as_of, "`at` says it already: give one of them")
    if isinstance(as_of, int):
        at, as_of = as_of, None
    wanted = asked(
        query,
        limit=limit,
        kinds=kinds,
        at=None,
        as_of=as_of,
        since=since,
        until=until,
        explain=explain,
        min_trust=min_trust,
    )
    is_there = await thread.exists()
    if at is not None and (is_there or type(at) is not int):
        at = checked_seq(at, thread.id, (await thread.kernel.store.head(thread.id)).seq if is_there else 0)
    upto = await thread.upto(at) if is_there else 0
    if upto == 0:
        return hits.Found(query=query)
    note_question(thread.kernel, thread.id, query)
    wanted = evolve(wanted, upto=upto or 0)
    if not (upto and rewound_at(head := await thread.kernel.reader.head(thread.id))):
        return await thread.kernel[Recall].search((thread.id,), wanted)
    # the index holds one end of a passage: others that were hidden then may rank before those that were shown
    found = await thread.kernel[Recall].search((thread.id,), evolve(wanted, limit=max(limit, search.LIMIT_MAX)))
    shown = await rewinds.shown_at(thread.kernel.reader, thread.id, upto, head)
    return evolve(found, hits=tuple(hit for hit in found if shown.has(hit.seq))[:limit])


def asked(  # noqa: PLR0913 - what narrows a search, by keyword
    query: str,
    *,
    limit: int,
    kinds: Sequence[str],
    at: int | None,
    as_of: datetime | None,
    since: datetime | None,
    until: datetime | None,
    explain: bool,
    min_trust: str | None = None,
) -> "Asked":
    """The checked request. Raises `InvalidSearch`."""
    if not isinstance(limit, int):
        raise InvalidSearch("limit", limit, "it is a number of hits")
    if not isinstance(explain, bool):
        raise InvalidSearch("explain", explain, "it is True or False")
    since_us, until_us, as_of_us = _moment_us("since", since), _moment_us("until", until), _moment_us("as_of", as_of)
    if since_us is not None and until_us is not None and until_us < since_us:
        raise InvalidSearch("until", until, "it is before `since`: no moment lies between them")
    if as_of_us is not None:
        until_us = as_of_us if until_us is None else min(until_us, as_of_us)
    return search.Asked(
        query=checked_query(query),
        limit=limit,
        kinds=_kinds(kinds),
        upto=at or 0,
        since_us=since_us,
        until_us=until_us,
        now_us=as_of_us,
        explain=explain,
        min_trust=_trust(min_trust),
    )


def _trust(origin: object) -> "origins.Speaker | None":
    if origin is None:
        return None
    try:
        return origins.checked_trust(origin)
    except ValueError as error:
        raise InvalidSearch("min_trust", origin, str(error)) from None


def checked_query(query: str) -> str:
    """The query, if it is a text. Raises `InvalidSearch`: a wrong value must not be searched for as its letters."""
    if not isinstance(query, str):
        raise InvalidSearch("query", query, "it is a text; an empty one finds nothing")
    return query


def checked_seq(at: object, thread_id: str, head: int) -> int:
    """The seq, if the thread has it (0: before its first event). Raises `SeqNotInLog` (a `ValueError`)."""
    if not isinstance(at, int) or not 0 <= at <= head:
        raise SeqNotInLog(thread_id, at, head)
    return at


def _kinds(kinds: object) -> tuple[str, ...]:
    named = (kinds,) if isinstance(kinds, str) else kinds
    if (
        isinstance(named, Collection)
        and not isinstance(named, Mapping)
        and all(isinstance(kind, str) for kind in named)
    ):
        return tuple(named)
    raise InvalidSearch("kinds", kinds, 'it is one or several names of kinds, as ("message", "tool"); () is all')


def _moment_us(what: str, moment: object) -> int | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidSearch(what, moment, "it is a moment with a time zone: datetime(..., tzinfo=UTC)")
    return to_us(moment)


def searched_questions(kernel: Kernel, thread_id: str) -> deque[str]:
    """Return what a thread was searched for lately, by this process. It is in memory only; forgetting clears it."""
    return kernel.caches.made(
        thread_id, "searched_questions", lambda: deque[str](maxlen=QUESTIONS_MAX), at_most=QUESTIONED_MAX
    )


def note_question(kernel: Kernel, thread_id: str, question: str) -> None:
    """Remember what a thread is searched for."""
    asked = searched_questions(kernel, thread_id)
    if question in asked:
        asked.remove(question)
    asked.append(question)
