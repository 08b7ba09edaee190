"""Vectors of passages in SQLite (see `storage.passages`)."""

import sqlite3
from collections.abc import Collection, Iterable, Mapping

import msgspec

from memory_engine.errors import InvalidVector
from memory_engine.storage import vector_blocks
from memory_engine.storage.passages import base, has_index
from memory_engine.store.passages import PLACES_BITS, VectorRows


def unembedded(raw: sqlite3.Connection, tid: int, model: str, limit: int) -> tuple[list[int], int]:
    """See `PassageIndex.unembedded`."""
    if not has_index(raw, tid):
        return [], 0
    row = raw.execute("SELECT pos FROM embedded WHERE tid = ? AND model = ?", (tid, model)).fetchone()
    span = (row[0] if row is not None else base(tid), base(tid + 1))
    found = raw.execute("SELECT pos FROM passages WHERE pos > ? AND pos < ? ORDER BY pos LIMIT ?", (*span, limit))
    places = [pos - base(tid) for (pos,) in found]
    (count,) = raw.execute("SELECT count(*) FROM passages WHERE pos > ? AND pos < ?", span).fetchone()
    return places, count


def put_vectors(
    raw: sqlite3.Connection, tid: int, model: str, vectors: Mapping[int, bytes], span: tuple[int, int]
) -> None:
    """See `PassageIndex.put_vectors`; `span` is `first` and `upto`."""
    if not has_index(raw, tid):
        return
    first, upto = span
    row = raw.execute("SELECT pos FROM embedded WHERE tid = ? AND model = ?", (tid, model)).fetchone()
    earlier = (row[0] if row is not None else base(tid), base(tid) + first)
    if raw.execute("SELECT 1 FROM passages WHERE pos > ? AND pos < ? LIMIT 1", earlier).fetchone() is not None:
        return
    came = raw.execute("SELECT seq FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    if came is None or came[0] < upto >> PLACES_BITS:
        return
    there = {
        place
        for place in vectors
        if raw.execute("SELECT 1 FROM passages WHERE pos = ?", (base(tid) + place,)).fetchone()
    }
    try:
        vector_blocks.put(raw, tid, model, {place: vectors[place] for place in there})
    except InvalidVector:
        vector_blocks.drop(raw, tid, model)
        return
    raw.execute(
        "INSERT INTO embedded (tid, model, pos) VALUES (?, ?, ?) "
        "ON CONFLICT (tid, model) DO UPDATE SET pos = max(pos, excluded.pos)",
        (tid, model, base(tid) + upto),
    )


def vectors(raw: sqlite3.Connection, tid: int, model: str, after: int) -> list[VectorRows]:
    """See `PassageIndex.vectors`."""
    return vector_blocks.read_vectors(raw, tid, model, after) if has_index(raw, tid) else []


def models(raw: sqlite3.Connection, tid: int) -> dict[str, int]:
    """See `PassageIndex.models`."""
    if not has_index(raw, tid):
        return {}
    rows = raw.execute("SELECT model, pos FROM embedded WHERE tid = ? ORDER BY model", (tid,))
    return {model: pos - base(tid) for model, pos in rows}


def drop_vectors(raw: sqlite3.Connection, tid: int, names: Iterable[str]) -> None:
    """See `PassageIndex.drop_vectors`."""
    for name in names if has_index(raw, tid) else ():
        vector_blocks.drop(raw, tid, name)


class Came(msgspec.Struct, frozen=True):
    """How far a model has embedded some threads, by their `tid`, and how many passages have no vector yet."""

    upto: Mapping[int, int]
    waiting: Mapping[int, int]


def came(raw: sqlite3.Connection, tids: Collection[int], model: str) -> Came:
    """How far a model has come in some threads that have an index."""
    if not tids:
        return Came({}, {})
    among = frozenset(tids)
    rows = raw.execute(
        "SELECT i.tid, e.pos, i.last > coalesce(e.pos, 0) FROM passage_indexes i "
        "LEFT JOIN embedded e ON e.tid = i.tid AND e.model = ? WHERE i.tid BETWEEN ? AND ?",
        (model, min(among), max(among)),
    )
    found = [row for row in rows if row[0] in among]
    waiting = {tid: unembedded(raw, tid, model, 0)[1] for tid, _, may_wait in found if may_wait}
    return Came(
        {tid: pos - base(tid) for tid, pos, _ in found if pos is not None},
        {tid: count for tid, count in waiting.items() if count},
    )


def vectors_beyond(
    raw: sqlite3.Connection, upto: Mapping[int, int], model: str, known: Mapping[int, int]
) -> list[tuple[int, VectorRows]]:
    """The vectors of the threads that have come further than what is known, with the number of each."""
    later = [tid for tid, place in upto.items() if place > known.get(tid, -1)] if upto is not known else []
    return [(tid, rows) for tid in sorted(later) for rows in vectors(raw, tid, model, known.get(tid, 0))]
