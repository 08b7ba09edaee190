"""Work on the event loop in slices, so that whatever else waits there waits for no more than a moment.

A worker thread would do worse: while it computes, the interpreter's lock goes round between the two in turns of five
milliseconds, and each wake-up of the loop waits for one.
"""

import asyncio
from asyncio import AbstractEventLoop, Lock
from collections.abc import Generator
from time import perf_counter
from typing import TypeAlias, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work that may rest at each of its steps, which take well under a millisecond."""
SLICE_S = 0.000_2
"""Seconds of work at a time while the loop has little else to do."""
SLICE_S_MAX = 0.002
SHARE = 0.5
"""Under load a slice takes this share of what everything else took since the last one: work never starves."""
TURN_SLICES = 64
"""Slices after which other work of the same loop has its turn: nearly all is done by then."""
_TURNS: WeakKeyDictionary[AbstractEventLoop, Lock] = WeakKeyDictionary()


def finish(steps: Steps[T]) -> T:
    """Do all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


async def in_slices(steps: Steps[T]) -> T:
    """Do the steps on the event loop, a slice at a time, one such work after the other. Raises what they raise."""
    turn = _TURNS.setdefault(asyncio.get_running_loop(), Lock())
    slice_s = SLICE_S
    while True:
        async with turn:
            for _ in range(TURN_SLICES):
                until = perf_counter() + slice_s
                try:
                    while perf_counter() < until:
                        next(steps)
                except StopIteration as done:
                    result: T = done.value
                    return result
                left = perf_counter()
                await asyncio.sleep(0)
                slice_s = min(max((perf_counter() - left) * SHARE, SLICE_S), SLICE_S_MAX)
