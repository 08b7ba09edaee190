"""State that belongs to one event loop, in an engine that may outlive it."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from memory_engine.errors import WrongEventLoop

T = TypeVar("T")

IDLE = "memory_engine: idle"
"""The name of tasks that may stay behind in a loop that has ended: they hold nothing, and the next loop has its own."""


class Home:
    """The event loop that an engine lives on: the one that it was opened on. Once that has ended, the next that calls.

    What waits on one loop cannot be woken from another, so there is one at a time. `is_fixed`: it never moves, as
    connections to a server cannot. `is_shared`: any loop may call, since the engine only reads. The functions of
    `moved` are called after each move.
    """

    def __init__(self, *, is_fixed: bool = False, is_shared: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.moved: list[Callable[[], None]] = []
        self._is_fixed = is_fixed
        self._is_shared = is_shared
        self._moving = threading.Lock()

    def entered(self) -> asyncio.AbstractEventLoop:
        """The running loop, which is the engine's from now on.

        Raises `WrongEventLoop` if the one before runs, or has stopped with calls under way.
        """
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            self._enter(loop)
        return loop

    def look(self) -> None:
        """The same for callers on another thread than before, which need not have a loop: then they cannot wait."""
        with suppress(RuntimeError):
            self.entered()

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._moving:
            if loop is self.loop or self._is_shared:
                return
            if self.loop.is_running() or self._is_fixed or _is_at_work(self.loop):
                raise WrongEventLoop(repr(self.loop), is_running=self.loop.is_running())
            self._move(loop)

    def leave_behind(self) -> bool:
        """Move to the running loop whatever is under way on the one before, to close the engine; whether it moved.

        Raises `WrongEventLoop` if the one before runs.
        """
        loop = asyncio.get_running_loop()
        with self._moving:
            if loop is self.loop or self._is_shared:
                return False
            if self.loop.is_running():
                raise WrongEventLoop(repr(self.loop), is_running=True)
            self._move(loop)
            return True

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.thread = loop, threading.get_ident()
        for told in self.moved:
            told()


def _is_at_work(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a task waits in a loop that does not run."""
    return any(task.get_name() != IDLE for task in asyncio.all_tasks(loop))


class OfLoop(Generic[T]):
    """A value for each event loop that uses it: a lock that was waited for in one serves no other.

    Loops may run at the same time, in threads of their own: each finds its own value again. It is of no use to keep
    threads from one another.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    @property
    def here(self) -> T:
        """The value of the running loop."""
        loop = asyncio.get_running_loop()
        value = self._made.get(loop)
        if value is None:
            for ended in [other for other in self._made if other.is_closed()]:
                del self._made[ended]
            value = self._made[loop] = self._make()
        return value
