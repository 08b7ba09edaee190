"""The exception tree. Every class takes facts, says what happened and what to do next.

MemoryEngineError
├── InvalidInput                 refused before anything was written; the log is as it was
│   ├── InvalidEvent             a value that cannot be recorded faithfully
│   ├── EventTooLarge
│   ├── UndeclaredEvent          a class without @event
│   ├── InvalidIdentifier
│   ├── DuplicateRegistration
│   ├── MissingExtra             an optional package is not installed
│   └── IngestError              a file's line that is no event
├── ThreadError
│   ├── ThreadNotFound
│   ├── ThreadExists
│   ├── ThreadClosed             archived or deleted
│   └── ThreadHasForks
├── DispatchError
│   ├── IdempotencyConflict
│   ├── QueueFull
│   ├── ContentionError          other writers won every retry
│   ├── EngineClosed
│   └── ReducerError
├── InvalidOperation             what the executor refuses
│   ├── UnknownChunk, DuplicateChunk, ForeignChunkId, UndeclaredChunk, UnplacedChunk
│   ├── ConflictingPosition, ForeignAnchor, NotAContainer, TypeChanged
│   └── EmptyBatch, RepeatedChunk, ScatteredBatch, CriticalChunk, NestedTooDeep
├── CompactionError
│   ├── NothingToCompact
│   ├── CompactorFailed          it raised, timed out or gave what cannot be used
│   └── ModelError               the language model could not be reached, or refused
├── ContextBudgetError
└── StorageError
    ├── StorageBusy              nothing was applied; try again
    ├── StorageFailed            read-only from here on; reopen
    ├── SchemaError              the file was written by a newer version, or is no store
    ├── IntegrityError           hash or sequence broken; the thread is read-only
    └── EventDecodeError
"""

from attrs import frozen


class MemoryEngineError(Exception):
    """Base of all errors of this package."""


class InvalidInput(MemoryEngineError):
    """Refused before anything was written."""


@frozen
class InvalidEvent(InvalidInput):
    """The event holds a value that the log could not give back as it is."""

    event_type: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"event {self.event_type!r} cannot be recorded: {self.why} at {self.where}; nothing was written"


@frozen
class EventTooLarge(InvalidInput):
    """The encoded payload is over the hard limit."""

    event_type: str
    bytes: int
    limit: int

    def __str__(self) -> str:
        return (
            f"event {self.event_type!r} takes {self.bytes} bytes, over the limit of {self.limit}; "
            "store the body elsewhere and dispatch a reference, or raise `event_bytes_max`"
        )


@frozen
class UndeclaredEvent(InvalidInput):
    """A class that is no declared event."""

    name: str

    def __str__(self) -> str:
        return f"{self.name} has no wire name; declare it with @event('name') above the class"


@frozen
class InvalidIdentifier(InvalidInput):
    """A thread id, event id or scope that cannot be stored or compared safely."""

    what: str
    value: str
    why: str

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 60 else self.value[:57] + "..."
        return f"{self.what} {shown!r} is not usable: {self.why}"


@frozen
class DuplicateRegistration(InvalidInput):
    """Two registrations under one name: the later would silently win."""

    what: str
    name: str

    def __str__(self) -> str:
        return f"{self.what} {self.name!r} is registered already; register under another name, or replace it by name"


@frozen
class MissingExtra(InvalidInput):
    """A feature needs an optional package."""

    feature: str
    extra: str

    def __str__(self) -> str:
        return f"{self.feature} needs an optional package: pip install 'memory-engine[{self.extra}]'"


@frozen
class IngestError(InvalidInput):
    """A place in a file that is no event."""

    path: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}"


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
        return f"thread {self.thread_id!r} exists already; open it with engine.thread({self.thread_id!r})"


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


class InvalidOperation(MemoryEngineError):
    """An operation that does not fit the state. The state is as it was."""


@frozen
class UnknownChunk(InvalidOperation):
    """The operation names a chunk that is not in the state."""

    operation: str
    chunk_id: str

    def __str__(self) -> str:
        return f"{self.operation}: chunk {self.chunk_id!r} is not in the state"


@frozen
class DuplicateChunk(InvalidOperation):
    """The chunk is in the state already."""

    operation: str
    chunk_id: str

    def __str__(self) -> str:
        return f"{self.operation}: chunk {self.chunk_id!r} is in the state already"


@frozen
class ForeignChunkId(InvalidOperation):
    """A new chunk whose id was not derived from its event."""

    chunk_id: str

    def __str__(self) -> str:
        return f"chunk id {self.chunk_id!r} was not derived from the event; take ids from ctx.new_id()"


@frozen
class UndeclaredChunk(InvalidOperation):
    """The operation places a chunk that the reduction does not carry."""

    operation: str
    chunk_id: str

    def __str__(self) -> str:
        return f"{self.operation}: the reduction carries no chunk {self.chunk_id!r}; add it to Reduction.chunks"


@frozen
class UnplacedChunk(InvalidOperation):
    """The reduction carries a chunk that no operation places."""

    chunk_id: str

    def __str__(self) -> str:
        return f"chunk {self.chunk_id!r} is carried by the reduction but placed by no operation"


@frozen
class ConflictingPosition(InvalidOperation):
    """More than one of `before`, `after` and `first` was given."""

    operation: str
    chunk_id: str

    def __str__(self) -> str:
        return f"{self.operation} of {self.chunk_id!r}: give at most one of before, after and first"


@frozen
class ForeignAnchor(InvalidOperation):
    """The anchor stands in another container, or is the chunk itself."""

    operation: str
    chunk_id: str
    anchor_id: str

    def __str__(self) -> str:
        return f"{self.operation} of {self.chunk_id!r}: {self.anchor_id!r} does not stand beside it"


@frozen
class NotAContainer(InvalidOperation):
    """Children go into chunks that are containers."""

    operation: str
    chunk_id: str

    def __str__(self) -> str:
        return f"{self.operation}: chunk {self.chunk_id!r} is no container (Chunk.is_container)"


@frozen
class TypeChanged(InvalidOperation):
    """UPDATE keeps a chunk's type; REPLACE may change it."""

    chunk_id: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"UPDATE of {self.chunk_id!r} changes its type from {self.old!r} to {self.new!r}; use REPLACE"


@frozen
class EmptyBatch(InvalidOperation):
    """A BATCH or BATCH_REPLACE of nothing."""

    operation: str

    def __str__(self) -> str:
        return f"{self.operation} names nothing"


@frozen
class RepeatedChunk(InvalidOperation):
    """A chunk is named twice in one operation."""

    operation: str
    chunk_id: str

    def __str__(self) -> str:
        return f"{self.operation} names chunk {self.chunk_id!r} twice"


@frozen
class ScatteredBatch(InvalidOperation):
    """BATCH_REPLACE covers chunks of one container only."""

    chunk_id: str
    other_id: str

    def __str__(self) -> str:
        return f"BATCH_REPLACE: chunks {self.chunk_id!r} and {self.other_id!r} stand in different containers"


@frozen
class CriticalChunk(InvalidOperation):
    """CRITICAL chunks are never compacted."""

    chunk_id: str

    def __str__(self) -> str:
        return f"BATCH_REPLACE: chunk {self.chunk_id!r} is CRITICAL and cannot be compacted"


@frozen
class NestedTooDeep(InvalidOperation):
    """BATCH within BATCH beyond any use."""

    limit: int

    def __str__(self) -> str:
        return f"BATCH is nested more than {self.limit} deep"


class CompactionError(MemoryEngineError):
    """A compaction that replaced nothing."""


@frozen
class NothingToCompact(CompactionError):
    """No cut would make the state smaller."""

    thread_id: str
    why: str

    def __str__(self) -> str:
        return f"nothing to compact in thread {self.thread_id!r}: {self.why}"


@frozen
class CompactorFailed(CompactionError):
    """The compactor raised, timed out, or gave what cannot be used. The originals stand."""

    compactor: str
    reason: str
    error: str

    def __str__(self) -> str:
        return f"compactor {self.compactor!r} failed ({self.reason}): {self.error}; the originals stand"


@frozen
class ModelError(CompactionError):
    """The language model gave no usable answer. `retryable` says whether trying again may help."""

    model: str
    reason: str
    error: str
    retryable: bool = False

    def __str__(self) -> str:
        return f"model {self.model!r}: {self.reason}: {self.error}"


@frozen
class ContextBudgetError(MemoryEngineError):
    """What must be in the context does not fit into the budget."""

    thread_id: str
    needed: int
    max_tokens: int

    def __str__(self) -> str:
        return (
            f"thread {self.thread_id!r} needs {self.needed} tokens for its CRITICAL chunks and newest exchange, "
            f"max_tokens is {self.max_tokens}; raise max_tokens or shorten what is CRITICAL"
        )


class StorageError(MemoryEngineError):
    """The store could not do it."""


@frozen
class StorageBusy(StorageError):
    """Another process held the file past the timeout. Nothing was applied."""

    path: str
    waited_s: float

    def __str__(self) -> str:
        return f"{self.path} was locked by another process for {self.waited_s:.1f} s; nothing was applied, try again"


@frozen
class StorageFailed(StorageError):
    """The disk or the file failed. The store is read-only; what was acknowledged is readable."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; the store is read-only now. Mend the cause, then open it again"


@frozen
class SchemaError(StorageError):
    """The file is not a store this version can use."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@frozen
class IntegrityError(StorageError):
    """The log does not hold together. The thread is read-only; export still works."""

    thread_id: str
    seq: int
    why: str

    def __str__(self) -> str:
        return f"thread {self.thread_id!r} is broken at seq {self.seq}: {self.why}; run `memory-engine verify`"


@frozen
class EventDecodeError(StorageError):
    """A stored payload does not fit its schema, or its type is not known here."""

    event_type: str
    version: int
    why: str

    def __str__(self) -> str:
        return f"event {self.event_type!r} version {self.version} cannot be decoded: {self.why}"
