"""`CachedEmbedder`: what was embedded once is not embedded again."""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from attrs import define

from memory_engine.errors import InvalidVector
from memory_engine.recall.base import Embedder, Vector, checked_embedder

CAPACITY = 4_096
"""Vectors that are kept: 12 MB of 384 numbers, 50 MB of 1,536."""

_Digest = bytes


@define(eq=False)
class _Call:
    """One call of the inner embedder, and how many wait for it."""

    task: asyncio.Task[dict[_Digest, Vector]]
    digests: tuple[_Digest, ...]
    waiting: int = 0


class CachedEmbedder:
    """An `Embedder` that keeps the last `capacity` vectors of another, by the model's name and the text.

    The same text is embedded once, also when several ask for it at the same time: they wait
    for one call, which ends when the last of them is cancelled. Failures are not kept. For one
    event loop at a time. Closing it closes the other. Raises `ValueError` for a `capacity` below 1.
    """

    def __init__(self, inner: Embedder, *, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is how many vectors are kept, 1 or more, not {capacity}")
        self._inner = checked_embedder(inner)
        self._capacity = capacity
        self._kept: OrderedDict[_Digest, array[float]] = OrderedDict()
        self._under_way: dict[_Digest, _Call] = {}

    @property
    def name(self) -> str:
        """The other's name."""
        return self._inner.name

    @property
    def dimension(self) -> int:
        """The other's dimension."""
        return self._inner.dimension

    def __repr__(self) -> str:
        return f"CachedEmbedder({self._inner!r})"

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text, in the same order; those of unknown texts in one call of the other.

        Raises what the other raises, and `InvalidVector` where it gives too few or too many.
        """
        digests = [_digest(self.name, text) for text in texts]
        found: dict[_Digest, Vector] = {}
        calls: set[_Call] = set()
        missing: dict[_Digest, str] = {}
        for digest, text in zip(digests, texts, strict=True):
            if digest in self._kept:
                self._kept.move_to_end(digest)
                found[digest] = self._kept[digest].tolist()
            elif (call := self._under_way.get(digest)) is not None and not call.task.done():
                calls.add(call)
            else:
                missing[digest] = text
        if missing:
            calls.add(self._begin(missing))
        for vectors in await self._wait(calls):
            found.update(vectors)
        return [found[digest] for digest in digests]

    async def aclose(self) -> None:
        """Close the other. What was kept stays."""
        await self._inner.aclose()

    def _begin(self, missing: dict[_Digest, str]) -> _Call:
        call = _Call(asyncio.create_task(self._fetch(missing)), tuple(missing))
        self._under_way.update(dict.fromkeys(missing, call))
        call.task.add_done_callback(lambda _: self._end(call))
        return call

    async def _wait(self, calls: set[_Call]) -> list[dict[_Digest, Vector]]:
        for call in calls:
            call.waiting += 1
        try:
            return [await asyncio.shield(call.task) for call in calls]
        finally:
            for call in calls:
                call.waiting -= 1
                if not call.waiting and not call.task.done():
                    self._end(call)  # nobody may join a call that is being cancelled
                    call.task.cancel()

    async def _fetch(self, missing: dict[_Digest, str]) -> dict[_Digest, Vector]:
        vectors = await self._inner.embed(list(missing.values()))
        if len(vectors) != len(missing):
            raise InvalidVector(self.name, f"there are {len(vectors)} for {len(missing)} texts")
        fetched = dict(zip(missing, vectors, strict=True))
        for digest, vector in fetched.items():
            self._kept[digest] = array("d", vector)
            self._kept.move_to_end(digest)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        return fetched

    def _end(self, call: _Call) -> None:
        for digest in call.digests:
            if self._under_way.get(digest) is call:
                del self._under_way[digest]
        if call.task.done() and not call.task.cancelled():
            call.task.exception()  # looked at: who waits for several raises the first failure alone


def _digest(name: str, text: str) -> _Digest:
    named = f"{len(name)} {name} {text}"
    return blake2b(named.encode("utf-8", "surrogatepass"), digest_size=16).digest()
