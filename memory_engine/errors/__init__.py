"""The exception tree. Every class takes facts, says what happened and what to do next.

MemoryEngineError
├── InvalidInput                 refused before anything was written; the log is as it was
│   ├── InvalidEvent             a value that cannot be recorded faithfully
│   ├── EventTooLarge
│   ├── SeqNotInLog              a moment that a thread's history does not have
│   ├── NothingToBisect, InvalidExpression   a predicate that does not turn, one that cannot be read
│   ├── InvalidChange, ModelNotAllowed   what a what-if cannot change, a model it was not told to call
│   ├── InvalidRedaction, UnreadableAnchors   what cannot be taken out of a log, a file that is no list of anchors
│   ├── UnknownView, UnknownRow  what cannot be looked at or rebuilt
│   ├── NoSuchTest               what no test can be made of
│   ├── UndeclaredEvent          a class without @event
│   ├── InvalidIdentifier
│   ├── DuplicateRegistration
│   ├── MissingExtra             an optional package is not installed
│   ├── IngestError              a file's line that is no event
│   ├── PreferenceError          what the domain does not allow
│   ├── DomainError              a domain with mistakes
│   ├── InvalidVector, InvalidSearch
│   ├── InvalidDocument, UnreadableDocument   what no document can be, what none can be read from
│   ├── InvalidPattern, UnknownPattern   what cannot be shared, what a tenant does not share
│   ├── InvalidMemory, UnknownMemory   what no layer can take, an entry that cannot be seen
│   ├── InvalidParameters        of a tool, that no canonical JSON can stand for
│   ├── AnotherQuestionOpen      an answer to a question that is not the open one
│   ├── UnknownLine, NotText     what agent.md does not hold, what it cannot be read from
│   └── UnknownFlow
├── ThreadError
│   ├── ThreadNotFound
│   ├── ThreadExists
│   ├── EventNotFound
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
│   ├── EmptyBatch, RepeatedChunk, ScatteredBatch, CriticalChunk, NestedTooDeep
│   └── StaleEvent               it was made of a state that others have changed since
├── CompactionError
│   ├── NothingToCompact
│   ├── CompactionNotLive        it cannot be undone or redone now
│   ├── CompactorFailed          it raised, timed out or gave what cannot be used
│   └── ModelError               the language model could not be reached, or refused
├── ContextBudgetError
├── ReadOnly, PastIsReadOnly     a write where one only looks
├── PredicateFailed              what a bisection asks raised
├── WorkerFailed                 one of several processes that verify a file
├── NotGranted                   an agent asked for memory that another did not let it see
├── NotJoined                    a tenant asked for patterns of an industry that it is not in
├── TaskNotRunning               a step of a run at the wrong moment
└── StorageError
    ├── StorageBusy              nothing was applied; try again
    ├── StorageFailed            read-only from here on; reopen
    ├── SchemaError              the file was written by a newer version, or is no store
    ├── ImportRefused            a file that is no export, or not as it was written
    ├── IntegrityError           hash or sequence broken; the thread is read-only
    └── EventDecodeError
"""

from memory_engine.errors.base import (
    MemoryEngineError,
)
from memory_engine.errors.dispatching import (
    ContentionError,
    DispatchError,
    EngineClosed,
    EventNotFound,
    IdempotencyConflict,
    QueueFull,
    ReducerError,
    ThreadClosed,
    ThreadError,
    ThreadExists,
    ThreadHasForks,
    ThreadNotFound,
)
from memory_engine.errors.effects import (
    CompactionError,
    CompactorFailed,
    ContextBudgetError,
    EventDecodeError,
    IntegrityError,
    ModelError,
    NothingToCompact,
    SchemaError,
    StorageBusy,
    StorageError,
    StorageFailed,
)
from memory_engine.errors.inputs import (
    DuplicateRegistration,
    EventTooLarge,
    IngestError,
    InvalidEvent,
    InvalidIdentifier,
    InvalidInput,
    InvalidSearch,
    MissingExtra,
    SeqNotInLog,
    UndeclaredEvent,
)
from memory_engine.errors.operations import (
    ConflictingPosition,
    CriticalChunk,
    DuplicateChunk,
    EmptyBatch,
    ForeignAnchor,
    ForeignChunkId,
    InvalidOperation,
    NestedTooDeep,
    NotAContainer,
    RepeatedChunk,
    ScatteredBatch,
    StaleEvent,
    TypeChanged,
    UndeclaredChunk,
    UnknownChunk,
    UnplacedChunk,
)
from memory_engine.errors.patterns import (
    InvalidPattern,
    NotJoined,
    UnknownPattern,
)
from memory_engine.errors.replaying import (
    CompactionNotLive,
    ImportRefused,
    InvalidChange,
    InvalidExpression,
    InvalidRedaction,
    ModelNotAllowed,
    NoSuchTest,
    NothingToBisect,
    PastIsReadOnly,
    PredicateFailed,
    ReadOnly,
    UnknownRow,
    UnknownView,
    UnreadableAnchors,
    WorkerFailed,
)
from memory_engine.errors.views import (
    AnotherQuestionOpen,
    DomainError,
    InvalidDocument,
    InvalidMemory,
    InvalidParameters,
    InvalidVector,
    NotGranted,
    NotText,
    PreferenceError,
    RowsNotLoaded,
    TaskNotRunning,
    UnknownFlow,
    UnknownLine,
    UnknownMemory,
    UnreadableDocument,
    WrongThreadKind,
)

__all__ = [
    "AnotherQuestionOpen",
    "CompactionError",
    "CompactionNotLive",
    "CompactorFailed",
    "ConflictingPosition",
    "ContentionError",
    "ContextBudgetError",
    "CriticalChunk",
    "DispatchError",
    "DomainError",
    "DuplicateChunk",
    "DuplicateRegistration",
    "EmptyBatch",
    "EngineClosed",
    "EventDecodeError",
    "EventNotFound",
    "EventTooLarge",
    "ForeignAnchor",
    "ForeignChunkId",
    "IdempotencyConflict",
    "ImportRefused",
    "IngestError",
    "IntegrityError",
    "InvalidChange",
    "InvalidDocument",
    "InvalidEvent",
    "InvalidExpression",
    "InvalidIdentifier",
    "InvalidInput",
    "InvalidMemory",
    "InvalidOperation",
    "InvalidParameters",
    "InvalidPattern",
    "InvalidRedaction",
    "InvalidSearch",
    "InvalidVector",
    "MemoryEngineError",
    "MissingExtra",
    "ModelError",
    "ModelNotAllowed",
    "NestedTooDeep",
    "NoSuchTest",
    "NotAContainer",
    "NotGranted",
    "NotJoined",
    "NotText",
    "NothingToBisect",
    "NothingToCompact",
    "PastIsReadOnly",
    "PredicateFailed",
    "PreferenceError",
    "QueueFull",
    "ReadOnly",
    "ReducerError",
    "RepeatedChunk",
    "RowsNotLoaded",
    "ScatteredBatch",
    "SchemaError",
    "SeqNotInLog",
    "StaleEvent",
    "StorageBusy",
    "StorageError",
    "StorageFailed",
    "TaskNotRunning",
    "ThreadClosed",
    "ThreadError",
    "ThreadExists",
    "ThreadHasForks",
    "ThreadNotFound",
    "TypeChanged",
    "UndeclaredChunk",
    "UndeclaredEvent",
    "UnknownChunk",
    "UnknownFlow",
    "UnknownLine",
    "UnknownMemory",
    "UnknownPattern",
    "UnknownRow",
    "UnknownView",
    "UnplacedChunk",
    "UnreadableAnchors",
    "UnreadableDocument",
    "WorkerFailed",
    "WrongThreadKind",
]
