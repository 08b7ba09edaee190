"""Rebuild: drop what derives from the log and make it again from the recorded operations. No reducer runs."""

from collections.abc import Sequence

import msgspec

from memory_engine.log import fold, live_chunk
from memory_engine.persistence import CommitUnit, Head, LiveChunk, ProjectionChange, Store
from memory_engine.projections.base import Projection
from memory_engine.projections.refolding import Refolding
from memory_engine.reading import LogReader
from memory_engine.state import State, StateDraft


async def rebuild_thread(
    store: Store,
    reader: LogReader,
    thread_id: str,
    projections: Sequence[Projection[object]] = (),
) -> Head:
    """Write the live rows and every given projection's rows anew, in one pass over the log.

    Returns the head with its counters and marks set right. Raises `HeadMoved` if somebody writes
    to the thread meanwhile, `InvalidOperation` where the recorded operations do not hold together.
    """
    head = await store.head(thread_id)
    draft = State().draft()
    refolding = Refolding(projections, reader, thread_id)
    seen: dict[str, int] = {}
    async for page in reader.pages(thread_id, after=0, upto=head.seq):
        fold(draft, page, thread_id)
        for stored in page:
            seen[stored.type] = stored.seq
            refolding.apply(stored)
    marks = {name: seq for name, seq in seen.items() if name in head.marks or reader.registry.tracks(name)}
    rebuilt = msgspec.structs.replace(head, chunks=draft.tally.chunks, tokens=draft.tally.tokens, marks=marks)
    await store.reset(thread_id, head, rebuilt, _live(draft))
    changes = []
    for projection in projections:
        rows: dict[str, bytes | None] = {**refolding.rows[projection.name].encoded()}
        change = ProjectionChange(projection.name, projection.version, rows, head.seq)
        if projection.mode == "async":
            await store.write_projection(thread_id, change, replace=True)
        else:
            _, former = await store.rows(projection.name, projection.version, thread_id)
            rows.update((key, None) for key in former.keys() - rows.keys())
            changes.append(change)
    # as a commit: another process may write the same rows with its next event
    await store.commit(CommitUnit(thread_id=thread_id, expected=rebuilt, head=rebuilt, projections=changes))
    return rebuilt


def _live(draft: StateDraft) -> list[LiveChunk]:
    return [row for placed in draft.placed() if (row := live_chunk(placed)) is not None]
