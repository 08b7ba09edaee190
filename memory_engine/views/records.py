"""Records: opaque values that other programs keep in a log, found by the rows of a view.

The stores of adapters are built on these: checkpoints, items, memory files, sessions, session items. An event holds a
value whole, so that it can be read, compared and forgotten without its earlier versions; a row says which event that
is. What a value means, and how its row is named, is the store's own.
"""

import json
from collections.abc import AsyncIterator, Collection
from typing import Generic, TypeVar, cast

from memory_engine.core.chain import decode_event
from memory_engine.core.events.base import Event
from memory_engine.core.records import RecordedEvent
from memory_engine.errors import ThreadNotFound
from memory_engine.projections.base import Projection, ReadableRows, Rows, behind
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store import rewinds

R = TypeVar("R")
K = TypeVar("K")
PAGE = 256
"""Rows that are read in one go."""


class Records(Generic[R]):
    """The records that one view of a thread has the rows of. A thread that is not there has none."""

    def __init__(self, thread: ThreadHandle, view: Projection[R]) -> None:
        self._thread = thread
        self._view = view

    async def rows(self) -> ReadableRows[R]:
        """All rows, which stay in memory."""
        try:
            return await self._thread.rows(self._view)
        except ThreadNotFound:
            return Rows(self._view.row, {})

    async def row(self, kind: type[K], key: str) -> K | None:
        """The row of a kind under a key, straight from the store."""
        try:
            found = await self._thread.row(self._view, key)
        except ThreadNotFound:
            return None
        return found if isinstance(found, kind) else None

    async def between(
        self, kind: type[K], first: str, last: str | None, limit: int | None = None, *, latest: bool = False
    ) -> list[tuple[str, K]]:
        """The rows of a kind with `first` <= key < `last`, straight from the store: the first or latest `limit`.

        Raises `ThreadNotFound` for a thread that is deleted meanwhile.
        """
        found = await self._thread.rows_between(self._view, first, last, limit, latest=latest)
        return [(key, row) for key, row in found if isinstance(row, kind)]

    async def under(
        self, kind: type[K], prefix: str, limit: int | None = None, *, latest: bool = False
    ) -> list[tuple[str, K]]:
        """The rows of a kind whose keys begin with a prefix (see `between`)."""
        return await self.between(kind, prefix, behind(prefix), limit, latest=latest)

    async def each_page(self, kind: type[K], prefix: str, size: int = PAGE) -> AsyncIterator[list[tuple[str, K]]]:
        """The same rows, a page at a time."""
        first = prefix
        while page := await self.between(kind, first, behind(prefix), size):
            yield page
            first = f"{page[-1][0]}\0"

    async def events(self, seqs: Collection[int]) -> dict[int, Event]:
        """The events at these seqs, by seq."""
        reader = self._thread.kernel.reader
        stored = await reader.rows_at(self._thread.id, seqs)
        decoded = ((seq, decode_event(self._thread.id, row, reader.registry)) for seq, row in stored.items())
        return {seq: cast("Event", event) for seq, event in decoded}

    async def history(self, *kinds: type[Event]) -> AsyncIterator[RecordedEvent]:
        """All events of these kinds that no rewind took back, oldest first, whatever came of them."""
        if not await self._thread.exists():
            return
        reader, types = self._thread.kernel.reader, [kind.event_type for kind in kinds]
        last = await self._thread.last_seq()
        shown = await rewinds.shown_at(reader, self._thread.id, last)
        async for stored in reader.walk(self._thread.id, upto=last, types=types):
            recorded = reader.decode(self._thread.id, stored)
            if shown.shows(recorded):
                yield recorded


def as_json(value: object) -> str:
    """A value as JSON, in few bytes (see `json_text`)."""
    return json_text(value)[0]


def json_text(value: object) -> tuple[str, bool]:
    """A value as JSON, and whether a log can hold its texts: if one has half of a surrogate pair, all are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")), False
    return text, True
