"""Rebuild: drop what derives from the log and make it again from the recorded operations. No reducer runs."""

from collections.abc import Sequence

import msgspec

from memory_engine.log import live_chunk
from memory_engine.persistence import Head, LiveChunk, ProjectionChange, Store
from memory_engine.projections.base import Projection, Rows
from memory_engine.projections.inline import apply_one
from memory_engine.reading import LogReader
from memory_engine.state import StateDraft


async def rebuild_thread(
    store: Store, reader: LogReader, thread_id: str, projections: Sequence[Projection[object]] = ()
) -> Head:
    """Write the live rows and every given projection's rows anew. Returns the head with its counters set right.

    Raises `HeadMoved` if somebody writes to the thread meanwhile, `InvalidOperation` where
    the recorded operations do not hold together.
    """
    head = await store.head(thread_id)
    draft = await reader.folded(thread_id, head.seq)
    rebuilt = msgspec.structs.replace(head, chunks=draft.tally.chunks, tokens=draft.tally.tokens)
    await store.reset(thread_id, head, rebuilt, _live(draft))
    for projection in projections:
        rows = Rows(projection.row, {})
        async for event in reader.events(thread_id, after=0, upto=head.seq):
            apply_one(projection, rows, event)
        change = ProjectionChange(projection.name, projection.version, rows.changes(), head.seq)
        await store.write_projection(thread_id, change, replace=True)
    return rebuilt


def _live(draft: StateDraft) -> list[LiveChunk]:
    return [row for placed in draft.placed() if (row := live_chunk(placed)) is not None]
