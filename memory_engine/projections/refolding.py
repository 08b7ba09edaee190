"""Projections folded anew from the log, all in one pass: for rebuilding, verifying, and views of the past."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from memory_engine.errors import MemoryEngineError
from memory_engine.projections.base import Projection, Rows, apply_one, event_types
from memory_engine.projections.inline import InlinePlan
from memory_engine.reading import LogReader
from memory_engine.records import StoredEvent

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
    """The rows of a projection after the event at `seq`, from the log alone."""
    types = event_types(projection)
    rows = Rows(projection.row, {})
    async for page in reader.pages(thread_id, after=0, upto=seq):
        for stored in page:
            if types is None or stored.type in types:
                apply_one(projection, rows, reader.decode(thread_id, stored))
                rows.keep()
    return rows
