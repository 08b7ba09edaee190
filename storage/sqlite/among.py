"""Looking up the passages of several threads of a file at once."""

import sqlite3
from collections.abc import Collection, Mapping

import msgspec

from memory_engine.core.threads import DELETED
from memory_engine.storage import passage_search
from memory_engine.storage.passage_search import IS_INDEXED, MEMBER_COLUMNS, Member
from memory_engine.storage.passages import sliced
from memory_engine.storage.sqlite.schema import rows_of
from memory_engine.storage.sqlite.transactions import find_tid
from memory_engine.store.passages import LookedUp, LookUp, Threads

_OF = (
    f"SELECT coalesce({IS_INDEXED} AND i.seq >= h.seq, 0), {IS_INDEXED}, t.tid, {MEMBER_COLUMNS} FROM threads t "
    "LEFT JOIN heads h ON h.tid = t.tid LEFT JOIN passage_indexes i ON i.tid = t.tid WHERE h.status IS NOT ? AND "
)


def look_up_among(raw: sqlite3.Connection, threads: Threads, wanted: LookUp) -> LookedUp:
    """Passages of several threads, of one moment. Raises `ThreadNotFound` where one of those named is not there."""
    raw.execute("BEGIN")
    try:
        named = _tids(raw, threads)
        rows = _matching(raw, threads) if named is None else _named(raw, named)

        def ids(tids: Collection[int]) -> Mapping[int, str]:
            found = _ids(raw, tids)
            return found if named is None else {tid: found[tid] for tid in named if tid in found}

        members = [Member(*row[3:]) for row in rows if row[1]]
        looked = passage_search.look_up_among(raw, members, ids, wanted)
        return msgspec.structs.replace(looked, behind=tuple(ids([row[2] for row in rows if not row[0]]).values()))
    finally:
        raw.execute("COMMIT")


def waiting_in(raw: sqlite3.Connection, threads: Threads) -> list[int]:
    """The row ids of those of several threads of which words may wait to be indexed."""
    named = _tids(raw, threads)
    rows = _matching(raw, threads) if named is None else _named(raw, named)
    return [member.tid for row in rows if row[1] and (member := Member(*row[3:])).waits]


def _tids(raw: sqlite3.Connection, threads: Threads) -> list[int] | None:
    """The row ids of the threads that are named, in their order; `None` where none are."""
    if threads.thread_ids is None:
        return None
    return [find_tid(raw, thread_id) for thread_id in threads.thread_ids if thread_id not in threads.without]


def _matching(raw: sqlite3.Connection, threads: Threads) -> list[tuple]:  # type: ignore[type-arg]
    """The rows of all threads that match, in the order of their making."""
    conditions = [f"t.{name} = ?" for name in threads.exact]
    values = [DELETED, *threads.exact.values()]
    for name, left_out in (("kind", threads.without_kinds), ("id", sorted(threads.without))):
        if left_out:
            conditions.append(f"t.{name} NOT IN ({', '.join('?' * len(left_out))})")
            values += left_out
    return rows_of(raw, f"{_OF}{' AND '.join(conditions)} ORDER BY t.tid", values)


def _named(raw: sqlite3.Connection, tids: Collection[int]) -> list[tuple]:  # type: ignore[type-arg]
    """The rows of some threads, in the order of their making."""
    return [
        row
        for some in sliced(sorted(tids))
        for row in rows_of(raw, f"{_OF}t.tid IN ({', '.join('?' * len(some))}) ORDER BY t.tid", (DELETED, *some))
    ]


def _ids(raw: sqlite3.Connection, tids: Collection[int]) -> dict[int, str]:
    """The ids of some threads, in the order of their making."""
    found: dict[int, str] = {}
    for some in sliced(sorted(tids)):
        marks = ", ".join("?" * len(some))
        rows = rows_of(raw, f"SELECT tid, id FROM threads WHERE tid IN ({marks}) ORDER BY tid", some)
        found.update((tid, str(thread_id)) for tid, thread_id in rows)
    return found
