"""Queries. Each runs whole on a reader's thread and orders explicitly."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import (
    DELETED,
    Head,
    LiveChunk,
    LoadedThread,
    ThreadRecord,
    encoded_pairs,
    is_scope_id,
)
from memory_engine.errors import IntegrityError, ThreadNotFound
from memory_engine.storage.sqlite.schema import (
    EVENT_COLUMNS,
    EVENT_ITSELF,
    EVENTS,
    HEAD_COLUMNS,
    HEAD_WIDTH,
    THREAD_COLUMNS,
    event_from_row,
    head_from_row,
    id_to_row,
    position,
    rows_of,
    thread_from_row,
    with_id,
)
from memory_engine.storage.sqlite.transactions import find_tid, without_head
from memory_engine.store import broken
from memory_engine.store.passages import LookedUp, LookUp
from memory_engine.store.protocol import BROKEN_ROWS, RowSpan, StoreStats, ThreadFilter

if TYPE_CHECKING:
    from memory_engine.storage import passage_search
else:
    passage_search = lazy_module("memory_engine.storage.passage_search")

_IN_MAX = 500
"""Values in one `IN (…)`: SQLite's limit on older builds is 999 parameters."""


_ROW = "SELECT value FROM projection_rows WHERE projection = ? AND version = ? AND tid = ? AND key = ?"


def load(raw: sqlite3.Connection, thread_id: str, *, sources: bool = True) -> LoadedThread:
    """A thread's record, head and live rows, with the events behind them unless without `sources`, of one moment."""
    raw.execute("BEGIN")
    try:
        row = _thread_row(raw, f"{HEAD_COLUMNS}, {THREAD_COLUMNS}", thread_id)
        tid = row[HEAD_WIDTH]
        rows = raw.execute("SELECT seq, n, key, container FROM live WHERE tid = ? ORDER BY container, key", (tid,))
        live = [LiveChunk(f"{seq}.{n}", key, container) for seq, n, key, container in rows]
        seqs = sorted({int(row.chunk_id.partition(".")[0]) for row in live}) if sources else ()
        behind = _events_at(raw, tid, seqs)
        indexed = raw.execute("SELECT 1 FROM passage_indexes WHERE tid = ?", (tid,)).fetchone() is not None
        noted = raw.execute(_ROW, (BROKEN_ROWS, broken.VERSION, tid, broken.KEY)).fetchone()
        record, its_head = thread_from_row(row[HEAD_WIDTH:]), head_from_row(row[:HEAD_WIDTH])
        return LoadedThread(record, its_head, live, behind, indexed, noted[0] if noted is not None else None)
    finally:
        raw.execute("COMMIT")


def head(raw: sqlite3.Connection, thread_id: str) -> Head:
    """A thread's head."""
    return head_from_row(_thread_row(raw, HEAD_COLUMNS, thread_id))


def _thread_row(raw: sqlite3.Connection, columns: str, thread_id: str) -> tuple:  # type: ignore[type-arg]
    """A thread's row. Raises as `find_tid` does."""
    condition, values = with_id(thread_id)
    query = f"SELECT {columns} FROM threads t JOIN heads h ON h.tid = t.tid WHERE {condition} AND h.status <> ?"
    for row in rows_of(raw, query, (*values, DELETED)):
        return row
    raise without_head(raw, thread_id)


def lineage(raw: sqlite3.Connection, tid: int) -> list[tuple[int, int, int]]:
    """The logs that a thread's history is made of, oldest first: (tid, first seq, last seq).

    Raises `IntegrityError` where forks lead in a circle, or to nowhere.
    """
    parts: dict[int, tuple[int, int, int]] = {}
    last = (1 << 32) - 1
    at: int | None = tid
    while at is not None:
        row = raw.execute("SELECT forked_tid, forked_seq FROM threads WHERE tid = ?", (at,)).fetchone()
        if row is None or at in parts:
            [(name,)] = rows_of(raw, "SELECT id FROM threads WHERE tid = ?", (tid,))
            why = (
                "the threads that it was forked from lead back to it"
                if row
                else "the thread it was forked from is gone"
            )
            raise IntegrityError(name, last, why)
        first = ((row[1] or 0) if row[0] is not None else 0) + 1
        parts[at] = (at, first, last)
        at, last = row[0], min(last, first - 1)
    return list(parts.values())[::-1]


def read(raw: sqlite3.Connection, thread_id: str, after: int, upto: int, limit: int) -> list[StoredEvent]:
    """Events in order, through shared pasts. Raises `IntegrityError` at the first gap."""
    tid = find_tid(raw, thread_id)
    found: list[StoredEvent] = []
    for part, first, last in lineage(raw, tid):
        low, high = max(first, after + 1), min(last, upto)
        if low > high or len(found) >= limit:
            continue
        rows = raw.execute(
            f"SELECT {EVENT_ITSELF}, NULL FROM {EVENTS} WHERE e.pos BETWEEN ? AND ? ORDER BY e.pos LIMIT ?",
            (position(part, low), position(part, high), limit - len(found)),
        )
        found.extend(_in_a_row(raw, tid, rows))
    expected = after + 1
    for stored in found:
        if stored.seq != expected:
            raise IntegrityError(thread_id, expected, "the log has a gap")
        expected += 1
    if len(found) < limit and expected <= min(upto, head(raw, thread_id).seq):
        raise IntegrityError(thread_id, expected, "the log has a gap")
    return found


def read_types(
    raw: sqlite3.Connection, thread_id: str, between: tuple[int, int], limit: int, types: Collection[str]
) -> list[StoredEvent]:
    """Events of some types with seqs after the first and up to the second, in order, through shared pasts."""
    after, upto = between
    wanted = sorted(types)
    found: list[StoredEvent] = []
    tid = find_tid(raw, thread_id)
    for part, first, last in lineage(raw, tid):
        low, high = max(first, after + 1), min(last, upto)
        if low > high or len(found) >= limit:
            continue
        rows = raw.execute(
            f"SELECT {EVENT_COLUMNS} FROM {EVENTS} WHERE e.pos BETWEEN ? AND ? AND e.type IN ({_marks(wanted)}) "
            "ORDER BY e.pos LIMIT ?",
            (position(part, low), position(part, high), *wanted, limit - len(found)),
        )
        found.extend(_linked(raw, tid, map(event_from_row, rows)))
    return found


def seq_at(raw: sqlite3.Connection, thread_id: str, recorded_at_us: int) -> int:
    """The seq of the last event recorded at or before a time, 0 without one."""
    for part, first, last in reversed(lineage(raw, find_tid(raw, thread_id))):
        row = raw.execute(
            "SELECT pos FROM events WHERE pos BETWEEN ? AND ? AND recorded_at_us <= ? ORDER BY pos DESC LIMIT 1",
            (position(part, first), position(part, last), recorded_at_us),
        ).fetchone()
        if row is not None:
            return int(row[0]) & 0xFFFFFFFF
    return 0


def correlated(
    raw: sqlite3.Connection, correlation_id: str, limit: int | None, tenant_id: str | None
) -> list[tuple[str, StoredEvent]]:
    """Events that bear a correlation id, with their threads' ids, in the order of their recording.

    Raises `IntegrityError` for one that is not where it was recorded: an index leads to it, even amid damaged rows.
    """
    rows = rows_of(
        raw,
        f"SELECT t.id, e.tid, {EVENT_COLUMNS} FROM {EVENTS} JOIN threads t ON t.tid = e.pos >> 32 "
        "JOIN heads h ON h.tid = t.tid "
        "WHERE e.correlation_id = ? AND h.status <> ? AND t.tenant_id = coalesce(?, t.tenant_id) "
        "ORDER BY e.recorded_at_us DESC, e.pos DESC LIMIT ?",
        (correlation_id, DELETED, tenant_id, -1 if limit is None else limit),
    )
    found: list[tuple[str, StoredEvent]] = []
    for thread_id, tid, *columns in rows:
        [stored] = _linked(raw, tid, [event_from_row(tuple(columns))])
        if columns[0] != position(tid, stored.seq) or stored.previous is None:
            raise IntegrityError(thread_id, stored.seq, "it is not in the place where it was recorded")
        found.append((thread_id, stored))
    return found[::-1]


def look_up(raw: sqlite3.Connection, thread_id: str, wanted: LookUp, lists: "passage_search.Lists") -> LookedUp:
    """Passages of a thread, of one moment."""
    raw.execute("BEGIN")
    try:
        return passage_search.look_up(raw, find_tid(raw, thread_id), head(raw, thread_id).seq, wanted, lists)
    finally:
        raw.execute("COMMIT")


def fitting(raw: sqlite3.Connection, thread_id: str, wanted: LookUp) -> list[int]:
    """The places of a thread's passages that fit what narrows a look-up."""
    return passage_search.fitting(raw, find_tid(raw, thread_id), wanted)


def indexed(raw: sqlite3.Connection) -> list[str]:
    """Ids of the threads that have an index of passages."""
    rows = rows_of(raw, "SELECT t.id FROM passage_indexes p JOIN threads t ON t.tid = p.tid ORDER BY p.tid")
    return [str(thread_id) for (thread_id,) in rows]


def find(raw: sqlite3.Connection, thread_id: str, event_ids: Sequence[str]) -> list[StoredEvent]:
    """Events by id, in the thread's own log and the pasts that it shares."""
    found: list[StoredEvent] = []
    tid = find_tid(raw, thread_id)
    for part, _, last in lineage(raw, tid):
        for ids in _sliced([id_to_row(event_id) for event_id in event_ids]):
            rows = raw.execute(
                f"SELECT {EVENT_COLUMNS} FROM {EVENTS} WHERE e.tid = ? AND e.id IN ({_marks(ids)}) ORDER BY e.pos",
                (part, *ids),
            )
            found.extend(stored for stored in _linked(raw, tid, map(event_from_row, rows)) if stored.seq <= last)
    return found


def read_at(raw: sqlite3.Connection, thread_id: str, seqs: Sequence[int]) -> list[StoredEvent]:
    """Events by seq, in order. Raises `IntegrityError` for one that should be there and is not."""
    last = head(raw, thread_id).seq
    wanted = sorted({seq for seq in seqs if 0 < seq <= last})
    found = _events_at(raw, find_tid(raw, thread_id), wanted)
    for seq in wanted:
        if seq not in found:
            raise IntegrityError(thread_id, seq, "the log has a gap")
    return [found[seq] for seq in wanted]


def _events_at(raw: sqlite3.Connection, tid: int, seqs: Sequence[int]) -> dict[int, StoredEvent]:
    parts = lineage(raw, tid)
    places = [position(part, seq) for seq in seqs for part, first, last in parts if first <= seq <= last]
    found: dict[int, StoredEvent] = {}
    for some in _sliced(places):
        rows = raw.execute(
            f"SELECT {EVENT_COLUMNS} FROM {EVENTS} WHERE e.pos IN ({_marks(some)}) ORDER BY e.pos",
            tuple(some),
        )
        found.update((stored.seq, stored) for stored in _linked(raw, tid, map(event_from_row, rows)))
    return found


def _in_a_row(raw: sqlite3.Connection, tid: int, rows: Iterable[tuple]) -> Iterator[StoredEvent]:  # type: ignore[type-arg]
    """Rows of one log that follow one another, each with the hash of the one before: that of the first is looked up."""
    before: StoredEvent | None = None
    for row in rows:
        if before is not None and row[0] & 0xFFFFFFFF == before.seq + 1:
            stored = event_from_row(row, before.hash)
        else:
            [stored] = _linked(raw, tid, [event_from_row(row)])
        yield stored
        before = stored


def _linked(raw: sqlite3.Connection, tid: int, rows: Iterable[StoredEvent]) -> Iterator[StoredEvent]:
    """The rows, also the first of a fork with the hash before it, which is in the log where it was forked."""
    for stored in rows:
        if stored.previous is None:
            parts = lineage(raw, tid)
            origin = next((part for part, first, last in parts if first <= stored.seq - 1 <= last), tid)
            before = raw.execute(
                "SELECT hash FROM events WHERE pos = ?", (position(origin, stored.seq - 1),)
            ).fetchone()
            yield msgspec.structs.replace(stored, previous=before[0] if before is not None else None)
        else:
            yield stored


_UPDATED = "coalesce((SELECT e.recorded_at_us FROM events e WHERE e.pos = t.tid << 32 | h.seq), t.created_at_us)"
"""When a thread's last event was recorded; a thread without one of its own was made then."""


def listed(raw: sqlite3.Connection, where: ThreadFilter) -> list[tuple[ThreadRecord, Head, int]]:
    """Threads by exact matches, each with the time of its last event, in the order of `ThreadFilter`.

    Also those whose head's row is gone, for nothing vanishes unnoticed.
    """
    conditions: list[str] = ["h.status IS NOT ?"]
    values: list[object] = [DELETED]
    for name, value in where.exact():
        matching = f"{'h' if name == 'status' else 't'}.{name} = ?"
        condition, of_it = with_id(value) if name == "id" else (matching, (value,))
        conditions.append(condition)
        values.extend(of_it)
    for pair in encoded_pairs(where.metadata):
        conditions.append("instr(',' || substr(t.metadata, 2), ?) > 0")
        values.append(pair)
    keys = (_UPDATED, "t.tid") if where.order == "updated" else ("t.tid",)
    order = ("1", "t.tid") if where.order == "updated" else keys  # the first column, which is worked out once
    descending = " DESC" if where.is_newest_first else ""
    if where.after:
        place = _place_of(raw, where.after, keys)
        if where.order == "updated" and where.after_us is not None:
            place = (where.after_us, *place[1:])
        conditions.append(f"({', '.join(keys)}) {'<' if descending else '>'} ({', '.join('?' * len(keys))})")
        values.extend(place)
    rows = rows_of(
        raw,
        f"SELECT {_UPDATED}, {HEAD_COLUMNS}, {THREAD_COLUMNS} FROM threads t LEFT JOIN heads h ON h.tid = t.tid "
        f"WHERE {' AND '.join(conditions)} ORDER BY {', '.join(key + descending for key in order)} LIMIT ?",
        (*values, -1 if where.limit is None else where.limit),
    )
    found = [
        (thread_from_row(row[HEAD_WIDTH + 1 :]), head_from_row(row[1 : HEAD_WIDTH + 1]), _whole_number(row[0]))
        for row in rows
    ]
    return where.ordered([one for one in found if where.has_metadata(one[0])])


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _place_of(raw: sqlite3.Connection, thread_id: str, keys: Sequence[str]) -> tuple[object, ...]:
    """A thread's position among all, also of a deleted one. Raises `ThreadNotFound`."""
    query = f"SELECT {', '.join(keys)} FROM threads t LEFT JOIN heads h ON h.tid = t.tid WHERE t.id = ?"
    row: tuple[object, ...] | None = raw.execute(query, (thread_id,)).fetchone()
    if row is None:
        raise ThreadNotFound(thread_id)
    return row


def taken(raw: sqlite3.Connection) -> list[str]:
    """Ids of deleted threads, but scopes', and but those that the rows of deleted ones have in the place of theirs."""
    rows = raw.execute("SELECT t.id FROM threads t JOIN heads h ON h.tid = t.tid WHERE h.status = ?", (DELETED,))
    return [thread_id for (thread_id,) in rows if not is_scope_id(thread_id) and not thread_id.startswith("\0")]


def forks(raw: sqlite3.Connection, thread_id: str) -> list[str]:
    """Ids of the threads that were forked from a thread, also from one whose head's row is gone."""
    condition, values = with_id(thread_id)
    rows = rows_of(
        raw,
        "SELECT f.id FROM threads f LEFT JOIN heads h ON h.tid = f.tid "
        f"WHERE f.forked_tid = (SELECT t.tid FROM threads t WHERE {condition}) AND f.tid <> f.forked_tid "
        "AND h.status IS NOT ? ORDER BY f.tid",
        (*values, DELETED),
    )
    if not rows:
        with suppress(IntegrityError):
            find_tid(raw, thread_id)
    return [str(row[0]) for row in rows]


def projection_rows(
    raw: sqlite3.Connection, projection: str, version: int, thread_id: str
) -> tuple[int, Mapping[str, bytes]]:
    """A projection's checkpoint and rows for a thread, of one moment."""
    raw.execute("BEGIN")
    try:
        key = (projection, version, find_tid(raw, thread_id))
        at = raw.execute("SELECT seq FROM checkpoints WHERE projection = ? AND version = ? AND tid = ?", key).fetchone()
        rows = raw.execute(
            "SELECT key, value FROM projection_rows WHERE projection = ? AND version = ? AND tid = ? ORDER BY key",
            key,
        ).fetchall()
        return (at[0] if at is not None else 0), dict(rows)
    finally:
        raw.execute("COMMIT")


def checkpoint(raw: sqlite3.Connection, projection: str, version: int, thread_id: str) -> int:
    """A projection's checkpoint for a thread."""
    at = raw.execute(
        "SELECT seq FROM checkpoints WHERE projection = ? AND version = ? AND tid = ?",
        (projection, version, find_tid(raw, thread_id)),
    ).fetchone()
    return at[0] if at is not None else 0


def rows_between(
    raw: sqlite3.Connection, projection: str, version: int, thread_id: str, span: RowSpan
) -> list[tuple[str, bytes]]:
    """The rows of a span, in order of keys."""
    end, last = ("", ()) if span.last is None else ("AND key < ? ", (span.last,))
    rows = raw.execute(
        "SELECT key, value FROM projection_rows WHERE projection = ? AND version = ? AND tid = ? AND key >= ? "
        f"{end}ORDER BY key {'DESC' if span.latest else 'ASC'} LIMIT ?",
        (projection, version, find_tid(raw, thread_id), span.first, *last, -1 if span.limit is None else span.limit),
    ).fetchall()
    return rows[::-1] if span.latest else rows


def measure_rows(raw: sqlite3.Connection, projection: str, version: int, thread_id: str) -> tuple[int, int]:
    """The number of a projection's rows, and the bytes of their values."""
    count, size = raw.execute(
        "SELECT count(*), coalesce(sum(length(value)), 0) FROM projection_rows "
        "WHERE projection = ? AND version = ? AND tid = ?",
        (projection, version, find_tid(raw, thread_id)),
    ).fetchone()
    return count, size


def holders(raw: sqlite3.Connection, projection: str, version: int) -> list[str]:
    """Ids of the threads for which a projection has rows."""
    rows = rows_of(
        raw,
        "SELECT t.id FROM threads t JOIN heads h ON h.tid = t.tid WHERE h.status <> ? AND t.tid IN "
        "(SELECT tid FROM projection_rows WHERE projection = ? AND version = ?) ORDER BY t.tid",
        (DELETED, projection, version),
    )
    return [str(row[0]) for row in rows]


def behind(raw: sqlite3.Connection, projection: str, version: int) -> list[str]:
    """Ids of the threads whose head is past a projection's checkpoint."""
    rows = rows_of(
        raw,
        "SELECT t.id FROM threads t JOIN heads h ON h.tid = t.tid LEFT JOIN checkpoints c "
        "ON c.projection = ? AND c.version = ? AND c.tid = t.tid "
        "WHERE h.status <> ? AND h.seq > coalesce(c.seq, 0) ORDER BY t.tid",
        (projection, version, DELETED),
    )
    return [str(row[0]) for row in rows]


def totals(raw: sqlite3.Connection) -> StoreStats:
    """The totals; `bytes` is the size of the database alone."""
    query = f"SELECT {HEAD_COLUMNS}, t.id FROM heads h LEFT JOIN threads t ON t.tid = h.tid WHERE h.status <> ?"
    heads = [(str(thread_id), head_from_row(tuple(row))) for *row, thread_id in rows_of(raw, query, (DELETED,))]
    whole = [head for _, head in heads if not head.damaged]
    events, payloads = raw.execute(
        f"SELECT count(*), coalesce(sum(length(coalesce(e.payload, b.body))), 0) FROM {EVENTS}"
    ).fetchone()
    (size,) = raw.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()").fetchone()
    return StoreStats(
        threads=len(heads),
        events=events,
        chunks=sum(head.chunks for head in whole),
        tokens=sum(head.tokens for head in whole),
        payload_bytes=payloads,
        bytes=size,
        damaged=tuple(thread_id for thread_id, head in heads if head.damaged),
    )


def _sliced(values: Sequence[object]) -> Iterator[Sequence[object]]:
    return (values[at : at + _IN_MAX] for at in range(0, len(values), _IN_MAX))


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
