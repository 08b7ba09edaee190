"""The index of passages of the in-memory store: the same SQL as in a file, on a database in memory."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.threads import ThreadRecord
from memory_engine.storage import passage_search, passage_vectors, passage_words, passages
from memory_engine.storage.passage_rows import INDEXED_MAX, words_prefix
from memory_engine.storage.passage_search import Lists, Members
from memory_engine.storage.passages import is_whole
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
    from collections.abc import Iterator


class MemoryPassages:
    """See `memory_engine.store.passages.PassageIndex`. The database is made by the first index.

    `record_of` gives a thread's record and the seq of its head. It raises `ThreadNotFound`. `matching` gives the
    records of all threads that a look-up is of, in the order of their making.
    """

    def __init__(
        self,
        record_of: Callable[[str], tuple[ThreadRecord, int]],
        matching: Callable[[Threads], Sequence[ThreadRecord]],
    ) -> None:
        self._record_of = record_of
        self._matching = matching
        self._database: sqlite3.Connection | None = None
        self._tids: dict[str, int] = {}
        self._indexed: set[str] = set()
        self._lists = Lists()

    def has(self, thread_id: str) -> bool:
        """Whether the thread has an index."""
        return thread_id in self._indexed

    def apply(self, thread_id: str, change: PassageChange) -> bool:
        """Apply a change if the index is at `change.after`. Returns whether it applied."""
        if thread_id not in self._indexed:
            return False
        tid = self._tid(thread_id)
        with self._transaction() as raw:
            if change.afresh:
                passages.begin(raw, tid, self._prefix(thread_id), afresh=True)
            return passages.write(raw, tid, change)

    def destroy(self, thread_id: str) -> None:
        """Drop the index of a deleted thread."""
        if thread_id in self._indexed:
            self._indexed.discard(thread_id)
            with self._transaction() as raw:
                passages.destroy(raw, self._tid(thread_id))

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    async def look_up(self, thread_id: str, wanted: LookUp) -> LookedUp:
        """Look up a thread's index."""
        head = self._head_of(thread_id)
        if thread_id not in self._indexed:
            return LookedUp(head=head, lacking=min(wanted.upto or head, head))
        with self._transaction() as raw:
            return passage_search.look_up(raw, self._tid(thread_id), head, wanted, self._lists)

    async def look_up_among(self, threads: Threads, wanted: LookUp) -> LookedUp:
        """Look up the indexes of several threads as if they were one."""
        ids = {self._tid(record.id): record.id for record in self._matching(threads)}
        with self._transaction() as raw:
            members = self._members(raw, ids, (wanted.since_us, wanted.until_us))
            looked = passage_search.look_up_among(
                raw, members, lambda tids: {tid: name for tid, name in ids.items() if tid in tids}, wanted, self._lists
            )
        return msgspec.structs.replace(looked, behind=tuple(ids[tid] for tid in members.behind))

    def _members(
        self, raw: sqlite3.Connection, ids: Mapping[int, str], times: tuple[int | None, int | None]
    ) -> Members:
        """Term statistics of the indexes of some threads."""
        rows = raw.execute(
            "SELECT tid, prefix, seq, passages, terms, folded, last, first_us, last_us FROM passage_indexes "
            "WHERE version = ? ORDER BY tid",
            (index_version(),),
        )
        since_us, until_us = times
        passages = terms = 0
        by_prefix: dict[str, list[int]] = {}
        waiting: dict[int, int] = {}
        behind = dict.fromkeys(ids)
        lacking = sum(self._head_of(thread_id) for thread_id in ids.values())
        for tid, prefix, seq, count, size, folded, last, first_us, last_us in rows:
            if tid not in ids:
                continue
            passages += count
            terms += size
            if (since_us is None or last_us >= since_us) and (until_us is None or first_us <= until_us):
                by_prefix.setdefault(prefix, []).append(tid)
            if last > folded:
                waiting[tid] = folded
            lacking -= min(seq, self._head_of(ids[tid]))
            if seq >= self._head_of(ids[tid]):
                del behind[tid]
        return Members(
            passages=passages,
            terms=terms,
            by_prefix=by_prefix,
            is_whole=is_whole(raw, by_prefix),
            waiting=waiting,
            behind=list(behind),
            lacking=lacking,
        )

    async def members(self, threads: Threads) -> Sequence[Member]:
        """The threads of a look-up over several."""
        records = self._matching(threads)
        numbers = (self._tid(record.id) for record in records)
        return [
            Member(record.id, tid, tid, record.tenant_id, self._head_of(record.id))
            for record, tid in zip(records, numbers, strict=True)
        ]

    async def index_words_of(self, threads: Threads) -> None:
        """Index the words of all waiting passages of several threads."""
        tids = [self._tid(record.id) for record in self._matching(threads) if record.id in self._indexed]
        await self._in_parts(lambda raw: passage_words.index_words_of(raw, tids))

    async def fitting(self, thread_id: str, wanted: LookUp) -> Sequence[int]:
        """The places of all passages that fit what narrows a look-up."""
        self._head_of(thread_id)
        if thread_id not in self._indexed:
            return []
        with self._transaction() as raw:
            return passage_search.fitting(raw, self._tid(thread_id), wanted)

    async def begin(self, thread_id: str, *, afresh: bool = False) -> None:
        """Give the thread an empty index, unless it has one of this version (`afresh`: then too)."""
        self._head_of(thread_id)
        with self._transaction() as raw:
            passages.begin(raw, self._tid(thread_id), self._prefix(thread_id), afresh=afresh)
        self._indexed.add(thread_id)

    async def write(self, thread_id: str, change: PassageChange) -> bool:
        """Apply a change if the index is at `change.after`. Returns whether it applied."""
        self._head_of(thread_id)
        return self.apply(thread_id, change)

    async def index_words(self, thread_id: str) -> None:
        """Index the words of the waiting passages."""
        self._head_of(thread_id)
        tid = self._tid(thread_id)
        await self._in_parts(lambda raw: passage_words.index_words(raw, tid, INDEXED_MAX))

    async def _in_parts(self, work: Callable[[sqlite3.Connection], bool]) -> None:
        """Run parts of work, each in a transaction, until it says that there are no more; others have turns between."""
        is_more = True
        while is_more:
            with self._transaction() as raw:
                is_more = work(raw)
            await asyncio.sleep(0)

    async def threads(self) -> Sequence[str]:
        """The ids of the threads that have an index."""
        return sorted(self._indexed)

    async def unembedded(self, thread_id: str, model: str, limit: int) -> tuple[Sequence[int], int]:
        """The places of the oldest passages without a vector of this model, and how many there are in all."""
        self._head_of(thread_id)
        with self._transaction() as raw:
            return passage_vectors.unembedded(raw, self._tid(thread_id), model, limit)

    async def put_vectors(
        self, thread_id: str, model: str, vectors: Mapping[int, bytes], upto: int, *, first: int = 0
    ) -> None:
        """Keep vectors by place; all from `first` up to the place `upto` are then embedded."""
        self._head_of(thread_id)
        with self._transaction() as raw:
            passage_vectors.put_vectors(raw, self._tid(thread_id), model, vectors, (first, upto))

    async def vectors(self, thread_id: str, model: str, after: int) -> Sequence[VectorRows]:
        """The vectors of places above `after`, in order of places."""
        self._head_of(thread_id)
        with self._transaction() as raw:
            return passage_vectors.vectors(raw, self._tid(thread_id), model, after)

    async def vectors_among(self, threads: Threads, model: str, known: Mapping[int, int]) -> VectorsAmong:
        """The vectors of several threads beyond the places that are known."""
        ids = {self._tid(record.id): record.id for record in self._matching(threads)}
        with self._transaction() as raw:
            came = passage_vectors.came(raw, ids, model)
            found = passage_vectors.vectors_beyond(raw, came.upto, model, known)
        return VectorsAmong(found, came.upto, {ids[tid]: count for tid, count in came.waiting.items()})

    async def models(self, thread_id: str) -> Mapping[str, int]:
        """The models whose vectors are kept, with the place up to which each has embedded the thread."""
        self._head_of(thread_id)
        with self._transaction() as raw:
            return passage_vectors.models(raw, self._tid(thread_id))

    async def drop_vectors(self, thread_id: str, models: Iterable[str]) -> None:
        """Destroy the vectors of models."""
        self._head_of(thread_id)
        with self._transaction() as raw:
            passage_vectors.drop_vectors(raw, self._tid(thread_id), models)

    def _head_of(self, thread_id: str) -> int:
        return self._record_of(thread_id)[1]

    def _prefix(self, thread_id: str) -> str:
        return words_prefix(self._record_of(thread_id)[0].tenant_id)

    def _tid(self, thread_id: str) -> int:
        return self._tids.setdefault(thread_id, len(self._tids) + 1)

    @contextmanager
    def _transaction(self) -> "Iterator[sqlite3.Connection]":
        if self._database is None:
            # one thread at a time uses it: the one that runs the event loop
            self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._database.executescript(passages.SCHEMA + passages.SCOPES)
        raw = self._database
        raw.execute("BEGIN")
        try:
            yield raw
        except BaseException:  # after any error nothing may stay open; it goes on to the caller
            raw.execute("ROLLBACK")
            raise
        raw.execute("COMMIT")
