"""Passages for an engine that only reads: an index in memory over the stored one, which it does not change.

Where the stored index is whole, it answers. Where it is not, one in memory does: made of the log by the same code, in
the same tables, and kept up with the log as long as the stored one is behind. Vectors that the store has are read from
there; only those that it lacks are in memory. It has a bound, past which the threads asked for longest ago go.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from memory_engine.core.threads import Head
from memory_engine.storage import passages
from memory_engine.storage.passage_search import Lists
from memory_engine.storage.sqlite.among import Among
from memory_engine.storage.sqlite.connection import Connection
from memory_engine.storage.sqlite.in_memory import PLACE, empty_database, in_transaction
from memory_engine.storage.sqlite.passages import SQLitePassages
from memory_engine.storage.sqlite.schema import HEAD_NAMES, head_to_row
from memory_engine.store.passages import (
    THREAD_BITS,
    LookedUp,
    LookUp,
    Member,
    PassageChange,
    Threads,
    VectorRows,
    VectorsAmong,
)
from memory_engine.store.protocol import Store

T = TypeVar("T")

OWN_BYTES_MAX = 256 * 1024 * 1024
"""Bytes that indexes in memory take. One search holds all that it needs, however much it is."""
_PLACE = (1 << THREAD_BITS) - 1
_NOTHING = LookUp()


class OwnPassages(SQLitePassages):
    """Passages in a database in memory, on a thread of its own, with the threads and heads that the store has now.

    Threads have their ranks for row ids; whoever asks knows them by the store's numbers. All of it goes when something
    was deleted or erased from the store.
    """

    def __init__(self, store: Store) -> None:
        self._memory = Connection(PLACE, empty_database)
        super().__init__(self._memory.run, self._transact)
        self._store = store
        self._generation = store.generation
        self._known: dict[str, Member] = {}
        self._begun: dict[str, bool] = {}
        self._asked: dict[str, int] = {}
        self._asks = 0

    async def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._memory.run(partial(in_transaction, work))

    def has(self, thread_id: str) -> bool:
        """Whether a thread has an index here."""
        return thread_id in self._begun

    def is_over(self, thread_id: str) -> bool:
        """Whether the store had an index of this version, which may have vectors, when the one here was begun."""
        return self._begun.get(thread_id, True)

    @property
    def is_used(self) -> bool:
        """Whether any thread has an index here."""
        return bool(self._begun)

    async def look_up(self, thread_id: str, wanted: LookUp) -> LookedUp:
        """Look up a thread's index."""
        await self._hold(Threads(thread_ids=(thread_id,)))
        return await super().look_up(thread_id, wanted)

    async def look_up_among(self, threads: Threads, wanted: LookUp) -> LookedUp:
        """Look up the indexes of several threads as if they were one."""
        members = await self._hold(threads)
        ranks = {one.number: one.rank for one in members}
        near = (
            ranks[place >> THREAD_BITS] << THREAD_BITS | place & _PLACE
            for place in wanted.near
            if place >> THREAD_BITS in ranks
        )
        looked = await super().look_up_among(_by_thread_ids(threads, members), replace(wanted, near=tuple(near)))
        numbers = {one.rank: one.number for one in members}
        return replace(looked, numbers=tuple(numbers[rank] for rank in looked.numbers))

    async def members(self, threads: Threads) -> Sequence[Member]:
        """The threads of a look-up over several: the store's."""
        return await self._store.passages.members(threads)

    async def begin(self, thread_id: str, *, afresh: bool = False) -> None:
        """Give the thread an empty index, unless it has one. Others go where there is no room for it."""
        stored = await self._store.passages.look_up(thread_id, _NOTHING)
        asked = self._asked.get(thread_id, self._asks)
        await self._hold(Threads(thread_ids=(thread_id,)))
        self._asked[thread_id] = asked
        older = sorted(
            (one for one in self._begun if self._asked[one] < asked), key=lambda one: (self._asked[one], one)
        )
        await self._let_go(older, OWN_BYTES_MAX)
        self._begun.setdefault(thread_id, stored.seq >= 0)
        await super().begin(thread_id, afresh=afresh)

    async def index_words_of(self, threads: Threads) -> None:
        """Index the words of all waiting passages of several threads."""
        await super().index_words_of(_by_thread_ids(threads, await self._hold(threads)))

    async def vectors_among(self, threads: Threads, model: str, known: Mapping[int, int]) -> VectorsAmong:
        """The vectors of several threads beyond the places that are known."""
        members = await self._hold(threads)
        numbers = {one.rank: one.number for one in members}
        beyond = {one.rank: known[one.number] for one in members if one.number in known}
        found = await super().vectors_among(_by_thread_ids(threads, members), model, beyond)
        return VectorsAmong(
            [(numbers[rank], rows) for rank, rows in found.vectors],
            {numbers[rank]: place for rank, place in found.upto.items()},
            found.waiting,
        )

    async def drop(self, thread_id: str) -> None:
        """Let go of a thread's index."""
        await self._let_go([thread_id], 0)

    async def close(self) -> None:
        """Let go of all of it."""
        await self._memory.close()

    async def _hold(self, threads: Threads) -> Sequence[Member]:
        """The threads of a look-up, as the store has them now; this database then has them so too."""
        if self._generation != (now := self._store.generation):
            self._generation = now
            await self._clear()
        members = await self.members(threads)
        self._asks += 1
        self._asked.update((one.id, self._asks) for one in members)
        if new := [one for one in members if self._known.get(one.id) != one]:
            for thread_id in await self._memory.run(partial(in_transaction, partial(_write_members, new))):
                self._begun.pop(thread_id, None)
                self._known.pop(thread_id, None)
            self._known.update((one.id, one) for one in new)
        return members

    async def _clear(self) -> None:
        """Empty the index: it may contain words of erased events."""
        self._lists = Lists()
        self._among = Among(self._lists)
        self._begun.clear()
        known = list(self._known.values())
        await self._memory.run(lambda _: in_transaction(partial(_write_members, known), self._memory.reopened()))

    async def _let_go(self, thread_ids: Iterable[str], bytes_max: int) -> None:
        """Drop indexes, one after the other, until all together take no more than a number of bytes."""
        for thread_id in thread_ids:
            known = self._known[thread_id]
            if not await self._memory.run(partial(in_transaction, partial(_shrink, known.rank, bytes_max))):
                return
            self._begun.pop(thread_id, None)


class PassageOverlay:
    """See `memory_engine.store.passages.OverlaidIndex`."""

    def __init__(self, store: Store) -> None:
        self._stored = store.passages
        self.own = OwnPassages(store)

    async def look_up(self, thread_id: str, wanted: LookUp) -> LookedUp:
        """Look up a thread's index: the one that has come further."""
        stored = await self._stored.look_up(thread_id, wanted)
        if stored.seq >= stored.head:
            if self.own.has(thread_id):
                await self.own.drop(thread_id)
            return stored
        own = await self.own.look_up(thread_id, wanted)
        better = own if own.seq >= stored.seq else stored
        return replace(better, to_index=stored.head - max(0, own.seq))

    async def look_up_among(self, threads: Threads, wanted: LookUp) -> LookedUp:
        """Look up the indexes of several threads as if they were one: those that lack fewer events, together."""
        stored = await self._stored.look_up_among(threads, wanted)
        if not stored.behind:
            for one in await self._own_members(threads):
                await self.own.drop(one.id)
            return stored
        own = await self.own.look_up_among(threads, wanted)
        better = own if own.lacking <= stored.lacking else stored
        return replace(better, behind=own.behind, to_index=own.lacking)

    async def members(self, threads: Threads) -> Sequence[Member]:
        """The threads of a look-up over several."""
        return await self._stored.members(threads)

    async def index_words_of(self, threads: Threads) -> None:
        """Index the words of all waiting passages of several threads, in memory."""
        await self.own.index_words_of(threads)

    async def fitting(self, thread_id: str, wanted: LookUp) -> Sequence[int]:
        """The places of all passages that fit what narrows a look-up, in the index that answers it."""
        stored = await self._stored.look_up(thread_id, _NOTHING)
        if stored.seq >= stored.head:
            return await self._stored.fitting(thread_id, wanted)
        own = await self.own.look_up(thread_id, _NOTHING)
        return await (self.own if own.seq >= stored.seq else self._stored).fitting(thread_id, wanted)

    async def begin(self, thread_id: str, *, afresh: bool = False) -> None:
        """Give the thread an empty index in memory, unless it has one."""
        await self.own.begin(thread_id, afresh=afresh)

    async def write(self, thread_id: str, change: PassageChange) -> bool:
        """Apply a change in memory, if that index is at `change.after`. Returns whether it applied."""
        return self.own.has(thread_id) and await self.own.write(thread_id, change)

    async def index_words(self, thread_id: str) -> None:
        """Index the words of the waiting passages in memory."""
        if self.own.has(thread_id):
            await self.own.index_words(thread_id)

    async def threads(self) -> Sequence[str]:
        """The ids of the threads that have an index in memory."""
        return await self.own.threads()

    async def unembedded(self, thread_id: str, model: str, limit: int) -> tuple[Sequence[int], int]:
        """The places to be embedded here, and how many passages wait: those of a stored index are left to others."""
        if not self.own.has(thread_id):
            return [], (await self._stored.unembedded(thread_id, model, 0))[1]
        if upto := await self._stored_upto(thread_id, model):
            await self.own.put_vectors(thread_id, model, {}, upto)  # these are stored
        return await self.own.unembedded(thread_id, model, limit)

    async def put_vectors(
        self, thread_id: str, model: str, vectors: Mapping[int, bytes], upto: int, *, first: int = 0
    ) -> None:
        """Keep vectors in memory by place; all from `first` up to the place `upto` are then embedded."""
        if self.own.has(thread_id):
            await self.own.put_vectors(thread_id, model, vectors, upto, first=first)

    async def vectors(self, thread_id: str, model: str, after: int) -> Sequence[VectorRows]:
        """The vectors of places above `after`, in order: what is stored, then what is in memory."""
        if not self.own.has(thread_id):
            return await self._stored.vectors(thread_id, model, after)
        upto = await self._stored_upto(thread_id, model)
        stored = await self._stored.vectors(thread_id, model, after) if upto else ()
        return [*stored, *await self.own.vectors(thread_id, model, max(after, upto))]

    async def vectors_among(self, threads: Threads, model: str, known: Mapping[int, int]) -> VectorsAmong:
        """The vectors of several threads beyond the places that are known."""
        stored = await self._stored.vectors_among(threads, model, known)
        members = await self._own_members(threads)
        if not members:
            return stored
        there = {**known, **{number: max(place, known.get(number, 0)) for number, place in stored.upto.items()}}
        named = Threads(thread_ids=tuple(one.id for one in members))
        own = await self.own.vectors_among(named, model, there)
        late = [one for one in members if own.upto.get(one.number, 0) < stored.upto.get(one.number, 0)]
        for one in late:
            await self.own.put_vectors(one.id, model, {}, stored.upto[one.number])  # these are stored
        own = await self.own.vectors_among(named, model, there) if late else own
        return VectorsAmong(
            [*stored.vectors, *own.vectors],
            {**stored.upto, **{number: max(place, stored.upto.get(number, 0)) for number, place in own.upto.items()}},
            {**{one: count for one, count in stored.waiting.items() if not self.own.has(one)}, **own.waiting},
        )

    async def models(self, thread_id: str) -> Mapping[str, int]:
        """The models whose vectors are in memory, with the place up to which each has embedded the thread."""
        return await self.own.models(thread_id) if self.own.has(thread_id) else {}

    async def drop_vectors(self, thread_id: str, models: Iterable[str]) -> None:
        """Destroy the vectors of models in memory."""
        if self.own.has(thread_id):
            await self.own.drop_vectors(thread_id, models)

    async def close(self) -> None:
        """Let go of what is in memory."""
        await self.own.close()

    async def _own_members(self, threads: Threads) -> Sequence[Member]:
        """The threads of a look-up that have an index in memory."""
        members = await self._stored.members(threads) if self.own.is_used else ()
        return [one for one in members if self.own.has(one.id)]

    async def _stored_upto(self, thread_id: str, model: str) -> int:
        """The place up to which vectors of a thread with an index in memory are stored; 0 where none are."""
        if not self.own.is_over(thread_id):
            return 0
        return (await self._stored.models(thread_id)).get(model, 0)


def _by_thread_ids(threads: Threads, members: Iterable[Member]) -> Threads:
    """The same threads by their ids: nothing else of them is known here."""
    return threads if threads.thread_ids is not None else Threads(thread_ids=tuple(one.id for one in members))


def _write_members(members: Iterable[Member], raw: sqlite3.Connection) -> list[str]:
    """Write threads and their heads. Those whose id or rank is another's by now go; returns the ids of these."""
    gone = []
    for one in members:
        others = raw.execute(
            "SELECT tid, id FROM threads WHERE (tid = ? AND id <> ?) OR (id = ? AND tid <> ?)",
            (one.rank, one.id, one.id, one.rank),
        ).fetchall()
        for tid, thread_id in others:
            gone.append(thread_id)
            passages.destroy(raw, tid)
            for table in ("heads", "threads"):
                raw.execute(f"DELETE FROM {table} WHERE tid = ?", (tid,))
        raw.execute(
            "INSERT INTO threads (tid, id, kind, user_id, tenant_id, agent_id, parent_id, metadata, created_at_us) "
            "VALUES (?, ?, '', '', ?, '', '', '{}', 0) ON CONFLICT (tid) DO NOTHING",
            (one.rank, one.id, one.tenant_id),
        )
        marks = ", ".join("?" * len(head_to_row(Head())))
        raw.execute(
            f"INSERT OR REPLACE INTO heads (tid, {HEAD_NAMES}) VALUES (?, {marks})",
            (one.rank, *head_to_row(Head(seq=one.seq))),
        )
    return gone


def _shrink(tid: int, bytes_max: int, raw: sqlite3.Connection) -> bool:
    """Drop a thread's index if all of them take more than a number of bytes. Returns whether it was dropped."""
    pages, free, size = (
        raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    if (pages - free) * size <= bytes_max:
        return False
    passages.destroy(raw, tid)
    return True
