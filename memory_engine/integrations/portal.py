"""A memory for programs without an event loop: the engine lives in a loop of its own, in a thread of its own."""

import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

T = TypeVar("T")


class Portal:
    """An event loop in a thread. Callable from any other thread; ends with `close`, or with the program."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._portal: BlockingPortal = self._stack.enter_context(start_blocking_portal())
        self._end = weakref.finalize(self, self._stack.close)

    def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter an asynchronous context manager; it is left when the portal closes, the last one first."""
        return self._stack.enter_context(self._portal.wrap_async_context_manager(manager))

    def call(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Call a coroutine function in the loop, and wait for its result. Raises what it raises."""

        async def awaited() -> T:
            return await function(*arguments)

        return self._portal.call(awaited)

    def close(self) -> None:
        """Leave what was entered and end the loop. A second call does nothing."""
        self._end()
