"""What the tests of undone compactions share: states compared but for ids, and chunks with others inside."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

import memory_engine
from memory_engine import (
    Add,
    Chunk,
    CompactionPolicy,
    Engine,
    EngineConfig,
    Event,
    Plugin,
    ReduceContext,
    Reduction,
    Retention,
    State,
    StateView,
    Thread,
)
from memory_engine.core.records import StoredEvent
from memory_engine.thread import handle_of
from tests.conversations import LONG, NEVER
from tests.scripted_compactors import Scripted

MERGING = CompactionPolicy(enabled=False, keep_recent=0, summary_tokens_max=1)
"""Compacts when it is asked to, and then makes one summary of all the earlier ones."""


def shape(state: State) -> list[object]:
    """A state but for ids: each chunk with all its fields and the place of its container, and the tally."""
    at = {placed.chunk.id: n for n, placed in enumerate(state.placed())}
    bare = [
        (msgspec.structs.replace(placed.chunk, id="", parent_ids=()), at.get(placed.container))
        for placed in state.placed()
    ]
    return [*bare, state.tally]


async def undone_as_before(thread: Thread, compaction: str = "") -> None:
    """Compact by hand, undo it, and compare with the state before."""
    before = shape(await thread.state())
    await thread.compact()
    assert before != shape(await thread.state())
    await thread.compaction.undo(compaction)
    assert before == shape(await thread.state())
    assert None is (await thread.replay.verify()).divergence


async def words(thread: Thread) -> str:
    """Everything that the model would see."""
    return str((await thread.context()).messages)


async def rows(thread: Thread) -> Sequence[StoredEvent]:
    """The rows of the log as they are stored."""
    return await handle_of(thread).kernel.store.read(thread.id, after=0, upto=1_000, limit=1_000)


boxes = Plugin("boxes")


@boxes.event("boxed")
class Boxed(Event, frozen=True):
    """A box in the working flow, with things inside."""

    things: tuple[str, ...]
    name: str = ""
    retention: str = "batch_compressible"


@boxes.reducer(Boxed)
def reduce_boxed(_view: StateView, event: Boxed, ctx: ReduceContext) -> Reduction:
    """A container and its children."""
    box = Chunk(id=ctx.new_id(), type="box", content=f"box{LONG}", name=event.name, is_container=True)
    inside = [
        Chunk(id=ctx.new_id(), type="thing", content=thing, retention=Retention(event.retention))
        for thing in event.things
    ]
    adds = (Add(box.id), *(Add(one.id, container=box.id) for one in inside))
    return Reduction(operations=adds, chunks=(box, *inside))


def with_boxes() -> AbstractAsyncContextManager[Engine]:
    """An engine that knows boxes."""
    return memory_engine.open(":memory:", plugins=[boxes], compactor=Scripted(), config=EngineConfig(compaction=NEVER))
