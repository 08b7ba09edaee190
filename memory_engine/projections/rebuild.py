"""Rebuilds everything derived from a log, and swaps it in by one commit. No reducer runs.

Projections are folded again in one pass over the log: for rebuilding, verifying, and views of the past.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from attrs import define, field

from memory_engine.core.aside import aside
from memory_engine.core.chain import apply_rows, decode_event, live_chunk
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import StoredEvent
from memory_engine.core.rewinding import ALL_SHOWN, Rewinds
from memory_engine.core.state import State, StateDraft
from memory_engine.core.threads import Head, LiveChunk
from memory_engine.errors import MemoryEngineError
from memory_engine.projections.base import Projection, Rows, apply_one, event_types
from memory_engine.projections.inline import InlinePlan, last_of
from memory_engine.store import rewinds, snapshots
from memory_engine.store.passages import Extractors, PassageChange, PassageStep, passage_step
from memory_engine.store.protocol import CommitUnit, ProjectionChange, Store
from memory_engine.store.reader import PAGE, LogReader, unlinked
from memory_engine.store.snapshots import ROWS_SHARE, WINDOW, is_rewindable

V = TypeVar("V")


class Refolding:
    """The rows of projections while the events of a log are read, those that are `shown` at its end."""

    def __init__(self, projections: Sequence[Projection[object]], reader: LogReader, thread_id: str) -> None:
        self._plan = InlinePlan(projections)
        self._beside = tuple(p for p in projections if p.mode != "inline" and event_types(p) is None)
        self._reader = reader
        self._thread_id = thread_id
        self.rewinds, self.shown = Rewinds(), ALL_SHOWN
        self.rows: Mapping[str, Rows[object]] = {p.name: Rows(p.row, {}) for p in projections}
        self.failed = ""

    def show(self, known: Rewinds, seq: int) -> None:
        """Fold what is shown after the event at a seq, by the rewinds of the log."""
        self.rewinds, self.shown = known, known.at(seq)

    def is_of(self, seq: int) -> bool:
        """Whether the rows after the event at `seq` are those that were made then: no later rewind reaches back."""
        return self.rewinds.at(seq).upto(seq) == self.shown.upto(seq)

    def apply(self, stored: StoredEvent) -> None:
        """Apply one event; it is decoded only if a projection reads it.

        Raises `ReducerError` where a projection fails; `failed` then names it.
        """
        concerned = self._beside + self._plan.concerned.get(stored.type, self._plan.always)
        if not concerned:
            return
        if not self.shown.shows(stored):
            concerned = tuple(one for one in concerned if not is_rewindable(one.name))
        event = self._reader.decode(self._thread_id, stored)
        for projection in concerned:
            rows = self.rows[projection.name]
            try:
                apply_one(projection, rows, event)
            except MemoryEngineError:
                self.failed = projection.name
                raise
            rows.keep()


async def rows_at(projection: Projection[V], reader: LogReader, thread_id: str, seq: int) -> Rows[V]:
    """The rows of a projection after the event at `seq`, from the log alone.

    It reads only the projection's events, starting from the nearest snapshot, and keeps a snapshot of a long fold.
    """
    types, head = event_types(projection), await reader.head(thread_id)
    known = await rewinds.rewinds_of(reader, thread_id, head) if is_rewindable(projection.name) else Rewinds()
    shown = known.at(seq)
    if types is not None:
        seq = min(seq, last_of(head, types))
    view = f"{projection.name}/{projection.version}"
    kept_at, stored = await reader.snapshots.nearest_rows(thread_id, view, seq)
    while kept_at and known.at(kept_at).upto(kept_at) != shown.upto(kept_at):  # of what was taken back since
        kept_at, stored = await reader.snapshots.nearest_rows(thread_id, view, kept_at - 1)
    rows = Rows(projection.row, stored)
    after = kept_at

    def fold(stored: StoredEvent) -> None:
        if shown.shows(stored):
            apply_one(projection, rows, reader.decode(thread_id, stored))
            rows.keep()

    while after < seq:
        upto = min(seq, after + WINDOW)
        await reader.walk(thread_id, after=after, upto=upto, types=types).feed(fold)
        after = upto
        fits = known.at(upto).upto(upto) == shown.upto(upto)
        if fits and upto - kept_at >= max(WINDOW, ROWS_SHARE * len(rows)):
            await reader.snapshots.keep_rows(thread_id, view, upto, rows.encoded())
            kept_at = upto
    return rows


async def shown_rows_at(projection: Projection[V], reader: LogReader, thread_id: str, seq: int) -> Rows[V]:
    """The same for readers: a view that reads forgettings has had those since too."""
    rows = await rows_at(projection, reader, thread_id, seq)
    if MemoryForget.event_type in (event_types(projection) or ()):
        for event in (await reader.forgotten(thread_id)).events:
            if event.seq > seq:
                apply_one(projection, rows, event)
                rows.keep()
    return rows


class RebuildScope(msgspec.Struct, frozen=True, kw_only=True):
    """The parts to make again. `extractors` are for the index of passages."""

    projections: Sequence[Projection[object]]
    state: bool = True
    extractors: Extractors | None = None

    @property
    def types(self) -> frozenset[str] | None:
        """The types of the events that count; `None` for all."""
        if self.state or self.extractors is not None:
            return None
        of_each = [event_types(projection) for projection in self.projections]
        return None if None in of_each else frozenset().union(*(types for types in of_each if types is not None))


@define
class Remaking:
    """Everything that derives from a thread's log up to `seq`, made again in memory."""

    store: Store
    reader: LogReader
    thread_id: str
    wanted: RebuildScope
    seq: int = 0
    draft: StateDraft = field(factory=lambda: State().draft())
    seen: dict[str, int] = field(factory=dict)
    steps: list[PassageStep] = field(factory=list)
    refolding: Refolding = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.refolding = Refolding(self.wanted.projections, self.reader, self.thread_id)

    async def advance(self, upto: int, progress: Callable[[int], None] | None = None) -> None:
        """Read on. Raises `IntegrityError`, and `ReducerError` where a projection or an extractor fails."""
        known = await rewinds.read_rewinds(self.reader, self.thread_id, upto)  # not by marks: they may be wrong
        former = self.refolding.shown.upto(self.seq)
        self.refolding.show(known, upto)
        if self.refolding.shown.upto(self.seq) != former:  # a rewind came since
            self.refolding = Refolding(self.wanted.projections, self.reader, self.thread_id)
            self.refolding.show(known, upto)
            await self.reader.walk(self.thread_id, upto=self.seq, types=self.wanted.types).feed(self.refolding.apply)
        walk = self.reader.walk(self.thread_id, after=self.seq, upto=upto, types=self.wanted.types)
        await walk.feed(self._take, progress=progress)
        self.seq = upto

    def _take(self, stored: StoredEvent) -> None:
        if self.wanted.state:
            apply_rows(self.draft, (stored,), self.thread_id, None)
            stored = unlinked(stored)  # its hash has just been checked
        self.seen[stored.type] = stored.seq
        self.refolding.apply(stored)
        self._index(stored)

    def _index(self, stored: StoredEvent) -> None:
        if self.wanted.extractors is None:
            return
        event = decode_event(self.thread_id, stored, self.reader.registry)
        step = passage_step(self.wanted.extractors, self.thread_id, event, stored)
        if step is not None:
            self.steps.append(step)

    async def leave_index(self) -> None:
        """Keep the index of passages: it is right."""
        self.wanted = msgspec.structs.replace(self.wanted, extractors=None)
        await aside(self._drop_steps, items=len(self.steps))

    async def put(self, head: Head, steps: Sequence[PassageStep] | None = None) -> Head:
        """Replace the old rows in one commit, and correct the head's counters and marks.

        `steps` are those of the index, if they are not the log's (of one with rewinds).

        Only what differs is written: while it is, no other thread can commit.

        Raises `HeadMoved` if another has written to the thread since.
        """
        rebuilt, live = head, {}
        if self.wanted.state:
            tally, registry = self.draft.tally, self.reader.registry
            marks = {name: seq for name, seq in self.seen.items() if name in head.marks or registry.tracks(name)}
            rebuilt = msgspec.structs.replace(
                head, chunks=tally.chunks, tokens=tally.tokens, marks=marks, unreadable="", damaged=""
            )
            live = await self._live()
        unit = CommitUnit(
            thread_id=self.thread_id,
            expected=head,
            head=rebuilt,
            live=live,
            projections=[*[await self._rows(projection) for projection in self.wanted.projections], self._dropped()],
            passages=PassageChange(0, head.seq, self.steps if steps is None else steps, afresh=True)
            if self.wanted.extractors
            else None,
        )
        await self.store.commit(unit)
        return rebuilt

    def let_go(self) -> None:
        """Drop what was made, in pieces: work for another thread."""
        self.draft.let_go()
        self._drop_steps()

    def _drop_steps(self) -> None:
        while self.steps:
            del self.steps[-PAGE:]

    async def _live(self) -> dict[str, LiveChunk | None]:
        """The change that writes those rows of the state that are not so in the store, and drops all others."""
        stored = (await self.store.load(self.thread_id, sources=False)).live
        return await aside(partial(_rows_changed, stored, self.draft), items=len(stored) + self.draft.tally.chunks)

    async def _rows(self, projection: Projection[object]) -> ProjectionChange:
        _, former = await self.store.rows(projection.name, projection.version, self.thread_id)
        made = self.refolding.rows[projection.name]

        def change() -> dict[str, bytes | None]:
            rows = made.encoded()
            gone = {key: None for key in former if key not in rows}
            return {**gone, **{key: value for key, value in rows.items() if former.get(key) != value}}

        rows = await aside(change, items=len(former) + len(made))
        return ProjectionChange(projection.name, projection.version, rows, self.seq)

    def _dropped(self) -> ProjectionChange:
        """The change that drops snapshots: they are made again when they are needed."""
        names = frozenset(projection.name for projection in self.wanted.projections)
        return snapshots.dropped(self.seq, None if self.wanted.state else names)


def _rows_changed(stored: Sequence[LiveChunk], draft: StateDraft) -> dict[str, LiveChunk | None]:
    known = {row.chunk_id: row for row in stored}
    changed: dict[str, LiveChunk | None] = {}
    for placed in draft.placed():
        row = live_chunk(placed)
        if known.pop(placed.chunk.id, None) != row:
            changed[placed.chunk.id] = row
    changed.update(dict.fromkeys(known))
    return changed


async def rebuild_thread(
    store: Store,
    reader: LogReader,
    thread_id: str,
    projections: Sequence[Projection[object]] = (),
) -> Head:
    """Write the live rows and every given projection's rows again, in one pass over the log and one commit.

    Returns the head with its counters and marks corrected. Raises `HeadMoved` after a write
    to the thread meanwhile, `IntegrityError` if the recorded operations do not hold together.
    """
    head = await store.head(thread_id)
    remaking = Remaking(store, reader, thread_id, RebuildScope(projections=projections))
    await remaking.advance(head.seq)
    return await remaking.put(head)
