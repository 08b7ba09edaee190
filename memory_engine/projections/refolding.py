"""Projections folded anew from the log, all in one pass: for rebuilding, verifying, and views of the past."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from memory_engine.errors import MemoryEngineError
from memory_engine.projections.base import Projection, Rows, apply_one, event_types
from memory_engine.projections.inline import InlinePlan, last_of
from memory_engine.reading import LogReader
from memory_engine.records import StoredEvent
from memory_engine.snapshots import ROWS_SHARE, WINDOW

V = TypeVar("V")


class Refolding:
    """The rows of projections while the rows of a log go by."""

    def __init__(self, projections: Sequence[Projection[object]], reader: LogReader, thread_id: str) -> None:
        self._plan = InlinePlan(projections)
        self._always = tuple(p for p in projections if event_types(p) is None)
        self._reader = reader
        self._thread_id = thread_id
        self.rows: Mapping[str, Rows[object]] = {p.name: Rows(p.row, {}) for p in projections}
        self.failed = ""

    def apply(self, stored: StoredEvent) -> None:
        """Go on by one event; it is decoded only if somebody reads it.

        Raises what the projection raised, as `ReducerError`; `failed` then names it.
        """
        concerned = self._always + self._plan.views_of(stored.type)
        if not concerned:
            return
        event = self._reader.decode(self._thread_id, stored)
        for projection in concerned:
            rows = self.rows[projection.name]
            try:
                apply_one(projection, rows, event)
            except MemoryEngineError:
                self.failed = projection.name
                raise
            rows.keep()


async def rows_at(projection: Projection[V], reader: LogReader, thread_id: str, seq: int) -> Rows[V]:
    """The rows of a projection after the event at `seq`, from the log alone.

    Only events that it reads are read, from the nearest rows that were kept on; what was folded from far is kept.
    """
    types = event_types(projection)
    if types is not None:
        seq = min(seq, last_of(await reader.head(thread_id), types))
    view = f"{projection.name}/{projection.version}"
    kept_at, stored = await reader.snapshots.nearest_rows(thread_id, view, seq)
    rows = Rows(projection.row, stored)
    after = kept_at
    while after < seq:
        upto = min(seq, after + WINDOW)
        async for page in reader.pages(thread_id, after=after, upto=upto, types=types):
            for event in page:
                apply_one(projection, rows, reader.decode(thread_id, event))
                rows.keep()
        after = upto
        if upto - kept_at >= max(WINDOW, ROWS_SHARE * len(rows)):
            await reader.snapshots.keep_rows(thread_id, view, upto, rows.encoded())
            kept_at = upto
    return rows
