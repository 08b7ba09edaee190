"""The queue of one thread: first in, first out, bounded, with reasons to be blocked."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum

import msgspec

from memory_engine.core.codec import is_large
from memory_engine.core.events.base import Event
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.core.state import State
from memory_engine.core.tokens import recorded_tokens
from memory_engine.errors import MemoryEngineError, QueueFull

IN_A_ROW_MAX = 8
"""Commits that end at once, before the loop has a turn: about a millisecond."""


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


class Entrance:
    """Keeps the senders of a thread in the order in which they came, while a large event is encoded beside the loop."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    def is_slow(self, thread_id: str, event: Event | NewEvent) -> bool:
        """Whether an event is large, or comes after one of the same thread that is being encoded."""
        return thread_id in self._last or is_large(event.event if isinstance(event, NewEvent) else event)

    def moved(self) -> None:
        """Wait for nobody of an event loop that has ended."""
        self._last.clear()

    @asynccontextmanager
    async def turn(self, thread_id: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A block of one sender: it awaits what it is given, then takes its place in the queue at the block's end."""
        before = self._last.get(thread_id)
        mine = self._last[thread_id] = asyncio.get_running_loop().create_future()

        async def came() -> None:
            if before is not None:
                await asyncio.wait((before,))

        def leave(_: object = None) -> None:
            mine.set_result(None)
            if self._last.get(thread_id) is mine:
                del self._last[thread_id]

        try:
            yield came
        finally:
            if before is None or before.done():
                leave()
            else:  # it has failed or was cancelled: the next one still waits for those before
                before.add_done_callback(leave)


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

    @property
    def pending(self) -> Sequence[Prepared]:
        """The events that have no receipt yet, each id once."""
        if not self.receipts and not self.has_callers_ids:
            return self.events
        return tuple({event.id: event for event in self.events if event.id not in self.receipts}.values())

    def resolve(self) -> None:
        """Give the sender the receipts, in the order of the events."""
        if not self.future.done():
            self.future.set_result(tuple([self.receipts[event.id] for event in self.events]))

    def fail(self, error: BaseException) -> None:
        """Give the sender the error, if it still waits."""
        if not self.future.done():
            self.future.set_exception(error)


class Turns:
    """Gives the event loop its turns when commits end at once: a caller dispatching in a row never waits.

    One per engine.
    """

    __slots__ = ("_in_a_row",)

    def __init__(self) -> None:
        self._in_a_row = 0

    def ended_at_once(self) -> None:
        """Count a commit that nobody had to wait for."""
        self._in_a_row += 1

    def is_over(self) -> bool:
        """Whether the next request should wait for a round of the loop; then counting starts over."""
        if self._in_a_row < IN_A_ROW_MAX:
            return False
        self._in_a_row = 0
        return True


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
