"""Passages in SQLite: one row each, full text in FTS5, vectors in a table of their own. Used in files and in memory.

A passage is written by the transaction of its event, with its text. Its words go to the full-text index later
(`storage.passage_words`), since a list of words costs ten times as much one passage at a time; until then a look-up
(`storage.passage_search`) reads them from the rows. It sees both, at one moment.
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import msgspec

from memory_engine.core.lazy import lazy_module
from memory_engine.storage import passage_counts
from memory_engine.storage.driver import errors
from memory_engine.storage.passage_rows import (
    VECTOR_BLOCKS,
    beyond,
    count,
    stored_terms,
    terms_of,
    words_prefix,
)
from memory_engine.store.passages import (
    PLACES_BITS,
    THREAD_BITS,
    PassageChange,
    PassageRow,
    PassageStep,
    index_version,
)

if TYPE_CHECKING:
    from memory_engine.core.rewinding import Hiding
    from memory_engine.storage import vector_blocks
else:
    vector_blocks = lazy_module("memory_engine.storage.vector_blocks")

SCHEMA = """
    CREATE TABLE passage_indexes (
        tid INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        folded INTEGER NOT NULL,
        passages INTEGER NOT NULL,
        terms INTEGER NOT NULL
    ) STRICT;
"""
"""The threads that have an index. The first one creates the other tables, so a file without searches stays small."""
SCOPES = """
    ALTER TABLE passage_indexes ADD COLUMN prefix TEXT NOT NULL DEFAULT '';
    ALTER TABLE passage_indexes ADD COLUMN last INTEGER NOT NULL DEFAULT 9223372036854775807;
    ALTER TABLE passage_indexes ADD COLUMN first_us INTEGER;
    ALTER TABLE passage_indexes ADD COLUMN last_us INTEGER;
    CREATE INDEX passage_indexes_by_prefix ON passage_indexes (prefix, tid);
"""
"""Of each thread, for a lookup over many: the prefix of its words in the full-text index, the position of its last
passage (beyond `folded`: words wait), and the times of its first and last passage. Words of older releases have
no prefix."""
_FILL_SCOPES = f"""UPDATE passage_indexes SET
    last = coalesce((SELECT max(p.pos) FROM passages p WHERE p.pos BETWEEN
        passage_indexes.tid << {THREAD_BITS} AND (passage_indexes.tid + 1 << {THREAD_BITS}) - 1), 0),
    first_us = (SELECT min(p.at_us) FROM passages p INDEXED BY passages_by_time WHERE p.tid = passage_indexes.tid),
    last_us = (SELECT max(p.at_us) FROM passages p INDEXED BY passages_by_time WHERE p.tid = passage_indexes.tid)
"""
LOOKED_UP_BY = (
    "CREATE INDEX IF NOT EXISTS passages_by_time ON passages (tid, at_us)",
    "CREATE INDEX IF NOT EXISTS passages_ended ON passages (tid, ended) WHERE ended <> 0",
)
"""The parts that a file indexed by an older release lacks."""
TERMS = """CREATE VIRTUAL TABLE passage_terms USING fts5 (
    terms, content = 'passages', content_rowid = 'pos', detail = none, columnsize = 0, tokenize = 'ascii'
)"""
TABLES = (
    """CREATE TABLE passages (
        pos INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        role TEXT NOT NULL,
        speaker TEXT NOT NULL,
        at_us INTEGER NOT NULL,
        tid INTEGER NOT NULL,
        key TEXT NOT NULL,
        origins TEXT NOT NULL,
        ended INTEGER NOT NULL,
        size INTEGER NOT NULL,
        terms TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX passages_by_key ON passages (tid, key) WHERE key <> ''",
    "CREATE INDEX passages_drawn ON passages (tid) WHERE origins <> ''",
    TERMS,
    VECTOR_BLOCKS,
    """CREATE TABLE embedded (
        tid INTEGER NOT NULL,
        model TEXT NOT NULL,
        pos INTEGER NOT NULL,
        PRIMARY KEY (tid, model)
    ) STRICT, WITHOUT ROWID""",
)
_PLACE = (1 << THREAD_BITS) - 1
_IN_MAX = 500
_LAST_TID = (1 << 63 - THREAD_BITS) - 1
_NO_TIME = (1 << 63) - 1, -(1 << 63)
COLUMNS = "pos, kind, role, speaker, at_us, key, origins, ended, terms"
WORDS = "? || replace(terms, ' ', ' ' || ?)"
"""A row's words as the full-text index has them, each after the prefix of its tenant: that is given twice."""
_INSERT = (
    "INSERT INTO passages (pos, kind, role, speaker, at_us, tid, key, origins, ended, size, terms) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ORIGINS = msgspec.json.Decoder(tuple[int, ...])


def base(tid: int) -> int:
    """The position below all of a thread's passages. Positions are ordered by thread, then by place."""
    if tid > _LAST_TID:
        raise OverflowError(f"thread number {tid}: a file's first {_LAST_TID} threads can be searched")
    return tid << THREAD_BITS


def fill_scopes(raw: sqlite3.Connection) -> None:
    """Say of indexes that an older release made what `SCOPES` has added."""
    if raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'passages'").fetchone() is not None:
        for statement in (*LOOKED_UP_BY, _FILL_SCOPES):
            raw.execute(statement)


def place_in_thread(pos: int) -> int:
    """The place of a position in its thread."""
    return pos & (1 << THREAD_BITS) - 1


def has_index(raw: sqlite3.Connection, tid: int) -> bool:
    """Whether a thread has an index, of any version. Where none has, there are no other tables."""
    return raw.execute("SELECT 1 FROM passage_indexes WHERE tid = ?", (tid,)).fetchone() is not None


# writing; each runs inside the caller's transaction


def begin(raw: sqlite3.Connection, tid: int, prefix: str, *, afresh: bool) -> None:
    """Make an empty index, unless there is one of this version; with `afresh` in any case.

    `prefix` is that of the words of its tenant (`words_prefix`).
    """
    row = raw.execute("SELECT version FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    if row is not None and row[0] == index_version() and not afresh:
        return
    if raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'passages'").fetchone() is None:
        for statement in TABLES:
            raw.execute(statement)
    for statement in (*LOOKED_UP_BY, passage_counts.TABLE):
        raw.execute(statement)
    destroy(raw, tid)
    raw.execute("DELETE FROM passages WHERE pos BETWEEN ? AND ? AND tid = ?", (base(tid), base(tid + 1) - 1, tid))
    raw.execute(
        "INSERT INTO passage_indexes (tid, version, seq, folded, passages, terms, prefix, last, first_us, last_us) "
        "VALUES (?, ?, 0, ?, 0, 0, ?, ?, ?, ?)",
        (tid, index_version(), base(tid), prefix, base(tid), *_NO_TIME),
    )


def destroy(raw: sqlite3.Connection, tid: int) -> bool:
    """Delete a thread's index, with its vectors. Returns whether there were passages in it."""
    if not has_index(raw, tid):
        return False
    is_any = destroy_last(raw, tid, -1)
    for table in ("vector_blocks", "embedded", "passage_indexes"):
        raw.execute(f"DELETE FROM {table} WHERE tid = ?", (tid,))
    passage_counts.drop(raw, tid)
    return is_any


def destroy_last(raw: sqlite3.Connection, tid: int, at_most: int) -> bool:
    """Delete the last `count` passages of an index (-1: all). Returns whether there were any."""
    last = base(tid + 1) - 1
    query = "SELECT pos FROM passages WHERE pos BETWEEN ? AND ? AND tid = ? ORDER BY pos DESC LIMIT ?"
    first = raw.execute(f"SELECT min(pos) FROM ({query})", (base(tid), last, tid, at_most)).fetchone()[0]
    if first is None:
        return False
    _unindex(raw, tid, "pos BETWEEN ? AND ?", (first, last))
    raw.execute("DELETE FROM passages WHERE pos BETWEEN ? AND ? AND tid = ?", (first, last, tid))
    return True


def clear(raw: sqlite3.Connection, tid: int) -> None:
    """Drop a thread's index where rows of it are damaged; the next search makes it again.

    A damaged full-text index is created again from the rows of passages, which hold the words of all threads.
    """
    try:
        raw.execute("SAVEPOINT cleared")
        destroy(raw, tid)
    except errors(sqlite3.DatabaseError):
        raw.execute("ROLLBACK TO cleared")
        raw.execute("DROP TABLE IF EXISTS passage_terms")
        raw.execute(TERMS)
        raw.execute("DROP TABLE IF EXISTS passage_counts")
        raw.execute(passage_counts.TABLE)
        raw.execute(f"UPDATE passage_indexes SET folded = tid << {THREAD_BITS}")
        destroy(raw, tid)
    raw.execute("RELEASE cleared")


def optimize(raw: sqlite3.Connection) -> None:
    """Write the full-text index again, so that none of its pages holds words of destroyed passages."""
    raw.execute("INSERT INTO passage_terms (passage_terms) VALUES ('optimize')")


def write(raw: sqlite3.Connection, tid: int, change: PassageChange) -> bool:
    """Apply a change if the index is where it begins (a rebuild needs a new index). Returns whether it applied."""
    rows = [row for step in change.steps for row in step.rows]
    times = [row.at_us for row in rows]
    grown = (
        len(rows),
        sum(count(row.terms) for row in rows),
        base(tid) + rows[-1].place if rows else 0,
        min(times, default=_NO_TIME[0]),
        max(times, default=_NO_TIME[1]),
    )
    stands = raw.execute(
        "UPDATE passage_indexes SET seq = ?, passages = passages + ?, terms = terms + ?, last = max(last, ?), "
        "first_us = min(first_us, ?), last_us = max(last_us, ?) WHERE tid = ? AND version = ? AND seq = ?",
        (change.upto, *grown, tid, index_version(), change.after),
    ).rowcount
    if not stands:
        return False
    if change.hiding is not None:
        _hide(raw, tid, change.upto, change.hiding)
    waiting: list[PassageRow] = []
    for step in change.steps:
        if not step.only_adds:
            raw.executemany(_INSERT, (_to_row(tid, row) for row in waiting))
            waiting = []
            _end_passages(raw, tid, step)
        waiting += step.rows
    raw.executemany(_INSERT, (_to_row(tid, row) for row in waiting))  # one by one: many freed at once hold up others
    return True


def _to_row(tid: int, row: PassageRow) -> tuple[object, ...]:
    origins = msgspec.json.encode(row.origins).decode() if row.origins else ""
    said = (row.kind, row.role, row.speaker, row.at_us)
    return (base(tid) + row.place, *said, tid, row.key, origins, row.ended, count(row.terms), stored_terms(row))


def from_row(row: tuple[int, str, str, str, int, str, str, int, str]) -> PassageRow:
    """The value that was stored in a row."""
    pos, kind, role, speaker, at_us, key, origins, ended, terms = row
    drawn = _ORIGINS.decode(origins) if origins else ()
    return PassageRow(pos & _PLACE, kind, role, speaker, at_us, key, terms_of(kind, key, terms), drawn, ended)


def _hide(raw: sqlite3.Connection, tid: int, seq: int, hiding: "Hiding") -> None:
    """End the passages of hidden events at a seq, and let those go on that no event has ended which is shown."""
    raw.executemany(
        "UPDATE passages SET ended = 0 WHERE tid = ? AND ended <> 0 AND ended BETWEEN ? AND ?",
        [(tid, *gap) for gap in hiding.gaps],
    )
    spans = [(_event_span(tid, first)[0], _event_span(tid, last)[1]) for first, last in hiding.returned]
    raw.executemany(
        "UPDATE passages SET ended = 0 WHERE pos BETWEEN ? AND ? AND tid = ? AND ended = ?",
        [(*span, tid, act) for span in spans for act in hiding.acts],
    )
    spans = [(_event_span(tid, first)[0], _event_span(tid, last)[1]) for first, last in hiding.gaps]
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE pos BETWEEN ? AND ? AND tid = ? AND ended = 0",
        [(seq, *span, tid) for span in spans],
    )


def _end_passages(raw: sqlite3.Connection, tid: int, step: PassageStep) -> None:
    """End and destroy the passages that an event names."""
    if step.ends_all:
        raw.execute(
            "UPDATE passages SET ended = ? WHERE pos BETWEEN ? AND ? AND tid = ? AND ended = 0",
            (step.seq, base(tid), _event_span(tid, step.seq)[0] - 1, tid),
        )
    keys = [*step.keys, *(key for seq in step.twins for key in _keys_of(raw, tid, seq))]
    own = _event_span(tid, step.seq)[0]  # after a rewind, there may be passages of later events
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE tid = ? AND key = ? AND key <> '' AND ended = 0 AND pos < ?",
        [(step.seq, tid, key, own) for key in keys],
    )
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE tid = ? AND key >= ? AND key < ? AND key <> '' AND ended = 0 AND pos < ?",
        [(step.seq, tid, prefix, beyond(prefix), own) for prefix in step.prefixes],
    )
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE pos BETWEEN ? AND ? AND tid = ? AND ended = 0",
        [(step.seq, *_event_span(tid, seq), tid) for seq in (*step.seqs, *step.twins)],
    )
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE pos = ? AND tid = ? AND ended = 0",
        [(step.seq, pos, tid) for pos in _drawn_from(raw, tid, step.origins) if pos < own],
    )
    if step.drops or step.drop_keys:
        _destroy(raw, tid, _doomed(raw, tid, step))


def _keys_of(raw: sqlite3.Connection, tid: int, seq: int) -> list[str]:
    return [key for (key,) in raw.execute("SELECT key FROM passages WHERE pos BETWEEN ? AND ?", _event_span(tid, seq))]


def _doomed(raw: sqlite3.Connection, tid: int, step: PassageStep) -> set[int]:
    """The positions of passages that came of some events, were drawn from them, or have one of some keys."""
    found = set(_drawn_from(raw, tid, step.drops))
    for seq in step.drops:
        found.update(
            pos for (pos,) in raw.execute("SELECT pos FROM passages WHERE pos BETWEEN ? AND ?", _event_span(tid, seq))
        )
    for key in step.drop_keys:
        named = raw.execute("SELECT pos FROM passages WHERE tid = ? AND key = ? AND key <> ''", (tid, key))
        found.update(pos for (pos,) in named)
    return found


def _drawn_from(raw: sqlite3.Connection, tid: int, seqs: Collection[int]) -> list[int]:
    """The positions of passages drawn from some events."""
    if not seqs:
        return []
    wanted = frozenset(seqs)
    drawn = raw.execute("SELECT pos, origins FROM passages WHERE tid = ? AND origins <> ''", (tid,))
    return [pos for pos, origins in drawn if not wanted.isdisjoint(_ORIGINS.decode(origins))]


def _destroy(raw: sqlite3.Connection, tid: int, doomed: Iterable[int]) -> None:
    for some in sliced(sorted(doomed)):
        marks = ", ".join("?" * len(some))
        count, size = raw.execute(
            f"SELECT count(*), coalesce(sum(size), 0) FROM passages WHERE pos IN ({marks})", some
        ).fetchone()
        _unindex(raw, tid, f"pos IN ({marks})", some)
        raw.execute(f"DELETE FROM passages WHERE tid = ? AND pos IN ({marks})", (tid, *some))
        vector_blocks.destroy(raw, tid, [place_in_thread(pos) for pos in some])
        raw.execute(
            "UPDATE passage_indexes SET passages = passages - ?, terms = terms - ? WHERE tid = ?", (count, size, tid)
        )


def _unindex(raw: sqlite3.Connection, tid: int, where: str, values: Sequence[object]) -> None:
    """Remove passages of a thread from the full-text index, if they are in it."""
    folded, prefix = raw.execute("SELECT folded, prefix FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    raw.execute(
        "INSERT INTO passage_terms (passage_terms, rowid, terms) "
        f"SELECT 'delete', pos, {WORDS} FROM passages WHERE {where} AND pos <= ?",
        (prefix, prefix, *values, folded),
    )
    passage_counts.add(raw, tid, (f"{where} AND pos <= ?", (*values, folded)), by=-1)


def indexed_at(raw: sqlite3.Connection, words: Sequence[str]) -> list[str]:
    """Places of the full-text index that hold these analysed words in a row: only a query of the index knows them.

    An entry without its passage counts where it holds all of them: nothing says in which order.
    """
    said = f" {' '.join(words)} "
    return [
        f"the full-text index, passage {place_in_thread(pos)} of thread number {pos >> THREAD_BITS}"
        for prefix in _prefixes(raw, words[0])
        for pos, terms in raw.execute(
            "SELECT i.rowid, p.terms FROM passage_terms i LEFT JOIN passages p ON p.pos = i.rowid "
            "WHERE i.passage_terms MATCH ? ORDER BY i.rowid",
            (" AND ".join(f'"{prefix}{word}"' for word in words),),
        )
        if terms is None or said in f" {terms} "
    ]


def orphans(raw: sqlite3.Connection, tid: int, tenant: str, words: Sequence[str]) -> list[str]:
    """The entries of a thread in the full-text index that hold all these words, and whose passages are gone."""
    prefix = words_prefix(tenant)
    query = " AND ".join(f'"{prefix}{word}"' for word in words)
    found = raw.execute(
        "SELECT i.rowid FROM passage_terms i LEFT JOIN passages p ON p.pos = i.rowid "
        "WHERE i.passage_terms MATCH ? AND i.rowid BETWEEN ? AND ? AND p.pos IS NULL",
        (query, base(tid), base(tid + 1) - 1),
    )
    return [
        f"the full-text index, passage {place_in_thread(pos)} of thread number {tid}" for (pos,) in found.fetchall()
    ]


def is_whole(raw: sqlite3.Connection, by_prefix: Mapping[str, Sequence[int]]) -> bool:
    """Whether all words with the one prefix, between the first and the last of these threads, are theirs."""
    if len(by_prefix) != 1:
        return False
    [(prefix, tids)] = by_prefix.items()
    (count,) = raw.execute(
        "SELECT count(*) FROM passage_indexes WHERE prefix = ? AND tid BETWEEN ? AND ?", (prefix, tids[0], tids[-1])
    ).fetchone()
    return bool(count == len(tids))


def _prefixes(raw: sqlite3.Connection, word: str) -> list[str]:
    """Prefixes of words in the full-text index: those of all tenants, also of deleted ones."""
    with listing_words(raw, "row"):
        found = raw.execute(
            "SELECT term FROM temp.words WHERE term = ? OR term LIKE ? ORDER BY term",
            (word, f"{words_prefix('_')[:1]}%{words_prefix('_')[-1:]}{word}"),
        ).fetchall()
    return [term.removesuffix(word) for (term,) in found]


@contextmanager
def listing_words(raw: sqlite3.Connection, kind: Literal["row", "instance"]) -> Iterator[None]:
    """A block in which `temp.words` lists the words of the full-text index, once or with each passage (`doc`)."""
    (only_reads,) = raw.execute("PRAGMA query_only").fetchone()
    raw.execute("PRAGMA query_only = 0")  # a table that lists the words is temporary: the file does not change
    try:
        raw.execute(f"CREATE VIRTUAL TABLE temp.words USING fts5vocab ('main', 'passage_terms', '{kind}')")
        try:
            yield
        finally:
            raw.execute("DROP TABLE temp.words")
    finally:
        raw.execute(f"PRAGMA query_only = {only_reads}")


def _event_span(tid: int, seq: int) -> tuple[int, int]:
    first = base(tid) + (seq << PLACES_BITS)
    return first, first + (1 << PLACES_BITS) - 1


def sliced(values: Sequence[int]) -> Iterator[Sequence[int]]:
    """The values, as many at a time as a statement takes."""
    return (values[at : at + _IN_MAX] for at in range(0, len(values), _IN_MAX))
