"""A compactor that does as it is told: returns lines, raises, hangs, or returns nonsense."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from attrs import frozen

from memory_engine.chunks import Chunk
from memory_engine.compaction.base import CompactionContext, CompactionResult
from memory_engine.events.base import SummaryLine


@frozen
class Returns:
    """A step that returns a value as it is, whatever its type."""

    value: object


@frozen
class Hangs:
    """A step that waits for `FakeCompactor.release` and then does as `then` says."""

    then: object = "done"


@frozen
class CompactorCall:
    """What a compactor was asked."""

    chunks: tuple[Chunk, ...]
    context: CompactionContext


class FakeCompactor:
    """Does one step of its script for each call; the last step is done again for every further one.

    A step is a text (one line that cites every chunk), `SummaryLine`s, an exception to raise,
    `Returns(anything)`, or `Hangs(then)`. `calls` records what it was asked, `begun` is set
    as soon as a call has begun, `cancelled` counts the calls that were cancelled while they hung.
    """

    def __init__(
        self, *script: object, name: str = "fake", takes: Callable[[Chunk], bool] = lambda _chunk: True
    ) -> None:
        self.name = name
        self.calls: list[CompactorCall] = []
        self.cancelled = 0
        self.begun = asyncio.Event()
        self._script = script or ("done",)
        self._takes = takes
        self._released = asyncio.Event()

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Whether `takes` holds for every chunk."""
        return all(map(self._takes, chunks))

    def release(self) -> None:
        """Let the call that hangs go on, and those that come later."""
        self._released.set()

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Do the next step."""
        self.calls.append(CompactorCall(tuple(chunks), context))
        self.begun.set()
        step = self._script[min(len(self.calls), len(self._script)) - 1]
        if isinstance(step, Hangs):
            try:
                await self._released.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            step = step.then
        return _result(step, chunks)


def _result(step: object, chunks: Sequence[Chunk]) -> CompactionResult:
    match step:
        case BaseException():
            raise step
        case Returns(value=value):
            return cast("CompactionResult", value)  # it may be none: a compactor that breaks its contract
        case str(text):
            sources = tuple(chunk.id for chunk in chunks)
            return CompactionResult(lines=(SummaryLine(section="current_state", text=text, sources=sources),))
        case SummaryLine():
            return CompactionResult(lines=(step,))
        case list() | tuple():
            return CompactionResult(lines=tuple(step))
    raise TypeError(f"a script holds texts, SummaryLines, exceptions, Returns and Hangs, not {step!r}")
