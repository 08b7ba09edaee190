"""The background tasks of an engine: it owns them, logs how they fail, and ends with them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from memory_engine.core.loops import IDLE

_log = logging.getLogger("memory_engine")

PAUSED_S = 0.1
"""Seconds between looks of a closing engine at whether the tasks it waits for wait for a pause to end."""


class Tasks:
    """Tasks that outlive the calls that started them.

    `closing`: the engine takes nothing new. `closed`: it commits nothing any more.
    """

    def __init__(self) -> None:
        self.closing = False
        self.closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._endless: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[object, object, None], *, until_close: bool = False) -> asyncio.Task[None]:
        """Run in a task of the engine; errors are logged.

        When the engine closes it waits for the task's end, and with `until_close` cancels it first.
        """
        task = asyncio.get_running_loop().create_task(work, name=IDLE if until_close else None)
        self._tasks.add(task)
        if until_close:
            self._endless.add(task)
        task.add_done_callback(self._done)
        return task

    async def end(self, each_round: Callable[[], None]) -> None:
        """Cancel the tasks that run until the engine closes, and wait for all others; `each_round` helps them end."""
        await asyncio.sleep(0)  # one that is cancelled before it begins does not even clean up
        for task in self._endless:
            task.cancel()
        while self._tasks:
            each_round()
            await asyncio.wait(self._tasks, timeout=PAUSED_S)

    async def wait(self) -> None:
        """Wait until no task is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def moved(self) -> None:
        """Wait for no task of an event loop that has ended."""
        self._tasks.clear()
        self._endless.clear()

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._endless.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task of the engine failed", exc_info=error)
