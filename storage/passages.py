"""Passages in SQLite: a row each, full text in FTS5, vectors beside. The stores in files and in memory both use it.

A passage is written by the transaction of its event, with its text. Its words go to the full-text index later, many
passages at a time (`index_words`), since a list of words costs ten times as much one passage at a time; until then a
look-up reads them from the rows. A look-up sees both, at one moment.
"""

import sqlite3
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nlargest
from math import log
from zlib import crc32

import msgspec

from memory_engine.core.text import terms as analysed
from memory_engine.store.passages import (
    PLACES_BITS,
    LookedUp,
    LookUp,
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
    """CREATE VIRTUAL TABLE passage_terms USING fts5 (
        terms, content = 'passages', content_rowid = 'pos', detail = none, columnsize = 0, tokenize = 'ascii'
    )""",
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
WAITING_MIN = 64
"""Passages that wait at least before their words go into the full-text index."""
INDEXED_MAX = 256
"""Passages indexed in one transaction: some milliseconds."""
INDEXED_BULK = 1_024
"""Passages in one transaction where somebody waits for all: each at half the cost, in tens of milliseconds."""
RAW = "\x01"
"""Begins the text of a passage whose words are not indexed yet."""
MARK = "¶"
"""Begins a word that stands for a passage's kind or family: no analysed text has it, and FTS5 takes it for a letter."""
READ_MAX = 16_000
READ_MIN = 500
"""Entries read of all terms' lists together, and at least of each: the latest passages that hold it."""
SUCCESSORS_OF = 50
"""The best by words, and by meaning, whose successors become candidates too: these may answer them."""
_BITS = 40
_IN_MAX = 500
_LAST_TID = (1 << 23) - 1
_COLUMNS = "pos, kind, role, speaker, at_us, key, origins, ended, terms"
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
    destroy(raw, tid)
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


def count(terms: str) -> int:
    """How many terms there are."""
    return terms.count(" ") + 1 if terms else 0


def _to_row(tid: int, row: PassageRow) -> tuple[object, ...]:
    origins = msgspec.json.encode(row.origins).decode() if row.origins else ""
    terms = RAW + row.text if row.text else f"{_marks(row.kind, row.key)} {row.terms}"
    said = (row.kind, row.role, row.speaker, row.at_us)
    return (base(tid) + row.place, *said, tid, row.key, origins, row.ended, count(row.terms), terms)


def _words(kind: str, key: str, stored: str) -> str:
    """The text of a passage for the full-text index: its marks and its terms."""
    return f"{_marks(kind, key)} {' '.join(analysed(stored[1:]))}" if stored.startswith(RAW) else stored


def _marks(kind: str, key: str) -> str:
    family = _family(key)
    return f"{_mark(kind)} {_mark(family)}" if family else _mark(kind)


def _mark(name: str) -> str:
    return f"{MARK}{crc32(name.encode(errors='replace')):08x}"


def _family(key: str) -> str:
    """The prefix of all keys of one layer or document: the key up to its second colon."""
    parts = key.split(":", 2)
    return f"{parts[0]}:{parts[1]}:" if len(parts) > 2 else ""


def _from_row(tid: int, row: tuple[int, str, str, str, int, str, str, int, str]) -> PassageRow:
    pos, kind, role, speaker, at_us, key, origins, ended, terms = row
    drawn = _ORIGINS.decode(origins) if origins else ()
    words = _words(kind, key, terms).split(" ", 2 if _family(key) else 1)[-1]
    return PassageRow(pos - base(tid), kind, role, speaker, at_us, key, words, drawn, ended)


def _end(raw: sqlite3.Connection, tid: int, step: PassageStep) -> None:
    """End and destroy the passages that an event names."""
    keys = [*step.keys, *(key for seq in step.twins for key in _keys_of(raw, tid, seq))]
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE tid = ? AND key = ? AND key <> '' AND ended = 0",
        [(step.seq, tid, key) for key in keys],
    )
    raw.executemany(
        "UPDATE passages SET ended = ? WHERE tid = ? AND key >= ? AND key < ? AND key <> '' AND ended = 0",
        [(step.seq, tid, prefix, _beyond(prefix)) for prefix in step.prefixes],
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


def _beyond(prefix: str) -> str | bytes:
    """The bound after all keys that begin with a prefix, and before later ones: a text, or bytes (after any text)."""
    stem = prefix.rstrip(chr(sys.maxunicode))
    return stem[:-1] + ("\ue000" if stem[-1] == "\ud7ff" else chr(ord(stem[-1]) + 1)) if stem else b""


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
    for some in _sliced(sorted(doomed)):
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
    waiting = _waiting(raw, (index[0], base(tid + 1) - 1), at_most) if index is not None else []
    if len(waiting) < WAITING_MIN:
        return False
    raw.executemany(
        "INSERT INTO passage_terms (rowid, terms) VALUES (?, ?)", [(pos, words) for pos, words, _ in waiting]
    )
    taken = [(words, size, pos, tid) for pos, words, size in waiting if size is not None]
    raw.executemany("UPDATE passages SET terms = ?, size = ? WHERE pos = ? AND tid = ?", taken)
    raw.execute(
        "UPDATE passage_indexes SET folded = ?, terms = terms + ? WHERE tid = ?",
        (waiting[-1][0], sum(one[1] for one in taken), tid),
    )
    return len(waiting) == at_most


def _waiting(raw: sqlite3.Connection, span: tuple[int, int], limit: int = -1) -> list[tuple[int, str, int | None]]:
    """Passages above the first position up to the last: position, marks and terms, and their number if they are new."""
    rows = raw.execute(
        "SELECT pos, kind, key, terms FROM passages WHERE pos > ? AND pos <= ? ORDER BY pos LIMIT ?", (*span, limit)
    )
    found: list[tuple[int, str, int | None]] = []
    for pos, kind, key, stored in rows:
        if stored.startswith(RAW):
            terms = analysed(stored[1:])
            found.append((pos, f"{_marks(kind, key)} {' '.join(terms)}", len(terms)))
        else:
            found.append((pos, stored, None))
    return found


# looking up; runs in one read transaction of the caller's


def look_up(raw: sqlite3.Connection, tid: int, head: int, wanted: LookUp) -> LookedUp:
    """See `PassageIndex.look_up`."""
    row = raw.execute(
        "SELECT version, seq, folded, passages, terms FROM passage_indexes WHERE tid = ?", (tid,)
    ).fetchone()
    if row is None or row[0] != index_version():
        return LookedUp(head=head)
    _, seq, folded, passages, terms = row
    last = base(tid + 1) - 1
    if wanted.upto:
        last = base(tid) + ((wanted.upto + 1) << PLACES_BITS) - 1
        passages, terms = raw.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM passages WHERE pos BETWEEN ? AND ?", (base(tid), last)
        ).fetchone()
    postings = _Postings(raw, (base(tid), min(folded, last)), wanted)
    waiting = _waiting(raw, (max(folded, base(tid)), last))
    terms += sum(size or 0 for _, _, size in waiting)
    holding, scores = postings.score(passages, [(pos, words) for pos, words, _ in waiting])
    best = nlargest(wanted.limit, ((score, pos) for pos, score in scores.items()))
    chosen, rows, before = _chosen(raw, (tid, last), [pos for _, pos in best], wanted)
    return LookedUp(
        seq=seq,
        head=head,
        unindexed=len(waiting),
        passages=passages,
        terms=terms,
        holding=holding,
        chosen=[pos - base(tid) for pos in chosen],
        rows={pos - base(tid): row for pos, row in rows.items()},
        before={pos - base(tid): other - base(tid) for pos, other in before.items()},
    )


class _Postings:
    """The passages that hold each of the asked terms."""

    def __init__(self, raw: sqlite3.Connection, span: tuple[int, int], wanted: LookUp) -> None:
        self._raw = raw
        self._span = span
        self._wanted = wanted
        self._parts = list(_parts(wanted))
        self._most = max(READ_MIN, READ_MAX // max(1, len(wanted.terms) * len(self._parts)))

    def score(self, passages: int, tail: Sequence[tuple[int, str]]) -> tuple[dict[str, int], dict[int, float]]:
        """How many passages hold each term, and the sum of idf of each passage that holds a rare enough one."""
        terms = self._wanted.terms
        late = _held(tail, self._wanted)
        folded = {term: self._latest(term) for term in terms}
        holding = {term: self._count(places) + len(late[term]) for term, places in folded.items()}
        scores: dict[int, float] = {}
        left = self._wanted.postings_max
        for term in sorted(terms, key=lambda term: (holding[term], term)):
            if left <= 0:
                break
            places = [*late[term], *folded[term]]
            weight = log(1 + passages / holding[term]) if holding[term] else 0.0
            for pos in places[:left]:
                scores[pos] = scores.get(pos, 0.0) + weight
            left -= len(places)
        return holding, scores

    def _latest(self, term: str) -> list[int]:
        """The indexed passages that hold a term, the latest first."""
        first, last = self._span
        found = [
            pos
            for seq, marks in self._parts
            for (pos,) in self._raw.execute(
                "SELECT rowid FROM passage_terms WHERE passage_terms MATCH ? AND rowid BETWEEN ? AND ? "
                "ORDER BY rowid DESC LIMIT ?",
                (f'"{term}"{marks}', first + (seq << PLACES_BITS), last, self._most),
            )
        ]
        return found if len(self._parts) == 1 else sorted(found, reverse=True)[: self._most]

    def _count(self, places: Sequence[int]) -> int:
        """The number of passages. Where only the latest were read, it is inferred from how close together these are."""
        if len(places) < self._most:
            return len(places)
        first, last = self._span
        return round(len(places) * (last - first) / (last - places[-1]))


def _parts(wanted: LookUp) -> Iterator[tuple[int, str]]:
    """How to read each term's list: from which seq on, and with which marks."""
    kinds = " OR ".join(f'"{_mark(kind)}"' for kind in wanted.kinds)
    of_kinds = f" AND ({kinds})" if kinds else ""
    if not wanted.within:
        yield 0, of_kinds
    for prefix, seq in wanted.within:
        family = _family(prefix)
        yield seq, f' AND "{_mark(family)}"' if family else of_kinds


def _held(tail: Sequence[tuple[int, str]], wanted: LookUp) -> dict[str, list[int]]:
    """The unindexed passages that hold each term."""
    found: dict[str, list[int]] = {term: [] for term in wanted.terms}
    names = [_family(prefix) for prefix, _ in wanted.within] or wanted.kinds
    marks = {_mark(name) for name in names} if all(names) else set()
    for pos, text in tail:
        words = set(text.split())
        if marks and marks.isdisjoint(words):
            continue
        for term in found.keys() & words:
            found[term].append(pos)
    return found


def _chosen(
    raw: sqlite3.Connection, bounds: tuple[int, int], best: Sequence[int], wanted: LookUp
) -> tuple[list[int], dict[int, PassageRow], dict[int, int]]:
    """The candidates' places that may be shown, their rows and those before them, and the place before each."""
    tid, last = bounds
    near = [base(tid) + place for place in wanted.near]
    asked = [*best, *(pos for pos in near if pos <= last)]
    followed = dict.fromkeys((*best[:SUCCESSORS_OF], *near[:SUCCESSORS_OF]))
    links = _neighbours(raw, tid, dict.fromkeys(asked))
    chosen = dict.fromkeys(asked)
    later = [after for pos in followed if pos in links and (after := links[pos][1]) and after <= last]
    chosen.update(dict.fromkeys(later))
    links.update(_neighbours(raw, tid, dict.fromkeys(pos for pos in later if pos not in links)))
    before = {pos: links[pos][0] for pos in chosen if pos in links and links[pos][0]}
    rows = _rows(raw, tid, dict.fromkeys((*chosen, *before.values())))
    shown = [pos for pos in chosen if pos in rows and _fits(rows[pos], wanted)]
    stands = {pos for pos, row in rows.items() if _stands(row, wanted)}
    return shown, rows, {pos: before[pos] for pos in shown if before.get(pos) in stands}


def _stands(row: PassageRow, wanted: LookUp) -> bool:
    """Whether a passage had not ended yet at the moment of the query."""
    return not row.ended or bool(wanted.upto and row.ended > wanted.upto)


def _fits(row: PassageRow, wanted: LookUp) -> bool:
    return (
        _stands(row, wanted)
        and (not wanted.kinds or row.kind in wanted.kinds)
        and row.kind not in wanted.unwanted
        and (not wanted.within or any(row.key.startswith(key) and row.seq >= seq for key, seq in wanted.within))
        and (wanted.since_us is None or row.at_us >= wanted.since_us)
        and (wanted.until_us is None or row.at_us <= wanted.until_us)
    )


def _neighbours(raw: sqlite3.Connection, tid: int, places: Iterable[int]) -> dict[int, tuple[int, int]]:
    """For each position that there is: the ones before and after it in the thread, 0 where there is none."""
    found: dict[int, tuple[int, int]] = {}
    for some in _sliced(list(places)):
        rows = raw.execute(
            "SELECT c.pos, (SELECT max(p.pos) FROM passages p WHERE p.pos < c.pos AND p.pos >= ?), "
            "(SELECT min(n.pos) FROM passages n WHERE n.pos > c.pos AND n.pos < ?) "
            f"FROM passages c WHERE c.pos IN ({', '.join('?' * len(some))})",
            (base(tid), base(tid + 1), *some),
        )
        found.update((pos, (previous or 0, following or 0)) for pos, previous, following in rows)
    return found


def _rows(raw: sqlite3.Connection, tid: int, places: Iterable[int]) -> dict[int, PassageRow]:
    found: dict[int, PassageRow] = {}
    for some in _sliced(list(places)):
        marks = ", ".join("?" * len(some))
        for row in raw.execute(f"SELECT {_COLUMNS} FROM passages WHERE pos IN ({marks})", some):
            found[row[0]] = _from_row(tid, row)
    return found


def _span(tid: int, seq: int) -> tuple[int, int]:
    first = base(tid) + (seq << PLACES_BITS)
    return first, first + (1 << PLACES_BITS) - 1


def _sliced(values: Sequence[int]) -> Iterator[Sequence[int]]:
    return (values[at : at + _IN_MAX] for at in range(0, len(values), _IN_MAX))
