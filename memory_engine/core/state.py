"""The state: ordered chunks of a thread at a seq. A value; the truth is the log."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

from memory_engine.core.chunks import FLOW, OF_FLOW, RECALLED, Chunk, ChunkType, Retention
from memory_engine.core.persistent import MapDraft, PersistentMap, SequenceDraft, SortedSequence

T_co = TypeVar("T_co", covariant=True)


class Placed(msgspec.Struct, frozen=True, gc=False):
    """A chunk at its place: order key, and the id of its container (`""`: the top)."""

    chunk: Chunk
    key: bytes
    container: str = ""


class Mark(StrEnum):
    """A trait that few chunks of a state share, so that they are found without reading the others.

    Marks are among the names of chunks. Each begins with half a character, which no name in a log can hold.
    """

    EPHEMERAL = "\udc00ephemeral"
    RECALLED = "\udc00recalled"
    SNIPPET = "\udc00snippet"


_EPHEMERAL, _SNIPPET = Retention.EPHEMERAL, ChunkType.SNIPPET.value


def is_plain(chunk: Chunk) -> bool:
    """Whether a chunk is neither derived nor found by any name: most are so, and every change of a state asks."""
    marked = chunk.retention is _EPHEMERAL or chunk.status == RECALLED or chunk.type == _SNIPPET
    return not (marked or chunk.name or chunk.parent_ids or chunk.lines or chunk.is_container)


def _is_derived(chunk: Chunk) -> bool:
    return bool(chunk.parent_ids or chunk.lines) or chunk.is_container


def _names_of(chunk: Chunk) -> Iterator[str]:
    """The names that a chunk is found by: its own, and its marks."""
    if chunk.name:
        yield chunk.name
    if chunk.retention is Retention.EPHEMERAL:
        yield Mark.EPHEMERAL
    if chunk.status == RECALLED:
        yield Mark.RECALLED
    if chunk.type == ChunkType.SNIPPET:
        yield Mark.SNIPPET


class Tally(msgspec.Struct, frozen=True, gc=False):
    """Counters kept with the state, so that thresholds need no scan."""

    chunks: int = 0
    tokens: int = 0
    compactable: int = 0
    compactable_tokens: int = 0

    def plus(self, chunk: Chunk, sign: int) -> "Tally":
        """With `chunk` counted in (`sign` 1) or out (-1)."""
        # `chunk.is_compactable`, without the call: this runs for each chunk that comes or goes
        flow = sign if chunk.category is FLOW and chunk.retention in OF_FLOW else 0
        return Tally(
            self.chunks + sign,
            self.tokens + sign * chunk.tokens,
            self.compactable + flow,
            self.compactable_tokens + flow * chunk.tokens,
        )

    def without(self, chunks: Sequence[Chunk]) -> "Tally":
        """With all of these counted out."""
        flow = [chunk.tokens for chunk in chunks if chunk.is_compactable]
        return Tally(
            self.chunks - len(chunks),
            self.tokens - sum([chunk.tokens for chunk in chunks]),
            self.compactable - len(flow),
            self.compactable_tokens - sum(flow),
        )


class StateView(Protocol):
    """The questions that a reducer may ask about the state. No call gets slower as the log grows."""

    def get(self, chunk_id: str) -> Chunk | None:
        """The chunk, if it is in the state."""
        ...

    def named(self, name: str) -> Chunk | None:
        """The chunk that has this logical name now."""
        ...

    def bearers(self, name: str) -> tuple[Chunk, ...]:
        """All chunks that have this logical name, oldest first."""
        ...

    def last(self) -> Chunk | None:
        """The last chunk at the top."""
        ...

    def children(self, chunk_id: str) -> Iterator[Chunk]:
        """The chunks in a container, in order."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """The chunks at the top, in order."""
        ...

    def everything(self) -> Iterator[Chunk]:
        """All chunks in order, each container's children after it."""
        ...

    def derived(self) -> list[str]:
        """The ids of the chunks at the top that came of others, or hold some, in order.

        These are later versions, summaries and containers.
        """
        ...

    def made_by(self, seqs: Iterable[int]) -> list[str]:
        """The ids of the chunks at the top that these events made, in order."""
        ...

    def in_order(self, chunk_ids: Iterable[str]) -> list[str]:
        """The given ids whose chunks are at the top, in the state's order."""
        ...

    @property
    def tally(self) -> Tally:
        """Counts and tokens."""
        ...


class _Lookup(Protocol[T_co]):
    def get(self, key: str) -> T_co | None: ...

    def keys(self) -> Iterator[str]: ...

    def near(self, keys: Iterable[str]) -> Iterator[str]: ...


class _Sequence(Protocol):
    def __iter__(self) -> Iterator[Placed]: ...

    def __reversed__(self) -> Iterator[Placed]: ...


class _StateQueries:
    """The questions that a state and a draft answer alike (see `StateView`)."""

    __slots__ = ("_derived", "_index", "_names", "_top", "seq", "tally")

    seq: int
    tally: Tally
    _derived: _Lookup[bool]
    _index: _Lookup[Placed]
    _names: _Lookup[tuple[str, ...]]
    _top: _Sequence

    def _inside(self, chunk_id: str) -> Iterable[Placed]:
        raise NotImplementedError

    def placed_at(self, chunk_id: str) -> Placed | None:
        """The chunk with its place, if it is in the state."""
        return self._index.get(chunk_id)

    def get(self, chunk_id: str) -> Chunk | None:
        """The chunk, if it is in the state."""
        placed = self._index.get(chunk_id)
        return placed.chunk if placed is not None else None

    def named(self, name: str) -> Chunk | None:
        """The chunk that has this logical name now: of several, the newest."""
        bearers = self._names.get(name)
        return self.get(bearers[-1]) if bearers else None

    def bearers(self, name: str) -> tuple[Chunk, ...]:
        """All chunks that have this logical name, oldest first."""
        found = map(self.get, self._names.get(name) or ())
        return tuple(chunk for chunk in found if chunk is not None)

    def marked(self, mark: Mark) -> tuple[Chunk, ...]:
        """All chunks with a mark, oldest first."""
        return self.bearers(mark)

    def last(self) -> Chunk | None:
        """The last chunk at the top."""
        return next(self.newest(), None)

    def children(self, chunk_id: str) -> Iterator[Chunk]:
        """The chunks in a container, in order."""
        return (placed.chunk for placed in self._inside(chunk_id))

    def chunks(self) -> Iterator[Chunk]:
        """The chunks at the top, in order."""
        return (placed.chunk for placed in self._top)

    def newest(self) -> Iterator[Chunk]:
        """The chunks at the top, the last one first."""
        return (placed.chunk for placed in reversed(self._top))

    def everything(self) -> Iterator[Chunk]:
        """All chunks in order, each container's children after it."""
        return (placed.chunk for placed in self.placed())

    def placed(self) -> Iterator[Placed]:
        """All chunks with their places, each container before its children."""
        for placed in self._top:
            yield from self.placed_within(placed)

    def placed_within(self, placed: Placed) -> Iterator[Placed]:
        """A chunk and everything inside it, however deep."""
        yield placed
        if placed.chunk.is_container:
            for child in self._inside(placed.chunk.id):
                yield from self.placed_within(child)

    def derived(self) -> list[str]:
        """The ids of the chunks at the top that came of others, or hold some, in order."""
        return self.in_order(self._derived.keys())

    def made_by(self, seqs: Iterable[int]) -> list[str]:
        """The ids of the chunks at the top that these events made, in order."""
        numbers = frozenset(map(str, seqs))
        near = self._index.near(f"{number}." for number in numbers)
        return self.in_order(chunk_id for chunk_id in near if chunk_id.partition(".")[0] in numbers)

    def in_order(self, chunk_ids: Iterable[str]) -> list[str]:
        """The given ids whose chunks are at the top, in the state's order."""
        found = (self._index.get(chunk_id) for chunk_id in dict.fromkeys(chunk_ids))
        placed = [one for one in found if one is not None and not one.container]
        return [one.chunk.id for one in sorted(placed, key=lambda one: one.key)]

    def __len__(self) -> int:
        return self.tally.chunks


class State(_StateQueries):
    """An immutable state. `seq` is the last event it holds."""

    __slots__ = ("_nested",)

    _derived: PersistentMap[bool]
    _index: PersistentMap[Placed]
    _names: PersistentMap[tuple[str, ...]]
    _top: SortedSequence[Placed]

    def __init__(self) -> None:
        """The empty state at seq 0; every other comes from a draft."""
        self.seq = 0
        self.tally = Tally()
        self._derived = PersistentMap()  # pyright: ignore[reportIncompatibleVariableOverride]
        self._index = PersistentMap(slot=_neighbourhood)  # pyright: ignore[reportIncompatibleVariableOverride]
        self._names = PersistentMap()  # pyright: ignore[reportIncompatibleVariableOverride]
        self._top = SortedSequence()  # pyright: ignore[reportIncompatibleVariableOverride]
        self._nested: PersistentMap[SortedSequence[Placed]] = PersistentMap()

    def _inside(self, chunk_id: str) -> Iterable[Placed]:
        return self._nested.get(chunk_id) or ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return self.seq == other.seq and self.tally == other.tally and list(self.placed()) == list(other.placed())

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # compared, never a key

    def __repr__(self) -> str:
        return f"State(seq={self.seq}, chunks={self.tally.chunks}, tokens={self.tally.tokens})"

    def _repr_html_(self) -> str:
        """Its chunks in order, for a notebook."""
        return self.as_html("State")

    def as_html(self, what: str) -> str:
        """Its chunks in order as a table, under what they are of."""
        from memory_engine.core.notebook import table

        caption = f"{what} at event {self.seq}: {self.tally.chunks:,} chunks, about {self.tally.tokens:,} tokens"
        rows = ((one.id, one.type, one.retention.value, one.tokens, one.text) for one in self.everything())
        return table(caption, ("id", "type", "retention", "tokens", "text"), rows)

    def has_chunks_of(self, other: "State") -> bool:
        """Whether no event has changed anything since `other`, from which this state came. If it was read, `False`."""
        return self._index is other._index

    @property
    def top(self) -> SortedSequence[Placed]:
        """The chunks at the top with their places, in order."""
        return self._top

    def draft(self) -> "StateDraft":
        """A mutable copy that shares the parts it does not touch."""
        return StateDraft(self)

    def appended(self, chunk: Chunk, seq: int) -> "tuple[State, Placed]":
        """The state at `seq` with a plain chunk (see `is_plain`) at the end of the top, and its place.

        A draft gives the same: this is the change of most events, made without one.
        """
        placed = Placed(chunk, self._top.next_key())
        after = State.__new__(State)
        after.seq = seq
        after.tally = self.tally.plus(chunk, 1)
        after._derived, after._names, after._nested = self._derived, self._names, self._nested
        after._index = self._index.changed({chunk.id: placed})
        after._top = self._top.appended(placed)
        return after, placed


class StateDraft(_StateQueries):
    """A state being changed. `touched` collects each chunk's new place (`None`: removed) since it was last cleared."""

    __slots__ = ("_nested", "_opened", "touched")

    _derived: MapDraft[bool]
    _index: MapDraft[Placed]
    _names: MapDraft[tuple[str, ...]]
    _top: SequenceDraft[Placed]

    def __init__(self, state: State) -> None:
        self.seq = state.seq
        self.tally = state.tally
        self.touched: dict[str, Placed | None] = {}
        self._derived = MapDraft(state._derived)  # pyright: ignore[reportIncompatibleVariableOverride]
        self._index = MapDraft(state._index)  # pyright: ignore[reportIncompatibleVariableOverride]
        self._names = MapDraft(state._names)  # pyright: ignore[reportIncompatibleVariableOverride]
        self._top = state._top.draft()  # pyright: ignore[reportIncompatibleVariableOverride]
        self._nested = state._nested
        self._opened: dict[str, SequenceDraft[Placed]] = {}

    def _inside(self, chunk_id: str) -> Iterable[Placed]:
        opened = self._opened.get(chunk_id)
        return opened if opened is not None else self._nested.get(chunk_id) or ()

    def siblings(self, container: str) -> SequenceDraft[Placed]:
        """The sequence inside a container (`""`: the top), for changing."""
        if not container:
            return self._top
        opened = self._opened.get(container)
        if opened is None:
            opened = (self._nested.get(container) or SortedSequence()).draft()
            self._opened[container] = opened
        return opened

    def insert(self, placed: Placed) -> None:
        """Put a chunk at its place."""
        (self.siblings(placed.container) if placed.container else self._top).insert(placed)
        self._remember(placed)

    def append(self, chunk: Chunk) -> None:
        """Put a chunk at the end of the top."""
        placed = Placed(chunk, self._top.next_key())
        self._top.append(placed)
        self._remember(placed)

    def remove(self, placed: Placed) -> None:
        """Remove a chunk, with everything inside it."""
        self.remove_all((placed,), placed.container)

    def remove_all(self, several: Collection[Placed], container: str) -> None:
        """Remove chunks of one container, with everything inside them."""
        gone: list[Chunk] = []
        for placed in several:
            if placed.chunk.is_container:
                gone += [inner.chunk for inner in self.placed_within(placed)]
            else:
                gone.append(placed.chunk)
        ids = dict.fromkeys([chunk.id for chunk in gone])
        self._index.drop_all(ids)
        self.touched.update(ids)
        self.tally = self.tally.without(gone)
        for chunk in gone:
            if not is_plain(chunk):
                self._forget_names(chunk)
        self.siblings(container).remove_all([placed.key for placed in several])

    def move(self, placed: Placed, key: bytes) -> None:
        """Give a chunk another key in the same container."""
        moved = Placed(placed.chunk, key, placed.container)
        siblings = self.siblings(placed.container)
        siblings.remove(placed.key)
        siblings.insert(moved)
        self._index.set(placed.chunk.id, moved)
        self.touched[placed.chunk.id] = moved

    def _remember(self, placed: Placed) -> None:
        chunk = placed.chunk
        self._index.set(chunk.id, placed)
        self.tally = self.tally.plus(chunk, 1)
        self.touched[chunk.id] = placed
        if is_plain(chunk):
            return
        if _is_derived(chunk):
            self._derived.set(chunk.id, True)
        for name in _names_of(chunk):
            # in order of ids, not of insertion: a state that was read back must name the same chunk
            bearers = {*(self._names.get(name) or ()), chunk.id}
            self._names.set(name, tuple(sorted(bearers, key=_chunk_id_key)))

    def _forget_names(self, chunk: Chunk) -> None:
        if chunk.is_container:
            self._opened[chunk.id] = SequenceDraft()
        if _is_derived(chunk):
            self._derived.drop(chunk.id)
        for name in _names_of(chunk):
            bearers = tuple(other for other in self._names.get(name) or () if other != chunk.id)
            if bearers:
                self._names.set(name, bearers)
            else:
                self._names.drop(name)

    def let_go(self) -> None:
        """Drop everything in pieces, where the state was large: work for another thread. The draft is of no use."""
        del self._derived, self._names, self._nested, self._opened
        while self.touched:
            self.touched.popitem()
        self._index.let_go()
        self._top.let_go()  # the last to hold most of the chunks

    def freeze(self, seq: int) -> State:
        """The state at `seq`. Do not use the draft afterwards."""
        state = State.__new__(State)
        state.seq = seq
        state.tally = self.tally
        state._derived = self._derived.freeze()
        state._index = self._index.freeze()
        state._names = self._names.freeze()
        state._top = self._top.freeze()
        state._nested = self._freeze_nested() if self._opened else self._nested
        return state

    def _freeze_nested(self) -> PersistentMap[SortedSequence[Placed]]:
        nested = self._nested.draft()
        for container, sequence in self._opened.items():
            if sequence.first_key() is None:
                nested.drop(container)
            else:
                nested.set(container, sequence.freeze())
        return nested.freeze()


def _neighbourhood(chunk_id: str) -> int:
    """The same number for chunks that were made one after the other: states of one log then share what is older."""
    try:
        return int(chunk_id[: chunk_id.find(".")]) >> 7
    except ValueError:  # an id that no event has given is asked for too
        return 0


def _chunk_id_key(chunk_id: str) -> tuple[int, int]:
    """The seq and number of a chunk id, to be compared."""
    seq, _, number = chunk_id.partition(".")
    return int(seq), int(number)
