"""Connections to the server: few, made when they are needed, each used by one piece of work at a time.

Work runs in a task of the pool's own. If its caller is cancelled it runs to its end, so no connection is released in
the middle of a statement. One that comes back in any state but idle is thrown away.

A new connection costs more than most calls, and its session has yet to read what others know of the schema: who reads
waits a little for one that others are done with. Writers do not, as commits of several sessions are synced together.

A server may vanish without a word. Where a statement has had no answer for as long as a call waits, the server is asked
something else on a connection of its own; one that answers is waited for, else the connection is cut off.

The pool of asyncpg is not used: it sends a statement to reset the connection after each use, which doubles the cost of
a commit, and hands a cancellation on to the statement under way.
"""

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import asyncpg

from memory_engine.core.cancellation import observed
from memory_engine.errors import EngineClosed, MemoryEngineError, StorageUnreachable
from memory_engine.storage.postgres.address import Address
from memory_engine.storage.postgres.failures import (
    ERRORS,
    LOST,
    UNDECODABLE,
    FailureKind,
    is_of_a_statement,
    kind_of,
    storage_error,
    undecodable,
)

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]

TRIES_MAX = 10
"""Runs of a transaction that the server rolls back because of others."""
_PAUSE_FIRST_S = 0.01
_PAUSE_MAX_S = 0.5
_CONNECT_MIN_S = 2.0
_CONNECT_MAX_S = 10.0
"""A new connection takes at most as long as a call waits, within these."""
_SPARE_S = 0.005
"""How long a reader waits for a connection before it makes another."""
_WATCH_MIN_S = 0.05
_LOCAL = getattr(socket, "AF_UNIX", None)
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_IDLE_MS = 60_000
"""A transaction whose client says nothing for so long is ended: it may be cut off, and hold rows that others need."""


_KEPT_ALIVE = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPALIVE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
}
"""By the system's names: seconds of silence (twice), between two tries, tries, and ms without an acknowledgement."""


class OutcomeUnknown(Exception):
    """The connection was lost while a transaction was being committed. `__cause__` says how."""


class Pool:
    """Connections to one address. `run` and the like raise the store's errors, `EngineClosed` after `close`."""

    def __init__(self, address: Address, busy_timeout_s: float) -> None:
        self.address = address
        self.busy_timeout_s = busy_timeout_s = busy_timeout_s if address.wait_s is None else address.wait_s
        # one message of the protocol, and so one round trip
        self._write = (
            "BEGIN ISOLATION LEVEL READ COMMITTED; "
            f"SET LOCAL lock_timeout = {max(1, int(busy_timeout_s * 1000))}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {_IDLE_MS}"
        )
        self._connect_s = min(_CONNECT_MAX_S, max(_CONNECT_MIN_S, busy_timeout_s))
        self._free: list[Connection] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._open: set[Connection] = set()
        self._room = asyncio.Semaphore(address.connections)
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        """Run one statement that reads. Run again where the connection is lost."""
        return await self._own(self._repeated(self._single(work), is_patient=True))

    async def read_all(self, work: Work[T]) -> T:
        """Run several statements that read, of one moment. Run again where the connection is lost."""
        return await self._own(
            self._repeated(lambda connection: _in_transaction(connection, _READ, work), is_patient=True)
        )

    async def write(self, work: Work[T], *, is_repeatable: bool = True) -> T:
        """Run a transaction of the work's own statements; it is rolled back if they raise.

        Where its outcome is lost with the connection it runs again if it is repeatable, else `StorageUnreachable` is
        raised, which says so.
        """
        return await self._own(
            self._repeated(lambda c: _in_transaction(c, self._write, work), is_repeatable=is_repeatable)
        )

    async def bare(self, work: Work[T]) -> T:
        """Run one statement that no transaction may hold."""
        return await self._own(self._repeated(work))

    async def call(self, work: Work[T]) -> T:
        """Run one statement that writes, once, in the caller's own task, which must not be cancelled (see `spawn`).

        Raises `OutcomeUnknown` where the connection is lost, the driver's error where the server refuses it.
        """
        return await self._called(work)

    async def together(self, connection: Connection, work: Work[T]) -> T:
        """Run the statements of a call in one transaction, unless they are in one already."""
        return await (
            work(connection) if connection.is_in_transaction() else _in_transaction(connection, self._write, work)
        )

    def spawn(self, work: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        """A task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(observed)
        return task

    async def _own(self, work: Coroutine[object, object, T]) -> T:
        return await asyncio.shield(self.spawn(work))

    def _single(self, work: Work[T]) -> Work[T]:
        """One statement; in a transaction of its own where statements are not prepared (see `Address`)."""
        return work if self.address.prepared else lambda connection: _in_transaction(connection, self._write, work)

    async def _called(self, work: Work[T]) -> T:
        connection = await self._taken()
        try:
            result = await self._answered(self._single(work), connection)
        except OutcomeUnknown:
            self._let_go(connection, is_clean=False)
            raise
        except BaseException as error:  # after any error the connection goes back, or away; it goes on to the caller
            self._let_go(connection, is_clean=is_of_a_statement(error))
            if isinstance(error, Exception) and kind_of(error) is FailureKind.AWAY:
                raise OutcomeUnknown from error
            raise
        self._let_go(connection, is_clean=True)
        return result

    async def _repeated(self, work: Work[T], *, is_repeatable: bool = True, is_patient: bool = False) -> T:
        """Run work, again where the server is away for less than the timeout or others were in its way."""
        loop = asyncio.get_running_loop()
        began, tries = loop.time(), 0
        while True:
            tries += 1
            try:
                connection = await self._taken(is_patient=is_patient)
                try:
                    result = await self._answered(work, connection)
                except BaseException as error:  # it goes back, or away, whatever it was; the error goes on
                    self._let_go(connection, is_clean=is_of_a_statement(error))
                    raise
                self._let_go(connection, is_clean=True)
                return result
            except OutcomeUnknown as lost:
                if not is_repeatable or loop.time() > began + self.busy_timeout_s:
                    raise self.unreachable(began, lost.__cause__ or lost, is_unknown=True) from lost
            except MemoryEngineError:
                raise
            except UNDECODABLE as error:
                raise undecodable(self.address, error) from error
            except ERRORS as error:
                kind = kind_of(error)
                if kind is FailureKind.AWAY and loop.time() > began + self.busy_timeout_s:
                    raise self.unreachable(began, error) from error
                if kind is FailureKind.OTHER or (kind is FailureKind.AGAIN and tries >= TRIES_MAX):
                    raise storage_error(self.address, error, loop.time() - began) from error
            await asyncio.sleep(pause_s(tries))

    async def _answered(self, work: Work[T], connection: Connection) -> T:
        """Run work; where the server is silent, its connection is cut off."""
        watch = _Watch(connection, self)
        try:
            return await work(connection)
        finally:
            watch.end()

    async def answers(self) -> bool:
        """Whether the server says anything."""
        try:
            async with asyncio.timeout(self._connect_s):
                connection = await connect(self.address, self._connect_s)
                try:
                    await connection.execute("SELECT 1")
                finally:
                    connection.terminate()
        except asyncpg.PostgresError:  # also that it has no connection left
            return True
        except LOST:
            return False
        return True

    def unreachable(self, began: float, error: BaseException, *, is_unknown: bool = False) -> StorageUnreachable:
        """The error for a server that has been away since a time of the loop's."""
        waited = asyncio.get_running_loop().time() - began
        why = self.address.redacted(str(error).partition("\n")[0] or type(error).__name__)
        return StorageUnreachable(self.address.shown, waited, why, is_unknown)

    async def _taken(self, *, is_patient: bool = False) -> Connection:
        """A connection that is idle, made where none is; a patient caller waits for one first."""
        if self._closed:
            raise EngineClosed
        await self._room.acquire()
        try:
            if is_patient and self._open and not self._free:
                await self._spare()
            while self._free:
                connection = self._free.pop()
                if not connection.is_closed():
                    return connection
                self._open.discard(connection)
            connection = await connect(self.address, self._connect_s)
            self._open.add(connection)
        except BaseException:  # whatever it was, there is room again; it goes on to the caller
            self._room.release()
            raise
        return connection

    async def _spare(self) -> None:
        """Wait until a connection may be free."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_later(_SPARE_S, _wake, waiter)
        await waiter
        timer.cancel()

    def _let_go(self, connection: Connection, *, is_clean: bool) -> None:
        if is_clean and not connection.is_closed() and not connection.is_in_transaction():
            self._free.append(connection)
            while self._waiting:  # the latest first: what an engine reads for itself at its opening came before
                waiter = self._waiting.pop()
                if not waiter.done():
                    waiter.set_result(None)
                    break
        else:  # what cut this one off, or made the server one that only reads, has come over the idle ones too
            for one in (connection, *self._free):
                self._open.discard(one)
                one.terminate()
            self._free.clear()
        self._room.release()

    def give_up(self) -> None:
        """Let go of every connection of an event loop that has ended, and of the work on them."""
        self._closed = True
        self._tasks.clear()
        while self._open:
            with suppress(RuntimeError):  # the loop is closed: the server notices by itself
                self._open.pop().terminate()
        self._free.clear()

    async def close(self) -> None:
        """Wait for the work under way, then close every connection."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        self._closed = True
        while self._open:
            connection = self._open.pop()
            try:
                await connection.close(timeout=self.busy_timeout_s)
            except (*ERRORS, TimeoutError):
                connection.terminate()
        self._free.clear()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Watch:
    """Looks after a connection that waits for an answer, until `end`. It costs a timer, and a task once it is late."""

    def __init__(self, connection: Connection, pool: Pool) -> None:
        self._connection = connection
        self._pool = pool
        self._task: asyncio.Task[None] | None = None
        self._timer = self._begun()

    def _begun(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(_WATCH_MIN_S, self._pool.busy_timeout_s), self._late)

    def _late(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._looked())
        self._task.add_done_callback(observed)

    async def _looked(self) -> None:
        if await self._pool.answers():
            self._timer = self._begun()
        else:
            self._connection.terminate()

    def end(self) -> None:
        """The answer has come."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


async def connect(address: Address, timeout_s: float) -> Connection:
    """A new connection. Raises the driver's errors, without a password."""
    connection = await asyncpg.connect(
        address.dsn,
        timeout=timeout_s,
        statement_cache_size=100 if address.prepared else 0,
        max_cacheable_statement_size=0,
    )
    # the driver sets no such option, and has no other way to its socket
    found = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    if found is not None and found.family != _LOCAL:
        keep_alive(found)
    return connection


def keep_alive(connected: socket.socket) -> None:
    """Let the system find out that a connection's other end is gone, also while nothing is sent."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEPT_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def pause_s(tries: int) -> float:
    """Seconds to wait before the next try: twice as long each time, and not the same for all who wait."""
    return min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2.0 ** min(tries, 10)) * random.uniform(0.5, 1.0)


async def _in_transaction(connection: Connection, begin: str, work: Work[T]) -> T:
    """Run work between BEGIN and COMMIT; rolled back if it raises."""
    await connection.execute(begin)
    try:
        result = await work(connection)
    except BaseException:  # after any error nothing stays open; it goes on to the caller
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    try:
        await connection.execute("COMMIT")
    except ERRORS as error:
        if kind_of(error) is FailureKind.AWAY and begin != _READ:
            raise OutcomeUnknown from error
        raise
    return result
