"""The rows of a memory as one conversation may see them: nothing that another user said."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from memory_engine.context.ownership import Viewer, visible
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.layers.fold import EntryRow


async def rows_for(thread: ThreadHandle, rows: Iterable[EntryRow], viewer: Viewer | None) -> list[EntryRow]:
    """The rows of a thread's layers that a viewer may see, in their order; `None` sees all of them.

    A summary loses the lines that rest on entries which the viewer may not see, and goes with the last of them.
    """
    found = list(rows)
    if viewer is None:
        return found
    doubtful = {seq for row in found for seq in _doubtful(row)}
    hidden = doubtful - await visible(thread.kernel, thread.id, doubtful, viewer) if doubtful else frozenset[int]()
    seen = (_hide_lines(row, hidden) if row.count else row for row in found if row.seq not in hidden)
    return [row for row in seen if not row.count or row.lines]


def is_doubtful(row: EntryRow) -> bool:
    """Whether an entry may hold a person's words: it came from another thread, and no one vouches for it."""
    return bool(row.source_thread) and not row.own


def _doubtful(row: EntryRow) -> Sequence[int]:
    """The seqs of the entries in a row, or behind a summary, whose origin must be looked up."""
    if row.count:
        return [seq for line in row.lines for seq in line.seqs]
    return (row.seq,) if is_doubtful(row) else ()


def _hide_lines(summary: EntryRow, hidden: frozenset[int] | set[int]) -> EntryRow:
    kept = tuple(line for line in summary.lines if hidden.isdisjoint(line.seqs))
    return replace(summary, lines=kept, left_out=summary.left_out + len(summary.lines) - len(kept))
