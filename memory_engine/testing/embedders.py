"""Vectors without a model: equal on every machine, and near each other where texts share pieces of words."""

from collections.abc import Iterator, Sequence
from math import sqrt
from zlib import crc32

from memory_engine.recall.base import Vector

GRAM_CHARS = (3, 4, 5)


class HashEmbedder:
    """An `Embedder` for tests: counts pieces of 3 to 5 characters, each at a place that its hash gives.

    It knows spellings and no meanings. Vectors have unit length; that of a text without letters and digits is zero.
    Raises `ValueError` for a `dimension` below 1.
    """

    def __init__(self, dimension: int = 256) -> None:
        if dimension < 1:
            raise ValueError(f"dimension is how many numbers a vector has, 1 or more, not {dimension}")
        self.dimension = dimension

    @property
    def name(self) -> str:
        """With the dimension: vectors of another are not comparable."""
        return f"hash-{self.dimension}"

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text, in the same order."""
        return [self.vector(text) for text in texts]

    async def aclose(self) -> None:
        """Nothing is open."""

    def vector(self, text: str) -> list[float]:
        """The vector of a text."""
        counts = [0.0] * self.dimension
        for piece in _pieces(text):
            number = crc32(piece.encode("utf-8", "surrogatepass"))
            counts[number % self.dimension] += 1.0 if number & 0x80000000 else -1.0
        length = sqrt(sum(count * count for count in counts)) or 1.0
        return [count / length for count in counts]


def _pieces(text: str) -> Iterator[str]:
    """Every piece of every word, its beginning and end marked."""
    spaced = "".join(character if character.isalnum() else " " for character in text.casefold())
    for word in spaced.split():
        marked = f"<{word}>"
        for size in GRAM_CHARS:
            for at in range(len(marked) - size + 1):
                yield marked[at : at + size]
