"""The nearest of few vectors by comparing with all, of many by a graph; scores are always measured exactly.

A graph is a pair of files next to the database for a thread and a model. You may delete all of them.
"""

import logging
import time
from collections.abc import Collection, Iterable
from functools import cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

from memory_engine.errors import MissingExtra
from memory_engine.llm.vectors import Packed, Vector
from memory_engine.storage.vectors.exact import ExactIndex
from memory_engine.storage.vectors.graph import Graph, row_digests
from memory_engine.storage.vectors.graph_files import Origin, UnusableGraph, new_graph, read_graph, write_graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_log = logging.getLogger("memory_engine.storage")

THRESHOLD = 10_000
"""Vectors from which on a graph is faster by enough to be worth building: to compare with all takes 0.4 ms."""
EFFORT_MIN = 64
EFFORT_MAX = 512
EFFORT_PER_RESULT = 2
"""The more places of the graph are in view, the fewer of the nearest are missed; beyond the most, all are compared."""
SPARE = 8
"""Candidates beyond the limit, for the order among those that are nearly equal."""
WAITING_MAX = 1_000
"""Vectors outside the graph that a search compares exactly; while more wait, it compares with all."""
BUILT_A_PUT = 2
BUILT_AT_ONCE = 16
"""Vectors put into the graph before a search gets its turn: some 5 ms."""
TURN_S = 0.0005
LOADED_AT_ONCE = 1024


class AdaptiveIndex:
    """A `VectorIndex` in memory. May be called from several threads; a call waits for the one before it.

    Up to `threshold` vectors it is exact. Beyond, `search` asks a graph for candidates, of the
    `library` or of hnswlib (extra `hnsw`) or else usearch (extra `usearch`) if one is installed;
    without, it stays exact. It measures these, so that a score is the same either way; only that
    some of the nearest may be missed. A search among
    given `keys` is always exact. Building the graph is slow, about 0.3 ms a vector: each `put`
    does a little of it and `build` the rest. Searches find vectors outside the graph all the same.
    Raises `MissingExtra` without NumPy.
    """

    def __init__(
        self,
        dimension: int,
        *,
        threshold: int = THRESHOLD,
        library: Literal["", "hnswlib", "usearch", "usearch-i8"] = "",
    ) -> None:
        self._rows = ExactIndex(dimension)
        self.threshold = threshold
        self._graph: Graph | None = None
        self._library = library
        self._waiting: dict[str, None] = {}
        self._has_library = True
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return self._rows.dimension

    @property
    def waiting(self) -> int:
        """The number of vectors that the graph does not hold yet; 0 without a graph."""
        return len(self._waiting)

    def keys(self) -> set[str]:
        """The current keys."""
        with self._lock:
            return set(self._rows.keys())

    def put(self, key: str, vector: Vector | Packed) -> None:
        """Add a vector, or replace the one under this key. Raises `InvalidVector`."""
        with self._lock:
            self._rows.put(key, vector)
            self._changed(key)
            self._build(BUILT_A_PUT)

    def put_many(self, items: Iterable[tuple[str, Vector | Packed]]) -> None:
        """The same for many, as if put one by one, and faster; builds nothing.

        Raises `InvalidVector`; those before it are put.
        """
        coming = iter(items)
        while some := list(islice(coming, LOADED_AT_ONCE)):
            with self._lock:
                try:
                    self._rows.put_many(some)
                finally:
                    for key, _ in some:
                        self._changed(key)

    def remove(self, key: str) -> None:
        """Remove the vector under a key, if there is one."""
        with self._lock:
            self._rows.remove(key)
            self._changed(key)

    def search(
        self, vector: Vector | Packed, limit: int, keys: Collection[str] | None = None
    ) -> list[tuple[str, float]]:
        """The nearest `limit` (of `keys`, if given) with their cosine, best first, equal ones by key.

        A vector of length zero has the cosine 0 to all. Raises `InvalidVector`.
        """
        with self._lock:
            unit = self._rows.unit(vector)
            if keys is None:
                keys = self._candidates(unit, limit)
            return self._rows.nearest(unit, limit, keys)

    def build(self, at_most: int | None = None) -> int:
        """Put up to this many waiting vectors into the graph; return how many still wait. Call it from a worker thread.

        Searches get their turn in between. Does nothing below the threshold, or without a library.
        """
        left = len(self) if at_most is None else at_most
        while left > 0:
            with self._lock:
                self._build(min(left, BUILT_AT_ONCE))
                if not self._waiting:
                    break
            left -= BUILT_AT_ONCE
            time.sleep(TURN_S)  # else this thread would have the lock back before another wakes up
        return len(self._waiting)

    def save(self, path: Path, origin: Origin) -> None:
        """Write the graph to `path` and `path`.graph, so that it need not be built again; without one, remove them.

        It takes a second for 100,000 vectors and blocks other tasks meanwhile. The caller keeps the vectors
        themselves. Raises `OSError`; then the earlier files remain, or are refused.
        """
        with self._lock:
            write_graph(path, origin, self.dimension, self._graph)

    def load(self, path: Path, origin: Origin) -> UnusableGraph | None:
        """Load the graph of a file, once the vectors are put. It drops entries for other vectors; missing ones wait.

        So a graph may be older than the vectors. Returns why it could not be used; then nothing has changed.
        """
        graph = read_graph(path, origin, self.dimension)
        if isinstance(graph, UnusableGraph):
            return graph
        with self._lock:
            self._waiting = dict.fromkeys(self._rows.keys())
            held = [key for key in self._waiting if key in graph]
            for at in range(0, len(held), LOADED_AT_ONCE):
                some = held[at : at + LOADED_AT_ONCE]
                for key, digest in zip(some, row_digests(self._rows.rows_of(some)), strict=True):
                    if graph.digest_of(key) == digest:
                        del self._waiting[key]
            for key in graph.keys() - (self._rows.keys() - self._waiting.keys()):
                graph.remove(key)
            self._graph = graph
            self._drop_if_worn()
        return None

    def _changed(self, key: str) -> None:
        """The graph no longer holds the row of this key; it waits, if it is there."""
        if self._graph is None:
            return
        self._waiting.pop(key, None)
        self._graph.remove(key)
        if key in self._rows:
            self._waiting[key] = None
        self._drop_if_worn()

    def _drop_if_worn(self) -> None:
        """Drop a graph whose places are mostly dead; the next search builds another."""
        if self._graph is not None and self._graph.is_worn:
            self._graph = None
            self._waiting.clear()

    def _build(self, at_most: int) -> None:
        if self._graph is None and len(self._rows) > self.threshold and self._has_library:
            try:
                self._graph = new_graph(self.dimension, self._library)
            except MissingExtra as error:
                self._has_library = False
                _stays_exact(str(error))
                return
            self._waiting = dict.fromkeys(self._rows.keys())
        if self._graph is not None and self._waiting:
            keys = list(islice(self._waiting, at_most))
            self._graph.add(keys, self._rows.rows_of(keys))
            for key in keys:
                del self._waiting[key]

    def _candidates(self, unit: "NDArray[np.float32]", limit: int) -> list[str] | None:
        """Keys that include the nearest; `None` where comparing with all is better."""
        effort = max(EFFORT_MIN, EFFORT_PER_RESULT * limit)
        if self._graph is None or len(self._waiting) > WAITING_MAX or effort > EFFORT_MAX:
            return None
        near = self._graph.nearest(unit, max(limit, 0) + SPARE, effort=effort)
        if near is None or len(near) + len(self._waiting) < limit:
            return None
        return [*near, *self._waiting]


@cache  # once is enough for a log
def _stays_exact(why: str) -> None:
    _log.warning("many vectors are still compared one by one: %s (or `hnsw`, which takes a C++ compiler)", why)
