"""The entries that a summary covers: read from the log, as if the layer had never been compacted."""

from collections.abc import Sequence

from memory_engine.events import (
    MemoryAppended,
    MemoryCleared,
    MemoryForget,
    MemoryRemoved,
    SessionEnded,
)
from memory_engine.handle import ThreadHandle
from memory_engine.projections.layers.entries import EntryRow, recorded_row

_TYPES = frozenset(cls.event_type for cls in (MemoryAppended, MemoryCleared, MemoryForget, MemoryRemoved, SessionEnded))


async def covered_rows(
    thread: ThreadHandle, summary: EntryRow, *, at: int | None = None, window: int | None = None
) -> list[EntryRow]:
    """The entries with seqs from `first` to `upto` of a summary, in order; not those removed or forgotten since.

    Reads the log to its head, or to `at`; with `window`, of the part before `upto` only so many events.
    """
    reader = thread.kernel.reader
    head = (await thread.kernel.store.head(thread.id)).seq
    after = max(0, summary.first - 1)
    if window is not None:
        after = max(after, summary.upto - window)
    rows: dict[int, EntryRow] = {}
    async for page in reader.pages(thread.id, after=after, upto=head if at is None else min(at, head)):
        for stored in page:
            if stored.type not in _TYPES:
                continue
            event = reader.decode(thread.id, stored)
            match event.event:
                case MemoryAppended(layer=layer) as appended:
                    if layer == summary.layer and event.seq <= summary.upto:
                        rows[event.seq] = recorded_row(event, appended)
                case MemoryForget(seqs=seqs):
                    _drop(
                        rows, [*seqs, *(seq for seq, row in rows.items() if not set(seqs).isdisjoint(row.drawn_from))]
                    )
                case MemoryRemoved(layer=layer, seqs=seqs) if layer == summary.layer:
                    _drop(rows, seqs)
                case MemoryCleared(layers=layers) if summary.layer in layers:
                    rows.clear()
                case SessionEnded() if summary.layer == "working":
                    rows.clear()
    return [rows[seq] for seq in sorted(rows)]


def _drop(rows: dict[int, EntryRow], seqs: Sequence[int]) -> None:
    for seq in seqs:
        rows.pop(seq, None)
