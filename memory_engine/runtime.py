"""One thread at work: takes requests from its queue, reduces them, commits, hands out receipts.

There is no task for a thread. `pump` runs whenever something may have become possible (a
request came, a commit ended, a block was lifted); a commit's future calls back. So no
sender's cancellation can stop the work of another, and there is no await between reading
the state and submitting what was computed from it.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Protocol

import msgspec
from attrs import define, field

from memory_engine.codec import encode_reduction
from memory_engine.config import EngineConfig
from memory_engine.errors import (
    ContentionError,
    EngineClosed,
    IdempotencyConflict,
    MemoryEngineError,
    ThreadClosed,
)
from memory_engine.events.base import Event
from memory_engine.events.registry import EventRegistry
from memory_engine.log import as_recorded, linked, live_chunk, load_state, next_head, read_back
from memory_engine.persistence import (
    ARCHIVED,
    DELETED,
    PAUSED,
    CommitUnit,
    EventIdTaken,
    Head,
    HeadMoved,
    LiveChunk,
    LoadedThread,
    ProjectionChange,
    Store,
)
from memory_engine.projections.inline import InlineProjections
from memory_engine.queue import BlockingReason, Prepared, Request, ThreadQueue
from memory_engine.records import Receipt, RecordedEvent, StateHandle, StoredEvent
from memory_engine.reducing import ReduceContext, ReducerRegistry, Reduction, reduce_into
from memory_engine.state import State


class Services(Protocol):
    """What a thread needs of its engine."""

    config: EngineConfig
    store: Store
    events: EventRegistry
    reducers: ReducerRegistry
    closed: bool

    def now_us(self) -> int:
        """The time to record with."""
        ...

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run in a task that the engine owns."""
        ...

    def committed(self, runtime: "ThreadRuntime", recorded: "Sequence[Reduced]") -> None:
        """Events of a thread became durable."""
        ...

    async def state_at(self, thread_id: str, seq: int) -> State:
        """The state after the event at seq."""
        ...


class Reduced(msgspec.Struct, frozen=True, gc=False):
    """An event that was reduced: its row, its value, and what it does."""

    stored: StoredEvent
    event: Event
    reduction: Reduction


@define
class _Attempt:
    """What one commit is about to make true."""

    state: State
    head: Head
    requests: list[Request] = field(factory=list)
    reduced: list[Reduced] = field(factory=list)
    receipts: list[tuple[Request, Receipt]] = field(factory=list)
    live: dict[str, LiveChunk | None] = field(factory=dict)


class ThreadRuntime:
    """A thread in memory: head, state and queue. Made by the engine, one for each open thread."""

    def __init__(self, services: Services, loaded: LoadedThread, projections: InlineProjections) -> None:
        self._services = services
        self.record = loaded.record
        self.id = loaded.record.id
        self.head = loaded.head
        self.state = load_state(loaded, services.events)
        self.projections = projections
        self.queue = ThreadQueue(self.id, services.config.queue_capacity)
        self.busy = False
        self.failed: MemoryEngineError | None = None
        self.compaction_backoff = 0
        self.compaction_failures = 0
        self._idle: list[asyncio.Future[None]] = []
        self._follow_status()

    async def submit(self, request: Request) -> tuple[Receipt, ...]:
        """Queue a request and wait for its receipts; a cancelled sender's request is dropped if it still waits."""
        try:
            await self.queue.put(request, self._services.config.queue_timeout_s)
            self.pump()
            return await request.future
        except asyncio.CancelledError:
            self.queue.discard(request)
            raise

    async def idle(self) -> None:
        """Wait until no commit of this thread is under way."""
        while self.busy:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def pump(self) -> None:
        """Take what waits, reduce it, and hand it to the store. Does nothing while a commit is under way."""
        while not self.busy:
            requests = self.queue.take(self._services.config.batch_events_max)
            if not requests:
                return
            attempt = _Attempt(self.state, self.head)
            for n, request in enumerate(requests):
                self._add(attempt, request)
                if attempt.head.status == PAUSED:
                    self.queue.put_back(requests[n + 1 :])
                    break
            if attempt.requests:
                self._commit(attempt)

    def unblock(self, reason: BlockingReason) -> None:
        """Lift a block and go on with what waited."""
        self.queue.unblock(reason)
        self.pump()

    def _add(self, attempt: _Attempt, request: Request) -> None:
        """Reduce a request onto the attempt; if that fails, the attempt is as before and the sender is told."""
        try:
            self._check_open()
            state, head, reduced, live = self._reduce(attempt, request)
        except MemoryEngineError as error:
            if any(event.id_is_callers for event in request.events):
                self._services.spawn(self._settle_or_fail(request, error))
            else:
                request.fail(error)
            return
        for step in reduced:
            attempt.receipts.append((request, self._receipt(step, state)))
        attempt.state, attempt.head = state, head
        attempt.requests.append(request)
        attempt.reduced.extend(reduced)
        attempt.live.update(live)

    def _check_open(self) -> None:
        if self._services.closed:
            raise EngineClosed
        if self.failed is not None:
            raise self.failed
        if self.head.status in (ARCHIVED, DELETED):
            raise ThreadClosed(self.id, self.head.status)

    def _reduce(
        self, attempt: _Attempt, request: Request
    ) -> tuple[State, Head, list[Reduced], dict[str, LiveChunk | None]]:
        state, head = attempt.state, attempt.head
        reduced: list[Reduced] = []
        live: dict[str, LiveChunk | None] = {}
        now_us = self._services.now_us()
        for prepared in request.pending:
            draft = state.draft()
            seq = head.seq + 1
            context = ReduceContext(seq, prepared.id, now_us)
            entries = self._services.reducers.of_type(prepared.event.event_type)
            reduction = reduce_into(draft, entries, prepared.event, context, self.id)
            step = self._record(prepared, reduction, head, now_us)
            live.update((chunk_id, live_chunk(placed)) for chunk_id, placed in draft.touched.items())
            state = draft.freeze(seq)
            head = next_head(head, step.stored, state.tally)
            reduced.append(step)
        return state, head, reduced, live

    def _record(self, prepared: Prepared, reduction: Reduction, head: Head, now_us: int) -> Reduced:
        """The row of an event, linked to the one before."""
        event = prepared.event
        record = encode_reduction(reduction, event)
        unlinked = StoredEvent(
            seq=head.seq + 1,
            id=prepared.id,
            type=event.event_type,
            version=event.event_version,
            recorded_at_us=now_us,
            payload=prepared.payload,
            record=record,
            salt=prepared.salt,
            hash=b"",
            occurred_at_us=prepared.occurred_at_us,
            causation_id=prepared.causation_id,
            correlation_id=prepared.correlation_id,
        )
        return Reduced(linked(unlinked, head.hash), event, reduction)

    def _receipt(self, step: Reduced, state: State) -> Receipt:
        stored = step.stored
        at_hand = state if state.seq == stored.seq else None
        return Receipt(
            thread_id=self.id,
            seq=stored.seq,
            event_id=stored.id,
            hash=stored.hash.hex(),
            operations=step.reduction.operations,
            chunks=step.reduction.chunks,
            state=StateHandle(stored.seq, at_hand, self._load_state),
            recorded_at_us=stored.recorded_at_us,
        )

    async def _load_state(self, seq: int) -> State:
        return await self._services.state_at(self.id, seq)

    def _commit(self, attempt: _Attempt) -> None:
        self.busy = True
        changes: Sequence[ProjectionChange] = ()
        try:
            if self.projections:
                changes = self.projections.apply([self.recorded(step) for step in attempt.reduced])
        except MemoryEngineError as error:
            self._finish(attempt, error)
            return
        unit = CommitUnit(
            thread_id=self.id,
            expected=self.head,
            head=attempt.head,
            events=[step.stored for step in attempt.reduced],
            live=attempt.live,
            projections=changes,
        )
        future = self._services.store.commit(unit)
        future.add_done_callback(lambda done: self._committed(attempt, done))

    def _committed(self, attempt: _Attempt, done: "asyncio.Future[None]") -> None:
        error = EngineClosed() if done.cancelled() else done.exception()
        if isinstance(error, HeadMoved | EventIdTaken):
            self._services.spawn(self._retry(attempt, error))
            return
        self._finish(attempt, error)

    def _finish(self, attempt: _Attempt, error: BaseException | None) -> None:
        self.busy = False
        if error is None:
            self.state, self.head = attempt.state, attempt.head
            self.projections.keep()
            self._follow_status()
            for request, receipt in attempt.receipts:
                request.settled[receipt.event_id] = receipt
            for request in attempt.requests:
                request.resolve()
            self._services.committed(self, attempt.reduced)
        else:
            self.projections.discard()
            for request in attempt.requests:
                request.fail(error)
        self._wake_idle()
        self.pump()

    def _wake_idle(self) -> None:
        waiting, self._idle = self._idle, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _retry(self, attempt: _Attempt, error: MemoryEngineError) -> None:
        """Another writer was first, or an id was used before: look again, then reduce again."""
        again: list[Request] = []
        try:
            for request in attempt.requests:
                request.tries += 1
                if isinstance(error, EventIdTaken) or request.tries > 1:
                    await self._settle(request)
                if request.tries > self._services.config.commit_tries_max:
                    request.fail(ContentionError(self.id, request.tries))
                if not request.future.done():
                    again.append(request)
            await self.reload()
        except MemoryEngineError as failure:
            for request in attempt.requests:
                request.fail(failure)
            again = []
        finally:
            self.projections.discard()
            self.busy = False
            self.queue.put_back(again)
            self._wake_idle()
            self.pump()

    async def _settle_or_fail(self, request: Request, error: MemoryEngineError) -> None:
        """An event that cannot be reduced now may be recorded already: then its first receipt counts."""
        try:
            await self._settle(request)
        except MemoryEngineError as failure:
            error = failure
        if not request.future.done():
            request.fail(error)

    async def _settle(self, request: Request) -> None:
        """Find events that are recorded already; resolve the request if all are, fail it on a conflict."""
        ids = [event.id for event in request.pending]
        found = {stored.id: stored for stored in await self._services.store.find(self.id, ids)}
        for prepared in request.pending:
            stored = found.get(prepared.id)
            if stored is None:
                continue
            same = stored.payload == prepared.payload and stored.type == prepared.event.event_type
            if not same:
                request.fail(IdempotencyConflict(self.id, prepared.id, stored.seq))
                return
            request.settled[stored.id] = self._first_receipt(stored)
        if not request.pending:
            request.resolve()

    def _first_receipt(self, stored: StoredEvent) -> Receipt:
        recorded = read_back(self.id, stored, self._services.events)
        return Receipt(
            thread_id=self.id,
            seq=stored.seq,
            event_id=stored.id,
            hash=stored.hash.hex(),
            operations=recorded.operations,
            chunks=recorded.chunks,
            state=StateHandle(stored.seq, None, self._load_state),
            recorded_at_us=stored.recorded_at_us,
        )

    async def reload(self) -> None:
        """Take head and state from the store: another process has written."""
        loaded = await self._services.store.load(self.id)
        self.head = loaded.head
        self.state = load_state(loaded, self._services.events)
        await self.projections.load(self._services.store, self.id)
        self._follow_status()

    def _follow_status(self) -> None:
        """A pause holds until the log says otherwise, in whichever process it was said."""
        if self.head.status == PAUSED:
            self.queue.block(BlockingReason.PAUSED)
        else:
            self.queue.unblock(BlockingReason.PAUSED)

    def recorded(self, step: Reduced) -> RecordedEvent:
        """A reduced event as the log will give it back."""
        return as_recorded(self.id, step.stored, step.event, step.reduction)
