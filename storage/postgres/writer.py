"""The writer: takes units at once, commits many of them in one call of the server, answers each.

Several batches may be under way, each on a connection of its own, for different threads: the units of one thread go one
after the other. Where the connection is lost under way, the outcome is asked of the server, not guessed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from memory_engine.errors import (
    EngineClosed,
    EventIdTaken,
    HeadMoved,
    IntegrityError,
    InvalidIdentifier,
    MemoryEngineError,
    StorageBusy,
    StorageRefused,
    StorageUnreachable,
    ThreadExists,
    ThreadNotFound,
)
from memory_engine.storage.postgres.failures import (
    ERRORS,
    FailureKind,
    is_failing,
    kind_of,
    refused_write,
    storage_error,
)
from memory_engine.storage.postgres.pool import TRIES_MAX, Connection, OutcomeUnknown, Pool, pause_s
from memory_engine.storage.postgres.rows import in_schema, tid_of
from memory_engine.storage.postgres.units import COMMIT, COMMIT_ONE, commit_arguments, one_arguments, record_facts
from memory_engine.store.passages import index_version
from memory_engine.store.protocol import CommitUnit

_log = logging.getLogger("memory_engine.storage")

UNITS_MAX = 64
"""Units in one call. More would let the first wait for the last."""
BYTES_MAX = 8 * 1024 * 1024
"""Bytes of payloads in one call, unless one unit alone has more."""
TOGETHER_S = 0.1
"""Seconds that a call of several units waits for a head that another session holds; then each goes by itself."""
BATCHES_MAX = 4
"""Calls under way at once."""
_WRITTEN, _MOVED, _GONE, _TAKEN, _EXISTS, _PAST_HEAD, _NO_ORIGIN, _NO_HEAD = range(8)
_Waiting = tuple[CommitUnit, "asyncio.Future[None]"]
Outcome = MemoryEngineError | None
_PUT_RECORD = "UPDATE @.threads SET metadata = $2, policy = $3 WHERE tid = $1"


class BatchWriter:
    """Commits units. `learned` is called with the store's generation after every answer."""

    def __init__(self, pool: Pool, *, is_full: bool, learned: Callable[[int], None]) -> None:
        self._pool = pool
        self._is_full = is_full
        self._learned = learned
        self._commit_sql = in_schema(COMMIT, pool.address.schema)
        self._one_sql = in_schema(COMMIT_ONE, pool.address.schema)
        self._record_sql = in_schema(_PUT_RECORD, pool.address.schema)
        self._waiting: deque[_Waiting] = deque()
        self._under_way: set[str] = set()
        self._batches = 0
        self._scheduled = False
        self.failed: MemoryEngineError | None = None
        self._idle: list[asyncio.Future[None]] = []

    def submit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Queue a unit. Units of the same round of the loop are committed together."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.failed is not None:
            future.set_exception(self.failed)
            return future
        self._waiting.append((unit, future))
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)
        return future

    async def finish(self) -> None:
        """Wait for every unit that was taken."""
        while self._waiting or self._batches:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def close(self) -> None:
        """Take no more units."""
        self.failed = EngineClosed()

    def _go_on(self) -> None:
        self._scheduled = False
        while self._waiting and self._batches < BATCHES_MAX:
            batch = self._batch()
            if not batch:
                break
            self._batches += 1
            self._under_way.update(unit.thread_id for unit, _ in batch)
            self._pool.spawn(self._write(batch))
        if not self._waiting and not self._batches:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    def _batch(self) -> list[_Waiting]:
        """The next units of threads that have none under way, in order; the others stay in theirs."""
        batch: list[_Waiting] = []
        left: list[_Waiting] = []
        threads, size = set(self._under_way), 0
        while self._waiting and len(batch) < UNITS_MAX and (size < BYTES_MAX or not batch):
            one = self._waiting.popleft()
            if one[0].thread_id in threads:
                left.append(one)
                continue
            threads.add(one[0].thread_id)
            size += sum(len(stored.payload) + len(stored.record) for stored in one[0].events)
            batch.append(one)
        self._waiting.extendleft(reversed(left))
        return batch

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        outcomes: Sequence[Outcome] = [EngineClosed()] * len(batch)
        try:
            outcomes = await self.commit([unit for unit, _ in batch])
        except Exception as error:  # whatever it was, no caller may wait for ever: each gets this error
            outcomes = [storage_error(self._pool.address, error)] * len(batch)
        finally:
            self.failed = self.failed or next((one for one in outcomes if one is not None and is_failing(one)), None)
            self._batches -= 1
            self._under_way.difference_update(unit.thread_id for unit, _ in batch)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                _settle(future, outcome)
            self._go_on()

    async def commit(self, units: Sequence[CommitUnit]) -> Sequence[Outcome]:
        """Commit units of different threads, each whole or not at all; what refused it for each.

        One that the server refuses for another reason than its head or its ids does not fail the others.
        """
        try:
            return await self._committed(units)
        except (StorageRefused, StorageBusy, EventIdTaken, InvalidIdentifier) as error:
            if isinstance(error, StorageUnreachable):
                raise
            if len(units) > 1:
                return await asyncio.gather(*map(self._tried, units))
            [unit] = units
            if isinstance(error, StorageRefused) and unit.passages is not None:
                # the thread's index may be damaged: it derives from the log, and must not stop an event
                _log.warning(
                    "the search index of thread %r is dropped, to be made again: %s", unit.thread_id, error.why
                )
                await self._drop_index(unit.thread_id)
                return await self._alone(unit)
            return [error]

    async def _tried(self, unit: CommitUnit) -> Outcome:
        try:
            return (await self.commit([unit]))[0]
        except MemoryEngineError as error:
            return error

    async def commit_within(self, connection: Connection, unit: CommitUnit) -> None:
        """Commit a unit in the caller's transaction. Raises what refuses it."""
        codes = await self._called(connection, [unit], one_arguments([unit]), self._pool.busy_timeout_s)
        if (refused := _outcome(codes[0], unit)) is not None:
            raise refused

    async def _alone(self, unit: CommitUnit) -> Sequence[Outcome]:
        try:
            return await self._committed([unit])
        except StorageRefused as error:
            return [error]

    async def _drop_index(self, thread_id: str) -> None:
        sql = in_schema("SELECT @.drop_passages($1)", self._pool.address.schema)
        await self._pool.write(lambda connection: connection.execute(sql, tid_of(thread_id)))

    async def _committed(self, units: Sequence[CommitUnit]) -> list[Outcome]:
        one = one_arguments(units)
        wait_s = self._pool.busy_timeout_s if len(units) == 1 else min(TOGETHER_S, self._pool.busy_timeout_s)
        loop = asyncio.get_running_loop()
        began, tries, is_unknown = loop.time(), 0, False
        codes: Sequence[int] = ()
        while True:
            tries += 1
            try:
                codes = await self._pool.call(lambda connection: self._called(connection, units, one, wait_s))
                break
            except OutcomeUnknown as lost:
                is_unknown = True
                if loop.time() > began + self._pool.busy_timeout_s:
                    raise self._pool.unreachable(began, lost.__cause__ or lost, is_unknown=True) from lost
            except MemoryEngineError:
                raise
            except ERRORS as error:
                kind = kind_of(error)
                if kind is FailureKind.AWAY and loop.time() > began + self._pool.busy_timeout_s:
                    raise self._pool.unreachable(began, error, is_unknown=is_unknown) from error
                if kind is FailureKind.OTHER or (kind is FailureKind.AGAIN and tries >= TRIES_MAX):
                    raise storage_error(self._pool.address, error, loop.time() - began) from error
            await asyncio.sleep(pause_s(tries))
        self._learned(codes[-1])
        outcomes = [_outcome(code, unit) for code, unit in zip(codes, units, strict=False)]
        if is_unknown:
            return [
                None if refused is not None and await self._is_written(unit) else refused
                for refused, unit in zip(outcomes, units, strict=True)
            ]
        return outcomes

    async def _called(
        self, connection: Connection, units: Sequence[CommitUnit], one: Sequence[object] | None, wait_s: float
    ) -> Sequence[int]:
        if all(unit.record is None for unit in units):
            return await self._one_call(connection, units, one, wait_s)

        async def with_records(connection: Connection) -> Sequence[int]:
            codes = await self._one_call(connection, units, one, wait_s)
            for code, unit in zip(codes, units, strict=False):
                if code == _WRITTEN and unit.record is not None:
                    metadata, policy, _ = record_facts(unit.record)
                    await connection.execute(self._record_sql, tid_of(unit.thread_id), metadata, policy)
            return codes

        return await self._pool.together(connection, with_records)

    async def _one_call(
        self, connection: Connection, units: Sequence[CommitUnit], one: Sequence[object] | None, wait_s: float
    ) -> Sequence[int]:
        wait_ms = max(1, int(wait_s * 1000))
        if one is not None:
            generation = await connection.fetchval(self._one_sql, wait_ms, self._is_full, *one)
            if generation is not None:
                return _WRITTEN, generation
        codes: Sequence[int] = await connection.fetchval(
            self._commit_sql, wait_ms, self._is_full, index_version(), *commit_arguments(units)
        )
        return codes

    async def _is_written(self, unit: CommitUnit) -> bool:
        """Whether an earlier try of this unit was committed: its last event, or its head, is there by its hash."""
        if unit.events:
            sql = "SELECT 1 FROM @.events WHERE tid = $1 AND seq = $2 AND hash = $3"
            values: tuple[object, ...] = (unit.events[-1].seq, unit.events[-1].hash)
        else:
            sql = "SELECT 1 FROM @.heads WHERE tid = $1 AND seq = $2 AND hash = $3 AND epoch = $4 AND status = $5"
            values = (unit.head.seq, unit.head.hash, unit.head.epoch, unit.head.status)
        query = in_schema(sql, self._pool.address.schema)
        found = await self._pool.read(lambda connection: connection.fetchval(query, tid_of(unit.thread_id), *values))
        return found is not None


class RefusingWriter:
    """Stands in the writer's place where a store is only read. Raises `ReadOnly`."""

    def submit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Refuse a unit."""
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(refused_write(f"a commit to thread {unit.thread_id!r}"))
        return refused

    async def commit(self, units: Sequence[CommitUnit]) -> Sequence[Outcome]:
        """Refuse units."""
        raise refused_write(f"a commit to thread {units[0].thread_id!r}")

    async def commit_within(self, connection: Connection, unit: CommitUnit) -> None:
        """Refuse a unit."""
        raise refused_write(f"a commit to thread {unit.thread_id!r}")

    failed: MemoryEngineError | None = None

    async def finish(self) -> None:
        """Nothing was taken."""

    def close(self) -> None:
        """Nothing is open."""


def _outcome(code: int, unit: CommitUnit) -> Outcome:
    """The error for an outcome, as `commit_units` numbers them."""
    if code == _WRITTEN:
        return None
    thread_id = unit.thread_id
    if code == _NO_ORIGIN and unit.makes is not None and unit.makes.forked_from is not None:
        return ThreadNotFound(unit.makes.forked_from.thread_id)
    errors: dict[int, Outcome] = {
        _MOVED: HeadMoved(),
        _GONE: ThreadNotFound(thread_id),
        _TAKEN: EventIdTaken(),
        _EXISTS: ThreadExists(thread_id),
        _PAST_HEAD: IntegrityError(thread_id, unit.expected.seq + 1, "its log goes on past its head"),
        _NO_HEAD: IntegrityError(thread_id, 0, "the row of its head is gone"),
    }
    return errors[code]


def _settle(future: "asyncio.Future[None]", outcome: Outcome) -> None:
    if future.done():
        return
    if outcome is None:
        future.set_result(None)
    else:
        future.set_exception(outcome)
