"""The steps from one state of a thread to another, as an event records them."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from memory_engine.compaction.undo import to_restore, versions
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.compaction import RestoredChunk
from memory_engine.core.state import Placed, State


class Transition:
    """The steps from one state to another: the chunks that go, and those that come, each with its place.

    `aliases` are the ids of copies in the first state, by the ids of the chunks in the other that they were made of.
    """

    def __init__(self, now: State, wanted: State, aliases: Mapping[str, str]) -> None:
        self._now = now
        self._wanted = wanted
        self._aliases = aliases
        self._kept: set[str] = set()

    def restored(self) -> Iterator[RestoredChunk]:
        """The chunks that come, each after the one before it."""
        yield from self._within("", "")

    def removed(self) -> Iterator[str]:
        """The chunks that go, without those inside them. Asked for after `restored`."""
        for placed in self._now.placed():
            gone = placed.chunk.id not in self._kept
            if gone and (not placed.container or placed.container in self._kept):
                yield placed.chunk.id

    def _within(self, wanted: str, now: str) -> Iterator[RestoredChunk]:
        chunks = list(self._wanted.children(wanted) if wanted else self._wanted.chunks())
        standing = {chunk.id: place for chunk in chunks if (place := self._standing(chunk, now)) is not None}
        kept = {chunks[n].id for n in rising([standing[c.id].key if c.id in standing else None for c in chunks])}
        after = ""
        for chunk in chunks:
            if chunk.id in kept:
                after = standing[chunk.id].chunk.id
                self._kept.add(after)
                if chunk.is_container:
                    yield from self._within(chunk.id, after)
                continue
            yield to_restore(chunk, now, after=after)
            after = chunk.id
            if chunk.is_container:
                yield from self._anew(chunk.id)

    def _anew(self, container: str) -> Iterator[RestoredChunk]:
        """The contents of a chunk that comes."""
        after = ""
        for chunk in self._wanted.children(container):
            yield to_restore(chunk, container, after=after)
            after = chunk.id
            if chunk.is_container:
                yield from self._anew(chunk.id)

    def _standing(self, chunk: Chunk, container: str) -> Placed | None:
        """The chunk in this container; `None` if it is not there, or says something else."""
        placed = self._now.placed_at(chunk.id)
        alias = self._now.placed_at(self._aliases.get(chunk.id, ""))
        if alias is not None:
            placed, chunk = alias, msgspec.structs.replace(chunk, id=alias.chunk.id, parent_ids=versions(chunk))
        if placed is None or placed.container != container or placed.chunk != chunk:
            return None
        return placed


def rising(keys: Sequence[bytes | None]) -> list[int]:
    """The positions of a longest strictly rising run of keys; those that are `None` are in none."""
    tails: list[bytes] = []
    ends: list[int] = []
    before: dict[int, int] = {}
    for n, key in enumerate(keys):
        if key is None:
            continue
        at = bisect_left(tails, key)
        before[n] = ends[at - 1] if at else -1
        tails[at:] = [key, *tails[at + 1 :]]
        ends[at:] = [n, *ends[at + 1 :]]
    found: list[int] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]
