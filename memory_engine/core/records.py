"""Events when appended, stored and read back, and the receipts that `dispatch` returns."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

import msgspec

from memory_engine.core.chunks import Chunk
from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.operations import Operation
from memory_engine.core.state import State
from memory_engine.errors import StateNotSent


class NewEvent(msgspec.Struct, frozen=True):
    """An event to append, with the facts that you know about it.

    `id` makes dispatch idempotent: the same id and payload return the first receipt. `causation_id` is the event that
    caused it, `correlation_id` groups events across threads.
    """

    event: Event
    id: str = ""
    occurred_at: datetime | None = None
    causation_id: str = ""
    correlation_id: str = ""


EventLike = Event | NewEvent | Mapping[str, object]
"""An event to append: as it is, in its envelope, or as a mapping with its `type` and its fields."""


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """A row of the log: envelope, payload and recorded operations as bytes. Times in microseconds since 1970.

    The fields up to `correlation_id` are the header, in the order in which the chain binds it. A row that was read has
    the hash of the row before it in `previous`, so that it can be checked when it is decoded.
    """

    seq: int
    id: str
    type: str
    version: int
    recorded_at_us: int
    occurred_at_us: int | None
    causation_id: str
    correlation_id: str
    payload: bytes
    record: bytes
    salt: bytes
    hash: bytes
    previous: bytes | None = None

    def header(self) -> tuple[object, ...]:
        """The envelope as the chain binds it."""
        return (
            self.seq,
            self.id,
            self.type,
            self.version,
            self.recorded_at_us,
            self.occurred_at_us,
            self.causation_id,
            self.correlation_id,
        )


class RecordedEvent(msgspec.Struct, frozen=True):
    """An event read back from the log, with its place and its operations."""

    thread_id: str
    seq: int
    id: str
    type: str
    version: int
    event: Event | UnknownEvent
    operations: tuple[Operation, ...]
    chunks: tuple[Chunk, ...]
    recorded_at: datetime
    occurred_at: datetime | None
    causation_id: str
    correlation_id: str
    hash: str


class StateHandle(msgspec.Struct, eq=False, gc=False):
    """The state at a receipt's seq: in memory for a fresh receipt, read from the store for an older one."""

    seq: int
    _state: State | None
    _epoch: int
    _load: Callable[[int, int], Awaitable[State]]
    """Reads the state at a seq of the thread that bore the id in an epoch."""

    async def load(self) -> State:
        """The state after the event. Raises `StateNotSent` for a receipt that was pickled."""
        if self._state is None:
            self._state = await self._load(self._epoch, self.seq)
        return self._state

    def __repr__(self) -> str:
        return f"StateHandle(seq={self.seq})"

    def __reduce__(self) -> tuple[Callable[[int], "StateHandle"], tuple[int]]:
        return _without_store, (self.seq,)

    def __deepcopy__(self, _memo: object) -> "StateHandle":
        return self  # what it shares, the state and the way to the store, never changes


def _without_store(seq: int) -> StateHandle:
    """The handle of a receipt that was pickled: it has come without the state and the store."""
    return StateHandle(seq, None, 0, _unreachable)


async def _unreachable(_epoch: int, seq: int) -> State:
    raise StateNotSent(seq)


class Receipt(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Proof that an event is durable. Equal receipts mean one event at one place in one history."""

    thread_id: str
    seq: int
    event_id: str
    hash: str
    operations: tuple[Operation, ...]
    chunks: tuple[Chunk, ...]
    state: StateHandle
    recorded_at_us: int

    def _place(self) -> tuple[str, int, str, str]:
        return self.thread_id, self.seq, self.event_id, self.hash

    def __eq__(self, other: object) -> bool:
        return self._place() == other._place() if isinstance(other, Receipt) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._place())

    def __repr__(self) -> str:
        names = ("thread_id", "seq", "event_id", "hash", "recorded_at_us")
        return f"Receipt({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    @property
    def recorded_at(self) -> datetime:
        """When the event was recorded (UTC)."""
        return to_datetime(self.recorded_at_us)
