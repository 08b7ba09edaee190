"""Passages of a file: every change whole on the writer's thread, every look-up whole on a reader's."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.errors import IntegrityError, StorageRefused
from memory_engine.storage import passages
from memory_engine.storage.passage_rows import INDEXED_BULK, StoredWords, Waiting
from memory_engine.storage.sqlite import reads
from memory_engine.storage.sqlite.transactions import begin_passages, find_tid
from memory_engine.store.passages import (
    LookedUp,
    LookUp,
    Member,
    PassageChange,
    Threads,
    VectorRows,
    VectorsAmong,
    index_version,
)

if TYPE_CHECKING:
    from memory_engine.storage import passage_search, passage_vectors, passage_words
    from memory_engine.storage.sqlite import among
else:
    among = lazy_module("memory_engine.storage.sqlite.among")
    passage_search, passage_vectors, passage_words = lazy_modules(
        "memory_engine.storage", "passage_search passage_vectors passage_words"
    )

_log = logging.getLogger("memory_engine.storage")

T = TypeVar("T")


class RunOnConnection(Protocol):
    """Runs a query, or a transaction that is rolled back if the work raises, one at a time."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Return the result of the work."""
        ...


SHRUNK = 512
"""Passages of an index that goes that are destroyed in one transaction: some tens of milliseconds."""
MERGED_PAGES = 64
"""Pages of the full-text index that are written in one transaction where it is merged: some milliseconds."""


def stands(raw: sqlite3.Connection, tid: int) -> bool:
    """Whether a thread has an index of this version: other versions are ignored."""
    row = raw.execute("SELECT version FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    return row is not None and bool(row[0] == index_version())


def _shrink(thread_id: str, raw: sqlite3.Connection) -> bool:
    """Destroy some passages of an index that is to go. Returns whether there were any.

    From then on it has no version: no search reads it, and no commit writes to it.
    """
    tid = find_tid(raw, thread_id)
    raw.execute("UPDATE passage_indexes SET version = 0 WHERE tid = ?", (tid,))
    return passages.has_index(raw, tid) and passages.destroy_last(raw, tid, SHRUNK)


def _merge(pages: int, raw: sqlite3.Connection) -> bool:
    """Merge some pages of the full-text index; fewer than none: begin with that. Returns whether there may be more."""
    before = raw.total_changes
    raw.execute("INSERT INTO passage_terms (passage_terms, rank) VALUES ('merge', ?)", (pages,))
    return raw.total_changes - before > 1  # its own row is one change


def _index_words(thread_id: str, known: Mapping[StoredWords, Waiting], raw: sqlite3.Connection) -> bool:
    return passage_words.index_words(raw, find_tid(raw, thread_id), INDEXED_BULK, known)


class SQLitePassages:
    """See `memory_engine.store.passages.PassageIndex`."""

    def __init__(self, read: RunOnConnection, write: RunOnConnection) -> None:
        self._read = read
        self._write = write

    @cached_property
    def _lists(self) -> "passage_search.Lists":
        return passage_search.Lists()

    @cached_property
    def _among(self) -> "among.Among":
        return among.Among(self._lists)

    async def look_up(self, thread_id: str, wanted: LookUp) -> LookedUp:
        """Look up a thread's index."""
        return await self._read(lambda raw: reads.look_up(raw, thread_id, wanted, self._lists))

    async def look_up_among(self, threads: Threads, wanted: LookUp) -> LookedUp:
        """Look up the indexes of several threads as if they were one."""
        return await self._read(lambda raw: self._among.look_up(raw, threads, wanted))

    async def fitting(self, thread_id: str, wanted: LookUp) -> Sequence[int]:
        """The places of all passages that fit what narrows a look-up."""
        return await self._read(lambda raw: reads.fitting(raw, thread_id, wanted))

    async def begin(self, thread_id: str, *, afresh: bool = False) -> None:
        """Give the thread an empty index, unless it has one of this version (`afresh`: then too)."""
        if await self._read(lambda raw: stands(raw, find_tid(raw, thread_id))) and not afresh:
            return
        await self._shrunk(thread_id)
        await self._write(lambda raw: begin_passages(raw, find_tid(raw, thread_id), afresh=afresh))

    async def drop(self, thread_id: str) -> None:
        """Destroy what a thread's index holds, and its words wherever the full-text index has them.

        In steps, between which others are committed. Where damaged rows are in the way, what is left of it stays.
        """
        is_more = False
        with suppress(StorageRefused, IntegrityError):
            is_more = await self._shrunk(thread_id)
        pages = -MERGED_PAGES  # words that cannot be merged away would stay in the file, which is reported
        while is_more:
            is_more = await self._write(partial(_merge, pages))
            pages = MERGED_PAGES

    async def _shrunk(self, thread_id: str) -> bool:
        """Destroy the passages of an index step by step. Returns whether there was one."""
        if not await self._read(lambda raw: passages.has_index(raw, find_tid(raw, thread_id))):
            return False
        while await self._write(lambda raw: _shrink(thread_id, raw)):
            pass
        return True

    async def write(self, thread_id: str, change: PassageChange) -> bool:
        """Apply a change if the index is at `change.after`.

        Where damaged rows refuse it the index is dropped, to be made again, and this returns `False`. Raises
        `StorageRefused` where they refuse the beginning of a new index too.
        """

        def write(raw: sqlite3.Connection) -> bool:
            tid = find_tid(raw, thread_id)
            if change.afresh:
                begin_passages(raw, tid, afresh=True)
            return passages.write(raw, tid, change)

        try:
            return await self._write(write)
        except StorageRefused as error:
            if change.after <= 0:
                raise
            _log.warning("the search index of thread %r is dropped, to be made again: %s", thread_id, error.why)
            await self._write(lambda raw: passages.clear(raw, find_tid(raw, thread_id)))
            return False

    async def index_words(self, thread_id: str) -> None:
        """Index the words of the waiting passages, some milliseconds at a time."""
        is_more = True
        while is_more:
            known = await self._read(
                lambda raw: passage_words.words_to_index(raw, find_tid(raw, thread_id), INDEXED_BULK)
            )
            is_more = await self._write(partial(_index_words, thread_id, known))

    async def members(self, threads: Threads) -> Sequence[Member]:
        """The threads of a look-up over several."""
        return await self._read(lambda raw: among.list_members(raw, threads))

    async def index_words_of(self, threads: Threads) -> None:
        """Index the words of all waiting passages of several threads, some milliseconds at a time."""
        tids = await self._read(lambda raw: list(among.members_of(raw, threads).waiting))
        while await self._write(lambda raw: passage_words.index_words_of(raw, tids)):
            pass

    async def threads(self) -> Sequence[str]:
        """The ids of the threads that have an index."""
        return await self._read(reads.indexed)

    async def unembedded(self, thread_id: str, model: str, limit: int) -> tuple[Sequence[int], int]:
        """The places of the oldest passages without a vector of this model, and how many there are in all."""
        return await self._read(lambda raw: passage_vectors.unembedded(raw, find_tid(raw, thread_id), model, limit))

    async def put_vectors(
        self, thread_id: str, model: str, vectors: Mapping[int, bytes], upto: int, *, first: int = 0
    ) -> None:
        """Keep vectors by place; all from `first` up to the place `upto` are then embedded."""
        await self._write(
            lambda raw: passage_vectors.put_vectors(raw, find_tid(raw, thread_id), model, vectors, (first, upto))
        )

    async def vectors(self, thread_id: str, model: str, after: int) -> Sequence[VectorRows]:
        """The vectors of places above `after`, in order of places."""
        return await self._read(lambda raw: passage_vectors.vectors(raw, find_tid(raw, thread_id), model, after))

    async def vectors_among(self, threads: Threads, model: str, known: Mapping[int, int]) -> VectorsAmong:
        """The vectors of several threads beyond the places that are known."""
        return await self._read(lambda raw: self._among.vectors(raw, threads, model, known))

    async def models(self, thread_id: str) -> Mapping[str, int]:
        """The models whose vectors are kept, with the place up to which each has embedded the thread."""
        return await self._read(lambda raw: passage_vectors.models(raw, find_tid(raw, thread_id)))

    async def drop_vectors(self, thread_id: str, models: Iterable[str]) -> None:
        """Destroy the vectors of models."""
        await self._write(lambda raw: passage_vectors.drop_vectors(raw, find_tid(raw, thread_id), models))
