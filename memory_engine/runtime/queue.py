"""Events on their way into a thread: encoded, in requests, in its queue: first in, first out, bounded, to be blocked.

Events are encoded when their sender hands them over, so that waiting cannot change them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from operator import attrgetter

import msgspec

from memory_engine.core.clock import Clock, checked_us, to_us
from memory_engine.core.codec import encode_event
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import ExecutionResume
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.ids import IdSource, check_identifier
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.core.state import State
from memory_engine.core.tokens import recorded_tokens
from memory_engine.errors import EventTooLarge, InvalidEvent, MemoryEngineError, QueueFull
from memory_engine.runtime.correlation import current_links

MANY = 64
"""Events of one call that are prepared and reduced at once; more are, piece by piece, with others between."""
_NO_IDS = ("", "", "")


class BlockingReason(StrEnum):
    """Why a queue hands out no events."""

    COMPACTING = "compacting"
    PAUSED = "paused"


class Prepared(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event encoded and ready to be reduced: after it has waited, its own bytes can no longer fail."""

    event: Event
    payload: bytes
    id: str
    id_is_callers: bool
    salt: bytes
    occurred_at_us: int | None
    causation_id: str
    correlation_id: str
    links_are_callers: bool = False
    commitment: bytes = b""
    """To the payload, where it is known already."""
    tokens_of_text: Callable[[str], int] = recorded_tokens
    """The estimate for a text of its content, which knows those that are long."""


_id: Callable[[Prepared], str] = attrgetter("id")


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

    def one(self, new: NewEvent, encoded: tuple[bytes, Event] | None = None) -> Prepared:
        """One event; `encoded` is its payload, and the event as the log will give it back, if they are known already.

        Missing causes come from the surrounding block. Raises `InvalidEvent`, `EventTooLarge`, `UndeclaredEvent`,
        `InvalidIdentifier`.
        """
        payload, recorded = encoded or encode_event(new.event, self.events)
        if len(payload) > self.bytes_max:
            raise EventTooLarge(recorded.event_type, len(payload), self.bytes_max)
        given = (new.id, new.causation_id, new.correlation_id)
        if given != _NO_IDS:
            for what, value in zip(("event id", "causation id", "correlation id"), given, strict=True):
                if value != "":
                    check_identifier(what, value)
        links, occurred = current_links(), new.occurred_at
        return Prepared(
            event=recorded,
            payload=payload,
            id=new.id or self.ids.event_id(self.clock.now_us()),
            id_is_callers=bool(new.id),
            salt=self.ids.salt(),
            occurred_at_us=None if occurred is None else occurred_us(recorded, occurred),
            causation_id=new.causation_id or links.causation_id,
            correlation_id=new.correlation_id or links.correlation_id or (self.correlate() if self.correlate else ""),
            links_are_callers=bool(new.causation_id or new.correlation_id),
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


def occurred_us(event: Event, occurred_at: datetime) -> int:
    """The time of an event as its row holds it. Raises `InvalidEvent` for what is not a time of the years 1 to 9999."""
    try:
        return checked_us(to_us(occurred_at))
    except ValueError as error:
        raise InvalidEvent(event.event_type, "occurred_at", str(error)) from None


class Request(msgspec.Struct, eq=False, kw_only=True):
    """Events to be appended together, and the future that their sender awaits.

    `receipts` holds receipts by event id: of the commit at work, and of events that were recorded before. `check` is
    called with the state that the events would be reduced onto, whoever has written before; it raises to refuse that.
    An `administrative` one is taken by an archived thread too. With an `expected_seq`, the events are for a thread that
    holds nothing after it; `based_on` is the seq up to which that is known (`None`: it may hold anything).
    `looked`: the store was asked whether an archived thread is open again.
    """

    events: Sequence[Prepared]
    has_callers_ids: bool
    future: asyncio.Future[tuple[Receipt, ...]]
    system: bool = False
    administrative: bool = False
    check: Callable[[State], None] | None = None
    expected_seq: int | None = None
    based_on: int | None = None
    receipts: dict[str, Receipt] = {}
    looked: bool = False
    tries: int = 0

    @classmethod
    def of_one(cls, one: Prepared, loop: asyncio.AbstractEventLoop, expected_seq: int | None) -> "Request":
        """A request for one event: see `kernel.requested`."""
        return cls(
            events=(one,),
            has_callers_ids=one.id_is_callers,
            future=loop.create_future(),
            system=type(one.event) is ExecutionResume,
            expected_seq=expected_seq,
            based_on=expected_seq,
        )

    @property
    def pending(self) -> Sequence[Prepared]:
        """The events that have no receipt yet, each id once."""
        if not self.receipts and not self.has_callers_ids:
            return self.events
        return tuple({event.id: event for event in self.events if event.id not in self.receipts}.values())

    def resolve(self) -> None:
        """Give the sender the receipts, in the order of the events."""
        if not self.future.done():
            self.future.set_result(tuple(map(self.receipts.__getitem__, map(_id, self.events))))

    def fail(self, error: BaseException) -> None:
        """Give the sender the error, if it still waits."""
        if not self.future.done():
            self.future.set_exception(error)


class ThreadQueue:
    """Waiting requests. System requests (a compaction's own events) go first and pass every block."""

    def __init__(self, thread_id: str, capacity: int) -> None:
        self._thread_id = thread_id
        self._capacity = capacity
        self._waiting: deque[Request] = deque()
        self._system: deque[Request] = deque()
        self._size = 0
        self._room: deque[tuple[Request, asyncio.Future[None]]] = deque()
        self._reasons: list[BlockingReason] = []

    def __len__(self) -> int:
        return self._size

    @property
    def is_clear(self) -> bool:
        """Whether a new request would be handed out at once."""
        return not (self._waiting or self._system or self._reasons or self._room)

    @property
    def blocking_reason(self) -> BlockingReason | None:
        """The most recent of the reasons that still hold."""
        return self._reasons[-1] if self._reasons else None

    def block(self, reason: BlockingReason) -> None:
        """Hand out no events until this reason is lifted."""
        if reason not in self._reasons:
            self._reasons.append(reason)

    def unblock(self, reason: BlockingReason) -> None:
        """Lift a reason."""
        if reason in self._reasons:
            self._reasons.remove(reason)

    def put_nowait(self, request: Request) -> bool:
        """Take a request if there is room; one that alone exceeds the capacity goes into an empty queue."""
        if request.system:
            self._system.append(request)
            return True
        if self._room:
            return False
        return self._put(request)

    def _put(self, request: Request) -> bool:
        size = len(request.events)
        if self._size and self._size + size > self._capacity:
            return False
        self._waiting.append(request)
        self._size += size
        return True

    async def put(self, request: Request, timeout_s: float) -> None:
        """Take a request, waiting for room in turn. Raises `QueueFull` after `timeout_s`."""
        if self.put_nowait(request):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append((request, turn))
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except TimeoutError:
            if not turn.done() or turn.cancelled():
                raise QueueFull(self._thread_id, self._capacity, self.blocking_reason or "") from None
        finally:
            if (request, turn) in self._room:
                self._room.remove((request, turn))
                self._wake()

    def take(self, limit: int) -> list[Request]:
        """The next requests: up to `limit` events, none of them while blocked, cancelled ones dropped."""
        taken: list[Request] = []
        while self._system:
            taken.append(self._system.popleft())
        if taken or self._reasons:
            return taken
        size = 0
        while self._waiting and size < limit:
            request = self._waiting.popleft()
            self._size -= len(request.events)
            if not request.future.done():
                taken.append(request)
                size += len(request.events)
        if self._room:
            self._wake()
        return taken

    def put_back(self, requests: Sequence[Request]) -> None:
        """Return requests to the front, in their order."""
        for request in reversed(requests):
            if request.system:
                self._system.appendleft(request)
            else:
                self._waiting.appendleft(request)
                self._size += len(request.events)

    def discard(self, request: Request) -> None:
        """Take out a request whose sender was cancelled, if it still waits."""
        if request in self._waiting:
            self._waiting.remove(request)
            self._size -= len(request.events)
            self._wake()

    def fail(self, error: MemoryEngineError) -> None:
        """Fail every waiting request, in the queue or waiting for room, with the error."""
        for request in (*self._system, *self._waiting):
            request.fail(error)
        self._system.clear()
        self._waiting.clear()
        self._size = 0
        for _, turn in self._room:
            if not turn.done():
                turn.set_exception(error)
        self._room.clear()

    def _wake(self) -> None:
        """Admit requests that wait for room, in their order, as far as the room reaches."""
        while self._room:
            request, turn = self._room[0]
            if not turn.done():
                if not self._put(request):
                    return
                turn.set_result(None)
            self._room.popleft()
