"""The background work of a store: it renews leases, reads the generation, indexes words of passages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID, uuid4

from memory_engine.errors import MemoryEngineError, ThreadNotFound
from memory_engine.storage.passage_rows import INDEXED_MAX, WAITING_MIN
from memory_engine.storage.postgres.passages import PostgresPassages
from memory_engine.storage.postgres.pool import Connection, Pool
from memory_engine.storage.postgres.reads import Reads
from memory_engine.storage.postgres.rows import in_schema, tid_of
from memory_engine.store.protocol import CommitUnit

_log = logging.getLogger("memory_engine.storage")

LEASE_S = 30.0
"""A lease that is not renewed for so long is over: its engine is gone, or cannot reach the server."""
LOOK_S = 0.25
"""Seconds between two looks at the store's generation."""
IDLE_S = 1.0
"""After this pause without a commit the words of waiting passages are indexed."""
UNINDEXED_MAX = 8_192
"""The most passages of a thread that wait for such a pause."""


class LeaseRows:
    """Which threads this engine works on: a row each, with its owner, its number and when it ends.

    Times are the server's. The number grows with each owner. It guards nothing by itself: who takes a thread over
    records that as an event, which moves the epoch of the thread's head, and the old owner's commit is refused.
    """

    def __init__(self, pool: Pool, lease_s: float = LEASE_S) -> None:
        self._pool = pool
        self._lease_s = lease_s
        self._owner: UUID = uuid4()
        self._held: set[str] = set()

    async def take(self, thread_id: str) -> bool:
        """Take a thread; whether no other engine has it. Raises `ThreadNotFound`."""

        async def taken(connection: Connection) -> bool:
            reads = Reads(connection, self._pool.address.schema)
            thread = await reads.there(thread_id, lock="FOR KEY SHARE OF h")
            row = await reads.one(
                "INSERT INTO @.leases AS l (tid, tenant_id, owner, epoch, until) "
                "VALUES ($1, $2, $3, 1, clock_timestamp() + make_interval(secs => $4)) "
                "ON CONFLICT (tid) DO UPDATE SET owner = $3, until = excluded.until, "
                "epoch = l.epoch + CASE WHEN l.owner = $3 THEN 0 ELSE 1 END "
                "WHERE l.owner = $3 OR l.until < clock_timestamp() RETURNING epoch",
                thread["tid"],
                thread["tenant_id"],
                self._owner,
                self._lease_s,
            )
            return row is not None

        is_ours = await self._pool.write(taken)
        if is_ours:
            self._held.add(thread_id)
        return is_ours

    async def release(self, thread_id: str) -> None:
        """Return it. If the server cannot be reached, the lease ends by itself."""
        self._held.discard(thread_id)
        await self._end([thread_id])

    async def release_all(self) -> None:
        """Give everything back."""
        held, self._held = list(self._held), set()
        if held:
            await self._end(held)

    async def _end(self, thread_ids: list[str]) -> None:
        sql = in_schema(
            "UPDATE @.leases SET until = '-infinity' WHERE owner = $1 AND tid = ANY ($2)", self._pool.address.schema
        )
        tids = [tid_of(thread_id) for thread_id in thread_ids]
        with suppress(MemoryEngineError):
            await self._pool.write(lambda connection: connection.execute(sql, self._owner, tids))

    async def renew(self) -> None:
        """Go on holding what is held."""
        if not self._held:
            return
        sql = in_schema(
            "UPDATE @.leases SET until = clock_timestamp() + make_interval(secs => $3) "
            "WHERE owner = $1 AND tid = ANY ($2)",
            self._pool.address.schema,
        )
        tids = [tid_of(thread_id) for thread_id in self._held]
        await self._pool.write(lambda connection: connection.execute(sql, self._owner, tids, self._lease_s))


class Upkeep:
    """Tasks of an open store. `learned` is called with the generation."""

    def __init__(
        self, pool: Pool, passages: PostgresPassages, leases: LeaseRows, learned: Callable[[int], None], *, writes: bool
    ) -> None:
        self._pool = pool
        self._passages = passages
        self._leases = leases
        self._learned = learned
        self._waiting: dict[str, int] = {}
        self._commits = 0
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._every(LOOK_S, self.look))]
        if writes:
            self._tasks.append(loop.create_task(self._every(LEASE_S / 3, leases.renew)))
            self._tasks.append(loop.create_task(self._index_when_idle()))

    def brought(self, unit: CommitUnit) -> None:
        """Take note of a commit: its passages may wait for their words."""
        self._commits += 1
        if unit.passages is not None:
            count = sum(len(step.rows) for step in unit.passages.steps)
            self._waiting[unit.thread_id] = self._waiting.get(unit.thread_id, 0) + count

    async def look(self) -> None:
        """Learn the store's generation."""
        sql = in_schema("SELECT value FROM @.store_state WHERE name = 'generation'", self._pool.address.schema)
        value = await self._pool.read(lambda connection: connection.fetchval(sql))
        self._learned(int(value))

    async def close(self) -> None:
        """End the tasks; what they have begun goes on to its end in the pool."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            with suppress(MemoryEngineError):  # the next time may succeed, and calls that need the server raise
                await act()

    async def _index_when_idle(self) -> None:
        """Index words once nothing was committed for a while; those of a thread with very many at once."""
        seen = 0
        while True:
            await asyncio.sleep(IDLE_S)
            least = WAITING_MIN if self._commits == seen else UNINDEXED_MAX
            seen = self._commits
            for thread_id in [one for one, count in self._waiting.items() if count >= least]:
                del self._waiting[thread_id]
                try:
                    await self._passages.index_words(thread_id, at_most=INDEXED_MAX)
                except ThreadNotFound:
                    pass
                except MemoryEngineError as error:  # searches read what is not indexed one by one
                    _log.warning("the words of thread %r are not indexed: %s", thread_id, error)
