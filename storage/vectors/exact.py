"""The nearest vectors by comparing with all of them: exact, and fast enough for tens of thousands (extra `vectors`).

Vectors become rows of unit length, one or many at a time, to the same bytes.
"""

from collections.abc import Collection, Iterable, KeysView, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from memory_engine.errors import InvalidVector, MissingExtra
from memory_engine.llm.vectors import Packed, Vector

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray


NUMBER_BYTES = 4


def unit_rows(numpy: "ModuleType", vectors: Sequence[Vector | Packed], dimension: int) -> "NDArray[np.float32]":
    """A row of unit length a vector, in their order; one of length zero stays so. Raises `InvalidVector`."""
    stored = [vector for vector in vectors if isinstance(vector, bytes) and len(vector) == NUMBER_BYTES * dimension]
    if len(stored) == len(vectors):
        whole = numpy.frombuffer(b"".join(stored), dtype="<f4").reshape(len(vectors), dimension)
        whole = whole.astype(numpy.float64)
    else:
        whole = numpy.array([_vector_array(numpy, vector, dimension) for vector in vectors], dtype=numpy.float64)
    if not numpy.isfinite(whole).all():
        raise InvalidVector("the index", "a number of it is not finite")
    if not whole.size:
        return numpy.zeros(whole.shape, dtype=numpy.float32)  # type: ignore[no-any-return]
    largest = numpy.abs(whole).max(axis=1, keepdims=True)
    whole /= numpy.where(largest == 0.0, 1.0, largest)  # squares of very large or small numbers would be lost
    lengths = numpy.sqrt(numpy.add.reduce(whole * whole, axis=1, keepdims=True))
    whole /= numpy.where(lengths == 0.0, 1.0, lengths)
    units: NDArray[np.float32] = whole.astype(numpy.float32)
    return units


def _vector_array(numpy: "ModuleType", vector: Vector | Packed, dimension: int) -> "NDArray[np.float64]":
    if isinstance(vector, bytes):
        count, rest = divmod(len(vector), NUMBER_BYTES)
        if rest:
            raise InvalidVector("the index", f"it has {len(vector)} bytes instead of {NUMBER_BYTES * dimension}")
        numbers = numpy.frombuffer(vector, dtype="<f4")
    else:
        count, numbers = len(vector), numpy.asarray(vector, dtype=numpy.float64)
    if numbers.shape != (dimension,):
        raise InvalidVector("the index", f"it has {count} numbers instead of {dimension}")
    return numbers  # type: ignore[no-any-return]


ROOM_MIN = 16
PUT_AT_ONCE = 1024
"""Vectors that are made rows together: a few megabytes."""
SCORE_DIGITS = 6
"""Single precision holds no more; rounding makes equal vectors equal whatever their rows."""


class ExactIndex:
    """A `VectorIndex` in memory: one row of unit length a key. Raises `MissingExtra` without NumPy."""

    def __init__(self, dimension: int) -> None:
        try:
            import numpy
        except ModuleNotFoundError as error:
            raise MissingExtra("similarity by vectors", "vectors") from error
        self._numpy = numpy
        self.dimension = dimension
        self._keys: list[str] = []
        self._places: dict[str, int] = {}
        self._rows = numpy.zeros((ROOM_MIN, dimension), dtype=numpy.float32)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self._places.keys()

    def put(self, key: str, vector: Vector | Packed) -> None:
        """Add a vector, or replace the one under this key. Raises `InvalidVector`."""
        self._put([key], self.unit(vector))

    def put_many(self, items: Iterable[tuple[str, Vector | Packed]]) -> None:
        """The same for many, as if put one by one, and faster. Raises `InvalidVector`; those before it are put."""
        coming = iter(items)
        while some := list(islice(coming, PUT_AT_ONCE)):
            try:
                rows = unit_rows(self._numpy, [vector for _, vector in some], self.dimension)
            except InvalidVector:
                for key, vector in some:  # up to the first invalid one
                    self.put(key, vector)
                raise
            self._put([key for key, _ in some], rows)

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

    def build(self, at_most: int | None = None) -> int:
        """Do nothing: an exact index needs no building."""
        return 0

    def search(
        self, vector: Vector | Packed, limit: int, keys: Collection[str] | None = None
    ) -> list[tuple[str, float]]:
        """The nearest `limit` (of `keys`, if given) with their cosine, best first, equal ones by key.

        A vector of length zero has the cosine 0 to all. Raises `InvalidVector`.
        """
        return self.nearest(self.unit(vector), limit, keys)

    def nearest(
        self, unit: "NDArray[np.float32]", limit: int, keys: Collection[str] | None = None
    ) -> list[tuple[str, float]]:
        """The same for a result of `unit`."""
        if keys is None:
            names, rows = self._keys, self._rows[: len(self._keys)]
        else:
            names = [key for key in dict.fromkeys(keys) if key in self._places]
            rows = self.rows_of(names)
        if limit < 1 or not names:
            return []
        numpy = self._numpy
        scores = numpy.round((rows @ unit[0]).astype(numpy.float64), SCORE_DIGITS)
        if limit < len(names):
            least = numpy.partition(scores, len(names) - limit)[len(names) - limit]
            found = numpy.flatnonzero(scores >= least).tolist()  # with all whose score equals the last one's
        else:
            found = list(range(len(names)))
        best = sorted((-float(scores[place]), names[place]) for place in found)
        return [(key, -negative) for negative, key in best[:limit]]

    def unit(self, vector: Vector | Packed) -> "NDArray[np.float32]":
        """The vector at unit length, as a matrix of one row. Raises `InvalidVector`."""
        return unit_rows(self._numpy, [vector], self.dimension)

    def rows_of(self, keys: Collection[str]) -> "NDArray[np.float32]":
        """A row of unit length for each of these keys, which must all be present."""
        return self._rows[[self._places[key] for key in keys]]

    def _put(self, keys: list[str], rows: "NDArray[np.float32]") -> None:
        """Rows of unit length, in this order: of a key that comes twice the last one stays."""
        places = []
        for key in keys:
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = len(self._keys)
                self._keys.append(key)
            places.append(place)
        if len(self._keys) > len(self._rows):
            more = max(len(self._rows), len(self._keys) - len(self._rows))
            self._rows = self._numpy.concatenate(
                [self._rows, self._numpy.zeros((more, self.dimension), dtype=self._numpy.float32)]
            )
        if len(set(places)) == len(places):
            self._rows[places] = rows
        else:
            for place, row in zip(places, rows, strict=True):  # an assignment by places promises no order
                self._rows[place] = row
