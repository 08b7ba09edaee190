"""Likeness over the rows of a view: by an embedder's vectors where there is one, else by words.

The vectors are stored as rows of a projection that folds nothing, a cache that outlives its process. They are deleted
with their thread, and in the transaction of a forgetting, since a vector may reveal its text. Missing vectors are
embedded again.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from hashlib import blake2b
from heapq import nlargest, nsmallest
from math import log, sqrt
from typing import Protocol

import msgspec
from msgspec.structs import replace

from memory_engine.core.arguments import checked_number
from memory_engine.core.cancellation import in_time
from memory_engine.core.loops import OfLoop
from memory_engine.errors import InvalidVector, ModelError, ThreadNotFound
from memory_engine.language.text import features
from memory_engine.llm.vectors import (
    Embedder,
    Match,
    Packed,
    Vector,
    VectorIndex,
    VectorIndexFactory,
    checked_vector,
    dimension_of,
    packed,
    query_method,
)
from memory_engine.store.protocol import ProjectionChange, Store
from memory_engine.store.snapshots import VIEW_VECTORS, forgotten_at, vectors_dropped

COMMON_ENTRIES_MIN = 200
"""From this many entries on, a feature that more than half of them have is skipped: it distinguishes none."""
VISITS_MAX = 12_000
"""Postings that one search may visit, rarest features first: a few milliseconds."""
CANDIDATES_MIN = 64
CANDIDATES_PER_RESULT = 4
SCORE_DIGITS = 6
"""Scores are rounded: the same entries give the same figures, whatever order they came in."""


class LexicalIndex:
    """Texts by key, searched for similar ones: cosine of weighted words and pieces of words (tf-idf).

    The answer depends on the entries alone, not on the order in which they came or
    changed. Candidates are chosen by the features they share with the query, then measured
    exactly; of up to 64 entries, all are. Any script, any text; the first 8,192 characters count.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._entries: dict[int, tuple[str, tuple[str, ...], tuple[float, ...]]] = {}
        # a posting's weight is the feature's share of its entry
        self._postings: dict[str, dict[int, float]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: str, text: str) -> None:
        """Add an entry, or replace the one under this key."""
        self.remove(key)
        weights, _ = features(text)
        number, self._next = self._next, self._next + 1
        self._numbers[key] = number
        length = sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        self._entries[number] = (key, tuple(weights), tuple(weights.values()))
        for feature, weight in weights.items():
            self._postings.setdefault(feature, {})[number] = weight / length

    def remove(self, key: str) -> None:
        """Remove the entry under a key, if there is one."""
        number = self._numbers.pop(key, None)
        if number is None:
            return
        for feature in self._entries.pop(number)[1]:
            postings = self._postings[feature]
            del postings[number]
            if not postings:
                del self._postings[feature]

    def search(self, text: str, limit: int, *, threshold: float = 0.0) -> list[Match]:
        """At most `limit` entries with a score of at least `threshold` and above 0, best first, equal ones by key.

        An empty text matches nothing.
        """
        found, shown = features(text)
        query = {feature: weight * self._rarity(feature) for feature, weight in found.items()}
        length = sqrt(sum(weight * weight for weight in query.values()))
        if limit < 1 or not length:
            return []
        candidates = self._candidates(query, max(CANDIDATES_MIN, CANDIDATES_PER_RESULT * limit))
        rarities: dict[str, float] = {}
        scored = [(self._score(query, number, rarities) / length, number) for number in candidates]
        rounded = [(round(score, SCORE_DIGITS), self._entries[number][0], number) for score, number in scored]
        good = [(-score, key, number) for score, key, number in rounded if score >= threshold and score > 0]
        return [
            Match(key, min(1.0, -negative), self._shared(number, query, shown))
            for negative, key, number in nsmallest(limit, good)
        ]

    def _rarity(self, feature: str) -> float:
        return log(1 + len(self._entries) / (len(self._postings.get(feature, ())) or 1))

    def _candidates(self, query: Mapping[str, float], limit: int) -> list[int]:
        """The entries (by number) that share most with the query for their own size."""
        overlaps = self._overlaps(query)
        if len(overlaps) <= limit:
            return list(overlaps)
        least = nlargest(limit, overlaps.values())[-1]
        best = [number for number, overlap in overlaps.items() if overlap >= least]
        return sorted(best, key=lambda number: (-overlaps[number], self._entries[number][0]))[:limit]

    def _overlaps(self, query: Mapping[str, float]) -> dict[int, float]:
        """The overlap of entries with the query: their common features, weighed by their share of the entry."""
        postings = self._postings
        held = sorted((len(postings[feature]), feature) for feature in query if feature in postings)
        many = len(self._entries) >= COMMON_ENTRIES_MIN
        overlaps: dict[int, float] = {}
        visited = 0
        for count, feature in held:
            if visited and (visited + count > VISITS_MAX or (many and 2 * count > len(self._entries))):
                break
            visited += count
            factor = query[feature] * self._rarity(feature)
            for number, share in postings[feature].items():
                overlaps[number] = overlaps.get(number, 0.0) + factor * share
        return overlaps

    def _score(self, query: Mapping[str, float], number: int, rarities: dict[str, float]) -> float:
        """The cosine of an entry and the query, but for the query's length."""
        _, names, weights = self._entries[number]
        common = squares = 0.0
        for feature, weight in zip(names, weights, strict=True):
            rarity = rarities.get(feature)
            if rarity is None:
                rarity = rarities[feature] = self._rarity(feature)
            value = weight * rarity
            squares += value * value
            if feature in query:
                common += value * query[feature]
        return common / sqrt(squares)

    def _shared(self, number: int, query: Mapping[str, float], shown: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(shown[feature] for feature in self._entries[number][1] if feature in query and feature in shown)


_log = logging.getLogger("memory_engine.recall")

EMBEDDED_AT_ONCE = 64
DIGEST_BYTES = 16
PUT_AT_ONCE = 100
"""Entries that are read before other tasks get their turn: some milliseconds."""
_NOT_READ = object()


class Thresholds(msgspec.Struct, frozen=True):
    """The score from which on an entry counts as similar to the query, by words and by vectors."""

    lexical: float
    embedding: float


REQUESTS = Thresholds(lexical=0.5, embedding=0.6)
"""For a request against other requests. Chosen on only 26 paraphrases of ten requests of our own."""
DESCRIPTIONS = Thresholds(lexical=0.25, embedding=0.4)
"""For a request against a description, which shares less. Chosen on 39 queries to 24 descriptions of our own."""


class Corpus(msgspec.Struct, frozen=True):
    """The entries to compare with: keys with a token each, and how to read a key's text.

    A text is read again when its token is no longer equal to the one it was read under, so
    a token must change with the text; a row's encoded bytes will do. Texts hold for the index's life.
    """

    tokens: Mapping[str, object]
    text: Callable[[str], str]


class LikenessVectors(Protocol):
    """Vectors that outlive an index, each behind the digest of its model and text."""

    async def read(self) -> dict[str, tuple[bytes, Packed]]:
        """All vectors, by key."""
        ...

    async def write(self, vectors: Mapping[str, tuple[bytes, Packed] | None]) -> None:
        """Keep vectors, and drop those of the keys with `None`."""
        ...


class TextIndex:
    """Finds entries similar to a query; in memory, and in step with the corpus of each search.

    It reads and embeds only the entries that changed since the last search, and with `kept` a
    later process does not embed them again either. Where the embedder fails, or does not end within `timeout_s`,
    words decide, and every match says so. Searches of one index wait for each other.
    """

    def __init__(
        self,
        embedder: Embedder | None = None,
        vector_index: VectorIndexFactory | None = None,
        kept: LikenessVectors | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> None:
        self._vectors: _Vectors | None = None
        self._timeout_s = timeout_s
        if embedder is not None and vector_index is not None:
            self._vectors = _Vectors(embedder, vector_index, kept)
        self._words = _WordIndex()
        self._lock = OfLoop(asyncio.Lock)

    async def search(
        self, query: str, corpus: Corpus, *, limit: int, threshold: float | Thresholds = REQUESTS
    ) -> list[Match]:
        """At most `limit` entries of the corpus whose score reaches the threshold, best first, equal ones by key.

        A number as threshold is for words and vectors alike. Raises `InvalidVector` where the
        embedder gives something that is not a vector, `MissingExtra` where its index needs an optional package.
        """
        if isinstance(threshold, Thresholds):
            least = threshold
        else:
            number = checked_number("threshold", threshold)
            least = Thresholds(number, number)
        async with self._lock.here:
            failure = ""
            if self._vectors is not None:
                try:
                    async with asyncio.timeout(self._timeout_s):
                        return await self._vectors.search(query, corpus, limit, least.embedding)
                except ModelError as error:
                    failure = str(error)
                except TimeoutError:
                    failure = f"the embedder gave no answer within {self._timeout_s:g} s"
                _log.warning("no embeddings, words decide: %s", failure)
            matches = await self._words.search(query, corpus, limit, least.lexical)
        return [replace(match, failure=failure) for match in matches] if failure else matches


def vector_digest(model: str, dimension: int, text: str) -> bytes:
    """The digest of a model and a text, which identifies their vector."""
    return blake2b(f"{model}\n{dimension}\n{text}".encode(errors="replace"), digest_size=DIGEST_BYTES).digest()


class _Tokens:
    """The entries that were read, each with its token."""

    def __init__(self) -> None:
        self.held: dict[str, object] = {}

    def changed(self, corpus: Corpus) -> list[str]:
        """The keys whose text must be read."""
        held = self.held
        return [
            key
            for key, token in corpus.tokens.items()
            if (was := held.get(key, _NOT_READ)) is not token and was != token
        ]

    def gone(self, corpus: Corpus) -> list[str]:
        """The keys that are gone, once all changed ones were read."""
        if len(self.held) == len(corpus.tokens):
            return []
        return [key for key in self.held if key not in corpus.tokens]


class _WordIndex:
    def __init__(self) -> None:
        self._index = LexicalIndex()
        self._tokens = _Tokens()

    async def search(self, query: str, corpus: Corpus, limit: int, threshold: float) -> list[Match]:
        for count, key in enumerate(self._tokens.changed(corpus), 1):
            self._index.put(key, corpus.text(key))
            self._tokens.held[key] = corpus.tokens[key]
            if not count % PUT_AT_ONCE:
                await asyncio.sleep(0)
        for key in self._tokens.gone(corpus):
            self._index.remove(key)
            del self._tokens.held[key]
        return self._index.search(query, limit, threshold=threshold)


class _Vectors:
    def __init__(self, embedder: Embedder, factory: VectorIndexFactory, kept: LikenessVectors | None) -> None:
        self._embedder = embedder
        self._factory = factory
        self._kept = kept
        self._stored: dict[str, tuple[bytes, Packed]] = {}
        self._model = ("", 0)
        self._index: VectorIndex | None = None
        self._tokens = _Tokens()

    async def search(self, query: str, corpus: Corpus, limit: int, threshold: float) -> list[Match]:
        index = await self._current()
        changed = await self._put_stored(index, corpus, self._tokens.changed(corpus))
        for at in range(0, len(changed), EMBEDDED_AT_ONCE):
            await self._put(index, corpus, changed[at : at + EMBEDDED_AT_ONCE])
        await self._drop(index, corpus)
        if limit < 1 or not query or not len(index):
            return []
        nearest = index.search((await self._embedded([query], is_query=True))[0], limit)
        return [Match(key, min(1.0, score), how="embedding") for key, score in nearest if score >= threshold]

    async def _current(self) -> VectorIndex:
        """The index; an empty one if the embedder's model has changed."""
        model = (self._embedder.name, await dimension_of(self._embedder))
        if self._index is None or model != self._model:
            self._stored = await self._kept.read() if self._kept is not None else {}
            self._index, self._model, self._tokens = self._factory(model[1]), model, _Tokens()
        return self._index

    async def _put_stored(self, index: VectorIndex, corpus: Corpus, keys: list[str]) -> list[str]:
        """Put the kept vectors into the index. Returns the keys of the rest."""
        if not self._stored:
            return keys
        missing = []
        for count, key in enumerate(keys, 1):
            digest, vector = self._stored.pop(key, (b"", b""))
            if digest == vector_digest(*self._model, corpus.text(key)):
                index.put(key, vector)
                self._tokens.held[key] = corpus.tokens[key]
            else:
                missing.append(key)
            if not count % PUT_AT_ONCE:
                await asyncio.sleep(0)
        return missing

    async def _put(self, index: VectorIndex, corpus: Corpus, keys: list[str]) -> None:
        texts = [corpus.text(key) for key in keys]
        vectors = await self._embedded(texts)
        for key, vector in zip(keys, vectors, strict=True):
            index.put(key, vector)
            self._tokens.held[key] = corpus.tokens[key]
        if self._kept is not None:
            digests = [vector_digest(*self._model, text) for text in texts]
            await self._kept.write(dict(zip(keys, zip(digests, map(packed, vectors), strict=True), strict=True)))

    async def _drop(self, index: VectorIndex, corpus: Corpus) -> None:
        """Drop the vectors of removed entries, including those that an earlier process kept."""
        gone = self._tokens.gone(corpus)
        for key in gone:
            index.remove(key)
            del self._tokens.held[key]
        stored, self._stored = self._stored, {}
        if self._kept is not None and (gone or stored):
            await self._kept.write(dict.fromkeys((*gone, *stored)))

    async def _embedded(self, texts: list[str], *, is_query: bool = False) -> list[Vector]:
        name, dimension = self._model
        whole = [text.encode(errors="replace").decode() for text in texts]  # a query may hold lone surrogates
        embed = (query_method(self._embedder) if is_query else None) or self._embedder.embed
        vectors = await in_time(embed(whole))
        if len(vectors) != len(texts):
            raise InvalidVector(name, f"there are {len(vectors)} for {len(texts)} texts")
        return [checked_vector(vector, dimension, name) for vector in vectors]


class KeptVectors:
    """The vectors of one view of a thread, by key, each behind the digest of its model and text."""

    def __init__(self, store: Store, thread_id: str, view: str, *, forgotten_at: int) -> None:
        self._store = store
        self._thread_id = thread_id
        self._prefix = f"{view}/"
        self._forgotten_at = forgotten_at

    async def read(self) -> dict[str, tuple[bytes, Packed]]:
        """Digest and vector of each key; none for a thread that its first event is yet to make."""
        try:
            _, rows = await self._store.rows(*VIEW_VECTORS, self._thread_id)
        except ThreadNotFound:
            return {}
        prefix = self._prefix
        return {
            key[len(prefix) :]: (row[:DIGEST_BYTES], row[DIGEST_BYTES:])
            for key, row in rows.items()
            if key.startswith(prefix)
        }

    async def write(self, vectors: Mapping[str, tuple[bytes, Packed] | None]) -> None:
        """Keep vectors, and drop those of the keys with `None`. Raises `ThreadNotFound`.

        If the thread forgot something since the texts were read, it keeps none: one of them may be of forgotten text.
        """
        rows = {self._prefix + key: b"".join(one) if one is not None else None for key, one in vectors.items()}
        await self._store.write_projection(self._thread_id, ProjectionChange(*VIEW_VECTORS, rows, 0))
        if forgotten_at(await self._store.head(self._thread_id)) > self._forgotten_at:
            await self._store.write_projection(self._thread_id, vectors_dropped(0))
