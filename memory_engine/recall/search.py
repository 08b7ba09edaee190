"""Search: candidates by words and by vectors, ranked together, shown with their sources.

1. The question is read: its words, the people and days it names, the kind of thing it asks for.
2. From each thread's index come the passages with the rarest of its words, those nearest in meaning, and what
   follows directly on either.
3. A ranker scores them by their words, the words before them, their speakers and times, and drops near-duplicates.
4. Replies to a question that asks the same move up.
5. A re-ranker, where there is one, reads the best and orders them again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from attrs import field, frozen
from msgspec.structs import replace

from memory_engine.core.aside import on_thread
from memory_engine.core.cancellation import finished
from memory_engine.core.clock import zone_of
from memory_engine.core.lazy import lazy_modules
from memory_engine.core.loops import OfLoop
from memory_engine.core.origins import Speaker
from memory_engine.errors import (
    EventDecodeError,
    IntegrityError,
    InvalidSearch,
    InvalidVector,
    ModelError,
    StorageRefused,
    UnreadableRow,
)
from memory_engine.llm.vectors import Embedder, Vector, dimension_of
from memory_engine.recall.candidates import Choice, Gathered
from memory_engine.recall.decided import Decided, threads_to_read
from memory_engine.recall.hits import Found, Hit, Missing, RankedHits, texts_at
from memory_engine.recall.index import BATCH, Embedding, Indexing, SearchModels, StatementDecisions, embed
from memory_engine.recall.question import Question, read_question
from memory_engine.recall.ranking import Ranked, is_built_in
from memory_engine.recall.vectors import SPACES_MAX, VectorSpace
from memory_engine.runtime.kernel import OF_SEVERAL, Kernel
from memory_engine.store.passages import LEXICAL_MAX, THREAD_BITS, LookedUp, LookUp, Threads
from memory_engine.store.protocol import ThreadFilter

if TYPE_CHECKING:
    from memory_engine.recall import replies, rerankers, superseding
else:
    replies, rerankers, superseding = lazy_modules("memory_engine.recall", "replies rerankers superseding")

_log = logging.getLogger("memory_engine.recall")

QUERY_CHARS_MAX = 8_192
"""Characters of a query that are searched for, from its beginning."""
LEXICAL_MIN = 40
"""Passages that words add to the candidates at least; at most `LEXICAL_MAX`, or as many as are asked for."""
CANDIDATES_A_HIT = 4
"""Candidates by words for each hit that is asked for, between these bounds: each costs as much as any other."""
NEAREST = 60
"""Passages that vectors add to the candidates."""
NEAREST_READ = 120
"""The nearest that are looked at for passages that a search does not leave out; where these are too few, all are."""
FURTHER_READ = 10
"""So many times as many of the nearest are looked at next, where these are too few over several threads."""
RERANKED = 40
"""The number of best hits that a re-ranker reads."""
AT_ONCE = 3
"""Searches that compute at one time. Each takes milliseconds of a processor; the more of them take turns at it, the
longer each takes, and so does a dispatch among them."""
RANKED_AT_ONCE = 500
"""Candidates that are ranked on the event loop, in a few milliseconds; more (of many threads) go to a worker thread."""
LIMIT_MAX = 1_000
UNWANTED = ("summary",)
"""Kinds that are found only when they are asked for by name."""


class Part(msgspec.Struct, frozen=True):
    """A part of a thread: the prefix of its passages' keys, and the seq from which on they are in it.

    `among` are the places of all of them where they are few: of these the nearest in meaning are looked for.
    """

    within: tuple[tuple[str, int], ...]
    among: tuple[int, ...] | None = None


def _check_limit(_asked: object, _attribute: object, value: int) -> None:
    if not 1 <= value <= LIMIT_MAX:
        raise InvalidSearch("limit", value, f"it is a number of hits: 1 to {LIMIT_MAX}")


@frozen(kw_only=True)
class Asked:
    """A checked request. `upto` is the seq to search as of (0: now); times are microseconds, ends included.

    `now_us` is the moment at which the question is asked, if not now; its days are those of `zone` (`None`: of the
    thread's or engine's zone). `min_trust` is the lowest origin of what is found.

    `parts` names, by thread, the parts to search; threads that it does not name are searched whole.
    """

    query: str
    limit: int = field(default=10, validator=_check_limit)
    kinds: tuple[str, ...] = ()
    parts: Mapping[str, Part] = field(factory=dict)
    upto: int = 0
    since_us: int | None = None
    until_us: int | None = None
    now_us: int | None = None
    zone: tzinfo | None = None
    explain: bool = False
    min_trust: Speaker | None = None


def _parse_question(text: str, now_us: int, zone: tzinfo) -> "tuple[Question, superseding.Current]":
    """The question, with the terms of what it asks about, and what is true of that."""
    question = read_question(text, now_us=now_us, zone=zone)
    current = superseding.Current(question)
    return replace(question, further=current.further), current


class _Meaning(msgspec.Struct, frozen=True):
    """The question's vector and the embedder that made it, or the reason for its lack (`failure`)."""

    vector: Vector | None = None
    embedder: Embedder | None = None
    deadline_s: float = 0.0
    dimension: int = 0
    failure: str = ""


_DAMAGED = (IntegrityError, EventDecodeError, StorageRefused, UnreadableRow)
"""The errors of one thread's rows, which say nothing of others."""


class _Gaps:
    """The threads of a search that could not be read, where there are others to be searched.

    `until_s` is when it waits no longer for indexes that are made, by the loop's clock.
    """

    def __init__(self, *, are_many: bool, until_s: float) -> None:
        self._are_many = are_many
        self.until_s = until_s
        self.unread: dict[str, None] = {}

    @contextmanager
    def of(self, thread_id: str) -> Iterator[None]:
        """A block that reads a thread; of several, one that is damaged is left out, and noted."""
        try:
            yield
        except _DAMAGED as error:
            if not self._are_many:
                raise
            self.unread[thread_id] = None
            _log.warning("a search leaves out thread %r: %s", thread_id, error)


class Searching:
    """Answers searches over any threads of an engine."""

    def __init__(self, kernel: Kernel, models: SearchModels, indexing: Indexing, embedding: Embedding) -> None:
        self._kernel = kernel
        self._models = models
        self._indexing = indexing
        self._embedding = embedding
        self._turns = OfLoop(lambda: asyncio.Semaphore(AT_ONCE))
        self._has_read = False

    async def search_in_parts(
        self, threads: Threads, asked: Asked, count: int
    ) -> tuple[Found, AsyncGenerator[list[Hit]], Choice]:
        """The best passages of these threads for a question, best first: a number of them, then the others in batches.

        The others are read on demand; the ranked candidates are returned too. Raises `ThreadNotFound`, and
        the errors of reading a damaged thread where only one is named: of several it is left out. Where embedder or
        re-ranker fail or do not keep their time, words decide. The result names what did not answer.
        """
        config, now_s = self._kernel.config, asyncio.get_running_loop().time()
        are_many = threads.thread_ids is None or len(threads.thread_ids) > 1
        gaps = _Gaps(are_many=are_many, until_s=now_s + config.search_index_timeout_s)
        text = asked.query[:QUERY_CHARS_MAX]
        now_us = self._kernel.now_us() if asked.now_us is None else asked.now_us
        read = partial(_parse_question, text, now_us, asked.zone or zone_of(config.timezone))
        question, current = read() if self._has_read else await on_thread(read)  # the first one compiles patterns
        self._has_read = True
        deadline_s = asyncio.get_running_loop().time() + config.search_model_timeout_s
        meaning = await self._meaning(text, deadline_s) if text.strip() else _Meaning()
        wanted = asked.limit
        if self._models.reranker is not None:
            wanted, count = max(wanted, RERANKED), LIMIT_MAX
        async with self._turns.here:
            try:
                gathered = await self._gathered(threads, asked, question, meaning, gaps)
            except (ModelError, InvalidVector) as error:  # others keep vectors of the same name and another size
                meaning = _Meaning(failure=str(error))
                gathered = await self._gathered(threads, asked, question, meaning, gaps)
            choice = gathered.choice()
            ranked = await self._ranked(question, choice, wanted, current)
            if is_built_in(self._models.ranker):
                ranked = await self._with_replies(question, choice, ranked, gaps)
            decided, ranked = await self._with_decided(asked, question, choice, ranked, gaps)
            first = current.read.union(decided.concerned(ranked, choice.thread_ids))
            best = RankedHits(self._kernel, choice, ranked, first, gaps.of, explain=asked.explain, zone=question.zone)
            hits = await best.first(count)
        hits, failure = await self._reranked(text, hits)
        settled = decided.settled(current.settled(hits, decided), current.asks)
        if not asked.explain:  # what is lifted has a part that says so
            settled = [replace(hit, parts={}) if hit.parts else hit for hit in settled]
        hits, others = best.parted(settled, count)
        found = Found(
            query=asked.query,
            hits=tuple(hits[: asked.limit]),
            how="hybrid" if meaning.vector is not None else "lexical",
            failure=meaning.failure or failure,
            waiting=gathered.waiting,
            unindexed=gathered.unindexed,
            missing=_missing(meaning.failure, failure),
            unread=tuple(gaps.unread),
        )
        return found, best.behind(others, count, asked.limit - len(found)), choice

    @asynccontextmanager
    async def _aside(self) -> AsyncIterator[None]:
        """A block that waits for something else than this process: meanwhile another search has the turn."""
        self._turns.here.release()
        try:
            yield
        finally:
            await finished(self._turns.here.acquire())  # who has left it gives it back only once

    async def _ranked(
        self, question: Question, choice: Choice, wanted: int, current: "superseding.Current"
    ) -> list[Ranked]:
        """The best candidates and their partners. If very many, in a worker thread: dispatches must not wait."""
        candidates = tuple(choice.candidates.values())

        def rank() -> list[Ranked]:
            ranked = self._models.ranker(question, candidates, choice.statistics, wanted)
            return [*ranked, *current.partners(ranked, candidates, choice.thread_ids)]

        return rank() if len(candidates) <= RANKED_AT_ONCE else await on_thread(rank)

    async def _with_replies(
        self, question: Question, choice: Choice, ranked: list[Ranked], gaps: "_Gaps"
    ) -> list[Ranked]:
        """The ranked, with replies to the question moved up: the texts before them show which these are."""
        replying = replies.Replies(question, choice.candidates, choice.statistics, ranked)
        if not replying.asking:
            return ranked
        texts = await texts_at(self._kernel, choice.thread_ids, set(replying.asking.values()), gaps.of)
        return replying.promoted({place: one.text.text for place, one in texts.items()})

    async def _with_decided(
        self, asked: Asked, question: Question, choice: Choice, ranked: Sequence[Ranked], gaps: "_Gaps"
    ) -> tuple[Decided, list[Ranked]]:
        """What is decided of the ranked, and these with the replacements that fit the search."""
        read, pairs = self._kernel.made(StatementDecisions).read, {}
        for thread_id in threads_to_read(ranked, choice.thread_ids):
            with gaps.of(thread_id):
                pairs[thread_id] = await read(self._kernel, thread_id, asked.upto)
        decided = Decided(pairs)
        added: list[Ranked] = []
        for thread_id, places in decided.lacking(ranked, choice.thread_ids).items():
            wanted = _look_up_request(asked, question, asked.parts.get(thread_id, _WHOLE))
            number = choice.thread_ids.index(thread_id) << THREAD_BITS
            with gaps.of(thread_id):
                wanted = replace(wanted, terms=(), listed=(), near=tuple(places))
                looked = await self._indexing.look_up(thread_id, wanted, gaps.until_s)
                added += [Ranked(number | place, 0.0, {}) for place in places if place in looked.chosen]
        return decided, [*ranked, *added]

    async def _meaning(self, text: str, deadline_s: float) -> _Meaning:
        embedder = self._models.embedder
        if embedder is None:
            return _Meaning()
        try:
            async with self._in_time(embedder.name, deadline_s):
                vector = (await embed(embedder, [text], is_query=True))[0]
                return _Meaning(vector, embedder, deadline_s, await dimension_of(embedder))
        except ModelError as error:
            _log.warning("a search goes by words alone: %s", error)
            return _Meaning(failure=str(error))

    @asynccontextmanager
    async def _in_time(self, model: str, deadline_s: float) -> AsyncIterator[None]:
        """A block that a model ends by its deadline, by the loop's clock. Raises `ModelError` where it does not."""
        limit = asyncio.timeout_at(deadline_s)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            timeout_s = self._kernel.config.search_model_timeout_s
            raise ModelError(model, "timeout", f"no answer within {timeout_s:g} s", retryable=True) from error

    async def _gathered(
        self, threads: Threads, asked: Asked, question: Question, meaning: _Meaning, gaps: "_Gaps"
    ) -> Gathered:
        """Candidates from all threads."""
        gathered = Gathered(question)
        if len(threads.thread_ids or ()) == 1 or asked.parts:
            await self._one_by_one(await self._ids(threads), asked, question, meaning, (gathered, gaps))
            return gathered
        try:
            await self._at_once(threads, asked, question, meaning, (gathered, gaps))
        except _DAMAGED:  # of one of them: the others are searched
            gathered = Gathered(question)
            await self._one_by_one(await self._ids(threads), asked, question, meaning, (gathered, gaps))
        return gathered

    async def _ids(self, threads: Threads) -> Sequence[str]:
        if threads.thread_ids is not None:
            return threads.thread_ids
        where = ThreadFilter(
            tenant_id=threads.tenant_id, user_id=threads.user_id, agent_id=threads.agent_id, kind=threads.kind
        )
        found = await self._kernel.store.threads(where)
        return [record.id for record, _ in found if threads.matches(record)]

    async def _at_once(
        self, threads: Threads, asked: Asked, question: Question, meaning: _Meaning, into: "tuple[Gathered, _Gaps]"
    ) -> None:
        """One look-up over all threads."""
        gathered, gaps = into
        wanted = _look_up_request(asked, question, _WHOLE)
        if meaning.vector is None:
            looked = await self._indexing.look_up_among(threads, wanted, gaps.of, gaps.until_s)
            if gaps.unread:
                looked = await self._indexing.look_up_among(
                    await self._readable(threads, gaps), wanted, gaps.of, gaps.until_s
                )
            gathered.add(looked, {}, looked.threads)
            return
        await self._indexing.look_up_among(threads, LookUp(), gaps.of, gaps.until_s)
        threads = await self._readable(threads, gaps) if gaps.unread else threads
        space, gathered.waiting = await self._space_among(threads, meaning)
        read = NEAREST_READ
        while True:
            near = space.nearest(meaning.vector, read)
            looked = await self._indexing.look_up_among(
                threads, replace(wanted, near=tuple(near)), gaps.of, gaps.until_s
            )
            if looked.near >= NEAREST or len(near) < read:
                break
            read *= FURTHER_READ
        own = {place: looked.numbers[place >> THREAD_BITS] << THREAD_BITS | place & _PLACE for place in looked.chosen}
        cosines = space.cosines(meaning.vector, own.values())
        likeness = {place: cosines[number] for place, number in own.items() if number in cosines}
        gathered.add(looked, likeness, looked.threads)

    async def _readable(self, threads: Threads, gaps: "_Gaps") -> Threads:
        """Return the threads without the damaged ones. Raises the damage of a thread if it is the only one searched."""
        if threads.thread_ids is None and len(await self._ids(threads)) == 1:
            await self._indexing.catch_up(next(iter(gaps.unread)))
        return replace(threads, without=frozenset(gaps.unread))

    async def _space_among(self, threads: Threads, meaning: _Meaning) -> tuple[VectorSpace, int]:
        """The vectors of several threads by this model, the last few passages embedded now; how many still wait."""
        embedder, dimension = meaning.embedder, meaning.dimension
        if embedder is None:
            raise ValueError("there is no model")
        space = self._kernel.caches.made(
            OF_SEVERAL,
            f"vectors:{embedder.name}:{dimension}:{threads}",
            lambda: VectorSpace(self._models.passage_vectors, dimension),
            at_most=SPACES_MAX,
        )
        passages = self._indexing.passages
        waiting = await space.follow_among(passages, threads, embedder.name)
        if 0 < sum(waiting.values()) <= BATCH:
            try:
                async with self._aside(), self._in_time(embedder.name, meaning.deadline_s):
                    for thread_id in waiting:
                        await self._embedding.catch_up(thread_id)
                waiting = await space.follow_among(passages, threads, embedder.name)
            except ModelError:
                pass  # the question could be embedded, but not these: they wait in the queue, and the result says so
        for thread_id in waiting:
            self._embedding.touched(thread_id)
        return space, sum(waiting.values())

    async def _one_by_one(
        self,
        thread_ids: Sequence[str],
        asked: Asked,
        question: Question,
        meaning: _Meaning,
        into: "tuple[Gathered, _Gaps]",
    ) -> None:
        """A look-up for each thread."""
        gathered, gaps = into
        for thread_id in thread_ids:
            with gaps.of(thread_id):
                space = await self._space(thread_id, meaning, gaps) if meaning.embedder is not None else None
                given = (question, meaning, space and space[0])
                looked, cosines = await self._looked_up(thread_id, asked, given, gaps)
            if thread_id in gaps.unread:
                continue
            gathered.waiting += space[1] if space is not None else 0
            gathered.add(looked, cosines, (thread_id,))

    async def _looked_up(
        self, thread_id: str, asked: Asked, given: "tuple[Question, _Meaning, VectorSpace | None]", gaps: "_Gaps"
    ) -> tuple[LookedUp, dict[int, float]]:
        question, meaning, space = given
        part = asked.parts.get(thread_id, _WHOLE)
        wanted = _look_up_request(asked, question, part)
        if space is None or meaning.vector is None:
            return await self._indexing.look_up(thread_id, wanted, gaps.until_s), {}
        read = NEAREST_READ
        if asked.upto:  # as many as have the usual number among those that there were then
            read = min(FURTHER_READ * NEAREST_READ, -(-read * max(space.last_seq, asked.upto) // asked.upto))
        near = space.nearest(meaning.vector, read, part.among)
        looked = await self._indexing.look_up(thread_id, replace(wanted, near=tuple(near)), gaps.until_s)
        if looked.near < NEAREST and len(near) == read:
            among = await self._indexing.passages.fitting(thread_id, wanted)
            near = space.nearest(meaning.vector, NEAREST, among)
            looked = await self._indexing.look_up(thread_id, replace(wanted, near=tuple(near)), gaps.until_s)
        return looked, space.cosines(meaning.vector, looked.chosen)

    async def _space(self, thread_id: str, meaning: _Meaning, gaps: "_Gaps") -> tuple[VectorSpace, int] | None:
        """A thread's vectors by this model, the last few passages embedded now; how many still wait."""
        embedder, dimension = meaning.embedder, meaning.dimension
        if embedder is None:
            return None
        await self._indexing.look_up(thread_id, LookUp(), gaps.until_s)
        waiting = await self._embedding.waiting(thread_id)
        if 0 < waiting <= BATCH:
            try:
                async with self._aside(), self._in_time(embedder.name, meaning.deadline_s):
                    await self._embedding.catch_up(thread_id)
                    waiting = await self._embedding.waiting(thread_id)
            except ModelError:
                pass  # the question could be embedded, but not these: they wait in the queue, and the result says so
        if waiting:
            self._embedding.touched(thread_id)
        model = embedder.name
        space = self._kernel.caches.made(
            thread_id,
            f"vectors:{model}:{dimension}",
            lambda: VectorSpace(self._models.passage_vectors, dimension),
            at_most=SPACES_MAX,
        )
        await space.follow(self._indexing.passages, thread_id, model)
        return space, waiting

    async def _reranked(self, query: str, hits: list[Hit]) -> tuple[list[Hit], str]:
        """The hits in the order of the re-ranker, if there is one that answers; else why it did not."""
        reranker = self._models.reranker
        if reranker is None or not hits:
            return hits, ""
        best, rest = hits[:RERANKED], hits[RERANKED:]
        deadline_s = asyncio.get_running_loop().time() + self._kernel.config.search_model_timeout_s
        try:
            async with self._in_time(reranker.name, deadline_s):
                texts = [hit.rendered() for hit in best]
                scores = await rerankers.scores_of(reranker, query, texts, self._kernel.mask)
        except ModelError as error:
            _log.warning("a search goes on without its re-ranker: %s", error)
            return hits, str(error)
        order = sorted(range(len(best)), key=lambda n: (-scores[n], n))
        why = f"{reranker.name} read it"
        return [replace(best[n], why=f"{why}: {scores[n]:.2f}; {best[n].why}") for n in order] + rest, ""


def _missing(embedder: str, reranker: str) -> tuple[Missing, ...]:
    """The models that did not answer, by why they did not."""
    models: tuple[tuple[Missing, str], ...] = (("embedder", embedder), ("re-ranker", reranker))
    return tuple(name for name, why in models if why)


_PLACE = (1 << THREAD_BITS) - 1
_WHOLE = Part(())


def _look_up_request(asked: Asked, question: Question, part: Part) -> LookUp:
    return LookUp(
        terms=(*question.terms, *question.further),
        near_max=NEAREST,
        listed=question.listed,
        upto=asked.upto,
        kinds=asked.kinds,
        unwanted=() if asked.kinds else UNWANTED,
        within=part.within,
        since_us=asked.since_us,
        until_us=asked.until_us,
        limit=max(asked.limit, min(LEXICAL_MAX, max(LEXICAL_MIN, asked.limit * CANDIDATES_A_HIT)))
        + 2 * len(question.further),
    )
