"""Threads as a whole, and events that were not recorded."""

from attrs import frozen

from memory_engine.errors.base import MemoryEngineError


class ThreadError(MemoryEngineError):
    """Something about a thread as a whole."""


@frozen
class ThreadNotFound(ThreadError):
    """No thread of this id."""

    thread_id: str

    def __str__(self) -> str:
        return f"thread {self.thread_id!r} does not exist; create it with engine.create_thread(thread_id=...)"


@frozen
class ThreadExists(ThreadError):
    """The id is taken (a deleted thread's id stays taken)."""

    thread_id: str

    def __str__(self) -> str:
        return (
            f"thread {self.thread_id!r} exists already, or did: open it with engine.thread({self.thread_id!r}); "
            "the id of a deleted thread stays taken"
        )


@frozen
class EventNotFound(ThreadError):
    """No event of this id in the thread's log."""

    thread_id: str
    event_id: str

    def __str__(self) -> str:
        return (
            f"thread {self.thread_id!r} has no event {self.event_id!r}; "
            "take the id from a receipt or from what a view gives (`event_id`), and the thread that it belongs to"
        )


@frozen
class ThreadClosed(ThreadError):
    """The thread takes no events any more."""

    thread_id: str
    status: str

    def __str__(self) -> str:
        return f"thread {self.thread_id!r} is {self.status} and takes no events; fork it to go on"


@frozen
class ThreadHasForks(ThreadError):
    """Other threads share this thread's past."""

    thread_id: str
    forks: tuple[str, ...]

    def __str__(self) -> str:
        return f"thread {self.thread_id!r} shares its past with {', '.join(self.forks)}; delete the forks first"


class DispatchError(MemoryEngineError):
    """An event that was not recorded, or was recorded under another meaning."""


@frozen
class IdempotencyConflict(DispatchError):
    """An event id was used before with another payload."""

    thread_id: str
    event_id: str
    seq: int

    def __str__(self) -> str:
        return (
            f"event id {self.event_id!r} is seq {self.seq} of thread {self.thread_id!r} with another payload; "
            "give the new event an id of its own"
        )


@frozen
class QueueFull(DispatchError):
    """The thread's queue had no room until the deadline. The event was not taken."""

    thread_id: str
    capacity: int
    blocked_by: str

    def __str__(self) -> str:
        why = f" (blocked: {self.blocked_by})" if self.blocked_by else ""
        return f"the queue of thread {self.thread_id!r} holds {self.capacity} events{why}; wait, then dispatch again"


@frozen
class ContentionError(DispatchError):
    """Other processes wrote to the thread first, at every try. Nothing was written."""

    thread_id: str
    tries: int

    def __str__(self) -> str:
        return f"thread {self.thread_id!r} was changed by another writer {self.tries} times in a row; dispatch again"


@frozen
class EngineClosed(DispatchError):
    """The engine is closing or closed."""

    def __str__(self) -> str:
        return "the engine is closed; open it again (`async with memory_engine.open(...)`)"


@frozen
class ReducerError(DispatchError):
    """A reducer raised, or returned what the executor refuses. Nothing was written."""

    thread_id: str
    event_type: str
    reducer: str
    operation: str
    why: str

    def __str__(self) -> str:
        at = f" at operation {self.operation}" if self.operation else ""
        return f"reducer {self.reducer!r} failed on {self.event_type!r} in thread {self.thread_id!r}{at}: {self.why}"
