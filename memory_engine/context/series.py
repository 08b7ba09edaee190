"""Contexts of successive states: each equals that of `ContextBuilder.build`, at the cost of the changes alone.

Chunks that are added at the end do not change the atoms, messages and token counts of those before them. So building
the contexts of all calls of a log takes time linear in the log, not in the total size of all its states.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from attrs import define, field, frozen

from memory_engine.context.budget import DEFAULT_POLICY
from memory_engine.context.builder import FRAME, ContextBuilder, Layout
from memory_engine.context.choice import HeldWindow
from memory_engine.context.covered import Covered
from memory_engine.context.flow import TRAILING, Costed, Flow, cost, messages_of
from memory_engine.context.flow_index import in_flow
from memory_engine.context.invariants import Bonds
from memory_engine.context.rendering import (
    Message,
    RenderedChunk,
    common_prefix,
    message_bytes,
    message_tokens,
)
from memory_engine.core.chunks import Category, Chunk, ChunkType, is_of_session
from memory_engine.core.executor import apply_to_draft
from memory_engine.core.operations import BatchReplace, Delete, Operation, Replace, Update, flattened
from memory_engine.core.state import Placed, State, StateDraft

UNSETTLED = 16
"""Number of newest chunks that are always read again: most chunks that answer or join them come soon."""
SETTLED_TO_ONE = 128
"""Number of settled chunks for each of which one more chunk waits to be settled, so that the copying that settling
needs is spread over many contexts."""
RETURNS_MAX = 4
"""Number of shorter settled beginnings that are kept, to return to when a change occurs before the end of the
longest."""


class MeasuredContext(msgspec.Struct, frozen=True):
    """The messages of a context with their tokens and bytes.

    `trailing` is the index of the first message of trailing chunks, and `last` are the types of these chunks. `bytes`
    is the size of the messages as consecutive JSON (see `rendering.message_bytes`).
    """

    before: Sequence[Message]
    """Messages at the beginning; contexts of one series usually share the same list object."""
    behind: Sequence[Message]
    """All other messages."""
    tokens: int
    bytes: int
    trailing: int
    last: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.behind)

    @property
    def messages(self) -> list[Message]:
        """All messages, in a new list."""
        return [*self.before, *self.behind]

    def since(self, place: int) -> Sequence[Message]:
        """Return the messages from a place on."""
        own = place - len(self.before)
        return self.behind[own:] if own >= 0 else self.messages[place:]

    def same_as(self, other: "MeasuredContext") -> int:
        """Return the number of equal messages at the beginning."""
        if self.before is other.before:
            return len(self.before) + common_prefix(self.behind, other.behind)
        return common_prefix(self.messages, other.messages)


class MessageSize(msgspec.Struct, frozen=True, gc=False):
    """The tokens and bytes of a message, and the id of its chunk (`""` for a placeholder)."""

    tokens: int
    bytes: int
    chunk_id: str = ""


@define
class MeasuredMessages:
    """The messages of chunks, each made once, and their sizes.

    `beside` are the messages of another series with the same builder; its messages of equal chunks are reused.
    """

    builder: ContextBuilder
    beside: "MeasuredMessages | None" = None
    _messages: dict[str, tuple[Chunk, Sequence[Message]]] = field(factory=dict)
    _sizes: dict[int, MessageSize] = field(factory=dict)

    def of(self, chunk: Chunk) -> Sequence[Message]:
        """Return the messages of a chunk: the same objects each time."""
        return (self._messages.get(chunk.id) or self._made(chunk))[1]

    def _made(self, chunk: Chunk) -> tuple[Chunk, Sequence[Message]]:
        other = self.beside
        known = other._messages.get(chunk.id) if other is not None else None
        if other is not None and known is not None and known[0] == chunk:
            self._sizes.update((id(message), other.size(message)) for message in known[1])
        else:
            known = chunk, tuple(self.builder.messages(chunk))
            self._sizes.update((id(message), self._measured(message, chunk.id)) for message in known[1])
        self._messages[chunk.id] = known
        return known

    def size(self, message: Message) -> MessageSize:
        """Return the size of a message."""
        return self._sizes.get(id(message)) or self._measured(message)

    def sizes(self, messages: Sequence[Message]) -> tuple[int, int]:
        """Return the total tokens and bytes of messages."""
        known = self._sizes.get
        found = [known(id(message)) or self._measured(message) for message in messages]
        return sum([one.tokens for one in found]), sum([one.bytes for one in found])

    def tokens(self, message: Message) -> int:
        """Return the tokens of a message."""
        return self.size(message).tokens

    def let_go(self, kept: Iterable[Chunk]) -> None:
        """Forget the messages of all other chunks once there are many."""
        ids = {chunk.id for chunk in kept}
        if len(self._messages) > 2 * len(ids) + 1_000:
            for chunk_id in self._messages.keys() - ids:
                for message in self._messages.pop(chunk_id)[1]:
                    self._sizes.pop(id(message), None)

    def _measured(self, message: Message, chunk_id: str = "") -> MessageSize:
        return MessageSize(message_tokens(message, self.builder.counter), len(message_bytes(message)), chunk_id)


@frozen
class Settled:
    """A beginning of the flow that later chunks have not changed: its atoms, its messages and their sizes."""

    bonds: Bonds = field(factory=Bonds)
    """Bonds read exactly to the end of this beginning. Copy them before reading on."""
    flow: Flow = field(factory=Flow)
    messages: Sequence[Message] = ()
    tokens: int = 0
    bytes: int = 0

    def __len__(self) -> int:
        return len(self.bonds.chunks)

    def begins(self, chunks: Sequence[Chunk]) -> bool:
        """Return whether a flow still begins with this part."""
        return self.bonds.chunks == list(chunks[: len(self)])

    def tail(self, chunks: Sequence[Chunk]) -> Bonds:
        """Return the bonds of a whole flow that begins with this part."""
        bonds = self.bonds.copy()
        bonds.reach = len(chunks)
        return bonds.read(chunks[len(self) :])

    def is_touched_by(self, tail: Bonds) -> bool:
        """Return whether later chunks join the atoms of this part after all."""
        return tail.reach < len(self)

    def plus(self, bonds: Bonds, costed: Sequence[Costed], messages: MeasuredMessages) -> "Settled":
        """Return a copy extended by the atoms that follow, up to where `bonds` have been read."""
        made = messages_of(costed)
        tokens, size = messages.sizes(made)
        flow = self.flow.plus(Flow.of(costed)).alone()
        return Settled(bonds, flow, [*self.messages, *made], self.tokens + tokens, self.bytes + size)


class SeriesOriginals(msgspec.Struct, frozen=True):
    """The originals behind the summaries of a series: by the id of each summary, and all of them."""

    under: Mapping[str, Sequence[Chunk]] = {}
    covered: Covered | None = None

    @classmethod
    def of(cls, under: Mapping[str, Sequence[Chunk]]) -> "SeriesOriginals":
        """Create an instance from the originals under each summary."""
        return cls(under, Covered.known(chunk for chunks in under.values() for chunk in chunks) if under else None)

    def after(self, operations: Sequence[Operation], get: Callable[[str], Chunk | None]) -> "SeriesOriginals":
        """Return the originals after an event's operations; `get` returns a chunk of the state before the event."""
        under = dict(self.under)
        for operation in flattened(operations):
            match operation:
                case BatchReplace(by=(summary, *_)):
                    taken = [chunk for chunk_id in operation.chunks if (chunk := get(chunk_id)) is not None]
                    nested = [chunk for one in taken for chunk in under.pop(one.id, ())]
                    under[summary] = [*nested, *(chunk for chunk in taken if chunk.type != ChunkType.COMPACTED)]
                case Update() | Replace() if operation.chunk in under:
                    under[operation.by] = under.pop(operation.chunk)
                case BatchReplace() | Delete():
                    gone = operation.chunks if isinstance(operation, BatchReplace) else (operation.chunk,)
                    for chunk_id in gone:
                        under.pop(chunk_id, None)
                case _:
                    continue
        return self if under == self.under else SeriesOriginals.of(under)


class SeriesMark(msgspec.Struct, frozen=True):
    """A point in a series, from which it can be replayed at the cost of the later changes alone."""

    state: State
    settled: Settled
    costed: Sequence[Costed]
    joined: int
    trailing: list[RenderedChunk] | None
    last_key: bytes
    flowing: dict[str, int]
    kept: HeldWindow | None
    originals: "SeriesOriginals"
    chunks: Sequence[Chunk] = ()
    """The series' own list, which only grows at its end: its first `length` chunks are the flow."""
    length: int = -1

    @property
    def flow(self) -> Sequence[Chunk] | None:
        """The flow, or `None` if it had not been read."""
        return self.chunks[: self.length] if self.length >= 0 else None


class ContextSeries:
    """A state that grows event by event, and its contexts within `max_tokens` (`None`: without a limit)."""

    def __init__(
        self,
        state: State,
        thread_id: str,
        max_tokens: int | None,
        messages: MeasuredMessages,
        originals: SeriesOriginals = SeriesOriginals(),  # noqa: B008 - frozen
    ) -> None:
        self._originals = originals
        self._kept: HeldWindow | None = None
        """What the last context kept for the next one of the same loop."""
        self._draft: StateDraft = state.draft()
        self._thread_id = thread_id
        self.max_tokens = max_tokens
        self.messages = messages
        self.settled = Settled()
        self._returns: list[Settled] = []
        """Beginnings of the flow, shortest first: the first one settled after each time that the flow was read again. A
        compaction usually keeps what preceded the previous compaction."""
        self._was_read_again = True
        self._bonds: Bonds | None = None
        """Bonds of the whole flow; `None` if it changed elsewhere than at its end."""
        self._flowing: dict[str, int] = {}
        """Places of chunks in the flow, possibly including some that a series from a later mark has at its end."""
        self._last_key = b""
        self._settle_at = 0
        self._trailing: list[RenderedChunk] | None = None
        self._costed: Sequence[Costed] = ()
        """Atoms after the settled ones, as the last context read them."""

    @property
    def covered(self) -> Covered | None:
        """Originals behind the summaries of the state."""
        return self._originals.covered

    @property
    def kept(self) -> HeldWindow | None:
        """What the last context kept for the next one."""
        return self._kept

    def mark(self) -> SeriesMark:
        """Return a mark of the current point."""
        bonds = self._bonds
        read: tuple[Sequence[Chunk], int] = (bonds.chunks, len(bonds.chunks)) if bonds is not None else ((), -1)
        atoms = self.settled, self._costed, bonds.joined if bonds is not None else 0
        kept = self._kept, self._originals
        return SeriesMark(self.state(), *atoms, self._trailing, self._last_key, self._flowing, *kept, *read)

    def since(self, mark: SeriesMark) -> "ContextSeries":
        """Return a series that continues from the mark."""
        series = ContextSeries(mark.state, self._thread_id, self.max_tokens, self.messages, mark.originals)
        series.settled, series._kept = mark.settled, mark.kept
        flow = mark.flow
        if flow is not None:
            series._trailing, series._last_key, series._flowing = mark.trailing, mark.last_key, mark.flowing
            bonds = mark.settled.tail(flow)
            series._went_on(mark.settled, bonds, mark.costed)
            bonds.joined = min(bonds.joined, mark.joined)
        return series

    def state(self) -> State:
        """Return the current state."""
        state = self._draft.freeze(self._draft.seq)
        self._draft = state.draft()
        return state

    def step(self, operations: Sequence[Operation], chunks: Sequence[Chunk], seq: int) -> None:
        """Apply the operations of the next event."""
        if operations:
            if self.max_tokens is not None:
                self._originals = self._originals.after(operations, self._draft.get)
            apply_to_draft(self._draft, operations, chunks, seq=seq)
            for chunk_id, placed in self._draft.touched.items():
                self._note(chunk_id, placed)
            self._draft.touched.clear()
        self._draft.seq = seq

    def context(self) -> MeasuredContext:
        """Return the context of the current state. Raises `ContextBudgetError`."""
        builder = self.messages.builder
        bonds = self._bonds or self._read_again()
        tail = self._tail(bonds)
        if self._trailing is None:
            last = (chunk for chunk in self._draft.chunks() if chunk.category in TRAILING)
            self._trailing = builder.trailing(last, self._draft, self.max_tokens)
        before: Sequence[Message] = ()
        tokens, size = FRAME, 0
        if self.max_tokens is not None:
            messages: Sequence[Message] = self._within(self.max_tokens, bonds, tail)
        else:
            before, tokens, size = self.settled.messages, FRAME + self.settled.tokens, self.settled.bytes
            messages = messages_of(tail, self._trailing)
        more_tokens, more_bytes = self.messages.sizes(messages)
        return MeasuredContext(
            before,
            messages,
            tokens + more_tokens,
            size + more_bytes,
            len(before) + len(messages) - sum(len(piece.messages) for piece in self._trailing),
            tuple(dict.fromkeys(piece.chunk.type for piece in self._trailing)),
        )

    def _within(self, max_tokens: int, bonds: Bonds, tail: Sequence[Costed]) -> list[Message]:
        """Return the messages that fit into a budget, continuing from the last context."""
        builder, trailing = self.messages.builder, self._trailing or []
        flow = self.settled.flow.plus(Flow.of(tail))
        if self._originals.covered is not None and flow.summaries:
            flow = flow.behind(self._originals.covered.atoms(bonds.chunks, self.messages.of, self.messages.tokens))
        choice = builder.choice(DEFAULT_POLICY, self._kept)
        layout = Layout.of(flow, trailing, builder.counter)
        layout = builder.with_thinking(layout, (bonds.chunks, bonds.responded), max_tokens, choice)
        chosen = layout.within(max_tokens, choice)
        if chosen is None:
            raise builder.overrun(self.state(), self._thread_id, max_tokens)
        self._kept = chosen.kept
        summary, atoms = chosen.kept.summary, chosen.atoms
        if summary is None:
            return messages_of(atoms, trailing)
        first = next(
            (n for n, one in enumerate(atoms) if one.atom.chunks[0].category is not Category.SYSTEM), len(atoms)
        )
        return [*messages_of(atoms[:first]), *summary.messages, *messages_of(atoms[first:], trailing)]

    def _note(self, chunk_id: str, placed: Placed | None) -> None:
        """Register a changed chunk, and keep the parts that it does not affect.

        A chunk added at the end of the flow keeps the flow before it and the trailing chunks.
        """
        is_flowing = placed is not None and not placed.container and placed.chunk.category not in TRAILING
        bonds = self._bonds
        place = self._flowing.get(chunk_id)
        if place is not None and (bonds is None or place < len(bonds.chunks)):
            self._bonds = None
        elif placed is None or not is_flowing:
            self._trailing = None  # also for children: only trailing chunks show them
        elif bonds is not None and placed.key > self._last_key and not is_of_session(placed.chunk):
            self._flowing[chunk_id] = len(bonds.chunks)
            bonds.read((placed.chunk,))
            self._last_key = placed.key
        else:
            self._bonds = None

    def _read_again(self) -> Bonds:
        """Return the bonds of the current flow, keeping the settled part that the flow still begins with."""
        top = in_flow(self._draft.chunks())
        while self._returns and not self._returns[-1].begins(top):
            self._returns.pop()
        if not self.settled.begins(top):
            self.settled = self._returns[-1] if self._returns else Settled()
        self._was_read_again = True
        self._flowing = {chunk.id: position for position, chunk in enumerate(top)}
        placed = self._draft.placed_at(top[-1].id) if top else None
        self._last_key = placed.key if placed is not None else b""
        self.messages.let_go(self._draft.chunks())
        return self._went_on(self.settled, self.settled.tail(top))

    def _went_on(self, settled: Settled, bonds: Bonds, costed: Sequence[Costed] = ()) -> Bonds:
        self.settled, self._bonds = settled, bonds
        self._settle_at = len(settled) + 3 * UNSETTLED + len(settled) // SETTLED_TO_ONE  # settling copies all
        self._costed, bonds.joined = costed, len(bonds.chunks) if costed else 0
        return bonds

    def _tail(self, bonds: Bonds) -> Sequence[Costed]:
        """Return the atoms after the settled ones; if there are many, settle the older ones too."""
        if self.settled.is_touched_by(bonds):
            bonds = self._went_on(Settled(), Settled().tail(bonds.chunks))
        messages = self.messages
        first = max(len(self.settled), bonds.joined)
        kept = self._costed[: bisect_left(self._costed, first, key=_first)]
        costed = [*kept, *(cost(atom, messages.of, messages.tokens) for atom in bonds.atoms(first))]
        self._costed, bonds.joined = costed, len(bonds.chunks)
        if len(bonds.chunks) < self._settle_at:
            return costed
        self._settle_at = len(bonds.chunks) + UNSETTLED
        head = self._head(bonds.chunks, costed)
        if head is None:
            return costed
        done = costed[: bisect_left(costed, len(head.chunks), key=_first)]
        more = self.settled.plus(head, done, messages)
        tail = more.tail(bonds.chunks)
        if more.is_touched_by(tail):
            return costed
        if self._was_read_again:
            self._returns, self._was_read_again = [*self._returns[1 - RETURNS_MAX :], more], False
        rest = costed[len(done) :]
        self._went_on(more, tail, rest)
        return rest

    def _head(self, chunks: Sequence[Chunk], costed: Sequence[Costed]) -> Bonds | None:
        """Return the bonds of the chunks that can be settled, or `None` if no more than now can be.

        No atom may span their end, and none before it may depend on later ones.
        """
        ends: list[int] = []
        reach = len(self.settled)
        for one in costed:
            first = one.atom.positions[0]
            if first > len(chunks) - UNSETTLED:
                break
            if first >= reach > len(self.settled):
                ends.append(first)
            reach = max(reach, one.atom.positions[-1] + 1)
        return self._read_to(ends[-1], chunks) if ends else None

    def _read_to(self, end: int, chunks: Sequence[Chunk]) -> Bonds:
        return self.settled.bonds.copy().read(chunks[len(self.settled) : end])


def _first(one: Costed) -> int:
    return one.atom.positions[0]
