"""Layers: working, episodic, semantic and procedural memory; sharing between agents; off-loading; recall."""

from typing import Literal

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.delivery import Delivery, Destination
from memory_engine.core.events.roles import ChunkId, Id, Moment, Name, Place, PlaceBound, Seq, SourceEventId, SourceSeq
from memory_engine.errors.effects import Usage
from memory_engine.runtime.config import WORKING_MAX

Layer = Literal["working", "episodic", "semantic", "procedural"]
"""The four layers of an agent's memory."""


@event("memory_appended", tracked=True, role="memory", chunks="none")
class MemoryAppended(Event):
    """An entry of a layer. `key`: semantic memory holds one entry a key. `condition` and `content`: a rule.

    `entry_id` and `timestamp_us` (microseconds since 1970) are the caller's, where they gave them; `capacity`
    bounds the working layer; `recalled` marks an entry that came out of memory, so that nothing is learned from it
    a second time. `sources` are the ids of the events that it was drawn from, in `source_thread`; `drawn_from`
    are seqs of this very thread, and forgetting one of them forgets the entry (not in episodic memory, whose
    rows a dispatch does not read). `own`: the agent found it out itself, so it may be shown to any of its users.
    """

    layer: Layer
    content: str
    key: Name = ""
    condition: str = ""
    metadata: dict[str, object] = msgspec.field(default_factory=dict)
    entry_id: Id = ""
    timestamp_us: Moment | None = None
    capacity: int = WORKING_MAX
    recalled: bool = False
    source_thread: Id = ""
    sources: tuple[SourceEventId, ...] = ()
    drawn_from: tuple[SourceSeq, ...] = ()
    own: bool = False

    def in_few_words(self) -> str:
        """Its key or its condition, and its text."""
        return f"{self.key or self.condition}: {self.content}" if self.key or self.condition else ""


@event("memory_removed", tracked=True, role="memory", chunks="none")
class MemoryRemoved(Event):
    """Entries of a layer go, by the seqs that they came with: of a key, facts learned since stay."""

    layer: Layer
    seqs: tuple[Seq, ...]
    reason: str = ""


class LayerLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of a layer's summary, and the seqs of the entries that it was drawn from, and of their origins."""

    text: str
    seqs: tuple[SourceSeq, ...] = ()


@event("memory_compacted", tracked=True, role="memory", chunks="none")
class MemoryCompacted(Event):
    """The entries of a layer up to the one of seq `upto` become one summary, or, without `lines`, go.

    `first` is the seq of the oldest entry covered, `count` how many they are; `left_out` of them are in no line.
    It was drawn from the layer as of `drawn_at`: entries removed since stay removed.
    """

    layer: Layer
    upto: PlaceBound
    count: int
    first: Place = 0
    drawn_at: PlaceBound = 0
    lines: tuple[LayerLine, ...] = ()
    left_out: int = 0
    method: Id = ""
    model: Id = ""
    usage: Usage | None = None
    failure: str = ""


@event("memory_cleared", tracked=True, role="memory", chunks="none")
class MemoryCleared(Event):
    """Layers are emptied. The log keeps their entries."""

    layers: tuple[Layer, ...]
    reason: str = ""


@event("memory_granted", tracked=True, role="memory", chunks="none")
class MemoryGranted(Event):
    """This agent lets another read layers of its memory, or write to them too."""

    grantee: Destination
    layers: tuple[Layer, ...]
    write: bool = False


@event("memory_revoked", tracked=True, role="memory", chunks="none")
class MemoryRevoked(Event):
    """The grant to an agent ends."""

    grantee: Destination
    reason: str = ""


@event("memory_shared", role="memory", chunks="none", delivers="tenant")
class MemoryShared(Event):
    """An entry for another memory: of an agent that granted it, of the agent at work here, or of this thread's user.

    `source_thread` is this thread; `sources` are the events of it that the entry was drawn from:
    forgetting one of them here forgets the entry there. `own` is that of `MemoryAppended`.
    """

    destination: Destination
    layer: Layer
    content: str
    key: Name = ""
    condition: str = ""
    metadata: dict[str, object] = msgspec.field(default_factory=dict)
    entry_id: Id = ""
    timestamp_us: Moment | None = None
    capacity: int = WORKING_MAX
    recalled: bool = False
    source_thread: Id = ""
    sources: tuple[SourceEventId, ...] = ()
    own: bool = False

    def deliveries(self) -> tuple[Delivery, ...]:
        """The entry, for the thread of the agent or the user."""
        return (Delivery(self.destination, msgspec.convert(self, MemoryAppended, from_attributes=True)),)


@event("memory_recalled", role="memory", chunks="recalled")
class MemoryRecalled(Event):
    """Memory put before the model: it is not a message, so nothing is extracted or promoted from it.

    `sources` are the ids of the entries that it shows.
    """

    content: str
    query: str = ""
    sources: tuple[SourceEventId, ...] = ()


@event("results_offloaded", role="memory", chunks="copies")
class ResultsOffloaded(Event):
    """Large chunks leave the context but for their beginning and a reference by which they can be opened."""

    chunk_ids: tuple[ChunkId, ...]
    keep_chars: int = 400
