"""Which events of a thread came from a file: the facts that they have for others were delivered where they came from.

Kept in the store as rows of a projection that folds nothing, written by the transaction of the events: a thread's go
with it, and a rebuild does not touch them.
"""

import msgspec

from memory_engine.persistence import ProjectionChange, Store, ThreadFilter

PROJECTION = "imported"
VERSION = 1


class Imported(msgspec.Struct, frozen=True):
    """The events of a thread, its shared past included, that came from files: those after one seq up to another."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, seq: int) -> bool:
        return any(after < seq <= upto for after, upto in self.ranges)


def imported(after: int, upto: int) -> ProjectionChange:
    """The change that notes that the events after one seq up to another came from a file."""
    return ProjectionChange(PROJECTION, VERSION, {f"{after:010d}": str(upto).encode()}, upto)


async def imported_of(store: Store, thread_id: str) -> Imported:
    """What came from files. Raises `ThreadNotFound`."""
    ranges: list[tuple[int, int]] = []
    at, last = thread_id, 1 << 32
    while at:
        _, rows = await store.rows(PROJECTION, VERSION, at)
        ranges += ((int(after), min(int(upto), last)) for after, upto in rows.items())
        found = await store.threads(ThreadFilter(id=at))
        origin = found[0][0].forked_from if found else None
        at, last = (origin.thread_id, min(last, origin.seq)) if origin is not None else ("", last)
    return Imported(tuple(ranges))
