"""Looking up passages in SQLite (see `storage.passages`), in one read transaction of the caller's.

What a look-up leaves out (other kinds, other times, what has ended) is left out while candidates are gathered, never
from a list that was cut before: however much of it there is, it takes the place of nothing that is looked for.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import pairwise
from math import log

import msgspec

from memory_engine.storage.passages import (
    COLUMNS,
    Waiting,
    base,
    beyond,
    family,
    from_row,
    mark,
    sliced,
    waiting,
)
from memory_engine.store.passages import PLACES_BITS, LookedUp, LookUp, PassageRow, index_version

READ_MAX = 16_000
READ_MIN = 500
"""Entries read of all terms' lists together, and at least of each: the latest passages that hold it."""
LEFT_OUT_MAX = 2_000
"""Up to this many passages that ended, or are unwanted, are known by their places; of more, each entry is looked up."""
SUCCESSORS_OF = 30
"""The best by words, and by meaning, whose successors become candidates too: these may answer them."""
AROUND_OF = 15
"""The best by words, and by meaning, of which also those a little further on or back become candidates."""
AROUND = 3
"""How far: an answer may come some turns after the words of its question."""
_NEVER = 1 << 62
_FOUND = "SELECT rowid FROM passage_terms WHERE passage_terms MATCH ? AND rowid BETWEEN ? AND ?"
_FOUND_AND_READ = (
    "SELECT t.rowid FROM passage_terms t CROSS JOIN passages p ON p.pos = t.rowid "
    "WHERE t.passage_terms MATCH ? AND t.rowid BETWEEN ? AND ?"
)


def look_up(raw: sqlite3.Connection, tid: int, head: int, wanted: LookUp) -> LookedUp:
    """See `PassageIndex.look_up`."""
    row = raw.execute(
        "SELECT version, seq, folded, passages, terms FROM passage_indexes WHERE tid = ?", (tid,)
    ).fetchone()
    if row is None or row[0] != index_version():
        return LookedUp(head=head)
    _, seq, folded, passages, terms = row
    last = _last(tid, wanted)
    if wanted.upto:
        passages, terms = raw.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM passages WHERE pos BETWEEN ? AND ?", (base(tid), last)
        ).fetchone()
    unindexed = waiting(raw, (max(folded, base(tid)), last))
    terms += sum(one.size or 0 for one in unindexed)
    postings = _Postings(raw, tid, (base(tid), min(folded, last)), wanted)
    holding, scores = postings.score(passages, [one for one in unindexed if _waits(one, tid, wanted)])
    best = nlargest(wanted.limit, ((score, pos) for pos, score in scores.items()))
    near = [base(tid) + place for place in wanted.near]
    if wanted.near_max:
        near = _fitting(raw, tid, wanted, near)[: wanted.near_max]
    sought = _Sought([pos for _, pos in best], near, _listed(raw, tid, wanted))
    chosen = _chosen(raw, (tid, last), sought, wanted)
    first = base(tid)
    return LookedUp(
        seq=seq,
        head=head,
        unindexed=len(unindexed),
        passages=passages,
        terms=terms,
        holding=holding,
        near=len(near),
        listed=frozenset(pos - first for pos in sought.listed),
        chosen=[pos - first for pos in chosen.shown],
        rows={pos - first: row for pos, row in chosen.rows.items()},
        before={pos - first: other - first for pos, other in chosen.before.items()},
        around={
            pos - first: {other - first: far for other, far in found.items() if far >= -AROUND}
            for pos, found in chosen.around.items()
        },
    )


def fitting(raw: sqlite3.Connection, tid: int, wanted: LookUp) -> list[int]:
    """See `PassageIndex.fitting`."""
    row = raw.execute("SELECT version FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    if row is None or row[0] != index_version():
        return []
    let_through, values = _filter(tid, wanted)
    found = raw.execute(f"SELECT p.pos FROM passages p WHERE {let_through} ORDER BY p.pos", values)
    return [pos - base(tid) for (pos,) in found]


def _last(tid: int, wanted: LookUp) -> int:
    """The last position that a look-up sees."""
    return base(tid) + ((wanted.upto + 1) << PLACES_BITS) - 1 if wanted.upto else base(tid + 1) - 1


def _filter(tid: int, wanted: LookUp) -> tuple[str, list[object]]:
    """The condition on a row `p` of a passage that a look-up lets through, with its values."""
    conditions = ["p.tid = ? AND p.pos <= ? AND (p.ended = 0 OR p.ended > ?)"]
    values: list[object] = [tid, _last(tid, wanted), wanted.upto or _NEVER]
    for kinds, within in ((wanted.kinds, "IN"), (wanted.unwanted, "NOT IN")):
        if kinds:
            conditions.append(f"p.kind {within} ({', '.join('?' * len(kinds))})")
            values += kinds
    if wanted.within:
        parts = []
        for prefix, seq in wanted.within:
            parts.append("p.key >= ? AND p.key < ? AND p.pos >= ?")
            values += (prefix, beyond(prefix), base(tid) + (seq << PLACES_BITS))
        conditions.append(f"({' OR '.join(parts)})")
    for bound, than in ((wanted.since_us, ">="), (wanted.until_us, "<=")):
        if bound is not None:
            conditions.append(f"p.at_us {than} ?")
            values.append(bound)
    return " AND ".join(conditions), values


def _fitting(raw: sqlite3.Connection, tid: int, wanted: LookUp, places: Sequence[int]) -> list[int]:
    """Those of the positions that are let through, in their order."""
    let_through, values = _filter(tid, wanted)
    found: set[int] = set()
    for some in sliced(places):
        marks = ", ".join("?" * len(some))
        rows = raw.execute(f"SELECT p.pos FROM passages p WHERE p.pos IN ({marks}) AND {let_through}", (*some, *values))
        found.update(pos for (pos,) in rows)
    return [pos for pos in places if pos in found]


def _listed(raw: sqlite3.Connection, tid: int, wanted: LookUp) -> list[int]:
    """The positions of the passages of the times that are listed."""
    let_through, values = _filter(tid, wanted)
    query = f"SELECT p.pos FROM passages p WHERE {let_through} AND p.at_us BETWEEN ? AND ? ORDER BY p.at_us LIMIT ?"
    found: list[int] = []
    for since, until in wanted.listed:
        found += (pos for (pos,) in raw.execute(query, (*values, since, until, wanted.listed_max - len(found))))
    return found


def _waits(one: Waiting, tid: int, wanted: LookUp) -> bool:
    """Whether a look-up lets a passage through whose words are not indexed yet."""
    return _fits(PassageRow(one.pos - base(tid), one.kind, "", "", one.at_us, one.key, "", ended=one.ended), wanted)


class _ListPart(msgspec.Struct, frozen=True):
    """A part of a thread whose lists are read apart: from which position on, with which marks, and which keys."""

    first: int
    marks: str
    prefix: str = ""


class _Postings:
    """The passages that hold each of the asked terms, and that are let through."""

    def __init__(self, raw: sqlite3.Connection, tid: int, span: tuple[int, int], wanted: LookUp) -> None:
        self._raw = raw
        self._tid = tid
        self._wanted = wanted
        self._parts = list(_parts(span[0], wanted))
        self._most = max(READ_MIN, wanted.limit, READ_MAX // max(1, len(wanted.terms) * len(self._parts)))
        self._span = _of_time(raw, tid, span, wanted)
        self._left_out = _left_out(raw, tid, self._span, wanted)
        self._is_read = (
            self._left_out is None
            or wanted.since_us is not None
            or wanted.until_us is not None
            or any(part.prefix for part in self._parts)
        )

    def score(self, passages: int, late: Sequence[Waiting]) -> tuple[dict[str, int], dict[int, float]]:
        """How many passages hold each term, and the sum of idf of each passage that holds a rare enough one."""
        terms = self._wanted.terms
        held = _held(late, terms)
        folded = {term: self._latest(term) for term in terms}
        holding = {term: self._count(places) + len(held[term]) for term, places in folded.items()}
        scores: dict[int, float] = {}
        left = self._wanted.postings_max
        for term in sorted(terms, key=lambda term: (holding[term], term)):
            if left <= 0:
                break
            places = [*held[term], *folded[term]]
            weight = log(1 + passages / holding[term]) if holding[term] else 0.0
            for pos in places[:left]:
                scores[pos] = scores.get(pos, 0.0) + weight
            left -= len(places)
        return holding, scores

    def _latest(self, term: str) -> list[int]:
        """The indexed passages that hold a term, the latest first."""
        found = [pos for part in self._parts for pos in self._of_part(term, part)]
        return found if len(self._parts) == 1 else sorted(set(found), reverse=True)[: self._most]

    def _of_part(self, term: str, part: _ListPart) -> list[int]:
        first, last = self._span
        values: list[object] = [f'"{term}"{part.marks}', max(first, part.first), last]
        if not self._is_read:
            left_out = self._left_out or frozenset()
            query = f"{_FOUND} ORDER BY rowid DESC LIMIT ?"
            found = [pos for (pos,) in self._raw.execute(query, (*values, self._most + len(left_out)))]
            return [pos for pos in found if pos not in left_out][: self._most] if left_out else found
        let_through, further = _filter(self._tid, self._wanted)
        query = f"{_FOUND_AND_READ} AND {let_through} ORDER BY t.rowid DESC LIMIT ?"
        return [pos for (pos,) in self._raw.execute(query, (*values, *further, self._most))]

    def _count(self, places: Sequence[int]) -> int:
        """The number of passages. Where only the latest were read, it is inferred from how close together these are."""
        if len(places) < self._most:
            return len(places)
        first, last = self._span
        return round(len(places) * (last - first) / max(1, last - places[-1]))


def _parts(first: int, wanted: LookUp) -> Iterator[_ListPart]:
    """How to read each term's list."""
    kinds = " OR ".join(f'"{mark(kind)}"' for kind in wanted.kinds)
    marks = f" AND ({kinds})" if kinds else ""
    if not wanted.within:
        yield _ListPart(first, marks)
    for prefix, seq in wanted.within:
        start = first + (seq << PLACES_BITS)
        own = family(prefix)
        yield _ListPart(start, f' AND "{mark(own)}"{marks}' if own else marks, "" if own == prefix else prefix)


def _of_time(raw: sqlite3.Connection, tid: int, span: tuple[int, int], wanted: LookUp) -> tuple[int, int]:
    """The part of a span that holds all that was said between the times looked for."""
    if wanted.since_us is None and wanted.until_us is None:
        return span
    since = -(1 << 63) if wanted.since_us is None else wanted.since_us
    until = (1 << 63) - 1 if wanted.until_us is None else wanted.until_us
    first, last = raw.execute(
        "SELECT min(pos), max(pos) FROM passages WHERE tid = ? AND at_us BETWEEN ? AND ?", (tid, since, until)
    ).fetchone()
    return (span[0], span[0]) if first is None else (max(first, span[0]), min(last, span[1]))


def _left_out(raw: sqlite3.Connection, tid: int, span: tuple[int, int], wanted: LookUp) -> frozenset[int] | None:
    """The positions of what had ended at the moment of the query or is unwanted; `None` where these are too many."""
    found = raw.execute(
        "SELECT pos FROM passages INDEXED BY passages_ended WHERE tid = ? AND ended <> 0 AND ended <= ? LIMIT ?",
        (tid, wanted.upto or _NEVER, LEFT_OUT_MAX + 1),
    ).fetchall()
    for kind in wanted.unwanted:
        found += raw.execute(f"{_FOUND} LIMIT ?", (f'"{mark(kind)}"', *span, LEFT_OUT_MAX + 1))
    return frozenset(pos for (pos,) in found) if len(found) <= LEFT_OUT_MAX else None


def _held(late: Sequence[Waiting], terms: Sequence[str]) -> dict[str, list[int]]:
    """The unindexed passages that hold each term."""
    found: dict[str, list[int]] = {term: [] for term in terms}
    for one in late:
        for term in found.keys() & set(one.words.split()):
            found[term].append(one.pos)
    return found


class _Sought(msgspec.Struct, frozen=True):
    """The positions that a look-up gathers: those with the rarest words, the nearest, and those of the times listed."""

    best: Sequence[int]
    near: Sequence[int]
    listed: Sequence[int]

    def first(self, count: int) -> list[int]:
        """The best so many by words, and by meaning."""
        return list(dict.fromkeys((*self.best[:count], *self.near[:count])))


class _Chosen(msgspec.Struct, frozen=True):
    """The candidates' positions, their rows and those before them, the position before each, and those around some."""

    shown: list[int]
    rows: dict[int, PassageRow]
    before: dict[int, int]
    around: dict[int, dict[int, int]]


def _chosen(raw: sqlite3.Connection, bounds: tuple[int, int], sought: _Sought, wanted: LookUp) -> _Chosen:
    tid, last = bounds
    around = _around(raw, tid, last, sought.first(AROUND_OF)) if wanted.terms else {}
    asked = dict.fromkeys((*sought.best, *(pos for pos in sought.near if pos <= last), *sought.listed))
    links = _neighbours(raw, tid, [pos for pos in asked if pos not in around])
    before = {after: pos for pos, (_, after) in links.items() if after}
    before.update((pos, earlier) for pos, (earlier, _) in links.items() if earlier)
    later = [links[pos][1] for pos in sought.first(SUCCESSORS_OF) if pos in links and 0 < links[pos][1] <= last]
    for pos, found in around.items():
        before.update((after, earlier) for earlier, after in pairwise(sorted((pos, *found))))
    beside = (place for found in around.values() for place, far in found.items() if far >= -AROUND)
    chosen = asked | dict.fromkeys(later) | dict.fromkeys(beside)
    before = {pos: before[pos] for pos in chosen if pos in before}
    rows = _rows(raw, tid, dict.fromkeys((*chosen, *before.values())))
    shown = [pos for pos in chosen if pos in rows and _fits(rows[pos], wanted)]
    stands = {pos for pos, row in rows.items() if _stands(row, wanted)}
    return _Chosen(shown, rows, {pos: before[pos] for pos in shown if before.get(pos) in stands}, around)


def _around(raw: sqlite3.Connection, tid: int, last: int, places: Iterable[int]) -> dict[int, dict[int, int]]:
    """For each position the few before and after it, with how far on they are (those before it: less than 0).

    One more is before them than is looked at: the words of each are read with those of the one before.
    """
    back = "SELECT pos FROM passages WHERE pos < ? AND pos > ? ORDER BY pos DESC LIMIT ?"
    on = "SELECT pos FROM passages WHERE pos > ? AND pos <= ? ORDER BY pos LIMIT ?"
    found: dict[int, dict[int, int]] = {}
    for pos in places:
        earlier = raw.execute(back, (pos, base(tid), AROUND + 1))
        later = raw.execute(on, (pos, last, AROUND))
        found[pos] = {place: -far for far, (place,) in enumerate(earlier, 1)}
        found[pos].update((place, far) for far, (place,) in enumerate(later, 1))
    return found


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
    for some in sliced(list(places)):
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
    for some in sliced(list(places)):
        marks = ", ".join("?" * len(some))
        for row in raw.execute(f"SELECT {COLUMNS} FROM passages WHERE pos IN ({marks})", some):
            found[row[0]] = from_row(tid, row)
    return found
