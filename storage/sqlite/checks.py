"""Whether the indexes of a thread say what its rows say: those of event ids, of words, and of vectors."""

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from memory_engine.storage import passages, vector_blocks
from memory_engine.storage.driver import errors
from memory_engine.storage.sqlite.passages import stands
from memory_engine.storage.sqlite.schema import id_from_row, position
from memory_engine.storage.sqlite.transactions import find_tid


def faults_of(raw: sqlite3.Connection, thread_id: str) -> Mapping[str, Sequence[str]]:
    """Differences between them at one moment, in lines by kind. Raises `ThreadNotFound`."""
    raw.execute("BEGIN")
    try:
        tid = find_tid(raw, thread_id)
        found = {"ids": list(_event_id_faults(raw, tid))}
        if stands(raw, tid):
            found["search"] = [
                *_counters(raw, tid),
                *_reach(raw, tid),
                *_word_list_faults(raw, tid),
                *_vectors(raw, tid),
            ]
        return {kind: lines for kind, lines in found.items() if lines}
    finally:
        raw.execute("COMMIT")


def _event_id_faults(raw: sqlite3.Connection, tid: int) -> Iterator[str]:
    """Each id must lead to its one event: a retry of an event that is not found would be recorded again."""
    span = (position(tid, 0), position(tid + 1, 0) - 1)
    astray = raw.execute(
        "SELECT 1 FROM events e NOT INDEXED WHERE e.pos BETWEEN ? AND ? AND e.pos IS NOT "
        "(SELECT i.rowid FROM events i INDEXED BY events_by_id WHERE i.id = e.id AND i.tid = ?) LIMIT 1",
        (*span, tid),
    )
    if astray.fetchone() is None:  # no event has the id of another either: it leads to one place
        return
    lost = raw.execute(
        "SELECT e.pos, e.id FROM events e NOT INDEXED WHERE e.pos BETWEEN ? AND ? AND NOT EXISTS "
        "(SELECT 1 FROM events i INDEXED BY events_by_id WHERE i.id = e.id AND i.tid = e.tid AND i.rowid = e.pos)",
        span,
    )
    for pos, event_id in lost:
        yield f"event {id_from_row(event_id)} of seq {pos & 0xFFFFFFFF} is not found by its id; run SQL `REINDEX`"
    twice = raw.execute(
        "SELECT id, count(*), max(pos) FROM events NOT INDEXED WHERE pos BETWEEN ? AND ? "
        "GROUP BY id HAVING count(*) > 1",
        span,
    )
    for event_id, count, pos in twice:
        yield f"event {id_from_row(event_id)} is recorded {count} times, the last at seq {pos & 0xFFFFFFFF}"


def _counters(raw: sqlite3.Connection, tid: int) -> Iterator[str]:
    kept = raw.execute("SELECT passages, terms FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    given = raw.execute(
        "SELECT count(*), coalesce(sum(size), 0) FROM passages NOT INDEXED WHERE pos BETWEEN ? AND ?",
        _thread_positions(tid),
    ).fetchone()
    for name, counted, there in zip(("passages", "terms"), kept, given, strict=True):
        if counted != there:
            yield f"{name}: {counted:,} are counted, {there:,} are there"


def _reach(raw: sqlite3.Connection, tid: int) -> Iterator[str]:
    """Yield faults of the bounds by which a look-up over many threads skips a thread: its times, what waits in it."""
    left_out = raw.execute(
        "SELECT max(p.pos) > max(i.folded, i.last) OR min(p.at_us) < i.first_us OR max(p.at_us) > i.last_us "
        "FROM passages p NOT INDEXED, passage_indexes i WHERE p.pos BETWEEN ? AND ? AND i.tid = ?",
        (*_thread_positions(tid), tid),
    )
    if left_out.fetchone()[0]:
        yield "the head of the index leaves out passages that are there"


def _word_list_faults(raw: sqlite3.Connection, tid: int) -> Iterator[str]:
    """The full-text lists name the passages that hold each word, and no others."""
    folded, prefix = raw.execute("SELECT folded, prefix FROM passage_indexes WHERE tid = ?", (tid,)).fetchone()
    first, last = passages.base(tid), min(folded, _thread_positions(tid)[1])
    holding: dict[str, list[str]] = defaultdict(list)
    query = "SELECT CAST(pos AS TEXT), terms FROM passages WHERE pos BETWEEN ? AND ? ORDER BY pos"
    for place, words in raw.execute(query, (first, last)):
        for word in set(words.split()):
            holding[word].append(place)
    try:
        lists = _lists(raw, prefix, (first, last), len(holding))
        for word in tuple(holding):
            places = holding.pop(word)  # freed by one call, all of them would hold up others
            if lists.get(word) == ",".join(places):
                continue
            wrong = set(map(int, places)).symmetric_difference(_list(raw, prefix + word, (first, last)))
            if wrong:
                yield f"the list of the word {word!r} is wrong about {len(wrong):,} of {len(places):,} passages"
    except errors(sqlite3.DatabaseError) as error:
        yield f"the full-text index cannot be read: {error}"


QUERY_TERMS = 50
"""Entries of lists that are read through in the time of one query for a word."""


def _list(raw: sqlite3.Connection, term: str, span: tuple[int, int]) -> Collection[int]:
    """The passages within a span that a search for a term finds."""
    query = "SELECT rowid FROM passage_terms WHERE passage_terms MATCH ? AND rowid BETWEEN ? AND ?"
    quoted = '"' + term.replace('"', '""') + '"'
    return {pos for (pos,) in raw.execute(query, (quoted, *span))}


def _lists(raw: sqlite3.Connection, prefix: str, span: tuple[int, int], words: int) -> Mapping[str, str]:
    """The lists of words, within a span, from one pass over all; none if a query for each costs less.

    Each list is a text, its places in ascending order with commas between: SQLite puts them together far faster than
    rows can be read one by one. A list in any other order only means that its word is looked up by itself.

    A thread may be a small part of the lists that it shares with others.
    """
    counted = raw.execute("SELECT coalesce(sum(terms), 0) FROM passage_indexes WHERE prefix = ?", (prefix,))
    (entries,) = counted.fetchone()
    if entries > QUERY_TERMS * words:
        return {}
    with passages.listing_words(raw, "instance"):
        every = raw.execute(
            "SELECT substr(term, ?), group_concat(doc) FROM temp.words WHERE term >= ? AND term < ? "
            "AND doc BETWEEN ? AND ? GROUP BY term",
            (len(prefix) + 1, prefix, prefix + "\U0010ffff", *span),
        )
        return dict(every)


def _vectors(raw: sqlite3.Connection, tid: int) -> Iterator[str]:
    """Vectors of one model have one dimension, and each has its passage."""
    if raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'vector_blocks'").fetchone() is None:
        return
    query = "SELECT pos FROM passages NOT INDEXED WHERE pos BETWEEN ? AND ? AND tid = ?"
    there = {passages.place_in_thread(pos) for (pos,) in raw.execute(query, (*_thread_positions(tid), tid))}
    yield from vector_blocks.faults(raw, tid, there)


def _thread_positions(tid: int) -> tuple[int, int]:
    return passages.base(tid), passages.base(tid + 1) - 1
