"""An engine's own event loop, for calls that come from other loops and from threads without one."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class HomeLoop:
    """The loop that the engine was opened on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, for a caller on another thread.

        Raises `RuntimeError` on the loop itself, since it would wait for itself.
        """
        if _running_loop() is self._loop:
            work.close()
            raise RuntimeError("this call waits for the event loop that it is made on: await its twin (`aput`, …)")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The same, for a caller on any loop."""
        if _running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
