"""The vectors of passages, of a thread or of several, in memory for searching."""

import asyncio
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from memory_engine.core.aside import on_thread
from memory_engine.core.loops import OfLoop
from memory_engine.llm.vectors import Vector
from memory_engine.store.passages import PLACES_BITS, THREAD_BITS, PassageIndex, Threads, VectorRows

SPACES_MAX = 64
"""Threads whose vectors are held in memory; the least recently searched ones are dropped."""
_PLACE = (1 << THREAD_BITS) - 1


class PassageVectors(Protocol):
    """Vectors by place, and which are nearest to another. They may be searched while some are added."""

    def add(self, pieces: Sequence[VectorRows]) -> None:
        """Add vectors of places that are not there yet. Raises `InvalidVector`; then none is added."""
        ...

    def nearest(self, vector: Vector, limit: int, among: Collection[int] | None = None) -> list[int]:
        """The places of the nearest `limit` (of these, if given), best first, equal ones in order.

        Raises `InvalidVector`.
        """
        ...

    def cosines(self, vector: Vector, places: Collection[int]) -> dict[int, float]:
        """The cosines to places, as far as they have vectors. Raises `InvalidVector`."""
        ...


PassageVectorsFactory = Callable[[int], PassageVectors]
"""Makes an empty one for vectors of a dimension."""


class VectorSpace:
    """One model's vectors of one thread, or of several. They are read from the index, and later ones as they come."""

    def __init__(self, factory: PassageVectorsFactory, dimension: int) -> None:
        self._vectors = factory(dimension)
        self._upto = 0
        self._known: Mapping[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._of_numbers: list[int] = []
        self._lock = OfLoop(asyncio.Lock)

    @property
    def last_seq(self) -> int:
        """The seq of the last event with a vector."""
        return self._upto >> PLACES_BITS

    async def follow(self, passages: PassageIndex, thread_id: str, model: str) -> None:
        """Read the vectors that came since."""
        async with self._lock.here:
            found = await passages.vectors(thread_id, model, self._upto)
            if found:
                await on_thread(lambda: self._vectors.add(found))
                self._upto = found[-1].places[-1]

    async def follow_among(self, passages: PassageIndex, threads: Threads, model: str) -> Mapping[str, int]:
        """The same of several threads; how many passages wait for a vector, by thread."""
        async with self._lock.here:
            found = await passages.vectors_among(threads, model, self._known)
            if found.vectors:
                await on_thread(lambda: self._add_among(found.vectors))
            self._known = found.upto
        return found.waiting

    def _add_among(self, vectors: Sequence[tuple[int, VectorRows]]) -> None:
        """Add vectors under places that begin with numbers of our own: those of a store may be of 128 bits."""
        pieces = []
        for number, rows in vectors:
            if number not in self._numbers:
                self._numbers[number] = len(self._of_numbers)
                self._of_numbers.append(number)
            base = self._numbers[number] << THREAD_BITS
            pieces.append(VectorRows(array("q", (base | place for place in rows.places)), rows.numbers))
        self._vectors.add(pieces)

    def nearest(self, vector: Vector, limit: int, among: Collection[int] | None = None) -> list[int]:
        """The places of the nearest passages, of these if any are given (not of several threads)."""
        found = self._vectors.nearest(vector, limit, among)
        if not self._of_numbers:
            return found
        return [self._of_numbers[place >> THREAD_BITS] << THREAD_BITS | place & _PLACE for place in found]

    def cosines(self, vector: Vector, places: Collection[int]) -> dict[int, float]:
        """The likeness of these passages, as far as they have vectors."""
        if not self._of_numbers:
            return self._vectors.cosines(vector, places)
        own = {
            self._numbers[place >> THREAD_BITS] << THREAD_BITS | place & _PLACE: place
            for place in places
            if place >> THREAD_BITS in self._numbers
        }
        return {own[place]: cosine for place, cosine in self._vectors.cosines(vector, own).items()}
