"""A process of a simulation: an engine over the file, with a compactor of moods, that can die at any moment."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from pathlib import Path
from typing import TypeVar, cast

import memory_engine
from memory_engine import Chunk, CompactionContext, CompactionPolicy, CompactionResult, Engine, EngineConfig
from memory_engine.events import SummaryLine
from memory_engine.storage.sqlite.store import SQLiteStore
from memory_engine.testing import HashEmbedder, SequentialIds
from tests.simulator.disk import DiskOwner
from tests.simulator.loop import OWNER, SimulatedLoop
from tests.simulator.model import Model

MOODS = (
    "good",
    "good",
    "slow",
    "raise",
    "hang",
    "stubborn",
    "none",
    "empty",
    "foreign",
    "long",
    "away",
    "away",
    "away",
)
T = TypeVar("T")
HANGS_S = 100_000.0


class LoopClock:
    """The time of day that goes with the loop's: never the same twice, and it can be set on or back."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._read = 0
        self.ahead_us = 0

    def now_us(self) -> int:
        """Microseconds since 1970."""
        self._read += 1
        return 1_700_000_000_000_000 + int(self._loop.now_s * 1_000_000) + self._read + self.ahead_us


class Moody:
    """A compactor that does well, waits, fails, hangs, talks nonsense, or leaves the work to the built-in one."""

    name = "moody"

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Now and then not."""
        return self._dice.random() < 0.7

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """As the mood is."""
        sources = tuple(chunk.id for chunk in chunks)
        mood = self._dice.choice(MOODS)
        if mood == "slow":
            await asyncio.sleep(self._dice.choice((0.0, 0.01, 1.0)))
        elif mood == "raise":
            raise ValueError("not today")
        elif mood == "hang":
            await asyncio.sleep(HANGS_S)
        elif mood == "stubborn":
            await _stubborn()
        elif mood == "none":
            return cast("CompactionResult", None)  # it breaks its contract
        texts = {"empty": "", "long": "word " * 4000}
        short = f"{len(chunks)} things in short, {self._dice.getrandbits(40)}"  # no other thread may say it too
        cited = ("999.9",) if mood == "foreign" else sources
        text = texts.get(mood, short)
        return CompactionResult(lines=(SummaryLine(section="current_state", text=text, sources=cited),))


async def _stubborn() -> None:
    """Go on for a while when cancelled."""
    try:
        await asyncio.sleep(HANGS_S)
    except asyncio.CancelledError:
        await asyncio.sleep(0.5)


class SimulatedProcess(DiskOwner):
    """One life of a process: it opens the file once the life before it has closed it."""

    def __init__(
        self,
        loop: SimulatedLoop,
        name: str,
        path: Path,
        dice: random.Random,
        *,
        model: Model,
        broken: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.loop = loop
        self.model = model
        self.name = name
        self.path = path
        self.dice = dice
        self.clock = LoopClock(loop)
        self.engine: Engine | None = None
        self.is_closing = False
        self.is_gone = asyncio.Event()
        """Set once it has closed the file, or is dead."""
        self.is_hurt = False
        """Whether a fault was planned for it: then storage errors are to be expected."""
        self.has_plan = dice.random() < 0.8
        self._broken = broken
        self._seen: dict[str, int] = {}
        self._opening: asyncio.Task[Engine] | None = None

    def spawn(self, work: Callable[[], Coroutine[object, object, T]]) -> "asyncio.Task[T]":
        """Begin a task of this process."""
        context = copy_context()
        context.run(OWNER.set, self)
        return self.loop.create_task(work(), context=context)

    def open(self, policy: CompactionPolicy, before: "SimulatedProcess | None") -> None:
        """Begin to open the engine, once that of the life before is closed."""

        async def opened() -> Engine:
            if before is not None:
                if not before.is_dead:
                    before.spawn(before.closed)
                await before.is_gone.wait()
            config = EngineConfig(compaction=policy, queue_capacity=self.dice.choice((4, 1024)))
            store = await SQLiteStore.open(str(self.path), faults=self.disk) if self.has_plan else str(self.path)
            engine = await memory_engine.open(
                store,
                config=config,
                compactor=Moody(self.dice),
                embedder=HashEmbedder(16) if self.dice.random() < 0.3 else None,
                clock=self.clock,
                ids=SequentialIds(self.name),
            )
            engine.observe(self._observed)
            self.engine = engine
            return engine

        self._opening = self.spawn(opened)

    async def opened(self) -> Engine:
        """The engine."""
        assert self._opening is not None
        return await asyncio.shield(self._opening)

    async def closed(self) -> None:
        """Close the engine, if it was opened."""
        self.is_closing = True
        try:
            if self._opening is not None:
                await asyncio.wait([self._opening])
            if self.engine is not None:
                await self.engine.close()
        finally:
            self.is_gone.set()

    @property
    def has_failed_to_open(self) -> bool:
        """Whether it has to be opened anew."""
        task = self._opening
        return task is None or (task.done() and (task.cancelled() or task.exception() is not None))

    def _observed(self, event: "memory_engine.RecordedEvent") -> None:
        """In order, and each once; not checked of threads that may be others by the same id."""
        seen = self._seen.get(event.thread_id, 0)
        if event.seq <= seen and not self.model.of(event.thread_id).deletions:
            self._broken(f"an observer was told of {event.thread_id} {event.seq} after {seen}")
        self._seen[event.thread_id] = event.seq
