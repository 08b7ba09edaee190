"""Threads whose log is known to be broken: a row in the store, so that no process takes them for whole.

`verify` writes it where it finds a gap, a hash or texts that were exchanged, and drops it once all agrees.
"""

import msgspec

from memory_engine.errors import IntegrityError
from memory_engine.store.protocol import BROKEN_ROWS, ProjectionChange, Store

VERSION = 1
KEY = "divergence"


class _Broken(msgspec.Struct, frozen=True):
    seq: int
    why: str


async def broken_of(store: Store, thread_id: str) -> IntegrityError | None:
    """The error of a thread that was found broken. Raises `ThreadNotFound`."""
    _, rows = await store.rows(BROKEN_ROWS, VERSION, thread_id)
    return broken_as_error(thread_id, rows.get(KEY))


def broken_as_error(thread_id: str, row: bytes | None) -> IntegrityError | None:
    """The error for a row of `BROKEN_ROWS`."""
    if row is None:
        return None
    try:
        found = msgspec.json.decode(row, type=_Broken)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = _Broken(0, "it was found broken, and the note of it too")
    return IntegrityError(thread_id, found.seq, found.why)


async def mark_broken(store: Store, error: IntegrityError | None, thread_id: str) -> None:
    """Note that a thread is broken, or, with no error, that it is whole again."""
    row = msgspec.json.encode(_Broken(error.seq, error.why)) if error is not None else None
    if row is not None or await broken_of(store, thread_id) is not None:
        await store.write_projection(thread_id, ProjectionChange(BROKEN_ROWS, VERSION, {KEY: row}, 0))
