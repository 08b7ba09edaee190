"""Faults at the production seam: a store or a disk that fails, waits or dies when a test says so."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal

from attrs import frozen

from memory_engine.core.clock import Clock, SystemClock
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import Head, LiveChunk, LoadedThread, ThreadRecord
from memory_engine.storage.sqlite.faults import Point, disk_error, disk_full
from memory_engine.store.acts import Act
from memory_engine.store.keys import Key
from memory_engine.store.new_file import FILE_PLAN
from memory_engine.store.passages import PassageIndex
from memory_engine.store.protocol import (
    Backup,
    CommitUnit,
    Copied,
    ProjectionChange,
    RowSpan,
    Store,
    StoredText,
    StoreStats,
    ThreadFilter,
    Traces,
)

__all__ = ["Faults", "FaultyStore", "Hold", "disk_error", "disk_full"]

When = Literal["before", "after"]
KILLED = 9
"""The exit code of a process that `Faults.kill` ended."""


class Faults:
    """Faults of the disk under an SQLite store, and of the clock, each planned for one point of its work.

    Open the store with it: `memory_engine.open(await SQLiteStore.open("agent.db", faults=faults))`. Points are "lock",
    "begin", "write" (each statement that changes rows), "commit" and "checkpoint"; within `files()` also "sync" and
    "rename" of backups and exports (the linking by which a new file gets its name too); with `clock()` also "clock".
    Each can be hit before its work or after it, when the outcome is lost. `reached` counts them. Plans count from the
    time when they are made.
    """

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()
        self._ahead_us = 0
        self._plans: dict[tuple[str, int, When], Callable[[], None]] = {}

    def fail(self, point: Point, error: Exception, *, nth: int = 1, when: When = "before") -> None:
        """Raise an error at the n-th such point from now on: one of `disk_full()`, `disk_error()`, an `OSError`."""

        def act() -> None:
            raise error

        self._plan(point, nth, when, act)

    def delay(self, point: Point, seconds: float, *, nth: int = 1, when: When = "before") -> None:
        """Let the n-th such point from now on take so much longer.

        Other threads go on, and so does the event loop, but for one slow commit that nothing announced.
        """
        self._plan(point, nth, when, lambda: time.sleep(seconds))

    def kill(self, point: Point, *, nth: int = 1, when: When = "before") -> None:
        """End the process at the n-th such point from now on, with the exit code 9 and no clean-up."""
        self._plan(point, nth, when, lambda: os._exit(KILLED))

    def jump(self, by: timedelta, *, nth: int = 1) -> None:
        """Set the clock on (or back) for good, before the n-th reading of it from now on."""

        def act() -> None:
            self._ahead_us += by // timedelta(microseconds=1)

        self._plan("clock", nth, "before", act)

    def clock(self, real: Clock | None = None) -> Clock:
        """A clock to open the engine with: the system's, or `real`."""
        return _PlannedClock(self, real or SystemClock())

    @contextmanager
    def files(self) -> Iterator[None]:
        """A block in which the new files of backups and exports are made under these faults."""
        token = FILE_PLAN.set(self)
        try:
            yield
        finally:
            FILE_PLAN.reset(token)

    def now_us(self, real: Clock) -> int:
        """A clock's time, with the jumps so far; `clock` calls it."""
        self.before("clock")
        now_us = real.now_us() + self._ahead_us
        self.after("clock")
        return now_us

    def before(self, point: Point) -> None:
        """Do what is planned; the store calls it."""
        self.reached[point] += 1
        self._act(point, "before")

    def after(self, point: Point) -> None:
        """Do what is planned; the store calls it."""
        self._act(point, "after")

    def _plan(self, point: Point, nth: int, when: When, act: Callable[[], None]) -> None:
        self._plans[point, self.reached[point] + nth, when] = act

    def _act(self, point: Point, when: When) -> None:
        act = self._plans.pop((point, self.reached[point], when), None)
        if act is not None:
            act()


@frozen
class _PlannedClock:
    """A clock that reports each reading to a plan."""

    faults: Faults
    real: Clock

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return self.faults.now_us(self.real)


@frozen
class _Failure:
    error: Exception
    when: When


class Hold:
    """A commit that is held: `begun` is set when it came, `release` lets it go on to the store."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let it go on."""
        self._released.set()

    async def wait(self) -> None:
        """Wait until it is released."""
        self.begun.set()
        await self._released.wait()


class FaultyStore:
    """Any store, with faults planned for single commits; everything else goes straight through.

    Open an engine over it: `memory_engine.open(FaultyStore(MemoryStore()))`. `commits`
    counts the commits that came. See `memory_engine.store.protocol.Store` for the methods.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failures: dict[int, _Failure] = {}
        self._holds: dict[int, Hold] = {}
        self._begun: list[Hold] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.commits = 0
        self.is_read = False

    @property
    def passages(self) -> PassageIndex:
        """The store's own."""
        return self._store.passages

    def fail(self, error: Exception, *, commit: int = 1, when: When = "before") -> None:
        """Fail the n-th commit from now on: `before` it is applied, or `after`, when its outcome is lost."""
        self._failures[self.commits + commit] = _Failure(error, when)

    def hold(self, *, commit: int = 1) -> Hold:
        """Hold the n-th commit from now on until it is released."""
        hold = self._holds[self.commits + commit] = Hold()
        return hold

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Commit, or do the fault planned for this commit."""
        self.commits += 1
        failure = self._failures.pop(self.commits, None)
        hold = self._holds.pop(self.commits, None)
        if failure is None and hold is None:
            return self._store.commit(unit)
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.get_running_loop().create_task(self._planned(unit, failure, hold, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return outcome

    async def _planned(
        self, unit: CommitUnit, failure: _Failure | None, hold: Hold | None, outcome: "asyncio.Future[None]"
    ) -> None:
        try:
            if hold is not None:
                self._begun.append(hold)
                await hold.wait()
            if failure is None or failure.when == "after":
                await self._store.commit(unit)
            if failure is not None:
                raise failure.error
        except Exception as error:  # the outcome belongs to the caller of the commit
            if not outcome.done():
                outcome.set_exception(error)
        else:
            if not outcome.done():
                outcome.set_result(None)

    async def create(
        self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk], *, origin: ThreadRecord | None = None
    ) -> None:
        """Pass on."""
        await self._store.create(record, head, live, origin=origin)

    async def put_record(self, record: ThreadRecord) -> None:
        """See `Store.put_record`."""
        await self._store.put_record(record)

    async def load(self, thread_id: str, *, sources: bool = True) -> LoadedThread:
        """Pass on."""
        return await self._store.load(thread_id, sources=sources)

    async def head(self, thread_id: str) -> Head:
        """Pass on."""
        return await self._store.head(thread_id)

    def check_writable(self) -> None:
        """Pass on."""
        self._store.check_writable()

    async def find(self, thread_id: str, event_ids: Sequence[str]) -> Sequence[StoredEvent]:
        """Pass on."""
        return await self._store.find(thread_id, event_ids)

    async def read(
        self, thread_id: str, *, after: int, upto: int, limit: int, types: Collection[str] | None = None
    ) -> Sequence[StoredEvent]:
        """Pass on."""
        return await self._store.read(thread_id, after=after, upto=upto, limit=limit, types=types)

    async def seq_at(self, thread_id: str, recorded_at_us: int) -> int:
        """Pass on."""
        return await self._store.seq_at(thread_id, recorded_at_us)

    async def correlated(
        self, correlation_id: str, *, limit: int | None = None, tenant_id: str | None = None
    ) -> Sequence[tuple[str, StoredEvent]]:
        """Pass on."""
        return await self._store.correlated(correlation_id, limit=limit, tenant_id=tenant_id)

    async def read_at(self, thread_id: str, seqs: Sequence[int]) -> Sequence[StoredEvent]:
        """Straight through."""
        return await self._store.read_at(thread_id, seqs)

    async def threads(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head]]:
        """Pass on."""
        return await self._store.threads(where)

    async def listed(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head, int]]:
        """Pass on."""
        return await self._store.listed(where)

    async def taken(self) -> Sequence[str]:
        """Pass on."""
        return await self._store.taken()

    async def forks(self, thread_id: str) -> Sequence[str]:
        """Pass on."""
        return await self._store.forks(thread_id)

    async def delete(self, thread_id: str) -> None:
        """Pass on."""
        await self._store.delete(thread_id)

    async def erase(self, unit: CommitUnit, rows: Sequence[StoredEvent]) -> None:
        """Pass on."""
        await self._store.erase(unit, rows)

    async def wipe(self) -> bool:
        """Pass on; while `is_read` is set, a reader sees an older moment of the store."""
        return not self.is_read and await self._store.wipe()

    @property
    def is_of_one_loop(self) -> bool:
        """Pass on."""
        return self._store.is_of_one_loop

    def moved(self) -> None:
        """Pass on."""
        self._store.moved()

    @property
    def generation(self) -> int:
        """Pass on."""
        return self._store.generation

    async def lease(self, thread_id: str) -> bool | None:
        """Pass on."""
        return await self._store.lease(thread_id)

    async def release(self, thread_id: str) -> None:
        """Pass on."""
        await self._store.release(thread_id)

    async def traces(self, pieces: Sequence[bytes]) -> Traces:
        """Pass on."""
        return await self._store.traces(pieces)

    def texts(self) -> AsyncIterator[Sequence[StoredText]]:
        """Pass on."""
        return self._store.texts()

    async def mentions(self, words: Sequence[str]) -> Sequence[str]:
        """Pass on."""
        return await self._store.mentions(words)

    async def backup(self, path: str, copied: Copied, *, key: Key | None = None, plain: bool = False) -> Backup:
        """Pass on."""
        return await self._store.backup(path, copied, key=key, plain=plain)

    async def put_act(self, act: Act) -> None:
        """Pass on."""
        await self._store.put_act(act)

    async def acts(self, *, pending: bool = False) -> Sequence[Act]:
        """Pass on."""
        return await self._store.acts(pending=pending)

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """Pass on."""
        return await self._store.rows(projection, version, thread_id)

    async def checkpoint(self, projection: str, version: int, thread_id: str) -> int:
        """Pass on."""
        return await self._store.checkpoint(projection, version, thread_id)

    async def rows_between(
        self, projection: str, version: int, thread_id: str, span: RowSpan
    ) -> Sequence[tuple[str, bytes]]:
        """The rows of a span, in order of keys."""
        return await self._store.rows_between(projection, version, thread_id, span)

    async def measure_rows(self, projection: str, version: int, thread_id: str) -> tuple[int, int]:
        """Pass on."""
        return await self._store.measure_rows(projection, version, thread_id)

    async def holders(self, projection: str, version: int) -> Sequence[str]:
        """Pass on."""
        return await self._store.holders(projection, version)

    async def write_projection(self, thread_id: str, change: ProjectionChange, *, replace: bool = False) -> None:
        """Pass on."""
        await self._store.write_projection(thread_id, change, replace=replace)

    async def faults(self, thread_id: str) -> Mapping[str, Sequence[str]]:
        """Pass on."""
        return await self._store.faults(thread_id)

    async def behind(self, projection: str, version: int) -> Sequence[str]:
        """Pass on."""
        return await self._store.behind(projection, version)

    async def stats(self) -> StoreStats:
        """Pass on."""
        return await self._store.stats()

    async def flush(self) -> None:
        """Pass on."""
        await self._store.flush()

    async def close(self) -> None:
        """Let held commits go on, wait for them, then close the store."""
        for hold in (*self._begun, *self._holds.values()):
            hold.release()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._store.close()
