"""Search: candidates by words and by vectors, ranked together, shown with their sources.

1. The question is read: its words, the people and days it names, the kind of thing it asks for.
2. From each thread's index come the passages with the rarest of its words, those nearest in meaning, and what
   follows directly on either.
3. A ranker scores them by their words, the words before them, their speakers and times, and drops near-duplicates.
4. A re-ranker, where there is one, reads the best and orders them again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from zlib import crc32

import msgspec
from attrs import field, frozen
from msgspec.structs import replace

from memory_engine.core.cancellation import finished
from memory_engine.core.clock import to_datetime
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
from memory_engine.recall.hits import Found, Hit, Missing, Shown, shown
from memory_engine.recall.index import BATCH, Embedding, Indexing, SearchModels, embed
from memory_engine.recall.question import Question, read_question
from memory_engine.recall.ranking import Candidate, Ranked, Statistics
from memory_engine.recall.rerankers import scores_of
from memory_engine.recall.superseding import Current
from memory_engine.recall.vectors import SPACES_MAX, VectorSpace
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.passages import LEXICAL_MAX, THREAD_BITS, LookedUp, LookUp, PassageRow, Threads
from memory_engine.store.protocol import ThreadFilter

_log = logging.getLogger("memory_engine.recall")

QUERY_CHARS_MAX = 8_192
"""Characters of a query that are searched for, from its beginning."""
NEAREST = 60
"""Passages that vectors add to the candidates."""
NEAREST_READ = 120
"""The nearest that are looked at for passages that a search does not leave out; where these are too few, all are."""
RERANKED = 40
"""The number of best hits that a re-ranker reads."""
AT_ONCE = 3
"""Searches that compute at one time. Each takes milliseconds of a processor; the more of them take turns at it, the
longer each takes, and so does a dispatch among them."""
RANKED_AT_ONCE = 500
"""Candidates that are ranked on the event loop, in a few milliseconds; more (of many threads) go to a worker thread."""
LIMIT_MAX = 1_000
UNORDERED = frozenset({"agent_md", "item", "pattern", "playbook", "preference"})
"""Kinds whose passages have nothing to do with their neighbours."""
UNWANTED = ("summary",)
"""Kinds that are found only when they are asked for by name."""
_DAY_US = 86_400_000_000
WHY_PARTS = 4


class Part(msgspec.Struct, frozen=True):
    """A part of a thread: what the keys of its passages begin with, and the seq from which on they stand.

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

    `now_us` is the moment at which the question is asked, if not now.

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
    explain: bool = False


class _Choice(msgspec.Struct, frozen=True):
    """Candidates of all threads, with the counts of these threads, whose ids are by the numbers in places."""

    candidates: tuple[Candidate, ...]
    statistics: Statistics
    keys: Mapping[int, str]
    thread_ids: Sequence[str]

    @property
    def likeness(self) -> dict[int, float | None]:
        """The model's likeness of each candidate, by place."""
        return {candidate.place: candidate.cosine for candidate in self.candidates}


class _Meaning(msgspec.Struct, frozen=True):
    """The question's vector by a model, if there is one, or why there is none."""

    vector: Vector | None = None
    embedder: Embedder | None = None
    deadline_s: float = 0.0
    dimension: int = 0
    failure: str = ""


_DAMAGED = (IntegrityError, EventDecodeError, StorageRefused, UnreadableRow)
"""The errors of one thread's rows, which say nothing of others."""


class _Gaps:
    """The threads of a search that could not be read, where there are others to be searched."""

    def __init__(self, *, are_many: bool) -> None:
        self._are_many = are_many
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
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def search(self, threads: Threads, asked: Asked) -> Found:
        """The best passages of these threads for a question, best first.

        Raises `ThreadNotFound`, and the errors of reading a damaged thread where only one is named: of several it
        is left out. Where embedder or re-ranker fail or do not keep their time, words decide. The result names what
        did not answer.
        """
        gaps = _Gaps(are_many=threads.thread_ids is None or len(threads.thread_ids) > 1)
        deadline_s = asyncio.get_running_loop().time() + self._kernel.config.search_model_timeout_s
        text = asked.query[:QUERY_CHARS_MAX]
        question = read_question(text, now_us=self._kernel.now_us() if asked.now_us is None else asked.now_us)
        current = Current(question)
        question = replace(question, further=current.further)
        meaning = await self._meaning(text, deadline_s) if text.strip() else _Meaning()
        wanted = max(asked.limit, RERANKED) if self._models.reranker is not None else asked.limit
        async with self._turns:
            try:
                choice, waiting = await self._choice(threads, asked, question, meaning, gaps)
            except (ModelError, InvalidVector) as error:  # others keep vectors of the same name and another size
                meaning = _Meaning(failure=str(error))
                choice, waiting = await self._choice(threads, asked, question, meaning, gaps)
            hits = await self._hits(await self._ranked(question, choice, wanted, current), choice, gaps)
        hits, failure = await self._reranked(text, hits)
        hits = current.settled(hits)
        return Found(
            query=asked.query,
            hits=tuple(hit if asked.explain else replace(hit, parts={}) for hit in hits[: asked.limit]),
            how="hybrid" if meaning.vector is not None else "lexical",
            failure=meaning.failure or failure,
            waiting=waiting,
            missing=_missing(meaning.failure, failure),
            unread=tuple(gaps.unread),
        )

    @asynccontextmanager
    async def _aside(self) -> AsyncIterator[None]:
        """A block that waits for something else than this process: meanwhile another search has the turn."""
        self._turns.release()
        try:
            yield
        finally:
            await finished(self._turns.acquire())  # who has left it gives it back only once

    async def _ranked(self, question: Question, choice: _Choice, wanted: int, current: Current) -> list[Ranked]:
        """The best candidates and their partners. Of very many, beside the loop: a dispatch must not wait for that."""

        def rank() -> list[Ranked]:
            ranked = self._models.ranker(question, choice.candidates, choice.statistics, wanted)
            return [*ranked, *current.partners(ranked, choice.candidates, choice.thread_ids)]

        return rank() if len(choice.candidates) <= RANKED_AT_ONCE else await asyncio.to_thread(rank)

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

    async def _choice(
        self, threads: Threads, asked: Asked, question: Question, meaning: _Meaning, gaps: "_Gaps"
    ) -> tuple[_Choice, int]:
        """Candidates from all threads; how many passages have no vector yet."""
        gathered = _Gathered(question)
        if len(threads.thread_ids or ()) == 1 or asked.parts or meaning.embedder is not None:
            await self._one_by_one(await self._ids(threads), asked, question, meaning, (gathered, gaps))
            return gathered.choice(), gathered.waiting
        try:
            await self._at_once(threads, asked, question, (gathered, gaps))
        except _DAMAGED:  # of one of them: the others are searched
            gathered = _Gathered(question)
            await self._one_by_one(await self._ids(threads), asked, question, meaning, (gathered, gaps))
        return gathered.choice(), gathered.waiting

    async def _ids(self, threads: Threads) -> Sequence[str]:
        if threads.thread_ids is not None:
            return threads.thread_ids
        where = ThreadFilter(
            tenant_id=threads.tenant_id, user_id=threads.user_id, agent_id=threads.agent_id, kind=threads.kind
        )
        found = await self._kernel.store.threads(where)
        return [record.id for record, _ in found if threads.matches(record)]

    async def _at_once(
        self, threads: Threads, asked: Asked, question: Question, into: "tuple[_Gathered, _Gaps]"
    ) -> None:
        """One look-up over all threads."""
        gathered, gaps = into
        wanted = _wanted(asked, question, _WHOLE)
        looked = await self._indexing.look_up_among(threads, wanted, gaps.of)
        if gaps.unread:
            if threads.thread_ids is None and len(await self._ids(threads)) == 1:
                await self._indexing.catch_up(next(iter(gaps.unread)))  # which raises what is wrong with the only one
            left = replace(threads, without=frozenset(gaps.unread))
            looked = await self._indexing.look_up_among(left, wanted, gaps.of)
        gathered.add(looked, {}, looked.threads)

    async def _one_by_one(
        self,
        thread_ids: Sequence[str],
        asked: Asked,
        question: Question,
        meaning: _Meaning,
        into: "tuple[_Gathered, _Gaps]",
    ) -> None:
        """A look-up for each thread."""
        gathered, gaps = into
        for thread_id in thread_ids:
            with gaps.of(thread_id):
                space = await self._space(thread_id, meaning) if meaning.embedder is not None else None
                looked, cosines = await self._looked_up(thread_id, asked, question, meaning, space and space[0])
            if thread_id in gaps.unread:
                continue
            gathered.waiting += space[1] if space is not None else 0
            gathered.add(looked, cosines, (thread_id,))

    async def _looked_up(
        self, thread_id: str, asked: Asked, question: Question, meaning: _Meaning, space: VectorSpace | None
    ) -> tuple[LookedUp, dict[int, float]]:
        part = asked.parts.get(thread_id, _WHOLE)
        wanted = _wanted(asked, question, part)
        if space is None or meaning.vector is None:
            return await self._indexing.look_up(thread_id, wanted), {}
        near = space.nearest(meaning.vector, NEAREST_READ, part.among)
        looked = await self._indexing.look_up(thread_id, replace(wanted, near=tuple(near)))
        if looked.near < NEAREST and len(near) == NEAREST_READ:
            among = await self._kernel.store.passages.fitting(thread_id, wanted)
            near = space.nearest(meaning.vector, NEAREST, among)
            looked = await self._indexing.look_up(thread_id, replace(wanted, near=tuple(near)))
        return looked, space.cosines(meaning.vector, looked.chosen)

    async def _space(self, thread_id: str, meaning: _Meaning) -> tuple[VectorSpace, int] | None:
        """A thread's vectors by this model, the last few passages embedded now; how many still wait."""
        embedder, dimension = meaning.embedder, meaning.dimension
        if embedder is None:
            return None
        await self._indexing.look_up(thread_id, LookUp())
        waiting = await self._embedding.waiting(thread_id)
        if 0 < waiting <= BATCH and not self._kernel.config.read_only:
            try:
                async with self._aside(), self._in_time(embedder.name, meaning.deadline_s):
                    await self._embedding.catch_up(thread_id)
                waiting = 0
            except ModelError:
                pass  # the question could be embedded, but not these: they wait in the queue, and the result says so
        if waiting:
            self._embedding.touched(thread_id)
        model = embedder.name
        space = self._kernel.caches.made(
            thread_id,
            f"vectors:{model}:{dimension}",
            lambda: VectorSpace(self._models.vector_index, dimension, self._models.graphs),
            at_most=SPACES_MAX,
        )
        await space.follow(self._kernel.store, thread_id, model, self._kernel.tasks.spawn)
        return space, waiting

    async def _hits(self, ranked: Sequence[Ranked], choice: _Choice, gaps: _Gaps) -> list[Hit]:
        thread_ids = choice.thread_ids
        by_thread: dict[int, set[int]] = {}
        for one in ranked:
            for place in (one.place, *one.alike):
                by_thread.setdefault(place >> THREAD_BITS, set()).add(place & _PLACE)
        texts: dict[int, Shown] = {}
        for number, places in by_thread.items():
            with gaps.of(thread_ids[number]):
                found = await shown(self._kernel.reader, self._kernel.extractors, thread_ids[number], places)
                texts.update((number << THREAD_BITS | place, one) for place, one in found.items())
        likeness = choice.likeness
        return [
            replace(
                _hit(one, texts, thread_ids[one.place >> THREAD_BITS], choice.keys.get(one.place, "")),
                likeness=likeness.get(one.place),
            )
            for one in ranked
            if one.place in texts
        ]

    async def _reranked(self, query: str, hits: list[Hit]) -> tuple[list[Hit], str]:
        """The hits in the order of the re-ranker, if there is one that answers; else why it did not."""
        reranker = self._models.reranker
        if reranker is None or not hits:
            return hits, ""
        best, rest = hits[:RERANKED], hits[RERANKED:]
        deadline_s = asyncio.get_running_loop().time() + self._kernel.config.search_model_timeout_s
        try:
            async with self._in_time(reranker.name, deadline_s):
                scores = await scores_of(reranker, query, [hit.rendered() for hit in best])
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
_NOWHERE: Mapping[int, int] = {}


def _wanted(asked: Asked, question: Question, part: Part) -> LookUp:
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
        limit=max(LEXICAL_MAX, asked.limit) + 2 * len(question.further),
    )


class _Gathered:
    """The candidates of look-ups, one after the other, with what they count."""

    def __init__(self, question: Question) -> None:
        self.waiting = 0
        self._asked_for = frozenset((*question.terms, *question.further))
        self._thread_ids: list[str] = []
        self._found: list[Candidate] = []
        self._keys: dict[int, str] = {}
        self._passages = self._terms = 0
        self._holding: dict[str, int] = dict.fromkeys(question.terms, 0)

    def add(self, looked: LookedUp, cosines: Mapping[int, float], thread_ids: Sequence[str]) -> None:
        """Take what a look-up has found; `thread_ids` are by the numbers in its places."""
        offset = len(self._thread_ids) << THREAD_BITS
        self._found += (
            one
            for one in _candidates(looked, cosines, offset)
            if one.beside or one.place - offset in looked.listed or _is_related(one, self._asked_for)
        )
        self._keys.update((offset + place, looked.rows[place].key) for place in looked.chosen)
        self._thread_ids += thread_ids
        self._passages += looked.passages
        self._terms += looked.terms
        for term, count in looked.holding.items():
            self._holding[term] = self._holding.get(term, 0) + count

    def choice(self) -> _Choice:
        """All of it."""
        average = self._terms / self._passages if self._passages else 0.0
        counted = Statistics(self._passages, average, self._holding)
        return _Choice(tuple(self._found), counted, self._keys, self._thread_ids)


def _candidates(looked: LookedUp, cosines: Mapping[int, float], offset: int) -> list[Candidate]:
    made: dict[int, Candidate] = {}
    beside: dict[int, dict[int, int]] = {}
    for best, around in looked.around.items():
        for place, far in around.items():
            if place in looked.rows and _belong(looked.rows[best], looked.rows[place], far):
                beside.setdefault(place, {})[offset + best] = far

    def candidate(place: int, before: Candidate | None = None) -> Candidate:
        row = looked.rows[place]
        # passages of one day in two threads do not belong together
        group = offset + (place >> THREAD_BITS << THREAD_BITS) + _group(row)
        said = (row.kind, row.role, row.speaker, row.at_us, group, row.terms.split())
        return Candidate(offset + place, *said, cosines.get(place), before, beside.get(place, _NOWHERE))

    for place in sorted(looked.chosen):  # what stands before a candidate is often one itself, and made already
        before = looked.before.get(place)
        if before is None or not _follows(looked.rows[place], looked.rows[before]):
            made[place] = candidate(place)
            continue
        if before not in made:
            made[before] = candidate(before)
        made[place] = candidate(place, made[before])
    return [made[place] for place in looked.chosen]


def _is_related(candidate: Candidate, asked_for: frozenset[str]) -> bool:
    """Whether its words, its meaning or the passage before it brought a passage here, and not only its place."""
    before = candidate.before
    return (
        candidate.cosine is not None
        or not asked_for.isdisjoint(candidate.terms)
        or (before is not None and not asked_for.isdisjoint(before.terms))
    )


def _follows(row: PassageRow, before: PassageRow) -> bool:
    """Whether a passage may answer or continue the one before it."""
    if row.kind in UNORDERED or before.kind in UNORDERED:
        return False
    return _group(row) == _group(before) if row.kind == "document" else before.kind != "document"


def _belong(best: PassageRow, other: PassageRow, far: int) -> bool:
    """Whether a passage so far on from another may have to do with it."""
    return _follows(other, best) if far > 0 else _follows(best, other)


def _group(row: PassageRow) -> int:
    """The group of a passage: its document, or its day; a passage without an order stands alone."""
    if row.kind in UNORDERED:
        return -row.place
    if row.kind == "document":
        return crc32(":".join(row.key.split(":")[:2]).encode(errors="replace"))
    return row.at_us // _DAY_US


def _hit(ranked: Ranked, texts: Mapping[int, Shown], thread_id: str, key: str) -> Hit:
    one = texts[ranked.place]
    return Hit(
        text=one.text.text,
        kind=one.text.kind,
        role=one.text.role,
        speaker=one.text.speaker,
        at=to_datetime(one.at_us),
        thread_id=thread_id,
        seq=one.event.seq,
        n=one.n,
        event_id=one.event.id,
        event_type=one.event.type,
        score=ranked.score,
        why=_why(ranked.parts),
        parts=dict(ranked.parts),
        key=key,
        about=one.text.about,
        alike=tuple(texts[place].event.id for place in ranked.alike if place in texts),
    )


def _why(parts: Mapping[str, float]) -> str:
    """The signals that counted most, in words."""
    best = sorted(((value, name) for name, value in parts.items() if value > 0), reverse=True)
    return ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for value, name in best[:WHY_PARTS])
