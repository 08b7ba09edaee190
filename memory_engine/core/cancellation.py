"""Work that cancelling its caller does not stop, and work that nobody awaits."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def finished(work: Awaitable[T]) -> T:
    """Await work to its end, however often the caller is cancelled. Returns or raises what the work does.

    A cancelled caller gets its `CancelledError` once the work has ended, so that closing a file or waiting for a
    process is never left half done. `asyncio.shield` goes on with the work too, but lets its caller go before the end.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        observed(task)  # nobody else will look at it
        raise cancelled
    return task.result()


def observed(future: "asyncio.Future[T]") -> None:
    """Take note of what ended work raised, so that nobody is warned of it: a callback for work that none need await."""
    if not future.cancelled():
        future.exception()
