"""The compactions of a log, and the fates of their summaries and of the chunks that they took.

Originals of summaries are read in their original order.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec
from msgspec.structs import replace

from memory_engine.core.aside import aside
from memory_engine.core.chain import decode_record, decode_row
from memory_engine.core.chunks import REDACTED, Chunk, ChunkType
from memory_engine.core.clock import to_datetime
from memory_engine.core.events.compaction import (
    RESTORING,
    STEPS,
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    CompactionUndone,
)
from memory_engine.core.events.memory import MemoryForget, SessionEnded
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.forgetting import Forgettings, Targets
from memory_engine.core.json_form import JsonForm
from memory_engine.core.lineage import Fate, Successors, covered, may_take, opened
from memory_engine.core.operations import BatchReplace, Operation, flattened
from memory_engine.core.records import StoredEvent
from memory_engine.core.state import State
from memory_engine.store.reader import LogReader
from memory_engine.store.rewinds import shown_at

_TELLING = (MemoryForget.event_type, *RESTORING)
"""Events that are decoded as a whole, not only their operations."""

Status = Literal["live", "covered", "undone", "gone", "running", "failed", "abandoned"]
_WHY = {"auto": "a threshold was passed", "hard": "a context was over the hard limit", "manual": "it was asked for"}


class Replaced(msgspec.Struct, frozen=True):
    """Chunks that a compaction took, and the summaries that replaced them (empty for dropped chunks)."""

    covers: tuple[str, ...]
    summaries: tuple[str, ...]


class Compaction(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """A compaction or an unsuccessful attempt. `started` and `seq` are the seqs of its start and its end (0: none).

    `trigger` is `auto`, `hard` or `manual`; `why` describes it in words. `chunks` is the number of chunks that it took
    or was to take. `focus` is what its caller asked the summary to cover in most detail.

    The `status` of a completed compaction is `live` (its summaries are in the state), `covered` (a later compaction
    took them), `undone`, or `gone` (they were forgotten, or removed with their container). `by` is the seq of the event
    that caused this status, 0 while it is live. `summaries` are the current ids of its summaries: forgetting creates a
    new version of a summary.

    The `status` of any other is `running`, `failed` or `abandoned`, with the recorded `reason` and `error`. It replaced
    nothing, so its token counts are 0.
    """

    json_names = (
        "compaction_id started seq recorded_at trigger why compactor model chunks covered dropped summaries "
        "tokens_before tokens_after status by reason error focus"
    )

    compaction_id: str
    started: int = 0
    seq: int = 0
    recorded_at: datetime
    trigger: str = ""
    compactor: str = ""
    model: str = ""
    chunks: int = 0
    replaced: tuple[Replaced, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    status: Status = "live"
    by: int = 0
    summaries: tuple[str, ...] = ()
    reason: str = ""
    error: str = ""
    focus: str = ""

    @property
    def why(self) -> str:
        """Why it was started, in words."""
        return _WHY.get(self.trigger, "")

    @property
    def is_completed(self) -> bool:
        """Whether it replaced chunks, regardless of what happened to its summaries since."""
        return self.status not in ("running", "failed", "abandoned")

    @property
    def covered(self) -> tuple[str, ...]:
        """Ids of the chunks that its summaries replaced."""
        return tuple(chunk_id for one in self.replaced if one.summaries for chunk_id in one.covers)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Ids of the chunks that were dropped without a summary."""
        return tuple(chunk_id for one in self.replaced if not one.summaries for chunk_id in one.covers)


class Steps(msgspec.Struct):
    """Compactions as far as the events of the protocol describe them, without the fates of their summaries.

    `finished` are completed compactions in order; `tries` are the others by id. `undone` maps the seq of a result to
    the seq of the event that undid it, and `restored` maps it to the chunks that this event restored.
    """

    finished: list[Compaction] = msgspec.field(default_factory=list)
    tries: dict[str, Compaction] = msgspec.field(default_factory=dict)
    undone: dict[int, int] = msgspec.field(default_factory=dict)
    restored: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)

    def copied(self) -> "Steps":
        """Return a copy that can be extended."""
        return Steps(list(self.finished), dict(self.tries), dict(self.undone), dict(self.restored))

    def step(self, thread_id: str, stored: StoredEvent, registry: EventRegistry) -> None:
        """Apply an event. Raises `IntegrityError` if it cannot be read."""
        event, reduction = decode_row(thread_id, stored, registry)
        at = to_datetime(stored.recorded_at_us)
        match event:
            case CompactionStarted():
                self.tries[event.compaction_id] = Compaction(
                    compaction_id=event.compaction_id,
                    started=stored.seq,
                    recorded_at=at,
                    trigger=event.trigger,
                    compactor=event.compactor,
                    chunks=len(event.chunk_ids),
                    status="running",
                    focus=event.focus,
                )
            case CompactionFailed():
                known = self._known(event.compaction_id, stored.seq, at)
                self.tries[event.compaction_id] = replace(
                    known, status="failed", compactor=event.compactor, reason=event.reason, error=event.error
                )
            case CompactionAbandoned():
                known = self._known(event.compaction_id, stored.seq, at)
                self.tries[event.compaction_id] = replace(known, status="abandoned", reason=event.reason)
            case CompactionCompleted():
                known = self._known(event.compaction_id, stored.seq, at)
                self.tries.pop(event.compaction_id, None)
                self.finished.append(_finished(known, event, reduction.operations))
            case CompactionUndone():
                self.undone[event.completed] = stored.seq
                self.restored[event.completed] = tuple(chunk.id for chunk in reduction.chunks)

    def _known(self, compaction_id: str, seq: int, at: datetime) -> Compaction:
        """Return what is known of a compaction that ends."""
        known = self.tries.get(compaction_id) or Compaction(compaction_id=compaction_id, recorded_at=at)
        return replace(known, seq=seq, recorded_at=at)

    def in_order(self, finished: Iterable[Compaction], open_at: int | None = None) -> list[Compaction]:
        """Return the finished compactions and the attempts, in the order in which they started.

        `open_at` is the seq at which the running compaction started (0: none runs). Any other compaction without an end
        counts as abandoned.
        """
        tries = (
            replace(one, status="abandoned", reason="it did not end")
            if one.status == "running" and open_at not in (None, one.started)
            else one
            for one in self.tries.values()
        )
        return sorted((*finished, *tries), key=lambda one: one.started or one.seq)


class Aftermath(msgspec.Struct, frozen=True):
    """Fates of chunks after an event, up to the state at the head."""

    state: State
    forgettings: Forgettings
    sessions_ended: bool
    _successors: Successors

    def fate(self, chunk_id: str) -> Fate:
        """Return the fate of a chunk: live as itself, as a later version or restored; else the event that took it."""
        return self._successors.fate(chunk_id, self.state.get)

    def standing(self, chunk_id: str) -> str:
        """Return the id that represents a chunk in the state: its own or a summary's, at any depth; `""` if none."""
        return self._successors.standing(chunk_id, self.state.get)


async def read_steps(reader: LogReader, thread_id: str, upto: int, known: Steps | None = None, after: int = 0) -> Steps:
    """Read the compactions of a log, without fates: those `known` up to `after`, and those that came since.

    Those that a rewind took back are among them.
    """
    steps = Steps() if known is None else known.copied()
    async for stored in reader.walk(thread_id, after=after, upto=upto, types=STEPS):
        steps.step(thread_id, stored, reader.registry)
    return steps


async def shown_steps(reader: LogReader, thread_id: str, upto: int, after: int = 0) -> Steps:
    """Read the compactions of a log after a seq that are shown at its end."""
    shown, steps = await shown_at(reader, thread_id, upto), Steps()
    async for stored in reader.walk(thread_id, after=after, upto=upto, types=STEPS):
        if shown.shows(stored):
            steps.step(thread_id, stored, reader.registry)
    return steps


def _finished(known: Compaction, event: CompactionCompleted, operations: Iterable[Operation]) -> Compaction:
    replaced = tuple(Replaced(o.chunks, o.by) for o in flattened(operations) if isinstance(o, BatchReplace))
    return replace(
        known,
        trigger=event.trigger,
        compactor=event.compactor,
        model=event.model,
        replaced=replaced,
        chunks=sum(len(one.covers) for one in replaced),
        tokens_before=event.tokens_before,
        tokens_after=event.tokens_after,
        status="live",
        summaries=tuple(summary for one in replaced for summary in one.summaries),
    )


async def read_aftermath(reader: LogReader, thread_id: str, state: State, *, after: int) -> Aftermath:
    """Read the fates, up to the given state, of the chunks in the state after the event at `after`."""
    successors = Successors()
    forgettings: list[tuple[int, Targets]] = []
    ended = False
    async for stored in reader.walk(thread_id, after=after, upto=state.seq):
        ended = ended or stored.type == SessionEnded.event_type
        if may_take(stored.record):
            successors.note(stored.seq, decode_record(thread_id, stored).operations)
        if stored.type in _TELLING:
            event, reduction = decode_row(thread_id, stored, reader.registry)
            if isinstance(event, MemoryForget):
                forgettings.append((stored.seq, Targets(event)))
            if stored.type in RESTORING:
                made = ((chunk.parent_ids[0], chunk.id) for chunk in reduction.chunks if chunk.parent_ids)
                successors.note_restored(stored.seq, made)
    return Aftermath(state, Forgettings(forgettings), ended, successors)


async def read_compactions(reader: LogReader, thread_id: str, state: State, open_at: int | None) -> list[Compaction]:
    """Read the compactions up to a state, completed or not, in order, with their fates. See `Steps.in_order`."""
    steps = await shown_steps(reader, thread_id, state.seq)
    finished: Sequence[Compaction] = steps.finished
    if finished:
        aftermath = await read_aftermath(reader, thread_id, state, after=finished[0].seq)
        finished = [with_fate(compaction, steps, aftermath) for compaction in finished]
    return steps.in_order(finished, open_at)


def with_fate(compaction: Compaction, steps: Steps, aftermath: Aftermath) -> Compaction:
    """Return a compaction with its fate."""
    fates = [aftermath.fate(summary) for one in compaction.replaced for summary in one.summaries]
    live = tuple(fate.chunk_id for fate in fates if fate.status == "live")
    undone_by = steps.undone.get(compaction.seq)
    if undone_by is not None:
        return replace(compaction, status="undone", by=undone_by, summaries=())
    for fate in fates:
        if fate.status == "covered":
            return replace(compaction, status="covered", by=fate.seq, summaries=live)
    if fates and not live:
        return replace(compaction, status="gone", by=max(fate.seq for fate in fates), summaries=())
    return replace(compaction, status="live", summaries=live)


async def summary_root(reader: LogReader, thread_id: str, chunk_id: str) -> str:
    """Return the id that a compaction gave a summary, from the id of any later version; `""` for any other chunk."""

    def earlier(chunk: Chunk, kind: str) -> tuple[str, ...]:
        return () if kind == CompactionCompleted.event_type else covered(chunk)[:1]

    levels = reader.levels(thread_id, [chunk_id], earlier, strict=False)
    found = [chunk async for level in levels for chunk in level.values()]
    return found[-1].id if found and covered(found[-1]) else ""


class LogOriginals(msgspec.Struct, frozen=True):
    """The log of one thread as a compaction reads it (see `protocol.Originals`)."""

    reader: LogReader
    thread_id: str

    async def covered_by(self, summary: Chunk, tokens_max: int) -> Sequence[Chunk] | None:
        """Return the originals, in order, resolved through summaries of summaries.

        Return `None` if they take more than `tokens_max`, or if some of them were forgotten.
        """
        known: dict[str, Chunk] = {}
        tokens = 0
        if summary.status == REDACTED:
            return None
        async for level in self.reader.levels(self.thread_id, summary.parent_ids, lambda chunk, _type: covered(chunk)):
            known |= level
            tokens += sum(chunk.tokens for chunk in level.values() if chunk.type != ChunkType.COMPACTED)
            if tokens > tokens_max or any(_is_redacted(chunk) for chunk in level.values()):
                return None
        return list(opened(summary.parent_ids, known))

    async def afresh(self, chunk_ids: Sequence[str], forgettings: Forgettings) -> list[Chunk]:
        """Return the originals of these chunks, without a size limit and without forgotten chunks."""
        known = await self.reader.inside(self.thread_id, chunk_ids)
        whole = (forgettings.kept(chunk, since=chunk.seq) for chunk in opened(chunk_ids, known))
        return [chunk for chunk in whole if chunk is not None]

    async def times(self, chunks: Sequence[Chunk]) -> Mapping[str, str]:
        """Return the ISO times of the events behind chunks: when the event happened, else when it was recorded.

        A chunk that was restored by an undo has the time of its original.
        """
        first = await self.reader.as_first(self.thread_id, chunks)
        rows = await self.reader.rows_at(self.thread_id, {chunk.seq for chunk in first.values()})
        return await aside(
            lambda: {chunk_id: _event_time(rows[chunk.seq]) for chunk_id, chunk in first.items()}, items=len(first)
        )


def _event_time(row: StoredEvent) -> str:
    return to_datetime(row.occurred_at_us if row.occurred_at_us is not None else row.recorded_at_us).isoformat()


def _is_redacted(chunk: Chunk) -> bool:
    return chunk.type == ChunkType.COMPACTED and chunk.status == REDACTED
