"""A commit: requests reduced onto a thread, the rows they become, and the receipts that their senders get for them."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Protocol

import msgspec

from memory_engine.core.chain import as_recorded, next_head, read_back
from memory_engine.core.codec import GENESIS, checked_record, commitment, link
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import ThreadUpdated
from memory_engine.core.records import NewEvent, Receipt, RecordedEvent, StateHandle, StoredEvent
from memory_engine.core.reduction import ReduceContext, Reduction, reduce_onto
from memory_engine.core.state import Placed, State
from memory_engine.core.threads import (
    PAUSED,
    SCOPE_EPOCHS,
    UNREADABLE,
    DamagedRecord,
    Head,
    ThreadRecord,
    check_record,
    decode_policy,
    generation_of,
)
from memory_engine.errors import Conflict, IdempotencyConflict, InvalidEvent, MemoryEngineError, ThreadNotFound
from memory_engine.projections.inline import InlineProjections
from memory_engine.projections.outbox import check_destinations
from memory_engine.runtime.kernel import PLAIN, Kernel, ThreadKind
from memory_engine.runtime.notes import DueNote
from memory_engine.runtime.queue import MANY, Prepared, Request
from memory_engine.store.passages import PassageStep, passage_step
from memory_engine.store.protocol import CommitUnit, Store
from memory_engine.store.reader import LogReader


class Reduced(msgspec.Struct, frozen=True, gc=False):
    """A reduced event: its row, its value, and its reduction."""

    stored: StoredEvent
    event: Event
    reduction: Reduction

    def recorded(self, thread_id: str) -> RecordedEvent:
        """The event as the log will give it back."""
        return as_recorded(thread_id, self.stored, self.event, self.reduction)


class ThreadAtWork(Protocol):
    """A commit of a thread in memory. `makes`: the store does not have it yet."""

    id: str
    kind: ThreadKind
    record: ThreadRecord
    head: Head
    state: State
    makes: ThreadRecord | None
    projections: InlineProjections
    indexed: bool
    log: "RecordedLog"


class Commit(CommitUnit, eq=False, kw_only=True, gc=True):
    """Requests reduced onto a thread: the unit that the store takes, and what the thread is after it.

    A request is reduced onto a commit of its own, which joins the one before it whole, or goes: it has failed then.
    `record` is the thread's, if an event has changed it, and `known` the one before. `notes` are those that it records,
    each with its seq; no sender awaits them. `is_viewed`: an event of it changes rows of a view.
    """

    known: ThreadRecord
    state: State
    now_us: int
    """When its events are recorded."""
    rows: list[StoredEvent]
    places: dict[str, Placed | None]
    """The lists behind `events` and `live`, as they grow."""
    requests: list[tuple[Request, list[Reduced], State]] = msgspec.field(default_factory=list)
    reduced: list[Reduced] = msgspec.field(default_factory=list)
    passage_steps: list[PassageStep] = msgspec.field(default_factory=list)
    notes: list[tuple[DueNote, int]] = msgspec.field(default_factory=list)
    is_viewed: bool = False

    @classmethod
    def begun(cls, kernel: Kernel, thread: ThreadAtWork, before: "Commit | None" = None) -> "Commit":
        """An empty commit onto a thread's head, or behind one that is in the making."""
        now_us = kernel.read_time()
        at = thread if before is None else before
        rows: list[StoredEvent] = []
        places: dict[str, Placed | None] = {}
        return cls(
            events=rows,
            rows=rows,
            live=places,
            places=places,
            thread_id=thread.id,
            expected=at.head,
            head=at.head,
            makes=thread.makes if before is None else None,
            known=thread.record if before is None else before.record or before.known,
            state=at.state,
            now_us=now_us if thread.kind is PLAIN else thread.kind.recorded_us(now_us),
        )

    def defers(self, request: Request) -> bool:
        """Whether a further request has to wait for the end of this commit."""
        is_apart = request.based_on is not None or len(request.events) > MANY
        return self.head.status == PAUSED or is_apart or self._holds(request)

    def _holds(self, request: Request) -> bool:
        """Whether an event of the request is in here already: the same id sent twice at once."""
        if not request.has_callers_ids:
            return False
        ids = {event.id for event in request.events}
        return any(step.stored.id in ids for step in self.reduced)

    def take(self, kernel: Kernel, thread: ThreadAtWork, request: Request, notes: Sequence[DueNote]) -> "Commit":
        """Reduce a request onto it, behind notes. Raises what reducing raises; then the commit is of no use."""
        if request.check is not None:
            request.check(self.state)
        first = len(self.reduced)
        for note in notes:
            sent = NewEvent(note.event, correlation_id=request.events[0].correlation_id)
            step = self._reduce(kernel, thread.kind, kernel.preparer.one(sent))
            self.notes.append((note, step.stored.seq))
        for prepared in request.pending:
            self._reduce(kernel, thread.kind, prepared)
        reduced = self.reduced[first:]
        self.requests.append((request, reduced[len(notes) :], self.state))
        self._derive(kernel, thread, reduced)
        return self

    def _reduce(self, kernel: Kernel, kind: ThreadKind, sent: Prepared) -> Reduced:
        prepared = sent if kind.admit is None else kind.admit(sent)
        event, head = prepared.event, self.head
        if event.event_delivers:
            check_destinations(event, self.known.tenant_id)
        context = ReduceContext(head.seq + 1, prepared.id, self.now_us, prepared.tokens_of_text)
        reducers = kernel.reducers.of_type(event.event_type)
        self.state, reduction, places = reduce_onto(self.state, reducers, event, context, self.thread_id)
        record = checked_record(reduction, event, thread_id=self.thread_id, reducers=reducers)
        stored = linked_row(prepared, record, head, self.now_us)
        self.head = next_head(head, stored, self.state.tally, tracked=event.event_tracked)
        self.places.update(places)
        if isinstance(event, ThreadUpdated):
            self.record = updated(self.record or self.known, event)
        step = Reduced(stored, event, reduction)
        self.rows.append(stored)
        self.reduced.append(step)
        return step

    def _derive(self, kernel: Kernel, thread: ThreadAtWork, reduced: Sequence[Reduced]) -> None:
        """Compute what else events write: passages for search, where the thread has an index, and rows of views.

        Raises `ReducerError` naming the type, or the projection, for which that fails.
        """
        viewed: list[RecordedEvent] = []
        for step in reduced:
            if thread.indexed:
                found = passage_step(kernel.extractors, self.thread_id, step.event, step.stored)
                if found is not None:
                    self.passage_steps.append(found)
            if thread.projections.concerned[step.stored.type]:
                viewed.append(step.recorded(self.thread_id))
        if viewed:
            thread.projections.apply(viewed)
            self.is_viewed = True

    def join(self, other: "Commit") -> None:
        """Take in a commit that was begun where this one ends."""
        self.head, self.state, self.record = other.head, other.state, other.record or self.record
        self.rows += other.rows
        self.places.update(other.places)
        self.requests += other.requests
        self.reduced += other.reduced
        self.passage_steps += other.passage_steps
        self.notes += other.notes
        self.is_viewed |= other.is_viewed

    def void(self, request: Request) -> None:
        """Take back the receipts of a request: the commit did not happen."""
        for step in self.reduced:
            request.receipts.pop(step.stored.id, None)


SEEN_PAGE = 64
"""Events that are looked at in one go, when a sender has seen only earlier ones."""


class RecordedLog:
    """The log of one thread for its senders: receipts, and the events that it holds already."""

    def __init__(self, reader: LogReader, store: Store, thread_id: str) -> None:
        self._reader = reader
        self._store = store
        self._thread_id = thread_id

    def receipt(
        self, head: Head, stored: StoredEvent, made: Reduction | RecordedEvent, at_hand: State | None
    ) -> Receipt:
        """The receipt of an event, with its state if it is `at_hand`. `head` is one of the thread's."""
        return Receipt(
            thread_id=self._thread_id,
            seq=stored.seq,
            event_id=stored.id,
            hash=stored.hash.hex(),
            operations=made.operations,
            chunks=made.chunks,
            state=StateHandle(stored.seq, at_hand, head.epoch, self._state),
            recorded_at_us=stored.recorded_at_us,
        )

    def make_receipts(self, head: Head, request: Request, reduced: Sequence[Reduced], state: State) -> None:
        """Make the receipts of a request's events; `state` is the one after the last of them."""
        for step in reduced:
            at_hand = state if state.seq == step.stored.seq else None
            request.receipts[step.stored.id] = self.receipt(head, step.stored, step.reduction, at_hand)

    async def _state(self, epoch: int, seq: int) -> State:
        """The state after an event of this thread. Raises `ThreadNotFound` where another bears its id now."""
        if generation_of(await self._store.head(self._thread_id)) != epoch // SCOPE_EPOCHS:
            raise ThreadNotFound(self._thread_id)
        return await self._reader.shown_at(self._thread_id, seq)

    async def find(self, head: Head, request: Request) -> None:
        """Find events that are recorded already; resolve the request if all are, fail it on a conflict."""
        ids = [event.id for event in request.pending]
        found = {stored.id: stored for stored in await self._store.find(self._thread_id, ids)}
        for prepared in request.pending:
            stored = found.get(prepared.id)
            if stored is None:
                continue
            if (stored.payload, stored.type) != (prepared.payload, prepared.event.event_type):
                request.fail(IdempotencyConflict(self._thread_id, prepared.id, stored.seq))
                return
            made = read_back(self._thread_id, stored, self._reader.registry)
            request.receipts[stored.id] = self.receipt(head, stored, made, None)
        if not request.pending:
            request.resolve()

    async def find_or_fail(self, head: Head, request: Request, error: MemoryEngineError) -> None:
        """Resolve a request whose events cannot be reduced now, if all are recorded already; else fail it."""
        try:
            await self.find(head, request)
        except MemoryEngineError as failure:
            error = failure
        finally:
            request.fail(error)

    async def rebase(self, head: Head, request: Request) -> None:
        """Base a request on the head if only upkeep came since what its sender has seen; else fail it.

        One whose events are all recorded already gets their receipts.
        """
        based_on = request.based_on or 0
        while based_on < head.seq:
            page = await self._store.read(self._thread_id, after=based_on, upto=head.seq, limit=SEEN_PAGE)
            upkeep = list(takewhile(lambda stored: self._reader.registry.is_upkeep(stored.type), page))
            based_on += len(upkeep)
            if not upkeep or len(upkeep) < len(page):
                break
        request.based_on = based_on
        if based_on != head.seq:
            if request.has_callers_ids:
                await self.find(head, request)
            request.fail(Conflict(self._thread_id, request.expected_seq or 0, head.seq))


def updated(record: ThreadRecord, event: ThreadUpdated) -> ThreadRecord:
    """A thread's record after an event. Raises `InvalidEvent` for what a record cannot hold."""
    if isinstance(record, DamagedRecord):
        why = f"{record.unreadable[0]}; `rebuild` writes it anew"
        raise InvalidEvent(event.event_type, f"the record of thread {record.id!r}", why)
    metadata = dict(record.metadata)
    for entry in event.metadata:
        metadata.pop(entry.key, None)
        if not entry.removed:
            metadata[entry.key] = entry.value
    try:
        own = decode_policy(event.policy) if event.policy else record.policy
    except UNREADABLE as error:
        raise InvalidEvent(event.event_type, "policy", str(error)) from None
    record = msgspec.structs.replace(record, metadata=metadata, policy=None if event.default_policy else own)
    check_record(record)
    return record


def linked_row(prepared: Prepared, record: bytes, head: Head, now_us: int) -> StoredEvent:
    """The row of an event, linked to the one before."""
    event, salt, payload = prepared.event, prepared.salt, prepared.payload
    header = (
        head.seq + 1,
        prepared.id,
        event.event_type,
        event.event_version,
        now_us,
        prepared.occurred_at_us,
        prepared.causation_id,
        prepared.correlation_id,
    )
    committed = prepared.commitment or commitment(salt, payload)
    digest = link(head.hash or GENESIS, header, committed, commitment(salt, record))
    return StoredEvent(*header, payload, record, salt, digest, head.hash)
