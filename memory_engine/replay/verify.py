"""Verify: replay recomputes every hash and every operation, and names the first divergence.

That is the first place where a log, its reducers and the rows derived from it disagree.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from memory_engine.core.aside import aside
from memory_engine.core.chain import MOVES_STATUS, decode_row, is_redacted, link_hash, next_head, stand_in_digest
from memory_engine.core.codec import decode_reduction, encode_reduction, resolve_chunks
from memory_engine.core.events.base import Event
from memory_engine.core.events.compaction import MendedEvent, ThreadRereduced
from memory_engine.core.events.context import ContextAsked
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.executor import apply_to_draft
from memory_engine.core.records import StoredEvent
from memory_engine.core.reduction import (
    NOTHING,
    ReduceContext,
    ReducerRegistry,
    Reduction,
    run_reducer,
)
from memory_engine.core.rewinding import Rewinds
from memory_engine.core.state import State, StateDraft, Tally
from memory_engine.core.threads import ARCHIVED, DamagedRecord, Head, LiveChunk, LoadedThread, check_record
from memory_engine.errors import (
    EventDecodeError,
    IntegrityError,
    InvalidIdentifier,
    InvalidOperation,
    MemoryEngineError,
    StorageRefused,
)
from memory_engine.projections.base import Projection, event_types
from memory_engine.projections.inline import last_of
from memory_engine.projections.rebuild import Refolding
from memory_engine.replay.differences import (
    KeptSnapshots,
    PassagesCheck,
    arrow,
    fields_differ,
    limited,
    marks_differ,
    places_differ,
    records_differ,
    reducers_behind,
    rows_differ,
)
from memory_engine.replay.divergence import Divergence, LackingContext, VerifyReport
from memory_engine.replay.mendings import mendings, record_digest
from memory_engine.runtime.kernel import Kernel
from memory_engine.store import rewinds
from memory_engine.store.attested import Attested, Imported, acts_in, attested_of, imported_of
from memory_engine.store.passages import Extractors
from memory_engine.store.protocol import Store
from memory_engine.store.reader import UNVOUCHED, LogReader
from memory_engine.store.snapshots import is_rewindable, rewound_at

VerifyProgress = Callable[[int], None]
"""Called now and then with the number of events done."""
_RECORD_CHARS = 300
_FEWER = "fewer operations than recorded: a plug-in with a reducer for it may not be loaded (--plugins, plugins=[...])"
NO_TALLY = Tally()


class _ThreadReplay(msgspec.Struct):
    """One thread, replayed as far as `draft.seq`."""

    loaded: LoadedThread
    refolding: Refolding
    snapshots: KeptSnapshots
    passages: PassagesCheck | None = None
    draft: StateDraft = msgspec.field(default_factory=lambda: State().draft())
    previous: bytes = b""
    marks: dict[str, int] = {}
    derived: Head = Head()
    redacted: int = 0
    unattested: int = 0
    mended: dict[int, MendedEvent] = {}
    attested: Attested = Attested()
    imported: Imported = Imported()
    lacking: list[LackingContext] = []
    event: Event | None = None  # of the row that was checked last, where it had to be decoded

    @property
    def thread_id(self) -> str:
        return self.loaded.record.id

    @property
    def head(self) -> Head:
        return self.loaded.head

    @property
    def own_after(self) -> int:
        """The seq after which its own events begin: a fork takes over neither a pause nor a compaction under way."""
        origin = self.loaded.record.forked_from
        return origin.seq if origin is not None else 0

    def report(self, found: Divergence | None) -> VerifyReport:
        return VerifyReport(
            thread_id=self.thread_id,
            events=self.draft.seq,
            head_seq=self.head.seq,
            head_hash=self.head.hash.hex(),
            divergence=found,
            redacted=self.redacted,
            unattested=self.unattested,
            lacking=tuple(self.lacking),
        )

    def let_go(self) -> None:
        """Drop what was read and made, in pieces: work for another thread."""
        self.draft.let_go()
        self.loaded.let_go()

    def diverged(self, kind: str, *, reducer: str = "", found: str = "", lines: Sequence[str] = ()) -> Divergence:
        """At the head: something derived from the log."""
        return Divergence(
            thread_id=self.thread_id,
            seq=self.head.seq,
            kind=kind,
            reducer=reducer,
            found=found,
            difference=tuple(lines),
        )


def counted_from(progress: VerifyProgress, done: int) -> VerifyProgress:
    """A progress callback that continues the count after other threads."""
    return lambda count: progress(done + count)


class Verifier:
    """Verifies threads of one store with one engine's reducers."""

    def __init__(
        self,
        store: Store,
        reader: LogReader,
        reducers: ReducerRegistry,
        projections: tuple[Projection[object], ...] = (),
        extractors: Extractors | None = None,
    ) -> None:
        self._store = store
        self._reader = reader
        self._events = reader.registry
        self._reducers = reducers
        self._projections = projections
        self._extractors = extractors

    @classmethod
    def of(cls, kernel: Kernel) -> "Verifier":
        """The verifier of an engine's threads."""
        return cls(kernel.store, kernel.reader, kernel.reducers, kernel.projections, kernel.extractors)

    async def verify(self, thread_id: str, progress: VerifyProgress | None = None) -> VerifyReport:
        """Check a thread: contiguity, hash links, operations and snapshots, then head, live rows, views and index.

        A log that cannot be read to its end diverges where it stops. Raises `ThreadNotFound`. Writes nothing.

        What differs may do so because others erased or deleted while this read: then it is read again.
        """
        while True:
            acts = await acts_in(self._store, thread_id)
            report = await self._verified(thread_id, progress)
            if report.ok or acts == await acts_in(self._store, thread_id):
                return report

    async def _verified(self, thread_id: str, progress: VerifyProgress | None) -> VerifyReport:
        try:
            loaded = await self._store.load(thread_id, sources=False)
        except IntegrityError as error:
            gap = Divergence(thread_id=thread_id, seq=error.seq, kind="gap", found=error.why)
            return VerifyReport(
                thread_id=thread_id, events=max(0, error.seq - 1), head_seq=0, head_hash="", divergence=gap
            )
        replay = _ThreadReplay(
            loaded,
            Refolding(self._projections, self._reader, thread_id),
            await KeptSnapshots.of(self._store, thread_id, self._projections),
        )
        known = Rewinds()
        with suppress(IntegrityError):  # the replay finds it, and says more
            known = await rewinds.rewinds_of(self._reader, thread_id, loaded.head)
        replay.refolding.show(known, loaded.head.seq)
        refused = ""
        try:
            if self._extractors is not None and loaded.indexed:
                replay.passages = await PassagesCheck.of(self._store.passages, self._extractors, loaded, known)
        except StorageRefused as error:
            refused = error.why
        if loaded.head.marks.get(ThreadRereduced.event_type):
            mended = await mendings(self._reader, thread_id, loaded.head.seq)
            replay.mended = {one.seq: one for _, event in mended for one in event.mended}
        replay.attested = await attested_of(self._store, self._events, thread_id)
        replay.imported = await imported_of(self._store, thread_id)
        try:
            found = await self._run(replay, progress)
        except IntegrityError as error:
            return replay.report(Divergence(thread_id=thread_id, seq=error.seq, kind="gap", found=error.why))
        if found is not None and found.kind == "unloaded":
            return await self._unloaded(replay, found)
        found = (
            found
            or _check_record(replay)
            or await aside(partial(_check_head, replay), items=replay.draft.tally.chunks)
            or await self._check_rows(replay)
        )
        if found is None and replay.passages is not None:
            try:
                lines = await replay.passages.differences(self._store.passages)
                found = replay.diverged("search", lines=lines) if lines else None
            except StorageRefused as error:
                refused = error.why
        if found is None and refused:
            found = replay.diverged("search", found=f"it cannot be read: {refused}")
        if found is None:
            for kind, faults in (await self._store.faults(thread_id)).items():
                found = found or replay.diverged(kind, lines=limited(faults))
        report = replay.report(found)
        await aside(replay.let_go, items=replay.draft.tally.chunks)
        return report

    async def _unloaded(self, replay: _ThreadReplay, found: Divergence) -> VerifyReport:
        """The report of a log that stops at an event of a plug-in that is not loaded: all such types, at once."""
        types = {found.event_type}
        with suppress(IntegrityError):
            async for stored in self._reader.walk(replay.thread_id, after=found.seq, upto=replay.head.seq, raw=True):
                types.update(() if self._events.has_type(stored.type) else (stored.type,))
        report = msgspec.structs.replace(replay.report(found), unloaded_types=tuple(sorted(types)))
        return msgspec.structs.replace(report, divergence=msgspec.structs.replace(found, found=str(report.unloaded)))

    async def _run(self, replay: _ThreadReplay, progress: VerifyProgress | None) -> Divergence | None:
        """Replay the log to its head, or to the first divergence."""
        return await self._reader.walk(replay.thread_id, upto=replay.head.seq, raw=True).feed(
            partial(self._check, replay),
            lambda stored: _derive(replay, stored, self._reader),
            partial(self._follow, replay),
            # a forgetting asks all that changed since the draft was made
            items=lambda page: len(page) + replay.draft.tally.chunks,
            progress=progress,
        )

    def _follow(self, replay: _ThreadReplay, stored: StoredEvent) -> None:
        """Note what a row that is as it should be says of the thread's head."""
        replay.previous = stored.hash
        if stored.type in MOVES_STATUS and stored.seq > replay.own_after:
            replay.derived = next_head(replay.derived, stored, NO_TALLY, tracked=False)
        if self._events.tracks(stored.type):
            replay.marks[stored.type] = stored.seq

    def _check(self, replay: _ThreadReplay, stored: StoredEvent) -> Divergence | None:
        """One row: its place, its hash, and the operations that its reducers give now."""
        thread_id, seq, replay.event = replay.thread_id, replay.draft.seq + 1, None
        if stored.seq != seq:
            return Divergence(thread_id=thread_id, seq=seq, kind="gap", found=f"seq {stored.seq} stands there")
        digest = link_hash(stored, replay.previous)
        if digest != stored.hash:
            return _divergence_at(thread_id, stored, "hash", expected=stored.hash.hex(), found=digest.hex())
        if is_redacted(stored):
            if not replay.attested.vouches(stored, replay.imported):
                return _divergence_at(thread_id, stored, "redaction", found=UNVOUCHED)
            replay.unattested += replay.attested.digest(seq) != stand_in_digest(stored)
            return _as_recorded(replay, stored, self._events)
        try:
            event = self._events.decode(stored.type, stored.version, stored.payload)
        except EventDecodeError as error:
            return _divergence_at(thread_id, stored, "undecodable", found=str(error))
        if not isinstance(event, Event):
            if not self._events.has_type(stored.type):
                return _divergence_at(thread_id, stored, "unloaded")
            why = f"version {stored.version} of {stored.type} is not known here: another release wrote it"
            return _divergence_at(thread_id, stored, "undecodable", found=why)
        replay.event = event
        if isinstance(event, ContextAsked) and event.lacks:
            replay.lacking.append(_lacking(thread_id, seq, event))
        before = replay.draft.freeze(seq - 1) if seq in replay.mended else None
        draft = replay.draft = before.draft() if before is not None else replay.draft
        entries = self._reducers.of_type(stored.type)
        context = ReduceContext(seq, stored.id, stored.recorded_at_us)
        try:
            parts = [run_reducer(draft, entry, event, context, thread_id) for entry in entries]
        except MemoryEngineError as error:
            return _divergence_at(thread_id, stored, "reducer", reducer=getattr(error, "reducer", ""), found=str(error))
        draft.seq = seq
        record = encode_reduction(_joined_reductions(parts), event)
        if record == stored.record:
            return None
        if before is not None and replay.mended[seq] == MendedEvent(
            seq, record_digest(stored.record), record_digest(record)
        ):
            replay.draft = before.draft()
            return _as_recorded(replay, stored, self._events)
        named = [(entry.name, part) for entry, part in zip(entries, parts, strict=True)]
        return _operations(thread_id, stored, record, event, named)

    async def _check_rows(self, replay: _ThreadReplay) -> Divergence | None:
        for projection in self._projections:
            name = projection.name
            checkpoint, stored = await self._store.rows(name, projection.version, replay.thread_id)
            types = event_types(projection)
            needed = replay.head.seq if types is None else last_of(replay.head, types)
            if is_rewindable(name):
                needed = max(needed, rewound_at(replay.head))
            if not needed <= checkpoint <= replay.head.seq:
                continue  # they are brought up to date at the next read; or another process has written since
            made = replay.refolding.rows[name].encoded()
            if dict(stored) != made:
                return replay.diverged("projection", reducer=name, lines=rows_differ(name, stored, made))
        return None


def _lacking(thread_id: str, seq: int, event: ContextAsked) -> LackingContext:
    return LackingContext(
        thread_id=thread_id,
        seq=seq,
        upto=event.upto,
        max_tokens=event.max_tokens,
        lacks=event.lacks,
        unsaid=event.unsaid,
    )


def _as_recorded(replay: _ThreadReplay, stored: StoredEvent, registry: EventRegistry) -> Divergence | None:
    """A row whose recorded operations count, whatever its reducers give: a redacted one, or one that was mended."""
    try:
        _, reduction = decode_row(replay.thread_id, stored, registry)
        apply_to_draft(replay.draft, reduction.operations, reduction.chunks, seq=stored.seq)
    except IntegrityError as error:
        return _divergence_at(replay.thread_id, stored, "undecodable", found=error.why)
    except InvalidOperation as error:
        return _divergence_at(replay.thread_id, stored, "operations", found=str(error))
    replay.redacted += is_redacted(stored)
    return None


def _joined_reductions(parts: Sequence[Reduction]) -> Reduction:
    if len(parts) == 1:
        return parts[0]
    whole = NOTHING
    for part in parts:
        whole = Reduction(whole.operations + part.operations, whole.chunks + part.chunks)
    return whole


def _derive(replay: _ThreadReplay, stored: StoredEvent, reader: LogReader) -> Divergence | None:
    """Check the rows derived from an event: of views, passages, and the snapshots that were taken after it."""
    try:
        replay.refolding.apply(stored)
        if replay.passages is not None:
            replay.passages.apply(stored, reader, replay.event)
    except MemoryEngineError as error:
        kind = "projection" if replay.refolding.failed else "search"
        return _divergence_at(replay.thread_id, stored, kind, reducer=replay.refolding.failed, found=str(error))
    lines = replay.snapshots.differences(stored, replay.draft, replay.refolding)
    return _divergence_at(replay.thread_id, stored, "snapshot", lines=lines) if lines else None


def _check_record(replay: _ThreadReplay) -> Divergence | None:
    """The facts of the thread's creation, which no hash binds: they can be read, and be those of a thread."""
    record = replay.loaded.record
    if isinstance(record, DamagedRecord):
        return replay.diverged("record", lines=record.unreadable)
    try:
        check_record(record)
    except InvalidIdentifier as error:
        return replay.diverged("thread", found=str(error))
    return None


def _check_head(replay: _ThreadReplay) -> Divergence | None:
    """The head's hash, counters and marks, and the live rows, against what the log gives."""
    head, draft = replay.head, replay.draft
    if head.unreadable:
        return replay.diverged("head", found=f"its marks cannot be read: {head.unreadable}")
    if draft.seq != head.seq:
        why = f"the log ends, the head is {head.seq}"
        return Divergence(thread_id=replay.thread_id, seq=draft.seq + 1, kind="gap", found=why)
    if head.seq and head.hash != replay.previous:
        return replay.diverged(
            "head", found="its hash", lines=[f"hash: {arrow(head.hash.hex(), replay.previous.hex())}"]
        )
    made = (LiveChunk(p.chunk.id, p.key, p.container) for p in draft.placed())
    if moved := places_differ(replay.loaded.live, made):
        return replay.diverged("state", lines=moved)
    kept = {"chunks": head.chunks, "tokens": head.tokens}
    given = {"chunks": draft.tally.chunks, "tokens": draft.tally.tokens}
    if kept != given:
        return replay.diverged("head", found="its counters", lines=list(fields_differ("the head's", kept, given)))
    status = ARCHIVED if head.status == ARCHIVED else replay.derived.status
    begun = replay.derived.open_compaction
    if begun in replay.imported and not head.open_compaction:
        begun = 0  # where the log came from
    lines = [
        f"the head's {name}: {arrow(str(kept), str(given))}"
        for name, kept, given in (
            ("status", head.status, status),
            ("open_compaction", head.open_compaction, begun),
        )
        if kept != given
    ]
    if lines:
        return replay.diverged("head", found="its status", lines=lines)
    low = marks_differ(head.marks, replay.marks)  # that would hide that a view is behind
    if low:
        return replay.diverged("head", found="its marks", lines=low)
    return replay.diverged("head", found=head.damaged) if head.damaged else None


def _operations(
    thread_id: str, stored: StoredEvent, record: bytes, event: Event, parts: Sequence[tuple[str, Reduction]]
) -> Divergence:
    """The divergence where the reducers do not do what was recorded."""
    lines = tuple(records_differ(stored.record, record, event))
    names = tuple(name for name, _ in parts)
    try:
        recorded = decode_reduction(stored.record)
        whole = Reduction(recorded.operations, resolve_chunks(recorded, event))
    except (ValueError, IndexError):  # the record cannot be read: `lines` says so, and any of them may be it
        pass
    else:
        names = reducers_behind(parts, whole) if len(parts) > 1 else names
        if len(whole.operations) > sum(len(part.operations) for _, part in parts):
            lines += (_FEWER,)
    return _divergence_at(
        thread_id,
        stored,
        "operations",
        reducer=", ".join(names),
        expected=_record_excerpt(stored.record),
        found=_record_excerpt(record),
        lines=lines,
    )


def _divergence_at(  # noqa: PLR0913 - what a divergence says, by keyword
    thread_id: str,
    stored: StoredEvent,
    kind: str,
    *,
    reducer: str = "",
    expected: str = "",
    found: str = "",
    lines: Sequence[str] = (),
) -> Divergence:
    return Divergence(
        thread_id=thread_id,
        seq=stored.seq,
        kind=kind,
        event_id=stored.id,
        event_type=stored.type,
        reducer=reducer,
        expected=expected,
        found=found,
        difference=tuple(lines),
    )


def _record_excerpt(record: bytes) -> str:
    text = record.decode("utf-8", "replace")
    return text if len(text) <= _RECORD_CHARS else text[: _RECORD_CHARS - 3] + "..."
