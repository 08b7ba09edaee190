"""Construction of the messages of the next model call from a state, within a token budget.

Order: the chunks in the order of the state, then the chunks that change in place (scratchpad, task, to-do list,
environment). The bytes before the newest chunk therefore stay the same from turn to turn, and a provider's prompt cache
holds until a compaction or a forget changes the state itself. Passages recalled for a question come after everything
stable, directly before the newest turn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
from attrs import evolve, field, frozen
from msgspec.structs import replace

from memory_engine.context.brief_block import OfferedBrief, RankedBlock
from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy, divide_by_policy, whole
from memory_engine.context.choice import Chosen, HeldWindow, WindowChoice
from memory_engine.context.context import Context, LeftOut, Spent
from memory_engine.context.covered import Covered
from memory_engine.context.flow import TRAILING, Costed, Flow, in_groups, in_order, tokens_in, tokens_of
from memory_engine.context.flow_index import FlowIndex, StateParts, in_flow
from memory_engine.context.invariants import Bonds
from memory_engine.context.rendering import (
    IN_NO_STATE,
    Message,
    RenderedChunk,
    Renderer,
    assemble,
    assembled,
    message_tokens,
    render_chunk,
    render_held,
)
from memory_engine.context.shortening import fair_shares, keep_last_lines
from memory_engine.context.sources import ChunkSource, Indexed
from memory_engine.context.standing import OfferedBlock, Place, StandingBlock
from memory_engine.context.thinking import carried_thinking, thinking_tokens
from memory_engine.context.window import Carried
from memory_engine.core.chunks import RECALLED, Category, Chunk, ChunkType, Retention
from memory_engine.core.state import State, StateView
from memory_engine.core.tokens import TokenCounter
from memory_engine.errors import ContextBudgetError

TRAILING_MIN = 96
"""Tokens that each trailing category may take even of a small budget."""
RENDERED_MAX = 2_000
"""Chunks beyond which a state is read by an index: it keeps counts of all turns, and renders those that are shown."""
FRAME = 3
"""Tokens that a list of messages takes in addition to those of its messages."""


class ContextDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A context without its recalled block, which may take `room` tokens and goes at index `before` of `pieces`."""

    state: ChunkSource
    thread_id: str
    pieces: tuple[RenderedChunk, ...]
    standing: tuple[StandingBlock, ...]
    spent: Spent
    room: int
    before: int
    builder: "ContextBuilder"
    thinking: tuple[Chunk, ...] = ()
    kept: HeldWindow = HeldWindow()

    def block(self, text: str) -> RenderedChunk:
        """Return the recalled passages as a chunk with the status RECALLED, with its messages."""
        chunk = Chunk(
            id=f"{self.state.seq}.recalled",
            type=ChunkType.RECALLED,
            content=text,
            retention=Retention.DISPOSABLE,
            status=RECALLED,
        )
        return RenderedChunk(chunk, tuple(self.builder.messages(chunk)), 0)

    def tokens(self, block: RenderedChunk) -> int:
        """Return the tokens of a block."""
        return self.builder.tokens(block.messages)

    def finished(self, block: RenderedChunk | None = None) -> Context:
        """Build the context, with the recalled block if one is given."""
        if block is None:
            return self._context(self.pieces, self.spent)
        pieces = (*self.pieces[: self.before], block, *self.pieces[self.before :])
        spent = replace(self.spent, recalled=self.tokens(block))
        return evolve(self._context(pieces, spent), recalled_text=block.chunk.text)

    def _context(self, pieces: Sequence[RenderedChunk], spent: Spent) -> Context:
        made = _finish(self.state, self.thread_id, pieces, spent, self.builder.counter, self.kept)
        return evolve(_with_thinking(made, self.thinking, self.builder.counter), standing=self.standing)


class Layout(msgspec.Struct, frozen=True):
    """The rendered chunks of a state: its atoms, and the pieces placed around them.

    `first` come after the instructions, `turn` before the newest turn, `trailing` after all atoms. `fixed` counts the
    tokens of these pieces. `thinking` is sent back to a provider with the turns that contain it; it takes the room
    `carried`.
    """

    flow: Flow
    trailing: Sequence[RenderedChunk]
    first: Sequence[RenderedChunk]
    turn: Sequence[RenderedChunk]
    fixed: int
    standing: int
    thinking: tuple[Chunk, ...] = ()
    carried: Carried = Carried()

    @classmethod
    def of(
        cls,
        flow: Flow,
        trailing: Sequence[RenderedChunk],
        counter: TokenCounter,
        blocks: "Sequence[ShownBlock]" = (),
    ) -> "Layout":
        """Lay out atoms and the pieces around them."""
        first = [one.piece for one in blocks if one.place == "first"]
        turn = [one.piece for one in blocks if one.place == "turn"]
        standing = _piece_tokens([*first, *turn], counter)
        fixed = FRAME + _piece_tokens(trailing, counter) + standing
        return cls(flow, trailing, first, turn, fixed, standing)

    def beside(self, blocks: "Sequence[ShownBlock]", counter: TokenCounter) -> "Layout":
        """Return a copy with other standing blocks."""
        return Layout.of(self.flow, self.trailing, counter, blocks).carrying(self.thinking, counter)

    def carrying(self, thinking: tuple[Chunk, ...], counter: TokenCounter) -> "Layout":
        """Return a copy with this thinking."""
        carried = Carried.by((chunk.said_at, thinking_tokens([chunk], counter)) for chunk in thinking)
        return replace(self, thinking=thinking, carried=carried)

    def within(self, max_tokens: int | None, choice: WindowChoice) -> Chosen | None:
        """Return the atoms that fit into a budget, in order, or `None` if it is too small for the required ones."""
        if max_tokens is None:
            return choice.unbounded(self.flow)
        return replace(choice, thinking=self.carried).of(self.flow, max_tokens - self.fixed)

    def pieces(self, chosen: Chosen) -> tuple[RenderedChunk, ...]:
        """Return the pieces of the chosen atoms in the order of the state, with the pieces placed around them."""
        flowing = in_order(chosen.atoms)
        in_front = [piece for piece in (chosen.kept.brief_piece, chosen.kept.summary) if piece is not None]
        added = [chosen.kept.added_piece] if chosen.kept.added_piece is not None else []
        if not self.first and not self.turn and not in_front and not added:
            return (*flowing, *self.trailing)
        places = range(len(flowing))
        spoken = self.flow.spoken
        instructed = next((n for n in places if flowing[n].chunk.category is not Category.SYSTEM), len(flowing))
        newest = next((n for n in places if flowing[n].position == spoken), len(flowing))
        newest = max(newest, instructed)
        front = (flowing[:instructed], self.first, in_front)
        parts = (*front, flowing[instructed:newest], self.turn, added, flowing[newest:])
        return tuple(piece for part in (*parts, self.trailing) for piece in part)

    def spent(self, chosen: Chosen) -> Spent:
        """Return the tokens of each part, for the chosen atoms and the pieces around them."""
        flow = Flow.of(chosen.atoms)
        return Spent(
            pinned=self.fixed - self.standing + flow.fixed_tokens,
            standing=self.standing + chosen.kept.standing_tokens,
            summary=tokens_of(flow.summaries) + chosen.kept.summary_tokens,
            recent=flow.turns.tokens,
        )


def summaries_of(chunks: Iterable[Chunk]) -> tuple[list[Chunk], int]:
    """Return the summaries among `chunks` in order, and the recorded tokens of all working-flow chunks."""
    top = list(chunks)
    tokens = sum(chunk.tokens for chunk in top if chunk.category is Category.WORKING_FLOW)
    return [chunk for chunk in top if chunk.category is Category.MEMORY], tokens


def _standing_blocks(blocks: "Sequence[ShownBlock]", kept: HeldWindow) -> tuple[StandingBlock, ...]:
    """Return the blocks of a context, including its brief and what was pinned since the brief was built."""
    return (*(one.block for one in blocks), *(block for block in (kept.brief, kept.added) if block is not None))


def _brief(standing: Sequence[OfferedBlock], thread_id: str) -> OfferedBrief | None:
    """Return the brief among the offered blocks, or `None`."""
    for one in standing:
        if isinstance(one.block, RankedBlock):
            return OfferedBrief(one.block, thread_id, one.source.share if one.share is None else one.share)
    return None


class ShownBlock(msgspec.Struct, frozen=True):
    """A standing block cut to its share, with its place and its rendered piece."""

    place: Place
    block: StandingBlock
    piece: RenderedChunk


def _unsaid(blocks: Sequence[ShownBlock], chosen: Sequence[Costed], thread_id: str) -> list[ShownBlock]:
    """Return the blocks without those whose lines all come from events that these atoms show."""
    said = {(thread_id, piece.chunk.said_at) for one in chosen for piece in one.pieces} if blocks else set()
    return [one for one in blocks if not said.issuperset((line.thread_id, line.seq) for line in one.block.lines)]


def _piece_tokens(pieces: Iterable[RenderedChunk], counter: TokenCounter) -> int:
    return sum(message_tokens(message, counter) for piece in pieces for message in piece.messages)


@frozen
class ContextBuilder:
    """Builder of contexts from states, with the renderers of chunk types and a token counter."""

    renderers: Mapping[str, Renderer] = field(repr=False)
    counter: TokenCounter = field(repr=False)

    def messages(self, chunk: Chunk) -> Iterable[Message]:
        """Return the messages of one chunk."""
        return render_chunk(chunk, self.renderers)

    def tokens(self, messages: Iterable[Message]) -> int:
        """Return the tokens of messages."""
        return sum(message_tokens(message, self.counter) for message in messages)

    def build(  # noqa: PLR0913 - the inputs of a context, by keyword
        self,
        state: ChunkSource,
        thread_id: str,
        max_tokens: int | None = None,
        *,
        policy: ContextPolicy = DEFAULT_POLICY,
        standing: Sequence[OfferedBlock] = (),
        covered: Covered | None = None,
        kept: HeldWindow | None = None,
    ) -> Context:
        """Choose whole atoms for the budget (`None`: all of them) and render them.

        CRITICAL chunks, the message being worked on and the newest atom (with its texts cut if necessary) are always
        included. Then come the standing blocks, and the newest turns that fit, including turns of `covered` originals;
        lines of summaries represent the others. A loop continues from what its last context `kept`. Raises
        `ContextBudgetError` if the required content cannot fit.
        """
        blocks = self._blocks(state, max_tokens, standing)
        parts = self._parts(state, shows_all=max_tokens is None, covered=covered)
        choice = self.choice(policy, kept, _brief(standing, thread_id))
        layout = self._layout(state, parts, max_tokens, blocks, choice)
        chosen = layout.within(max_tokens, choice)
        if chosen is None:
            raise self.overrun(state, thread_id, max_tokens or 0, policy, standing)
        blocks = _unsaid(blocks, chosen.atoms, thread_id)
        layout = layout.beside(blocks, self.counter)
        spent = layout.spent(chosen)
        known = spent.total if all(one.apart for one in chosen.atoms) else 0
        made = _finish(state, thread_id, layout.pieces(chosen), spent, self.counter, chosen.kept, known)
        made = _with_thinking(made, layout.thinking, self.counter)
        return evolve(made, standing=_standing_blocks(blocks, chosen.kept))

    def choice(
        self, policy: ContextPolicy, kept: HeldWindow | None = None, brief: OfferedBrief | None = None
    ) -> WindowChoice:
        """Return the policy's choice of turns, with an optional brief, continuing from what a loop kept."""
        return WindowChoice(self.counter, self.messages, policy.refill, 1 - policy.references, kept, brief=brief)

    def in_parts(self, state: ChunkSource) -> Iterator[Sequence[Message] | None]:
        """Yield the messages of a whole state part by part, the same as those of `build` without a budget.

        Yields `None` for a part in which a result lacks its call: only `build` determines the place of such a result.
        """
        atoms = Bonds().read(in_flow(state.chunks())).atoms()
        for group in in_groups(atoms):
            placed = sorted(
                (place, chunk) for atom in group for place, chunk in zip(atom.positions, atom.chunks, strict=True)
            )
            messages, apart = assembled(
                RenderedChunk(chunk, tuple(self.messages(chunk)), place) for place, chunk in placed
            )
            yield messages if apart else None
        last = (chunk for chunk in state.chunks() if chunk.category in TRAILING)
        messages, apart = assembled(self.trailing(last, state, None))
        yield messages if apart else None

    def draft(  # noqa: PLR0913 - as `build`
        self,
        state: ChunkSource,
        thread_id: str,
        max_tokens: int | None,
        policy: ContextPolicy,
        *,
        standing: Sequence[OfferedBlock] = (),
        covered: Covered | None = None,
        kept: HeldWindow | None = None,
    ) -> ContextDraft:
        """Choose whole atoms by a policy that does not see the question, and find the place of the recalled block.

        Raises `ContextBudgetError` as `build` does, and `ValueError` for a policy that returns negative numbers.
        """
        blocks = self._blocks(state, max_tokens, standing)
        parts = self._parts(state, shows_all=max_tokens is None, covered=covered)
        choice = self.choice(policy, kept, _brief(standing, thread_id))
        layout = self._layout(state, parts, max_tokens, blocks, choice)
        if max_tokens is None:
            divided = whole(layout.flow, policy, choice)
        else:
            room = max_tokens - layout.fixed - layout.carried.cap
            fitting = divide_by_policy(layout.flow, room, policy, choice)
            if fitting is None:
                raise self.overrun(state, thread_id, max_tokens, policy, standing)
            divided = fitting
        blocks = _unsaid(blocks, divided.chosen.atoms, thread_id)
        layout = layout.beside(blocks, self.counter)
        pieces = layout.pieces(divided.chosen)
        spoken = layout.flow.spoken
        flowing = pieces[: len(pieces) - len(layout.trailing)]
        return ContextDraft(
            state=state,
            thread_id=thread_id,
            pieces=pieces,
            standing=_standing_blocks(blocks, divided.chosen.kept),
            spent=layout.spent(divided.chosen),
            room=divided.recalled,
            before=next(
                (n - len(layout.turn) for n, piece in enumerate(flowing) if piece.position == spoken), len(pieces)
            ),
            builder=self,
            thinking=layout.thinking,
            kept=divided.chosen.kept,
        )

    def index(self) -> FlowIndex:
        """Return an empty index for a thread."""
        return FlowIndex(self.messages, partial(message_tokens, counter=self.counter))

    def trailing(
        self, chunks: Iterable[Chunk], state: ChunkSource | StateView, max_tokens: int | None
    ) -> list[RenderedChunk]:
        """Return the pieces of the chunks placed after all atoms, in the order of the state.

        With a budget, each category is limited to its share.
        """
        pieces = [
            RenderedChunk(chunk, tuple(render_held(chunk, state.children(chunk.id), self.renderers)), 0)
            for chunk in chunks
        ]
        if max_tokens is None:
            return pieces
        room = {category: max(TRAILING_MIN, int(max_tokens * share)) for category, share in TRAILING.items()}
        sizes = [self.tokens(piece.messages) for piece in pieces]
        if all(sum(s for s, p in zip(sizes, pieces, strict=True) if p.chunk.category is c) <= room[c] for c in room):
            return pieces
        fair: dict[Category, Iterator[int]] = {}
        for category, most in room.items():
            of = [size for size, piece in zip(sizes, pieces, strict=True) if piece.chunk.category is category]
            fair[category] = iter(fair_shares(of, most))
        limits = [next(fair[piece.chunk.category]) for piece in pieces]
        return [
            piece if size <= limit else keep_last_lines(piece, limit, self.counter)
            for piece, size, limit in zip(pieces, sizes, limits, strict=True)
        ]

    def _parts(self, state: ChunkSource, *, shows_all: bool = False, covered: Covered | None = None) -> StateParts:
        render: Callable[[Chunk], Iterable[Message]] = self.messages
        size: Callable[[Message], int] = partial(message_tokens, counter=self.counter)
        if isinstance(state, Indexed):
            parts, render, size = state.index.parts(state.state), state.index.messages, state.index.size
        elif isinstance(state, State) and not shows_all and state.tally.chunks > RENDERED_MAX:
            parts = self.index().parts(state)
        else:
            parts = StateParts.of(state.chunks(), self.messages, self.counter)
        if covered is None or shows_all or not parts.flow.summaries:
            return parts
        atoms = covered.atoms(parts.chunks, render, size)
        return replace(parts, flow=parts.flow.behind(atoms))

    def summaries(self, state: ChunkSource) -> tuple[list[Chunk], int]:
        """Return the summaries of a state, in order, and the tokens of its turns."""
        flow = self._parts(state).flow
        return [one.atom.chunks[0] for one in flow.summaries], flow.turns.tokens

    def _layout(
        self,
        state: ChunkSource,
        parts: StateParts,
        max_tokens: int | None,
        blocks: Sequence[ShownBlock],
        choice: WindowChoice,
    ) -> Layout:
        layout = Layout.of(parts.flow, self.trailing(parts.trailing, state, max_tokens), self.counter, blocks)
        return self._with_thinking(layout, (parts.chunks, parts.responded), max_tokens, choice)

    def _with_thinking(
        self,
        layout: Layout,
        flowing: tuple[Sequence[Chunk], int],
        max_tokens: int | None,
        choice: WindowChoice,
    ) -> Layout:
        """Return the layout with room for the thinking of a running tool loop, if the newest turn still fits.

        `flowing` are the chunks of the flow, and the position of the last response (-1: none).
        """
        thinking = carried_thinking(*flowing, max_tokens, self.counter)
        if not thinking:
            return layout
        held = layout.carrying(thinking, self.counter)
        return held if held.within(max_tokens, choice) is not None else layout

    def _blocks(self, state: ChunkSource, max_tokens: int | None, standing: Sequence[OfferedBlock]) -> list[ShownBlock]:
        """Return the standing blocks cut to their shares, without those that a renderer hides."""
        shown = []
        for one in standing:
            if isinstance(one.block, RankedBlock):
                continue  # `WindowChoice` gives the brief its room
            block = one.within(max_tokens, self.counter)
            messages = tuple(self.messages(block.chunk(state.seq))) if block.lines else ()
            if messages:
                piece = RenderedChunk(block.chunk(state.seq), messages, IN_NO_STATE)
                shown.append(ShownBlock(one.source.place, block, piece))
        return shown

    def overrun(
        self,
        state: ChunkSource,
        thread_id: str,
        max_tokens: int,
        policy: ContextPolicy = DEFAULT_POLICY,
        standing: Sequence[OfferedBlock] = (),
    ) -> ContextBudgetError:
        """Return the error for a budget that is too small, with the smallest sufficient budget."""
        read, choice = self._parts(state), self.choice(policy)  # the brief yields to required content

        def fits(budget: int) -> bool:
            layout = self._layout(state, read, budget, self._blocks(state, budget, standing), choice)
            return layout.within(budget, choice) is not None

        low, high = max_tokens, 2 * max(max_tokens, TRAILING_MIN)
        while not fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return ContextBudgetError(thread_id, high, max_tokens)


def _finish(  # noqa: PLR0913, PLR0917 - the parts of a context
    state: ChunkSource,
    thread_id: str,
    pieces: Sequence[RenderedChunk],
    spent: Spent,
    counter: TokenCounter,
    kept: HeldWindow = HeldWindow(),  # noqa: B008 - frozen
    tokens: int = 0,
) -> Context:
    """Build the context of these pieces; `tokens` is their known token count (0: count them)."""
    messages = assemble(pieces)
    shown = {piece.chunk.id for piece in pieces}
    of_state = state.in_order(shown)
    covered = [piece.chunk.id for piece in pieces if piece.position % 1]
    source = state.state if isinstance(state, Indexed) else state
    return Context(
        thread_id=thread_id,
        seq=state.seq,
        messages=messages,
        tokens=tokens or FRAME + tokens_in(messages, pieces, counter),
        tokens_exact=counter.exact,
        tokenizer=counter.name,
        included=(*covered, *of_state) if covered else tuple(of_state),
        left_out=LeftOut(source.chunks, frozenset(shown | kept.summaries)),
        shortened=tuple(piece.chunk.id for piece in pieces if piece.shortened),
        chunks=tuple(chunk for piece in pieces for chunk in _with_contents(state, piece.chunk)),
        spent=spent,
        pieces=tuple(pieces),
        trailing=next(
            (n for n, piece in enumerate(reversed(pieces)) if piece.chunk.category not in TRAILING), len(pieces)
        ),
        kept=kept,
    )


def _with_contents(state: ChunkSource, chunk: Chunk) -> Iterable[Chunk]:
    return (chunk, *state.children(chunk.id)) if chunk.is_container else (chunk,)


def _with_thinking(context: Context, thinking: Sequence[Chunk], counter: TokenCounter) -> Context:
    """Return the context with the thinking that it includes and that is sent back to its provider."""
    included = set(context.included)
    carried = [chunk for chunk in thinking if chunk.id in included]
    ids = tuple(chunk.id for chunk in carried)
    return evolve(context, thinking=ids, thinking_tokens=thinking_tokens(carried, counter)) if carried else context
