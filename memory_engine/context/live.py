"""Contexts of the newest state of a thread: a large one is read once, and then only what was added to it."""

from collections.abc import Callable
from typing import TypeVar

from memory_engine.context.builder import ChunkSource, ContextBuilder, Indexed
from memory_engine.context.flow import WalksFarError
from memory_engine.context.flow_index import FlowIndex
from memory_engine.core.aside import AT_ONCE_MAX, aside
from memory_engine.core.state import State
from memory_engine.runtime.kernel import Kernel

T = TypeVar("T")

INDEXES_MAX = 64
"""The threads with large states of which so much is kept."""


async def over_newest(kernel: Kernel, thread_id: str, state: State, work: Callable[[ChunkSource], T]) -> T:
    """The result of pure work on the chunks of a thread's newest state; beside the loop where it has much to read."""
    if state.tally.chunks <= AT_ONCE_MAX:
        return work(state)
    index = kernel.caches.made(thread_id, "flow", kernel[ContextBuilder].index, at_most=INDEXES_MAX)
    if index.lock.acquire(blocking=False):
        try:
            index.windows.only_near = True
            if index.is_near(state):
                return work(Indexed(state, index))
        except WalksFarError:  # the first context of this room
            pass
        finally:
            index.windows.only_near = False
            index.lock.release()
    return await aside(lambda: _alone(index, state, work), items=state.tally.chunks)


def _alone(index: FlowIndex, state: State, work: Callable[[ChunkSource], T]) -> T:
    with index.lock:
        return work(Indexed(state, index))
