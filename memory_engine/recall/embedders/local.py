"""What embedders that compute in this process have in common."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from memory_engine.errors import ModelError
from memory_engine.recall.base import Vector, checked_vector
from memory_engine.recall.worker import LocalModel

BATCH = 32
"""Texts that are computed together: so long nobody else gets a turn, and a cancelled call still computes."""


class Row(Protocol):
    """A vector as numeric libraries give it."""

    def tolist(self) -> list[float]:
        """Its numbers."""
        ...


Encode = Callable[[list[str]], Iterable[Row]]
"""One row a text, in the same order."""


class LocalEmbedder:
    """An `Embedder` over a function that is loaded late, and computes in a worker thread."""

    def __init__(self, name: str, load: Callable[[], Encode], *, dimension: int | None = None) -> None:
        self._model = LocalModel(name, load)
        self._dimension = dimension or 0

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def dimension(self) -> int:
        """How many numbers a vector has; 0 before the first answer, if it was not given."""
        return self._dimension

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text, in the same order. The first call loads the model, which may take seconds.

        Raises `ModelError` where it cannot be loaded, or fails.
        """
        whole = [text.encode(errors="replace").decode() for text in texts]  # tokenizers take no lone surrogates
        vectors: list[Vector] = []
        for at in range(0, len(whole), BATCH):
            some = whole[at : at + BATCH]
            rows = await self._model.run(partial(_rows, some))
            if len(rows) != len(some):
                raise ModelError(self.name, "invalid_response", f"it gave {len(rows)} vectors for {len(some)} texts")
            self._dimension = self._dimension or len(rows[0])
            vectors += [checked_vector(row, self._dimension, self.name) for row in rows]
        return vectors

    async def aclose(self) -> None:
        """Let go of the model. A later call loads it again."""
        await self._model.aclose()


def _rows(texts: list[str], encode: Encode) -> list[list[float]]:
    return [row.tolist() for row in encode(texts)]
