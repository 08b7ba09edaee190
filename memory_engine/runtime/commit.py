"""A commit in the making: events reduced onto a state, the rows they become, and what the log holds of them already.

Events are encoded when their sender hands them over, so that waiting cannot change them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.aside import aside
from memory_engine.core.chain import read_back
from memory_engine.core.clock import Clock, checked_us, to_us
from memory_engine.core.codec import GENESIS, commitment, encode_event, is_large, link
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import ThreadUpdated
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.ids import IdSource, check_identifier
from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import NewEvent, Receipt, RecordedEvent, StateHandle, StoredEvent
from memory_engine.core.reduction import Reduction
from memory_engine.core.slices import Steps, finish, in_slices, let_others
from memory_engine.core.state import State
from memory_engine.core.threads import (
    PAUSED,
    UNREADABLE,
    DamagedRecord,
    Head,
    LiveChunk,
    ThreadRecord,
    check_record,
    decode_policy,
    generation_of,
)
from memory_engine.errors import (
    Conflict,
    EventTooLarge,
    IdempotencyConflict,
    InvalidEvent,
    MemoryEngineError,
    ThreadNotFound,
)
from memory_engine.runtime.correlation import current_links
from memory_engine.runtime.notes import DueNote
from memory_engine.runtime.queue import Prepared, Request
from memory_engine.store.passages import PassageChange, PassageStep
from memory_engine.store.protocol import CommitUnit, ProjectionChange, Store
from memory_engine.store.reader import LogReader

if TYPE_CHECKING:
    from memory_engine.core import large_events
else:
    large_events = lazy_module("memory_engine.core.large_events")


class Reduced(msgspec.Struct, frozen=True, gc=False):
    """A reduced event: its row, its value, and its reduction."""

    stored: StoredEvent
    event: Event
    reduction: Reduction


MANY = 64
"""Events of one call that are prepared and reduced at once; more are, piece by piece, with others between."""


class Attempt(msgspec.Struct, eq=False):
    """A commit in the making. `notes` are those that it records, each with its seq; no sender awaits them."""

    state: State
    head: Head
    record: ThreadRecord
    requests: list[tuple[Request, list[Reduced], State]] = []
    reduced: list[Reduced] = []
    live: dict[str, LiveChunk | None] = {}
    passages: list[PassageStep] = []
    notes: list[tuple[DueNote, int]] = []
    now_us: int = 0
    """When its events are recorded; 0: each request when it joins."""
    has_receipts: bool = False

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

    def unit(
        self,
        expected: Head,
        known: ThreadRecord,
        projections: Sequence[ProjectionChange],
        *,
        makes: ThreadRecord | None,
        is_indexed: bool,
    ) -> CommitUnit:
        """The attempt as the store takes it, for a thread with this head and record; `makes`: the thread is new."""
        return CommitUnit(
            thread_id=known.id,
            expected=expected,
            head=self.head,
            events=[step.stored for step in self.reduced],
            live=self.live,
            projections=projections,
            passages=PassageChange(expected.seq, self.head.seq, self.passages) if is_indexed else None,
            makes=makes,
            record=self.record if self.record is not known else None,
        )

    def make_receipts(self, log: "RecordedLog") -> None:
        """Done while the store is at work: nobody waits for them yet. Those of very many events are there already."""
        if self.has_receipts:
            return
        for request, reduced, state in self.requests:
            for step in reduced:
                at_hand = state if state.seq == step.stored.seq else None
                request.receipts[step.stored.id] = log.receipt(self.head, step.stored, step.reduction, at_hand)

    def void(self, request: Request) -> None:
        """Void the receipts of a request that was to join piece by piece."""
        for step in self.reduced:
            request.receipts.pop(step.stored.id, None)

    def void_receipts(self) -> None:
        """Void the receipts: the commit did not happen."""
        for request, reduced, _ in self.requests:
            for step in reduced:
                request.receipts.pop(step.stored.id, None)


_NO_IDS = ("", "", "")
SEEN_PAGE = 64
"""Events that are looked at in one go, when a sender has seen only earlier ones."""


class RecordedLog:
    """The log of one thread, as its senders are told of it: receipts, and what it holds already."""

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
            state=StateHandle(stored.seq, at_hand, generation_of(head), self._state),
            recorded_at_us=stored.recorded_at_us,
        )

    async def _state(self, generation: int, seq: int) -> State:
        """The state after an event of this thread. Raises `ThreadNotFound` where another bears its id now."""
        if generation_of(await self._store.head(self._thread_id)) != generation:
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


def updated(record: ThreadRecord, reduced: Sequence[Reduced]) -> ThreadRecord:
    """A thread's record after events. Raises `InvalidEvent` for what a record cannot hold."""
    for step in reduced:
        event = step.event
        if not isinstance(event, ThreadUpdated):
            continue
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


class Preparer(msgspec.Struct, frozen=True):
    """Encodes and checks events, and gives them ids."""

    events: EventRegistry
    ids: IdSource
    clock: Clock
    bytes_max: int
    correlate: Callable[[], str] | None = None
    """Gives the correlation id of an event that has none."""

    def all(self, events: Sequence[Event | NewEvent]) -> list[Prepared]:
        """Several events of one call. Raises `InvalidEvent` also where two different ones have the same id."""
        return distinct([self.one(new) for new in map(enveloped, events)])

    def one(self, new: NewEvent) -> Prepared:
        """One event. Raises `InvalidEvent`, `EventTooLarge`, `UndeclaredEvent`, `InvalidIdentifier`."""
        return self.parts(new.event, new.id, new.occurred_at, new.causation_id, new.correlation_id)

    def parts(
        self,
        event: Event,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
    ) -> Prepared:
        """One event from its parts: see `one`. Missing causes come from the surrounding block."""
        return self._prepared(encode_event(event, self.events), event_id, occurred_at, causation_id, correlation_id)

    async def beside(self, events: Sequence[Event | NewEvent]) -> list[Prepared]:
        """Several events of one call, large ones encoded and hashed beside the loop. Raises what `all` does.

        The texts of up to `MANY` are taken before anything is awaited, so that waiting cannot change them.
        """
        steps = self._all_begun(events)
        begun = finish(steps) if len(events) <= MANY else await in_slices(steps, let_others)
        return distinct([one if isinstance(one, Prepared) else await self._finished(*one) for one in begun])

    def _all_begun(
        self, events: Sequence[Event | NewEvent]
    ) -> "Steps[list[Prepared | tuple[NewEvent, large_events.SplitEvent]]]":
        found: list[Prepared | tuple[NewEvent, large_events.SplitEvent]] = []
        for new in map(enveloped, events):
            begun = self._begun(new)
            found.append(begun if isinstance(begun, Prepared) else (new, begun))
            yield
        return found

    def _begun(self, new: NewEvent) -> "Prepared | large_events.SplitEvent":
        split = large_events.split_event(new.event, self.events) if is_large(new.event) else None
        return self.one(new) if split is None else split

    async def _finished(self, new: NewEvent, split: "large_events.SplitEvent") -> Prepared:
        salt = self.ids.salt()
        encoded = await aside(partial(split.encoded, salt), items=sum(map(len, split.texts)))
        envelope = new.id, new.occurred_at, new.causation_id, new.correlation_id
        prepared = self._prepared((encoded.payload, split.recorded), *envelope)
        return msgspec.structs.replace(
            prepared, salt=salt, commitment=encoded.commitment, tokens_of_text=encoded.measured.tokens
        )

    def _prepared(
        self,
        encoded: tuple[bytes, Event],
        event_id: str,
        occurred_at: datetime | None,
        causation_id: str,
        correlation_id: str,
    ) -> Prepared:
        payload, recorded = encoded
        if len(payload) > self.bytes_max:
            raise EventTooLarge(recorded.event_type, len(payload), self.bytes_max)
        given = (event_id, causation_id, correlation_id)
        if given != _NO_IDS:
            for what, value in zip(("event id", "causation id", "correlation id"), given, strict=True):
                if value != "":
                    check_identifier(what, value)
        links = current_links()
        return Prepared(
            event=recorded,
            payload=payload,
            id=event_id or self.ids.event_id(self.clock.now_us()),
            id_is_callers=bool(event_id),
            salt=self.ids.salt(),
            occurred_at_us=occurred_us(recorded, occurred_at),
            causation_id=causation_id or links.causation_id,
            correlation_id=correlation_id or links.correlation_id or (self.correlate() if self.correlate else ""),
            links_are_callers=bool(causation_id or correlation_id),
        )


def enveloped(event: Event | NewEvent) -> NewEvent:
    """An event in its envelope."""
    return event if isinstance(event, NewEvent) else NewEvent(event)


def distinct(prepared: list[Prepared]) -> list[Prepared]:
    """The events of one call. Raises `InvalidEvent` where two different ones have the same id."""
    seen: dict[str, bytes] = {}
    for one in prepared:
        if seen.setdefault(one.id, one.payload) != one.payload:
            raise InvalidEvent(one.event.event_type, f"event id {one.id!r}", "two events of the call bear this id")
    return prepared


def occurred_us(event: Event, occurred_at: datetime | None) -> int | None:
    """The time of an event as its row holds it. Raises `InvalidEvent` for what is not a time of the years 1 to 9999."""
    if occurred_at is None:
        return None
    try:
        return checked_us(to_us(occurred_at))
    except ValueError as error:
        raise InvalidEvent(event.event_type, "occurred_at", str(error)) from None
