"""Calls that are cancelled at each of their awaits.

A moment is a place in a call: which of its awaits it is suspended at, and how many callbacks the loop has run since,
for the call or for anybody who works for it. Neither time nor an idle round of the loop counts, so that a sweep meets
the same moments on a slow machine and on a fast one, and ends when the call does.
"""

import asyncio
import fcntl
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import Context
from pathlib import Path
from unittest.mock import patch

import anyio
import pytest

from tests.depth import DEEP

Call = Callable[[], Coroutine[object, object, object]]


class Moment:
    """When to cancel a call: at its `awaits`-th await (0: before it begins), after `steps` callbacks of the loop.

    Where the call goes on to its next await before that, it is cancelled there. Once the call is over, the two say
    where it was cancelled, and `untouched` whether it came to its end before.
    """

    def __init__(self, awaits: int, steps: int) -> None:
        self.awaits = awaits
        self.steps = steps
        self.untouched = False
        self._is_over = False

    def __repr__(self) -> str:
        return f"{self.awaits}/{self.steps}"

    async def run(self, call: Call) -> None:
        """Make the call, and count its awaits."""
        try:
            await _Watched(call(), self._suspended)
        finally:
            self.untouched, self._is_over = not self._is_over, True

    @contextmanager
    def triggers(self, action: Callable[[], object]) -> Iterator[None]:
        """Within the block, do this when the moment has come: between two callbacks of the loop, in no task."""
        loop = asyncio.get_running_loop()
        wanted, self.awaits, self.steps = (self.awaits, self.steps), 0, 0

        def look() -> None:
            if not self._is_over and (self.awaits, self.steps) >= wanted:
                self._is_over = True
                action()

        def run(callback: Callable[..., object], *args: object) -> None:
            callback(*args)
            self.steps += not self._is_over
            look()

        def counted(schedule: Callable[..., asyncio.Handle]) -> Callable[..., asyncio.Handle]:
            def call_soon(
                callback: Callable[..., object], *args: object, context: Context | None = None
            ) -> asyncio.Handle:
                return schedule(run, callback, *args, context=context)

            return call_soon

        look()
        with (
            patch.object(loop, "call_soon", counted(loop.call_soon)),
            patch.object(loop, "call_soon_threadsafe", counted(loop.call_soon_threadsafe)),
        ):
            yield

    def _suspended(self) -> None:
        if not self._is_over:
            self.awaits, self.steps = self.awaits + 1, -1  # the callback that runs the call is still to be counted


class _Watched(Generator[object, None, object]):
    """A coroutine that tells whenever it is suspended."""

    def __init__(self, call: Coroutine[object, object, object], suspended: Callable[[], None]) -> None:
        self._call = call
        self._suspended = suspended

    def __await__(self) -> Generator[object, None, object]:
        return self

    def send(self, value: None) -> object:
        """Go on with the call, to its next await."""
        awaited = self._call.send(value)
        self._suspended()
        return awaited

    def throw(self, thrown: type[BaseException] | BaseException, *_rest: object) -> object:
        """Raise in the call, which may go on to another await. An await gives the exception alone."""
        awaited = self._call.throw(thrown)
        self._suspended()
        return awaited


GROWTH = 0.0 if DEEP else 0.5
"""How much longer steps within one await become: none is left out in a deep run."""


def moments(*, growth: float = GROWTH) -> Iterator[Moment]:
    """The moments of a call, which is made and cancelled at each, until it comes to its end before.

    Each await has its moments, those within one are further and further apart: with `growth`, steps become longer by
    this share of those before. More for a call that waits long for work which cancelling it does not touch.
    """
    yield (moment := Moment(0, 0))
    while not moment.untouched:
        yield (moment := Moment(moment.awaits, moment.steps + 1 + int(moment.steps * growth)))


@contextmanager
def busy_loop() -> Iterator[None]:
    """Within the block the loop has work, so that the moments of a call come that waits for whoever comes after it."""
    loop = asyncio.get_running_loop()
    is_wanted = True

    def work() -> None:
        if is_wanted:
            loop.call_soon(work)

    work()
    try:
        yield
    finally:
        is_wanted = False


Cancelled = Callable[[Call, Moment], Awaitable[None]]
"""Makes a call and cancels it at a moment."""


async def by_task(call: Call, moment: Moment) -> None:
    """The way of asyncio, of timeouts and of most frameworks."""
    task = asyncio.ensure_future(moment.run(call))
    with moment.triggers(task.cancel), suppress(asyncio.CancelledError):
        await task


async def by_scope(call: Call, moment: Moment) -> None:
    """The way of anyio: cancelled again at each await until the scope is left."""
    with moment.triggers((scope := anyio.CancelScope()).cancel):

        async def inside() -> None:
            with scope:
                await moment.run(call)

        await asyncio.ensure_future(inside())


async def by_task_twice(call: Call, moment: Moment) -> None:
    """Somebody who cannot wait: cancelled again in the round after."""
    task = asyncio.ensure_future(moment.run(call))

    def twice() -> None:
        task.cancel()
        asyncio.get_running_loop().call_soon(task.cancel)

    with moment.triggers(twice), suppress(asyncio.CancelledError):
        await task


WAYS = pytest.mark.parametrize("cancelled", [by_task, by_scope, by_task_twice])


def assert_nobody_writes(path: str) -> None:
    """No transaction is open on the file, and no lock is kept beyond the end of a commit under way."""
    with Path(path + ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one that is never let go of ends the test by its timeout
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
