"""Looking up the passages of several threads of a file at once."""

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from memory_engine.core.threads import DELETED, encoded_key
from memory_engine.storage import passage_search, passage_vectors
from memory_engine.storage.passage_search import Lists, Members
from memory_engine.storage.passages import is_whole, sliced
from memory_engine.storage.sqlite.schema import rows_of
from memory_engine.storage.sqlite.transactions import find_tid
from memory_engine.store.passages import LookedUp, LookUp, Member, Threads, VectorsAmong, index_version

T = TypeVar("T")

_GROUPS = (
    "SELECT min(i.prefix), max(i.prefix), coalesce(sum(i.passages), 0), coalesce(sum(i.terms), 0), "
    "coalesce(group_concat(CASE WHEN (i.last_us >= ? AND i.first_us <= ?) IS NOT 0 THEN i.tid END), ''), "
    "coalesce(group_concat(CASE WHEN i.last > i.folded THEN i.tid || ',' || i.folded END), ''), "
    "coalesce(group_concat(CASE WHEN i.seq >= h.seq THEN NULL ELSE t.tid END), ''), "
    "coalesce(sum(max(0, h.seq - coalesce(i.seq, 0))), 0) FROM threads t "
    "LEFT JOIN heads h ON h.tid = t.tid LEFT JOIN passage_indexes i ON i.tid = t.tid "
    "AND i.version = ? WHERE h.status IS NOT ? AND "
)
"""Term statistics of several threads, in lists: a row for each thread would cost three times as much."""
_EVER = -(1 << 63), (1 << 63) - 1
KEPT_MAX = 8
"""Sets of threads whose counts are kept while nothing is written."""


class Among:
    """The threads of lookups over several, and their statistics until the next write to the file."""

    def __init__(self, lists: Lists) -> None:
        self._lists = lists
        self._known: dict[sqlite3.Connection, tuple[object, dict[object, object]]] = {}

    def look_up(self, raw: sqlite3.Connection, threads: Threads, wanted: LookUp) -> LookedUp:
        """Passages of several threads, of one moment. Raises `ThreadNotFound` where one of those named is not there."""
        raw.execute("BEGIN")
        try:
            named = _named_tids(raw, threads)
            members = self._members(raw, threads, (wanted.since_us, wanted.until_us))

            def ids(tids: Collection[int]) -> Mapping[int, str]:
                found = _thread_ids(raw, tids)
                return found if named is None else {tid: found[tid] for tid in named if tid in found}

            looked = passage_search.look_up_among(raw, members, ids, wanted, self._lists)
            return msgspec.structs.replace(looked, behind=tuple(ids(members.behind).values()))
        finally:
            raw.execute("COMMIT")

    def vectors(self, raw: sqlite3.Connection, threads: Threads, model: str, known: Mapping[int, int]) -> VectorsAmong:
        """See `PassageIndex.vectors_among`."""
        raw.execute("BEGIN")
        try:
            members = self._members(raw, threads, (None, None))
            tids = [tid for found in members.by_prefix.values() for tid in found]
            came = self._kept(raw, (threads, model), lambda: passage_vectors.came(raw, tids, model))
            ids = _thread_ids(raw, came.waiting)
            return VectorsAmong(
                passage_vectors.vectors_beyond(raw, came.upto, model, known),
                came.upto,
                {ids[tid]: count for tid, count in came.waiting.items() if tid in ids},
            )
        finally:
            raw.execute("COMMIT")

    def _members(self, raw: sqlite3.Connection, threads: Threads, times: tuple[int | None, int | None]) -> Members:
        return self._kept(raw, (threads, times), lambda: members_of(raw, threads, times))

    def _kept(self, raw: sqlite3.Connection, key: object, make: Callable[[], T]) -> T:
        """A value that was made since the last commit of anyone, or is made now."""
        version = raw.execute("PRAGMA data_version").fetchone(), raw.total_changes  # of others, and of its own
        seen, known = self._known.get(raw, (None, {}))
        if seen != version or len(known) >= KEPT_MAX:
            known = {}
            self._known[raw] = version, known
        found: T | None = known.get(key)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # of this key
        if found is None:
            found = known[key] = make()
        return found


def members_of(
    raw: sqlite3.Connection, threads: Threads, times: tuple[int | None, int | None] = (None, None)
) -> Members:
    """Term statistics of several threads; `times` bound the search."""
    since_us = _EVER[0] if times[0] is None else times[0]
    until_us = _EVER[1] if times[1] is None else times[1]
    passages = terms = lacking = 0
    by_prefix: dict[str, list[int]] = {}
    waiting: list[int] = []
    behind: list[int] = []
    for condition, values in _conditions(raw, threads):
        for row in _groups(raw, condition, (since_us, until_us, index_version(), DELETED, *values)):
            passages += row[2]
            terms += row[3]
            if row[4]:
                by_prefix.setdefault(row[0], []).extend(_split_numbers(row[4]))
            waiting += _split_numbers(row[5])
            behind += _split_numbers(row[6])
            lacking += row[7]
    by_prefix = {prefix: sorted(tids) for prefix, tids in by_prefix.items()}
    return Members(
        passages=passages,
        terms=terms,
        by_prefix=by_prefix,
        is_whole=is_whole(raw, by_prefix),
        waiting=dict(zip(waiting[::2], waiting[1::2], strict=True)),
        behind=behind,
        lacking=lacking,
    )


def list_members(raw: sqlite3.Connection, threads: Threads) -> list[Member]:
    """See `PassageIndex.members`."""
    found: list[Member] = []
    for condition, values in _conditions(raw, threads):
        query = (
            "SELECT t.tid, t.id, t.tenant_id, coalesce(h.seq, 0) FROM threads t LEFT JOIN heads h ON h.tid = t.tid "
            f"WHERE h.status IS NOT ? AND {condition} ORDER BY t.tid"
        )
        rows = rows_of(raw, query, (DELETED, *values))
        found += (Member(str(thread_id), tid, tid, str(tenant_id), seq) for tid, thread_id, tenant_id, seq in rows)
    return found


def _conditions(raw: sqlite3.Connection, threads: Threads) -> list[tuple[str, Sequence[object]]]:
    """Conditions on the threads `t` of a look-up, with their values: together they are of all of them."""
    named = _named_tids(raw, threads)
    if named is None:
        return [_thread_condition(threads)]
    return [(f"t.tid IN ({', '.join('?' * len(some))})", some) for some in sliced(sorted(named))]


def _groups(raw: sqlite3.Connection, condition: str, values: Sequence[object]) -> list[tuple]:  # type: ignore[type-arg]
    """A row for each prefix of words. There is mostly one, and to look for others costs half as much again."""
    rows = rows_of(raw, _GROUPS + condition, values)
    if rows[0][0] == rows[0][1] or rows[0][1] is None:
        return rows
    return rows_of(raw, f"{_GROUPS}{condition} GROUP BY i.prefix", values)


def _split_numbers(listed: str) -> list[int]:
    return list(map(int, listed.split(","))) if listed else []


def _named_tids(raw: sqlite3.Connection, threads: Threads) -> list[int] | None:
    """The row ids of the threads that are named, in their order; `None` where none are."""
    if threads.thread_ids is None:
        return None
    return [find_tid(raw, thread_id) for thread_id in threads.thread_ids if thread_id not in threads.without]


def _thread_ids(raw: sqlite3.Connection, tids: Collection[int]) -> dict[int, str]:
    """The ids of some threads, in the order of their making."""
    found: dict[int, str] = {}
    for some in sliced(sorted(tids)):
        marks = ", ".join("?" * len(some))
        rows = rows_of(raw, f"SELECT tid, id FROM threads WHERE tid IN ({marks}) ORDER BY tid", some)
        found.update((tid, str(thread_id)) for tid, thread_id in rows)
    return found


def _thread_condition(threads: Threads) -> tuple[str, Sequence[object]]:
    """The condition that a thread matches, with its values."""
    conditions = [f"t.{name} = ?" for name in threads.exact]
    values: list[object] = list(threads.exact.values())
    for name, left_out in (("kind", threads.without_kinds), ("id", sorted(threads.without))):
        if left_out:
            conditions.append(f"t.{name} NOT IN ({', '.join('?' * len(left_out))})")
            values += left_out
    if threads.without_key:
        key = encoded_key(threads.without_key)  # the first look copies nothing, and nearly all threads end with it
        conditions.append("(instr(t.metadata, ?) = 0 OR instr(',' || substr(t.metadata, 2), ?) = 0)")
        values += [key[1:], key]
    return " AND ".join(conditions), values
