"""Verify: replay recomputes every hash and every operation, and names the first divergence."""

from collections.abc import Callable, Mapping

from attrs import frozen

from memory_engine.codec import encode_reduction
from memory_engine.errors import EventDecodeError, IntegrityError, MemoryEngineError
from memory_engine.events.base import Event
from memory_engine.events.registry import EventRegistry
from memory_engine.log import link_hash
from memory_engine.persistence import Head, LiveChunk, LoadedThread, Store
from memory_engine.projections.base import Projection, Rows, event_types
from memory_engine.projections.inline import last_of
from memory_engine.projections.refolding import Refolding
from memory_engine.reading import LogReader
from memory_engine.records import StoredEvent
from memory_engine.reducing import ReduceContext, ReducerRegistry, reduce_into
from memory_engine.state import State, StateDraft


@frozen(kw_only=True)
class Divergence:
    """The first place where the log, its reducers and what derives from it disagree.

    `kind`: `gap`, `hash`, `operations` (the reducers give others now), `reducer` (they
    raise), `undecodable`, `head`, `state` (live rows), or `projection`.
    """

    thread_id: str
    seq: int
    kind: str
    event_type: str = ""
    reducer: str = ""
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        at = (
            f" ({self.event_type}" + (f", reducer {self.reducer}" if self.reducer else "") + ")"
            if self.event_type
            else ""
        )
        detail = f": recorded {self.expected}, now {self.found}" if self.expected or self.found else ""
        return f"thread {self.thread_id!r}, seq {self.seq}{at}: {self.kind} differs{detail}"


@frozen(kw_only=True)
class VerifyReport:
    """What a verification saw. `events` were checked; the log holds together if there is no divergence."""

    thread_id: str
    events: int
    head_seq: int
    head_hash: str
    divergence: Divergence | None = None

    @property
    def ok(self) -> bool:
        """Whether everything agreed."""
        return self.divergence is None


Progress = Callable[[int], None]
"""Called now and then with the number of events done."""


class Verifier:
    """Verifies threads of one store with one engine's reducers."""

    def __init__(
        self,
        store: Store,
        reader: LogReader,
        events: EventRegistry,
        reducers: ReducerRegistry,
        projections: tuple[Projection[object], ...] = (),
    ) -> None:
        self._store = store
        self._reader = reader
        self._events = events
        self._reducers = reducers
        self._projections = projections

    async def verify(self, thread_id: str, progress: Progress | None = None) -> VerifyReport:
        """Check contiguity, hash links, operations, head, live rows and projections of a thread, in that order."""
        loaded = await self._store.load(thread_id)
        head = loaded.head
        draft = State().draft()
        previous = b""
        refolding = Refolding(self._projections, self._reader, thread_id)
        marks: dict[str, int] = {}
        found: Divergence | None = None
        try:
            async for page in self._reader.pages(thread_id, after=0, upto=head.seq):
                for stored in page:
                    found = self._check(thread_id, stored, draft, previous)
                    if found is None:
                        found = _project(thread_id, stored, refolding)
                    if found is not None:
                        return _report(thread_id, head, draft.seq, found)
                    previous = stored.hash
                    if self._events.tracks(stored.type):
                        marks[stored.type] = stored.seq
                if progress is not None:
                    progress(draft.seq)
        except IntegrityError as error:
            gap = Divergence(thread_id=thread_id, seq=error.seq, kind="gap", found=error.why)
            return _report(thread_id, head, draft.seq, gap)
        found = _check_head(loaded, draft, previous) or _check_marks(thread_id, head, marks)
        found = found or await self._check_rows(thread_id, head, refolding.rows)
        return _report(thread_id, head, draft.seq, found)

    def _check(self, thread_id: str, stored: StoredEvent, draft: StateDraft, previous: bytes) -> Divergence | None:
        """One row: its place, its hash, and the operations that its reducers give now."""
        seq = draft.seq + 1
        if stored.seq != seq:
            return Divergence(thread_id=thread_id, seq=seq, kind="gap", found=f"seq {stored.seq}")
        if link_hash(stored, previous) != stored.hash:
            return Divergence(thread_id=thread_id, seq=seq, kind="hash", event_type=stored.type)
        try:
            event = self._events.decode(stored.type, stored.version, stored.payload)
        except EventDecodeError as error:
            return _diverged(thread_id, stored, "undecodable", str(error))
        if not isinstance(event, Event):
            why = f"version {stored.version} of {stored.type} is not known here"
            return _diverged(thread_id, stored, "undecodable", why)
        entries = self._reducers.of_type(stored.type)
        try:
            context = ReduceContext(seq, stored.id, stored.recorded_at_us)
            reduction = reduce_into(draft, entries, event, context, thread_id)
        except MemoryEngineError as error:
            return _diverged(thread_id, stored, "reducer", str(error), getattr(error, "reducer", ""))
        record = encode_reduction(reduction, event)
        if record != stored.record:
            names = ", ".join(entry.name for entry in entries)
            return Divergence(
                thread_id=thread_id,
                seq=seq,
                kind="operations",
                event_type=stored.type,
                reducer=names,
                expected=_shown(stored.record),
                found=_shown(record),
            )
        return None

    async def _check_rows(self, thread_id: str, head: Head, rows: Mapping[str, Rows[object]]) -> Divergence | None:
        for projection in self._projections:
            checkpoint, stored = await self._store.rows(projection.name, projection.version, thread_id)
            types = event_types(projection)
            needed = head.seq if types is None else last_of(head, types)
            if checkpoint >= needed and dict(stored) != rows[projection.name].encoded():
                return Divergence(thread_id=thread_id, seq=head.seq, kind="projection", reducer=projection.name)
        return None


def _check_head(loaded: LoadedThread, draft: StateDraft, previous: bytes) -> Divergence | None:
    """The head's hash and counters, and the live rows, against what the log gives."""
    head, thread_id = loaded.head, loaded.record.id
    if draft.seq != head.seq:
        return Divergence(
            thread_id=thread_id, seq=draft.seq + 1, kind="gap", found=f"the log ends, the head is {head.seq}"
        )
    if head.seq and head.hash != previous:
        return Divergence(
            thread_id=thread_id, seq=head.seq, kind="head", expected=head.hash.hex(), found=previous.hex()
        )
    expected = [LiveChunk(p.chunk.id, p.key, p.container) for p in draft.placed()]
    if sorted(loaded.live, key=_row_id) != sorted(expected, key=_row_id):
        return Divergence(thread_id=thread_id, seq=head.seq, kind="state", found=f"{len(loaded.live)} live rows")
    if (head.chunks, head.tokens) != (draft.tally.chunks, draft.tally.tokens):
        return Divergence(thread_id=thread_id, seq=head.seq, kind="head", found="its counters")
    return None


def _check_marks(thread_id: str, head: Head, marks: Mapping[str, int]) -> Divergence | None:
    """A mark below its type's latest event would hide that a view is behind."""
    low = [name for name, seq in marks.items() if head.marks.get(name, 0) < seq]
    if low:
        return Divergence(thread_id=thread_id, seq=head.seq, kind="head", found=f"its mark of {low[0]}")
    return None


def _project(thread_id: str, stored: StoredEvent, refolding: Refolding) -> Divergence | None:
    try:
        refolding.apply(stored)
    except MemoryEngineError as error:
        return _diverged(thread_id, stored, "projection", str(error), refolding.failed)
    return None


def _row_id(row: LiveChunk) -> str:
    return row.chunk_id


def _diverged(thread_id: str, stored: StoredEvent, kind: str, why: str, reducer: str = "") -> Divergence:
    return Divergence(
        thread_id=thread_id, seq=stored.seq, kind=kind, event_type=stored.type, reducer=reducer, found=why
    )


def _shown(record: bytes) -> str:
    text = record.decode("utf-8", "replace")
    return text if len(text) <= 300 else text[:297] + "..."


def _report(thread_id: str, head: Head, events: int, found: Divergence | None) -> VerifyReport:
    return VerifyReport(
        thread_id=thread_id, events=events, head_seq=head.seq, head_hash=head.hash.hex(), divergence=found
    )
