"""What belongs to one event loop, in an engine that may outlive it."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


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
