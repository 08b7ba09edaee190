"""Units of a commit as the columns that the server's function takes: one array for each, of all units together."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ThreadRecord, encode_metadata, encode_policy, is_scope_id
from memory_engine.errors import EventIdTaken
from memory_engine.storage.passage_rows import beyond_bytes, count, stored_terms
from memory_engine.storage.postgres.rows import (
    array_of,
    as_bytes,
    chunk_place,
    id_column,
    id_key,
    marks_to_row,
    split_key,
    tid_of,
)
from memory_engine.store.passages import PassageChange, PassageRow, PassageStep
from memory_engine.store.protocol import CommitUnit, ProjectionChange

SPILL_BYTES: Final = 64 * 1024
"""Payloads over this size are kept apart, once for each content of a thread."""
_UNIT = "uuid bigint bigint"
_HEAD = "bigint bytea bigint text bigint bigint bigint bytea"
_MADE = "integer text text text text text text bytea bytea bigint boolean uuid text bigint"
_EVENT = "integer bigint bytea bytea text integer bigint bigint bytea bytea bytea bytea bytea bytea bytea"
_LIVE = "integer bigint integer bytea text"
_RANGE = "integer text bigint bytea bytea bytea bytea"
_ROW = "integer text bigint bytea bytea bytea bytea"
_CHECKPOINT = "integer text bigint bigint"
_CHANGE = "integer bigint bigint boolean bigint bigint"
_PASSAGE = "integer bigint bytea bytea bytea bigint bytea text bigint integer bytea"
_ENDING = "integer bigint integer bytea bytea bigint"
KEY, PREFIX, EVENT, TWIN, ORIGIN, DROP, DROP_KEY = range(7)
"""The passages that an event ends or destroys, as `end_passages` numbers them."""


class UnitAgain(CommitUnit):
    """A unit that makes a thread of an id whose thread was deleted."""


class Table:
    """Rows, as columns; `width` of them."""

    def __init__(self, types: str) -> None:
        self.types = [f"{name}[]" for name in types.split()]
        self.rows: list[tuple[object, ...]] = []

    def columns(self) -> list[list[object]]:
        """Its columns; empty ones where there is no row."""
        if not self.rows:
            return [[] for _ in self.types]
        return [list(column) for column in zip(*self.rows, strict=True)]


def _columns(tables: Iterable[Table]) -> list[list[object]]:
    return [column for table in tables for column in table.columns()]


def _parameters(first: int, *types: str) -> str:
    names = [f"{name}[]" for text in types for name in text.split()]
    return ", ".join(f"${first + n}::{name}" for n, name in enumerate(names))


_ARRAYS = (_UNIT, _HEAD, _MADE, _EVENT, _LIVE, _RANGE, _ROW, _CHECKPOINT, _CHANGE, _PASSAGE, _ENDING)
COMMIT = f"SELECT @.commit_units($1::integer, $2::boolean, $3::bigint, {_parameters(4, *_ARRAYS)})"
COMMIT_ONE = (
    "SELECT @.commit_one($1::integer, $2::boolean, $3::uuid, $4::bigint, $5::bigint, $6::bigint, $7::bytea, "
    f"$8::bigint, $9::text, $10::bigint, $11::bigint, $12::bigint, $13::bytea, {_parameters(14, _EVENT, _LIVE)})"
)
WRITE_ROWS = "SELECT @.write_rows({})".format(_parameters(1, "uuid text", _RANGE, _ROW, _CHECKPOINT))
_CHANGED = _parameters(4, _CHANGE, _PASSAGE, _ENDING)
WRITE_PASSAGES = f"SELECT @.write_passages($1::uuid[], $2::text[], $3::bigint, {_CHANGED})"
PUT_EVENTS = "SELECT @.put_events({})".format(_parameters(1, "uuid text", _EVENT))


def one_arguments(units: Sequence[CommitUnit]) -> list[object] | None:
    """The arguments of `COMMIT_ONE`; `None` where it is not one unit of events. Raises as `commit_arguments` does."""
    unit = units[0]
    if len(units) > 1 or not unit.events or unit.makes is not None or unit.projections or unit.passages is not None:
        return None
    events, live = Table(_EVENT), Table(_LIVE)
    events.rows = event_rows(1, unit.events)
    live.rows = live_rows(1, unit)
    head = head_row(unit, unit.expected.epoch, unit.head.epoch)
    return [*head, *_columns((events, live))]


def head_row(unit: CommitUnit, expected: int | None, epoch: int | None) -> tuple[object, ...]:
    """A unit's thread, its expected head, its new head, and the two epochs of the caller."""
    head = unit.head
    return (
        tid_of(unit.thread_id), unit.expected.seq, expected, head.seq, head.hash, epoch, head.status,
        head.open_compaction, head.chunks, head.tokens, marks_to_row(head),
    )  # fmt: skip


def live_rows(n: int, unit: CommitUnit) -> list[tuple[object, ...]]:
    """Chunks that come, move or go; what goes has no key."""
    placed = {id_: (None, None) if row is None else (row.key, row.container) for id_, row in unit.live.items()}
    return [(n, *chunk_place(chunk_id), *place) for chunk_id, place in placed.items()]


def commit_arguments(units: Sequence[CommitUnit]) -> list[list[object]]:
    """The columns of units of different threads, in the order of `COMMIT`.

    Raises `EventIdTaken` for an id twice in one unit, `InvalidIdentifier` for a text that UTF-8 cannot write.
    """
    heads, made, events, live = Table(f"{_UNIT} {_HEAD}"), Table(_MADE), Table(_EVENT), Table(_LIVE)
    projections, passages = ProjectionColumns(), PassageColumns()
    for n, unit in enumerate(units, 1):
        is_given = unit.makes is not None and _begins_anew(unit)  # the epoch, by the store
        heads.rows.append(head_row(unit, *((None, None) if is_given else (unit.expected.epoch, unit.head.epoch))))
        if unit.makes is not None:
            made.rows.append(made_row(n, unit.makes, is_given=is_given))
        events.rows += event_rows(n, unit.events)
        live.rows += live_rows(n, unit)
        for change in unit.projections:
            projections.add(n, change)
        if unit.passages is not None:
            passages.add(n, unit.passages)
    return _columns((heads, made, events, live, *projections.tables(), *passages.tables()))


def event_rows(n: int, events: Sequence[StoredEvent]) -> list[tuple[object, ...]]:
    """Rows of the log. Raises `EventIdTaken` for an id that comes twice."""
    rows: list[tuple[object, ...]] = []
    seen: set[bytes] = set()
    for stored in events:
        key = id_key(stored.id)
        if key in seen:
            raise EventIdTaken
        seen.add(key)
        payload = stored.payload
        rows.append(
            (
                n, stored.seq, key, id_column(stored.id, key), stored.type, stored.version, stored.recorded_at_us,
                stored.occurred_at_us, as_bytes(stored.causation_id) or None, as_bytes(stored.correlation_id) or None,
                stored.salt, stored.hash, payload,
                hashlib.sha256(payload).digest() if len(payload) > SPILL_BYTES else None, stored.record,
            )
        )  # fmt: skip
    return rows


def event_columns(events: Sequence[StoredEvent]) -> list[list[object]]:
    """The columns of rows of one thread's log, in the order of `PUT_EVENTS`."""
    table = Table(_EVENT)
    table.rows += event_rows(1, events)
    return table.columns()


def _begins_anew(unit: CommitUnit) -> bool:
    """Whether the thread that a unit makes may take the place of a deleted one, under an epoch of its own."""
    return isinstance(unit, UnitAgain) or is_scope_id(unit.thread_id)


def made_row(n: int, record: ThreadRecord, *, is_given: bool) -> tuple[object, ...]:
    """The row of a thread that a unit makes; `is_given`: it may take the place of a deleted one."""
    fork = record.forked_from
    origin: tuple[UUID | None, str | None, int | None] = (None, None, None)
    if fork is not None:
        origin = (tid_of(fork.thread_id), fork.thread_id, fork.seq)
    names = (record.id, record.kind, record.user_id, record.tenant_id, record.agent_id, record.parent_id)
    return (n, *names, *record_facts(record), is_given, *origin)


def record_facts(record: ThreadRecord) -> tuple[bytes, bytes | None, int]:
    """The metadata, the policy and the time of a thread's record, as its row holds them."""
    policy = encode_policy(record.policy).encode() if record.policy is not None else None
    return encode_metadata(record.metadata).encode(), policy, record.created_at_us


class ProjectionColumns:
    """Changes of projections; of two for one row the later counts."""

    def __init__(self) -> None:
        self._ranges = Table(_RANGE)
        self._rows: dict[tuple[int, str, int, bytes, bytes], tuple[bytes, bytes | None]] = {}
        self._checkpoints: dict[tuple[int, str, int], int] = {}

    def add(self, n: int, change: ProjectionChange) -> None:
        """Add a change of the n-th thread."""
        name, version = change.projection, change.version
        for first, last in change.ranges:
            head, _, tail = split_key(first)
            end_head, _, end_tail = split_key(last)
            self._ranges.rows.append((n, name, version, head, tail, end_head, end_tail))
        for key, value in change.rows.items():
            head, digest, tail = split_key(key)
            self._rows[n, name, version, head, digest] = tail, value
        self._checkpoints[n, name, version] = change.checkpoint

    def tables(self) -> tuple[Table, ...]:
        """Ranges, rows, checkpoints."""
        rows, checkpoints = Table(_ROW), Table(_CHECKPOINT)
        rows.rows += [(*key, tail, value) for key, (tail, value) in self._rows.items()]
        checkpoints.rows += [(*key, seq) for key, seq in self._checkpoints.items()]
        return self._ranges, rows, checkpoints


def row_columns(change: ProjectionChange) -> list[list[object]]:
    """The columns of one thread's change, in the order of `WRITE_ROWS`."""
    columns = ProjectionColumns()
    columns.add(1, change)
    return _columns(columns.tables())


class PassageColumns:
    """Changes of passages."""

    def __init__(self) -> None:
        self._changes, self._rows, self._endings = Table(_CHANGE), Table(_PASSAGE), Table(_ENDING)

    def add(self, n: int, change: PassageChange) -> None:
        """Add a change of the n-th thread."""
        rows = [row for step in change.steps for row in step.rows]
        terms = sum(count(row.terms) for row in rows)
        self._changes.rows.append((n, change.after, change.upto, change.afresh, len(rows), terms))
        self._rows.rows += [passage_row(n, row) for row in rows]
        for step in change.steps:
            if not step.only_adds:
                self._endings.rows += endings(n, step)

    def tables(self) -> tuple[Table, ...]:
        """Changes, rows, endings."""
        return self._changes, self._rows, self._endings


def passage_columns(change: PassageChange) -> list[list[object]]:
    """The columns of one thread's change, in the order of `WRITE_PASSAGES`."""
    columns = PassageColumns()
    columns.add(1, change)
    return _columns(columns.tables())


def passage_row(n: int, row: PassageRow) -> tuple[object, ...]:
    """The row of a passage."""
    said = (as_bytes(row.kind), as_bytes(row.role), as_bytes(row.speaker), row.at_us, as_bytes(row.key))
    return (n, row.place, *said, array_of(row.origins), row.ended, count(row.terms), as_bytes(stored_terms(row)))


def endings(n: int, step: PassageStep) -> list[tuple[object, ...]]:
    """The passages that a step ends and destroys."""
    named: defaultdict[int, Sequence[str]] = defaultdict(tuple)
    named.update({KEY: step.keys, PREFIX: step.prefixes, DROP_KEY: step.drop_keys})
    rows: list[tuple[object, ...]] = []
    for what, keys in named.items():
        for key in keys:
            text = as_bytes(key)
            rows.append((n, step.seq, what, text, beyond_bytes(text) if what == PREFIX else None, None))
    ended = range(1, step.seq) if step.ends_all else step.seqs
    numbered = {EVENT: ended, TWIN: step.twins, ORIGIN: step.origins, DROP: step.drops}
    rows += [(n, step.seq, what, None, None, seq) for what, seqs in numbered.items() for seq in seqs]
    return rows
