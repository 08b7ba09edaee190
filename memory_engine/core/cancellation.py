"""Work that cancelling its caller does not stop, the results of such work, and work without a waiter."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from math import inf
from typing import Generic, Protocol, TypeVar, cast

from memory_engine.errors import CallTimedOut

T = TypeVar("T")

GRACE_S = 0.5
"""Seconds that work which is cancelled has to end."""


class TookTooLong(TimeoutError):
    """Somebody else's work did not end in its time: not a `TimeoutError` of its own."""


class Closing(Protocol):
    """Something with a handle: a file, a connection, a process."""

    def close(self) -> object:
        """Let go of it. Closing it again does nothing."""
        ...


C = TypeVar("C", bound=Closing)


async def finished(work: Awaitable[T]) -> T:
    """Await work to its end, however often the caller is cancelled. Returns or raises what the work does.

    A cancelled caller gets its `CancelledError` once the work has ended, so that closing a file or waiting for a
    process is never left half done. `asyncio.shield` goes on with the work too, but lets its caller go before the end.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        with _left_alone():
            while not task.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task])
        observed(task)  # no one else will look at it
        raise
    return task.result()


async def in_time(work: Awaitable[T], timeout_s: float = inf) -> T:
    """Await another's work, which may ignore its cancellation: then it is left running.

    Raises `TookTooLong` after `timeout_s` seconds, and what the work raises.
    """
    working = asyncio.ensure_future(work)
    working.add_done_callback(observed)
    try:
        await asyncio.wait([working], timeout=None if timeout_s == inf else max(0.0, timeout_s))
    finally:
        is_late = not working.done()
        if is_late and working.cancel():
            await asyncio.wait([working], timeout=GRACE_S)  # whatever it has to put away comes first
    if is_late:
        raise TookTooLong
    if working.cancelled():
        raise RuntimeError("it was cancelled from within")
    return working.result()


def _left_alone() -> AbstractContextManager[object]:
    """A block in which scopes of anyio do not cancel: they do so in every round of the loop, which would never rest."""
    if "anyio" not in sys.modules:  # then the caller has none
        return nullcontext()
    from anyio import CancelScope

    return CancelScope(shield=True)


async def kept_time(what: str, work: Awaitable[T], timeout_s: float) -> T:
    """The same for work that has no stand-in: raises `CallTimedOut`, which names it, where it is late."""
    try:
        return await in_time(work, timeout_s)
    except TookTooLong:
        raise CallTimedOut(what, timeout_s) from None


class Made(Generic[C]):
    """A block that owns what another thread makes for it: `put` there, `taken` here, closed at the end of the block.

    A caller that is cancelled leaves its block while that thread still works, and so does one whose event loop ends.
    What is put after that is closed at once.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._made: C | None = None
        self._is_left = False

    def __enter__(self) -> "Made[C]":
        return self

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._is_left = True
            made, self._made = self._made, None
        if made is not None:
            made.close()

    def put(self, made: C) -> None:
        """Give it to the block. One a block."""
        with self._changing:
            if not self._is_left:
                self._made = made
                return
        made.close()

    async def beside(self, make: Callable[[], C]) -> C:
        """Have a worker thread make it."""
        await asyncio.to_thread(lambda: self.put(make()))
        return self.taken

    @property
    def taken(self) -> C:
        """The value, once its producer has ended."""
        assert self._made is not None, "nothing was put"
        return self._made


def observed(future: "asyncio.Future[T]") -> None:
    """Retrieve the exception of ended work, so that Python does not warn: a callback for work without a waiter."""
    if not future.cancelled():
        future.exception()


def fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    """End a future with an error, unless it has ended."""
    if future.done():
        return
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(error)


def settle(future: "asyncio.Future[T]", outcome: object) -> None:
    """Answer whoever still waits, with an error or a result."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(cast("T", outcome))


def settle_all(batch: Sequence[tuple[object, "asyncio.Future[None]"]], outcome: object) -> None:
    """Answer each with its own error or `None` of a list, or all with the one error that there is."""
    outcomes = outcome if isinstance(outcome, list) else [outcome] * len(batch)
    for (_, future), one in zip(batch, outcomes, strict=True):
        settle(future, one)
