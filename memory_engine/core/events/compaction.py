"""Compaction, recorded and never re-run: its result is an event.

So are the events that a rerun under a change left out, and what a later reducer makes of events.
"""

from typing import ClassVar, Literal

import msgspec

from memory_engine.core.events.base import Body, Content, Event, SummaryLine, ToolCall, event
from memory_engine.core.events.delivery import Delivery, Destination, FactsRewound
from memory_engine.core.events.roles import ChunkId, Id, JsonText, Name, SeenSeq, Seq, StatusWord
from memory_engine.errors.effects import Usage


class Replacement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The replacement of the covered chunks: the lines of one summary, or nothing (dropped).

    `retention` is the summary's; a summary of EPHEMERAL chunks ends with the session as they would.
    """

    covers: tuple[ChunkId, ...]
    lines: tuple[SummaryLine, ...] = ()
    retention: Literal["compressible", "ephemeral"] = "compressible"


@event("compaction_started", role="compaction", chunks="own", upkeep=True)
class CompactionStarted(Event):
    """The queue is blocked while a compactor works on these chunks, until `deadline_us`.

    `policy` is the compaction policy that applied, as JSON, as in a thread's record; `instructions` and `focus` are
    the instructions for the compactor to keep and to detail. `note` says which hooks before it failed, and how.
    """

    compaction_id: Id
    trigger: Literal["auto", "manual", "hard"]
    chunk_ids: tuple[ChunkId, ...]
    compactor: Id
    owner: Id
    deadline_us: int
    policy: JsonText = ""
    instructions: str = ""
    focus: str = ""
    note: str = ""


@event("compaction_completed", role="compaction", chunks="summaries", upkeep=True)
class CompactionCompleted(Event):
    """The result: the replacements, the compactor, and the tokens that it took."""

    compaction_id: Id
    trigger: Literal["auto", "manual", "hard"]
    replacements: tuple[Replacement, ...]
    compactor: Id
    model: Id = ""
    usage: Usage = Usage()
    tokens_before: int = 0
    tokens_after: int = 0

    def bodies(self) -> tuple[Body, ...]:
        """One body for each replacement."""
        return tuple(Body(lines=replacement.lines) for replacement in self.replacements)


@event("compaction_failed", role="compaction", chunks="own", upkeep=True)
class CompactionFailed(Event):
    """The compactor failed or its result was refused; nothing was replaced."""

    compaction_id: Id
    compactor: Id
    reason: str
    error: str = ""
    usage: Usage = Usage()


@event("compaction_abandoned", role="compaction", chunks="own", upkeep=True)
class CompactionAbandoned(Event):
    """A compaction that can no longer finish; the originals stay."""

    compaction_id: Id
    reason: str


@event("compactor_stood_in", role="compaction", chunks="none", upkeep=True)
class CompactorStoodIn(Event):
    """In this compaction `compactor` replaces another, `instead_of`, which failed; `error` says how."""

    compaction_id: Id
    compactor: Id
    instead_of: Id
    reason: str
    error: str = ""


class RestoredChunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chunk that an event brings along, such as one that an undone compaction gives back: its fields, its place.

    `original` is the id that it had; the new one comes with `parent_ids`. It goes directly `before` or `after`
    another, in a `container` or at the top; first of all where neither is given. These are chunk ids of the state,
    or the `original` of another chunk that comes back. `type`, `retention` and `category` are wire names of theirs.
    """

    original: ChunkId
    type: Id
    retention: Id
    category: Id
    parent_ids: tuple[ChunkId, ...]
    content: Content = ""
    calls: tuple[ToolCall, ...] = ()
    lines: tuple[SummaryLine, ...] = ()
    call_id: Id = ""
    label: str = ""
    name: Name = ""
    final: bool = True
    response_id: Id = ""
    status: StatusWord = ""
    native: JsonText = ""
    native_tokens: int = 0
    is_container: bool = False
    container: ChunkId = ""
    before: ChunkId = ""
    after: ChunkId = ""


@event("compaction_undone", tracked=True, role="compaction", chunks="copies")
class CompactionUndone(Event):
    """The `summaries` of a compaction go, and its original chunks come back, without those forgotten since.

    `completed` is the seq of the compaction's result. `seen` is the seq of the state that all this was read from:
    the event is refused after any other, since something may have been forgotten in between (0: not checked).
    """

    compaction_id: Id
    completed: Seq
    summaries: tuple[ChunkId, ...]
    restored: tuple[RestoredChunk, ...]
    reason: str = ""
    seen: SeenSeq = 0

    bodies_in_order: ClassVar[bool] = True

    def bodies(self) -> tuple[Body, ...]:
        """One body for each chunk that comes back."""
        return restored_bodies(self.restored)


class MendedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that is reduced to something else now: the digests of what is recorded, and of what reducers give."""

    seq: Seq
    recorded: Id
    given: Id


@event("thread_rereduced", tracked=True, role="system", chunks="copies")
class ThreadRereduced(Event):
    """The state becomes what other reducers give for the events from `from_seq` on: chunks go, and others come.

    `mended` are the events that these reducers reduce to something else than is recorded. `undoes` is the seq of an
    earlier such event whose chunks go again. `seen` is the seq of the state that all this was read from: the event is
    refused after any other (0: not checked).
    """

    from_seq: Seq
    restored: tuple[RestoredChunk, ...] = ()
    removed: tuple[ChunkId, ...] = ()
    mended: tuple[MendedEvent, ...] = ()
    undoes: Seq = 0
    reason: str = ""
    seen: SeenSeq = 0

    bodies_in_order: ClassVar[bool] = True

    def bodies(self) -> tuple[Body, ...]:
        """One body for each chunk that comes."""
        return restored_bodies(self.restored)


class RewindReach(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another thread with facts of the events of a rewind: the ids that they have there.

    Facts of events that a rewind takes back are `hidden`, those of events that it brings back are `shown`.
    """

    destination: Destination
    hidden: tuple[Id, ...] = ()
    shown: tuple[Id, ...] = ()


@event("thread_rewound", tracked=True, role="memory", chunks="copies", delivers="tenant")
class ThreadRewound(Event):
    """The thread continues from the moment `to`: the events since are taken back, and those of that moment are shown.

    The log keeps all of them. Which events are shown after it follows from `to` alone (see `core.rewinding`). Chunks
    go (`removed`) and come (`restored`), so that the state is that of the moment, without what was forgotten since.
    `reach` are the threads that facts went to. `seen` is the seq of the state that all this was read from: the event
    is refused after any other (0: not checked).
    """

    to: Seq
    restored: tuple[RestoredChunk, ...] = ()
    removed: tuple[ChunkId, ...] = ()
    reach: tuple[RewindReach, ...] = ()
    reason: str = ""
    seen: SeenSeq = 0

    bodies_in_order: ClassVar[bool] = True

    def bodies(self) -> tuple[Body, ...]:
        """One body for each chunk that comes back."""
        return restored_bodies(self.restored)

    def in_few_words(self) -> str:
        """The moment, and why."""
        return f"back to event {self.to}{f': {self.reason}' if self.reason else ''}"

    def deliveries(self) -> tuple[Delivery, ...]:
        """The same, for the threads that facts of these events went to."""
        return tuple(
            Delivery(one.destination, FactsRewound(hidden=one.hidden, shown=one.shown, reason=self.reason))
            for one in self.reach
        )


@event("source_quarantined", tracked=True, role="memory", chunks="copies", delivers="tenant")
class SourceQuarantined(Event):
    """What rests on a source is hidden until its quarantine ends: an event with `ends` shows it again.

    `source` names it (see `core.quarantine`). The events of this thread with the ids `hidden` leave its views and its
    search, those `shown` come back; chunks go (`removed`) and come (`restored`). Not its `own` is what another thread,
    `of`, has quarantined: this thread holds copies or facts of it. `reach` are the threads that facts went to. `seen`
    is the seq of the state that all this was read from: the event is refused after any other (0: not checked).
    """

    source: Name
    hidden: tuple[Id, ...] = ()
    shown: tuple[Id, ...] = ()
    restored: tuple[RestoredChunk, ...] = ()
    removed: tuple[ChunkId, ...] = ()
    reach: tuple[RewindReach, ...] = ()
    ends: bool = False
    own: bool = True
    of: Id = ""
    by: str = ""
    reason: str = ""
    seen: SeenSeq = 0

    bodies_in_order: ClassVar[bool] = True

    def bodies(self) -> tuple[Body, ...]:
        """One body for each chunk that comes back."""
        return restored_bodies(self.restored)

    def in_few_words(self) -> str:
        """The source, and why."""
        return f"{'released ' if self.ends else ''}{self.source}{f': {self.reason}' if self.reason else ''}"

    def deliveries(self) -> tuple[Delivery, ...]:
        """The same, for the threads that facts of these events went to."""
        return tuple(
            Delivery(
                one.destination,
                SourceQuarantined(
                    source=self.source,
                    hidden=one.hidden,
                    shown=one.shown,
                    ends=self.ends,
                    own=False,
                    of=self.of,
                    by=self.by,
                    reason=self.reason,
                ),
            )
            for one in self.reach
        )


def restored_bodies(restored: tuple[RestoredChunk, ...]) -> tuple[Body, ...]:
    """The bodies that chunks share with an event that brings them along."""
    return tuple(
        Body(
            content=one.content,
            calls=one.calls,
            lines=one.lines,
            call_id=one.call_id,
            label=one.label,
            native=one.native,
        )
        for one in restored
    )


STEPS = frozenset(
    cls.event_type
    for cls in (
        CompactionStarted,
        CompactionCompleted,
        CompactionFailed,
        CompactionAbandoned,
        CompactorStoodIn,
        CompactionUndone,
    )
)
"""The events that record a compaction, who made it, its end or its undoing."""
RESTORING = frozenset({CompactionUndone.event_type, ThreadRewound.event_type, SourceQuarantined.event_type})
"""The types of events that put back chunks, each with the id that it had as the first of its parents."""


@event("event_skipped", role="system", chunks="none")
class EventSkipped(Event):
    """The place of an event of the original log that a rerun leaves out: its seq stays taken, and nothing comes of it.

    So the chunk ids of all later events do not change. `skipped_type` and `skipped_id` are the event's.
    """

    skipped_type: Id
    skipped_id: Id
    reason: str = ""
