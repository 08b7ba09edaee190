"""Long work in a separate thread, so that the event loop serves others meanwhile.

The threads are daemons: a process that ends does not wait for an answer without a reader.
"""

import asyncio
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import TypeVar

from memory_engine.runtime.kernel import Kernel

T = TypeVar("T")


async def beside(work: Callable[[], T]) -> T:
    """Do long work that shares no mutable state. Cancelling the caller does not stop the work."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # it is a T then

    def run() -> None:
        result, raised = None, None
        try:
            result = work()
        except BaseException as error:  # any error goes to the caller that waits for the work
            raised = error
        with suppress(RuntimeError):  # the loop is closed: no one waits any more
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=run, name="memory-engine-inspector", daemon=True).start()
    return await done


async def apart(kernel: Kernel, work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Do work that awaits the engine, and only reads, in a separate loop. Cancelling the caller cancels it.

    If the engine may write, its writer and caches belong to this loop, and so do connections
    to a server: then the work runs here.
    """
    if not kernel.config.read_only or kernel.store.is_of_one_loop:
        return await work()
    given_up = threading.Event()

    async def body() -> T:
        return await _until(given_up, work())

    try:
        return await beside(lambda: asyncio.run(body()))
    except asyncio.CancelledError:
        given_up.set()
        raise


@types.coroutine
def _until(given_up: threading.Event, work: Coroutine[object, object, T]) -> Generator[object, object, T]:
    """Await work; if its caller is cancelled, cancel it, but never in the middle of one of its awaits.

    A connection reports to the loop when a read has ended: a loop that was closed before would end the
    connection's thread, and every later read on it would wait forever.
    """
    error: BaseException | None = None
    told = False
    while True:
        if error is None and given_up.is_set() and not told:
            told, error = True, asyncio.CancelledError()
        try:
            awaited = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        error = None
        try:
            yield awaited
        except BaseException as raised:  # any error is passed into the work
            error = raised
