"""A graph of vectors by usearch (extra `usearch`): half the bytes a number, and a file that is mapped, not read."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memory_engine.errors import MissingExtra
from memory_engine.storage.vectors.graph import BUILD_EFFORT, LINKS, Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class UsearchGraph(Graph):
    """See `Graph`: two bytes a number. One that was loaded lies in its file until it changes; then it is copied."""

    library = "usearch"
    _metric = "ip"
    _numbers = "f16"

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        try:
            self._library = importlib.import_module("usearch.index")
        except ModuleNotFoundError as error:
            raise MissingExtra("a graph of vectors", "usearch") from error
        self._index = self._library.Index(
            ndim=dimension, metric=self._metric, dtype=self._numbers, connectivity=LINKS, expansion_add=BUILD_EFFORT
        )
        self._is_mapped = False

    def _own(self) -> None:
        """Let the graph be one that can change."""
        if self._is_mapped:
            self._index = self._index.copy()
            self._index.expansion_add = BUILD_EFFORT
            self._is_mapped = False

    def _insert(self, labels: Sequence[int], rows: "NDArray[np.float32]") -> None:
        import numpy

        self._own()
        self._index.add(numpy.array(labels, dtype=numpy.uint64), rows, threads=1)  # with more, the order is chance

    def _kill(self, label: int) -> None:
        self._own()
        self._index.remove(label)

    def _near(self, unit: "NDArray[np.float32]", count: int, effort: int) -> list[int] | None:
        self._index.expansion_search = effort
        found: list[int] = self._index.search(unit[0], count, threads=1).keys.tolist()
        return found if len(found) == count else None

    def save(self, path: Path) -> None:
        """Write the places to a file. Raises `OSError` where it does not come out whole."""
        try:
            self._index.save(str(path))
        except RuntimeError as error:
            raise OSError(str(error)) from error

    def _opened(self, path: Path) -> int:
        try:
            self._index = self._library.Index.restore(str(path), view=True)
        except (RuntimeError, ValueError):
            return -1
        self._is_mapped = True
        return len(self._index)

    @staticmethod
    def counted(alive: int, places: int) -> int:
        """It counts those that are alive."""
        del places
        return alive


class SmallUsearchGraph(UsearchGraph):
    """The same with one byte a number."""

    library = "usearch-i8"
    _metric = "cos"
    _numbers = "i8"
