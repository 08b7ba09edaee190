"""Passages in SQLite: a row each, full text in FTS5, vectors beside. The stores in files and in memory both use it.

A passage is written by the transaction of its event, with its text. Its words go to the full-text index later, many
passages at a time (`index_words`), since a list of words costs ten times as much one passage at a time; until then a
look-up (`storage.passage_search`) reads them from the rows. It sees both, at one moment.
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from memory_engine.storage.passage_rows import (
    INDEXED_MAX,
    WAITING_MIN,
    Waiting,
    beyond,
    count,
    stored_terms,
    terms_of,
    waiting_from,
)
from memory_engine.store.passages import (
    PLACES_BITS,
    PassageChange,
    PassageRow,
    PassageStep,
    index_version,
)

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
"""The threads that have an index. The other tables come with the first, so a file that nobody searches stays small."""
LOOKED_UP_BY = (
    "CREATE INDEX IF NOT EXISTS passages_by_time ON passages (tid, at_us)",
    "CREATE INDEX IF NOT EXISTS passages_ended ON passages (tid, ended) WHERE ended <> 0",
)
"""What a file that an older release indexed does not have yet."""
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
    """CREATE TABLE vectors (
        tid INTEGER NOT NULL,
        model TEXT NOT NULL,
        pos INTEGER NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (tid, model, pos)
    ) STRICT""",
    """CREATE TABLE embedded (
        tid INTEGER NOT NULL,
        model TEXT NOT NULL,
        pos INTEGER NOT NULL,
        PRIMARY KEY (tid, model)
    ) STRICT, WITHOUT ROWID""",
)
_BITS = 40
_IN_MAX = 500
_LAST_TID = (1 << 23) - 1
COLUMNS = "pos, kind, role, speaker, at_us, key, origins, ended, terms"
_INSERT = (
    "INSERT INTO passages (pos, kind, role, speaker, at_us, tid, key, origins, ended, size, terms) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ORIGINS = msgspec.json.Decoder(tuple[int, ...])


def base(tid: int) -> int:
    """The position below all of a thread's passages. Positions are ordered by thread, then by place."""
    if tid > _LAST_TID:
        raise OverflowError(f"thread number {tid}: a file's first {_LAST_TID} threads can be searched")
    return tid << _BITS


def has_index(raw: sqlite3.Connection, tid: int) -> bool:
    """Whether a thread has an index, of any version. Where none has, there are no other tables."""
    return raw.execute("SELECT 1 FROM passage_indexes WHERE tid = ?", (tid,)).fetchone() is not None


# writing; each runs inside the caller's transaction


def begin(raw: sqlite3.Connection, tid: int, *, afresh: bool) -> None:
    """Make an empty index, unless there is one of this version; with `afresh` in any case."""
    row = raw.execute("SELECT version FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    if row is not None and row[0] == index_version() and not afresh:
        return
    if raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'passages'").fetchone() is None:
        for statement in TABLES:
            raw.execute(statement)
    for statement in LOOKED_UP_BY:
        raw.execute(statement)
    destroy(raw, tid)
    raw.execute("DELETE FROM passages WHERE pos BETWEEN ? AND ? AND tid = ?", (base(tid), base(tid + 1) - 1, tid))
    raw.execute(
        "INSERT INTO passage_indexes (tid, version, seq, folded, passages, terms) VALUES (?, ?, 0, ?, 0, 0)",
        (tid, index_version(), base(tid)),
    )


def destroy(raw: sqlite3.Connection, tid: int) -> bool:
    """Delete every passage and vector of a thread. Returns whether there was an index."""
    row = raw.execute("SELECT folded FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    if row is None:
        return False
    whole = (base(tid), base(tid + 1) - 1)
    _unindex(raw, row[0], "pos BETWEEN ? AND ?", whole)
    raw.execute("DELETE FROM passages WHERE pos BETWEEN ? AND ? AND tid = ?", (*whole, tid))
    for table in ("vectors", "embedded", "passage_indexes"):
        raw.execute(f"DELETE FROM {table} WHERE tid = ?", (tid,))
    return True


def clear(raw: sqlite3.Connection, tid: int) -> None:
    """Drop a thread's index where rows of it are damaged; the next search makes it again.

    Where the full-text index itself is damaged, it is begun anew: the rows of passages hold the words of all threads.
    """
    try:
        raw.execute("SAVEPOINT cleared")
        destroy(raw, tid)
    except sqlite3.DatabaseError:
        raw.execute("ROLLBACK TO cleared")
        raw.execute("DROP TABLE IF EXISTS passage_terms")
        raw.execute(TERMS)
        raw.execute(f"UPDATE passage_indexes SET folded = tid << {_BITS}")
        destroy(raw, tid)
    raw.execute("RELEASE cleared")


def optimize(raw: sqlite3.Connection) -> None:
    """Write the full-text index anew, so that none of its pages holds words of destroyed passages."""
    raw.execute("INSERT INTO passage_terms (passage_terms) VALUES ('optimize')")


def write(raw: sqlite3.Connection, tid: int, change: PassageChange) -> bool:
    """Apply a change if the index stands where it begins. Returns whether it did."""
    if change.afresh:
        begin(raw, tid, afresh=True)
    added = [[_to_row(tid, row) for row in step.rows] for step in change.steps]
    terms = sum(count(row.terms) for step in change.steps for row in step.rows)
    stands = raw.execute(
        "UPDATE passage_indexes SET seq = ?, passages = passages + ?, terms = terms + ? "
        "WHERE tid = ? AND version = ? AND seq = ?",
        (change.upto, sum(map(len, added)), terms, tid, index_version(), change.after),
    ).rowcount
    if not stands:
        return False
    waiting: list[tuple[object, ...]] = []
    for step, rows in zip(change.steps, added, strict=True):
        if not step.only_adds:
            raw.executemany(_INSERT, waiting)
            waiting = []
            _end(raw, tid, step)
        waiting += rows
    raw.executemany(_INSERT, waiting)
    return True


def _to_row(tid: int, row: PassageRow) -> tuple[object, ...]:
    origins = msgspec.json.encode(row.origins).decode() if row.origins else ""
    said = (row.kind, row.role, row.speaker, row.at_us)
    return (base(tid) + row.place, *said, tid, row.key, origins, row.ended, count(row.terms), stored_terms(row))


def from_row(tid: int, row: tuple[int, str, str, str, int, str, str, int, str]) -> PassageRow:
    """A stored row as it was given."""
    pos, kind, role, speaker, at_us, key, origins, ended, terms = row
    drawn = _ORIGINS.decode(origins) if origins else ()
    return PassageRow(pos - base(tid), kind, role, speaker, at_us, key, terms_of(kind, key, terms), drawn, ended)


def _end(raw: sqlite3.Connection, tid: int, step: PassageStep) -> None:
    """End and destroy the passages that an event names."""
    if step.ends_all:
        raw.execute(
            "UPDATE passages SET ended = ? WHERE pos BETWEEN ? AND ? AND tid = ? AND ended = 0",
            (step.seq, base(tid), _span(tid, step.seq)[0] - 1, tid),
        )
    keys = [*step.keys, *(key for seq in step.twins for key in _keys_of(raw, tid, seq))]
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE tid = ? AND key = ? AND key <> '' AND ended = 0",
        [(step.seq, tid, key) for key in keys],
    )
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE tid = ? AND key >= ? AND key < ? AND key <> '' AND ended = 0",
        [(step.seq, tid, prefix, beyond(prefix)) for prefix in step.prefixes],
    )
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE pos BETWEEN ? AND ? AND tid = ? AND ended = 0",
        [(step.seq, *_span(tid, seq), tid) for seq in (*step.seqs, *step.twins)],
    )
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE pos = ? AND tid = ? AND ended = 0",
        [(step.seq, pos, tid) for pos in _drawn_from(raw, tid, step.origins)],
    )
    if step.drops or step.drop_keys:
        _destroy(raw, tid, _doomed(raw, tid, step))


def _keys_of(raw: sqlite3.Connection, tid: int, seq: int) -> list[str]:
    return [key for (key,) in raw.execute("SELECT key FROM passages WHERE pos BETWEEN ? AND ?", _span(tid, seq))]


def _doomed(raw: sqlite3.Connection, tid: int, step: PassageStep) -> set[int]:
    """The positions of passages that came of some events, were drawn from them, or have one of some keys."""
    found = set(_drawn_from(raw, tid, step.drops))
    for seq in step.drops:
        found.update(
            pos for (pos,) in raw.execute("SELECT pos FROM passages WHERE pos BETWEEN ? AND ?", _span(tid, seq))
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
    (folded,) = raw.execute("SELECT folded FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    for some in sliced(sorted(doomed)):
        marks = ", ".join("?" * len(some))
        count, size = raw.execute(
            f"SELECT count(*), coalesce(sum(size), 0) FROM passages WHERE pos IN ({marks})", some
        ).fetchone()
        _unindex(raw, folded, f"pos IN ({marks})", some)
        raw.execute(f"DELETE FROM passages WHERE tid = ? AND pos IN ({marks})", (tid, *some))
        raw.execute(f"DELETE FROM vectors WHERE tid = ? AND pos IN ({marks})", (tid, *some))
        raw.execute(
            "UPDATE passage_indexes SET passages = passages - ?, terms = terms - ? WHERE tid = ?", (count, size, tid)
        )


def _unindex(raw: sqlite3.Connection, folded: int, where: str, values: Sequence[object]) -> None:
    """Take passages out of the full-text index, as far as they are in it."""
    raw.execute(
        "INSERT INTO passage_terms (passage_terms, rowid, terms) "
        f"SELECT 'delete', pos, terms FROM passages WHERE {where} AND pos <= ?",
        (*values, folded),
    )


def index_words(raw: sqlite3.Connection, tid: int, at_most: int = INDEXED_MAX) -> bool:
    """Index the words of the oldest waiting passages, if they are enough. Returns whether more may wait."""
    index = raw.execute("SELECT folded FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    some = waiting(raw, (index[0], base(tid + 1) - 1), at_most) if index is not None else []
    if len(some) < WAITING_MIN:
        return False
    first = base(tid)
    raw.executemany(
        "INSERT INTO passage_terms (rowid, terms) VALUES (?, ?)", [(first + one.place, one.words) for one in some]
    )
    last = first + some[-1].place
    taken = [(one.words, one.size, first + one.place, tid) for one in some if one.size is not None]
    raw.executemany("UPDATE passages SET terms = ?, size = ? WHERE pos = ? AND tid = ?", taken)
    raw.execute(
        "UPDATE passage_indexes SET folded = ?, terms = terms + ? WHERE tid = ?",
        (last, sum(one[1] for one in taken), tid),
    )
    return len(some) == at_most and last > index[0]  # a damaged position could lead back for ever


def waiting(raw: sqlite3.Connection, span: tuple[int, int], limit: int = -1) -> list[Waiting]:
    """Passages above the first position up to the last, in order."""
    rows = raw.execute(
        "SELECT pos, kind, key, at_us, ended, terms FROM passages WHERE pos > ? AND pos <= ? ORDER BY pos LIMIT ?",
        (*span, limit),
    )
    first = span[0] >> _BITS << _BITS
    return [
        waiting_from(pos - first, kind, key, (at_us, ended), stored) for pos, kind, key, at_us, ended, stored in rows
    ]


def indexed_at(raw: sqlite3.Connection, words: Sequence[str]) -> list[str]:
    """Places of the full-text index that hold these analysed words in a row: what only a query of it can tell.

    An entry without its passage counts where it holds all of them: nothing says in which order.
    """
    query = " AND ".join(f'"{word}"' for word in words)
    rows = raw.execute(
        "SELECT i.rowid, p.terms FROM passage_terms i LEFT JOIN passages p ON p.pos = i.rowid "
        "WHERE i.passage_terms MATCH ?",
        (query,),
    )
    said = f" {' '.join(words)} "
    return [
        f"the full-text index, passage {pos & (1 << _BITS) - 1} of thread number {pos >> _BITS}"
        for pos, terms in rows
        if terms is None or said in f" {terms} "
    ]


def _span(tid: int, seq: int) -> tuple[int, int]:
    first = base(tid) + (seq << PLACES_BITS)
    return first, first + (1 << PLACES_BITS) - 1


def sliced(values: Sequence[int]) -> Iterator[Sequence[int]]:
    """The values, as many at a time as a statement takes."""
    return (values[at : at + _IN_MAX] for at in range(0, len(values), _IN_MAX))
