"""The rows of an index of passages for looking it up: see `memory_engine.storage.passage_lookup`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

import asyncpg

from memory_engine.core.aside import aside
from memory_engine.storage.passage_lookup import NEVER, ListPart, Stand, first_place, last_place
from memory_engine.storage.passage_rows import (
    FIRST_OF_EVENT,
    READ_CHARS_MAX,
    TAKEN,
    StoredWords,
    Waiting,
    beyond_bytes,
    mark,
    terms_of,
    waiting_from,
)
from memory_engine.storage.postgres.reads import Reads
from memory_engine.storage.postgres.rows import as_bytes, term_key
from memory_engine.store.passages import PLACES_BITS, LookUp, PassageRow

CHARS_AN_ITEM = 64
"""Characters of texts that take as long as an item of other work (see `aside`)."""
COLUMNS = "p.place, p.kind, p.role, p.speaker, p.at_us, p.key, p.origins, p.ended, p.terms"


def _list(term: str, first: str, last: str, rows: str = "w") -> str:
    """The places of one term, of part of a thread, as a query; `rows` names the rows of the table in it."""
    return (
        f"SELECT {rows}_x.place FROM @.words {rows} CROSS JOIN LATERAL unnest({rows}.places) {rows}_x(place) "
        f"WHERE {rows}.tid = $1 AND {rows}.term = {term} AND {rows}.last >= {first} "
        f"AND {rows}_x.place BETWEEN {first} AND {last}"
    )


class Values:
    """The values of a statement's parameters."""

    def __init__(self, given: list[object]) -> None:
        self.given = given

    def add(self, value: object) -> str:
        """Add one; the parameter's name in the statement."""
        self.given.append(value)
        return f"${len(self.given)}"


def filter_of(tid: UUID, wanted: LookUp) -> tuple[str, list[object]]:
    """The condition on a row `p` of a passage that a look-up lets through, with its values, from `$1` on."""
    values = Values([tid, last_place(wanted)])
    conditions = ["p.tid = $1 AND p.place <= $2", *narrowed(values, wanted)]
    parts = []
    for prefix, seq in wanted.within:
        start = as_bytes(prefix)
        bounds = f"p.key >= {values.add(start)} AND p.key < {values.add(beyond_bytes(start))}"
        parts.append(f"{bounds} AND p.place >= {values.add(first_place(seq))}")
    if parts:
        conditions.append(f"({' OR '.join(parts)})")
    return " AND ".join(conditions), values.given


def narrowed(values: Values, wanted: LookUp) -> list[str]:
    """The conditions on a row `p` of a passage that do not depend on its thread."""
    conditions = [f"(p.ended = 0 OR p.ended > {values.add(wanted.upto or NEVER)})"]
    if wanted.kinds:
        conditions.append(f"p.kind = ANY ({values.add([as_bytes(kind) for kind in wanted.kinds])})")
    if wanted.unwanted:
        conditions.append(f"p.kind <> ALL ({values.add([as_bytes(kind) for kind in wanted.unwanted])})")
    if wanted.since_us is not None:
        conditions.append(f"p.at_us >= {values.add(wanted.since_us)}")
    if wanted.until_us is not None:
        conditions.append(f"p.at_us <= {values.add(wanted.until_us)}")
    return conditions


def passage_from(row: asyncpg.Record) -> PassageRow:
    """A row of `COLUMNS`."""
    kind, key = row["kind"].decode(), row["key"].decode()
    return PassageRow(
        row["place"],
        kind,
        row["role"].decode(),
        row["speaker"].decode(),
        row["at_us"],
        key,
        terms_of(kind, key, row["terms"].decode()),
        tuple(row["origins"]),
        row["ended"],
    )


async def waiting(reads: Reads, tid: UUID, after: int, limit: int) -> list[StoredWords]:
    """The first passages above a place, in order."""
    rows = await reads.fetch(
        "SELECT place, kind, key, at_us, ended, terms FROM @.passages WHERE tid = $1 AND place > $2 "
        "ORDER BY place LIMIT $3",
        tid,
        after,
        limit,
    )
    return [stored_from(row, row["place"]) for row in rows]


def stored_from(row: asyncpg.Record, place: int) -> StoredWords:
    """A row's words, at a place."""
    return place, row["kind"].decode(), row["key"].decode(), row["at_us"], row["ended"], row["terms"].decode()


def sum_before(rows: str, order: str) -> str:
    """How many characters (see `within`) are read before those of a row of `rows`, as an expression.

    The later ones of a long event come last, others in this order.
    """
    order = f"{rows}.place & {(1 << PLACES_BITS) - 1} >= {FIRST_OF_EVENT}, {order}"
    size = f"length({rows}.terms) / CASE WHEN substring({rows}.terms FOR 1) = '\\x01' THEN 1 ELSE {TAKEN} END"
    return f"sum({size}) OVER (ORDER BY {order}) - {size}"


async def read_waiting(stored: Sequence[StoredWords], count: int) -> tuple[Sequence[Waiting], int]:
    """Analysed passages, analysed in a worker thread if they are many, and how many of `count` are left."""
    chars = sum(len(row[-1]) for row in stored)
    found = await aside(lambda: [waiting_from(row) for row in stored], items=chars // CHARS_AN_ITEM)
    return found, count - len(stored)


class IndexReader:
    """See `PassageReader`."""

    def __init__(self, reads: Reads, tid: UUID, wanted: LookUp) -> None:
        self._reads = reads
        self._tid = tid
        self._wanted = wanted

    def extent(self, place: int) -> int:
        """How much there is before a place."""
        return place

    async def stand(self) -> Stand | None:
        """How far the index has come."""
        row = await self._reads.one(
            "SELECT version, seq, folded, passages, terms FROM @.passage_indexes WHERE tid = $1", self._tid
        )
        return None if row is None else Stand(*row)

    async def counted(self, last: int) -> tuple[int, int]:
        """The number of passages up to a place, and of their terms."""
        [row] = await self._reads.fetch(
            "SELECT count(*) AS n, coalesce(sum(size), 0) AS terms FROM @.passages WHERE tid = $1 AND place <= $2",
            self._tid,
            last,
        )
        return row["n"], row["terms"]

    async def waiting(self, after: int, last: int) -> tuple[Sequence[Waiting], int]:
        """Passages above a place up to another, in order, and how many others there are."""
        rows = await self._reads.fetch(
            "SELECT * FROM (SELECT place, kind, key, at_us, ended, terms, count(*) OVER () AS count, "
            f"{sum_before('p', 'p.place DESC')} AS before FROM @.passages p "
            "WHERE tid = $1 AND place > $2 AND place <= $3) w WHERE before < $4 ORDER BY place",
            self._tid,
            after,
            last,
            READ_CHARS_MAX,
        )
        stored = [stored_from(row, row["place"]) for row in rows]
        return await read_waiting(stored, rows[0]["count"] if rows else 0)

    async def said_between(self, since_us: int, until_us: int) -> tuple[int, int] | None:
        """The first and the last place of what was said between two times."""
        [row] = await self._reads.fetch(
            "SELECT min(place) AS first, max(place) AS last FROM @.passages WHERE tid = $1 AND at_us BETWEEN $2 AND $3",
            self._tid,
            since_us,
            until_us,
        )
        return None if row["first"] is None else (row["first"], row["last"])

    async def ended_by(self, seq: int, limit: int) -> Sequence[int]:
        """Places of passages that had ended at a seq."""
        rows = await self._reads.fetch(
            "SELECT place FROM @.passages WHERE tid = $1 AND ended <> 0 AND ended <= $2 LIMIT $3", self._tid, seq, limit
        )
        return [row["place"] for row in rows]

    async def latest(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        """For each term and each part, the indexed passages that hold it, the latest first."""
        return await self._lists(terms, parts, span, most, fitting=False)

    async def counts(
        self, terms: Sequence[str], part: ListPart, span: tuple[int, int], most: int
    ) -> Mapping[str, tuple[int, int]] | None:
        """Nothing: the lists are arrays, and come with one query."""
        return None

    async def latest_fitting(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        """The same, of the passages that the look-up lets through."""
        return await self._lists(terms, parts, span, most, fitting=True)

    async def _lists(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int, *, fitting: bool
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        """The lists of all terms, a query for each part.

        It reads only as many of a list's latest rows as it needs: the places of a row come after all of the
        one before it, so the rows' order and then that within a row is that of the places.
        """
        found: defaultdict[str, list[list[int]]] = defaultdict(list)
        for part in parts:
            let_through, given = filter_of(self._tid, self._wanted)
            values = Values(given if fitting else [self._tid])
            first, last = values.add(max(span[0], part.first)), values.add(span[1])
            query = _list("t.term", first, last)
            for marks in ([mark(part.family)] if part.family else [], [mark(kind) for kind in part.kinds]):
                if marks:
                    asked = values.add([term_key(one) for one in marks])
                    query += f" AND w_x.place IN ({_list(f'ANY ({asked})', first, last, 'm')})"
            if part.unwanted and not fitting:
                asked = values.add([term_key(mark(kind)) for kind in part.unwanted])
                query += f" AND w_x.place NOT IN ({_list(f'ANY ({asked})', first, last, 'm')})"
            if fitting:
                query += f" AND EXISTS (SELECT 1 FROM @.passages p WHERE {let_through} AND p.place = w_x.place)"
            rows = await self._reads.fetch(
                "SELECT t.n, array_agg(l.place ORDER BY l.place DESC) AS places "
                f"FROM unnest({values.add([term_key(term) for term in terms])}::bytea[]) WITH ORDINALITY t(term, n) "
                f"CROSS JOIN LATERAL ({query} ORDER BY w.last DESC, w_x.place DESC LIMIT {values.add(most)}) l "
                "GROUP BY t.n",
                *values.given,
            )
            lists = {row["n"]: row["places"] for row in rows}
            for n, term in enumerate(terms, 1):
                found[term].append(lists.get(n, []))
        return found

    async def listed(self, since_us: int, until_us: int, limit: int) -> Sequence[int]:
        """Places of what was said between two times and is let through."""
        let_through, values = filter_of(self._tid, self._wanted)
        n = len(values)
        rows = await self._reads.fetch(
            f"SELECT p.place FROM @.passages p WHERE {let_through} AND p.at_us BETWEEN ${n + 1} AND ${n + 2} "
            f"ORDER BY p.at_us, p.place LIMIT ${n + 3}",
            *values,
            since_us,
            until_us,
            limit,
        )
        return [row["place"] for row in rows]

    async def around(self, places: Sequence[int], before: int, after: int, last: int) -> Mapping[int, Sequence[int]]:
        """For each place that many passages before it, and after it."""
        rows = await self._reads.fetch(
            "SELECT c.place AS of, n.place FROM unnest($2::bigint[]) c(place) CROSS JOIN LATERAL ("
            "(SELECT p.place FROM @.passages p WHERE p.tid = $1 AND p.place < c.place "
            "ORDER BY p.place DESC LIMIT $3) UNION ALL "
            "(SELECT p.place FROM @.passages p WHERE p.tid = $1 AND p.place > c.place AND p.place <= $5 "
            "ORDER BY p.place LIMIT $4)) n ORDER BY c.place, n.place",
            self._tid,
            list(places),
            before,
            after,
            last,
        )
        found: dict[int, list[int]] = {place: [] for place in places}
        for row in rows:
            found[row["of"]].append(row["place"])
        return found

    async def neighbours(self, places: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        """For each place that there is: the ones before and after it in the thread."""
        rows = await self._reads.fetch(
            "SELECT c.place, "
            "(SELECT max(p.place) FROM @.passages p WHERE p.tid = $1 AND p.place < c.place) AS earlier, "
            "(SELECT min(n.place) FROM @.passages n WHERE n.tid = $1 AND n.place > c.place) AS later "
            "FROM @.passages c WHERE c.tid = $1 AND c.place = ANY ($2)",
            self._tid,
            list(places),
        )
        return {row["place"]: (row["earlier"] or 0, row["later"] or 0) for row in rows}

    async def rows(self, places: Sequence[int]) -> Mapping[int, PassageRow]:
        """Return the passages at those of the places that hold one."""
        rows = await self._reads.fetch(
            f"SELECT {COLUMNS} FROM @.passages p WHERE p.tid = $1 AND p.place = ANY ($2)", self._tid, list(places)
        )
        return {row["place"]: passage_from(row) for row in rows}
