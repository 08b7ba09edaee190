"""From a state to the messages of the next model call, within a token budget.

Order: the chunks as they stand in the state, then the chunks that change in place (scratchpad, task, to-do list,
environment). So the bytes before the newest chunk stay the same from turn to turn, and a provider's prompt cache
holds, until a compaction or a forget changes the state itself. Passages recalled for a question stand behind
everything that stays, directly before the newest turn.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
from attrs import evolve, field, frozen
from msgspec.structs import replace

from memory_engine.context.brief_block import OfferedBrief, RankedBlock
from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy, divide_by_policy, whole
from memory_engine.context.choice import Chosen, HeldWindow, WindowChoice
from memory_engine.context.context import Context, LeftOut, Spent
from memory_engine.context.covered import Covered
from memory_engine.context.flow import TRAILING, Costed, Flow, in_groups, in_order, tokens_of
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
    render,
    render_held,
)
from memory_engine.context.shortening import fair_shares, keep_last_lines
from memory_engine.context.sources import ChunkSource, Indexed
from memory_engine.context.standing import OfferedBlock, Place, StandingBlock
from memory_engine.context.thinking import carried_thinking, thinking_tokens
from memory_engine.core.chunks import RECALLED, Category, Chunk, ChunkType, Retention
from memory_engine.core.state import StateView
from memory_engine.core.tokens import TokenCounter
from memory_engine.errors import ContextBudgetError

TRAILING_MIN = 96
"""Tokens that each of these may take of a small budget too."""
FRAME = 3
"""Tokens that a list of messages takes beyond those of its messages."""


class ContextDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A context without its recalled block. The block may take `room` tokens; `before` is its place in `pieces`."""

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
        """The recalled passages as a chunk, marked as recalled."""
        chunk = Chunk(
            id=f"{self.state.seq}.recalled",
            type=ChunkType.RECALLED,
            content=text,
            retention=Retention.DISPOSABLE,
            status=RECALLED,
        )
        return RenderedChunk(chunk, tuple(self.builder.messages(chunk)), 0)

    def tokens(self, block: RenderedChunk) -> int:
        """The tokens of a block."""
        return self.builder.tokens(block.messages)

    def finished(self, block: RenderedChunk | None = None) -> Context:
        """The context, with this block if there is one."""
        if block is None:
            return self._context(self.pieces, self.spent)
        pieces = (*self.pieces[: self.before], block, *self.pieces[self.before :])
        spent = replace(self.spent, recalled=self.tokens(block))
        return evolve(self._context(pieces, spent), recalled_text=block.chunk.text)

    def _context(self, pieces: Sequence[RenderedChunk], spent: Spent) -> Context:
        made = _finish(self.state, self.thread_id, pieces, spent, self.builder.counter, self.kept)
        return evolve(_with_thinking(made, self.thinking, self.builder.counter), standing=self.standing)


class Layout(msgspec.Struct, frozen=True):
    """The rendered chunks of a state: atoms, and the pieces that are in beside them.

    `first` stand after the instructions, `turn` before the newest turn, `trailing` after all atoms. `fixed` are the
    tokens of these, and of the `thinking` that a provider gets back (`carried`).
    """

    flow: Flow
    trailing: Sequence[RenderedChunk]
    first: Sequence[RenderedChunk]
    turn: Sequence[RenderedChunk]
    fixed: int
    standing: int
    thinking: tuple[Chunk, ...] = ()
    carried: int = 0

    @classmethod
    def of(
        cls,
        flow: Flow,
        trailing: Sequence[RenderedChunk],
        counter: TokenCounter,
        blocks: "Sequence[ShownBlock]" = (),
    ) -> "Layout":
        """Lay out atoms and the pieces beside them."""
        first = [one.piece for one in blocks if one.place == "first"]
        turn = [one.piece for one in blocks if one.place == "turn"]
        standing = _piece_tokens([*first, *turn], counter)
        fixed = FRAME + _piece_tokens(trailing, counter) + standing
        return cls(flow, trailing, first, turn, fixed, standing)

    def beside(self, blocks: "Sequence[ShownBlock]", counter: TokenCounter) -> "Layout":
        """The same with other blocks beside the atoms."""
        return Layout.of(self.flow, self.trailing, counter, blocks).carrying(self.thinking, counter)

    def carrying(self, thinking: tuple[Chunk, ...], counter: TokenCounter) -> "Layout":
        """The same with room for thinking."""
        carried = thinking_tokens(thinking, counter)
        return replace(self, fixed=self.fixed - self.carried + carried, thinking=thinking, carried=carried)

    def within(self, max_tokens: int | None, choice: WindowChoice) -> Chosen | None:
        """The atoms that a budget leaves room for, in order; `None` where it is too small for those that must be in."""
        if max_tokens is None:
            return choice.unbounded(self.flow)
        return choice.of(self.flow, max_tokens - self.fixed)

    def pieces(self, chosen: Chosen) -> tuple[RenderedChunk, ...]:
        """The pieces of these atoms, in the order of the state, with those that stand beside them."""
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
        """The tokens of each part: of these atoms, and of the pieces beside them."""
        flow = Flow.of(chosen.atoms)
        return Spent(
            pinned=self.fixed - self.standing - self.carried + flow.fixed_tokens,
            standing=self.standing + chosen.kept.standing_tokens,
            summary=tokens_of(flow.summaries) + chosen.kept.summary_tokens,
            recent=flow.turns.tokens,
        )


def summaries_of(chunks: Iterable[Chunk]) -> tuple[list[Chunk], int]:
    """The summaries among chunks, in order, and the recorded tokens of the working flow beside them."""
    top = list(chunks)
    tokens = sum(chunk.tokens for chunk in top if chunk.category is Category.WORKING_FLOW)
    return [chunk for chunk in top if chunk.category is Category.MEMORY], tokens


def _shown(blocks: "Sequence[ShownBlock]", kept: HeldWindow) -> tuple[StandingBlock, ...]:
    """The blocks of a context, with the brief that it shows, and what was pinned since."""
    return (*(one.block for one in blocks), *(block for block in (kept.brief, kept.added) if block is not None))


def _brief(standing: Sequence[OfferedBlock], thread_id: str) -> OfferedBrief | None:
    """The brief among the offered blocks."""
    for one in standing:
        if isinstance(one.block, RankedBlock):
            return OfferedBrief(one.block, thread_id, one.source.share if one.share is None else one.share)
    return None


class ShownBlock(msgspec.Struct, frozen=True):
    """A standing block as it fits into its share, with its place and its piece."""

    place: Place
    block: StandingBlock
    piece: RenderedChunk


def _unsaid(blocks: Sequence[ShownBlock], chosen: Sequence[Costed], thread_id: str) -> list[ShownBlock]:
    """The blocks but for those that repeat what these atoms say themselves: all they tell is of their events."""
    said = {(thread_id, piece.chunk.said_at) for one in chosen for piece in one.pieces} if blocks else set()
    return [one for one in blocks if not said.issuperset((line.thread_id, line.seq) for line in one.block.lines)]


def _piece_tokens(pieces: Iterable[RenderedChunk], counter: TokenCounter) -> int:
    return sum(message_tokens(message, counter) for piece in pieces for message in piece.messages)


@frozen
class ContextBuilder:
    """Builds the context of a state, with the renderers of chunk types and a counter of tokens."""

    renderers: Mapping[str, Renderer] = field(repr=False)
    counter: TokenCounter = field(repr=False)

    def messages(self, chunk: Chunk) -> Iterable[Message]:
        """The messages of one chunk."""
        return render(chunk, self.renderers)

    def tokens(self, messages: Iterable[Message]) -> int:
        """The tokens of messages."""
        return sum(message_tokens(message, self.counter) for message in messages)

    def build(  # noqa: PLR0913 - what a context is made of, by keyword
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

        Always in are CRITICAL chunks, the message being worked on, and the newest atom (texts cut if they must be);
        then come the standing blocks, and the newest turns that fit, those of `covered` originals among them, with the
        lines of summaries that represent the others. A loop goes on from what its last context `kept`. Raises
        `ContextBudgetError` where those that are always in cannot fit at all.
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
        return evolve(made, standing=_shown(blocks, chosen.kept))

    def choice(
        self, policy: ContextPolicy, kept: HeldWindow | None = None, brief: OfferedBrief | None = None
    ) -> WindowChoice:
        """How this builder chooses turns by a policy, beside a brief, going on from what a loop kept."""
        return WindowChoice(self.counter, self.messages, policy.refill, 1 - policy.references, kept, brief=brief)

    def in_parts(self, state: ChunkSource) -> Iterator[Sequence[Message] | None]:
        """The messages of a whole state, as `build` gives them without a budget, made part by part as they are read.

        `None` where a result is without its call: then only `build` tells where it stands.
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

        Raises `ContextBudgetError` as `build` does, and `ValueError` for a policy that gives negative numbers.
        """
        blocks = self._blocks(state, max_tokens, standing)
        parts = self._parts(state, shows_all=max_tokens is None, covered=covered)
        choice = self.choice(policy, kept, _brief(standing, thread_id))
        layout = self._layout(state, parts, max_tokens, blocks, choice)
        if max_tokens is None:
            divided = whole(layout.flow, policy, choice)
        else:
            fitting = divide_by_policy(layout.flow, max_tokens - layout.fixed, policy, choice)
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
            standing=_shown(blocks, divided.chosen.kept),
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
        """An index of a thread that nothing was read into yet."""
        return FlowIndex(self.messages, self.counter)

    def trailing(
        self, chunks: Iterable[Chunk], state: ChunkSource | StateView, max_tokens: int | None
    ) -> list[RenderedChunk]:
        """The pieces of chunks that stand after all atoms, in the order of the state.

        Each kind is within its share of a budget.
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
        if isinstance(state, Indexed):
            parts = state.index.parts(state.state)
        else:
            parts = StateParts.of(state.chunks(), self.messages, self.counter, shows_all=shows_all)
        if covered is None or shows_all or not parts.flow.summaries:
            return parts
        atoms = covered.atoms(parts.chunks, self.messages, partial(message_tokens, counter=self.counter))
        return evolve(parts, flow=parts.flow.behind(atoms))

    def summaries(self, state: ChunkSource) -> tuple[list[Chunk], int]:
        """The summaries of a state, in order, and the tokens of its turns."""
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
        return self.with_thinking(layout, (parts.chunks, parts.responded), max_tokens, choice)

    def with_thinking(
        self,
        layout: Layout,
        flowing: tuple[Sequence[Chunk], int],
        max_tokens: int | None,
        choice: WindowChoice,
    ) -> Layout:
        """The layout with room for the thinking of a tool loop that runs, if the newest turn fits beside it.

        `flowing` are the chunks of the flow, and the position of the last response (-1: none).
        """
        thinking = carried_thinking(*flowing, max_tokens, self.counter)
        if not thinking:
            return layout
        held = layout.carrying(thinking, self.counter)
        return held if held.within(max_tokens, choice) is not None else layout

    def _blocks(self, state: ChunkSource, max_tokens: int | None, standing: Sequence[OfferedBlock]) -> list[ShownBlock]:
        """The standing blocks as they fit into their shares, without those that a renderer hides."""
        shown = []
        for one in standing:
            if isinstance(one.block, RankedBlock):
                continue  # it has the room that the window leaves it: see `WindowChoice`
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
        """The error for a budget that is too small, with the smallest one that is not."""
        read, choice = self._parts(state), self.choice(policy)  # the brief gives way to what must be in

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


def _finish(  # noqa: PLR0913, PLR0917 - the parts of a context, once
    state: ChunkSource,
    thread_id: str,
    pieces: Sequence[RenderedChunk],
    spent: Spent,
    counter: TokenCounter,
    kept: HeldWindow = HeldWindow(),  # noqa: B008 - frozen
    tokens: int = 0,
) -> Context:
    """The context of these pieces; `tokens` are theirs, if they are known (0: they are counted)."""
    messages = assemble(pieces)
    shown = {piece.chunk.id for piece in pieces}
    of_state = state.in_order(shown)
    covered = [piece.chunk.id for piece in pieces if piece.position % 1]
    source = state.state if isinstance(state, Indexed) else state
    return Context(
        thread_id=thread_id,
        seq=state.seq,
        messages=messages,
        tokens=tokens or FRAME + sum(message_tokens(m, counter) for m in messages),
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
    """The context with the thinking that is in it and goes back to its provider."""
    included = set(context.included)
    carried = [chunk for chunk in thinking if chunk.id in included]
    ids = tuple(chunk.id for chunk in carried)
    return evolve(context, thinking=ids, thinking_tokens=thinking_tokens(carried, counter)) if carried else context
