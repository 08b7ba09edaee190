"""Looking up passages in SQLite (see `storage.passages`), in one read transaction of the caller's."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from memory_engine.storage import passage_lookup
from memory_engine.storage.passage_lookup import NEVER, ListPart, Stand, at_once, last_place
from memory_engine.storage.passage_rows import Waiting, beyond, mark
from memory_engine.storage.passages import COLUMNS, base, from_row, sliced, waiting
from memory_engine.store.passages import LookedUp, LookUp, PassageRow, index_version

_FOUND = "SELECT rowid FROM passage_terms WHERE passage_terms MATCH ? AND rowid BETWEEN ? AND ?"
_FOUND_AND_READ = (
    "SELECT t.rowid FROM passage_terms t CROSS JOIN passages p NOT INDEXED ON p.pos = t.rowid "
    "WHERE t.passage_terms MATCH ? AND t.rowid BETWEEN ? AND ?"
)


def look_up(raw: sqlite3.Connection, tid: int, head: int, wanted: LookUp) -> LookedUp:
    """See `PassageIndex.look_up`."""
    return at_once(passage_lookup.look_up(_Reader(raw, tid, wanted), head, wanted))


def fitting(raw: sqlite3.Connection, tid: int, wanted: LookUp) -> list[int]:
    """See `PassageIndex.fitting`."""
    row = raw.execute("SELECT version FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    if row is None or row[0] != index_version():
        return []
    let_through, values = _filter(tid, wanted)
    found = raw.execute(f"SELECT p.pos FROM passages p WHERE {let_through} ORDER BY p.pos", values)
    return [pos - base(tid) for (pos,) in found]


def _filter(tid: int, wanted: LookUp) -> tuple[str, list[object]]:
    """The condition on a row `p` of a passage that a look-up lets through, with its values."""
    conditions = ["p.tid = ? AND p.pos <= ? AND (p.ended = 0 OR p.ended > ?)"]
    values: list[object] = [tid, base(tid) + last_place(wanted), wanted.upto or NEVER]
    for kinds, within in ((wanted.kinds, "IN"), (wanted.unwanted, "NOT IN")):
        if kinds:
            conditions.append(f"p.kind {within} ({', '.join('?' * len(kinds))})")
            values += kinds
    if wanted.within:
        parts = []
        for prefix, seq in wanted.within:
            parts.append("p.key >= ? AND p.key < ? AND p.pos >= ?")
            values += (prefix, beyond(prefix), base(tid) + passage_lookup.first_place(seq))
        conditions.append(f"({' OR '.join(parts)})")
    for bound, than in ((wanted.since_us, ">="), (wanted.until_us, "<=")):
        if bound is not None:
            conditions.append(f"p.at_us {than} ?")
            values.append(bound)
    return " AND ".join(conditions), values


class _Reader:
    """See `PassageReader`. None of its methods waits for anything."""

    def __init__(self, raw: sqlite3.Connection, tid: int, wanted: LookUp) -> None:
        self._raw = raw
        self._tid = tid
        self._wanted = wanted
        self._first = base(tid)

    async def stand(self) -> Stand | None:
        """How far the index has come."""
        row = self._raw.execute(
            "SELECT version, seq, folded, passages, terms FROM passage_indexes WHERE tid = ?", (self._tid,)
        ).fetchone()
        if row is None:
            return None
        version, seq, folded, passages, terms = row
        return Stand(version, seq, max(0, folded - self._first), passages, terms)

    async def counted(self, last: int) -> tuple[int, int]:
        """The number of passages up to a place, and of their terms."""
        passages, terms = self._raw.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM passages WHERE pos BETWEEN ? AND ?",
            (self._first, self._first + last),
        ).fetchone()
        return passages, terms

    async def waiting(self, after: int, last: int) -> Sequence[Waiting]:
        """The passages above a place up to another, in order."""
        return waiting(self._raw, (self._first + after, self._first + last))

    async def said_between(self, since_us: int, until_us: int) -> tuple[int, int] | None:
        """The first and the last place of what was said between two times."""
        first, last = self._raw.execute(
            "SELECT min(pos), max(pos) FROM passages WHERE tid = ? AND at_us BETWEEN ? AND ?",
            (self._tid, since_us, until_us),
        ).fetchone()
        return None if first is None else (first - self._first, last - self._first)

    async def ended_by(self, seq: int, limit: int) -> Sequence[int]:
        """Places of passages that had ended at a seq."""
        found = self._raw.execute(
            "SELECT pos FROM passages INDEXED BY passages_ended WHERE tid = ? AND ended <> 0 AND ended <= ? LIMIT ?",
            (self._tid, seq, limit),
        )
        return [pos - self._first for (pos,) in found]

    async def of_kind(self, kind: str, span: tuple[int, int], limit: int) -> Sequence[int]:
        """Places of indexed passages of a kind."""
        return self._found(f"{_FOUND} LIMIT ?", (f'"{mark(kind)}"', *self._positions(*span), limit))

    async def latest(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        """For each term and each part, the indexed passages that hold it, the latest first."""
        query = f"{_FOUND} ORDER BY rowid DESC LIMIT ?"
        return {
            term: [self._found(query, (*self._matching(term, part, span), most)) for part in parts] for term in terms
        }

    async def latest_fitting(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        """The same, of the passages that the look-up lets through."""
        let_through, further = _filter(self._tid, self._wanted)
        query = f"{_FOUND_AND_READ} AND {let_through} ORDER BY t.rowid DESC LIMIT ?"
        return {
            term: [self._found(query, (*self._matching(term, part, span), *further, most)) for part in parts]
            for term in terms
        }

    def _matching(self, term: str, part: ListPart, span: tuple[int, int]) -> tuple[object, ...]:
        kinds = " OR ".join(f'"{mark(kind)}"' for kind in part.kinds)
        marks = f' AND "{mark(part.family)}"' if part.family else ""
        first, last = self._positions(max(span[0], part.first), span[1])
        return f'"{term}"{marks}{f" AND ({kinds})" if kinds else ""}', first, last

    def _positions(self, first: int, last: int) -> tuple[int, int]:
        return self._first + first, self._first + last

    def _found(self, query: str, values: Sequence[object]) -> list[int]:
        return [pos - self._first for (pos,) in self._raw.execute(query, values)]

    async def fitting(self, places: Sequence[int]) -> Collection[int]:
        """Those of the places that the look-up lets through."""
        let_through, values = _filter(self._tid, self._wanted)
        found: set[int] = set()
        for some in sliced([self._first + place for place in places]):
            marks = ", ".join("?" * len(some))
            query = f"SELECT p.pos FROM passages p NOT INDEXED WHERE p.pos IN ({marks}) AND {let_through}"
            found.update(self._found(query, (*some, *values)))
        return found

    async def listed(self, since_us: int, until_us: int, limit: int) -> Sequence[int]:
        """Places of what was said between two times and is let through."""
        let_through, values = _filter(self._tid, self._wanted)
        query = (
            f"SELECT p.pos FROM passages p WHERE {let_through} AND p.at_us BETWEEN ? AND ? "
            "ORDER BY p.at_us, p.pos LIMIT ?"
        )
        return self._found(query, (*values, since_us, until_us, limit))

    async def around(self, places: Sequence[int], before: int, after: int, last: int) -> Mapping[int, Sequence[int]]:
        """For each place that many passages before it, and after it."""
        back = "SELECT pos FROM passages WHERE pos < ? AND pos > ? ORDER BY pos DESC LIMIT ?"
        on = "SELECT pos FROM passages WHERE pos > ? AND pos <= ? ORDER BY pos LIMIT ?"
        found = {}
        for place in places:
            pos = self._first + place
            earlier = self._found(back, (pos, self._first, before))
            found[place] = [*reversed(earlier), *self._found(on, (pos, self._first + last, after))]
        return found

    async def neighbours(self, places: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        """For each place that there is: the ones before and after it in the thread."""
        first = self._first
        found: dict[int, tuple[int, int]] = {}
        for some in sliced([first + place for place in places]):
            rows = self._raw.execute(
                "SELECT c.pos, (SELECT max(p.pos) FROM passages p WHERE p.pos < c.pos AND p.pos >= ?), "
                "(SELECT min(n.pos) FROM passages n WHERE n.pos > c.pos AND n.pos < ?) "
                f"FROM passages c WHERE c.pos IN ({', '.join('?' * len(some))})",
                (first, base(self._tid + 1), *some),
            )
            for pos, earlier, later in rows:
                found[pos - first] = (earlier - first if earlier else 0, later - first if later else 0)
        return found

    async def rows(self, places: Sequence[int]) -> Mapping[int, PassageRow]:
        """The passages at these places that there are."""
        found: dict[int, PassageRow] = {}
        for some in sliced([self._first + place for place in places]):
            marks = ", ".join("?" * len(some))
            for row in self._raw.execute(f"SELECT {COLUMNS} FROM passages WHERE pos IN ({marks})", some):
                found[row[0] - self._first] = from_row(self._tid, row)
        return found
