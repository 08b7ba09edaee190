"""Which atoms of a state a context holds: by the newest turns alone, or by the shares of a policy.

With recall, a policy divides the budget; here is the one that does where none is given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from attrs import Attribute, field, frozen
from msgspec.structs import replace

from memory_engine.context.invariants import Atom
from memory_engine.context.rendering import Message, Piece, Renderer, assemble, message_tokens, shorten
from memory_engine.core.chunks import Category, Chunk, ChunkType, Retention
from memory_engine.core.tokens import TokenCounter

RECALLED_MAX = 4_000
"""Tokens of recalled originals beyond which more of them answer hardly more (see docs/context.md)."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to divide, in tokens, once the pinned chunks are in.

    `flowing` is what is left for everything else. `newest` is the newest turn (the last message of a person and
    what follows it), `recent` all turns of the state, the newest included, `summaries` its summaries.
    """

    flowing: int
    newest: int
    recent: int
    summaries: int


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The most that each part may take, in tokens. What one leaves over is the next one's, in this order.

    The newest turn is in before all of them, and counts as recent. What was said right before it is in too, beyond
    `recent`, if it takes no more than `previous`.
    """

    summary: int
    recent: int
    recalled: int
    previous: int = 0


class ContextPolicy(Protocol):
    """Divides the room. A function will do.

    It is not told the question, nor what was found: so what stands before the recalled block is the same
    whatever is asked, and a provider's prompt cache holds.
    """

    def __call__(self, room: Room) -> Split:
        """The most that each part may take; negative numbers are refused with `ValueError`. Pure."""
        ...


def _tokens(_policy: object, attribute: "Attribute[int]", value: int) -> None:
    if value < 0:
        raise ValueError(f"{attribute.name} is a number of tokens, not {value}")


def _share(_shares: object, attribute: "Attribute[float]", value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{attribute.name} is a share of the room, from 0 to 1, not {value}")


@frozen(kw_only=True)
class ContextShares:
    """The policy of shares: a little for summaries and recent turns, the rest for what is recalled.

    `summary`, `recent` and `previous` are shares of `Room.flowing`. What is recalled takes the rest, up to
    `recalled_max` tokens; of a room so large that this leaves some over, recent turns take that too. Where no
    summary stands for anything and all turns fit, they are all in, whatever their share.
    """

    summary: float = field(default=0.08, validator=_share)
    recent: float = field(default=0.12, validator=_share)
    previous: float = field(default=0.25, validator=_share)
    recalled_max: int = field(default=RECALLED_MAX, validator=_tokens)

    def __call__(self, room: Room) -> Split:
        """The most that each part may take."""
        if not room.summaries and room.recent <= room.flowing:
            return Split(summary=0, recent=room.flowing, recalled=self.recalled_max)
        summary = int(room.flowing * self.summary)
        return Split(
            summary=summary,
            recent=max(int(room.flowing * self.recent), room.flowing - summary - self.recalled_max),
            recalled=self.recalled_max,
            previous=int(room.flowing * self.previous),
        )


DEFAULT_POLICY = ContextShares()


REFILL = 0.75
"""When the oldest turns no longer fit, the window is cut to this share of its room, so that
it moves once in a while and not at every turn (each move costs the prompt cache)."""
SUMMARY_SHARE = 0.5
"""The share of the room that summaries may take before turns are dropped in their favour."""
SPARED_SHARE = 0.25
"""Of a room that the newest turn does not fit into anyway, so much is still spared for what is recalled."""
SPOKEN = frozenset({ChunkType.USER_MESSAGE, ChunkType.PARENT_MESSAGE})
"""A turn begins with one of these."""


class Costed(msgspec.Struct, frozen=True):
    """An atom as it is rendered, with what that takes. `fixed`: it is in, whatever else is."""

    atom: Atom
    pieces: tuple[Piece, ...]
    tokens: int
    fixed: bool

    @property
    def is_summary(self) -> bool:
        """Whether it stands for what was said before."""
        return self.atom.chunks[0].category is Category.MEMORY


def cost(atom: Atom, renderers: Mapping[str, Renderer], counter: TokenCounter) -> Costed:
    """An atom rendered and counted."""
    pieces = tuple(
        Piece(chunk, tuple(render(chunk, renderers)), position)
        for position, chunk in zip(atom.positions, atom.chunks, strict=True)
    )
    tokens = sum(message_tokens(m, counter) for m in assemble(pieces))
    fixed = any(c.retention is Retention.CRITICAL or c.category is Category.SYSTEM for c in atom.chunks)
    return Costed(atom, pieces, tokens, fixed)


def render(chunk: Chunk, renderers: Mapping[str, Renderer]) -> Iterable[Message]:
    """The messages of a chunk."""
    return renderers.get(chunk.type, renderers["*"])(chunk)


class Flow(msgspec.Struct, frozen=True):
    """Atoms by what a budget does with them: those that are in, the summaries, and the turns, each in order."""

    fixed: Sequence[Costed]
    summaries: Sequence[Costed]
    turns: Sequence[Costed]
    fixed_tokens: int

    @classmethod
    def of(cls, costed: Sequence[Costed]) -> "Flow":
        """The atoms, sorted out."""
        fixed = [c for c in costed if c.fixed]
        return cls(fixed, *_flowing(costed), tokens_of(fixed))

    def plus(self, later: "Flow") -> "Flow":
        """With those that follow."""
        return Flow(
            [*self.fixed, *later.fixed],
            [*self.summaries, *later.summaries],
            [*self.turns, *later.turns],
            self.fixed_tokens + later.fixed_tokens,
        )


@frozen
class Window:
    """The newest turns that fit into a room, as the turns come.

    Found by walking from the oldest, so that where the window starts depends on the log
    alone and it moves only when it has to.
    """

    room: int
    start: int = 0
    _tokens: int = 0
    _seen: int = 0

    def over(self, turns: Sequence[Costed]) -> "Window":
        """The window over these turns, of which it has seen the first ones already."""
        total, start, room = self._tokens, self.start, self.room
        for n in range(self._seen, len(turns)):
            total += turns[n].tokens
            if total > room:
                while start <= n and total > room * REFILL:
                    total -= turns[start].tokens
                    start += 1
        return Window(room, start, total, len(turns))


def choose(costed: Sequence[Costed], room: int, counter: TokenCounter) -> list[Costed] | None:
    """The atoms to include, in order; `None` where not even what must be in fits."""
    return choose_of(Flow.of(costed), room, counter, _start)


def choose_of(
    flow: Flow, room: int, counter: TokenCounter, start_of: Callable[[Sequence[Costed], int], int]
) -> list[Costed] | None:
    """The same of atoms that are sorted out; `start_of` says which of the turns is the first in a room's window."""
    room -= flow.fixed_tokens
    if room < 0:
        return None
    turns = flow.turns
    kept = _newest_within(flow.summaries, int(room * SUMMARY_SHARE) if turns else room)
    room -= sum(c.tokens for c in kept)
    window = list(turns[start_of(turns, room) :])
    if turns and not window:
        newest = _shortened(turns[-1], room, counter)
        if newest is None and kept:
            room += sum(c.tokens for c in kept)
            kept = []
            newest = _shortened(turns[-1], room, counter)
        if newest is None:
            return None
        window = [newest]
    return sorted([*flow.fixed, *kept, *window], key=lambda c: c.atom.positions[0])


def _start(turns: Sequence[Costed], room: int) -> int:
    return Window(room).over(turns).start


class Divided(msgspec.Struct, frozen=True):
    """The atoms of a context with recall, in order, and the most that what is recalled may take."""

    chosen: list[Costed]
    recalled: int


def divide(costed: Sequence[Costed], room: int, policy: ContextPolicy, counter: TokenCounter) -> Divided | None:
    """The atoms to include by a policy, in order; `None` where not even what must be in fits.

    The newest turn is in whole, wherever it fits. Nothing here knows of a question: the atoms follow from the
    log and the budget alone.
    """
    flowing = room - tokens_of(c for c in costed if c.fixed)
    if flowing < 0:
        return None
    summaries, turns = _flowing(costed)
    at = _newest_turn(costed, turns)
    there_is = _room(flowing, turns, at, summaries)
    split = _split(policy, there_is)
    if there_is.newest > flowing:
        return _cut(costed, room, min(split.recalled, int(flowing * SPARED_SHARE)), counter)
    kept = _newest_within(summaries, min(split.summary, flowing - there_is.newest))
    left = flowing - tokens_of(kept)
    start = min(at, len(turns) - len(_window(turns, min(split.recent, left))))
    if start == at > 0 and turns[at - 1].tokens <= min(split.previous, left - there_is.newest):
        start -= 1
    chosen = {id(c) for c in (*kept, *turns[start:])}
    return Divided(
        [c for c in costed if c.fixed or id(c) in chosen], min(split.recalled, left - tokens_of(turns[start:]))
    )


def whole(costed: Sequence[Costed], policy: ContextPolicy) -> Divided:
    """All atoms, where no budget is given: the policy says how much is recalled beside them."""
    summaries, turns = _flowing(costed)
    flowing = tokens_of(turns) + tokens_of(summaries) + RECALLED_MAX
    there_is = _room(flowing, turns, _newest_turn(costed, turns), summaries)
    return Divided(list(costed), _split(policy, there_is).recalled)


def _room(flowing: int, turns: Sequence[Costed], at: int, summaries: Sequence[Costed]) -> Room:
    return Room(
        flowing=flowing,
        newest=tokens_of(turns[at:]),
        recent=tokens_of(turns),
        summaries=tokens_of(summaries),
    )


def last_spoken(costed: Iterable[Costed]) -> int:
    """The position of the last message of a person or of the agent that leads; -1 if there is none."""
    pieces = (piece for c in costed for piece in c.pieces)
    return max((piece.position for piece in pieces if piece.chunk.type in SPOKEN), default=-1)


def tokens_of(costed: Iterable[Costed]) -> int:
    """What they take together."""
    return sum(c.tokens for c in costed)


def _flowing(costed: Iterable[Costed]) -> tuple[list[Costed], list[Costed]]:
    """The summaries and the turns that need not be in."""
    flowing = [c for c in costed if not c.fixed]
    return [c for c in flowing if c.is_summary], [c for c in flowing if not c.is_summary]


def _newest_turn(costed: Sequence[Costed], turns: Sequence[Costed]) -> int:
    """Where in `turns` the newest begins: with the last message of a person, else with the last atom."""
    spoken = last_spoken(costed)
    if spoken >= 0:
        for n, turn in enumerate(turns):
            if turn.atom.positions[0] > spoken or spoken in turn.atom.positions:
                return n
    return max(0, len(turns) - 1)


def _split(policy: ContextPolicy, room: Room) -> Split:
    split = policy(room)
    if not isinstance(split, Split):
        raise TypeError(f"a context policy returns a Split, not {split!r}")
    if min(split.summary, split.recent, split.recalled, split.previous) < 0:
        raise ValueError(f"a context policy gives numbers of tokens, from 0 on, not {split}")
    return split


def _cut(costed: Sequence[Costed], room: int, spared: int, counter: TokenCounter) -> Divided | None:
    """The newest atoms and summaries that fit, with or without something spared for what is recalled."""
    for least_recalled in (spared, 0):
        chosen = choose(costed, room - least_recalled, counter)
        if chosen is not None:
            return Divided(chosen, least_recalled)
    return None


def _newest_within(costed: Sequence[Costed], room: int) -> list[Costed]:
    kept: list[Costed] = []
    for c in reversed(costed):
        if c.tokens > room:
            break
        room -= c.tokens
        kept.append(c)
    return kept


def _window(turns: Sequence[Costed], room: int) -> Sequence[Costed]:
    return turns[_start(turns, room) :]


def _shortened(costed: Costed, room: int, counter: TokenCounter) -> Costed | None:
    pieces = shorten(costed.pieces, room, counter)
    if pieces is None:
        return None
    return replace(costed, pieces=pieces, tokens=sum(message_tokens(m, counter) for m in assemble(pieces)))


def least(costed: Sequence[Costed]) -> int:
    """What the newest turn takes at least."""
    flowing = [c for c in costed if not c.fixed]
    return min(flowing[-1].tokens, 64) if flowing else 0
