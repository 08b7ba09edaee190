"""The PostgreSQL store: `memory_engine.store.protocol.Store` over one schema of a database."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, TypeVar

from memory_engine.core.cancellation import finished
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import Head, LiveChunk, LoadedThread, ThreadRecord
from memory_engine.errors import BackupFailed, EngineClosed, SchemaError, ThreadExists, ThreadNotFound
from memory_engine.storage.passage_rows import forget_texts
from memory_engine.storage.postgres import administration
from memory_engine.storage.postgres.address import parse
from memory_engine.storage.postgres.checks import faults_of
from memory_engine.storage.postgres.failures import refused_write
from memory_engine.storage.postgres.passages import LOCK, PostgresPassages
from memory_engine.storage.postgres.pool import Connection, Pool
from memory_engine.storage.postgres.reads import Reads
from memory_engine.storage.postgres.rows import in_schema
from memory_engine.storage.postgres.schema import VERSION, generation_of, migrate, version_of
from memory_engine.storage.postgres.texts import stored_texts
from memory_engine.storage.postgres.units import WRITE_ROWS, UnitAgain, record_facts, row_columns
from memory_engine.storage.postgres.upkeep import LEASE_S, LeaseRows, Upkeep
from memory_engine.storage.postgres.writer import BatchWriter, RefusingWriter
from memory_engine.store.acts import Act
from memory_engine.store.keys import Key
from memory_engine.store.protocol import (
    Backup,
    CommitUnit,
    Copied,
    Migrated,
    ProjectionChange,
    RowSpan,
    StoredText,
    StoreStats,
    ThreadFilter,
    Traces,
)

T = TypeVar("T")
Durability = Literal["normal", "full"]


class PostgresStore:
    """One schema of a database; any number of processes on any number of machines may share it.

    A commit is durable as the server's `synchronous_commit` says; with `durability="full"` it is `on` for each commit.
    """

    def __init__(self, pool: Pool, *, is_full: bool, read_only: bool, lease_s: float) -> None:
        self._pool = pool
        self._schema = pool.address.schema
        self._read_only = read_only
        self._generation = 0
        self._closing: asyncio.Task[None] | None = None
        self._writer = RefusingWriter() if read_only else BatchWriter(pool, is_full=is_full, learned=self._learned)
        self._leases = LeaseRows(pool, lease_s)
        self.passages = PostgresPassages(pool, self._check)
        self._upkeep = Upkeep(pool, self.passages, self._leases, self._learned, writes=not read_only)

    def __repr__(self) -> str:
        return f"PostgresStore({self._pool.address.shown!r})"

    @classmethod
    async def open(  # noqa: PLR0913 - what `memory_engine.open` passes on, and how long a lease lasts
        cls,
        url: str,
        *,
        schema: str | None = None,
        durability: Durability = "normal",
        busy_timeout_s: float = 5.0,
        read_only: bool = False,
        lease_s: float = LEASE_S,
        migrated: Migrated | None = None,
    ) -> "PostgresStore":
        """Open the store at a URL, and create its schema or bring it up to date.

        `schema` is used in place of the URL's. A store opened to read creates nothing. `migrated` is called with each
        migration. Raises `StorageUnreachable` if the server does not answer within the timeout, `StorageFailed` if it
        refuses the login or lacks the database, `SchemaError` for a schema of another program or of a newer version.
        """
        pool = Pool(parse(url, schema=schema), busy_timeout_s)
        try:
            generation = await pool.read(lambda connection: generation_of(connection, pool.address))
            if generation is not None:
                pass  # the usual case: one query
            elif read_only:
                await pool.read_all(lambda connection: _check_version(connection, pool))
            else:
                await pool.write(lambda connection: migrate(connection, pool.address, migrated))
        except BaseException:  # no connection stays open behind it; it goes on to the caller
            await finished(pool.close())
            raise
        store = cls(pool, is_full=durability == "full", read_only=read_only, lease_s=lease_s)
        try:
            if generation is None:
                await store._upkeep.look()
            else:
                store._learned(generation)
        except BaseException:  # no task and no connection stays behind it; it goes on to the caller
            await finished(store.close())
            raise
        return store

    async def create(
        self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk], *, origin: ThreadRecord | None = None
    ) -> None:
        """Make a thread. Raises `ThreadExists`, `ThreadNotFound`."""
        self._check("a new thread")
        rows = {row.chunk_id: row for row in live}
        unit = CommitUnit(thread_id=record.id, expected=head, head=head, live=rows, makes=record)
        if origin is None:
            await self._made(unit)
            return

        async def made_of(connection: Connection) -> None:
            reads = Reads(connection, self._schema)
            tid = (await reads.there(origin.id, lock=LOCK))["tid"]  # locked: it cannot be deleted meanwhile
            made = await reads.one("SELECT created_at_us FROM @.threads WHERE tid = $1", tid)
            if made is None or made["created_at_us"] != origin.created_at_us:
                raise ThreadNotFound(origin.id)
            await self._made(unit)

        await self._pool.write(made_of, is_repeatable=False)

    async def _made(self, unit: CommitUnit) -> None:
        """Commit a unit that makes its thread; of a deleted one's id, another thread."""
        try:
            await self._writer.submit(unit)
        except ThreadExists:
            if not await self._read(lambda reads: reads.is_deleted(unit.thread_id)):
                raise
            again = {name: getattr(unit, name) for name in CommitUnit.__struct_fields__}
            await self._writer.submit(UnitAgain(**again))

    async def put_record(self, record: ThreadRecord) -> None:
        """Replace a thread's record. Without an origin, the thread is not a fork. Raises `ThreadNotFound`."""

        async def put(connection: Connection) -> None:
            reads = Reads(connection, self._schema)
            tid = (await reads.there(record.id, lock=LOCK))["tid"]
            await reads.fetch(
                "UPDATE @.threads SET metadata = $2, policy = $3, created_at_us = $4 WHERE tid = $1",
                tid,
                *record_facts(record),
            )
            if record.forked_from is None:
                await reads.fetch(
                    "UPDATE @.threads SET forked_tid = NULL, forked_id = NULL, forked_seq = NULL WHERE tid = $1", tid
                )

        await self._write("a record", put)

    async def load(self, thread_id: str, *, sources: bool = True) -> LoadedThread:
        """A thread's live state, in order of keys, with the events behind it. Raises `ThreadNotFound`."""
        return await self._read_all(lambda reads: reads.load(thread_id, sources=sources))

    async def head(self, thread_id: str) -> Head:
        """A thread's head. Raises `ThreadNotFound`."""
        return await self._read(lambda reads: reads.head(thread_id))

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Queue a unit, to be committed together with those of other threads that wait."""
        self._upkeep.brought(unit)
        return self._writer.submit(unit) if unit.makes is None else self._pool.spawn(self._made(unit))

    def check_writable(self) -> None:
        """Raise what every commit fails with from now on: the engine is closed, only reads, or the disk has failed."""
        self._check("a commit")

    async def find(self, thread_id: str, event_ids: Sequence[str]) -> Sequence[StoredEvent]:
        """Those of the events that the thread's log (shared past included) holds."""
        return await self._read_all(lambda reads: reads.find(thread_id, event_ids)) if event_ids else ()

    async def read(
        self, thread_id: str, *, after: int, upto: int, limit: int, types: Collection[str] | None = None
    ) -> Sequence[StoredEvent]:
        """At most `limit` events with `after` < seq <= `upto`, in order, through shared pasts."""
        return await self._read_all(lambda reads: reads.read(thread_id, after, upto, limit, types))

    async def seq_at(self, thread_id: str, recorded_at_us: int) -> int:
        """The seq of the last event that was recorded at this time or before it."""
        return await self._read_all(lambda reads: reads.seq_at(thread_id, recorded_at_us))

    async def correlated(
        self, correlation_id: str, *, limit: int | None = None, tenant_id: str | None = None
    ) -> Sequence[tuple[str, StoredEvent]]:
        """The events that bear a correlation id, each with its thread's id."""
        return await self._read_all(lambda reads: reads.correlated(correlation_id, limit, tenant_id))

    async def read_at(self, thread_id: str, seqs: Sequence[int]) -> Sequence[StoredEvent]:
        """The events at these seqs that there are, in order, through shared pasts."""
        return await self._read_all(lambda reads: reads.read_at(thread_id, seqs)) if seqs else ()

    async def threads(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head]]:
        """The threads that match, in the order of `ThreadFilter`."""
        return [(record, head) for record, head, _ in await self.listed(where)]

    async def listed(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head, int]]:
        """The same, with the time of each one's last event."""
        read = self._read_all if where.after else self._read
        return await read(lambda reads: reads.listed(where))

    async def taken(self) -> Sequence[str]:
        """The ids of deleted threads that no live thread uses now."""
        return await self._read(lambda reads: reads.taken())

    async def forks(self, thread_id: str) -> Sequence[str]:
        """The ids of the threads that share this thread's past."""
        return await self._read_all(lambda reads: reads.forks(thread_id))

    async def delete(self, thread_id: str) -> None:
        """Delete a thread's log and state; another can be made of its id."""
        await self._administer(lambda connection: administration.delete(connection, self._schema, thread_id))

    async def erase(self, unit: CommitUnit, rows: Sequence[StoredEvent]) -> None:
        """Commit a unit, with these rows in the place of the thread's own of the same seqs and hashes."""

        async def erased(connection: Connection) -> None:
            await administration.replace(connection, self._schema, unit.thread_id, rows)
            await self._writer.commit_within(connection, unit)

        await self._administer(erased)

    async def wipe(self) -> bool:
        """Let the server reuse the space of what is gone; whether no transaction may still need it."""
        self._check("an administrative act")
        return await administration.wipe(self._pool)

    def moved(self) -> None:
        """Its connections cannot follow: they are given up, and it can be closed."""
        self._pool.give_up()

    @property
    def is_of_one_loop(self) -> bool:
        """Its connections are of the loop that made them."""
        return True

    @property
    def generation(self) -> int:
        """The last known number of acts that have deleted or erased something.

        It comes with the answer to every commit, and is looked at every `upkeep.LOOK_S` seconds: another engine's act
        is known after so long at the latest, and the time of a query, while the server can be reached.
        """
        return self._generation

    async def lease(self, thread_id: str) -> bool | None:
        """Take a thread for work that one engine at a time should do; it ends when it is not renewed for a while."""
        self._check("a lease")
        return await self._leases.take(thread_id)

    async def release(self, thread_id: str) -> None:
        """Give a thread back."""
        await self._leases.release(thread_id)

    async def traces(self, pieces: Sequence[bytes]) -> Traces:
        """Look for pieces in every table's rows; its `files` say what a client cannot look into."""
        return await self._pool.read_all(lambda c: administration.traces(c, self._schema, pieces))

    def texts(self) -> AsyncIterator[Sequence[StoredText]]:
        """The values of events, views, the index for search and threads."""
        return stored_texts(self._pool, self._schema)

    async def mentions(self, words: Sequence[str]) -> Sequence[str]:
        """The passages with all these words in a row."""
        return await self._pool.read_all(lambda c: administration.mentions(c, self._schema, words))

    async def backup(self, path: str, copied: Copied, *, key: Key | None = None, plain: bool = False) -> Backup:
        """Refused: the server's own tools do it."""
        schema = self._schema
        why = (
            f"a server's database is copied by its own tools: `pg_dump --schema={schema}`, or `pg_basebackup` for all; "
            "`memory-engine copy URL FILE` writes its threads to a file of this package"
        )
        raise BackupFailed(path, why)

    async def put_act(self, act: Act) -> None:
        """Keep an administrative act."""
        await self._write("an administrative act", lambda c: administration.put_act(c, self._schema, act))

    async def acts(self, *, pending: bool = False) -> Sequence[Act]:
        """The administrative acts, oldest first; with `pending` those that may not be finished."""
        return await self._pool.read(lambda c: administration.acts(c, self._schema, pending=pending))

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """A projection's checkpoint (0: none) and rows for a thread."""
        return await self._read(lambda reads: reads.projection_rows(projection, version, thread_id))

    async def checkpoint(self, projection: str, version: int, thread_id: str) -> int:
        """The seq up to which a projection has read a thread (0: none)."""
        return await self._read(lambda reads: reads.checkpoint(projection, version, thread_id))

    async def rows_between(
        self, projection: str, version: int, thread_id: str, span: RowSpan
    ) -> Sequence[tuple[str, bytes]]:
        """The rows of a span, in order of keys."""
        return await self._read(lambda reads: reads.rows_between(projection, version, thread_id, span))

    async def measure_rows(self, projection: str, version: int, thread_id: str) -> tuple[int, int]:
        """How many rows there are and how many bytes their values take."""
        return await self._read(lambda reads: reads.measure_rows(projection, version, thread_id))

    async def holders(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads for which a projection has rows."""
        return await self._read(lambda reads: reads.holders(projection, version))

    async def write_projection(self, thread_id: str, change: ProjectionChange, *, replace: bool = False) -> None:
        """Write an asynchronous projection's rows and checkpoint."""
        columns = row_columns(change)

        async def written(connection: Connection) -> None:
            reads = Reads(connection, self._schema)
            thread = await reads.there(thread_id, lock=LOCK)
            if replace:
                await reads.fetch(
                    "DELETE FROM @.projection_rows WHERE tid = $1 AND projection = $2 AND version = $3",
                    thread["tid"],
                    change.projection,
                    change.version,
                )
            sql = in_schema(WRITE_ROWS, self._schema)
            await connection.execute(sql, [thread["tid"]], [thread["tenant_id"]], *columns)

        await self._write("rows of a view", written)

    async def faults(self, thread_id: str) -> Mapping[str, Sequence[str]]:
        """Differences between the indexes of ids, words and vectors and the rows that they index."""
        return await self._read_all(lambda reads: faults_of(reads, thread_id))

    async def behind(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads whose head is past the projection's checkpoint."""
        return await self._read(lambda reads: reads.behind(projection, version))

    async def stats(self) -> StoreStats:
        """Totals; `bytes` is the size of the schema's tables and indexes."""
        return await self._read_all(lambda reads: reads.totals())

    async def flush(self) -> None:
        """Make every acknowledged commit survive a power failure: one more, with `synchronous_commit`, syncs all."""
        if self._read_only:
            return

        async def flushed(connection: Connection) -> None:
            await connection.execute("SELECT set_config('synchronous_commit', 'on', true), pg_current_xact_id()")

        await self._writer.finish()
        await self._pool.write(flushed)

    async def close(self) -> None:
        """Commit the units taken, give leases back, close the connections. Cancelling it does not stop it."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._closed())
        await finished(self._closing)

    async def _closed(self) -> None:
        await self._writer.finish()
        self._writer.close()
        await self._upkeep.close()
        await self._leases.release_all()
        await self._pool.close()

    def _learned(self, generation: int) -> None:
        if generation > self._generation:
            self._generation = generation
            forget_texts()

    def _check(self, what: str) -> None:
        """Raise where nothing is written: the store is only read, is closed, or the server's disk has failed."""
        if self._closing is not None:
            raise EngineClosed
        if self._read_only:
            raise refused_write(what)
        if self._writer.failed is not None:
            raise self._writer.failed

    async def _write(self, what: str, work: Callable[[Connection], Awaitable[T]]) -> T:
        self._check(what)
        return await self._pool.write(work)

    async def _administer(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Run a transaction that deletes or erases, and learn of it at once."""
        self._check("an administrative act")
        await self._pool.write(work, is_repeatable=False)
        await self._upkeep.look()

    async def _read(self, query: Callable[[Reads], Awaitable[T]]) -> T:
        return await self._pool.read(lambda connection: query(Reads(connection, self._schema)))

    async def _read_all(self, query: Callable[[Reads], Awaitable[T]]) -> T:
        return await self._pool.read_all(lambda connection: query(Reads(connection, self._schema)))


async def _check_version(connection: Connection, pool: Pool) -> None:
    version = await version_of(connection, pool.address)
    if version < VERSION:
        why = "open it once where it can be written to, to make it or to bring it up to date"
        raise SchemaError(pool.address.shown, f"its schema is version {version}; {why}")
