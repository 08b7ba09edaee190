"""The event loop that an adapter's engine lives on, reached from any other."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class HomeLoop:
    """The loop that this is made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def run(self, work: "Coroutine[Any, Any, T]") -> T:
        """Await work on that loop, whichever loop this is called on. Raises what it raises."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
