"""Vectors that lie in clusters, as a model's do: an embedder that costs nothing, and the graph against all vectors."""

import importlib.util
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter_ns
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Bar, Figure, Reference, quantile
from benchmarks.setting import Setting, say, settle_memory
from memory_engine.llm.vectors import VectorIndex
from memory_engine.storage.vectors.adaptive import AdaptiveIndex
from memory_engine.storage.vectors.exact import ExactIndex

DIMENSION = 384
BRANCHES = 8
SHARES = (1.2, 0.8, 0.6)
"""How far apart topics, their parts and the parts' parts are."""
CLUSTERS = BRANCHES ** len(SHARES)
WAYS = 16
"""Directions in which vectors differ from the middle of their cluster, beside a little noise in all."""
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
        """Nothing to let go of."""

    def learn(self, texts: Sequence[str]) -> None:
        """Make the vectors of these texts now: to embed them is a look into a dictionary from here on."""
        self._known.update((text, self._vector(text)) for text in texts)

    def _vector(self, text: str) -> list[float]:
        topic = max(text.strip("?.!").split(), key=len, default="")
        cluster = np.array([crc32(topic.encode()) % CLUSTERS])
        found: list[float] = around(cluster, np.random.default_rng(crc32(text.encode())))[0].tolist()
        return found


async def graph(setting: Setting) -> list[Figure]:
    """The graph (hnswlib) against comparing with all, on the same vectors: what it misses, and what it takes."""
    found: list[Figure] = []
    if importlib.util.find_spec("hnswlib") is None:
        note = "skipped: hnswlib is not installed (extra `hnsw`)"
        return [Figure(bench="recall", case="the graph of vectors", value=None, unit="", note=note)]
    for count in (setting.size(20_000, 1_000), setting.size(100_000, 2_000)):
        say(f"  vectors: {count:,}")
        settle_memory()
        found += _compared(setting, count)
    return found


def _compared(setting: Setting, count: int) -> list[Figure]:
    rows = clustered(count, 1)
    items = [(str(number), row.astype("<f4").tobytes()) for number, row in enumerate(rows)]
    queries = [row.astype("<f4").tobytes() for row in clustered(setting.size(500, 30), 2)]
    exact, adaptive = ExactIndex(DIMENSION), AdaptiveIndex(DIMENSION, threshold=0)
    load_s = _seconds(lambda: exact.put_many(items))
    adaptive.put_many(items)
    build_s = _seconds(adaptive.build)
    true, exact_us = _searched(exact, queries)
    near, adaptive_us = _searched(adaptive, queries)
    hits = [len({key for key, _ in a} & {key for key, _ in b}) / LIMIT for a, b in zip(true, near, strict=True)]
    name = f"nearest 10 of {count:,} vectors"
    return [
        Figure(
            bench="recall",
            case=f"{name}: found by the graph",
            value=statistics.fmean(hits),
            unit="recall@10",
            bar=Bar("value", ">=", 0.98),
            asserted=not setting.quick,
            detail={
                "worst_query": min(hits),
                "queries": len(hits),
                "build_s": build_s,
                "vectors_a_second": count / build_s,
            },
        ),
        Figure(
            bench="recall",
            case=f"{name}: the graph's time",
            value=statistics.median(adaptive_us) / 1000,
            unit="ms, p50",
            reference=Reference("compared with all", statistics.median(exact_us) / 1000),
            ratio_best=min(adaptive_us) / min(exact_us),
            asserted=not setting.quick,
            detail={
                "p95_ms": quantile(adaptive_us, 0.95) / 1000,
                "reference_p95_ms": quantile(exact_us, 0.95) / 1000,
                "load_s": load_s,
            },
        ),
    ]


def _searched(index: VectorIndex, queries: Sequence[bytes]) -> tuple[list[list[tuple[str, float]]], list[float]]:
    """What each query found, and the microseconds that it took."""
    index.search(queries[0], LIMIT)
    found, taken = [], []
    for query in queries:
        begun = perf_counter_ns()
        found.append(index.search(query, LIMIT))
        taken.append((perf_counter_ns() - begun) / 1000)
    return found, taken


def _seconds(work: Callable[[], object]) -> float:
    begun = perf_counter_ns()
    work()
    return (perf_counter_ns() - begun) / 1e9
