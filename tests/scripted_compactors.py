"""Compactors that do as they are told: for tests of what an engine makes of them."""

import asyncio
from collections.abc import Callable, Sequence

from memory_engine import Chunk, CompactionContext, CompactionResult
from memory_engine.events import SummaryLine

Answer = Callable[[Sequence[Chunk], CompactionContext], CompactionResult]


def summary(text: str, *sources: str, section: str = "current_state") -> CompactionResult:
    """A summary of one line."""
    return CompactionResult(lines=(SummaryLine(section=section, text=text, sources=sources),))


def a_line(chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
    """One short line that cites every chunk."""
    return summary(f"{len(chunks)} in short", *(chunk.id for chunk in chunks))


def a_line_each(chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
    """For every chunk a line with its first word that cites it."""
    lines = [
        SummaryLine(section="key_information", text=c.text.partition(" ")[0] or "-", sources=(c.id,)) for c in chunks
    ]
    return CompactionResult(lines=tuple(lines))


def raises(error: Exception) -> Answer:
    """An answer that is none."""

    def answer(_chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
        raise error

    return answer


class Scripted:
    """Answers at once with what `answer` makes, for the chunks that `takes` names; keeps what it was given."""

    def __init__(
        self, answer: Answer = a_line, *, name: str = "scripted", takes: Callable[[Chunk], bool] | None = None
    ) -> None:
        self.name = name
        self._answer = answer
        self._takes = takes
        self.given: list[tuple[Chunk, ...]] = []
        self.contexts: list[CompactionContext] = []

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Whether `takes` names every one of them."""
        return self._takes is None or all(map(self._takes, chunks))

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """The answer."""
        self.given.append(tuple(chunks))
        self.contexts.append(context)
        return self._answer(chunks, context)


class Held(Scripted):
    """Waits inside every call until the test lets it go on."""

    def __init__(self, answer: Answer = a_line) -> None:
        super().__init__(answer, name="held")
        self.entered = asyncio.Event()
        self.release = asyncio.Event()

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Say that it has been called, wait, then answer."""
        self.entered.set()
        await self.release.wait()
        return await super().compact(chunks, context)


class Stubborn(Scripted):
    """Never comes back, and takes no notice of being cancelled."""

    def __init__(self) -> None:
        super().__init__(name="stubborn")
        self.release = asyncio.Event()

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Wait until the test ends it, whoever cancels."""
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        return await super().compact(chunks, context)


class Yielding(Scripted):
    """Lets the event loop go round some times before it answers: a model call without a clock."""

    def __init__(self, rounds: int = 3, answer: Answer = a_line) -> None:
        super().__init__(answer, name="yielding")
        self._rounds = rounds

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Step aside, then answer."""
        for _ in range(self._rounds):
            await asyncio.sleep(0)
        return await super().compact(chunks, context)
