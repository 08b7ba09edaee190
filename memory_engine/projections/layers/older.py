"""What a compaction of a layer covers: all but its last entries."""

from attrs import frozen

from memory_engine.events import Layer
from memory_engine.handle import ThreadHandle
from memory_engine.projections.layers.compacting import Material
from memory_engine.projections.layers.entries import EPISODIC, LAYERS, WITHHELD, EntryRow, keys_of, summary_of
from memory_engine.projections.layers.originals import covered_rows

ROWS_MAX = 400
"""So many entries are read to make a summary: the newest of those it covers."""
WINDOW_EVENTS = 20_000
"""Originals behind a former summary are looked for in so many events before its end."""
_TRIES = 4


@frozen
class Older:
    """What is covered: the former summary, and the entries up to `upto`, of which the newest are at hand.

    `drawn_at` is a seq at or before the last event that they reflect.
    """

    layer: Layer
    drawn_at: int
    former: EntryRow | None
    rows: tuple[EntryRow, ...]
    entries: int
    kept: int

    @property
    def upto(self) -> int:
        """The seq of the last entry covered."""
        if self.rows:
            return self.rows[-1].seq
        return self.former.upto if self.former is not None else 0

    @property
    def first(self) -> int:
        """The seq of the oldest entry covered, or of one before it."""
        if self.former is not None:
            return self.former.first
        return self.rows[0].seq if self.entries == len(self.rows) else 0

    @property
    def count(self) -> int:
        """How many entries are covered, those of the former summary included."""
        return self.entries + (self.former.count if self.former is not None else 0)


async def older_entries(thread: ThreadHandle, layer: Layer, keep_last: int) -> Older | None:
    """What is older than the last `keep_last` entries; `None` if nothing is.

    A summary with words withheld is to be made again, also where nothing new is to be covered.
    """
    drawn_at = (await thread.kernel.store.head(thread.id)).seq
    if layer == "episodic":
        rows, entries = await _older_episodic(thread, keep_last)
        former = summary_of(await thread.rows(LAYERS), layer)
    else:
        resident = await thread.rows(LAYERS)
        former = summary_of(resident, layer)
        held = [row for key in keys_of(resident, layer) if (row := resident.get(key)) is not None and not row.count]
        rows = held[: max(0, len(held) - keep_last)]
        entries = len(rows)
    if not rows and (former is None or WITHHELD not in former.lines):
        return None
    return Older(layer, drawn_at, former, tuple(rows[-ROWS_MAX:]), entries, keep_last)


async def _older_episodic(thread: ThreadHandle, keep_last: int) -> tuple[list[EntryRow], int]:
    """The newest rows of those to be covered, and how many these are; without reading the others if it can be."""
    wanted = keep_last + ROWS_MAX
    for _ in range(_TRIES):
        before = await thread.measure(EPISODIC)
        tail = [row for _, row in await thread.tail(EPISODIC, wanted)]
        if before == await thread.measure(EPISODIC) and len(tail) == min(wanted, before[0]):
            kept = min(keep_last, len(tail))
            return tail[: len(tail) - kept], before[0] - kept
    rows = await thread.rows(EPISODIC)  # others append without pause: all of them, at one moment
    keys = list(rows.keys())
    older = keys[: max(0, len(keys) - keep_last)]
    return [row for key in older[-ROWS_MAX:] if (row := rows.get(key)) is not None], len(older)


async def material_of(thread: ThreadHandle, older: Older) -> Material:
    """What the new summary is made of: a former one's originals are read from the log again, not its words.

    Only where they lie too far back its lines stand for them.
    """
    former = older.former
    if former is None:
        return Material((), older.rows, older.count)
    originals = await covered_rows(thread, former, window=WINDOW_EVENTS)
    rows = (*originals, *older.rows)[-ROWS_MAX:]
    begin = rows[0].seq if rows else 0
    known = tuple(line for line in former.lines if line.seqs and max(line.seqs) < begin)
    are_all = former.upto - max(1, former.first) < WINDOW_EVENTS
    return Material(known, rows, len(originals) + older.entries if are_all else older.count)
