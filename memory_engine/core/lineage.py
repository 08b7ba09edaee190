"""What became of chunks, and what they were made of, as a log's recorded operations and chunks tell it.

An event says two things of earlier chunks. Its operations take chunks out of the state and may put others in their
place (`taken_chunks`). Its chunks name the ones that they were made of (`Chunk.parent_ids`). Neither follows from the
other: clearing a thread takes chunks and makes none, and a recalled passage is made of a chunk that stays.

`Successors` follows the first from event to event, `Carriers` and `Descent` the second. Everything here is pure: give
it what the log recorded, in order.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import Event
from memory_engine.core.events.roles import Source, sources_in
from memory_engine.core.operations import BatchReplace, Delete, Operation, Replace, Update, flattened

_ID_CHARS_MAX = 40
_TAKES = (b'"UPDATE"', b'"REPLACE"', b'"BATCH_REPLACE"', b'"DELETE"')


def place(chunk_id: str) -> tuple[int, int]:
    """Return the seq and number of a chunk's id, to be compared; (0, 0) for any other text: a parent may be any."""
    seq, _, number = chunk_id.partition(".")
    if len(chunk_id) > _ID_CHARS_MAX or not (chunk_id.isascii() and seq.isdecimal() and number.isdecimal()):
        return 0, 0
    return int(seq), int(number)


def covered(chunk: Chunk) -> tuple[str, ...]:
    """Return the ids of the chunks that a summary covers; none for any other chunk."""
    return chunk.parent_ids if chunk.type == ChunkType.COMPACTED else ()


def opened(chunk_ids: Sequence[str], known: Mapping[str, Chunk]) -> Iterator[Chunk]:
    """Yield the chunks in this order, each summary opened in its place; every chunk once."""
    waiting = list(reversed(chunk_ids))
    seen: set[str] = set()
    while waiting:
        chunk = known[waiting.pop()]
        if chunk.id in seen:
            continue
        seen.add(chunk.id)
        if inside := covered(chunk):
            waiting += reversed(inside)
        else:
            yield chunk


class Taken(msgspec.Struct, frozen=True, gc=False):
    """A chunk that an operation took out of the state. The chunks in `by` took its place, if any did.

    `batch` holds the chunks that went together with it, itself included; empty for a chunk that was taken alone.
    """

    chunk: str
    by: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()


def may_take(record: bytes) -> bool:
    """Return False for an encoded reduction none of whose operations takes a chunk; cheaper than decoding it."""
    return any(word in record for word in _TAKES)


def taken_chunks(operations: Iterable[Operation]) -> Iterator[Taken]:
    """Yield the chunks that operations name and take out of the state, in order. Their children go unnamed."""
    for operation in flattened(operations):
        match operation:
            case Update() | Replace():
                yield Taken(operation.chunk, (operation.by,))
            case BatchReplace():
                for chunk_id in operation.chunks:
                    yield Taken(chunk_id, operation.by, operation.chunks)
            case Delete():
                yield Taken(operation.chunk)


def batches(operations: Iterable[Operation]) -> dict[str, tuple[str, ...]]:
    """Return the chunks that a BATCH_REPLACE took, by each chunk that it put in their place."""
    found = (operation for operation in flattened(operations) if isinstance(operation, BatchReplace))
    return {by: operation.chunks for operation in found for by in operation.by}


def is_covering(chunk: Chunk, parent: str, batch: Collection[str]) -> bool:
    """Return whether a chunk represents a parent as a summary does, and not as its next version.

    `batch` holds the chunks whose place it took (see `batches`).
    """
    return parent in batch and (chunk.type == ChunkType.COMPACTED or len(batch) > 1)


def heirs(operations: Iterable[Operation], chunks: Iterable[Chunk], among: Collection[str]) -> dict[str, list[str]]:
    """Return the chunks of an event that took the places of others, or name them as parents, by those in `among`."""
    wanted = frozenset(among)
    found: dict[str, dict[str, None]] = {}
    parents = ((chunk.id, chunk.parent_ids) for chunk in chunks)
    for chunk_id, before in (*batches(operations).items(), *parents):
        for one in wanted.intersection(before):
            found.setdefault(one, {})[chunk_id] = None
    return {chunk_id: list(ids) for chunk_id, ids in found.items()}


class Fate(msgspec.Struct, frozen=True):
    """Fate of a chunk: `live` under an id, or taken by the event at `seq` (0: removed with its container)."""

    status: Literal["live", "covered", "gone"]
    chunk_id: str = ""
    seq: int = 0


class _Successor(msgspec.Struct, frozen=True, gc=False):
    """Chunk that replaced another (`""`: none), the seq of the event that did so, and whether it is a summary."""

    chunk_id: str
    seq: int
    covers: bool = False


class Successors:
    """The chunks that took the places of others, by the events that were noted."""

    def __init__(self) -> None:
        self._next: dict[str, _Successor] = {}

    def note(self, seq: int, operations: Iterable[Operation]) -> None:
        """Note the operations of an event."""
        for one in taken_chunks(operations):
            by = one.by[0] if one.by else ""
            self._next[one.chunk] = _Successor(by, seq, bool(one.batch and by))

    def note_restored(self, seq: int, restored: Iterable[tuple[str, str]]) -> None:
        """Note an event that put chunks back: the id of each, and the id that it has now."""
        for chunk_id, now in restored:
            self._next[chunk_id] = _Successor(now, seq)

    def fate(self, chunk_id: str, live: Callable[[str], object]) -> Fate:
        """Return what became of a chunk: live as itself, as a later version or restored; else the event that took it.

        `live` gives a chunk of the state after the last event that was noted, by its id; `None` for any other id.
        """
        while live(chunk_id) is None:
            following = self._next.get(chunk_id)
            if following is None or not following.chunk_id:
                return Fate("gone", seq=following.seq if following is not None else 0)
            if following.covers:
                return Fate("covered", seq=following.seq)
            chunk_id = following.chunk_id
        return Fate("live", chunk_id)

    def standing(self, chunk_id: str, live: Callable[[str], object]) -> str:
        """Return the id that represents a chunk in a state: its own or a summary's, at any depth; `""` if none."""
        while chunk_id and live(chunk_id) is None:
            following = self._next.get(chunk_id)
            chunk_id = following.chunk_id if following is not None else ""
        return chunk_id


Carried: TypeAlias = Mapping[str, bool]
"""The ids of the chunks that another stands for: whether it covers them, or is a version of them."""


class Carriers:
    """Every chunk made of some chunks, the `base`, at any remove, by the events that were noted."""

    def __init__(self, base: Collection[str]) -> None:
        self._base = base
        self.carried: dict[str, dict[str, bool]] = {}
        """What each of them carries of the base (see `Carried`)."""

    def note(self, operations: Iterable[Operation], chunks: Iterable[Chunk]) -> None:
        """Note what an event recorded."""
        derived = [chunk for chunk in chunks if chunk.parent_ids]
        taken_by = batches(operations) if derived else {}
        for chunk in derived:
            found = self._of(chunk, taken_by.get(chunk.id, ()))
            if found:
                self.carried[chunk.id] = found

    def _of(self, chunk: Chunk, batch: Collection[str]) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for parent in chunk.parent_ids:
            covers = is_covering(chunk, parent, batch)
            origins = {parent: False} if parent in self._base else {}
            for origin, covered in (*origins.items(), *self.carried.get(parent, {}).items()):
                found[origin] = found.get(origin, False) or covers or covered
        return found


class Descent(msgspec.Struct):
    """Events, chunks, and what is made of them while the events of a log go by in order.

    `seqs` and `events` (their ids) are of events, `chunks` the chunks, `calls` the ids of calls. Ids of events hold in
    any thread, so a descent that has only these tells what another thread took over.
    """

    seqs: set[int] = msgspec.field(default_factory=set)
    events: set[str] = msgspec.field(default_factory=set)
    chunks: set[str] = msgspec.field(default_factory=set)
    calls: set[str] = msgspec.field(default_factory=set)

    def has(self, chunk_id: str) -> bool:
        """Return whether a chunk is one of them, or was made by one of these events."""
        head = chunk_id.partition(".")[0]
        return chunk_id in self.chunks or (head.isdecimal() and len(head) < _ID_CHARS_MAX and int(head) in self.seqs)

    def is_behind(self, chunk: Chunk) -> bool:
        """Return whether a chunk was made of any of them."""
        return any(map(self.has, chunk.parent_ids))

    def follow(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Return those of an event's chunks that were made of any of them, and add each."""
        found = []
        for chunk in chunks:
            if self.is_behind(chunk):
                self.chunks.add(chunk.id)
                found.append(chunk)
        return found

    def is_source_of(self, event: Event, seq: int) -> bool:
        """Return whether the event at `seq` names any of them as its source."""
        return any(self.holds(source, value, seq) for source, value in sources_in(event))

    def holds(self, source: Source, value: object, seq: int) -> bool:
        """Return whether the value of a field that names sources of the event at `seq` is any of them."""
        match source, value:
            case ((Source.SEQ | Source.WORDS), int()):
                return (value if value >= 0 else seq + value) in self.seqs
            case Source.EVENT, str():
                return value in self.events
            case Source.CHUNK, str():
                return self.has(value)
            case Source.CALL, str():
                return value in self.calls
        return False
