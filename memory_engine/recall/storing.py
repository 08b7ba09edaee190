"""The seam to storage: where passages and their vectors are kept, and what is asked of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from memory_engine.recall.passages import PassageChange, PassageRow

INDEX_VERSION = 1
"""Of what is indexed and how it is analysed. An index of another version is made again from the log."""
POSTINGS_MAX = 5_000
"""What one look-up may visit of the lists of its terms, rarest first: some milliseconds, however long the thread."""
LEXICAL_MAX = 100
"""Passages that words alone bring into the choice."""


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of an index: passages that hold some of `terms`, and those at the places `near`.

    `upto` is the seq as of which they stand (0: now). `kinds`, if there are any, are the only ones wanted;
    `unwanted` ones are left out; `within`, if there is any, names what keys begin with and the seq from which on.
    `since_us` and `until_us` bound when they were said, ends included.
    """

    terms: tuple[str, ...] = ()
    near: tuple[int, ...] = ()
    upto: int = 0
    kinds: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    within: tuple[tuple[str, int], ...] = ()
    since_us: int | None = None
    until_us: int | None = None
    limit: int = LEXICAL_MAX
    postings_max: int = POSTINGS_MAX


class LookedUp(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, all of one moment.

    The index stands at `seq` (-1: there is none of this version) of a log that ends at `head`; the words of
    `unfolded` passages are not in its lists yet and were read one by one. `passages` and
    `terms` count what is in it, `holding` in how many passages each asked term stands. `chosen` are places:
    those with the greatest sum of idf, what was asked for as near, and the direct successors of both. `rows` has
    the chosen and, for each, the one before it in the thread, whose place is in `before`.
    """

    seq: int = -1
    head: int = 0
    unfolded: int = 0
    passages: int = 0
    terms: int = 0
    holding: Mapping[str, int] = {}
    chosen: Sequence[int] = ()
    rows: Mapping[int, PassageRow] = {}
    before: Mapping[int, int] = {}


class PassageIndex(Protocol):
    """Passages of a store's threads. All raise `ThreadNotFound`."""

    async def look_up(self, thread_id: str, wanted: LookUp) -> LookedUp:
        """What stands in the index of a thread."""
        ...

    async def begin(self, thread_id: str, *, afresh: bool = False) -> None:
        """Give the thread an empty index, unless it has one of this version (`afresh`: then too).

        From now on commits that bring passages keep it.
        """
        ...

    async def write(self, thread_id: str, change: PassageChange) -> bool:
        """Apply a change where the index stands at `change.after`; whether it did."""
        ...

    async def fold(self, thread_id: str) -> None:
        """Take the words of what waits into the lists: many passages at a time cost less, and are found faster."""
        ...

    async def threads(self) -> Sequence[str]:
        """The ids of the threads that have an index."""
        ...

    async def unembedded(self, thread_id: str, model: str, limit: int) -> tuple[Sequence[int], int]:
        """The places of the oldest passages that this model has not embedded yet, and how many there are in all."""
        ...

    async def put_vectors(
        self, thread_id: str, model: str, vectors: Mapping[int, bytes], upto: int, *, first: int = 0
    ) -> None:
        """Keep vectors (float32, little-endian) by place; all from `first` up to the place `upto` are then embedded.

        Those whose passage is gone meanwhile are left out. Where earlier ones wait (again, after the index was made
        again), or the index has not come so far, nothing is kept: vectors come in the order of places.
        """
        ...

    async def vectors(self, thread_id: str, model: str, after: int) -> Sequence[tuple[int, bytes]]:
        """The vectors of places above `after`, in order of places."""
        ...

    async def models(self, thread_id: str) -> Mapping[str, int]:
        """The models whose vectors are kept, with the place up to which each has embedded the thread."""
        ...

    async def drop_vectors(self, thread_id: str, models: Iterable[str]) -> None:
        """Destroy the vectors of models."""
        ...
