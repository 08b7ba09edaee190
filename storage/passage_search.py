"""Looking up passages in SQLite (see `storage.passages`), in one read transaction of the caller's."""

import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice

import msgspec

from memory_engine.storage import passage_lookup
from memory_engine.storage.passage_counts import counted
from memory_engine.storage.passage_lookup import NEVER, ListPart, Stand, at_once, last_place
from memory_engine.storage.passage_rows import READ_CHARS_MAX, Waiting, beyond, mark
from memory_engine.storage.passage_words import waiting
from memory_engine.storage.passages import COLUMNS, base, from_row, sliced
from memory_engine.store.passages import THREAD_BITS, LookedUp, LookUp, PassageRow, index_version

_FOUND = "SELECT rowid FROM passage_terms WHERE passage_terms MATCH ? AND rowid BETWEEN ? AND ?"
_FOUND_AND_READ = (
    "SELECT t.rowid FROM passage_terms t CROSS JOIN passages p NOT INDEXED ON p.pos = t.rowid "
    "WHERE t.passage_terms MATCH ? AND t.rowid BETWEEN ? AND ?"
)
_LISTED = f"SELECT group_concat(rowid - ?) FROM ({_FOUND} ORDER BY rowid DESC LIMIT ?)"
_COUNTED = f"SELECT count(*) || ',' || coalesce(min(rowid), 0) FROM ({_FOUND} ORDER BY rowid DESC LIMIT ?)"
"""To read a row of a list costs as much again as to find it, so they come as one text."""
_NUMBERS = msgspec.json.Decoder(list[int])
LISTED_ENTRIES_MAX = 524_288
"""Entries of lists that are kept: four megabytes."""
LISTS_MAX = 2_048
MARKS_ALIKE = 32
"""The factor by which a statement over several positions grows from one to the next."""
SOUGHT_QUICKER = 2
"""To read a text for a few terms is so many times as fast as to take all of its terms."""
SOUGHT_APART = 64
"""Up to this number of threads, a word's list is read per thread; beyond it, the list of their tenant is read."""


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """The threads of a look-up over several, by their `tid`, with what their indexes say together.

    `by_prefix` has those that may have something of the times looked for, in order, by what begins their words. It
    `is_whole` where words with the one prefix are of no other threads between the first and the last. Of the ones
    `waiting` words may not be indexed, beyond the position that is named; `behind` lack events, or an index: together
    `lacking` events.
    """

    passages: int
    terms: int
    by_prefix: Mapping[str, Sequence[int]]
    waiting: Mapping[int, int]
    behind: Sequence[int]
    lacking: int
    is_whole: bool


class Lists:
    """Answers of the full-text index about words, until the next write to it: most questions share some words.

    May be used by several connections at a time, each in a transaction.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], array[int]] = {}
        self._entries = 0

    def numbers(self, raw: sqlite3.Connection, version: object, query: str, values: Sequence[object]) -> "array[int]":
        """The numbers that a query of the full-text index alone lists in a text; `version` is that of the index."""
        key = version, query, *values
        found = self._kept.pop(key, None)
        if found is None:
            (listed,) = raw.execute(query, values).fetchone()
            found = array("q", _NUMBERS.decode(f"[{listed or ''}]"))
            self._entries += len(found)
        self._kept[key] = found
        while len(self._kept) > LISTS_MAX or (self._entries > LISTED_ENTRIES_MAX and len(self._kept) > 1):
            self._entries -= len(self._kept.pop(next(iter(self._kept)), ()))
        return found


def look_up(raw: sqlite3.Connection, tid: int, head: int, wanted: LookUp, lists: Lists) -> LookedUp:
    """See `PassageIndex.look_up`."""
    return at_once(passage_lookup.look_up(_Reader(raw, tid, wanted, lists), head, wanted))


def look_up_among(
    raw: sqlite3.Connection,
    members: Members,
    ids: Callable[[Collection[int]], Mapping[int, str]],
    wanted: LookUp,
    lists: Lists,
) -> LookedUp:
    """See `PassageIndex.look_up_among`. `ids` gives the ids of some threads, in the order of the answer."""
    looked = at_once(passage_lookup.look_up(_ReaderAmong(raw, members, wanted, lists), 0, wanted))
    looked = looked.numbered(ids({place >> THREAD_BITS for place in looked.chosen}))
    return msgspec.structs.replace(looked, lacking=members.lacking)


def fitting(raw: sqlite3.Connection, tid: int, wanted: LookUp) -> list[int]:
    """See `PassageIndex.fitting`."""
    row = raw.execute("SELECT version FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    if row is None or row[0] != index_version():
        return []
    let_through, values = _filter(tid, wanted)
    found = raw.execute(f"SELECT p.pos FROM passages p WHERE {let_through} ORDER BY p.pos", values)
    return [pos - base(tid) for (pos,) in found]


def _filter(tid: int, wanted: LookUp) -> tuple[str, list[object]]:
    """The condition on a row `p` of a thread's passage that a look-up lets through, with its values."""
    conditions, values = _filter_among(wanted)
    parts = []
    for prefix, seq in wanted.within:
        parts.append("p.key >= ? AND p.key < ? AND p.pos >= ?")
        values += (prefix, beyond(prefix), base(tid) + passage_lookup.first_place(seq))
    within = f" AND ({' OR '.join(parts)})" if parts else ""
    return f"p.tid = ? AND p.pos <= ? AND {conditions}{within}", [tid, base(tid) + last_place(wanted), *values]


def _filter_among(wanted: LookUp) -> tuple[str, list[object]]:
    """The same where the threads are known otherwise."""
    conditions = ["(p.ended = 0 OR p.ended > ?)"]
    values: list[object] = [wanted.upto or NEVER]
    for kinds, within in ((wanted.kinds, "IN"), (wanted.unwanted, "NOT IN")):
        if kinds:
            conditions.append(f"p.kind {within} ({', '.join('?' * len(kinds))})")
            values += kinds
    for bound, than in ((wanted.since_us, ">="), (wanted.until_us, "<=")):
        if bound is not None:
            conditions.append(f"p.at_us {than} ?")
            values.append(bound)
    return " AND ".join(conditions), values


def _match_query(prefix: str, term: str, part: ListPart) -> str:
    """The query of the full-text index for a part's passages that hold a term."""
    marked = f' AND "{prefix}{mark(part.family)}"' if part.family else ""
    kinds = " OR ".join(f'"{prefix}{mark(kind)}"' for kind in part.kinds)
    unwanted = "".join(f' NOT "{prefix}{mark(kind)}"' for kind in part.unwanted)
    return f'("{prefix}{term}"{marked}{f" AND ({kinds})" if kinds else ""}){unwanted}'


class _Reader:
    """See `PassageReader`: of one thread. None of its methods waits for anything."""

    def __init__(self, raw: sqlite3.Connection, tid: int, wanted: LookUp, lists: Lists) -> None:
        self._raw = raw
        self._lists = lists
        self._version: object = None
        self._tid = tid
        self._wanted = wanted
        self._first = base(tid)
        self._prefix = ""

    def extent(self, place: int) -> int:
        """How much there is before a place."""
        return place

    async def stand(self) -> Stand | None:
        """How far the index has come."""
        row = self._raw.execute(
            "SELECT version, seq, folded, passages, terms, prefix FROM passage_indexes WHERE tid = ?", (self._tid,)
        ).fetchone()
        if row is None:
            return None
        version, seq, folded, passages, terms, self._prefix = row
        return Stand(version, seq, max(0, folded - self._first), passages, terms)

    async def counted(self, last: int) -> tuple[int, int]:
        """The number of passages up to a place, and of their terms."""
        return counted(self._raw, self._tid, (self._first, base(self._tid + 1) - 1), self._first + last)

    async def waiting(self, after: int, last: int) -> tuple[Sequence[Waiting], int]:
        """Passages above a place up to another, in order, and how many others there are."""
        span = self._first + after, self._first + last
        return waiting(self._raw, span, SOUGHT_QUICKER * READ_CHARS_MAX, self._wanted.terms)

    async def said_between(self, since_us: int, until_us: int) -> tuple[int, int] | None:
        """The first and the last place of what was said between two times."""
        first, last = self._raw.execute(
            "SELECT min(pos), max(pos) FROM passages WHERE tid = ? AND at_us BETWEEN ? AND ?",
            (self._tid, since_us, until_us),
        ).fetchone()
        return None if first is None else (first - self._first, last - self._first)

    async def ended_by(self, seq: int, limit: int) -> Sequence[int]:
        """Places of passages that had ended at a seq."""
        return self._found(
            "SELECT pos FROM passages INDEXED BY passages_ended WHERE tid = ? AND ended <> 0 AND ended <= ? LIMIT ?",
            (self._tid, seq, limit),
        )

    async def latest(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        """For each term and each part, the indexed passages that hold it, the latest first."""
        return {term: [self._latest(term, part, span, most) for part in parts] for term in terms}

    async def counts(
        self, terms: Sequence[str], part: ListPart, span: tuple[int, int], most: int
    ) -> Mapping[str, tuple[int, int]] | None:
        """For each term how many passages `latest` would give, and the last of these."""
        positions = self._positions(span, part)
        found = {}
        for term in terms:
            values = (_match_query(self._prefix, term, part), *positions, most)
            count, earliest = self._numbers(_COUNTED, values)
            found[term] = count, earliest - self._first
        return found

    def _latest(self, term: str, part: ListPart, span: tuple[int, int], most: int) -> Sequence[int]:
        values = (self._first, _match_query(self._prefix, term, part), *self._positions(span, part), most)
        return self._numbers(_LISTED, values)

    def _numbers(self, query: str, values: Sequence[object]) -> Sequence[int]:
        if self._version is None:  # the record of its segments, which differs after every change, in one life of it
            segments = self._raw.execute("SELECT block FROM passage_terms_data WHERE id = 10").fetchone()
            self._version = segments, self._raw.execute("PRAGMA schema_version").fetchone()
        return self._lists.numbers(self._raw, self._version, query, values)

    async def latest_fitting(
        self, terms: Sequence[str], parts: Sequence[ListPart], span: tuple[int, int], most: int
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        """The same, of the passages that the look-up lets through."""
        let_through, further = self._let_through()
        query = f"{_FOUND_AND_READ} AND {let_through} ORDER BY t.rowid DESC LIMIT ?"
        return {term: [self._listed(query, term, part, (span, further, most)) for part in parts] for term in terms}

    def _let_through(self) -> tuple[str, list[object]]:
        return _filter(self._tid, self._wanted)

    def _listed(
        self, query: str, term: str, part: ListPart, of: tuple[tuple[int, int], Sequence[object], int]
    ) -> list[int]:
        """A term's list: `of` are the span, further values of the query and the most to read."""
        span, further, most = of
        return self._found(
            query, (_match_query(self._prefix, term, part), *self._positions(span, part), *further, most)
        )

    def _positions(self, span: tuple[int, int], part: ListPart) -> tuple[int, int]:
        return self._first + max(span[0], part.first), self._first + span[1]

    def _sliced(self, places: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
        """The positions of places, as many at a time as a statement takes, with its marks for them.

        The last one is repeated, so that few statements differ: to prepare one takes as long as to run it.
        """
        for some in sliced([self._first + place for place in places]):
            further = -len(some) % MARKS_ALIKE
            yield ", ".join("?" * (len(some) + further)), [*some, *([some[-1]] * further)]

    def _found(self, query: str, values: Sequence[object]) -> list[int]:
        return [pos - self._first for (pos,) in self._raw.execute(query, values)]

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
        query = (
            "SELECT * FROM (SELECT pos FROM passages WHERE pos < ? AND pos > ? ORDER BY pos DESC LIMIT ?) UNION ALL "
            "SELECT * FROM (SELECT pos FROM passages WHERE pos > ? AND pos <= ? ORDER BY pos LIMIT ?)"
        )
        found = {}
        for place in places:
            pos = self._first + place
            first = pos >> THREAD_BITS << THREAD_BITS
            end = min(self._first + last, first + passage_lookup.LAST_PLACE)
            found[place] = sorted(self._found(query, (pos, first, before, pos, end, after)))
        return found

    async def neighbours(self, places: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        """For each place that there is: the ones before and after it in the thread."""
        first, bits = self._first, THREAD_BITS
        found: dict[int, tuple[int, int]] = {}
        for marks, some in self._sliced(places):
            rows = self._raw.execute(
                f"SELECT c.pos, (SELECT max(p.pos) FROM passages p WHERE p.pos < c.pos AND p.pos >= c.tid << {bits}), "
                f"(SELECT min(n.pos) FROM passages n WHERE n.pos > c.pos AND n.pos < (c.tid + 1) << {bits}) "
                f"FROM passages c WHERE c.pos IN ({marks})",
                some,
            )
            for pos, earlier, later in rows:
                found[pos - first] = (earlier - first if earlier else 0, later - first if later else 0)
        return found

    async def rows(self, places: Sequence[int]) -> Mapping[int, PassageRow]:
        """Return the passages at those of the places that hold one."""
        found: dict[int, PassageRow] = {}
        for marks, some in self._sliced(places):
            for row in self._raw.execute(f"SELECT {COLUMNS} FROM passages WHERE pos IN ({marks})", some):
                found[row[0] - self._first] = from_row(row)
        return found


class _ReaderAmong(_Reader):
    """See `PassageReader`: of several threads, whose numbers are their `tid`."""

    def __init__(self, raw: sqlite3.Connection, members: Members, wanted: LookUp, lists: Lists) -> None:
        super().__init__(raw, 0, wanted, lists)
        self._members = members
        groups = list(members.by_prefix.values())
        self._tids = groups[0] if len(groups) == 1 else sorted(tid for tids in groups for tid in tids)
        self._among = frozenset(self._tids)
        if members.is_whole:
            [self._prefix] = members.by_prefix

    def _positions(self, span: tuple[int, int], part: ListPart) -> tuple[int, int]:
        return base(self._tids[0]), base(self._tids[-1] + 1) - 1

    async def counts(
        self, terms: Sequence[str], part: ListPart, span: tuple[int, int], most: int
    ) -> Mapping[str, tuple[int, int]] | None:
        """As of one thread where the words between the first and the last of these are all theirs."""
        return await super().counts(terms, part, span, most) if self._members.is_whole else None

    def extent(self, place: int) -> int:
        """How many threads there are before that of a place."""
        return bisect_left(self._tids, place >> THREAD_BITS)

    async def stand(self) -> Stand | None:
        """How far all of them have come: each is looked up as far as it has."""
        last = base(self._tids[-1] + 1) - 1 if self._tids else 1
        return Stand(index_version(), 0, last, self._members.passages, self._members.terms, last)

    async def waiting(self, after: int, last: int) -> tuple[Sequence[Waiting], int]:
        """The passages of all whose words are not indexed yet, of the latest threads first if they are too many."""
        found: list[Waiting] = []
        unread, left = 0, READ_CHARS_MAX
        for tid, folded in sorted(self._members.waiting.items(), reverse=True):
            read, earlier = waiting(self._raw, (folded, base(tid + 1) - 1), left)
            found += (one._replace(place=base(tid) + one.place) for one in read)
            unread += earlier
            left -= sum(len(one.words) for one in read if one.size is not None)
        return sorted(found), unread

    async def said_between(self, since_us: int, until_us: int) -> tuple[int, int] | None:
        """All of the threads of which something may have been said then."""
        return (base(self._tids[0]), base(self._tids[-1] + 1) - 1) if self._tids else None

    async def ended_by(self, seq: int, limit: int) -> Sequence[int]:
        """Places of passages that have ended."""
        query = "SELECT pos FROM passages INDEXED BY passages_ended WHERE tid BETWEEN ? AND ? AND ended <> 0 LIMIT ?"
        return self._read(query, ((), ()), int, (self._tids, limit)) if self._tids else []

    def _let_through(self) -> tuple[str, list[object]]:
        return _filter_among(self._wanted)

    def _latest(self, term: str, part: ListPart, span: tuple[int, int], most: int) -> Sequence[int]:
        if self._members.is_whole:
            return super()._latest(term, part, span, most)
        return self._listed(f"{_FOUND} ORDER BY rowid DESC LIMIT ?", term, part, (span, (), most))

    def _listed(
        self, query: str, term: str, part: ListPart, of: tuple[tuple[int, int], Sequence[object], int]
    ) -> list[int]:
        _, further, most = of
        if self._members.is_whole:
            return super()._listed(query, term, part, of)
        lists = [
            self._read(query, ((_match_query(prefix, term, part),), further), base, (tids, most))
            for prefix, tids in self._members.by_prefix.items()
        ]
        if len(lists) == 1:
            return lists[0]
        return sorted((place for found in lists for place in found), reverse=True)[:most]

    def _read(
        self,
        query: str,
        values: tuple[Sequence[object], Sequence[object]],
        bound: Callable[[int], int],
        of: tuple[Sequence[int], int],
    ) -> list[int]:
        """The newest positions that a query gives of some threads, at most `limit`, those of the latest thread first.

        `values` are those before and after the query's bounds, which a `bound` says of each thread: the first that is
        its own; the last parameter is the limit.
        """
        tids, most = of
        ahead, further = values
        found: list[int] = []
        if len(tids) <= SOUGHT_APART:
            for tid in reversed(tids):
                if len(found) < most:
                    own = (bound(tid), bound(tid + 1) - 1)
                    found += self._found(query, (*ahead, *own, *further, most - len(found)))
            return found
        whole = (bound(tids[0]), bound(tids[-1] + 1) - 1)
        among = self._among
        with closing(self._raw.execute(query, (*ahead, *whole, *further, -1))) as rows:
            return list(islice((pos for (pos,) in rows if pos >> THREAD_BITS in among), most))

    async def rows(self, places: Sequence[int]) -> Mapping[int, PassageRow]:
        """The passages of these threads at these places that there are."""
        return await super().rows([place for place in places if place >> THREAD_BITS in self._among])

    async def listed(self, since_us: int, until_us: int, limit: int) -> Sequence[int]:
        """Places of what was said between two times and is let through, of one thread after the other."""
        let_through, values = self._let_through()
        query = (
            f"SELECT p.pos FROM passages p WHERE p.tid = ? AND {let_through} AND p.at_us BETWEEN ? AND ? "
            "ORDER BY p.at_us, p.pos LIMIT ?"
        )
        found: list[int] = []
        for tid in self._said_in(since_us, until_us):
            if len(found) < limit:
                found += self._found(query, (tid, *values, since_us, until_us, limit - len(found)))
        return found

    def _said_in(self, since_us: int, until_us: int) -> Sequence[int]:
        """The threads of which something was said between two times, as far as their indexes know."""
        rows = self._raw.execute(
            "SELECT tid FROM passage_indexes WHERE tid BETWEEN ? AND ? AND first_us <= ? AND last_us >= ? ORDER BY tid",
            (self._tids[0], self._tids[-1], until_us, since_us) if self._tids else (1, 0, 0, 0),
        )
        return [tid for (tid,) in rows if tid in self._among]
