"""Passages on a server: see `memory_engine.store.passages.PassageIndex`.

`words` has for each term a row of places for each time that words were indexed. They are read latest first
and reading stops where enough were read, which a GIN index cannot do; and one row for many places costs less than a row
for each (docs/design/0006-postgresql.md has the figures).
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from memory_engine.core.aside import aside
from memory_engine.errors import StorageRefused, ThreadNotFound
from memory_engine.storage import passage_lookup
from memory_engine.storage.passage_rows import (
    INDEXED_BULK,
    WAITING_MIN,
    WORDS_CHARS_MAX,
    StoredWords,
    Waiting,
    waiting_from,
    within,
)
from memory_engine.storage.postgres.among import in_pieces, look_up_among, members, vectors_among, waiting_in
from memory_engine.storage.postgres.passage_reader import CHARS_AN_ITEM, IndexReader, filter_of, waiting
from memory_engine.storage.postgres.pool import Connection, Pool, T, Work
from memory_engine.storage.postgres.reads import Reads
from memory_engine.storage.postgres.rows import array_of, as_bytes, in_schema, term_key, tid_of
from memory_engine.storage.postgres.units import WRITE_PASSAGES, passage_columns
from memory_engine.store.passages import (
    PLACES_BITS,
    LookedUp,
    LookUp,
    Member,
    PassageChange,
    Threads,
    VectorRows,
    VectorsAmong,
    index_version,
)

if TYPE_CHECKING:
    from memory_engine.core.rewinding import Hiding

_log = logging.getLogger("memory_engine.storage")

LOCK = "FOR KEY SHARE OF h"
"""Keeps a thread from being deleted or erased while something of it is written; commits continue meanwhile."""


class PostgresPassages:
    """See `PassageIndex`. `check` raises where the store writes nothing."""

    def __init__(self, pool: Pool, check: Callable[[str], None]) -> None:
        self._pool = pool
        self._schema = pool.address.schema
        self._check = check

    async def _write(self, work: Work[T]) -> T:
        self._check("an index of passages")
        return await self._pool.write(work)

    def _sql(self, text: str) -> str:
        return in_schema(text, self._schema)

    async def look_up(self, thread_id: str, wanted: LookUp) -> LookedUp:
        """Look up a thread's index."""

        async def found(connection: Connection) -> LookedUp:
            reads = Reads(connection, self._schema)
            thread = await reads.there(thread_id)
            return await passage_lookup.look_up(IndexReader(reads, thread["tid"], wanted), thread["seq"], wanted)

        return await self._pool.read_all(found)

    async def look_up_among(self, threads: Threads, wanted: LookUp) -> LookedUp:
        """Look up the indexes of several threads as if they were one."""
        return await self._pool.read_all(
            lambda connection: look_up_among(Reads(connection, self._schema), threads, wanted)
        )

    async def members(self, threads: Threads) -> Sequence[Member]:
        """The threads of a look-up over several."""
        return await self._pool.read_all(lambda connection: members(Reads(connection, self._schema), threads))

    async def index_words_of(self, threads: Threads) -> None:
        """Index the words of all waiting passages of several threads."""
        waits = await self._pool.read_all(lambda connection: waiting_in(Reads(connection, self._schema), threads))
        for thread_id in waits:
            with suppress(ThreadNotFound):  # it was deleted meanwhile
                await self.index_words(thread_id, at_least=1)

    async def fitting(self, thread_id: str, wanted: LookUp) -> Sequence[int]:
        """The places of all passages that fit what narrows a look-up."""

        async def found(connection: Connection) -> Sequence[int]:
            reads = Reads(connection, self._schema)
            thread = await reads.there(thread_id)
            let_through, values = filter_of(thread["tid"], wanted)
            rows = await reads.fetch(
                "SELECT p.place FROM @.passages p JOIN @.passage_indexes i ON i.tid = p.tid "
                f"WHERE {let_through} AND i.version = ${len(values) + 1} ORDER BY p.place",
                *values,
                index_version(),
            )
            return [row["place"] for row in rows]

        return await self._pool.read_all(found)

    async def begin(self, thread_id: str, *, afresh: bool = False) -> None:
        """Give the thread an empty index, unless it has one of this version (`afresh`: then too)."""

        async def begun(connection: Connection) -> None:
            reads = Reads(connection, self._schema)
            thread = await reads.there(thread_id, lock=LOCK)
            row = await reads.one("SELECT version FROM @.passage_indexes WHERE tid = $1 FOR UPDATE", thread["tid"])
            if row is not None and row["version"] == index_version() and not afresh:
                return
            await reads.fetch("SELECT @.drop_passages($1)", thread["tid"])
            await reads.fetch(
                "INSERT INTO @.passage_indexes (tid, tenant_id, version, seq, folded, passages, terms) "
                "VALUES ($1, $2, $3, 0, 0, 0, 0) ON CONFLICT (tid) DO NOTHING",
                thread["tid"],
                thread["tenant_id"],
                index_version(),
            )

        await self._write(begun)

    async def write(self, thread_id: str, change: PassageChange) -> bool:
        """Apply a change if the index is at `change.after`.

        Where damaged rows refuse it the index is dropped, to be made again, and this returns `False`. Raises
        `StorageRefused` where they refuse the beginning of a new index too.
        """
        columns = passage_columns(change)

        async def written(connection: Connection) -> bool:
            thread = await Reads(connection, self._schema).there(thread_id, lock=LOCK)
            threads = [thread["tid"]], [thread["tenant_id"]]
            if change.hiding is not None:
                await self._hide(connection, thread["tid"], change, change.hiding)
            stood = await connection.fetchval(self._sql(WRITE_PASSAGES), *threads, index_version(), *columns)
            return bool(stood)

        try:
            return await self._write(written)
        except StorageRefused as error:
            if change.after <= 0:
                raise
            _log.warning("the search index of thread %r is dropped, to be made again: %s", thread_id, error.why)
            await self._write(lambda c: c.execute(self._sql("SELECT @.drop_passages($1)"), tid_of(thread_id)))
            return False

    async def _hide(self, connection: Connection, tid: int, change: PassageChange, hiding: "Hiding") -> None:
        """End the passages of hidden events, and let those go on that no event has ended which is shown."""
        stands = "EXISTS (SELECT 1 FROM @.passage_indexes i WHERE i.tid = $1 AND i.version = $2 AND i.seq = $3)"
        at = tid, index_version(), change.after

        async def update(ended: str, where: str, *values: object) -> None:
            query = f"UPDATE @.passages p SET ended = {ended} WHERE p.tid = $1 AND {where} AND {stands}"
            await connection.execute(self._sql(query), *at, *values)

        places = "p.place >= $4::bigint << 12 AND p.place < ($5::bigint + 1) << 12"
        for first, last in hiding.gaps:
            await update("0", "p.ended <> 0 AND p.ended BETWEEN $4 AND $5", first, last)
        for first, last in hiding.returned:
            await update("0", f"p.ended = ANY ($6::bigint[]) AND {places}", first, last, list(hiding.acts))
        for first, last in hiding.gaps:
            await update("$6::bigint", f"p.ended = 0 AND {places}", first, last, change.upto)

    async def index_words(self, thread_id: str, *, at_most: int = INDEXED_BULK, at_least: int = WAITING_MIN) -> None:
        """Index the words of the waiting passages once enough wait, in transactions of a bounded size."""
        while await self._write(lambda connection: self._index_some(connection, thread_id, at_most, at_least)):
            pass

    async def _index_some(self, connection: Connection, thread_id: str, at_most: int, at_least: int) -> bool:
        """Index the words of the oldest waiting passages, if they are enough. Returns whether more may wait."""
        reads = Reads(connection, self._schema)
        tid = (await reads.there(thread_id, lock=LOCK))["tid"]
        index = await reads.one("SELECT folded, tenant_id FROM @.passage_indexes WHERE tid = $1 FOR UPDATE", tid)
        if index is None:
            return False
        stored = await waiting(reads, tid, index["folded"], at_most)
        if len(stored) < at_least:
            return False
        kept = list(within(stored, WORDS_CHARS_MAX))
        some, places = await aside(lambda: _analysed(kept), items=sum(len(row[-1]) for row in kept) // CHARS_AN_ITEM)
        last = some[-1].place
        await reads.fetch(
            "INSERT INTO @.words (tid, tenant_id, term, last, places) SELECT $1, $2, w.term, $3, w.places::bigint[] "
            "FROM unnest($4::bytea[], $5::text[]) w(term, places)",
            tid,
            index["tenant_id"],
            last,
            list(places),
            [array_of(found) for found in places.values()],
        )
        taken = [one for one in some if one.size is not None]
        await reads.fetch(
            "UPDATE @.passages p SET terms = w.terms, size = w.size "
            "FROM unnest($2::bigint[], $3::bytea[], $4::integer[]) w(place, terms, size) "
            "WHERE p.tid = $1 AND p.place = w.place",
            tid,
            [one.place for one in taken],
            [as_bytes(one.words) for one in taken],
            [one.size for one in taken],
        )
        await reads.fetch(
            "UPDATE @.passage_indexes SET folded = $2, terms = terms + $3 WHERE tid = $1",
            tid,
            last,
            sum(one.size or 0 for one in taken),
        )
        return len(stored) == at_most or len(some) < len(stored)

    async def threads(self) -> Sequence[str]:
        """The ids of the threads that have an index."""
        sql = self._sql(
            "SELECT t.id FROM @.passage_indexes i JOIN @.threads t ON t.tid = i.tid ORDER BY t.made_us, t.tid"
        )
        rows = await self._pool.read(lambda connection: connection.fetch(sql))
        return [row["id"] for row in rows]

    async def unembedded(self, thread_id: str, model: str, limit: int) -> tuple[Sequence[int], int]:
        """The places of the oldest passages without a vector of this model, and how many there are in all."""

        async def found(connection: Connection) -> tuple[Sequence[int], int]:
            reads = Reads(connection, self._schema)
            tid = (await reads.there(thread_id))["tid"]
            after = await _embedded(reads, tid, model)
            rows = await reads.fetch(
                "SELECT place FROM @.passages WHERE tid = $1 AND place > $2 ORDER BY place LIMIT $3", tid, after, limit
            )
            [count] = await reads.fetch(
                "SELECT count(*) AS n FROM @.passages WHERE tid = $1 AND place > $2", tid, after
            )
            return [row["place"] for row in rows], count["n"]

        return await self._pool.read_all(found)

    async def put_vectors(
        self, thread_id: str, model: str, vectors: Mapping[int, bytes], upto: int, *, first: int = 0
    ) -> None:
        """Keep vectors by place; all from `first` up to the place `upto` are then embedded."""

        async def put(connection: Connection) -> None:
            reads = Reads(connection, self._schema)
            thread = await reads.there(thread_id, lock=LOCK)
            tid = thread["tid"]
            came = await reads.one("SELECT seq FROM @.passage_indexes WHERE tid = $1 FOR UPDATE", tid)
            if came is None or came["seq"] < upto >> PLACES_BITS:
                return
            earlier = await reads.one(
                "SELECT 1 FROM @.passages WHERE tid = $1 AND place > $2 AND place < $3 LIMIT 1",
                tid,
                await _embedded(reads, tid, model),
                first,
            )
            if earlier is not None:
                return
            await reads.fetch(
                "INSERT INTO @.vectors (tid, tenant_id, model, place, vector) SELECT p.tid, p.tenant_id, $2, p.place, "
                "v.vector FROM unnest($3::bigint[], $4::bytea[]) v(place, vector) "
                "JOIN @.passages p ON p.tid = $1 AND p.place = v.place "
                "ON CONFLICT (tid, model, place) DO UPDATE SET vector = excluded.vector",
                tid,
                model,
                list(vectors),
                list(vectors.values()),
            )
            await reads.fetch(
                "INSERT INTO @.embedded AS e (tid, tenant_id, model, place) VALUES ($1, $2, $3, $4) "
                "ON CONFLICT (tid, model) DO UPDATE SET place = greatest(e.place, excluded.place)",
                tid,
                thread["tenant_id"],
                model,
                upto,
            )

        await self._write(put)

    async def vectors(self, thread_id: str, model: str, after: int) -> Sequence[VectorRows]:
        """The vectors of places above `after`, in order of places."""

        async def found(connection: Connection) -> Sequence[VectorRows]:
            reads = Reads(connection, self._schema)
            tid = (await reads.there(thread_id))["tid"]
            rows = await reads.fetch(
                "SELECT place, vector FROM @.vectors WHERE tid = $1 AND model = $2 AND place > $3 ORDER BY place",
                tid,
                model,
                after,
            )
            return in_pieces([(row["place"], row["vector"]) for row in rows])

        return await self._pool.read_all(found)

    async def vectors_among(self, threads: Threads, model: str, known: Mapping[int, int]) -> VectorsAmong:
        """The vectors of several threads beyond the places that are known."""
        return await self._pool.read_all(
            lambda connection: vectors_among(Reads(connection, self._schema), threads, model, known)
        )

    async def models(self, thread_id: str) -> Mapping[str, int]:
        """The models whose vectors are kept, with the place up to which each has embedded the thread."""

        async def found(connection: Connection) -> Mapping[str, int]:
            reads = Reads(connection, self._schema)
            tid = (await reads.there(thread_id))["tid"]
            rows = await reads.fetch("SELECT model, place FROM @.embedded WHERE tid = $1 ORDER BY model", tid)
            return {row["model"]: row["place"] for row in rows}

        return await self._pool.read_all(found)

    async def drop_vectors(self, thread_id: str, models: Iterable[str]) -> None:
        """Destroy the vectors of models."""
        names = list(models)

        async def dropped(connection: Connection) -> None:
            reads = Reads(connection, self._schema)
            tid = (await reads.there(thread_id, lock=LOCK))["tid"]
            for table in ("vectors", "embedded"):
                await reads.fetch(f"DELETE FROM @.{table} WHERE tid = $1 AND model = ANY ($2)", tid, names)

        await self._write(dropped)


def _analysed(stored: Sequence[StoredWords]) -> tuple[list[Waiting], Mapping[bytes, list[int]]]:
    """Passages with their words, and the places of each word."""
    some = [waiting_from(row) for row in stored]
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    for one in some:
        for term in dict.fromkeys(one.words.split()):
            places[term_key(term)].append(one.place)
    return some, places


async def _embedded(reads: Reads, tid: UUID, model: str) -> int:
    """The place up to which a model has embedded a thread."""
    row = await reads.one("SELECT place FROM @.embedded WHERE tid = $1 AND model = $2", tid, model)
    return row["place"] if row is not None else 0
