"""The rows of the indexes of several threads for looking them up: see `memory_engine.storage.passage_lookup`."""

from array import array
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from uuid import UUID

import asyncpg
import msgspec

from memory_engine.core.threads import DELETED, encoded_key
from memory_engine.storage import passage_lookup
from memory_engine.storage.passage_lookup import ListPart, Stand
from memory_engine.storage.passage_rows import READ_CHARS_MAX, Waiting, mark
from memory_engine.storage.postgres.passage_reader import (
    COLUMNS,
    IndexReader,
    Values,
    narrowed,
    passage_from,
    read_waiting,
    stored_from,
    sum_before,
)
from memory_engine.storage.postgres.reads import Reads
from memory_engine.storage.postgres.rows import term_key, tid_of
from memory_engine.store.passages import (
    THREAD_BITS,
    LookedUp,
    LookUp,
    Member,
    PassageRow,
    Threads,
    VectorRows,
    VectorsAmong,
    index_version,
)

TENANT_BYTES_MAX = 1_024
"""The longest id of a tenant whose lists are read at once."""
_PLACE = (1 << THREAD_BITS) - 1
_NONE = UUID(int=0)


async def look_up_among(reads: Reads, threads: Threads, wanted: LookUp) -> LookedUp:
    """See `PassageIndex.look_up_among`."""
    rows = await _members(reads, threads)
    indexed = [row for row in rows if row["is_indexed"]]
    numbers = {row["tid"].int: number for number, row in enumerate(indexed)}
    near = [
        numbers[place >> THREAD_BITS] << THREAD_BITS | place & _PLACE
        for place in wanted.near
        if place >> THREAD_BITS in numbers
    ]
    wanted = msgspec.structs.replace(wanted, near=tuple(near))
    reader = AmongReader(reads, threads, indexed, wanted)
    looked = await passage_lookup.look_up(reader, 0, wanted)
    used = {place >> THREAD_BITS for place in looked.chosen}
    order: Sequence[int] = range(len(indexed))
    if threads.thread_ids is not None:
        by_id = {row["id"]: number for number, row in enumerate(indexed)}
        order = [by_id[thread_id] for thread_id in threads.thread_ids if thread_id in by_id]
    looked = looked.numbered({number: indexed[number]["id"] for number in order if number in used})
    return msgspec.structs.replace(
        looked,
        behind=tuple(row["id"] for row in rows if row["is_behind"]),
        lacking=sum(row["lacking"] for row in rows),
        numbers=tuple(tid_of(thread_id).int for thread_id in looked.threads),
    )


def in_pieces(vectors: Sequence[tuple[int, bytes]]) -> list[VectorRows]:
    """Vectors after each other, those of one size in one piece."""
    pieces = []
    for _, alike in groupby(vectors, key=lambda vector: len(vector[1])):
        some = list(alike)
        pieces.append(VectorRows(array("q", (place for place, _ in some)), b"".join(vector for _, vector in some)))
    return pieces


async def vectors_among(reads: Reads, threads: Threads, model: str, known: Mapping[int, int]) -> VectorsAmong:
    """See `PassageIndex.vectors_among`. The number of a thread is that of its key."""
    ids = {row["tid"]: row["id"] for row in await _members(reads, threads) if row["is_indexed"]}
    rows = await reads.fetch(
        "SELECT t.tid, e.place, (SELECT count(*) FROM @.passages p WHERE p.tid = t.tid "
        "AND p.place > coalesce(e.place, 0)) AS waiting FROM unnest($1::uuid[]) t(tid) "
        "LEFT JOIN @.embedded e ON e.tid = t.tid AND e.model = $2",
        list(ids),
        model,
    )
    upto = {row["tid"]: row["place"] for row in rows if row["place"] is not None}
    later = [tid for tid, place in upto.items() if place > known.get(tid.int, -1)]
    found = await reads.fetch(
        "SELECT v.tid, v.place, v.vector FROM unnest($1::uuid[], $2::bigint[]) t(tid, place) JOIN @.vectors v "
        "ON v.tid = t.tid AND v.model = $3 AND v.place > t.place ORDER BY v.tid, v.place",
        later,
        [known.get(tid.int, 0) for tid in later],
        model,
    )
    return VectorsAmong(
        [
            (tid.int, piece)
            for tid, rows in groupby(found, key=lambda row: row["tid"])
            for piece in in_pieces([(row["place"], row["vector"]) for row in rows])
        ],
        {tid.int: place for tid, place in upto.items()},
        {ids[row["tid"]]: row["waiting"] for row in rows if row["waiting"]},
    )


async def members(reads: Reads, threads: Threads) -> list[Member]:
    """See `PassageIndex.members`."""
    rows = await _members(reads, threads)
    ranks = {
        row["tid"]: row["rank"]
        for row in await reads.fetch(
            "SELECT r.tid, r.rank FROM "
            "(SELECT t.tid, row_number() OVER (ORDER BY t.made_us, t.tid) AS rank FROM @.threads t) r "
            "WHERE r.tid = ANY ($1)",
            [row["tid"] for row in rows],
        )
    }
    return [Member(row["id"], row["tid"].int, ranks[row["tid"]], row["tenant_id"], row["seq"]) for row in rows]


async def waiting_in(reads: Reads, threads: Threads) -> list[str]:
    """The ids of those of several threads of which words wait to be indexed."""
    indexed = {row["tid"]: row for row in await _members(reads, threads) if row["is_indexed"]}
    rows = await reads.fetch(
        "SELECT i.tid FROM @.passage_indexes i WHERE i.tid = ANY ($1) AND EXISTS "
        "(SELECT 1 FROM @.passages p WHERE p.tid = i.tid AND p.place > i.folded)",
        list(indexed),
    )
    return [indexed[row["tid"]]["id"] for row in rows]


async def _members(reads: Reads, threads: Threads) -> list[asyncpg.Record]:
    """The threads, in the order of their making. Raises `ThreadNotFound` where one of those named is not there."""
    values = Values([DELETED, index_version()])
    if threads.thread_ids is not None:
        named = [one for one in dict.fromkeys(threads.thread_ids) if one not in threads.without]
        for thread_id in named:
            await reads.there(thread_id)
        conditions = [f"t.tid = ANY ({values.add([tid_of(one) for one in named])})"]
    else:
        if any("\0" in value for value in threads.exact.values()):
            return []
        conditions = [f"t.{name} = {values.add(value)}" for name, value in threads.exact.items()]
        if threads.user_id:
            conditions.append("t.user_id <> ''")  # as the index by users says
        conditions.append(f"t.kind <> ALL ({values.add(list(threads.without_kinds))}::text[])")
        conditions.append(f"t.tid <> ALL ({values.add([tid_of(one) for one in threads.without])}::uuid[])")
        if threads.without_key:
            key = values.add(encoded_key(threads.without_key).encode())
            conditions.append(f"position({key}::bytea IN ','::bytea || substring(t.metadata FROM 2)) = 0")
    return await reads.fetch(
        "SELECT t.tid, t.id, t.tenant_id, coalesce(h.seq, 0) AS seq, "
        "i.tid IS NOT NULL AS is_indexed, coalesce(i.seq < h.seq, true) AS is_behind, "
        "greatest(0, coalesce(h.seq, 0) - coalesce(i.seq, 0)) AS lacking, "
        "coalesce(i.passages, 0) AS passages, coalesce(i.terms, 0) AS terms, coalesce(i.folded, 0) AS folded "
        "FROM @.threads t LEFT JOIN @.heads h ON h.tid = t.tid "
        "LEFT JOIN @.passage_indexes i ON i.tid = t.tid AND i.version = $2 "
        f"WHERE h.status IS DISTINCT FROM $1 AND {' AND '.join(conditions)} ORDER BY t.made_us, t.tid",
        *values.given,
    )


class AmongReader(IndexReader):
    """See `PassageReader`: of several threads, whose numbers are their places among the `members`."""

    def __init__(self, reads: Reads, threads: Threads, members: Sequence[asyncpg.Record], wanted: LookUp) -> None:
        super().__init__(reads, _NONE, wanted)
        self._members = members
        self._tids: list[UUID] = [row["tid"] for row in members]
        self._numbers = {tid: number for number, tid in enumerate(self._tids)}
        self._tenant = threads.tenant_id if threads.thread_ids is None else None

    def extent(self, place: int) -> int:
        """How many threads there are before that of a place."""
        return place >> THREAD_BITS

    async def stand(self) -> Stand | None:
        """How far all of them have come: each is looked up as far as it has."""
        passages, terms = (sum(row[name] for row in self._members) for name in ("passages", "terms"))
        last = max(1, (len(self._tids) << THREAD_BITS) - 1)
        return Stand(index_version(), 0, last, passages, terms, last)

    async def waiting(self, after: int, last: int) -> tuple[Sequence[Waiting], int]:
        """The passages of all whose words are not indexed yet, of the latest threads first if they are too many."""
        rows = await self._reads.fetch(
            "SELECT * FROM (SELECT p.tid, p.place, p.kind, p.key, p.at_us, p.ended, p.terms, "
            f"count(*) OVER () AS count, {sum_before('p', 'i.n DESC, p.place DESC')} AS before "
            "FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY i(tid, folded, n) "
            "JOIN @.passages p ON p.tid = i.tid AND p.place > i.folded) w WHERE before < $3",
            self._tids,
            [row["folded"] for row in self._members],
            READ_CHARS_MAX,
        )
        stored = sorted(stored_from(row, self._position(row["tid"], row["place"])) for row in rows)
        return await read_waiting(stored, rows[0]["count"] if rows else 0)

    async def said_between(self, since_us: int, until_us: int) -> tuple[int, int] | None:
        """All of the threads."""
        return (0, (len(self._tids) << THREAD_BITS) - 1) if self._tids else None

    async def ended_by(self, seq: int, limit: int) -> Sequence[int]:
        """Places of passages that have ended."""
        values = Values([limit])
        rows = await self._reads.fetch(
            f"SELECT w.tid, w.place FROM @.passages w WHERE {self._whose(values)} AND w.ended <> 0 LIMIT $1",
            *values.given,
        )
        return self._positions(rows)

    def _whose(self, values: Values) -> str:
        """The condition on a row `w` that it may be of one of the threads; the answer may have rows of others."""
        if self._tenant is None or len(self._tenant.encode()) > TENANT_BYTES_MAX:
            return f"w.tid = ANY ({values.add(self._tids)})"
        return f"w.tenant_id = {values.add(self._tenant)} AND octet_length(w.tenant_id) <= {TENANT_BYTES_MAX}"

    def _position(self, tid: UUID, place: int) -> int:
        return self._numbers[tid] << THREAD_BITS | place

    def _positions(self, rows: Sequence[asyncpg.Record]) -> list[int]:
        """The positions of rows, but of those of other threads."""
        numbers = self._numbers
        return [numbers[tid] << THREAD_BITS | place for tid, place in rows if tid in numbers]

    async def _lists(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int, *, fitting: bool
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        found: defaultdict[str, list[list[int]]] = defaultdict(list)
        for part in parts:
            for term in terms:
                values = Values([])
                query = self._list(values, [term])
                if part.kinds:
                    query += f" INTERSECT ({self._list(values, map(mark, part.kinds))})"
                if part.unwanted:
                    query += f" EXCEPT ({self._list(values, map(mark, part.unwanted))})"
                if fitting:
                    conditions = narrowed(values, self._wanted)
                    query = (
                        f"SELECT l.tid, l.place FROM ({query}) l JOIN @.passages p ON p.tid = l.tid "
                        f"AND p.place = l.place WHERE {' AND '.join(conditions)}"
                    )
                positions = self._positions(await self._reads.fetch(query, *values.given))
                positions.sort(reverse=True)
                found[term].append(positions[:most])
        return found

    def _list(self, values: Values, terms: "Collection[str] | map[str]") -> str:
        keys = [term_key(term) for term in terms]
        return (
            "SELECT w.tid, x.place FROM @.words w CROSS JOIN LATERAL unnest(w.places) x(place) "
            f"WHERE {self._whose(values)} AND w.term = ANY ({values.add(keys)}::bytea[])"
        )

    async def listed(self, since_us: int, until_us: int, limit: int) -> Sequence[int]:
        """Places of what was said between two times and is let through, of one thread after the other."""
        values = Values([self._tids, since_us, until_us, limit])
        rows = await self._reads.fetch(
            "SELECT p.tid, p.place FROM unnest($1::uuid[]) WITH ORDINALITY c(tid, n) "
            "JOIN @.passages p ON p.tid = c.tid AND p.at_us BETWEEN $2 AND $3 "
            f"WHERE {' AND '.join(narrowed(values, self._wanted))} "
            "ORDER BY c.n, p.at_us, p.place LIMIT $4",
            *values.given,
        )
        return self._positions(rows)

    async def around(self, places: Sequence[int], before: int, after: int, last: int) -> Mapping[int, Sequence[int]]:
        """For each place that many passages before it, and after it."""
        rows = await self._reads.fetch(
            "SELECT c.tid, c.place AS of, n.place FROM unnest($1::uuid[], $2::bigint[]) c(tid, place) "
            "CROSS JOIN LATERAL ((SELECT p.place FROM @.passages p WHERE p.tid = c.tid AND p.place < c.place "
            "ORDER BY p.place DESC LIMIT $3) UNION ALL "
            "(SELECT p.place FROM @.passages p WHERE p.tid = c.tid AND p.place > c.place "
            "ORDER BY p.place LIMIT $4)) n ORDER BY c.tid, c.place, n.place",
            *self._columns(places),
            before,
            after,
        )
        found: dict[int, list[int]] = {place: [] for place in places}
        for tid, of, place in rows:
            found[self._position(tid, of)].append(self._position(tid, place))
        return found

    async def neighbours(self, places: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        """For each place that there is: the ones before and after it in the thread."""
        rows = await self._reads.fetch(
            "SELECT c.tid, c.place, "
            "(SELECT max(p.place) FROM @.passages p WHERE p.tid = c.tid AND p.place < c.place) AS earlier, "
            "(SELECT min(n.place) FROM @.passages n WHERE n.tid = c.tid AND n.place > c.place) AS later "
            "FROM unnest($1::uuid[], $2::bigint[]) a(tid, place) "
            "JOIN @.passages c ON c.tid = a.tid AND c.place = a.place",
            *self._columns(places),
        )
        return {
            self._position(tid, place): (
                self._position(tid, earlier) if earlier else 0,
                self._position(tid, later) if later else 0,
            )
            for tid, place, earlier, later in rows
        }

    async def rows(self, places: Sequence[int]) -> Mapping[int, PassageRow]:
        """Return the passages at those of the places that hold one."""
        rows = await self._reads.fetch(
            f"SELECT p.tid, {COLUMNS} FROM unnest($1::uuid[], $2::bigint[]) c(tid, place) "
            "JOIN @.passages p ON p.tid = c.tid AND p.place = c.place",
            *self._columns(places),
        )
        return {self._position(row["tid"], row["place"]): passage_from(row) for row in rows}

    def _columns(self, places: Sequence[int]) -> list[object]:
        """The threads and the places in them of positions."""
        return [[self._tids[place >> THREAD_BITS] for place in places], [place & _PLACE for place in places]]
