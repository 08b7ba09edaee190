"""Errors of compaction, context and storage, and of files of this package."""

import msgspec

from memory_engine.errors.base import (
    InvalidField,
    InvalidInput,
    MemoryEngineError,
    cut,
    facts,
    is_url,
    shown_place,
)


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens used by a model call, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def plus(self, other: "Usage") -> "Usage":
        """The sum of both."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
        )


class InvalidPolicy(InvalidField, ValueError):
    """A field of a `CompactionPolicy` with an impossible value."""

    def __str__(self) -> str:
        return f"CompactionPolicy.{self.field} cannot be {cut(str(self.value))}: {self.why}"


@facts
class InvalidKey(InvalidInput):
    """The given key cannot be one. The message does not repeat it."""

    why: str

    template = "the key cannot be used: {why}"


@facts
class InvalidCompactor(InvalidInput):
    """An object that cannot compact."""

    given: str
    why: str

    def __str__(self) -> str:
        return f"{cut(self.given)} is not a compactor: {self.why}"


@facts
class ErasureUnfinished(MemoryEngineError):
    """The content that you asked to destroy is out of every row, but its bytes may still be in the file."""

    act: str
    why: str

    template = (
        "act {act}: nothing shows it any more, but its bytes may still be in the file: {why}; "
        "the next process that opens the store goes on with it, and so does `engine.admin.finish_acts`"
    )


@facts
class ActRefused(MemoryEngineError):
    """An act names what whoever asked for it may not reach. Nothing was destroyed."""

    act: str
    role: str
    thread_id: str

    template = (
        "act {act} was asked for by role {role!r}, which may destroy nothing of thread "
        "{thread_id!r}: nothing was destroyed; let a role ask for it that may (docs/how-to/postgresql.md)"
    )


@facts
class ActFailed(MemoryEngineError):
    """An erasure or a deletion failed, and is not done. After three failures it `is_given_up`.

    What it had destroyed before it failed stays destroyed.
    """

    act: str
    kind: str
    failures: int
    why: str
    is_given_up: bool

    def __str__(self) -> str:
        onward = (
            "it is not tried any more: mend the cause, then call `engine.admin.finish_acts(retry_failed=True)`"
            if self.is_given_up
            else "the next process that opens the store tries it again, and so does `engine.admin.finish_acts`"
        )
        times = "once" if self.failures == 1 else f"{self.failures} times"
        return f"act {self.act} ({self.kind}) is not done, it has failed {times}: {self.why}; {onward}"


@facts
class LegalHold(MemoryEngineError):
    """Something to be destroyed is held. It was not destroyed, and neither was anything else in the act."""

    thread_id: str
    hold: str
    scope: str
    by: str = ""
    reason: str = ""

    def __str__(self) -> str:
        whose = f" by {self.by}" if self.by else ""
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"thread {self.thread_id!r} is held{whose}{why}: hold {self.hold} on {self.scope} has to be released "
            "before anything of it is destroyed; `forget` hides, and destroys nothing"
        )


class CompactionError(MemoryEngineError):
    """A compaction that replaced nothing."""


@facts
class NothingToCompact(CompactionError):
    """No cut would make the state smaller."""

    thread_id: str
    why: str

    template = "nothing to compact in thread {thread_id!r}: {why}"


@facts
class CompactorFailed(CompactionError):
    """The compactor raised, timed out, or gave an unusable result. The originals stay."""

    compactor: str
    reason: str
    error: str
    usage: Usage = Usage()

    template = "compactor {compactor!r} failed ({reason}): {error}; the originals stand"


@facts
class ModelError(CompactionError):
    """The language model gave no usable answer.

    `reason`: timeout, rate_limited, unavailable, refused, truncated, authentication, context_window, bad_request or
    invalid_response; or the class name of another error that your own model raised. `retryable` says whether a retry
    may help, `usage` counts the tokens of the unusable answers.
    """

    model: str
    reason: str
    error: str
    retryable: bool = False
    usage: Usage = Usage()

    template = "model {model!r}: {reason}: {error}"


@facts
class ContextBudgetError(MemoryEngineError):
    """The chunks that a context must hold do not fit into the token budget."""

    thread_id: str
    needed: int
    max_tokens: int

    template = (
        "thread {thread_id!r} needs {needed} tokens for its instructions, its CRITICAL chunks, the "
        "message being worked on and part of what followed; max_tokens is {max_tokens}: raise it, or shorten "
        "these"
    )


class StorageError(MemoryEngineError):
    """The store could not do what you asked. No error shows the password in a store's URL."""

    def _taken(self, values: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        taken = zip(self.__match_args__, super()._taken(values, named), strict=True)
        return tuple(
            shown_place(value) if name in ("path", "why") and isinstance(value, str) else value for name, value in taken
        )


@facts
class StorageBusy(StorageError):
    """Another process held the file past the timeout. Nothing was applied."""

    path: str
    waited_s: float

    template = "{path} was locked by another process for {waited_s:.1f} s; nothing was applied, try again"


@facts
class StorageUnreachable(StorageBusy):
    """The database server could not be reached within the timeout, or was lost during a write.

    With `is_unknown` the call may have been applied: retry with the same event ids, and it is applied once.
    """

    path: str
    waited_s: float
    why: str
    is_unknown: bool = False

    def __str__(self) -> str:
        outcome = (
            "whether it was applied is not known: dispatch again with the same event ids"
            if self.is_unknown
            else "nothing was applied, try again"
        )
        return f"{self.path} could not be reached for {self.waited_s:.1f} s ({self.why}); {outcome}"


@facts
class StorageFailed(StorageError):
    """The disk or the file failed. The store is read-only; acknowledged commits stay readable."""

    path: str
    why: str

    template = "{path}: {why}; nothing can be written: mend the cause, then open it again"


@facts
class FileFailed(StorageError):
    """A file of an export, an import or anchors could not be written or read. The store has not changed."""

    path: str
    why: str

    template = "{path}: {why}; the store is as it was: mend the cause, then call again"


@facts
class StorageRefused(StorageError):
    """The file refused one call, and continues: a row of it, or of an index, is damaged."""

    path: str
    why: str

    template = (
        "{path}: {why}; nothing was written. Other threads go on; `memory-engine verify` says what is "
        "damaged, `memory-engine rebuild` makes rows and indexes again"
    )


@facts
class StoreReplaced(StorageFailed):
    """The file of an open store was removed, moved or replaced. Unacknowledged events may be lost with it."""

    path: str
    why: str

    template = (
        "{path}: {why} while it was open, so nothing more is written; what was acknowledged is in the "
        "file that was there and its -wal. Close the store, put both back, or a backup without the -wal and -shm "
        "that lie there, and open it again"
    )


@facts
class KeyNeeded(StorageError):
    """The file is encrypted, and no key was given. Nothing was changed."""

    path: str

    template = (
        "{path} is encrypted, or not a store at all: give its key, memory_engine.open(..., key=...), or at "
        "the command line --key-file or --key-env. Nothing was changed"
    )


@facts
class WrongKey(StorageError):
    """The key does not open the file. Nothing was changed."""

    path: str

    template = (
        "{path}: this key does not open it. Give the key that it was encrypted with; if that is this one, "
        "the beginning of the file is damaged: put a backup back. Nothing was changed"
    )


@facts
class NotEncrypted(StorageError):
    """A key was given for a file that is not encrypted. Nothing was changed."""

    path: str

    template = (
        "{path} is not encrypted, and a key was given: open it without one, or encrypt it first, with "
        "`memory-engine rekey` or `engine.admin.rekey`. Nothing was changed"
    )


@facts
class KeyUnsupported(StorageError):
    """A key was given for a store that is not a file. Nothing was opened."""

    path: str

    def __str__(self) -> str:
        if is_url(self.path):
            why = (
                "a database server encrypts its own files: put its volumes on encrypted disks, or use the transparent "
                "data encryption of a server that has one, and connect with sslmode=verify-full "
                "(docs/how-to/encryption.md)"
            )
        elif self.path == ":memory:":
            why = "a store in memory is never written to a disk"
        else:
            why = "it is not a file of this package: whatever keeps it on a disk has to encrypt it"
        return f"{self.path} takes no key: {why}"


@facts
class StoreInUse(StorageError):
    """Another process, or another engine of this one, has the file open. Nothing was changed."""

    path: str

    template = (
        "{path} is open elsewhere, in another process or by another engine of this one (a backup counts "
        "too): close it there, then try again. Nothing was changed"
    )


@facts
class BackupFailed(StorageError):
    """A store could not be copied. There is no backup at that path."""

    path: str
    why: str

    template = "{path}: no backup was made: {why}"


@facts
class SchemaError(StorageError):
    """The file is not a store that this version can use."""

    path: str
    why: str

    template = "{path}: {why}"


@facts
class PlaceInLog:
    """What is wrong at an event of a thread. Errors of several families say it."""

    thread_id: str
    seq: int
    why: str


@facts
class IntegrityError(PlaceInLog, StorageError):
    """The log is broken. The thread is read-only; export still works."""

    template = (
        "thread {thread_id!r} is broken at seq {seq}: {why}; put a backup of the store back (an "
        "export still works, and so does reading it as of an earlier seq), then run `memory-engine verify`"
    )


@facts
class EventClassChanged(IntegrityError):
    """An event's class fits no more what it recorded under the same version. The log is whole, the class is wrong.

    `field` is the field in the way, such as `currency` or `items[0].price`; empty if it is the whole event.
    """

    event_type: str
    version: int
    field: str

    def __str__(self) -> str:
        given = f"Give a new field, here {self.field!r}, a default" if self.field else "Give new fields a default"
        return (
            f"event {self.event_type!r} version {self.version}, at seq {self.seq} of thread {self.thread_id!r}, does "
            f"not fit its class here: {self.why}. The log is whole, its class has changed. {given}; for any other "
            f"change raise the class's version, and register an upcaster from version {self.version} "
            "(docs/how-to/write-a-reducer.md)"
        )


@facts
class UnreadableRow(StorageError):
    """A stored row of a view cannot be read."""

    row: str
    key: str
    why: str

    template = "row {key!r} of a view ({row}) cannot be read: {why}; run `memory-engine rebuild`"


@facts
class UnreadableContent(StorageError, ValueError):
    """Packed content of an event is damaged, or too large to unpack. The log itself is whole."""

    what: str
    why: str

    template = "{what} cannot be read: {why}; the log is whole, and the event that holds it can be erased"


@facts
class EventDecodeError(StorageError):
    """A stored payload does not fit its schema, or its type is unknown here."""

    event_type: str
    version: int
    why: str

    template = "event {event_type!r} version {version} cannot be decoded: {why}"


class HeadMoved(MemoryEngineError):
    """Another writer committed first: (seq, epoch) are not the expected ones. Nothing was written."""

    template = "another writer's commit came first; nothing was written: read the thread's head, then commit again"


class EventIdTaken(MemoryEngineError):
    """An event id is already in the thread's own log, or twice in the unit. Nothing was written."""

    template = "an event id is in the thread's log already; nothing was written: give each event an id of its own"


@facts
class FileRefused(InvalidInput, OSError):
    """A path does not name a file that is read: it is a pipe, a device, a link out of its folder, or too large."""

    path: str
    why: str

    template = "{path} is not read: {why}; give a regular file"


@facts
class CallTimedOut(MemoryEngineError, TimeoutError):
    """A function of yours did not end in its time. It was cancelled, and nothing of it was kept."""

    what: str
    timeout_s: float

    template = (
        "{what} did not end within {timeout_s:g} s; give it more time "
        "(`EngineConfig(call_timeout_s=...)`, `inf` for as long as it takes), or have it end by itself"
    )
