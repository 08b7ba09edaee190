"""Checkpoints of a graph's runs: which event holds each, and which the items of its lists."""

from collections.abc import Collection, Iterator
from typing import cast

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows, behind, row_of, seq_key
from memory_engine.views.checkpoints.events import CheckpointSaved, CheckpointsDropped, CheckpointWritten


class CheckpointRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="checkpoint", gc=False):
    """A checkpoint: the seq of its event, and the number of the first item that it brought."""

    seq: int
    parent: str = ""
    first: int = 0


class ItemsRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="items", gc=False):
    """`count` items that the event at `seq` brought, numbered from the row's key on."""

    seq: int
    count: int


class WritesRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="writes", gc=False):
    """The seqs of the events that hold what was written after a checkpoint, in order."""

    seqs: tuple[int, ...]


class HiddenRow(msgspec.Struct, frozen=True, tag="hidden", gc=False):
    """The items of an event that was forgotten are shown no more."""


AnyCheckpointRow = CheckpointRow | ItemsRow | WritesRow | HiddenRow

_CHECKPOINT = "checkpoint:"
_ITEMS = "items:"
_HIDDEN = "hidden:"


def checkpoint_key(namespace: str, checkpoint_id: str = "") -> str:
    """The key of a checkpoint's row; without an id the beginning of a namespace's keys, which its ids order."""
    return f"{_CHECKPOINT}{len(namespace)}:{namespace}:{checkpoint_id}"


def writes_key(namespace: str, checkpoint_id: str) -> str:
    """The key of the row of what was written after a checkpoint."""
    return f"writes:{len(namespace)}:{namespace}:{checkpoint_id}"


def checkpoint_at(rows: ReadableRows[AnyCheckpointRow], namespace: str, checkpoint_id: str) -> CheckpointRow | None:
    """The row of a checkpoint."""
    return row_of(rows, CheckpointRow, checkpoint_key(namespace, checkpoint_id))


def writes_at(rows: ReadableRows[AnyCheckpointRow], key: str) -> tuple[int, ...]:
    """The seqs of the writes in a row."""
    row = row_of(rows, WritesRow, key)
    return () if row is None else row.seqs


def checkpoints_in(rows: ReadableRows[AnyCheckpointRow], namespace: str) -> Iterator[str]:
    """The ids of a namespace's checkpoints, the latest first."""
    prefix = checkpoint_key(namespace)
    for key in reversed(rows.between(prefix, behind(prefix))):
        yield key[len(prefix) :]


def checkpoint_names(rows: ReadableRows[AnyCheckpointRow]) -> Iterator[tuple[str, str]]:
    """Namespace and id of every checkpoint, in no particular order."""
    for key in rows.between(_CHECKPOINT, behind(_CHECKPOINT)):
        size, _, rest = key[len(_CHECKPOINT) :].partition(":")
        yield rest[: int(size)], rest[int(size) + 1 :]


def hidden_key(seq: int) -> str:
    """The key of the row that says that an event was forgotten."""
    return f"{_HIDDEN}{seq_key(seq)}"


def hides_any(rows: ReadableRows[AnyCheckpointRow]) -> bool:
    """Whether any event was forgotten."""
    return bool(rows.between(_HIDDEN, behind(_HIDDEN)))


def items_between(rows: ReadableRows[AnyCheckpointRow], first: int, last: int) -> Iterator[tuple[int, ItemsRow]]:
    """The rows that hold the items with `first` <= number < `last`, each with the number of its first item."""
    keys = rows.between(_ITEMS, _ITEMS + seq_key(first + 1))[-1:] + rows.between(
        _ITEMS + seq_key(first + 1), _ITEMS + seq_key(last)
    )
    for key in keys:
        row = row_of(rows, ItemsRow, key)
        if row is not None:
            yield int(key.removeprefix(_ITEMS)), row


class CheckpointFold:
    """Records the place of each checkpoint, numbers the items, and drops dropped or forgotten ones."""

    name = "checkpoints"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = False
    row = cast("type[AnyCheckpointRow]", AnyCheckpointRow)  # a union, which msgspec takes as well as a class
    events: tuple[type[Event], ...] = (CheckpointSaved, CheckpointWritten, CheckpointsDropped, MemoryForget)

    def apply(self, rows: Rows[AnyCheckpointRow], event: RecordedEvent) -> None:
        """Change the rows by one event."""
        match event.event:
            case CheckpointSaved() as saved:
                first = _next_number(rows)
                if saved.items:
                    rows.put(_ITEMS + seq_key(first), ItemsRow(event.seq, len(saved.items)))
                rows.put(checkpoint_key(saved.namespace, saved.id), CheckpointRow(event.seq, saved.parent, first))
            case CheckpointWritten() as written:
                key = writes_key(written.namespace, written.id)
                rows.put(key, WritesRow((*writes_at(rows, key), event.seq)))
            case CheckpointsDropped(checkpoints=dropped):
                for name in dropped:
                    rows.drop(checkpoint_key(name.namespace, name.id))
                    rows.drop(writes_key(name.namespace, name.id))
            case MemoryForget() as forget:
                _drop_forgotten_checkpoints(rows, forget.origins())


def _next_number(rows: ReadableRows[AnyCheckpointRow]) -> int:
    last = rows.between(_ITEMS, behind(_ITEMS))[-1:]
    row = row_of(rows, ItemsRow, last[0]) if last else None
    return 1 if row is None else int(last[0].removeprefix(_ITEMS)) + row.count


def _drop_forgotten_checkpoints(rows: Rows[AnyCheckpointRow], seqs: Collection[int]) -> None:
    """Checkpoints and writes of forgotten events go; of their items, later checkpoints must not show any either."""
    for key, row in list(rows.items()):
        if isinstance(row, HiddenRow):
            continue
        held = row.seqs if isinstance(row, WritesRow) else (row.seq,)
        gone = [seq for seq in held if seq in seqs]
        if gone and isinstance(row, WritesRow):
            rows.put(key, WritesRow(tuple(seq for seq in held if seq not in seqs)))
        elif gone and isinstance(row, CheckpointRow):
            rows.drop(key)
        for seq in gone:
            rows.put(hidden_key(seq), HiddenRow())


CHECKPOINTS = CheckpointFold()
