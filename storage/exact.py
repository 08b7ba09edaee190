"""The nearest vectors by comparing with all of them: exact, and fast enough for tens of thousands (extra `vectors`)."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from memory_engine.errors import InvalidVector, MissingExtra
from memory_engine.recall.base import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROOM_MIN = 16
SCORE_DIGITS = 6
"""Single precision holds no more; rounding lets equal ones be equal wherever their rows stand."""


class ExactIndex:
    """A `VectorIndex` in memory: one row of unit length a key. Raises `MissingExtra` without NumPy."""

    def __init__(self, dimension: int) -> None:
        try:
            import numpy
        except ModuleNotFoundError as error:
            raise MissingExtra("similarity by vectors", "vectors") from error
        self._numpy = numpy
        self._dimension = dimension
        self._keys: list[str] = []
        self._places: dict[str, int] = {}
        self._rows = numpy.zeros((ROOM_MIN, dimension), dtype=numpy.float32)

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, key: str, vector: Vector) -> None:
        """Add a vector, or replace the one under this key. Raises `InvalidVector`."""
        unit = self._unit(vector)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._keys)
            self._keys.append(key)
            if place == len(self._rows):
                self._rows = self._numpy.concatenate([self._rows, self._numpy.zeros_like(self._rows)])
        self._rows[place] = unit

    def remove(self, key: str) -> None:
        """Remove the vector under a key, if there is one."""
        place = self._places.pop(key, None)
        if place is None:
            return
        last = self._keys.pop()
        if last != key:
            self._keys[place] = last
            self._places[last] = place
            self._rows[place] = self._rows[len(self._keys)]

    def search(self, vector: Vector, limit: int, keys: Collection[str] | None = None) -> list[tuple[str, float]]:
        """The nearest `limit` (of `keys`, if given) with their cosine, best first, equal ones by key.

        A vector of length zero has the cosine 0 to all. Raises `InvalidVector`.
        """
        unit = self._unit(vector)
        if keys is None:
            names, rows = self._keys, self._rows[: len(self._keys)]
        else:
            names = [key for key in dict.fromkeys(keys) if key in self._places]
            rows = self._rows[[self._places[key] for key in names]]
        if limit < 1 or not names:
            return []
        numpy = self._numpy
        scores = numpy.round((rows @ unit).astype(numpy.float64), SCORE_DIGITS)
        if limit < len(names):
            least = numpy.partition(scores, len(names) - limit)[len(names) - limit]
            found = numpy.flatnonzero(scores >= least).tolist()  # with all that equal the last one
        else:
            found = list(range(len(names)))
        best = sorted((-float(scores[place]), names[place]) for place in found)
        return [(key, -negative) for negative, key in best[:limit]]

    def _unit(self, vector: Vector) -> "NDArray[np.float32]":
        numpy = self._numpy
        whole = numpy.asarray(vector, dtype=numpy.float64)
        if whole.shape != (self._dimension,):
            raise InvalidVector("the index", f"it has {len(vector)} numbers instead of {self._dimension}")
        if not numpy.isfinite(whole).all():
            raise InvalidVector("the index", "a number of it is not finite")
        largest = numpy.abs(whole).max(initial=0.0)
        scaled = whole / (largest or 1.0)  # squares of very large or small numbers would be lost
        unit: NDArray[np.float32] = (scaled / (numpy.linalg.norm(scaled) or 1.0)).astype(numpy.float32)
        return unit
