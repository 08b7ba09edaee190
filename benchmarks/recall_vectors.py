"""Vectors that lie in clusters, as a model's do: an embedder that costs nothing, and codes against all vectors."""

import statistics
from collections.abc import Sequence
from functools import cache
from time import perf_counter_ns
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Bar, Figure, Reference, quantile
from benchmarks.setting import Setting, say, settle_memory
from memory_engine.llm.vectors import QUANTIZED_ONE
from memory_engine.storage.vectors.exact import ExactIndex
from memory_engine.storage.vectors.quantized import QuantizedVectors
from memory_engine.store.passages import VectorRows

DIMENSION = 384
BRANCHES = 8
SHARES = (1.2, 0.8, 0.6)
"""How far apart topics, their parts and the parts' parts are."""
CLUSTERS = BRANCHES ** len(SHARES)
WAYS = 16
"""Directions in which vectors differ from the centre of their cluster, besides a little noise in all."""
NOISE = 0.3
LIMIT = 10
Rows = NDArray[np.float32]


@cache
def _space() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The middles of all clusters, and the ways away from them.

    Made to be like 3,000 vectors of MiniLM from conversations: those have neighbourhoods of 10 dimensions (here
    11 to 12), 37 dimensions in all (31), a cosine of 0.78 to the nearest ten (0.72 to 0.79), and cosines that
    differ by 0.16 (0.17). Clusters without topics above them would be islands that no way leads to.
    """
    drawn = np.random.default_rng(0)
    middles = np.zeros((CLUSTERS, DIMENSION))
    for level, share in enumerate(SHARES, 1):
        parts = drawn.normal(size=(BRANCHES**level, DIMENSION)) / DIMENSION**0.5
        middles += share * parts.repeat(CLUSTERS // len(parts), axis=0)
    return middles, drawn.normal(size=(WAYS, DIMENSION)) / (DIMENSION * WAYS) ** 0.5


def around(clusters: NDArray[np.int64], chance: np.random.Generator) -> Rows:
    """A vector of unit length for each of these clusters' numbers."""
    middles, ways = _space()
    count = len(clusters)
    noise = NOISE / DIMENSION**0.5 * chance.normal(size=(count, DIMENSION))
    rows = middles[clusters] + chance.normal(size=(count, WAYS)) @ ways + noise
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.asarray(rows / lengths, dtype=np.float32)


def clustered(count: int, seed: int) -> Rows:
    """So many vectors in any clusters."""
    chance = np.random.default_rng(seed)
    return around(chance.integers(0, CLUSTERS, count), chance)


class Clusters:
    """An embedder that costs next to nothing: a text's longest word is its cluster, the text its place in it."""

    name = "clusters"
    dimension = DIMENSION

    def __init__(self) -> None:
        self._known: dict[str, list[float]] = {}

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector a text."""
        return [self._known.get(text) or self._vector(text) for text in texts]

    async def aclose(self) -> None:
        """Nothing to release."""

    def learn(self, texts: Sequence[str]) -> None:
        """Make the vectors of these texts now: to embed them is a look into a dictionary from here on."""
        self._known.update((text, self._vector(text)) for text in texts)

    def _vector(self, text: str) -> list[float]:
        topic = max(text.strip("?.!").split(), key=len, default="")
        cluster = np.array([crc32(topic.encode()) % CLUSTERS])
        found: list[float] = around(cluster, np.random.default_rng(crc32(text.encode())))[0].tolist()
        return found


async def nearest(setting: Setting) -> list[Figure]:
    """The nearest by their codes against comparing with all, on the same vectors: what is missed, and what it takes."""
    found: list[Figure] = []
    for count in (setting.size(20_000, 300), setting.size(100_000, 1_200)):
        say(f"  vectors: {count:,}")
        settle_memory()
        found += _compared(setting, count)
    return found


def _compared(setting: Setting, count: int) -> list[Figure]:
    vectors = clustered(count, 1)
    exact, coded = ExactIndex(DIMENSION), QuantizedVectors(DIMENSION)
    exact.put_many((str(number), row.astype("<f4").tobytes()) for number, row in enumerate(vectors))
    numbers = np.rint(vectors * QUANTIZED_ONE).astype("<i2").tobytes()
    begun = perf_counter_ns()
    coded.add([VectorRows(range(count), numbers)])
    add_ms = (perf_counter_ns() - begun) / 1e6
    queries = [row.astype("<f4").tobytes() for row in clustered(setting.size(500, 30), 2)]
    hits, exact_us, coded_us = [], [], []
    for query in queries:
        begun = perf_counter_ns()
        true = {int(key) for key, _ in exact.search(query, LIMIT)}
        middle = perf_counter_ns()
        near = coded.nearest(query, LIMIT)
        coded_us.append((perf_counter_ns() - middle) / 1000)
        exact_us.append((middle - begun) / 1000)
        hits.append(len(true.intersection(near)) / LIMIT)
    name = f"nearest {LIMIT} of {count:,} vectors"
    return [
        Figure(
            bench="recall",
            case=f"{name}: found by their codes, in two bytes a number",
            value=statistics.fmean(hits),
            unit=f"recall@{LIMIT}",
            bar=Bar("value", ">=", 0.99),
            asserted=not setting.quick,
            detail={"worst_query": min(hits), "queries": len(hits), "add_ms": add_ms},
        ),
        Figure(
            bench="recall",
            case=f"{name}: the time by their codes",
            value=statistics.median(coded_us) / 1000,
            unit="ms, p50",
            reference=Reference("compared with all", statistics.median(exact_us) / 1000),
            ratio_best=min(coded_us) / min(exact_us),
            asserted=not setting.quick,
            detail={"p95_ms": quantile(coded_us, 0.95) / 1000, "reference_p95_ms": quantile(exact_us, 0.95) / 1000},
        ),
    ]
