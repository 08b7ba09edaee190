"""The exception tree. Every class takes facts; its message says what happened and what to do next.

MemoryEngineError
├── InvalidInput                 refused before anything was written; the log is as it was
│   ├── InvalidEvent             a value that cannot be recorded faithfully
│   ├── EventTooLarge
│   ├── InvalidMessage, NotContinued   a provider's message that cannot become events, a list that does not go on
│   ├── SeqNotInLog              a moment that a thread's history does not have
│   ├── NothingToBisect, InvalidExpression   a predicate that never turns, one that cannot be read
│   ├── CannotRereduce           events that cannot, or need not, be reduced anew
│   ├── CannotQuarantine         a quarantine or a release that would change nothing
│   ├── CannotRewind             a rewind that would change nothing
│   ├── InvalidChange, ModelNotAllowed   an impossible change of a what-if, a model it may not call
│   ├── InvalidRedaction, UnreadableAnchors   a rule that cannot be followed, a file that is not a list of anchors
│   ├── InvalidLabChange         a change file of the regression lab that cannot be used
│   ├── InvalidRetention         a rule that cannot be followed
│   ├── UnknownView, UnknownRow  a view or a row that does not exist
│   ├── UnknownReducer          a reducer to replace that does not exist
│   ├── NoSuchTest               something that cannot become a test
│   ├── UndeclaredEvent          a class without @event
│   ├── UnknownEventClass        an event of a plug-in that the engine was not opened with
│   ├── PluginNotLoaded          a log with events of a plug-in that the engine was not opened with
│   ├── InvalidValue
│   │   ├── InvalidIdentifier, InvalidArgument   an id that cannot be stored, a value that a method does not take
│   │   └── InvalidSearch
│   ├── ScopeRequired            a call that names neither a user nor a tenant, where the engine requires one
│   ├── DuplicateRegistration
│   ├── UntrackedEvents          a projection that lists tracked and untracked events
│   ├── InvalidKey               what cannot be the key of an encrypted store
│   ├── InvalidField
│   │   ├── InvalidPolicy        a compaction policy with an impossible value
│   │   ├── InvalidDocument, InvalidMemory   a document, or an entry of memory, that cannot be taken
│   │   └── InvalidPattern       a pattern that cannot be shared
│   ├── InvalidCompactor         an object that cannot compact
│   ├── MissingExtra, MissingTimeZones   an optional package, or a time zone database, is not installed
│   ├── IngestError              a file's line that is not an event
│   ├── PreferenceError          a preference that the domain does not allow
│   ├── DomainError              a domain with mistakes
│   ├── ScopeNotAllowed          a file that says whose thread it is, and may not
│   ├── InvalidVector
│   ├── InvalidTool              a tool of a model call that is not JSON
│   ├── UnreadableDocument       a file that cannot be read as a document
│   ├── UnknownPattern           a pattern that the tenant does not have
│   ├── UnknownMemory            an entry of memory that cannot be seen
│   ├── BriefFull, UnknownPin    a pin for which the brief has no room, one that it does not hold
│   ├── InvalidParameters        parameters of a tool without a canonical JSON form
│   ├── AnotherQuestionOpen      an answer to another question than the open one
│   ├── UnknownLine, NotText     a line that agent.md does not hold, a file that is not UTF-8 text
│   ├── FileRefused              a path that is a pipe, a device, a link out of its folder; a file that is too large
│   ├── InvalidFilePath, UnknownMemoryFile, MemoryFileExists   of memory files
│   ├── FolderRefused, WorkspaceTooLarge   a folder that is not recorded
│   └── UnknownFlow
├── ThreadError
│   ├── ThreadNotFound
│   ├── ThreadExists
│   ├── ThreadDiffers            opened with other scopes than it has
│   ├── EventNotFound
│   ├── ThreadClosed             archived or deleted
│   └── ThreadHasForks
├── DispatchError
│   ├── IdempotencyConflict
│   ├── Conflict                 the thread holds more than its writer had seen
│   ├── QueueFull
│   ├── ContentionError          other writers won every retry
│   ├── EngineClosed
│   ├── EngineForked             a process that was forked off uses its parent's engine
│   ├── WrongEventLoop           a call from another event loop than the engine's
│   └── ReducerError
│       └── EventRefused         the event does not fit the state
├── InvalidOperation             an operation that the executor refuses
│   ├── UnknownChunk
│   │   └── ForgottenChunk       the log holds it, and it was forgotten
│   ├── DuplicateChunk, ForeignChunkId, UndeclaredChunk, UnplacedChunk
│   ├── ConflictingPosition, ForeignAnchor, NotAContainer, TypeChanged
│   ├── EmptyBatch, RepeatedChunk, ScatteredBatch, CriticalChunk, NestedTooDeep
│   ├── UnknownTask, UnknownItem   a task that does not run, an item that the to-do list does not have
│   └── StaleEvent               it was made from a state that has changed since
├── CompactionError
│   ├── NothingToCompact
│   ├── CompactionNotLive        it cannot be undone or redone now
│   ├── CompactorFailed          it raised, timed out or gave an unusable result
│   └── ModelError               the language model could not be reached, or refused
├── ContextBudgetError
├── ErasureUnfinished            bytes that are still in the file
├── ActFailed, ActRefused        an erasure that failed; one that its asker may not have
├── LegalHold                what was to be destroyed is held
├── CopyRefused              a store with other threads is not copied over
├── ReadOnly, PastIsReadOnly     a write to a read-only engine, or to the past
├── StateNotSent                 the state of a receipt that was pickled
├── PredicateFailed              the predicate of a bisection raised
├── CodeNotLoaded            a module that is needed first now cannot be read: no descriptor is free
├── WorkerFailed                 one of several processes that verify a file
├── NotGranted                   an agent asked for memory that another did not let it see
├── NotJoined                    a tenant asked for patterns of an industry that it has not joined
├── WorkspaceChanged, WorkspaceNotRecorded, ImportedWorkspace   files of a folder that are not restored
├── TaskNotRunning               a step of a run at the wrong moment
├── CallTimedOut                a function of yours did not end in its time
├── WrongThreadKind              a thread made by hand has the id of a scope's
├── RowsNotLoaded                a lazy projection read its rows
├── HeadMoved, EventIdTaken      a store refused a commit; the engine tries again, or raises another error
└── StorageError
    ├── StorageBusy              nothing was applied; try again
    │   └── StorageUnreachable   a server that is away, or was lost while it wrote
    ├── StorageFailed            read-only from here on; reopen
    │   └── StoreReplaced        the file was removed or replaced while it was open
    ├── FileFailed               a file of an export or an import that cannot be written or read
    ├── StorageRefused           one call only: rows of the file are damaged
    ├── KeyNeeded, WrongKey, NotEncrypted   a store without its key, with another one, a key for a plain one
    ├── KeyUnsupported           a key for a store that is not a file
    ├── StoreInUse               a key is not changed while others have the file open
    ├── BackupFailed             a copy that is damaged, or a store that has no file
    ├── SchemaError              the file was written by a newer version, or is not a store
    ├── ImportRefused            a file that is not an export, or not as it was written
    ├── IntegrityError           hash or sequence broken; the thread is read-only
    │   └── EventClassChanged    the log is whole, but an event's class fits it no more
    └── EventDecodeError, UnreadableContent, UnreadableRow   a payload, packed content of one, a row of a view

`memory_engine.cli` and `memory_engine.inspector` have a few errors of their own.
"""

from memory_engine.errors.base import Conflict as Conflict
from memory_engine.errors.base import ContentionError as ContentionError
from memory_engine.errors.base import DispatchError as DispatchError
from memory_engine.errors.base import DuplicateRegistration as DuplicateRegistration
from memory_engine.errors.base import EngineClosed as EngineClosed
from memory_engine.errors.base import EngineForked as EngineForked
from memory_engine.errors.base import EventNotFound as EventNotFound
from memory_engine.errors.base import EventRefused as EventRefused
from memory_engine.errors.base import EventTooLarge as EventTooLarge
from memory_engine.errors.base import IdempotencyConflict as IdempotencyConflict
from memory_engine.errors.base import IngestError as IngestError
from memory_engine.errors.base import InvalidArgument as InvalidArgument
from memory_engine.errors.base import InvalidEvent as InvalidEvent
from memory_engine.errors.base import InvalidField as InvalidField
from memory_engine.errors.base import InvalidIdentifier as InvalidIdentifier
from memory_engine.errors.base import InvalidInput as InvalidInput
from memory_engine.errors.base import InvalidMessage as InvalidMessage
from memory_engine.errors.base import InvalidSearch as InvalidSearch
from memory_engine.errors.base import InvalidTool as InvalidTool
from memory_engine.errors.base import InvalidValue as InvalidValue
from memory_engine.errors.base import MemoryEngineError as MemoryEngineError
from memory_engine.errors.base import MissingExtra as MissingExtra
from memory_engine.errors.base import NotContinued as NotContinued
from memory_engine.errors.base import QueueFull as QueueFull
from memory_engine.errors.base import ReducerError as ReducerError
from memory_engine.errors.base import ScopeRequired as ScopeRequired
from memory_engine.errors.base import SeqNotInLog as SeqNotInLog
from memory_engine.errors.base import ThreadClosed as ThreadClosed
from memory_engine.errors.base import ThreadDiffers as ThreadDiffers
from memory_engine.errors.base import ThreadError as ThreadError
from memory_engine.errors.base import ThreadExists as ThreadExists
from memory_engine.errors.base import ThreadHasForks as ThreadHasForks
from memory_engine.errors.base import ThreadNotFound as ThreadNotFound
from memory_engine.errors.base import UndeclaredEvent as UndeclaredEvent
from memory_engine.errors.base import UnknownEventClass as UnknownEventClass
from memory_engine.errors.base import UntrackedEvents as UntrackedEvents
from memory_engine.errors.base import WrongEventLoop as WrongEventLoop
from memory_engine.errors.effects import ActFailed as ActFailed
from memory_engine.errors.effects import ActRefused as ActRefused
from memory_engine.errors.effects import BackupFailed as BackupFailed
from memory_engine.errors.effects import CallTimedOut as CallTimedOut
from memory_engine.errors.effects import CompactionError as CompactionError
from memory_engine.errors.effects import CompactorFailed as CompactorFailed
from memory_engine.errors.effects import ContextBudgetError as ContextBudgetError
from memory_engine.errors.effects import ErasureUnfinished as ErasureUnfinished
from memory_engine.errors.effects import EventClassChanged as EventClassChanged
from memory_engine.errors.effects import EventDecodeError as EventDecodeError
from memory_engine.errors.effects import EventIdTaken as EventIdTaken
from memory_engine.errors.effects import FileFailed as FileFailed
from memory_engine.errors.effects import FileRefused as FileRefused
from memory_engine.errors.effects import HeadMoved as HeadMoved
from memory_engine.errors.effects import IntegrityError as IntegrityError
from memory_engine.errors.effects import InvalidCompactor as InvalidCompactor
from memory_engine.errors.effects import InvalidKey as InvalidKey
from memory_engine.errors.effects import InvalidPolicy as InvalidPolicy
from memory_engine.errors.effects import KeyNeeded as KeyNeeded
from memory_engine.errors.effects import KeyUnsupported as KeyUnsupported
from memory_engine.errors.effects import LegalHold as LegalHold
from memory_engine.errors.effects import ModelError as ModelError
from memory_engine.errors.effects import NotEncrypted as NotEncrypted
from memory_engine.errors.effects import NothingToCompact as NothingToCompact
from memory_engine.errors.effects import SchemaError as SchemaError
from memory_engine.errors.effects import StorageBusy as StorageBusy
from memory_engine.errors.effects import StorageError as StorageError
from memory_engine.errors.effects import StorageFailed as StorageFailed
from memory_engine.errors.effects import StorageRefused as StorageRefused
from memory_engine.errors.effects import StorageUnreachable as StorageUnreachable
from memory_engine.errors.effects import StoreInUse as StoreInUse
from memory_engine.errors.effects import StoreReplaced as StoreReplaced
from memory_engine.errors.effects import UnreadableContent as UnreadableContent
from memory_engine.errors.effects import UnreadableRow as UnreadableRow
from memory_engine.errors.effects import WrongKey as WrongKey
from memory_engine.errors.operations import ConflictingPosition as ConflictingPosition
from memory_engine.errors.operations import CriticalChunk as CriticalChunk
from memory_engine.errors.operations import DuplicateChunk as DuplicateChunk
from memory_engine.errors.operations import EmptyBatch as EmptyBatch
from memory_engine.errors.operations import ForeignAnchor as ForeignAnchor
from memory_engine.errors.operations import ForeignChunkId as ForeignChunkId
from memory_engine.errors.operations import ForgottenChunk as ForgottenChunk
from memory_engine.errors.operations import InvalidOperation as InvalidOperation
from memory_engine.errors.operations import NestedTooDeep as NestedTooDeep
from memory_engine.errors.operations import NotAContainer as NotAContainer
from memory_engine.errors.operations import RepeatedChunk as RepeatedChunk
from memory_engine.errors.operations import ScatteredBatch as ScatteredBatch
from memory_engine.errors.operations import StaleEvent as StaleEvent
from memory_engine.errors.operations import TypeChanged as TypeChanged
from memory_engine.errors.operations import UndeclaredChunk as UndeclaredChunk
from memory_engine.errors.operations import UnknownChunk as UnknownChunk
from memory_engine.errors.operations import UnknownItem as UnknownItem
from memory_engine.errors.operations import UnknownTask as UnknownTask
from memory_engine.errors.operations import UnplacedChunk as UnplacedChunk
from memory_engine.errors.replay import CannotQuarantine as CannotQuarantine
from memory_engine.errors.replay import CannotRereduce as CannotRereduce
from memory_engine.errors.replay import CannotRewind as CannotRewind
from memory_engine.errors.replay import CodeNotLoaded as CodeNotLoaded
from memory_engine.errors.replay import CompactionNotLive as CompactionNotLive
from memory_engine.errors.replay import CopyRefused as CopyRefused
from memory_engine.errors.replay import ImportRefused as ImportRefused
from memory_engine.errors.replay import InvalidChange as InvalidChange
from memory_engine.errors.replay import InvalidExpression as InvalidExpression
from memory_engine.errors.replay import InvalidLabChange as InvalidLabChange
from memory_engine.errors.replay import InvalidRedaction as InvalidRedaction
from memory_engine.errors.replay import InvalidRetention as InvalidRetention
from memory_engine.errors.replay import MissingTimeZones as MissingTimeZones
from memory_engine.errors.replay import ModelNotAllowed as ModelNotAllowed
from memory_engine.errors.replay import NoSuchTest as NoSuchTest
from memory_engine.errors.replay import NothingToBisect as NothingToBisect
from memory_engine.errors.replay import PastIsReadOnly as PastIsReadOnly
from memory_engine.errors.replay import PluginNotLoaded as PluginNotLoaded
from memory_engine.errors.replay import PredicateFailed as PredicateFailed
from memory_engine.errors.replay import ReadOnly as ReadOnly
from memory_engine.errors.replay import ScopeNotAllowed as ScopeNotAllowed
from memory_engine.errors.replay import StateNotSent as StateNotSent
from memory_engine.errors.replay import UnknownReducer as UnknownReducer
from memory_engine.errors.replay import UnknownRow as UnknownRow
from memory_engine.errors.replay import UnknownView as UnknownView
from memory_engine.errors.replay import UnreadableAnchors as UnreadableAnchors
from memory_engine.errors.replay import WorkerFailed as WorkerFailed
from memory_engine.errors.views import AnotherQuestionOpen as AnotherQuestionOpen
from memory_engine.errors.views import BriefFull as BriefFull
from memory_engine.errors.views import DomainError as DomainError
from memory_engine.errors.views import InvalidDocument as InvalidDocument
from memory_engine.errors.views import InvalidFilePath as InvalidFilePath
from memory_engine.errors.views import InvalidMemory as InvalidMemory
from memory_engine.errors.views import InvalidParameters as InvalidParameters
from memory_engine.errors.views import InvalidPattern as InvalidPattern
from memory_engine.errors.views import InvalidVector as InvalidVector
from memory_engine.errors.views import MemoryFileExists as MemoryFileExists
from memory_engine.errors.views import NotGranted as NotGranted
from memory_engine.errors.views import NotJoined as NotJoined
from memory_engine.errors.views import NotText as NotText
from memory_engine.errors.views import PreferenceError as PreferenceError
from memory_engine.errors.views import RowsNotLoaded as RowsNotLoaded
from memory_engine.errors.views import TaskNotRunning as TaskNotRunning
from memory_engine.errors.views import UnknownFlow as UnknownFlow
from memory_engine.errors.views import UnknownLine as UnknownLine
from memory_engine.errors.views import UnknownMemory as UnknownMemory
from memory_engine.errors.views import UnknownMemoryFile as UnknownMemoryFile
from memory_engine.errors.views import UnknownPattern as UnknownPattern
from memory_engine.errors.views import UnknownPin as UnknownPin
from memory_engine.errors.views import UnreadableDocument as UnreadableDocument
from memory_engine.errors.views import WrongThreadKind as WrongThreadKind
from memory_engine.errors.workspace import FolderRefused as FolderRefused
from memory_engine.errors.workspace import ImportedWorkspace as ImportedWorkspace
from memory_engine.errors.workspace import WorkspaceChanged as WorkspaceChanged
from memory_engine.errors.workspace import WorkspaceNotRecorded as WorkspaceNotRecorded
from memory_engine.errors.workspace import WorkspaceTooLarge as WorkspaceTooLarge
