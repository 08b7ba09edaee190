"""Contexts of successive states: each equals that of `ContextBuilder.build`, at the cost of the changes alone.

Chunks that are added at the end do not change the atoms, messages and token counts of those before them. So building
the contexts of all calls of a log takes time linear in the log, not in the total size of all its states.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from attrs import define, field

from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy
from memory_engine.context.builder import FRAME, ContextBuilder
from memory_engine.context.choice import HeldWindow
from memory_engine.context.covered import Covered
from memory_engine.context.flow import TRAILING, Costed, messages_of
from memory_engine.context.flow_index import FlowIndex
from memory_engine.context.rendering import (
    Message,
    RenderedChunk,
    common_prefix,
    message_bytes,
    message_tokens,
)
from memory_engine.context.sources import Indexed
from memory_engine.core.chunks import Chunk, ChunkType
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

    `beside` are another series' messages with the same builder; its messages of equal chunks are reused.
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

    def let_go(self, kept: State) -> None:
        """Forget the messages of chunks that are not in the state, once there are many."""
        if len(self._messages) > 2 * kept.tally.chunks + 1_000:
            for chunk_id in self._messages.keys() - {chunk.id for chunk in kept.chunks()}:
                for message in self._messages.pop(chunk_id)[1]:
                    self._sizes.pop(id(message), None)

    def _measured(self, message: Message, chunk_id: str = "") -> MessageSize:
        return MessageSize(message_tokens(message, self.builder.counter), len(message_bytes(message)), chunk_id)


class Prefix(msgspec.Struct, frozen=True):
    """The messages of a beginning of the flow, `length` chunks long, which no later chunk has changed."""

    length: int = 0
    messages: Sequence[Message] = ()
    tokens: int = 0
    bytes: int = 0

    def plus(self, length: int, costed: Sequence[Costed], messages: MeasuredMessages) -> "Prefix":
        """Return a copy extended by the atoms that follow, up to this length."""
        made = messages_of(costed)
        tokens, size = messages.sizes(made)
        return Prefix(length, [*self.messages, *made], self.tokens + tokens, self.bytes + size)


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
    prefix: Prefix
    kept: HeldWindow | None
    originals: SeriesOriginals


class ContextSeries:
    """A state that grows event by event, and its contexts within `max_tokens` (`None`: without a limit)."""

    def __init__(  # noqa: PLR0913 - what contexts are made of
        self,
        state: State,
        thread_id: str,
        max_tokens: int | None,
        messages: MeasuredMessages,
        originals: SeriesOriginals = SeriesOriginals(),  # noqa: B008 - frozen
        *,
        policy: ContextPolicy = DEFAULT_POLICY,
    ) -> None:
        self._thread_id = thread_id
        self.max_tokens = max_tokens
        self.messages = messages
        self._policy = policy
        self._draft: StateDraft = state.draft()
        self._originals = originals
        self._index = FlowIndex(messages.of, messages.tokens)
        self._behind: FlowIndex | None = None
        """The index of the series that continues from a mark; it only goes forward, as the marks do."""
        self._kept: HeldWindow | None = None
        """State that the last context kept for the next one of the same loop."""
        self._prefix = Prefix()
        self._prefixes: list[Prefix] = []
        """Shorter prefixes, shortest first: the first one after each time that the flow went back. A compaction usually
        keeps what preceded the previous compaction."""
        self._went_back = True
        self._settle_at = 0
        self._trailing: list[RenderedChunk] | None = None

    @property
    def covered(self) -> Covered | None:
        """Originals behind the summaries of the state."""
        return self._originals.covered

    @property
    def kept(self) -> HeldWindow | None:
        """State that the last context kept for the next one."""
        return self._kept

    def mark(self) -> SeriesMark:
        """Return a mark of the current point."""
        return SeriesMark(self.state(), self._prefix, self._kept, self._originals)

    def since(self, mark: SeriesMark) -> "ContextSeries":
        """Return a series that continues from the mark. This invalidates the series that the last call returned."""
        series = ContextSeries(
            mark.state, self._thread_id, self.max_tokens, self.messages, mark.originals, policy=self._policy
        )
        self._behind = series._index = self._behind or series._index
        series._index.parts(mark.state)
        series._prefix, series._kept = mark.prefix, mark.kept
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
            if any(map(_may_be_trailing, self._draft.touched.values())):
                self._trailing = None
            self._draft.touched.clear()
        self._draft.seq = seq

    def context(self) -> MeasuredContext:
        """Return the context of the current state. Raises `ContextBudgetError`."""
        state = self.state()
        return self._whole(state) if self.max_tokens is None else self._within(self.max_tokens, state)

    def _within(self, max_tokens: int, state: State) -> MeasuredContext:
        """Return the context that fits into a budget, continuing from the last one."""
        source = Indexed(state, self._index)
        made = self.messages.builder.build(
            source,
            self._thread_id,
            max_tokens,
            policy=self._policy,
            covered=self._originals.covered,
            kept=self._kept,
        )
        self._kept = made.kept
        last = made.pieces[len(made.pieces) - made.trailing :]
        return self._measured((), made.messages, last, FRAME, 0)

    def _whole(self, state: State) -> MeasuredContext:
        """Return the context without a limit: the messages of the prefix, and what follows."""
        parts = self._index.parts(state)
        self._go_back(parts.changed)
        if self._trailing is None:
            self._trailing = self.messages.builder.trailing(parts.trailing, state, None)
        rest: Sequence[Costed] = self._index.since(self._prefix.length)
        if len(parts.chunks) >= self._settle_at:
            rest = self._settled(rest, len(parts.chunks))
        prefix = self._prefix
        behind = messages_of(rest, self._trailing)
        self.messages.let_go(state)
        return self._measured(prefix.messages, behind, self._trailing, FRAME + prefix.tokens, prefix.bytes)

    def _measured(
        self,
        before: Sequence[Message],
        behind: Sequence[Message],
        last: Sequence[RenderedChunk],
        tokens: int,
        size: int,
    ) -> MeasuredContext:
        """Return the measured messages; `tokens` and `size` are those of the messages `before`."""
        more_tokens, more_bytes = self.messages.sizes(behind)
        return MeasuredContext(
            before,
            behind,
            tokens + more_tokens,
            size + more_bytes,
            len(before) + len(behind) - sum(len(piece.messages) for piece in last),
            tuple(dict.fromkeys(piece.chunk.type for piece in last)),
        )

    def _go_back(self, changed: int) -> None:
        """Shorten the prefix to one that ends before the first position that has changed."""
        if changed >= self._prefix.length:
            return
        while self._prefixes and self._prefixes[-1].length > changed:
            self._prefixes.pop()
        self._prefix = self._prefixes[-1] if self._prefixes else Prefix()
        self._went_back, self._settle_at = True, 0

    def _settled(self, rest: Sequence[Costed], length: int) -> Sequence[Costed]:
        """Extend the prefix by all atoms but the newest, and return the others."""
        settled = self._settleable(rest, length)
        if settled:
            end = rest[settled].atom.positions[0]
            self._prefix = self._prefix.plus(end, rest[:settled], self.messages)
            if self._went_back:
                self._prefixes, self._went_back = [*self._prefixes[1 - RETURNS_MAX :], self._prefix], False
        copied = len(self._prefix.messages) // SETTLED_TO_ONE
        self._settle_at = length + (2 * UNSETTLED + copied if settled else UNSETTLED)
        return rest[settled:]

    @staticmethod
    def _settleable(rest: Sequence[Costed], length: int) -> int:
        """Return the number of atoms that can be settled: no later atom is interleaved with them or changes them."""
        found, reach = 0, -1
        for n, one in enumerate(rest):
            first = one.atom.positions[0]
            if first > length - UNSETTLED:
                break
            if first > reach:
                found = n
            reach = max(reach, one.atom.positions[-1])
        if found and [*messages_of(rest[:found]), *messages_of(rest[found:])] != messages_of(rest):
            return 0  # a result without its call, whose place is elsewhere
        return found


def _may_be_trailing(placed: Placed | None) -> bool:
    """Return whether a changed chunk may be, or may be in, a trailing chunk."""
    return placed is None or bool(placed.container) or placed.chunk.category in TRAILING
