"""The writer: one owner of one connection. Takes units, commits many in one transaction, answers each."""

import asyncio
import contextlib
import math
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from memory_engine.core.cancellation import Made, finished, settle, settle_all
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.loops import IDLE, OfLoop
from memory_engine.errors import EngineClosed, HeadMoved, MemoryEngineError, StorageFailed
from memory_engine.storage.driver import StoreFile, errors, size_of
from memory_engine.storage.sqlite.connection import Connection, configure, is_busy, storage_error
from memory_engine.storage.sqlite.locking import FileLock, Generation
from memory_engine.storage.sqlite.transactions import HERE_ROWS, Transactions, is_small
from memory_engine.store.protocol import Backup, CommitUnit, Copied

if TYPE_CHECKING:
    from memory_engine.storage import passage_words
    from memory_engine.storage.sqlite import rekeying, wiping
else:
    passage_words = lazy_module("memory_engine.storage.passage_words")
    rekeying, wiping = lazy_modules("memory_engine.storage.sqlite", "rekeying wiping")

T = TypeVar("T")
_Some = Collection[int] | None
_UNDONE = object()
"""The outcome of a unit that was not committed, nor refused."""

UNITS_MAX = 64
"""Units in one transaction. More would let the first wait for the last."""
WAL_BYTES = 16 * 1024 * 1024
"""Above this the file of the write-ahead log is emptied as soon as no reader needs it."""
AGAIN_S = 0.05
"""Seconds in which the next try of a unit that another process was ahead of finds no others in its way."""
TURN_S = 0.002
"""Seconds in which a process goes on writing once it has caught up with others, which costs more than a commit."""
NEXT_S = 0.0005
"""Seconds that it may take meanwhile to come with the next."""
SLOW_S = 0.002
"""A commit that takes longer is followed by none on the event loop's thread, until `FAST` have been faster."""
FAST = 32
PAGE_BYTES = 4096
ROW_BYTES = 512
"""What a row takes of the write-ahead log, as an estimate, besides the payload of an event."""
CHECKPOINT_BYTES = 4 * 1024 * 1024
"""Bytes of the write-ahead log, as commits estimate them, after which the connection's thread checkpoints it."""
TRIES = 20
"""So many times is a step of a wiping tried that a reader was in the way of."""
READERS_MS = 10
"""How long a step of a wiping waits for readers of old pages; then it lets others write and is tried again."""
IDLE_S = 1.0
"""After this pause without a commit the write-ahead log is checkpointed, and words of passages are indexed."""


class Writer:
    """Owns the write connection. One transaction is under way at a time; what comes meanwhile waits for the next.

    Used from the event loop only. It is driven by the ends of its own transactions, not by
    a task: a unit that finds the connection idle is on its thread before `submit` returns.

    Two hops between threads cost as much as a small commit. So where nothing can make it wait, a unit is committed
    `here`, on the event loop's own thread, before `submit` returns: it is small and alone, the lock between processes
    is free at once, no sync of the disk is asked for, and the latest commits were fast. One that is slow after all is
    the last for a while. The first one of a write-ahead log that starts over syncs the disk: it never is.
    """

    def __init__(  # noqa: PLR0913 - what a writer is made of
        self,
        connection: Connection,
        lock: FileLock,
        transactions: Transactions,
        file: StoreFile,
        busy_timeout_s: float,
        *,
        syncs: bool,
    ) -> None:
        self._file, path = file, file.path
        self._connection, self._lock = connection, lock
        self._busy_ms = self._timeout_ms = round(busy_timeout_s * 1000)
        self._syncs = syncs
        self._slow = self._written = 0
        self._restarts = True
        self._transactions = transactions
        self._path = path
        self._wiping = OfLoop(asyncio.Lock)
        self._units: deque[tuple[CommitUnit, asyncio.Future[None]]] = deque()
        self._jobs: deque[tuple[Callable[[sqlite3.Connection], object], asyncio.Future[object]]] = deque()
        self._busy = False
        self._reads = 0
        self._was_job = self._crowded = False
        self._idle: list[asyncio.Future[None]] = []
        self.failed: StorageFailed | EngineClosed | None = None
        self._commits = 0
        self._seen = Generation(path).number
        self._turn_ends_s = 0.0
        self.noting: tuple[Callable[[], None], ...] = ()  # called after each transaction of a job, in the lock
        self._turn = 0
        """The number of event loops before: whoever began on one of these does not go on here."""
        self._tidy()

    def _tidy(self) -> None:
        self._tidying = asyncio.get_running_loop().create_task(self._tidy_when_idle(), name=IDLE)

    def moved(self) -> None:
        """Go on on the running event loop. Nobody hears of the end of what was under way on the one before."""
        self._turn += 1
        self._units.clear()
        self._jobs.clear()
        self._idle.clear()
        self._crowded, self._reads = False, 0
        self._tidy()
        if self._busy:  # its thread does one thing after the other: an empty query ends after it
            self._resting = asyncio.get_running_loop().create_task(self._rested(), name=IDLE)

    async def _rested(self) -> None:
        try:
            await self._connection.run(lambda _: None)
        finally:
            self._busy = False
            self._go_on()

    def submit(self, unit: CommitUnit, *, at_once: bool = False) -> "asyncio.Future[None]":
        """Take a unit; it is committed with the others that wait, or, `at_once`, now if nothing can make it wait."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waits = self._busy or self._units or self._jobs or self._crowded or self._slow or self._restarts or self._syncs
        if at_once and not waits:
            outcome = self._committed_here(unit)
            if outcome is not _UNDONE:
                answer = self._noted(outcome)
                if answer is None:
                    future.set_result(None)
                else:
                    settle(future, answer)
                self._move_on()
                return future
        if self._tidying.done():  # the engine was opened in a loop that has ended since
            self._tidy()
        self._units.append((unit, future))
        if self._crowded:
            # others will come in this round of the loop: one transaction for all of them
            if len(self._units) == 1:
                asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self._go_on()
        return future

    def _committed_here(self, unit: CommitUnit) -> object:
        """Commit a unit on this thread: its error or `None`, or `_UNDONE` where something could make that wait."""
        raw = self._connection.sqlite
        if raw is None or self.failed is not None or not is_small(unit):
            return _UNDONE
        try:
            if not self._lock.try_enter():
                return _UNDONE
            try:
                with self._connection.at_work:
                    (outcome,) = self._write(raw, (unit,), 0)
            except BaseException:  # the lock must not stay taken; it goes on to the caller
                self._lock.leave(failed=True)
                raise
            self._lock.leave()
        except Exception as error:  # whatever it is, it is the outcome of the unit
            # another program may write to the file: on its own thread, the connection can wait for that
            return _UNDONE if is_busy(error) else error
        return outcome

    @property
    def is_unused(self) -> bool:
        """Whether nothing was written since the file was opened, nor is about to be."""
        is_idle = not self._busy or self._reads > 0
        return is_idle and not (self._commits or self._units or self._jobs or self.failed)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query, after those before; what is to be written waits for them. Only while it `is_unused`."""
        self._busy, self._reads, turn = True, self._reads + 1, self._turn
        try:
            return await self._connection.run(query)
        finally:  # cancelled or its loop ended: what is started from now on comes after it, on the connection's thread
            if turn == self._turn:
                self._reads -= 1
                self._busy = self._reads > 0
                self._go_on()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a transaction of its own between those of the units; it is rolled back if it raises."""
        return await self._job(lambda raw: self._in_transaction(raw, work))

    async def checkpoint(self, mode: str) -> None:
        """Checkpoint the write-ahead log, under the lock. `mode`: PASSIVE, FULL or TRUNCATE."""
        await self._job(lambda raw: self._checkpoint(raw, mode))

    async def shorten(self) -> None:
        """Checkpoint the write-ahead log and empty its file, unless a reader is in the way: no call waits for it."""
        await self._job(self._shorten)

    async def administer(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Run a transaction that deletes or erases, and notify all processes of it."""
        await self._job(lambda raw: self._administer(raw, work))

    async def wipe(self, pages: _Some = None) -> bool:
        """Destroy the bytes of deleted and erased rows (see `wiping`); whether no reader of old pages was in the way.

        With `pages`, in these and free ones. Units are committed in between. One at a time: each holds a reader.
        """
        async with self._wiping.here:
            try:
                if self._file.is_encrypted:
                    raise wiping.UnknownPages
                with Made[wiping.PageWiper]() as made:
                    wiper = await made.beside(lambda: wiping.PageWiper(self._path, self._lock.descriptor))
                    for rounds_left in reversed(range(wiping.ROUNDS)):
                        dirty = await self._last_step(wiper, pages, at_any_size=not rounds_left)
                        if dirty is None:
                            return True
                        for at in range(0, len(dirty), wiping.STEP):
                            zero = partial(self._zero, wiper=wiper, pages=dirty[at : at + wiping.STEP])
                            if not await self._tried(zero):
                                return False
            except wiping.UnknownPages:
                return await self._job(self._rewrite)
        return False

    async def rekey(self, made: StoreFile, copied: Copied) -> Backup:
        """Put a copy of the file with another key in its place (see `rekeying`), between two transactions."""
        async with self._wiping.here:
            return await self._job(lambda raw: self._rekey(raw, made, copied))

    async def _last_step(self, wiper: "wiping.PageWiper", pages: _Some, *, at_any_size: bool) -> Sequence[int] | None:
        """Look for pages to zero. If they are few, zero them, and end; `None` if that is done, else what is left to do.

        With `at_any_size` they need not be few.
        """
        with Made[wiping.Watch]() as made:
            if not await self._tried(partial(self._watch, into=made)):
                return ()
            dirty = await finished(asyncio.to_thread(wiping.dirty_pages, self._path, pages))
            if len(dirty) > wiping.STEP and not at_any_size:
                return dirty
            last = partial(self._zero_last, wiper=wiper, pages=dirty, watch=made.taken)
            return None if await self._job(last) else ()

    async def _tried(self, work: Callable[[sqlite3.Connection], bool]) -> bool:
        """Run a job until it succeeds, some times; others write in between."""
        for _ in range(TRIES):
            if await self._job(work):
                return True
            await asyncio.sleep(AGAIN_S)
        return False

    async def close(self) -> None:
        """Commit the waiting units, checkpoint, and close. In the lock: closing the last connection checkpoints too."""
        if not self._tidying.done():  # else the loop that it was of has ended
            self._tidying.cancel()
            await asyncio.wait([self._tidying])
        while self._busy:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter
        if self.failed is None:
            with contextlib.suppress(MemoryEngineError):
                await self.checkpoint("TRUNCATE")
        self.failed = self.failed or EngineClosed()
        await self._connection.close()
        self._lock.close()

    async def _job(self, work: Callable[[sqlite3.Connection], T]) -> T:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._jobs.append((work, future))
        self._go_on()
        return await future  # type: ignore[return-value]  # the result of `work`

    def _go_on(self) -> None:
        """Start the next transaction if none is under way. Units wait for one job at most, however many there are."""
        if self._busy:
            return
        if self._jobs and not (self._units and self._was_job):
            self._was_job = True
            work, future = self._jobs.popleft()
            self._start(work, lambda outcome: settle(future, outcome))
        elif self._units:
            self._was_job = False
            batch = [self._units.popleft() for _ in range(min(UNITS_MAX, len(self._units)))]
            self._crowded = len(batch) > 1
            units = [unit for unit, _ in batch]
            self._start(lambda raw: self._commit(raw, units), partial(settle_all, batch))
        else:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    def _start(self, work: Callable[[sqlite3.Connection], object], settle: Callable[[object], None]) -> None:
        self._busy = True
        if self.failed is not None:
            self._busy = False
            settle(self.failed)
            self._go_on()
            return
        turn = self._turn
        self._connection.start(
            lambda raw: self._patiently(raw, work),
            lambda outcome: self._ended(outcome, settle) if turn == self._turn else None,
        )

    def _patiently(self, raw: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        self._wait_at_most(raw, self._timeout_ms)
        return work(raw)

    def _wait_at_most(self, raw: sqlite3.Connection, busy_ms: int) -> None:
        """Set how long SQLite waits for other programs that write to the file, or read what is to be overwritten."""
        if self._busy_ms != busy_ms:
            raw.execute(f"PRAGMA busy_timeout = {busy_ms}")
            self._busy_ms = busy_ms

    def _ended(self, outcome: object, settle: Callable[[object], None]) -> None:
        """A transaction ended: answer it, then go on."""
        settle(self._noted(outcome))
        self._move_on()

    def _noted(self, outcome: object) -> object:
        """The outcome of a transaction as it is answered. A disk that fails makes the store read-only for good."""
        self._commits += 1
        self._busy = False
        return self._refused(outcome) if isinstance(outcome, BaseException) else outcome

    def _move_on(self) -> None:
        """Start what is due now, if anything is: none of it after most commits."""
        if self._transactions.full:
            self._index_words(is_idle=False)
        if self._written > CHECKPOINT_BYTES:
            self._checkpoint_meanwhile()
        if self._units or self._jobs or self._idle:
            self._go_on()

    def _refused(self, error: BaseException) -> BaseException:
        """The error that a failed transaction is answered with."""
        kinds: tuple[type[sqlite3.Error | OSError | OverflowError], ...] = (*errors(), OSError, OverflowError)
        if isinstance(error, kinds):
            error = storage_error(self._path, error)
        if isinstance(error, StorageFailed):
            self.failed = error
        return error

    def _checkpoint_meanwhile(self) -> None:
        """Checkpoint between commits. SQLite itself never does: it would within one, on the event loop's thread."""
        self._written = 0
        unheard: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        unheard.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._jobs.append((lambda raw: self._checkpoint(raw, "PASSIVE"), unheard))

    def _index_words(self, *, is_idle: bool) -> None:
        """Index words of passages between commits; no call waits for it."""
        for tid in self._transactions.to_index(is_idle=is_idle):
            self._spare(partial(passage_words.index_words, tid=tid))

    def _spare(self, work: Callable[[sqlite3.Connection], bool]) -> None:
        """Run a transaction without a waiter, again while it asks for it; if it fails, its work is not done."""
        unheard: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def ended(done: "asyncio.Future[object]") -> None:
            if not done.cancelled() and done.exception() is None and done.result():
                self._spare(work)
                self._go_on()

        unheard.add_done_callback(ended)
        self._jobs.append((lambda raw: self._in_transaction(raw, work), unheard))

    def _commit(self, raw: sqlite3.Connection, units: Sequence[CommitUnit]) -> list[MemoryEngineError | None]:
        with self._lock:
            return self._write(raw, units, self._timeout_ms)

    def _write(
        self, raw: sqlite3.Connection, units: Sequence[CommitUnit], busy_ms: int
    ) -> list[MemoryEngineError | None]:
        """Write units, in the lock."""
        began = time.perf_counter()
        if self._busy_ms != busy_ms:
            self._wait_at_most(raw, busy_ms)
        if self._seen != self._lock.marks:
            self._seen = self._lock.marks
            self._transactions.forget()
        before, bytes_before = raw.total_changes, self._transactions.bytes
        outcomes = self._transactions.commit(raw, units)
        rows = max(0, raw.total_changes - before - HERE_ROWS)
        self._restarts = False
        took = time.perf_counter() - began
        self._slow = FAST if took > SLOW_S * len(units) else max(0, self._slow - 1)
        size = self._transactions.bytes - bytes_before
        self._written += PAGE_BYTES * (2 + 2 * len(units)) + ROW_BYTES * rows + size
        if self._turn_ends_s or any(outcomes):
            self._keep_the_turn(outcomes)
        return outcomes

    def _keep_the_turn(self, outcomes: Sequence[MemoryEngineError | None]) -> None:
        """Where processes write to one thread, let the one that had to catch up use what that has cost it."""
        if HeadMoved in map(type, outcomes):
            self._turn_ends_s = math.inf
            self._lock.keep(AGAIN_S)
        elif self._turn_ends_s:
            now = time.monotonic()
            if self._turn_ends_s == math.inf:
                self._turn_ends_s = now + TURN_S
            if now >= self._turn_ends_s:
                self._turn_ends_s = 0.0
            elif self._lock.is_wanted:
                self._lock.keep(NEXT_S)

    def _administer(self, raw: sqlite3.Connection, work: Callable[[sqlite3.Connection], None]) -> None:
        self._in_transaction(raw, work)
        with self._lock:
            self._lock.mark()

    def _in_transaction(self, raw: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            before = raw.total_changes
            try:
                raw.execute("BEGIN IMMEDIATE")
                result = work(raw)
                raw.execute("COMMIT")
            except BaseException:  # after any error nothing may stay open; it goes on to the caller
                if raw.in_transaction:
                    raw.execute("ROLLBACK")
                raise
            self._written += ROW_BYTES * (raw.total_changes - before)
            for note in self.noting:
                note()
            return result

    def _watch(self, raw: sqlite3.Connection, into: "Made[wiping.Watch]") -> bool:
        self._wait_at_most(raw, READERS_MS)
        with self._lock:
            self._lock.mark()  # the process that deleted may have died before it told the others
            if not self._emptied(raw):
                return False
            into.put(wiping.Watch(self._path))
            return True

    def _zero(self, raw: sqlite3.Connection, wiper: "wiping.PageWiper", pages: Sequence[int]) -> bool:
        self._wait_at_most(raw, READERS_MS)
        with self._lock:
            return wiping.zeroed(raw, wiper, pages)

    def _zero_last(
        self, raw: sqlite3.Connection, wiper: "wiping.PageWiper", pages: Sequence[int], watch: "wiping.Watch"
    ) -> bool:
        self._wait_at_most(raw, READERS_MS)
        with self._lock:
            return wiping.zeroed(raw, wiper, sorted({*pages, *watch.written()})) and self._emptied(raw)

    def _rekey(self, raw: sqlite3.Connection, made: StoreFile, copied: Copied) -> Backup:
        with self._lock:
            try:
                report = rekeying.change_key(raw, self._file, made, copied)
                self._file.take(made)
            finally:
                self._lock.watch()
                self._busy_ms = self._timeout_ms
                configure(self._connection.reopened(), syncs=self._syncs)
                self._file.opened()
                self._restarts = True
        return report

    def _rewrite(self, raw: sqlite3.Connection) -> bool:
        with self._lock:
            wiping.rewrite(raw)
            return self._emptied(raw)

    def _emptied(self, raw: sqlite3.Connection) -> bool:
        self._restarts = True
        return wiping.emptied(raw)

    def _checkpoint(self, raw: sqlite3.Connection, mode: str) -> None:
        with self._lock:
            self._restarts = True
            _, logged, done = raw.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        self._written = min(PAGE_BYTES * max(0, logged - done), CHECKPOINT_BYTES // 2)  # a reader may be in the way

    def _shorten(self, raw: sqlite3.Connection) -> None:
        self._wait_at_most(raw, 0)
        self._checkpoint(raw, "TRUNCATE")

    async def _tidy_when_idle(self) -> None:
        """Checkpoint once after each stretch of commits."""
        seen = tidied = 0
        while True:
            await asyncio.sleep(IDLE_S)
            if self._commits == seen and tidied != seen and self.failed is None and not self._busy:
                self._index_words(is_idle=True)
                self._go_on()
                with contextlib.suppress(MemoryEngineError):
                    await (self.shorten() if size_of(self._path + "-wal") > WAL_BYTES else self.checkpoint("PASSIVE"))
                tidied = seen = self._commits
            else:
                seen = self._commits
