"""A graph of vectors by hnswlib (extra `hnsw`)."""

import errno
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memory_engine.errors import MissingExtra
from memory_engine.storage.vectors.graph import BUILD_EFFORT, LINKS, ROOM_MIN, Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


SEED = 100


class HnswGraph(Graph):
    """See `Graph`: whole in memory, four bytes a number."""

    library = "hnswlib"

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        try:
            self._library = importlib.import_module("hnswlib")  # it has no types
        except ModuleNotFoundError as error:
            raise MissingExtra("a graph of vectors", "hnsw") from error
        self._index = self._library.Index("ip", dimension)  # of rows of unit length it is the cosine
        self._index.init_index(ROOM_MIN, M=LINKS, ef_construction=BUILD_EFFORT, random_seed=SEED)
        self._index.set_num_threads(1)  # with more threads, the order of arrival is chance

    def _insert(self, labels: Sequence[int], rows: "NDArray[np.float32]") -> None:
        room = self._index.get_max_elements()
        if self._next > room:
            self._index.resize_index(max(2 * room, self._next))
        self._index.add_items(rows, labels, num_threads=1)

    def _kill(self, label: int) -> None:
        self._index.mark_deleted(label)

    def _near(self, unit: "NDArray[np.float32]", count: int, effort: int) -> list[int] | None:
        self._index.set_ef(effort)
        try:
            labels, _ = self._index.knn_query(unit, k=count, num_threads=1)
        except RuntimeError:  # it raises where dead places, or islands, kept it from finding as many
            return None
        found: list[int] = labels[0].tolist()
        return found

    def save(self, path: Path) -> None:
        """Write the places to a file. Raises `OSError` where it does not come out whole: hnswlib says nothing."""
        self._index.save_index(str(path))
        size = path.stat().st_size if path.exists() else -1
        if size != self._index.index_file_size():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def _opened(self, path: Path) -> int:
        self._index = self._library.Index("ip", self._dimension)
        try:
            self._index.load_index(str(path))
        except RuntimeError:
            return -1
        self._index.set_num_threads(1)
        return int(self._index.get_current_count())
