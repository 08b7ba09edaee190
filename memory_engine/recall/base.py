"""What similarity asks of the outside: vectors of texts, and the nearest of many vectors."""

from collections.abc import Callable, Collection, Sequence
from math import isfinite
from typing import Protocol

from attrs import frozen

from memory_engine.errors import InvalidVector

Vector = Sequence[float]
"""Finite numbers, as many as the embedder's dimension. Any length in space: what counts is the direction."""


class Embedder(Protocol):
    """Turns texts into vectors that lie close together where the texts mean the same."""

    @property
    def name(self) -> str:
        """Which model it is. Under another name all texts are embedded again."""
        ...

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text, in the same order. An empty text is allowed.

        Raises `ModelError` where the model could not be reached, or refused. Ends promptly when cancelled.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections. Calls under way may fail."""
        ...


class VectorIndex(Protocol):
    """Vectors by key, and which are nearest to another."""

    def put(self, key: str, vector: Vector) -> None:
        """Add a vector, or replace the one under this key. Raises `InvalidVector`."""
        ...

    def remove(self, key: str) -> None:
        """Remove the vector under a key, if there is one."""
        ...

    def search(self, vector: Vector, limit: int, keys: Collection[str] | None = None) -> list[tuple[str, float]]:
        """The nearest `limit` (of `keys`, if given) with their cosine, best first, equal ones by key.

        A vector of length zero has the cosine 0 to all. Raises `InvalidVector`.
        """
        ...

    def __len__(self) -> int: ...


VectorIndexFactory = Callable[[int], VectorIndex]
"""Makes an empty index for vectors of a dimension."""


@frozen
class Match:
    """An entry that is like a query: `score` from 0 to 1, the words that both have (in the entry's order).

    `how` is `"lexical"` for likeness of words, `"embedding"` for likeness by a model. `failure`
    says why words had to do although there is a model.
    """

    key: str
    score: float
    shared: tuple[str, ...] = ()
    how: str = "lexical"
    failure: str = ""


def checked_vector(vector: Vector, dimension: int, source: str) -> Vector:
    """The vector, if it has `dimension` finite numbers; else raises `InvalidVector` naming `source`."""
    if len(vector) != dimension:
        raise InvalidVector(source, f"it has {len(vector)} numbers instead of {dimension}")
    for place, number in enumerate(vector):
        if not isfinite(number):
            raise InvalidVector(source, f"number {place} is {number}")
    return vector
