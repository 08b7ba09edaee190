"""Pure work on much data, in a thread of its own."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TypeVar

from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.lazy import loaded
from memory_engine.core.persistent import SequenceDraft
from memory_engine.core.state import Placed, State

T = TypeVar("T")

AT_ONCE_MAX = 200
"""Chunks, or rows, of which work on the loop's own thread takes a few milliseconds at most."""
_SWITCH_S = 0.0005


async def aside(work: Callable[[], T], *, items: int) -> T:
    """The result of pure work on a number of items: at once for few, else from another thread.

    Cancelling the caller does not stop the work; its result is dropped then.
    """
    return work() if items <= AT_ONCE_MAX else await on_thread(work)


async def on_thread(work: Callable[[], T]) -> T:
    """The result of another thread's work, which yields to the loop. Raises `CodeNotLoaded` without descriptors."""
    loaded("concurrent.futures.thread")  # the loop imports it for its first thread, and would raise an `OSError`
    return await asyncio.to_thread(given_way, work)


def freed(states: Iterable[State]) -> None:
    """Have another thread free the chunks of large states, a block at a time: theirs may be the last to hold them."""
    parts = [state.top.draft() for state in states if state.tally.chunks > AT_ONCE_MAX]
    if parts:
        asyncio.get_running_loop().run_in_executor(None, given_way, partial(_let_go, parts))


def _let_go(parts: Iterable[SequenceDraft[Placed]]) -> None:
    for part in parts:
        part.let_go()


async def imported(*modules: ModuleType) -> None:
    """Import the module of each `lazy_module`: a first use reads code for 10 to 30 milliseconds."""
    missing = [module.__name__ for module in modules if module.__name__ not in sys.modules]
    if missing:
        await on_thread(partial(_load, missing))


def _load(names: Iterable[str]) -> None:
    for name in names:
        loaded(name)


async def classes_imported(registry: EventRegistry, types: Iterable[str]) -> None:
    """Import the classes of those of these event types that the process has not used yet."""
    if awaited := registry.awaited(types):
        await on_thread(partial(registry.load, awaited))


class _GivingWay:
    """A block in which other threads of the process have the interpreter at once while this one computes.

    A thread that wants it waits five milliseconds as a rule, each time again; a commit wants it a dozen times. The
    interval is the interpreter's own: it is as before once no such block is left in the process.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._blocks = 0
        self._usual_s = 0.0

    def __enter__(self) -> None:
        with self._changing:
            self._blocks += 1
            if self._blocks == 1:
                self._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual_s, _SWITCH_S))

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._blocks -= 1
            if self._blocks == 0:
                sys.setswitchinterval(self._usual_s)


giving_way = _GivingWay()


def given_way(work: Callable[[], T]) -> T:
    """The result of work on a thread of its own, which yields to the others."""
    with giving_way:
        return work()


@contextmanager
def modules_spared() -> Iterator[None]:
    """Keep the garbage collector off the objects that exist when the block begins, in a program of this package.

    A full one looks at every object of every module, tens of thousands, while the loop is blocked.
    """
    is_spared = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        yield
    finally:
        if not is_spared:
            gc.unfreeze()
