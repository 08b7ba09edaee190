"""Stand-ins that a test sets: time and ids, a compactor, vectors without a model, an observer that remembers events."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from math import sqrt
from typing import cast
from zlib import crc32

from attrs import frozen

from memory_engine.compaction.base import CompactionContext, CompactionResult
from memory_engine.core.chunks import Category, Chunk
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.ids import uuid7
from memory_engine.core.records import RecordedEvent
from memory_engine.llm.vectors import Vector


@frozen
class Returns:
    """A step that returns a value of any type unchanged."""

    value: object


@frozen
class Hangs:
    """A step that waits for `FakeCompactor.release` and then does as `then` says."""

    then: object = "done"


@frozen
class CompactorCall:
    """One call of a compactor: its arguments."""

    chunks: tuple[Chunk, ...]
    context: CompactionContext


class FakeCompactor:
    """Does one step of its script for each call; the last step is done again for every further one.

    A step is a text (one line that cites every chunk), `SummaryLine`s, an exception to raise,
    `Returns(anything)`, or `Hangs(then)`. `calls` records what it was asked, `begun` is set
    as soon as a call has begun, `cancelled` counts the calls that were cancelled while they hung. It takes chunks of
    the working flow alone, unless you set `categories`.
    """

    def __init__(
        self, *script: object, name: str = "fake", takes: Callable[[Chunk], bool] = lambda _chunk: True
    ) -> None:
        self.name = name
        self.categories: Sequence[str] = (Category.WORKING_FLOW,)
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
        return _step_result(step, chunks)


def _step_result(step: object, chunks: Sequence[Chunk]) -> CompactionResult:
    match step:
        case BaseException():
            raise step
        case Returns(value=value):
            return cast("CompactionResult", value)  # it may be anything else: a compactor that breaks its contract
        case str(text):
            sources = tuple(chunk.id for chunk in chunks)
            return CompactionResult(lines=(SummaryLine(section="current_state", text=text, sources=sources),))
        case SummaryLine():
            return CompactionResult(lines=(step,))
        case list() | tuple():
            return CompactionResult(lines=tuple(step))
    raise TypeError(f"a script holds texts, SummaryLines, exceptions, Returns and Hangs, not {step!r}")


START_US = 1_700_000_000_000_000
"""2023-11-14 22:13:20 UTC: the default start of a `ManualClock`."""


class ManualClock:
    """A clock that advances only on request. `us` are microseconds since 1970, UTC."""

    def __init__(self, start_us: int = START_US) -> None:
        self.us = start_us

    def now_us(self) -> int:
        """The time it was last set to."""
        return self.us

    def advance(self, seconds: float) -> None:
        """Advance by a number of seconds; a negative one sets it back, as real clocks are set back."""
        self.us += round(seconds * 1_000_000)


class SequentialIds:
    """Event ids (valid UUIDv7) and salts, counted and not drawn: two sources of one seed give the same."""

    def __init__(self, seed: str = "") -> None:
        self._seed = seed
        self._ids = 0
        self._salts = 0

    def event_id(self, now_us: int) -> str:
        """The next id."""
        self._ids += 1
        return uuid7(now_us // 1000, self._digest("id", self._ids)[:10])

    def salt(self) -> bytes:
        """The next 16 bytes."""
        self._salts += 1
        return self._digest("salt", self._salts)[:16]

    def _digest(self, kind: str, number: int) -> bytes:
        return sha256(f"{self._seed}/{kind}/{number}".encode()).digest()


GRAM_CHARS = (3, 4, 5)


class HashEmbedder:
    """An `Embedder` for tests: counts pieces of 3 to 5 characters, each at a place that its hash gives.

    It knows spellings and no meanings. Vectors have unit length; that of a text without letters and digits is zero.
    Raises `ValueError` for a `dimension` below 1.
    """

    def __init__(self, dimension: int = 256) -> None:
        if dimension < 1:
            raise ValueError(f"dimension is how many numbers a vector has, 1 or more, not {dimension}")
        self.dimension = dimension

    @property
    def name(self) -> str:
        """The name holds the dimension: vectors of different dimensions are not comparable."""
        return f"hash-{self.dimension}"

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text, in the same order."""
        return [self.vector(text) for text in texts]

    async def aclose(self) -> None:
        """Do nothing: it holds no resources."""

    def vector(self, text: str) -> list[float]:
        """The vector of a text."""
        counts = [0.0] * self.dimension
        for piece in _pieces(text):
            number = crc32(piece.encode("utf-8", "surrogatepass"))
            counts[number % self.dimension] += 1.0 if number & 0x80000000 else -1.0
        length = sqrt(sum(count * count for count in counts)) or 1.0
        return [count / length for count in counts]


def _pieces(text: str) -> Iterator[str]:
    """Every piece of every word, its beginning and end marked."""
    spaced = "".join(character if character.isalnum() else " " for character in text.casefold())
    for word in spaced.split():
        marked = f"<{word}>"
        for size in GRAM_CHARS:
            for at in range(len(marked) - size + 1):
                yield marked[at : at + size]


class RecordingObserver:
    """Give it to `engine.observe`; `events` then holds every event that became durable, in order."""

    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    def __call__(self, event: RecordedEvent) -> None:
        """Remember an event, and wake those who wait for it."""
        self.events.append(event)
        for type_, count, future in self._waiting:
            if not future.done() and len(self.of_type(type_)) >= count:
                future.set_result(None)

    @property
    def types(self) -> list[str]:
        """The wire names of the events, in order."""
        return [event.type for event in self.events]

    def of_type(self, type_: str) -> list[RecordedEvent]:
        """The events of one wire name, in order."""
        return [event for event in self.events if event.type == type_]

    async def wait_for(self, type_: str, count: int = 1) -> RecordedEvent:
        """The `count`-th event of a type, once it is there. It may never come: use a timeout."""
        if len(self.of_type(type_)) < count:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((type_, count, future))
            await future
        return self.of_type(type_)[count - 1]
