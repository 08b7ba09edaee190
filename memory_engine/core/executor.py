"""The executor: validates operations and applies them to a draft of the state."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from memory_engine.core.chunks import Chunk, Retention
from memory_engine.core.operations import (
    Add,
    Batch,
    BatchReplace,
    Delete,
    Operation,
    Reorder,
    Replace,
    Update,
    operation_name,
)
from memory_engine.core.persistent import key_between
from memory_engine.core.state import Placed, State, StateDraft, is_plain
from memory_engine.errors import (
    ConflictingPosition,
    CriticalChunk,
    DuplicateChunk,
    EmptyBatch,
    ForeignAnchor,
    ForeignChunkId,
    NestedTooDeep,
    NotAContainer,
    RepeatedChunk,
    ScatteredBatch,
    TypeChanged,
    UndeclaredChunk,
    UnknownChunk,
    UnplacedChunk,
)

BATCH_DEPTH_MAX = 16


def apply(state: State, operations: Sequence[Operation], chunks: Sequence[Chunk], *, seq: int) -> State:
    """The state after the operations of the event at `seq`; `state` itself does not change.

    Raises the `InvalidOperation` that names the first operation which does not fit.
    """
    return applied(state, operations, chunks, seq=seq)[0]


def applied(
    state: State, operations: Sequence[Operation], chunks: Sequence[Chunk], *, seq: int
) -> tuple[State, Sequence[Chunk], Mapping[str, Placed | None]]:
    """The state after the operations (see `apply`), the chunks (see `apply_to_draft`), and each new place by chunk id.

    `None` is the place of a chunk that is removed.
    """
    if is_append(operations, chunks) and is_plain(chunks[0]):
        after, placed = state.appended(chunks[0], seq)
        return after, chunks, {chunks[0].id: placed}
    draft = state.draft()
    made = apply_to_draft(draft, operations, chunks, seq=seq)
    return draft.freeze(seq), made, draft.touched


def is_append(operations: Sequence[Operation], chunks: Sequence[Chunk]) -> bool:
    """Whether operations put one chunk at the end of the state: those of most events do."""
    return len(operations) == 1 == len(chunks) and operations[0] == Add(chunks[0].id)


def apply_to_draft(
    draft: StateDraft, operations: Sequence[Operation], chunks: Sequence[Chunk], *, seq: int
) -> Sequence[Chunk]:
    """Apply to a draft (see `apply`). Where this raises, throw the draft away.

    Returns the chunks, with the parents that those have now which replace others.
    """
    draft.seq = seq
    if is_append(operations, chunks):
        draft.append(chunks[0])
        return chunks
    run = _Application(draft, {chunk.id: chunk for chunk in chunks})
    for operation in operations:
        run.apply(operation, 0)
    if run.unplaced:
        raise UnplacedChunk(next(iter(run.unplaced)))
    return [draft.get(chunk.id) or chunk for chunk in chunks]


class _Application:
    """One application: the draft, and the chunks that are still to be placed."""

    __slots__ = ("_draft", "unplaced")

    def __init__(self, draft: StateDraft, carried: dict[str, Chunk]) -> None:
        self._draft = draft
        self.unplaced = carried

    def apply(self, operation: Operation, depth: int) -> None:
        match operation:
            case Add():
                self.add(operation)
            case Update():
                self.update(operation)
            case Delete():
                self.delete(operation)
            case BatchReplace():
                self.batch_replace(operation)
            case Replace():
                self.replace(operation)
            case Reorder():
                self.reorder(operation)
            case Batch():
                self.batch(operation, depth)

    def batch(self, operation: Batch, depth: int) -> None:
        if depth >= BATCH_DEPTH_MAX:
            raise NestedTooDeep(BATCH_DEPTH_MAX)
        if not operation.operations:
            raise EmptyBatch("BATCH")
        for inner in operation.operations:
            self.apply(inner, depth + 1)

    def add(self, operation: Add) -> None:
        chunk = self._take("ADD", operation.chunk)
        if operation.container:
            container = self._known("ADD", operation.container)
            if not container.chunk.is_container:
                raise NotAContainer("ADD", operation.container)
        key = self._key("ADD", operation, operation.container)
        self._draft.insert(Placed(chunk, key, operation.container))

    def update(self, operation: Update) -> None:
        old = self._known("UPDATE", operation.chunk)
        new = self._take("UPDATE", operation.by)
        if new.type != old.chunk.type:
            raise TypeChanged(old.chunk.id, old.chunk.type, new.type)
        children = list(self._draft.placed_within(old))[1:]
        if children and not new.is_container:
            raise NotAContainer("UPDATE", new.id)
        self._swap(old, (_with_parents(new, (old.chunk.id,)),))
        for child in children:
            container = new.id if child.container == old.chunk.id else child.container
            self._draft.insert(Placed(child.chunk, child.key, container))

    def delete(self, operation: Delete) -> None:
        self._draft.remove(self._known("DELETE", operation.chunk))

    def reorder(self, operation: Reorder) -> None:
        placed = self._known("REORDER", operation.chunk)
        if operation.chunk in (operation.before, operation.after):
            raise ForeignAnchor("REORDER", operation.chunk, operation.chunk)
        self._draft.move(placed, self._key("REORDER", operation, placed.container))

    def replace(self, operation: Replace) -> None:
        old = self._known("REPLACE", operation.chunk)
        new = self._take("REPLACE", operation.by)
        self._swap(old, (_with_parents(new, (old.chunk.id,)),))

    def batch_replace(self, operation: BatchReplace) -> None:
        if not operation.chunks:
            raise EmptyBatch("BATCH_REPLACE")
        covered = self._covered(operation.chunks)
        new = [_with_parents(self._take("BATCH_REPLACE", by), operation.chunks) for by in operation.by]
        first = min(covered, key=attrgetter("key"))
        self._draft.remove_all([placed for placed in covered if placed is not first], first.container)
        self._swap(first, new)

    def _covered(self, chunk_ids: tuple[str, ...]) -> list[Placed]:
        if len(set(chunk_ids)) < len(chunk_ids):
            twice = next(c for n, c in enumerate(chunk_ids) if c in chunk_ids[:n])
            raise RepeatedChunk("BATCH_REPLACE", twice)
        covered = [self._known("BATCH_REPLACE", chunk_id) for chunk_id in chunk_ids]
        for placed in covered:
            for inner in self._draft.placed_within(placed) if placed.chunk.is_container else (placed,):
                if inner.chunk.retention is Retention.CRITICAL:
                    raise CriticalChunk(inner.chunk.id)
            if placed.container != covered[0].container:
                raise ScatteredBatch(covered[0].chunk.id, placed.chunk.id)
        return covered

    def _swap(self, old: Placed, new: Iterable[Chunk]) -> None:
        """Put `new` in the places of `old`: the first at its very key."""
        key = old.key
        following = self._draft.siblings(old.container).key_after(key)
        self._draft.remove(old)
        for n, chunk in enumerate(new):
            key = key_between(key, following) if n else key
            self._draft.insert(Placed(chunk, key, old.container))

    def _known(self, operation: str, chunk_id: str) -> Placed:
        placed = self._draft.placed_at(chunk_id)
        if placed is None:
            raise UnknownChunk(operation, chunk_id)
        return placed

    def _take(self, operation: str, chunk_id: str) -> Chunk:
        chunk = self.unplaced.pop(chunk_id, None)
        if chunk is None:
            if self._draft.placed_at(chunk_id) is not None:
                raise DuplicateChunk(operation, chunk_id)
            raise UndeclaredChunk(operation, chunk_id)
        return chunk

    def _key(self, name: str, operation: Add | Reorder, container: str) -> bytes:
        """The key for the place that an ADD or REORDER asks for."""
        siblings = self._draft.siblings(container)
        anchor_id = operation.before or operation.after
        if not anchor_id:
            if operation.first:
                return key_between(None, siblings.first_key())
            return key_between(siblings.last_key(), None)
        if operation.first or (operation.before and operation.after):
            raise ConflictingPosition(name, operation.chunk)
        anchor = self._known(name, anchor_id)
        if anchor.container != container:
            raise ForeignAnchor(name, operation.chunk, anchor_id)
        if operation.before:
            return key_between(siblings.key_before(anchor.key), anchor.key)
        return key_between(anchor.key, siblings.key_after(anchor.key))


def _with_parents(chunk: Chunk, replaced: tuple[str, ...]) -> Chunk:
    """The chunk, with the chunks that it replaces as its parents unless its reducer gave some."""
    if chunk.parent_ids:
        return chunk
    return msgspec.structs.replace(chunk, parent_ids=replaced)


def check_ids(chunks: Iterable[Chunk], *, seq: int) -> None:
    """Raise `ForeignChunkId` for a new chunk whose id does not belong to the event at `seq`."""
    first = f"{seq}.0"  # most events bring no other
    for chunk in chunks:
        if chunk.id != first and not _belongs(chunk.id, str(seq)):
            raise ForeignChunkId(chunk.id)


def _belongs(chunk_id: str, seq: str) -> bool:
    head, _, tail = chunk_id.partition(".")
    # one spelling only: stores keep the two numbers, and "2.00" would come back as "2.0"
    return head == seq and tail.isdecimal() and tail.isascii() and tail[0] != "0"


def describe(operation: Operation) -> str:
    """One line for people: `UPDATE 3.0 -> 7.0`."""
    match operation:
        case Add():
            return f"ADD {operation.chunk}"
        case Update() | Replace():
            return f"{operation_name(operation)} {operation.chunk} -> {operation.by}"
        case BatchReplace():
            return f"BATCH_REPLACE {', '.join(operation.chunks)} -> {', '.join(operation.by) or 'nothing'}"
        case Batch():
            return "BATCH [" + "; ".join(map(describe, operation.operations)) + "]"
        case _:
            return f"{operation_name(operation)} {operation.chunk}"
