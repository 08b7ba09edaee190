"""Vectors made rows of unit length, one or many at a time, to the same bytes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memory_engine.errors import InvalidVector
from memory_engine.recall.base import Packed, Vector

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
        whole = numpy.array([_numbers(numpy, vector, dimension) for vector in vectors], dtype=numpy.float64)
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


def _numbers(numpy: "ModuleType", vector: Vector | Packed, dimension: int) -> "NDArray[np.float64]":
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
