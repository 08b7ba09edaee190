"""What goes wrong while one looks back."""

from attrs import frozen

from memory_engine.errors.base import MemoryEngineError
from memory_engine.errors.effects import CompactionError, StorageError
from memory_engine.errors.inputs import InvalidInput


@frozen
class ReadOnly(MemoryEngineError):
    """The engine was opened only to look."""

    what: str

    def __str__(self) -> str:
        return f"this engine only reads ({self.what} would write): open it without EngineConfig(read_only=True)"


@frozen
class PastIsReadOnly(MemoryEngineError):
    """A write was asked of the past."""

    thread_id: str
    seq: int
    what: str

    def __str__(self) -> str:
        return (
            f"thread {self.thread_id!r} as it was after event {self.seq} takes no {self.what}: ask the thread itself, "
            f"or fork it there (`thread.fork({self.seq})`)"
        )


@frozen
class NothingToBisect(InvalidInput):
    """The predicate does not turn true within the range."""

    thread_id: str
    after: int
    upto: int
    why: str

    def __str__(self) -> str:
        return f"between events {self.after} and {self.upto} of thread {self.thread_id!r} nothing turns: {self.why}"


@frozen
class InvalidExpression(InvalidInput):
    """An expression of a command that cannot be evaluated."""

    expression: str
    why: str

    def __str__(self) -> str:
        return f"{self.expression!r}: {self.why}"


@frozen
class InvalidChange(InvalidInput):
    """What a what-if is to change does not fit the log."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; no fork was made"


@frozen
class ModelNotAllowed(InvalidInput):
    """A what-if, or a comparison, would call a model and was not told that it may."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} calls a model, which costs time and money: say `call_models=True` if that is meant"


@frozen
class CompactionNotLive(CompactionError):
    """A compaction that cannot be undone or redone now."""

    thread_id: str
    compaction: str
    why: str

    def __str__(self) -> str:
        return f"compaction {self.compaction!r} of thread {self.thread_id!r}: {self.why}"


@frozen
class InvalidRedaction(InvalidInput):
    """A rule of a redaction that cannot be followed."""

    rule: str
    why: str

    def __str__(self) -> str:
        return f"redaction {self.rule!r}: {self.why}"


@frozen
class ImportRefused(StorageError):
    """A file that is no export, or not the one that was written."""

    path: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.why}; nothing was imported"
