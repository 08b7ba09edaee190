"""Words of passages in SQLite enter the full-text index many passages at a time. Until then rows are read for them.

A row has the text of its passage until its terms were taken, and then these: see `storage.passage_rows`.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import accumulate

from memory_engine.core.aside import giving_way
from memory_engine.storage import passage_counts
from memory_engine.storage.passage_rows import (
    FIRST_OF_EVENT,
    INDEXED_BULK,
    INDEXED_MAX,
    RAW,
    TAKEN,
    WAITING_MIN,
    WORDS_CHARS_MAX,
    StoredWords,
    Waiting,
    terms_sought,
    waiting_from,
    within,
)
from memory_engine.storage.passages import WORDS, base, place_in_thread
from memory_engine.store.passages import PLACES_BITS

FEW = 128
"""Texts whose terms are all taken, and remembered for the next look-up. More are indexed before many of these come."""
_NONE: Mapping[StoredWords, Waiting] = {}
_WAITING = "SELECT pos, kind, key, at_us, ended, terms FROM passages WHERE pos > ? AND pos <= ?"
_SIZES = (
    f"SELECT pos, length(CAST(terms AS BLOB)) / CASE substr(terms, 1, 1) WHEN ? THEN 1 ELSE {TAKEN} END "
    "FROM passages WHERE pos > ? AND pos <= ? ORDER BY pos LIMIT ?"
)
"""In bytes: to count characters means to read them."""


def index_words_of(raw: sqlite3.Connection, tids: list[int], at_most: int = INDEXED_BULK) -> bool:
    """Index waiting passages of some threads, however few each has: many in one transaction cost less.

    Threads that are done are taken from the end of `tids`. Returns whether there are more.
    """
    left = at_most
    while tids and left > 0:
        count, more = _index_words(raw, tids[-1], left, 1)
        if more:
            break
        tids.pop()
        left -= max(1, count)
    return bool(tids)


def index_words(
    raw: sqlite3.Connection, tid: int, at_most: int = INDEXED_MAX, known: Mapping[StoredWords, Waiting] = _NONE
) -> bool:
    """Index the words of the oldest waiting passages, if they are enough. Returns whether more may wait.

    Words that are `known` (see `words_to_index`) are not taken of their texts while the transaction holds others up.
    """
    return _index_words(raw, tid, at_most, WAITING_MIN, known)[1]


def words_to_index(raw: sqlite3.Connection, tid: int, at_most: int) -> dict[StoredWords, Waiting]:
    """The words of the passages that `index_words` would index next, by what their rows hold.

    Nothing where the rows have them already.
    """
    index = raw.execute("SELECT folded FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    if index is None:
        return {}
    some, _ = _next_batch(raw, tid, index[0], at_most)
    with giving_way:
        return {row: _from_stored(row) for row in _without_terms(raw, index[0], some[-1])} if some else {}


def _index_words(
    raw: sqlite3.Connection, tid: int, at_most: int, at_least: int, known: Mapping[StoredWords, Waiting] = _NONE
) -> tuple[int, bool]:
    """Index the oldest waiting passages once enough wait. Returns how many it indexed, and whether more may wait."""
    index = raw.execute("SELECT folded, prefix FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    if index is None:
        return 0, False
    some, waiting_count = _next_batch(raw, tid, index[0], at_most)
    if waiting_count < at_least:
        if not some:
            raw.execute("UPDATE passage_indexes SET last = folded WHERE tid = ?", (tid,))
        return 0, False
    more = waiting_count == at_most or len(some) < waiting_count
    (after, prefix), last = index, some[-1]
    with giving_way:
        new = [known.get(row) or _from_stored(row) for row in _without_terms(raw, after, last)]
    rows = [(one.words, one.size, base(tid) + one.place, tid) for one in new]
    raw.executemany("UPDATE passages SET terms = ?, size = ? WHERE pos = ? AND tid = ?", rows)
    raw.execute(
        f"INSERT INTO passage_terms (rowid, terms) SELECT pos, {WORDS} FROM passages "
        "WHERE pos > ? AND pos <= ? ORDER BY pos",
        (prefix, prefix, after, last),
    )
    passage_counts.add(raw, tid, ("pos > ? AND pos <= ?", (after, last)), by=1)
    raw.execute(
        "UPDATE passage_indexes SET folded = ?, terms = terms + ?, last = CASE WHEN ? THEN ? ELSE last END "
        "WHERE tid = ?",
        (last, sum(one.size or 0 for one in new), not more, last, tid),
    )
    return len(some), more and last > after  # a damaged position could lead back for ever


def _next_batch(raw: sqlite3.Connection, tid: int, after: int, at_most: int) -> tuple[list[int], int]:
    """The positions of the waiting passages to index in one transaction, and how many wait, counted up to a limit."""
    sizes = raw.execute(_SIZES, (RAW, after, base(tid + 1) - 1, at_most)).fetchall()
    before = accumulate((size for _, size in sizes), initial=0)
    return [pos for (pos, _), size in zip(sizes, before, strict=False) if size < WORDS_CHARS_MAX], len(sizes)


def _without_terms(raw: sqlite3.Connection, after: int, last: int) -> list[StoredWords]:
    """The rows above a position up to the last whose terms were not taken yet."""
    return raw.execute(f"{_WAITING} AND substr(terms, 1, 1) = ? ORDER BY pos", (after, last, RAW)).fetchall()


def _from_stored(row: StoredWords, taken: Callable[[str], str] | None = None) -> Waiting:
    return waiting_from((place_in_thread(row[0]), *row[1:]), taken)


def waiting(
    raw: sqlite3.Connection, span: tuple[int, int], chars_max: int, wanted: Sequence[str] = ()
) -> tuple[list[Waiting], int]:
    """Passages above the first position up to the last, in order, and how many others there are.

    Of passages whose texts are longer than the limit it takes the latest, those that begin their events first. If
    these are many, only the `wanted` terms of their words are sure.
    """
    parts_last = f"pos & {(1 << PLACES_BITS) - 1} >= {FIRST_OF_EVENT}"
    with closing(raw.execute(f"{_WAITING} ORDER BY {parts_last}, pos DESC", span)) as rows:
        stored = list(within(rows, chars_max))
    if not stored:
        return [], 0
    (count,) = raw.execute("SELECT count(*) FROM passages WHERE pos > ? AND pos <= ?", span).fetchone()
    taken = terms_sought(wanted) if wanted and len(stored) > FEW else None
    return [_from_stored(row, taken) for row in sorted(stored)], count - len(stored)
