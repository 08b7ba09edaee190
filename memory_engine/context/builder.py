"""From a state to the messages of the next model call, within a token budget.

Order: the chunks as they stand in the state, then the chunks that change in place (scratchpad, task, to-do list,
environment). So the bytes before the newest chunk stay the same from turn to turn, and a provider's prompt cache
holds, until a compaction or a forget changes the state itself. Passages recalled for a question stand behind
everything that stays, directly before the newest turn.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from attrs import evolve, field, frozen
from msgspec.structs import replace

from memory_engine.context.budget import (
    ContextPolicy,
    Costed,
    Flow,
    choose_newest,
    cost,
    divide_by_policy,
    last_spoken,
    least,
    tokens_of,
    whole,
)
from memory_engine.context.invariants import atoms_of
from memory_engine.context.rendering import (
    Message,
    RenderedChunk,
    Renderer,
    assemble,
    message_tokens,
    render,
    render_held,
    render_xml,
)
from memory_engine.core.chunks import RECALLED, Category, Chunk, ChunkType, Retention
from memory_engine.core.state import State, StateView
from memory_engine.core.tokens import TokenCounter
from memory_engine.errors import ContextBudgetError
from memory_engine.recall.hits import Hit

TRAILING = frozenset({Category.SCRATCHPAD, Category.TASK, Category.ENVIRONMENT})
"""Types of chunks that change in place, and so stand last."""
FRAME = 3
"""Tokens that a list of messages takes beyond those of its messages."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of each part of a context; together they are all of it (or a little more, if a result precedes its call).

    `pinned` counts the chunks that are always in: instructions, CRITICAL chunks, scratchpad, task, to-do list,
    environment.
    """

    pinned: int = 0
    summary: int = 0
    recent: int = 0
    recalled: int = 0


@frozen(kw_only=True)
class Context:
    """The input of a model call. `tokens` counts `messages`, exactly if `tokens_exact`.

    `included` and `excluded` are chunk ids in the order of the state; `shortened` are
    those included whose text was cut to fit. `spent` says which part took how much.

    `recalled` are the passages that a `query` brought, as they are shown, oldest first, and `recalled_text` the
    text of their block; `recall_failure` says why an embedder or a re-ranker took no part although there is one.
    In `chunks` the block is one chunk with the status RECALLED, which is in no state.
    """

    thread_id: str
    seq: int
    messages: list[Message]
    tokens: int
    tokens_exact: bool
    tokenizer: str
    included: tuple[str, ...]
    excluded: tuple[str, ...]
    shortened: tuple[str, ...] = ()
    chunks: tuple[Chunk, ...] = field(default=(), repr=False)
    spent: Spent = Spent()
    recalled: tuple[Hit, ...] = ()
    recalled_text: str = field(default="", repr=False)
    recall_failure: str = ""

    def xml(self) -> str:
        """The same chunks in the XML form, each with its id."""
        return render_xml(self.chunks)


class ContextDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A context without its recalled block. The block may take `room` tokens; `before` is its place in `pieces`."""

    state: State
    thread_id: str
    pieces: tuple[RenderedChunk, ...]
    spent: Spent
    room: int
    before: int
    builder: "ContextBuilder"

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
        counter = self.builder.counter
        if block is None:
            return _finish(self.state, self.thread_id, self.pieces, self.spent, counter)
        pieces = (*self.pieces[: self.before], block, *self.pieces[self.before :])
        spent = replace(self.spent, recalled=self.tokens(block))
        return evolve(_finish(self.state, self.thread_id, pieces, spent, counter), recalled_text=block.chunk.text)


class Layout(msgspec.Struct, frozen=True):
    """The rendered chunks of a state: atoms, and the pieces that always stand after them (`fixed` tokens)."""

    flow: Flow
    trailing: Sequence[RenderedChunk]
    fixed: int

    @classmethod
    def of(cls, flow: Flow, trailing: Sequence[RenderedChunk], counter: TokenCounter) -> "Layout":
        """Lay out atoms and the pieces that stand after them."""
        fixed = FRAME + sum(message_tokens(m, counter) for piece in trailing for m in piece.messages)
        return cls(flow, trailing, fixed)

    def within(self, max_tokens: int | None, thread_id: str, counter: TokenCounter) -> list[Costed]:
        """The atoms that a budget leaves room for, in order. Raises `ContextBudgetError`."""
        if max_tokens is None:
            return self.flow.atoms()
        chosen = choose_newest(self.flow, max_tokens - self.fixed, counter)
        if chosen is None:
            raise self.overrun(thread_id, max_tokens)
        return chosen

    def overrun(self, thread_id: str, max_tokens: int) -> ContextBudgetError:
        """The error for a budget that not even the fixed chunks fit, with the tokens needed at least."""
        return ContextBudgetError(thread_id, max(self.fixed + least(self.flow), max_tokens + 1), max_tokens)

    def pieces(self, chosen: Sequence[Costed]) -> tuple[RenderedChunk, ...]:
        """The pieces of these atoms, in the order of the state, and those that stand after them."""
        return (*in_order(chosen), *self.trailing)

    def spent(self, chosen: Sequence[Costed]) -> Spent:
        """The tokens of each part: of these atoms, and of the pieces after them."""
        flow = Flow.of(chosen)
        return Spent(
            pinned=self.fixed + flow.fixed_tokens,
            summary=tokens_of(flow.summaries),
            recent=tokens_of(flow.turns),
        )


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

    def build(self, state: State, thread_id: str, max_tokens: int | None = None) -> Context:
        """Choose whole atoms for the budget (`None`: all of them) and render them.

        CRITICAL chunks are always in; then the newest atom (its texts cut if they must be), the
        summaries, and the newest turns that fit. Raises `ContextBudgetError` where CRITICAL
        chunks and the newest atom cannot fit at all.
        """
        layout = self._layout(state)
        chosen = layout.within(max_tokens, thread_id, self.counter)
        return _finish(state, thread_id, layout.pieces(chosen), layout.spent(chosen), self.counter)

    def draft(self, state: State, thread_id: str, max_tokens: int | None, policy: ContextPolicy) -> ContextDraft:
        """Choose whole atoms by a policy that does not see the question, and find the place of the recalled block.

        Raises `ContextBudgetError` as `build` does, and `ValueError` for a policy that gives negative numbers.
        """
        layout = self._layout(state)
        if max_tokens is None:
            divided = whole(layout.flow, policy)
        else:
            fitting = divide_by_policy(layout.flow, max_tokens - layout.fixed, policy, self.counter)
            if fitting is None:
                raise layout.overrun(thread_id, max_tokens)
            divided = fitting
        pieces = layout.pieces(divided.chosen)
        spoken = last_spoken(layout.flow)
        flowing = pieces[: len(pieces) - len(layout.trailing)]
        return ContextDraft(
            state=state,
            thread_id=thread_id,
            pieces=pieces,
            spent=layout.spent(divided.chosen),
            room=divided.recalled,
            before=next((n for n, piece in enumerate(flowing) if piece.position == spoken), len(pieces)),
            builder=self,
        )

    def trailing(self, state: StateView) -> list[RenderedChunk]:
        """The pieces that stand after all atoms, in the order of the state."""
        return [
            RenderedChunk(chunk, tuple(render_held(chunk, state.children(chunk.id), self.renderers)), 0)
            for chunk in state.chunks()
            if chunk.category in TRAILING
        ]

    def _layout(self, state: State) -> Layout:
        atoms = atoms_of(chunk for chunk in state.chunks() if chunk.category not in TRAILING)
        flow = Flow.of(cost(atom, self.messages, self.counter) for atom in atoms)
        return Layout.of(flow, self.trailing(state), self.counter)


def in_order(chosen: Sequence[Costed]) -> list[RenderedChunk]:
    """The pieces of atoms, in the order of the state."""
    return sorted((piece for c in chosen for piece in c.pieces), key=lambda piece: piece.position)


def _finish(
    state: State, thread_id: str, pieces: Sequence[RenderedChunk], spent: Spent, counter: TokenCounter
) -> Context:
    messages = assemble(pieces)
    shown = {piece.chunk.id for piece in pieces}
    included = tuple(chunk.id for chunk in state.chunks() if chunk.id in shown)
    return Context(
        thread_id=thread_id,
        seq=state.seq,
        messages=messages,
        tokens=FRAME + sum(message_tokens(m, counter) for m in messages),
        tokens_exact=counter.exact,
        tokenizer=counter.name,
        included=included,
        excluded=tuple(chunk.id for chunk in state.chunks() if chunk.id not in shown),
        shortened=tuple(piece.chunk.id for piece in pieces if piece.shortened),
        chunks=tuple(chunk for piece in pieces for chunk in (piece.chunk, *state.children(piece.chunk.id))),
        spent=spent,
    )
