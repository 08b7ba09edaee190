"""From a state to the messages of the next model call, within a token budget.

Order: the chunks as they stand in the state, then what changes in place (scratchpad,
task, to-do list, environment). So the bytes before the newest chunk stay the same from turn to turn, and a
provider's prompt cache holds, until a compaction or a forget changes the state itself. What is recalled
for a question stands behind all that stays, directly before the newest turn.
"""

from collections.abc import Mapping, Sequence

import msgspec
from attrs import evolve, field, frozen
from msgspec.structs import replace

from memory_engine.context.budget import (
    ContextPolicy,
    Costed,
    choose,
    cost,
    divide,
    last_spoken,
    least,
    render,
    tokens_of,
    whole,
)
from memory_engine.context.invariants import INVARIANTS, atoms_of
from memory_engine.context.rendering import (
    Message,
    Piece,
    Renderer,
    assemble,
    message_tokens,
    render_scratchpad,
    render_todo_list,
    render_xml,
)
from memory_engine.core.chunks import RECALLED, Category, Chunk, ChunkType, Retention
from memory_engine.core.state import State, StateView
from memory_engine.core.tokens import TokenCounter
from memory_engine.errors import ContextBudgetError
from memory_engine.recall.hits import Hit

TRAILING = frozenset({Category.SCRATCHPAD, Category.TASK, Category.ENVIRONMENT})
"""What changes in place, and so stands last."""
FRAME = 3
"""Tokens that a list of messages takes beyond its messages."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of each part of a context; together they are all of it (or a little more, if a result precedes its call).

    `pinned` is what is always in: instructions, CRITICAL chunks, scratchpad, task, to-do list, environment.
    """

    pinned: int = 0
    summary: int = 0
    recent: int = 0
    recalled: int = 0


@frozen(kw_only=True)
class Context:
    """What a model is to see. `tokens` counts `messages`, exactly if `tokens_exact`.

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


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A context but for what is recalled: `room` is the most that this may take, `before` its place in `pieces`."""

    state: State
    thread_id: str
    pieces: tuple[Piece, ...]
    spent: Spent
    room: int
    before: int
    renderers: Mapping[str, Renderer]
    counter: TokenCounter

    def block(self, text: str) -> Piece:
        """What is recalled, marked as such."""
        chunk = Chunk(
            id=f"{self.state.seq}.recalled",
            type=ChunkType.RECALLED,
            content=text,
            retention=Retention.DISPOSABLE,
            status=RECALLED,
        )
        return Piece(chunk, tuple(render(chunk, self.renderers)), 0)

    def tokens(self, block: Piece) -> int:
        """What a block takes."""
        return sum(message_tokens(m, self.counter) for m in block.messages)

    def finished(self, block: Piece | None = None) -> Context:
        """The context, with this block if there is one."""
        if block is None:
            return _finish(self.state, self.thread_id, self.pieces, self.spent, self.counter)
        pieces = (*self.pieces[: self.before], block, *self.pieces[self.before :])
        spent = replace(self.spent, recalled=self.tokens(block))
        return evolve(_finish(self.state, self.thread_id, pieces, spent, self.counter), recalled_text=block.chunk.text)


class Layout(msgspec.Struct, frozen=True):
    """The chunks of a state as they are rendered: atoms, and what stands after them in any case (`fixed` tokens)."""

    costed: list[Costed]
    trailing: list[Piece]
    fixed: int

    @classmethod
    def of(cls, state: State, renderers: Mapping[str, Renderer], counter: TokenCounter) -> "Layout":
        """The layout of a whole state."""
        top = [chunk for chunk in state.chunks() if chunk.category not in TRAILING]
        costed = [cost(atom, renderers, counter) for atom in atoms_of(top, INVARIANTS)]
        return cls.with_trailing(costed, trailing_pieces(state, renderers), counter)

    @classmethod
    def with_trailing(cls, costed: list[Costed], trailing: list[Piece], counter: TokenCounter) -> "Layout":
        """The layout of atoms and what stands after them."""
        fixed = FRAME + sum(message_tokens(m, counter) for piece in trailing for m in piece.messages)
        return cls(costed, trailing, fixed)

    def overrun(self, thread_id: str, max_tokens: int) -> ContextBudgetError:
        """What must be in does not fit: at least so much is needed."""
        needed = self.fixed + tokens_of(c for c in self.costed if c.fixed) + least(self.costed)
        return ContextBudgetError(thread_id, max(needed, max_tokens + 1), max_tokens)

    def spent(self, chosen: Sequence[Costed]) -> Spent:
        """What each part takes, of these atoms and of what stands after them."""
        return Spent(
            pinned=self.fixed + tokens_of(c for c in chosen if c.fixed),
            summary=tokens_of(c for c in chosen if c.is_summary and not c.fixed),
            recent=tokens_of(c for c in chosen if not c.is_summary and not c.fixed),
        )


def build_context(
    state: State,
    *,
    thread_id: str,
    max_tokens: int | None,
    renderers: Mapping[str, Renderer],
    counter: TokenCounter,
) -> Context:
    """Choose whole atoms for the budget and render them.

    CRITICAL chunks are always in; then the newest atom (its texts cut if they must be), the
    summaries, and the newest turns that fit. Raises `ContextBudgetError` where CRITICAL
    chunks and the newest atom cannot fit at all.
    """
    layout = Layout.of(state, renderers, counter)
    chosen = layout.costed
    if max_tokens is not None:
        fitting = choose(layout.costed, max_tokens - layout.fixed, counter)
        if fitting is None:
            raise layout.overrun(thread_id, max_tokens)
        chosen = fitting
    pieces = [*in_order(chosen), *layout.trailing]
    return _finish(state, thread_id, pieces, layout.spent(chosen), counter)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a context (`None`: all of the state, and what the policy recalls), and how they are divided."""

    max_tokens: int | None
    policy: ContextPolicy


def draft_context(
    state: State,
    *,
    thread_id: str,
    budget: Budget,
    renderers: Mapping[str, Renderer],
    counter: TokenCounter,
) -> Draft:
    """Choose whole atoms by the policy, and find the place for what is recalled. It is told no question.

    Raises `ContextBudgetError` as `build_context` does, and `ValueError` for a policy that gives negative numbers.
    """
    layout = Layout.of(state, renderers, counter)
    if budget.max_tokens is None:
        divided = whole(layout.costed, budget.policy)
    else:
        fitting = divide(layout.costed, budget.max_tokens - layout.fixed, budget.policy, counter)
        if fitting is None:
            raise layout.overrun(thread_id, budget.max_tokens)
        divided = fitting
    pieces = (*in_order(divided.chosen), *layout.trailing)
    spoken = last_spoken(layout.costed)
    flowing = pieces[: len(pieces) - len(layout.trailing)]
    return Draft(
        state=state,
        thread_id=thread_id,
        pieces=pieces,
        spent=layout.spent(divided.chosen),
        room=divided.recalled,
        before=next((n for n, piece in enumerate(flowing) if piece.position == spoken), len(pieces)),
        renderers=renderers,
        counter=counter,
    )


def in_order(chosen: Sequence[Costed]) -> list[Piece]:
    """The pieces of atoms, in the order of the state."""
    return sorted((piece for c in chosen for piece in c.pieces), key=lambda piece: piece.position)


def trailing_pieces(state: StateView, renderers: Mapping[str, Renderer]) -> list[Piece]:
    """What stands after all atoms, in the order of the state."""
    return [_trailing(state, chunk, renderers) for chunk in state.chunks() if chunk.category in TRAILING]


def _trailing(state: StateView, chunk: Chunk, renderers: Mapping[str, Renderer]) -> Piece:
    if chunk.type == ChunkType.SCRATCHPAD and chunk.type not in renderers:
        return Piece(chunk, tuple(render_scratchpad(state.children(chunk.id))), 0)
    if chunk.is_container and chunk.type not in renderers:
        return Piece(chunk, (render_todo_list(chunk, state.children(chunk.id)),), 0)
    return Piece(chunk, tuple(render(chunk, renderers)), 0)


def _finish(state: State, thread_id: str, pieces: Sequence[Piece], spent: Spent, counter: TokenCounter) -> Context:
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
