"""How many passages a thread had at a seq, and how many terms these: what a search as of then weighs words by.

To count them takes longer than all else that such a search does, so the sums of blocks are kept as words are indexed.
The rest is few: a block, and what waits. Sums that do not add up to what the index says of the whole (an older release
has written to the file) are passed over, and all passages are counted.
"""

import sqlite3
from collections.abc import Sequence

from memory_engine.store.passages import PLACES_BITS

TABLE = """CREATE TABLE IF NOT EXISTS passage_counts (
    tid INTEGER NOT NULL,
    block INTEGER NOT NULL,
    passages INTEGER NOT NULL,
    terms INTEGER NOT NULL,
    PRIMARY KEY (tid, block)
) STRICT, WITHOUT ROWID"""
BLOCK_BITS = PLACES_BITS + 10
"""A block has the positions of 1,024 events of a thread."""


def add(raw: sqlite3.Connection, tid: int, which: tuple[str, Sequence[object]], *, by: int) -> None:
    """Add passages of a thread to the sums of their blocks, or with `by` -1 take them from there.

    `which` is a condition on their rows, with its values.
    """
    if _are_kept(raw):
        where, values = which
        raw.execute(
            "INSERT INTO passage_counts (tid, block, passages, terms) "
            f"SELECT tid, pos >> {BLOCK_BITS}, {by} * count(*), {by} * sum(size) FROM passages NOT INDEXED "
            f"WHERE {where} AND tid = ? GROUP BY pos >> {BLOCK_BITS} "
            "ON CONFLICT (tid, block) DO UPDATE SET passages = passages + excluded.passages, "
            "terms = terms + excluded.terms",
            (*values, tid),
        )


def drop(raw: sqlite3.Connection, tid: int) -> None:
    """Delete the sums of a thread."""
    if _are_kept(raw):
        raw.execute("DELETE FROM passage_counts WHERE tid = ?", (tid,))


def counted(raw: sqlite3.Connection, tid: int, whole: tuple[int, int], last: int) -> tuple[int, int]:
    """How many passages a thread has up to a position, and how many terms these have.

    Its positions are from the first to the last of the `whole`.
    """
    (folded, passages, terms) = raw.execute(
        "SELECT folded, passages, terms FROM passage_indexes WHERE tid = ?", (tid,)
    ).fetchone()
    query = "SELECT block, passages, terms FROM passage_counts WHERE tid = ?"
    blocks = raw.execute(query, (tid,)).fetchall() if _are_kept(raw) else []
    if (passages, terms) != _sum_pairs([row[1:] for row in blocks] + [_sums(raw, folded, whole[1])]):
        return _sums(raw, whole[0] - 1, last)
    indexed = min(last, folded)
    block = indexed >> BLOCK_BITS
    rest = [_sums(raw, (block << BLOCK_BITS) - 1, indexed), _sums(raw, folded, last)]
    return _sum_pairs([row[1:] for row in blocks if row[0] < block] + rest)


def _are_kept(raw: sqlite3.Connection) -> bool:
    return raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'passage_counts'").fetchone() is not None


def _sum_pairs(sums: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(one[0] for one in sums), sum(one[1] for one in sums)


def _sums(raw: sqlite3.Connection, after: int, last: int) -> tuple[int, int]:
    """The number of passages above a position up to another, and of their terms."""
    found: tuple[int, int] = raw.execute(
        "SELECT count(*), coalesce(sum(size), 0) FROM passages WHERE pos > ? AND pos <= ?", (after, last)
    ).fetchone()
    return found
