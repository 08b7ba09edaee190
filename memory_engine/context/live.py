"""Contexts of a thread's newest state: a large state is read once, and afterwards only what was added to it."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from memory_engine.context.builder import ContextBuilder, summaries_of
from memory_engine.context.choice import HeldWindow
from memory_engine.context.context import Context
from memory_engine.context.covered import Covered
from memory_engine.context.flow_index import FlowIndex
from memory_engine.context.sources import ChunkSource, Indexed
from memory_engine.core.aside import AT_ONCE_MAX, aside
from memory_engine.core.state import State
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel

T = TypeVar("T")

INDEXES_MAX = 64
"""Maximum number of threads with large states whose index is kept."""


async def over_newest(kernel: Kernel, thread_id: str, state: State, work: Callable[[ChunkSource], T]) -> T:
    """Run pure work on the chunks of a thread's newest state, off the event loop if there is much to read."""
    if state.tally.chunks <= AT_ONCE_MAX:
        return work(state)
    index = kernel.caches.made(thread_id, "flow", kernel[ContextBuilder].index, at_most=INDEXES_MAX)
    if index.lock.acquire(blocking=False):
        try:
            if index.is_near(state):
                return work(Indexed(state, index))
        finally:
            index.lock.release()
    return await aside(lambda: _with_index(index, state, work), items=state.tally.chunks)


def _with_index(index: FlowIndex, state: State, work: Callable[[ChunkSource], T]) -> T:
    with index.lock:
        return work(Indexed(state, index))


class LoopWindow(msgspec.Struct):
    """State that the contexts of a loop pass from one to the next, while the loop asks for the same budget."""

    asked: object
    kept: HeldWindow | None = None

    @classmethod
    def of(cls, kernel: Kernel, thread_id: str, asked: object) -> "LoopWindow":
        """Return the window of a thread, or a new one if something else was asked for before."""
        found = kernel.caches.get(thread_id, "window", cls)
        if found is None or found.asked != asked:
            found = cls(asked)
            kernel.caches.put(thread_id, "window", found)
        return found

    def keeping(self, made: Context) -> Context:
        """Store what a context keeps, and return the context."""
        self.kept = made.kept
        return made


async def covered_originals(
    thread: ThreadHandle, state: State, max_tokens: int | None, *, at: int | None
) -> Covered | None:
    """Return the originals behind the summaries of a state, as many as its own turns leave room for.

    `None` if there are no summaries or no room. The originals of the newest state are cached until something is
    forgotten.
    """
    if max_tokens is None:
        return None
    kernel = thread.kernel
    if at is None and state.tally.chunks > AT_ONCE_MAX:
        summaries, tokens = await over_newest(kernel, thread.id, state, kernel[ContextBuilder].summaries)
    else:
        summaries, tokens = await aside(lambda: summaries_of(state.chunks()), items=state.tally.chunks)
    if not summaries or tokens > 2 * max_tokens:  # estimates, which may be twice the real count
        return None
    ids = tuple(summary.id for summary in summaries)
    known = kernel.caches.get(thread.id, "covered", Covered) if at is None else None
    covered = known if known is not None and known.summaries == ids else Covered.of(summaries)
    await covered.read(kernel.reader, thread.id, max_tokens)
    if at is None:
        kernel.caches.put(thread.id, "covered", covered)
    return covered
