"""Errors of operations that the executor refuses."""

from memory_engine.errors.base import MemoryEngineError, cut, facts


class InvalidOperation(MemoryEngineError):
    """An operation that does not fit the state, which stays unchanged.

    A reducer that raises one refuses its event: the sender gets `EventRefused`, with this error as its cause.
    """


@facts
class UnknownChunk(InvalidOperation):
    """The operation names a chunk that is not in the state."""

    operation: str
    chunk_id: str

    def __str__(self) -> str:
        if self.operation == "read":
            return f"the log has no chunk {self.chunk_id!r} up to here; take the id (SEQ.N) from a state"
        return f"{self.operation}: chunk {self.chunk_id!r} is not in the state"


class ForgottenChunk(UnknownChunk):
    """The chunk was forgotten: the log holds it, but no view shows it."""

    template = "chunk {chunk_id!r} was forgotten: no view shows it, at no moment"


@facts
class DuplicateChunk(InvalidOperation):
    """The chunk is already in the state."""

    operation: str
    chunk_id: str

    template = "{operation}: chunk {chunk_id!r} is in the state already"


@facts
class ForeignChunkId(InvalidOperation):
    """A new chunk whose id was not derived from its event."""

    chunk_id: str

    template = "chunk id {chunk_id!r} was not derived from the event; take ids from ctx.new_id()"


@facts
class UndeclaredChunk(InvalidOperation):
    """The operation places a chunk that the reduction does not carry."""

    operation: str
    chunk_id: str

    template = "{operation}: the reduction carries no chunk {chunk_id!r}; add it to Reduction.chunks"


@facts
class UnplacedChunk(InvalidOperation):
    """The reduction carries a chunk that no operation places."""

    chunk_id: str

    template = "chunk {chunk_id!r} is carried by the reduction but placed by no operation"


@facts
class ConflictingPosition(InvalidOperation):
    """More than one of `before`, `after` and `first` was given."""

    operation: str
    chunk_id: str

    template = "{operation} of {chunk_id!r}: give at most one of before, after and first"


@facts
class ForeignAnchor(InvalidOperation):
    """The anchor is in another container, or is the chunk itself."""

    operation: str
    chunk_id: str
    anchor_id: str

    template = "{operation} of {chunk_id!r}: {anchor_id!r} does not stand beside it"


@facts
class NotAContainer(InvalidOperation):
    """Children go into chunks that are containers."""

    operation: str
    chunk_id: str

    template = "{operation}: chunk {chunk_id!r} is not a container (Chunk.is_container)"


@facts
class TypeChanged(InvalidOperation):
    """UPDATE keeps a chunk's type; REPLACE may change it."""

    chunk_id: str
    old: str
    new: str

    template = "UPDATE of {chunk_id!r} changes its type from {old!r} to {new!r}; use REPLACE"


@facts
class EmptyBatch(InvalidOperation):
    """An empty BATCH or BATCH_REPLACE."""

    operation: str

    template = "{operation} names nothing"


@facts
class RepeatedChunk(InvalidOperation):
    """A chunk is named twice in one operation."""

    operation: str
    chunk_id: str

    template = "{operation} names chunk {chunk_id!r} twice"


@facts
class ScatteredBatch(InvalidOperation):
    """BATCH_REPLACE covers chunks of one container only."""

    chunk_id: str
    other_id: str

    template = "BATCH_REPLACE: chunks {chunk_id!r} and {other_id!r} stand in different containers"


@facts
class CriticalChunk(InvalidOperation):
    """CRITICAL chunks are never compacted."""

    chunk_id: str

    template = "BATCH_REPLACE: chunk {chunk_id!r} is CRITICAL and cannot be compacted"


@facts
class NestedTooDeep(InvalidOperation):
    """BATCH operations are nested too deep."""

    limit: int

    template = "BATCH is nested more than {limit} deep"


@facts
class StaleEvent(InvalidOperation):
    """An event made from an older state than the one before it: others came in between."""

    seen: int
    seq: int

    def __str__(self) -> str:
        return f"it was made of the state after event {self.seen} and comes after event {self.seq - 1}: make it anew"


@facts
class UnknownTask(InvalidOperation):
    """No task with this id is running; or none is named, and several are running."""

    task_id: str
    running: tuple[str, ...]

    def __str__(self) -> str:
        if not self.task_id:
            return f"{len(self.running)} tasks run ({_first_ids(self.running)}): say which with task_id"
        return f"no task {cut(self.task_id)!r} runs" + (f"; {_first_ids(self.running)} do" if self.running else "")


@facts
class UnknownItem(InvalidOperation):
    """The to-do list has no item with this id."""

    item_id: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        has = f"it has {_first_ids(self.known)}" if self.known else "there is none"
        return f"the to-do list has no item {cut(self.item_id)!r}; {has}"


def _first_ids(ids: tuple[str, ...]) -> str:
    """The first ten ids, as a message shows them."""
    more = f" and {len(ids) - 10} more" if len(ids) > 10 else ""
    return ", ".join(repr(cut(one)) for one in ids[:10]) + more
