"""Kinds of threads: what is special about some of them."""

from collections.abc import Callable

import msgspec

from memory_engine.events.base import Event
from memory_engine.queue import Prepared


class ThreadKind(msgspec.Struct, frozen=True, kw_only=True):
    """What threads of one kind take, and how they are found.

    `check` raises `InvalidEvent` for an event that they do not take; `admit` does so for one with its envelope, and
    returns it as they keep it. Times are recorded to the `grain_us` (microseconds). Threads of a `pooled` kind are
    read on behalf of many tenants and belong to none: nothing in them says where it came from, and searches of a
    whole store leave them out.
    """

    name: str = ""
    check: Callable[[Event], None] | None = None
    admit: Callable[[Prepared], Prepared] | None = None
    grain_us: int = 1
    pooled: bool = False

    def recorded_us(self, now_us: int) -> int:
        """The time that is kept of a moment (both in microseconds since 1970)."""
        return now_us - now_us % self.grain_us


PLAIN = ThreadKind()
"""A kind about which nothing is special."""
