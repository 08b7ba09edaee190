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

from memory_engine.errors.base import (
    MemoryEngineError,
)
from memory_engine.errors.dispatching import (
    ContentionError,
    DispatchError,
    EngineClosed,
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
    MissingExtra,
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
    TypeChanged,
    UndeclaredChunk,
    UnknownChunk,
    UnplacedChunk,
)

__all__ = [
    "CompactionError",
    "CompactorFailed",
    "ConflictingPosition",
    "ContentionError",
    "ContextBudgetError",
    "CriticalChunk",
    "DispatchError",
    "DuplicateChunk",
    "DuplicateRegistration",
    "EmptyBatch",
    "EngineClosed",
    "EventDecodeError",
    "EventTooLarge",
    "ForeignAnchor",
    "ForeignChunkId",
    "IdempotencyConflict",
    "IngestError",
    "IntegrityError",
    "InvalidEvent",
    "InvalidIdentifier",
    "InvalidInput",
    "InvalidOperation",
    "MemoryEngineError",
    "MissingExtra",
    "ModelError",
    "NestedTooDeep",
    "NotAContainer",
    "NothingToCompact",
    "QueueFull",
    "ReducerError",
    "RepeatedChunk",
    "ScatteredBatch",
    "SchemaError",
    "StorageBusy",
    "StorageError",
    "StorageFailed",
    "ThreadClosed",
    "ThreadError",
    "ThreadExists",
    "ThreadHasForks",
    "ThreadNotFound",
    "TypeChanged",
    "UndeclaredChunk",
    "UndeclaredEvent",
    "UnknownChunk",
    "UnplacedChunk",
]
