"""Checkpoints: the state of a graph's run after each of its steps, kept as what has changed.

The runtime of a graph saves the values of its channels over and over; most of a value is what it was before. A
checkpoint says for each channel which earlier event holds its value, or, of a list, which items of earlier events it is
made of; only what is new comes with it.
"""

from collections.abc import Iterator
from typing import Self

import msgspec

from memory_engine.core.events.base import Event, PackedText, TakenOut, event
from memory_engine.core.events.roles import Id, JsonText, Seq
from memory_engine.views.checkpoints.pieces import Bytes, Gap, Number, Packed, PiecePlace, Quote, readings


class ItemSpan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`count` items of a thread's lists from number `first` on; with 0, the next of those that this event brings."""

    first: Number
    count: Number


class ChannelValue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The value of a channel: whole (`value`), or a list of items (`spans`), or as the checkpoint at `seq` has it.

    `version` is JSON.
    """

    channel: Id
    version: JsonText = ""
    value: Packed | None = None
    spans: tuple[ItemSpan, ...] | None = None
    seq: Seq = 0


class ChannelWrite(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A task's write to a channel, and its place among the task's writes."""

    channel: Id
    index: int
    value: Packed


@event("checkpoint_saved", tracked=True, chunks="none")
class CheckpointSaved(Event):
    """The state of a graph's run after a step. `state` is all but the values; `items` are the new ones of its lists.

    `namespace` is that of a sub-graph, `id` orders the checkpoints of one. `metadata` is JSON. `pieces` are the bytes
    that it brings, for itself and for later events.
    """

    id: Id
    state: Packed
    namespace: Id = ""
    parent: Id = ""
    metadata: JsonText = "{}"
    values: tuple[ChannelValue, ...] = ()
    items: tuple[PiecePlace, ...] = ()
    pieces: tuple[Bytes | Quote, ...] = ()

    def without(self, gone: TakenOut, seq: int) -> Self:
        """Less the pieces that hold what is gone, or quote it."""
        gap = Gap(gone, seq)
        pieces, state = gap.pieces(self.pieces), gap.packed(self.state)
        values = tuple(
            value if value.value is None else msgspec.structs.replace(value, value=gap.packed(value.value))
            for value in self.values
        )
        return msgspec.structs.replace(self, pieces=pieces, state=state, values=values) if gap.found else self

    def packed_texts(self, seq: int) -> Iterator[PackedText]:
        """Its pieces and values."""
        values = (value.value for value in self.values if value.value is not None)
        yield from readings(self.pieces, (self.state, *values), seq)

    def in_few_words(self) -> str:
        """Its channels, and what its runtime says of it."""
        where = f"{self.namespace}: " if self.namespace else ""
        new = f", {len(self.items)} new in lists" if self.items else ""
        return f"{where}{', '.join(value.channel for value in self.values) or 'no values'}{new} {self.metadata}"


@event("checkpoint_written", tracked=True, chunks="none")
class CheckpointWritten(Event):
    """A task's write on the way to the next checkpoint after `id`."""

    id: Id
    task_id: Id
    namespace: Id = ""
    task_path: Id = ""
    writes: tuple[ChannelWrite, ...] = ()
    pieces: tuple[Bytes, ...] = ()

    def without(self, gone: TakenOut, seq: int) -> Self:
        """Less the pieces that hold what is gone."""
        gap = Gap(gone, seq)
        pieces = gap.pieces(self.pieces)
        writes = tuple(msgspec.structs.replace(write, value=gap.packed(write.value)) for write in self.writes)
        return msgspec.structs.replace(self, pieces=pieces, writes=writes) if gap.found else self

    def packed_texts(self, seq: int) -> Iterator[PackedText]:
        """Its pieces and values."""
        yield from readings(self.pieces, (write.value for write in self.writes), seq)

    def in_few_words(self) -> str:
        """The task, and the channels that it wrote to."""
        where = f"{self.namespace}: " if self.namespace else ""
        return f"{where}{self.task_path or self.task_id} wrote {', '.join(write.channel for write in self.writes)}"


class CheckpointName(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The namespace and the id of a checkpoint."""

    namespace: Id
    id: Id


@event("checkpoints_dropped", tracked=True, chunks="none")
class CheckpointsDropped(Event):
    """These checkpoints are shown no more; the log keeps them."""

    checkpoints: tuple[CheckpointName, ...]
