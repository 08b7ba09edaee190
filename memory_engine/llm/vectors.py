"""The interfaces for similarity: embedders of texts, and indexes of vectors."""

import logging
import math
import sys
from array import array
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol

import msgspec

from memory_engine.core.aside import aside
from memory_engine.core.cancellation import TookTooLong, in_time
from memory_engine.errors import InvalidVector, ModelError
from memory_engine.language.masking import CHARS_AN_ITEM, Mask, mask_name
from memory_engine.llm.failures import safe_to_record, unforeseen

_log = logging.getLogger("memory_engine.recall")

Vector = Sequence[float]
"""Finite numbers, as many as the embedder's dimension. Only its direction counts, not its length."""
Packed = bytes
"""A vector as stored (see `packed`): its numbers in single precision, four bytes each, little-endian."""

Quantized = bytes
"""A vector as stored for search (see `quantized`): of unit length, two bytes a number, little-endian."""
QUANTIZED_ONE = 32_767
"""The integer for 1 in a quantized vector."""


INVALID = "invalid_response"
"""The reason of a `ModelError` for an unusable answer: a retry would bring the same."""
GREATEST = (2 - 2**-23) * 2.0**127
"""The greatest number of single precision: beyond it a stored vector would hold an infinity."""


class Embedder(Protocol):
    """Turns texts into vectors that are close together if the texts mean the same.

    A model that treats queries differently from the texts to find (E5, BGE, Nomic, GTE) has a method `embed_query` too:
    like `embed`, for queries. See `QueryEmbedder`.
    """

    @property
    def name(self) -> str:
        """The model's name. If it changes, all texts are embedded again."""
        ...

    @property
    def dimension(self) -> int:
        """The length of a vector; 0 if unknown before the first answer (see `dimension_of`)."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector per text, in the same order. An empty text is allowed.

        Raises `ModelError` if the model could not be reached, or refused. Ends promptly when cancelled.
        """
        ...

    async def aclose(self) -> None:
        """Close connections. Running calls may fail."""
        ...


class QueryEmbedder(Embedder, Protocol):
    """An embedder that embeds queries differently from the texts to find."""

    async def embed_query(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector per query, as `embed` does, with the same dimension."""
        ...


Embed = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]


def query_method(embedder: Embedder) -> Embed | None:
    """The embedder's own way to embed queries, if it has one."""
    found: Embed | None = getattr(embedder, "embed_query", None)
    return found


class MaskedEmbedder:
    """An embedder whose texts have each secret replaced by its kind: no vector depends on a secret."""

    def __init__(self, inner: Embedder, mask: Mask | None) -> None:
        """Raises `InvalidArgument` for a mask without a name of its own."""
        self.inner = inner
        self._mask = mask
        self._mask_name = mask_name(mask)

    @property
    def name(self) -> str:
        """The other's name, with that of the mask, unless it is the default: the vectors of two masks never mix."""
        return f"{self.inner.name}+{self._mask_name}" if self._mask_name else self.inner.name

    @property
    def dimension(self) -> int:
        """The other's dimension."""
        return self.inner.dimension

    def __repr__(self) -> str:
        return f"MaskedEmbedder({self.inner!r})"

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector a text, in the same order."""
        return await self.inner.embed(await self._masked(texts))

    async def aclose(self) -> None:
        """Close the other."""
        await self.inner.aclose()

    async def _masked(self, texts: Sequence[str]) -> list[str]:
        mask = self._mask
        if mask is None:
            return list(texts)
        work = lambda: [mask(text, "embedder") for text in texts]  # noqa: E731
        return await aside(work, items=sum(map(len, texts)) // CHARS_AN_ITEM)


class MaskedQueryEmbedder(MaskedEmbedder):
    """The same of an embedder that embeds queries differently."""

    async def embed_query(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector a query, in the same order."""
        embed = query_method(self.inner) or self.inner.embed
        return await embed(await self._masked(texts))


def masked_embedder(embedder: Embedder, mask: Mask | None) -> Embedder:
    """Return the embedder behind the mask. Raises `InvalidArgument` for a mask without a name of its own."""
    if isinstance(embedder, MaskedEmbedder):
        return embedder
    kind = MaskedQueryEmbedder if query_method(embedder) is not None else MaskedEmbedder
    return kind(embedder, mask)


class VectorIndex(Protocol):
    """Vectors by key, and which are nearest to another. Wherever one is taken, `bytes` mean a packed vector."""

    def put(self, key: str, vector: Vector | Packed) -> None:
        """Add a vector, or replace the one under this key. Raises `InvalidVector`."""
        ...

    def put_many(self, items: Iterable[tuple[str, Vector | Packed]]) -> None:
        """The same for many, as if put one by one, but faster. Raises `InvalidVector`; those before it are put."""
        ...

    def remove(self, key: str) -> None:
        """Remove the vector under a key, if there is one."""
        ...

    def search(
        self, vector: Vector | Packed, limit: int, keys: Collection[str] | None = None
    ) -> list[tuple[str, float]]:
        """The nearest `limit` (of `keys`, if given) with their cosine, best first, equal ones by key.

        A vector of length zero has the cosine 0 to all. Raises `InvalidVector`.
        """
        ...

    def build(self, at_most: int | None = None) -> int:
        """Prepare up to this many added vectors for faster searches; return how many still wait. It may take long.

        Called from a worker thread while others search. Searches find waiting vectors all the same.
        """
        ...

    def __len__(self) -> int: ...


VectorIndexFactory = Callable[[int], VectorIndex]
"""Makes an empty index for vectors of a dimension."""


class Match(msgspec.Struct, frozen=True):
    """An entry similar to a query: `score` from 0 to 1, and the words they share (in the entry's order).

    `how` is `"lexical"` for similar words, `"embedding"` for a model's similarity. `failure` says why only words were
    compared although there is a model.
    """

    key: str
    score: float
    shared: tuple[str, ...] = ()
    how: str = "lexical"
    failure: str = ""


def checked_vector(vector: Vector, dimension: int, source: str) -> Vector:
    """The vector, if it has `dimension` numbers finite in single precision; else raises `InvalidVector`."""
    if len(vector) != dimension:
        raise InvalidVector(source, f"it has {len(vector)} numbers instead of {dimension}")
    for place, number in enumerate(vector):
        if not -GREATEST <= number <= GREATEST:
            raise InvalidVector(source, f"number {place} is {number}")
    return vector


def packed(vector: Vector) -> Packed:
    """The vector in four bytes a number. Numbers beyond single precision become infinite, which no index takes."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def quantized(vector: Vector) -> Quantized:
    """The vector at unit length, each number as an integer of 16 bits: off by 1.5e-5 at most.

    One of length zero stays so. The numbers must be finite.
    """
    length = math.hypot(*vector) or 1.0
    numbers = array("h", [round(number / length * QUANTIZED_ONE) for number in vector])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


async def embedded(
    embedder: Embedder, texts: Sequence[str], *, is_query: bool = False, timeout_s: float = math.inf
) -> list[Vector]:
    """A vector for each text (or query). Raises `ModelError` for everything else, whatever the embedder does."""
    try:
        embed = (query_method(embedder) if is_query else None) or embedder.embed
        vectors = [list(vector) for vector in await in_time(embed(texts), timeout_s)]
        if len(vectors) != len(texts):
            raise InvalidVector(embedder.name, f"there are {len(vectors)} for {len(texts)} texts")
        dimension = embedder.dimension or (len(vectors[0]) if vectors else 0)
        return [checked_vector(vector, dimension, embedder.name) for vector in vectors]
    except ModelError as error:
        raise safe_to_record(error) from error.__cause__
    except TookTooLong as error:
        raise ModelError(embedder.name, "timeout", f"no answer within {timeout_s:g} s", retryable=True) from error
    except (InvalidVector, TypeError) as error:
        raise ModelError(embedder.name, INVALID, str(error)) from error
    except Exception as error:  # the boundary to the user's model: callers go on without it, whatever it raises
        _log.warning("embedder %r raised what it may not raise", embedder.name, exc_info=True)
        raise unforeseen(embedder.name, error) from error


def checked_embedder(embedder: Embedder) -> Embedder:
    """The embedder, if it is one. Raises `TypeError`, before a search fails on it."""
    missing = [name for name in ("name", "dimension", "embed", "aclose") if not hasattr(embedder, name)]
    if missing:
        raise TypeError(
            f"{embedder!r} is not an embedder: it has no {' and no '.join(missing)} (see docs/how-to/embeddings.md)"
        )
    return embedder


async def dimension_of(embedder: Embedder) -> int:
    """The embedder's dimension; if unknown, it embeds a word to find out. Raises `ModelError`."""
    if embedder.dimension:
        return embedder.dimension
    (vector,) = await embedded(embedder, ["dimension"])
    return len(vector)
