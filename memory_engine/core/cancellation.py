"""Work that cancelling its caller does not stop, and work that nobody awaits."""

import asyncio
import sys
from collections.abc import Awaitable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeVar

T = TypeVar("T")


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
        observed(task)  # nobody else will look at it
        raise
    return task.result()


def _left_alone() -> AbstractContextManager[object]:
    """A block in which scopes of anyio do not cancel: they do so in every round of the loop, which would never rest."""
    if "anyio" not in sys.modules:  # then the caller has none
        return nullcontext()
    from anyio import CancelScope

    return CancelScope(shield=True)


def observed(future: "asyncio.Future[T]") -> None:
    """Take note of what ended work raised, so that nobody is warned of it: a callback for work that none need await."""
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
