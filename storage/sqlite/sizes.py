"""Sizes of a unit and of a file: whether a commit is small enough for the event loop's thread, how long a log is."""

import os

from memory_engine.store.protocol import CommitUnit

HERE_BYTES = 32 * 1024
"""Bytes of events that are committed on the event loop's own thread at most."""
HERE_ROWS = 16
"""Rows besides."""


def bytes_of(unit: CommitUnit) -> int:
    """The bytes of a unit's events."""
    size = 0
    for stored in unit.events:
        size += len(stored.payload) + len(stored.record)
    return size


def is_small(unit: CommitUnit) -> bool:
    """Whether it is a matter of microseconds to write it."""
    rows = len(unit.events) + len(unit.live)
    for change in unit.projections:
        rows += len(change.rows)
    steps = unit.passages.steps if unit.passages is not None else ()
    if rows + len(steps) > HERE_ROWS:  # before a look at each of very many
        return False
    for step in steps:
        rows += len(step.rows)
    return rows <= HERE_ROWS and bytes_of(unit) <= HERE_BYTES


def size_of(path: str) -> int:
    """The bytes of a file; 0 if it does not exist."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a third of the cost of a Path, and at every commit
    except OSError:
        return 0
