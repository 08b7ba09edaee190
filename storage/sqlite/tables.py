"""What a store of SQLite does by its tables alone, whether they are in a file or in memory."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from memory_engine.core.lazy import lazy_modules
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import Head, LiveChunk, LoadedThread, ThreadRecord
from memory_engine.storage.passage_rows import forget_texts
from memory_engine.storage.sqlite import reads
from memory_engine.storage.sqlite.transactions import (
    Transactions,
    create,
    find_tid,
    put_record,
    write_projection,
)
from memory_engine.store.protocol import CommitUnit, ProjectionChange, RowSpan, StoredText, ThreadFilter

if TYPE_CHECKING:
    from memory_engine.storage.sqlite import checks, erasing, passages, texts
    from memory_engine.storage.sqlite.passages import SQLitePassages
    from memory_engine.store.acts import Act
else:
    checks, erasing, passages, texts = lazy_modules("memory_engine.storage.sqlite", "checks erasing passages texts")

T = TypeVar("T")


class TableStore(ABC):
    """The part of `memory_engine.store.protocol.Store` that is statements."""

    _transactions: Transactions
    _is_settled = False
    """Whether no act was pending when it was opened, and none was looked for since."""

    @property
    def passages(self) -> "SQLitePassages":
        """The index for search."""
        return self._passages

    @cached_property
    def _passages(self) -> "SQLitePassages":
        return passages.SQLitePassages(self._read, self._write)

    @abstractmethod
    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query."""

    @abstractmethod
    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a transaction; it is rolled back if the work raises."""

    @abstractmethod
    async def _administer(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Run a transaction that deletes or erases, and raise the `generation`."""

    async def create(
        self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk], *, origin: ThreadRecord | None = None
    ) -> None:
        """Make a thread. Raises `ThreadExists`, `ThreadNotFound`."""
        await self._write(lambda raw: create(raw, record, head, live, origin))
        self._transactions.forget(record.id)

    async def put_record(self, record: ThreadRecord) -> None:
        """Replace a thread's record. Raises `ThreadNotFound`."""
        await self._write(lambda raw: put_record(raw, record))

    async def load(self, thread_id: str, *, sources: bool = True) -> LoadedThread:
        """A thread's live state, in order of keys, with the events behind it. Raises `ThreadNotFound`."""
        return await self._read(lambda raw: reads.load(raw, thread_id, sources=sources))

    async def head(self, thread_id: str) -> Head:
        """A thread's head. Raises `ThreadNotFound`."""
        return await self._read(lambda raw: reads.head(raw, thread_id))

    async def find(self, thread_id: str, event_ids: Sequence[str]) -> Sequence[StoredEvent]:
        """Those of the events that the thread's log (shared past included) holds."""
        return await self._read(lambda raw: reads.find(raw, thread_id, event_ids)) if event_ids else ()

    async def read(
        self, thread_id: str, *, after: int, upto: int, limit: int, types: Collection[str] | None = None
    ) -> Sequence[StoredEvent]:
        """At most `limit` events with `after` < seq <= `upto`, in order, through shared pasts."""
        if types is not None:
            return await self._read(lambda raw: reads.read_types(raw, thread_id, (after, upto), limit, types))
        return await self._read(lambda raw: reads.read(raw, thread_id, after, upto, limit))

    async def seq_at(self, thread_id: str, recorded_at_us: int) -> int:
        """The seq of the last event that was recorded at this time or before it."""
        return await self._read(lambda raw: reads.seq_at(raw, thread_id, recorded_at_us))

    async def correlated(
        self, correlation_id: str, *, limit: int | None = None, tenant_id: str | None = None
    ) -> Sequence[tuple[str, StoredEvent]]:
        """The events that bear a correlation id, each with its thread's id."""
        return await self._read(lambda raw: reads.correlated(raw, correlation_id, limit, tenant_id))

    async def read_at(self, thread_id: str, seqs: Sequence[int]) -> Sequence[StoredEvent]:
        """The events at these seqs that there are, in order, through shared pasts."""
        return await self._read(lambda raw: reads.read_at(raw, thread_id, seqs)) if seqs else ()

    async def threads(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head]]:
        """The threads that match, in the order of `ThreadFilter`."""
        return [(record, head) for record, head, _ in await self.listed(where)]

    async def listed(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head, int]]:
        """The same, with the time of each one's last event."""
        return await self._read(lambda raw: reads.listed(raw, where))

    async def taken(self) -> Sequence[str]:
        """The ids of deleted threads that no live thread uses now."""
        return await self._read(reads.taken)

    async def forks(self, thread_id: str) -> Sequence[str]:
        """The ids of the threads that share this thread's past."""
        return await self._read(lambda raw: reads.forks(raw, thread_id))

    async def delete(self, thread_id: str) -> None:
        """Delete a thread's log and state; another can be made of its id."""
        await self.passages.drop(thread_id)
        await self._administer(lambda raw: erasing.delete(raw, thread_id))
        forget_texts()

    async def erase(self, unit: CommitUnit, rows: Sequence[StoredEvent]) -> None:
        """Commit a unit, with these rows in the place of the thread's own of the same seqs and hashes."""
        await self.passages.drop(unit.thread_id)
        await self._administer(lambda raw: erasing.erase(raw, self._transactions, unit, rows))
        forget_texts()

    def texts(self) -> AsyncIterator[Sequence[StoredText]]:
        """The values of events, views, the index for search and threads."""
        return texts.stored_texts(self._read)

    async def mentions(self, words: Sequence[str]) -> Sequence[str]:
        """The entries of the full-text index with all these words in a row."""
        return await self._read(lambda raw: erasing.mentions(raw, words))

    async def put_act(self, act: "Act") -> None:
        """Keep an administrative act."""
        self._is_settled = False
        await self._write(lambda raw: erasing.put_act(raw, act))

    async def acts(self, *, pending: bool = False) -> "Sequence[Act]":
        """The administrative acts, oldest first; with `pending` those that may not be finished."""
        if pending and self._is_settled:
            self._is_settled = False
            return ()
        return await self._read(lambda raw: erasing.acts(raw, pending=pending))

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """A projection's checkpoint (0: none) and rows for a thread."""
        return await self._read(lambda raw: reads.projection_rows(raw, projection, version, thread_id))

    async def checkpoint(self, projection: str, version: int, thread_id: str) -> int:
        """The seq up to which a projection has read a thread (0: none)."""
        return await self._read(lambda raw: reads.checkpoint(raw, projection, version, thread_id))

    async def rows_between(
        self, projection: str, version: int, thread_id: str, span: RowSpan
    ) -> Sequence[tuple[str, bytes]]:
        """The rows of a span, in order of keys."""
        return await self._read(lambda raw: reads.rows_between(raw, projection, version, thread_id, span))

    async def measure_rows(self, projection: str, version: int, thread_id: str) -> tuple[int, int]:
        """How many rows there are and how many bytes their values take."""
        return await self._read(lambda raw: reads.measure_rows(raw, projection, version, thread_id))

    async def holders(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads for which a projection has rows."""
        return await self._read(lambda raw: reads.holders(raw, projection, version))

    async def write_projection(self, thread_id: str, change: ProjectionChange, *, replace: bool = False) -> None:
        """Write an asynchronous projection's rows and checkpoint."""

        def write(raw: sqlite3.Connection) -> None:
            tid = find_tid(raw, thread_id)
            if replace:
                raw.execute(
                    "DELETE FROM projection_rows WHERE projection = ? AND version = ? AND tid = ?",
                    (change.projection, change.version, tid),
                )
            write_projection(raw, tid, change)

        await self._write(write)

    async def faults(self, thread_id: str) -> Mapping[str, Sequence[str]]:
        """Differences between the indexes of ids, words and vectors and the rows that they index."""
        return await self._read(lambda raw: checks.faults_of(raw, thread_id))

    async def behind(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads whose head is past the projection's checkpoint."""
        return await self._read(lambda raw: reads.behind(raw, projection, version))
