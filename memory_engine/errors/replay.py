"""Errors of looking back: the past, bisections, what-ifs, redaction, imports, tests from logs; and of loading code."""

from memory_engine.errors.base import InvalidInput, LineOfFile, MemoryEngineError, cut, facts
from memory_engine.errors.effects import CompactionError, PlaceInLog, StorageError


@facts
class ReadOnly(MemoryEngineError):
    """A write to a read-only engine."""

    what: str

    template = "this engine only reads ({what} would write): open it without EngineConfig(read_only=True)"


@facts
class PastIsReadOnly(MemoryEngineError):
    """A write to the past."""

    thread_id: str
    seq: int
    what: str

    template = (
        "thread {thread_id!r} as it was after event {seq} takes no {what}: ask the thread itself, "
        "or fork it there (`thread.fork({seq})`)"
    )


@facts
class StateNotSent(MemoryEngineError):
    """The state of a receipt that was pickled: a receipt travels without the state and without its store."""

    seq: int

    template = (
        "this receipt was pickled, without the state at event {seq}: read it from the thread, "
        "`await (await engine.thread(receipt.thread_id).at({seq})).state()`"
    )


@facts
class NothingToBisect(InvalidInput):
    """The predicate does not turn true within the range."""

    thread_id: str
    after: int
    upto: int
    why: str

    template = "between events {after} and {upto} of thread {thread_id!r} nothing turns: {why}"


@facts
class PredicateFailed(PlaceInLog, MemoryEngineError):
    """The predicate of a bisection raised."""

    template = "asked about thread {thread_id!r} after event {seq}, the predicate raised {why}"


@facts
class InvalidExpression(InvalidInput):
    """A command's expression that cannot be evaluated."""

    expression: str
    why: str

    template = "{expression!r}: {why}"


@facts
class InvalidChange(InvalidInput):
    """A change of a what-if does not fit the log."""

    what: str
    why: str

    template = "{what}: {why}; no fork was made"


@facts
class ModelNotAllowed(InvalidInput):
    """A what-if, or a comparison, would call a model without permission."""

    what: str

    template = "{what} calls a model, which costs time and money: say `call_models=True` if that is meant"


@facts
class CompactionNotLive(CompactionError):
    """A compaction that cannot be undone or redone now."""

    thread_id: str
    compaction: str
    why: str

    def __str__(self) -> str:
        named = f"compaction {self.compaction!r} of " if self.compaction else ""
        return f"{named}thread {self.thread_id!r}: {self.why}"


@facts
class InvalidRedaction(InvalidInput):
    """A redaction rule that cannot be followed."""

    rule: str
    why: str

    template = "redaction {rule!r}: {why}"


@facts
class InvalidRetention(InvalidInput):
    """A retention rule that cannot be followed, or a file without rules."""

    rule: str
    why: str

    template = "retention {rule!r}: {why}; nothing was done"


@facts
class InvalidLabChange(InvalidInput):
    """A lab's change file, or a file of questions, with something that cannot be used."""

    path: str
    key: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}{f', {self.key}' if self.key else ''}: {self.why}; nothing was run"


@facts
class ImportRefused(LineOfFile, StorageError):
    """A file that is not an export, or not the one that was written.

    `kept` of its events are in the thread anyway: they were written before the file changed during the import.
    """

    kept: int = 0

    def __str__(self) -> str:
        left = f"the thread holds its first {self.kept} events" if self.kept else "nothing was imported"
        return f"{self.path}, line {self.line}: {self.why}; {left}"


@facts
class ScopeNotAllowed(InvalidInput):
    """A file says that its thread has a kind or an owner that the import does not allow.

    `claims` are (name, what the file says, what is allowed) each. Nothing was imported.
    """

    path: str
    claims: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        told = ", ".join(f"{name} is {cut(said)!r} (allowed: {may!r})" for name, said, may in self.claims)
        give = ", ".join(
            f"kinds=({said!r},)" if name == "kind" else f"{name}={said!r}" for name, said, _ in self.claims
        )
        return (
            f"{self.path} says whose thread it is: {told}; nothing was imported: if it may be that one's, pass {give}; "
            'of an archive of your own, take all that it says with scopes="as exported"'
        )


@facts
class CopyRefused(InvalidInput):
    """The target store holds what is not in the store to copy. Nothing was written."""

    thread_id: str
    why: str

    template = "thread {thread_id!r} stands in the way at the target: {why}; nothing was copied"


@facts
class UnreadableAnchors(LineOfFile, InvalidInput):
    """A file that is not a list of anchors."""

    template = "{path}, line {line}: no anchor: {why}"


@facts
class WorkerFailed(MemoryEngineError):
    """One of several processes that share some work could not do its part."""

    thread_id: str
    why: str

    template = "thread {thread_id!r} could not be verified: {why}"


@facts
class PluginNotLoaded(InvalidInput):
    """Logs hold events of types that no plug-in of this engine declares: they are intact, and cannot be replayed here.

    `thread_ids` are the threads, `event_types` the types.
    """

    thread_ids: tuple[str, ...]
    event_types: tuple[str, ...]

    def __str__(self) -> str:
        types = ", ".join(map(repr, self.event_types[:5])) + (", …" if len(self.event_types) > 5 else "")
        where = f"thread {self.thread_ids[0]!r}" if len(self.thread_ids) == 1 else f"{len(self.thread_ids)} threads"
        return (
            f"{where}: no plug-in that is loaded declares the event type{'s' * (len(self.event_types) != 1)} {types}; "
            "name the one that does (--plugins MODULE:NAME, or memory_engine.open(..., plugins=[...])), or install it"
        )


@facts
class UnknownView(InvalidInput, KeyError):
    """No projection has this name."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return f"there is no view {self.name!r}; there are {', '.join(self.known)}"


@facts
class UnknownReducer(InvalidInput, KeyError):
    """No reducer has this name. `near` are the names that look like it."""

    name: str
    near: tuple[str, ...]

    def __str__(self) -> str:
        has_all = "`engine.reducers` of an engine without this plug-in has all names"
        which = f"did you mean {' or '.join(self.near)}?" if self.near else has_all
        return f"there is no reducer {self.name!r} to replace; {which}"


@facts
class UnknownRow(InvalidInput):
    """A key under which a view has no row."""

    thread_id: str
    view: str
    key: str

    template = "view {view!r} of thread {thread_id!r} has no row {key!r}; a row is view:NAME/KEY"


@facts
class NoSuchTest(InvalidInput):
    """No regression test can be made from this."""

    what: str
    why: str

    template = "no test can be made of {what}: {why}"


@facts
class CannotRereduce(InvalidInput):
    """Events that cannot, or need not, be reduced again. Nothing was written."""

    thread_id: str
    from_seq: int
    why: str

    def __str__(self) -> str:
        at = f" from event {self.from_seq} on" if self.from_seq else ""
        return f"thread {self.thread_id!r} cannot be reduced anew{at}: {self.why}; nothing was written"


@facts
class CannotRewind(InvalidInput):
    """A rewind that would change nothing. Nothing was written."""

    thread_id: str
    to: int
    why: str

    def __str__(self) -> str:
        return f"thread {self.thread_id!r} cannot be rewound to event {self.to}: {self.why}; nothing was written"


@facts
class CannotQuarantine(InvalidInput):
    """A quarantine or a release that would change nothing. Nothing was written."""

    thread_id: str
    source: str
    state: str

    def __str__(self) -> str:
        return f"{cut(self.source)} is {self.state} in thread {self.thread_id!r} already: nothing was written"


@facts
class MissingTimeZones(InvalidInput):
    """A time zone is named on a machine without a time zone database."""

    name: str

    def __str__(self) -> str:
        return f"there is no time zone database to look up {cut(repr(self.name))} in: pip install tzdata, or use 'UTC'"


@facts
class CodeNotLoaded(MemoryEngineError):
    """A module of this package, or one that it needs, could not be read when it was needed first."""

    module: str
    why: str

    template = (
        "{module} could not be loaded, so what needs it was not done: {why}; "
        "close files that need not be open, then call again"
    )
