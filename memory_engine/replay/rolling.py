"""Contexts of one state after the other: each as `build_context` gives it, at the cost of what has changed.

Chunks that only come at the end leave what was made of those before them as it was: their atoms, their messages, what
these take. So the contexts of all calls of a log take time for the log, and not for each of the states anew.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field, frozen

from memory_engine.context.budget import Costed, Flow, Window, choose_of, cost
from memory_engine.context.builder import FRAME, TRAILING, Layout, in_order, trailing_pieces
from memory_engine.context.invariants import INVARIANTS, Atom, atoms_of
from memory_engine.context.rendering import Message, Piece, Renderer, assemble, message_tokens
from memory_engine.core.chunks import Category, Chunk
from memory_engine.core.executor import apply_to_draft
from memory_engine.core.operations import Add, Delete, Operation, Reorder, Update
from memory_engine.core.state import State, StateDraft
from memory_engine.core.tokens import TokenCounter
from memory_engine.replay.diff import message_bytes

UNSETTLED = 16
"""The newest chunks that are always looked at again: what answers or joins them mostly comes soon."""
WINDOWS_MAX = 64
"""Rooms of which it is kept where their windows begin."""
_SPOKEN = frozenset({"user_message", "parent_message"})
_INSIDE = frozenset({"thinking", "agent_action", "action_result", "error", "subagent_message"})
"""What a thinking-tool loop is made of (see `context.invariants.thinking`)."""
_SAME_PLACE = (Update, Delete, Reorder)


@frozen
class Rolled:
    """The messages of a context, its tokens and bytes, and the number of the first message that stands last by design.

    `last` are the types of the chunks that do. `bytes` are those of the messages as JSON, one after the other (see
    `rendered.message_bytes`).
    """

    messages: list[Message]
    tokens: int
    bytes: int
    trailing: int
    last: tuple[str, ...] = ()


@frozen
class Size:
    """What a message takes, and the chunk that it is of (`""`: of none, as a placeholder)."""

    tokens: int
    bytes: int
    chunk_id: str = ""


@define
class Drawn:
    """The messages of chunks, each made once, and what they take."""

    renderers: Mapping[str, Renderer]
    counter: TokenCounter
    _messages: dict[str, tuple[Message, ...]] = field(factory=dict)
    _sizes: dict[int, Size] = field(factory=dict)

    def render(self, chunk: Chunk) -> Sequence[Message]:
        """The messages of a chunk: the very same objects each time."""
        found = self._messages.get(chunk.id)
        if found is None:
            found = tuple(self.renderers.get(chunk.type, self.renderers["*"])(chunk))
            self._messages[chunk.id] = found
            self._sizes.update((id(message), self._measured(message, chunk.id)) for message in found)
        return found

    def size(self, message: Message) -> Size:
        """What a message takes."""
        return self._sizes.get(id(message)) or self._measured(message)

    def let_go(self, kept: Iterable[Chunk]) -> None:
        """Forget the messages of all other chunks, once they are many."""
        ids = {chunk.id for chunk in kept}
        if len(self._messages) > 2 * len(ids) + 1_000:
            for chunk_id in self._messages.keys() - ids:
                for message in self._messages.pop(chunk_id):
                    self._sizes.pop(id(message), None)

    def _measured(self, message: Message, chunk_id: str = "") -> Size:
        return Size(message_tokens(message, self.counter), len(message_bytes(message)), chunk_id)


@frozen
class Settled:
    """A beginning of the flow whose atoms and messages stay as they are, and what would have to come to change them."""

    ids: tuple[str, ...] = ()
    flow: Flow = Flow((), (), (), 0)
    messages: Sequence[Message] = ()
    tokens: int = 0
    bytes: int = 0
    asked: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()
    unasked: frozenset[str] = frozenset()
    response_ids: frozenset[str] = frozenset()
    ends_inside: bool = False
    windows: dict[int, Window] = field(factory=dict)
    """By room: the window over its turns."""

    def is_touched_by(self, tail: Sequence[Chunk]) -> bool:
        """Whether chunks that follow belong to something in here after all."""
        asked: set[str] = set()
        inside = self.ends_inside
        for chunk in tail:
            if chunk.response_id in self.response_ids:
                return True
            if chunk.call_id not in asked and (chunk.call_id in self.asked or chunk.call_id in self.answered):
                return True
            if inside and chunk.type == "thinking":
                return True
            inside = inside and chunk.type in _INSIDE
            for call in chunk.calls:
                if call.id in self.unasked:
                    return True
                asked.add(call.id)
        return False

    def plus(self, chunks: Sequence[Chunk], costed: Sequence[Costed], drawn: Drawn) -> "Settled":
        """With chunks that follow, and their atoms."""
        messages = assemble(in_order(costed))
        sizes = [drawn.size(message) for message in messages]
        asked, unasked = set(self.asked), set(self.unasked)
        for chunk in chunks:
            if chunk.call_id and chunk.call_id not in asked:
                unasked.add(chunk.call_id)
            asked.update(call.id for call in chunk.calls)
        flow = self.flow.plus(Flow.of(costed))
        return Settled(
            (*self.ids, *(chunk.id for chunk in chunks)),
            flow,
            [*self.messages, *messages],
            self.tokens + sum(size.tokens for size in sizes),
            self.bytes + sum(size.bytes for size in sizes),
            frozenset(asked),
            self.answered | {chunk.call_id for chunk in chunks if chunk.call_id},
            frozenset(unasked),
            self.response_ids | {chunk.response_id for chunk in chunks if chunk.response_id},
            chunks[-1].type in _INSIDE,
            {room: window.over(flow.turns) for room, window in list(self.windows.items())[-WINDOWS_MAX:]},
        )

    def start(self, turns: Sequence[Costed], room: int) -> int:
        """Where the window of a room begins in turns that begin with those in here."""
        window = self.windows.get(room)
        if window is None:
            window = self.windows[room] = Window(room).over(self.flow.turns)
        return window.over(turns).start


class Rolling:
    """A state that goes on event by event, and its contexts within `max_tokens` (`None`: all that is in it)."""

    def __init__(
        self, state: State, thread_id: str, max_tokens: int | None, drawn: Drawn, settled: Settled | None = None
    ) -> None:
        """`settled` is what another kept of a state that began in the same way."""
        self._draft: StateDraft = state.draft()
        self._thread_id = thread_id
        self.max_tokens = max_tokens
        self.drawn = drawn
        self._top: list[Chunk] | None = None
        self._trailing: list[Piece] | None = None
        self._tail_known: dict[tuple[str, ...], Costed] = {}
        self.settled = settled or Settled()

    def anew(self, state: State, settled: Settled) -> "Rolling":
        """The same from another state on, of which this was settled."""
        return Rolling(state, self._thread_id, self.max_tokens, self.drawn, settled)

    def state(self) -> State:
        """The state as it is."""
        state = self._draft.freeze(self._draft.seq)
        self._draft = state.draft()
        return state

    def step(self, operations: Sequence[Operation], chunks: Iterable[Chunk], seq: int) -> None:
        """Apply what the next event did."""
        if operations:
            before = [self._concerns(operation) for operation in operations]
            apply_to_draft(self._draft, operations, chunks, seq=seq)
            self._draft.touched.clear()
            for operation, concerned in zip(operations, before, strict=True):
                self._note(operation, concerned)
        self._draft.seq = seq

    def context(self) -> Rolled:
        """The context of the state as it is. Raises `ContextBudgetError`."""
        if self._top is None:
            self._look_again()
        if self._trailing is None:
            self._trailing = trailing_pieces(self._draft, self.drawn.renderers)
        tail = self._tail()
        before: Sequence[Message] = ()
        tokens, size = FRAME, 0
        if self.max_tokens is not None:
            tail = self._within(self.max_tokens, tail)
        else:
            before, tokens, size = self.settled.messages, FRAME + self.settled.tokens, self.settled.bytes
        messages = assemble([*in_order(tail), *self._trailing])
        sizes = [self.drawn.size(message) for message in messages]
        return Rolled(
            [*before, *messages],
            tokens + sum(one.tokens for one in sizes),
            size + sum(one.bytes for one in sizes),
            len(before) + len(messages) - sum(len(piece.messages) for piece in self._trailing),
            tuple(dict.fromkeys(piece.chunk.type for piece in self._trailing)),
        )

    def _within(self, max_tokens: int, tail: Sequence[Costed]) -> list[Costed]:
        """The atoms that a budget leaves room for."""
        counter = self.drawn.counter
        room = max_tokens - Layout.with_trailing([], self._trailing or [], counter).fixed
        flow = self.settled.flow.plus(Flow.of(tail))
        chosen = choose_of(flow, room, counter, self.settled.start)
        if chosen is None:
            every = [*flow.fixed, *flow.summaries, *flow.turns]
            raise Layout.with_trailing(every, self._trailing or [], counter).overrun(self._thread_id, max_tokens)
        return chosen

    # the flow

    def _concerns(self, operation: Operation) -> Category | None:
        """The part of the state that an operation changes, as far as its target is in the state already."""
        if not isinstance(operation, _SAME_PLACE):
            return None
        placed = self._draft.placed_at(operation.chunk)
        if placed is None:
            return None
        holder = self._draft.get(placed.container) if placed.container else placed.chunk
        return holder.category if holder is not None else None

    def _note(self, operation: Operation, concerned: Category | None) -> None:
        """Keep what an operation leaves as it is."""
        match operation:
            case Add(container="", before="", after="", first=False):
                chunk = self._draft.get(operation.chunk)
                if chunk is None:
                    self._top = self._trailing = None
                elif chunk.category in TRAILING:
                    self._trailing = None
                elif self._top is not None:
                    self._top.append(chunk)
            case Add() if operation.container:
                self._trailing = None  # children are shown in what stands last only
            case Update() if concerned in TRAILING and self._is_trailing(operation.by):
                self._trailing = None
            case Delete() | Reorder() if concerned in TRAILING:
                self._trailing = None
            case _:
                self._top = self._trailing = None

    def _is_trailing(self, chunk_id: str) -> bool:
        placed = self._draft.placed_at(chunk_id)
        return placed is not None and (bool(placed.container) or placed.chunk.category in TRAILING)

    def _look_again(self) -> None:
        self._top = [chunk for chunk in self._draft.chunks() if chunk.category not in TRAILING]
        if self.settled.ids != tuple(chunk.id for chunk in self._top[: len(self.settled.ids)]):
            self.settled = Settled()
        self.drawn.let_go(self._draft.chunks())

    def _tail(self) -> Sequence[Costed]:
        """The atoms after those that are settled; once these are many, the older ones are settled too."""
        top = self._top or []
        tail = top[len(self.settled.ids) :]
        if self.settled.ids and self.settled.is_touched_by(tail):
            self.settled = Settled()
            tail = top
        offset = len(self.settled.ids)
        costed = [self._costed(atom, offset) for atom in atoms_of(tail, INVARIANTS)]
        self._tail_known = {tuple(chunk.id for chunk in one.atom.chunks): one for one in costed}
        cut = _cut(tail, costed, offset) if len(tail) >= 2 * UNSETTLED else 0
        if not cut:
            return costed
        done = [c for c in costed if c.atom.positions[0] < offset + cut]
        more = self.settled.plus(tail[:cut], done, self.drawn)
        if more.is_touched_by(tail[cut:]):
            return costed
        self.settled = more
        return costed[len(done) :]

    def _costed(self, atom: Atom, offset: int) -> Costed:
        positions = tuple(position + offset for position in atom.positions)
        known = self._tail_known.get(tuple(chunk.id for chunk in atom.chunks))
        if known is not None and known.atom.positions == positions:
            return known
        return cost(Atom(positions, atom.chunks, atom.open), {"*": self.drawn.render}, self.drawn.counter)


def _cut(tail: Sequence[Chunk], costed: Sequence[Costed], offset: int) -> int:
    """How many chunks can be settled: up to a place that no atom spans, and behind which none is likely to reach."""
    found = reach = 0
    for one in costed:
        first = one.atom.positions[0] - offset
        if first > len(tail) - UNSETTLED:
            break
        if first >= reach and _is_calm(tail, first):
            found = first
        reach = max(reach, one.atom.positions[-1] - offset + 1)
    return found


def _is_calm(tail: Sequence[Chunk], cut: int) -> bool:
    """Whether a cut leaves no question open, and lies in no loop with thinking."""
    for chunk in reversed(tail[:cut]):
        if chunk.type == "clarification":
            return False
        if chunk.type in _SPOKEN:
            break
    first, last = cut, cut
    while first and tail[first - 1].type in _INSIDE:
        first -= 1
    while last < len(tail) and tail[last].type in _INSIDE:
        last += 1
    return cut in (first, last) or all(chunk.type != "thinking" for chunk in tail[first:last])
