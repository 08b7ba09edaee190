"""From a state to the messages of the next model call, within a token budget.

Order: the chunks as they stand in the state, then what changes in place (scratchpad,
task, to-do list, environment). So the bytes before the newest chunk stay the same from turn to turn, and a
provider's prompt cache holds, until a compaction or a forget changes the state itself.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve, field, frozen

from memory_engine.chunks import Category, Chunk, ChunkType, Retention
from memory_engine.context.invariants import INVARIANTS, Atom, atoms_of
from memory_engine.context.messages import Piece, assemble, message_tokens, shorten
from memory_engine.context.rendering import Message, Renderer, render_scratchpad, render_todo_list, render_xml
from memory_engine.errors import ContextBudgetError
from memory_engine.state import State
from memory_engine.tokens import TokenCounter

REFILL = 0.75
"""When the oldest turns no longer fit, the window is cut to this share of its room, so that
it moves once in a while and not at every turn (each move costs the prompt cache)."""
SUMMARY_SHARE = 0.5
"""The share of the room that summaries may take before turns are dropped in their favour."""
_TRAILING = frozenset({Category.SCRATCHPAD, Category.TASK, Category.ENVIRONMENT})


@frozen(kw_only=True)
class Context:
    """What a model is to see. `tokens` counts `messages`, exactly if `tokens_exact`.

    `included` and `excluded` are chunk ids in the order of the state; `shortened` are
    those included whose text was cut to fit.
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

    def xml(self) -> str:
        """The same chunks in the XML form, each with its id."""
        return render_xml(self.chunks)


@frozen
class _Costed:
    atom: Atom
    pieces: tuple[Piece, ...]
    tokens: int
    fixed: bool

    @property
    def is_summary(self) -> bool:
        return self.atom.chunks[0].category is Category.MEMORY


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
    top = [chunk for chunk in state.chunks() if chunk.category not in _TRAILING]
    trailing = [_trailing(state, chunk, renderers) for chunk in state.chunks() if chunk.category in _TRAILING]
    costed = [_cost(atom, renderers, counter) for atom in atoms_of(top, INVARIANTS)]
    chosen: list[_Costed] | None = costed
    if max_tokens is not None:
        fixed = 3 + sum(message_tokens(m, counter) for piece in trailing for m in piece.messages)
        chosen = _choose(costed, max_tokens - fixed, counter)
        if chosen is None:
            needed = fixed + sum(c.tokens for c in costed if c.fixed) + _least(costed)
            raise ContextBudgetError(thread_id, needed, max_tokens)
    pieces = sorted((piece for c in chosen or () for piece in c.pieces), key=lambda piece: piece.position)
    return _finish(state, thread_id, [*pieces, *trailing], counter)


def _cost(atom: Atom, renderers: Mapping[str, Renderer], counter: TokenCounter) -> _Costed:
    pieces = tuple(
        Piece(chunk, tuple(_render(chunk, renderers)), position)
        for position, chunk in zip(atom.positions, atom.chunks, strict=True)
    )
    tokens = sum(message_tokens(m, counter) for m in assemble(pieces))
    fixed = any(c.retention is Retention.CRITICAL or c.category is Category.SYSTEM for c in atom.chunks)
    return _Costed(atom, pieces, tokens, fixed)


def _render(chunk: Chunk, renderers: Mapping[str, Renderer]) -> Iterable[Message]:
    return renderers.get(chunk.type, renderers["*"])(chunk)


def _trailing(state: State, chunk: Chunk, renderers: Mapping[str, Renderer]) -> Piece:
    if chunk.type == ChunkType.SCRATCHPAD and chunk.type not in renderers:
        return Piece(chunk, tuple(render_scratchpad(state.children(chunk.id))), 0)
    if chunk.is_container and chunk.type not in renderers:
        return Piece(chunk, (render_todo_list(chunk, state.children(chunk.id)),), 0)
    return Piece(chunk, tuple(_render(chunk, renderers)), 0)


def _choose(costed: Sequence[_Costed], room: int, counter: TokenCounter) -> list[_Costed] | None:
    """The atoms to include, in order; `None` where not even what must be in fits."""
    room -= sum(c.tokens for c in costed if c.fixed)
    flowing = [c for c in costed if not c.fixed]
    summaries = [c for c in flowing if c.is_summary]
    turns = [c for c in flowing if not c.is_summary]
    if room < 0:
        return None
    kept = _newest_within(summaries, int(room * SUMMARY_SHARE) if turns else room)
    room -= sum(c.tokens for c in kept)
    window = _window(turns, room)
    if turns and (not window or window[-1] is not turns[-1]):
        newest = _shortened(turns[-1], room, counter)
        if newest is None and kept:
            room += sum(c.tokens for c in kept)
            kept = []
            newest = _shortened(turns[-1], room, counter)
        if newest is None:
            return None
        window = [newest]
    chosen = {id(c) for c in (*kept, *window)}
    replaced = {id(turns[-1]): window[-1]} if window else {}
    final = [replaced.get(id(c), c) for c in costed]
    return [c for c in final if c.fixed or id(c) in chosen]


def _newest_within(costed: Sequence[_Costed], room: int) -> list[_Costed]:
    kept: list[_Costed] = []
    for c in reversed(costed):
        if c.tokens > room:
            break
        room -= c.tokens
        kept.append(c)
    return kept


def _window(turns: Sequence[_Costed], room: int) -> list[_Costed]:
    """The newest turns that fit.

    Found by walking from the oldest, so that where the window starts depends on the log
    alone and it moves only when it has to.
    """
    start = total = 0
    for n, turn in enumerate(turns):
        total += turn.tokens
        if total > room:
            while start <= n and total > room * REFILL:
                total -= turns[start].tokens
                start += 1
    return list(turns[start:])


def _shortened(costed: _Costed, room: int, counter: TokenCounter) -> _Costed | None:
    pieces = shorten(costed.pieces, room, counter)
    if pieces is None:
        return None
    return evolve(costed, pieces=pieces, tokens=sum(message_tokens(m, counter) for m in assemble(pieces)))


def _least(costed: Sequence[_Costed]) -> int:
    flowing = [c for c in costed if not c.fixed]
    return min(flowing[-1].tokens, 64) if flowing else 0


def _finish(state: State, thread_id: str, pieces: Sequence[Piece], counter: TokenCounter) -> Context:
    messages = assemble(pieces)
    shown = {piece.chunk.id for piece in pieces}
    included = tuple(chunk.id for chunk in state.chunks() if chunk.id in shown)
    return Context(
        thread_id=thread_id,
        seq=state.seq,
        messages=messages,
        tokens=3 + sum(message_tokens(m, counter) for m in messages),
        tokens_exact=counter.exact,
        tokenizer=counter.name,
        included=included,
        excluded=tuple(chunk.id for chunk in state.chunks() if chunk.id not in shown),
        shortened=tuple(piece.chunk.id for piece in pieces if piece.shortened),
        chunks=tuple(chunk for piece in pieces for chunk in (piece.chunk, *state.children(piece.chunk.id))),
    )
