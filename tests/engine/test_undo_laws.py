"""Laws of undone compactions: they hold for any log, and are tested with many."""

from contextlib import AbstractAsyncContextManager, suppress

from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import (
    CompactionPolicy,
    Engine,
    EngineConfig,
    Event,
    MemoryForget,
    MemoryMarkCritical,
    Retention,
    Thread,
)
from memory_engine.errors import CompactionError, CompactionNotLive
from memory_engine.testing import ManualClock, SequentialIds
from tests.conversations import turns
from tests.engine.test_laws import EVENTS, LOGS
from tests.engine.undoing import MERGING, shape
from tests.scripted_compactors import Answer, Scripted, a_line_each, summary

FREE = st.lists(EVENTS.filter(lambda event: not isinstance(event, MemoryForget | MemoryMarkCritical)), max_size=6)
"""Events that name no chunk by its id."""


def opened(policy: CompactionPolicy, compactor: Scripted | None = None) -> AbstractAsyncContextManager[Engine]:
    """An engine whose time and ids are the same in every run."""
    compactor = compactor or Scripted(lambda _chunks, _context: summary("s"))
    config = EngineConfig(compaction=policy)
    return memory_engine.open(":memory:", compactor=compactor, config=config, clock=ManualClock(), ids=SequentialIds())


async def compacted(thread: Thread) -> bool:
    """Compact, if there is anything to compact."""
    try:
        await thread.compact()
    except CompactionError:
        return False
    return True


@settings(max_examples=60)
@given(LOGS)
async def test_an_undone_compaction_leaves_the_state_as_it_was(log: list[Event]) -> None:
    """Texts, order, places, tokens and counts; only ids are others. The log verifies, and folds to the state."""
    async with opened(MERGING) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(log)
        before = shape(await thread.state())
        if await compacted(thread):
            await thread.compaction.undo()
            state = await thread.state()
            assert (before, None) == (shape(state), (await thread.replay.verify()).divergence)
            assert state == await thread.state(at=state.seq)


@settings(max_examples=60)
@given(st.lists(FREE, min_size=1, max_size=4), FREE)
async def test_undoing_all_is_as_if_nothing_had_been_compacted(parts: list[list[Event]], last: list[Event]) -> None:
    """Compactions between any events, undone in reverse order, leave the state of a log without them.

    They leave EPHEMERAL chunks alone, as all built-in compactors do: the next change of an environment would update the
    chunk that is taken, and a chunk whose name another bears by now comes back without it.
    """
    compactor = Scripted(lambda _chunks, _context: summary("s"), takes=is_lasting)
    async with opened(MERGING, compactor) as engine:
        thread, plain = await engine.create_thread("t"), await engine.create_thread("p")
        for part in parts:
            for one in (thread, plain):
                await one.dispatch_all(part)
            await compacted(thread)
        for one in (thread, plain):
            await one.dispatch_all(last)
        for compaction in await thread.compaction.history():
            if compaction.is_completed:
                await thread.compaction.undo()
        assert shape(await plain.state()) == shape(await thread.state())
        assert None is (await thread.replay.verify()).divergence


SAY, COMPACT, UNDO, REDO, FORGET, FORGET_LIVE = range(6)
STEPS = st.lists(
    st.tuples(st.sampled_from((SAY, SAY, COMPACT, UNDO, REDO, FORGET, FORGET_LIVE)), st.integers(0, 30)),
    min_size=4,
    max_size=25,
)


class Memory:
    """A thread in which things are said, compacted, undone, redone and forgotten; and what should be left of it."""

    def __init__(self, thread: Thread, compactor: Scripted) -> None:
        self.thread = thread
        self.compactor = compactor
        self.said: dict[str, str] = {}
        self.events: dict[str, str] = {}
        self.forgotten: set[str] = set()

    async def step(self, kind: int, number: int) -> None:
        """Do one thing, if it can be done, and look whether forgotten words are anywhere."""
        before = len(self.compactor.given)
        with suppress(CompactionError):
            await self._do(kind, number)
        given = [chunk.text for chunks in self.compactor.given[before:] for chunk in chunks]
        given += [line.text for context in self.compactor.contexts[before:] for line in context.earlier]
        shown = [chunk.text for chunk in (await self.thread.state()).everything()]
        for word in self.forgotten:
            assert not [text for text in (*given, *shown) if word in text.split()]

    async def _do(self, kind: int, number: int) -> None:
        found = await self.thread.compaction.history()
        chosen = found[number % len(found)].compaction_id if found else ""
        match kind:
            case 0:
                await self._say()
            case 1:
                live = [chunk.id for chunk in (await self.thread.state()).chunks() if not chunk.lines]
                await self.thread.compact(live[number % 5 :: 2] or None)
            case 2:
                await self.thread.compaction.undo(chosen)
            case 3:
                await self.thread.compaction.redo(chosen)
            case 4 if self.said:
                word = list(self.said)[number % len(self.said)]
                self.forgotten.add(word)
                if number % 2:
                    await self.thread.forget(chunk_ids=[self.said[word]])
                else:
                    await self.thread.forget(event_ids=[self.events[word]])
            case 5:
                standing = [chunk for chunk in (await self.thread.state()).chunks() if not chunk.lines]
                if standing:
                    chunk = standing[number % len(standing)]
                    self.forgotten.add(first(chunk))
                    await self.thread.forget(chunk_ids=[chunk.id])

    async def _say(self) -> None:
        number = len(self.said) + 1
        receipt = await self.thread.dispatch(turns(1, start=number)[0])
        self.said[f"word{number}"] = receipt.chunks[0].id
        self.events[f"word{number}"] = receipt.event_id


@settings(max_examples=60)
@given(STEPS, st.sampled_from([a_line_each, lambda chunks, _context: summary(" ".join(map(first, chunks)))]))
async def test_what_is_forgotten_stays_forgotten_and_all_else_comes_back(
    steps: list[tuple[int, int]], answer: Answer
) -> None:
    """In any order of steps, forgotten words are in no state and given to no compactor; undone, the rest is there."""
    compactor = Scripted(answer)
    async with opened(MERGING, compactor) as engine:
        memory = Memory(await engine.create_thread("t"), compactor)
        for kind, number in steps:
            await memory.step(kind, number)
        while True:
            try:
                await memory.thread.compaction.undo()
            except CompactionNotLive:
                break
        left = [first(chunk) for chunk in (await memory.thread.state()).chunks()]
        assert [word for word in memory.said if word not in memory.forgotten] == left
        assert None is (await memory.thread.replay.verify()).divergence


def is_lasting(chunk: memory_engine.Chunk) -> bool:
    """Whether a chunk outlives its session."""
    return chunk.retention is not Retention.EPHEMERAL


def first(chunk: memory_engine.Chunk) -> str:
    """The first word of a chunk."""
    return chunk.text.partition(" ")[0]
