"""The atoms of a state that a context holds within a budget of tokens.

A context without a query holds the newest turns that fit (`choose_newest`). One with a query also recalls passages:
a policy divides the budget among summaries, turns and recall (`divide_by_policy`; without a budget, `whole`). If the
newest turn alone exceeds the budget, the newest turns that fit are chosen there too. The default policy is here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from attrs import Attribute, field, frozen
from msgspec.structs import replace

from memory_engine.context.invariants import SPOKEN, Atom
from memory_engine.context.rendering import Message, RenderedChunk, assemble, message_tokens
from memory_engine.context.shortening import LINES_LEFT_OUT_END, keep_last_lines, shorten
from memory_engine.core.chunks import Category, Chunk, Retention
from memory_engine.core.text import terms
from memory_engine.core.tokens import TokenCounter
from memory_engine.errors import InvalidArgument

REFILL = 0.93
"""When the oldest turns no longer fit, the window is cut to this share of its room, so that
it moves once in a while and not at every turn (each move costs the prompt cache)."""
SUMMARY_LEAST = 60
"""Tokens that summaries may take beside recall of a small room too, but of no more than a fifth of it.

Few: they are taken from the originals that answer, and what a summary stands for is found by recall.
"""
RECALLED_MAX = 4_000
"""Tokens of recalled originals beyond which more of them hardly help (see docs/context.md)."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that a policy divides, once the pinned chunks are in.

    `flowing` is left for everything else. `newest` is the newest turn (the last message of a person and
    what follows it), `recent` all turns of the state, the newest included, `summaries` its summaries.
    """

    flowing: int
    newest: int
    recent: int
    summaries: int


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The most that each part may take, in tokens. What one part leaves over goes to the next, in this order.

    The newest turn is in before all of them, and counts as recent. The atom right before it is in too, beyond
    `recent`, if it takes no more than `previous`.
    """

    summary: int
    recent: int
    recalled: int
    previous: int = 0


Splitter = Callable[[Room], Split]
"""Divides the room. It learns neither the question nor the finds, so the text before the recalled block is the same for
every question, and a provider's prompt cache holds. Pure; negative numbers are refused with `ValueError`."""


def _tokens(_policy: object, attribute: "Attribute[int]", value: int) -> None:
    if value < 0:
        raise ValueError(f"{attribute.name} is a number of tokens, not {value}")


def _share(_shares: object, attribute: "Attribute[float]", value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{attribute.name} is a share of the room, from 0 to 1, not {value}")


def _blocks(_policy: object, _attribute: object, value: Sequence[str] | Mapping[str, float] | None) -> None:
    if isinstance(value, str):
        raise TypeError(f"blocks is a list of names, or a mapping of names to shares, not {value!r}")
    for name, share in value.items() if isinstance(value, Mapping) else ():
        if not 0 <= share <= 1:
            raise ValueError(f"the block {name!r} takes a share of the budget, from 0 to 1, not {share}")


def _function(_policy: object, _attribute: object, value: Splitter | None) -> None:
    if value is not None and not callable(value):
        raise InvalidArgument(
            "policy", value, f"a context policy is a ContextPolicy, or a function that divides a room, not {value!r}"
        )


@frozen(kw_only=True)
class ContextPolicy:
    """What is in a context beside what always is, in which order, and with which share of the budget.

    `blocks` are the names of the standing blocks in their order, or a mapping of names to their shares of the budget;
    `None` takes all that plug-ins contribute, `()` none.

    `summary`, `recent` and `previous` are shares of `Room.flowing` in a context with a query: a little for summaries
    and recent turns, the rest for recall, up to `recalled_max` tokens. Of what a large room leaves over, first recent
    turns are taken, then summaries, then more is recalled. Where there is no summary and all turns fit, they are all
    in, whatever their share. `split` is a function of your own in place of these shares.

    `refill` is the share of its room that the window of turns is cut to when the oldest no longer fit. A smaller one
    moves it less often, and each move costs the prompt cache; a larger one uses more of the budget.
    """

    blocks: Sequence[str] | Mapping[str, float] | None = field(default=None, validator=_blocks)
    summary: float = field(default=0.06, validator=_share)
    recent: float = field(default=0.12, validator=_share)
    previous: float = field(default=0.25, validator=_share)
    recalled_max: int = field(default=RECALLED_MAX, validator=_tokens)
    split: Splitter | None = field(default=None, validator=_function)
    refill: float = field(default=REFILL, validator=_share)

    def __call__(self, room: Room) -> Split:
        """The most that each part may take."""
        if self.split is not None:
            return self.split(room)
        spare = room.flowing - room.recent - room.summaries
        if spare >= (self.recalled_max if room.summaries else 0):
            return Split(summary=room.summaries, recent=room.flowing, recalled=max(self.recalled_max, spare))
        summary = max(int(room.flowing * self.summary), min(SUMMARY_LEAST, room.flowing // 5))
        recent = max(int(room.flowing * self.recent), room.flowing - summary - self.recalled_max)
        return Split(
            summary=max(summary, room.flowing - min(recent, room.recent) - self.recalled_max),
            recent=recent,
            recalled=self.recalled_max,
            previous=int(room.flowing * self.previous),
        )


GRAIN = 32
"""The room of a window beside a question is given in steps of so many tokens, so that few windows are kept up."""
BORDER_MIN = 48
"""Tokens from which on the turn before the window is shown cut short, in what the window leaves over."""
SUMMARY_SHARE = 0.5
"""The share of the room that summaries may take before turns are dropped in their favour."""
QUESTION_SHARE = 0.5
"""The share of the room that the message being worked on may take once newer turns have pushed it out of the window."""
SPARED_SHARE = 0.25
"""The share of a room that is kept for recall even where the newest turn does not fit."""
ASKED_CHARS_MAX = 2_000
"""The characters of a message that say what it asks of the results that follow it."""
WINDOWS_MAX = 64
"""Rooms for which a growing flow remembers where their windows begin."""


DEFAULT_POLICY = ContextPolicy()


class Costed(msgspec.Struct, frozen=True, gc=False):
    """A rendered atom with its tokens. `fixed`: it is in, whatever else is."""

    atom: Atom
    pieces: tuple[RenderedChunk, ...]
    tokens: int
    fixed: bool

    @property
    def is_summary(self) -> bool:
        """Whether it is a summary, which stands for earlier chunks."""
        return self.atom.chunks[0].category is Category.MEMORY

    @property
    def is_spoken(self) -> bool:
        """Whether a person, or the agent that leads, says something in it."""
        return any(chunk.type in SPOKEN for chunk in self.atom.chunks)


def cost(atom: Atom, render: Callable[[Chunk], Iterable[Message]], counter: TokenCounter) -> Costed:
    """An atom rendered and counted."""
    pieces = tuple(
        RenderedChunk(chunk, tuple(render(chunk)), position)
        for position, chunk in zip(atom.positions, atom.chunks, strict=True)
    )
    tokens = sum(message_tokens(m, counter) for m in assemble(pieces))
    fixed = any(c.retention is Retention.CRITICAL or c.category is Category.SYSTEM for c in atom.chunks)
    return Costed(atom, pieces, tokens, fixed)


class Window(msgspec.Struct, frozen=True):
    """The newest turns that fit into a room, kept up as turns are added.

    It walks from the oldest turn, so that the start of the window depends on the log alone and moves only when it has
    to. The turn before `start` is shown too, cut to `border` tokens; 0: it is not.
    """

    room: int
    refill: float = REFILL
    start: int = 0
    border: int = 0
    _tokens: int = 0
    _seen: int = 0

    def over(self, turns: Sequence[Costed]) -> "Window":
        """The window after the rest of these turns, whose first ones this window has seen already."""
        total, start, border, room = self._tokens, self.start, self.border, self.room
        goal = int(room * self.refill)
        for n in range(self._seen, len(turns)):
            total += turns[n].tokens
            if total + border > room:
                while start <= n and total > (goal if start < n else room):
                    total -= turns[start].tokens
                    start += 1
                border = goal - total if start and goal - total >= BORDER_MIN else 0
        return Window(room, self.refill, start, border, total, len(turns))


class Flow(msgspec.Struct, frozen=True):
    """Atoms by their part in a budget: the fixed ones, the summaries, and the turns, each in order.

    One that extends another (`head`) continues the other's windows.
    """

    fixed: Sequence[Costed] = ()
    summaries: Sequence[Costed] = ()
    turns: Sequence[Costed] = ()
    fixed_tokens: int = 0
    asked: int = -1
    """The place among the turns of the newest message of a person, which is being worked on; -1: there is none."""
    head: "Flow | None" = None
    windows: dict[tuple[int, float], Window] = msgspec.field(default_factory=dict[tuple[int, float], Window])

    @classmethod
    def of(cls, costed: Iterable[Costed]) -> "Flow":
        """The atoms, sorted out."""
        fixed: list[Costed] = []
        summaries: list[Costed] = []
        turns: list[Costed] = []
        for one in costed:
            (fixed if one.fixed else summaries if one.is_summary else turns).append(one)
        asked = next((n for n in range(len(turns) - 1, -1, -1) if turns[n].is_spoken), -1)
        return cls(fixed, summaries, turns, tokens_of(fixed), asked)

    def plus(self, later: "Flow") -> "Flow":
        """The same, extended by the atoms that follow."""
        return Flow(
            [*self.fixed, *later.fixed],
            [*self.summaries, *later.summaries],
            [*self.turns, *later.turns],
            self.fixed_tokens + later.fixed_tokens,
            len(self.turns) + later.asked if later.asked >= 0 else self.asked,
            self,
        )

    def alone(self) -> "Flow":
        """The same without `head`, whose windows it takes over."""
        known = list(self.head.windows.items())[-WINDOWS_MAX:] if self.head is not None else ()
        windows = {key: window.over(self.turns) for key, window in known}
        return replace(self, head=None, windows=windows | self.windows)

    def window(self, room: int, refill: float = REFILL) -> Window:
        """The window of a room over the turns."""
        window = self.windows.get((room, refill))
        if window is None:
            before = self.head.window(room, refill) if self.head is not None else Window(room, refill)
            window = self.windows[room, refill] = before.over(self.turns)
        return window

    def asked_in(self, place: int) -> frozenset[str]:
        """The terms of the message that the turn at this place followed, and so was made for."""
        for n in range(place - 1, -1, -1):
            if self.turns[n].is_spoken:
                text = " ".join(c.text for c in self.turns[n].atom.chunks if c.type in SPOKEN)
                return frozenset(terms(text[:ASKED_CHARS_MAX]))
        return frozenset()

    def atoms(self) -> list[Costed]:
        """All of them, in the order of the state."""
        return _in_order([*self.fixed, *self.summaries, *self.turns])


def _in_order(costed: Iterable[Costed]) -> list[Costed]:
    return sorted(costed, key=lambda c: c.atom.positions[0])


def choose_newest(flow: Flow, room: int, counter: TokenCounter, refill: float = REFILL) -> list[Costed] | None:
    """The atoms to include, in order; `None` where the fixed ones and something of the newest do not fit."""
    room -= flow.fixed_tokens
    if room < 0:
        return None
    kept = summaries_within(flow, room, int(room * SUMMARY_SHARE), counter)
    turns = _newest_turns(flow, room - tokens_of(kept), counter, refill)
    if turns is None and kept:
        kept, turns = [], _newest_turns(flow, room, counter, refill)
    return None if turns is None else _in_order([*flow.fixed, *kept, *turns])


def _newest_turns(flow: Flow, room: int, counter: TokenCounter, refill: float) -> list[Costed] | None:
    """The newest turns that fit, and the message that is being worked on, however much followed it.

    `None` where not even a part of the newest turn fits.
    """
    window, asked = flow.window(room, refill), flow.asked
    if not 0 <= asked < min(window.start, len(flow.turns) - 1):
        return _shown(flow, window, counter)
    question = _cut_to(flow.turns[asked], int(room * QUESTION_SHARE), counter)
    if question is None:
        return _shown(flow, window, counter)
    window = flow.window(room - -(-question.tokens // GRAIN) * GRAIN, refill)
    rest = _shown(flow, window, counter, room - question.tokens - window.room)
    if rest is None:
        return None
    return [question, *(turn for turn in rest if turn.atom is not question.atom)]


def _shown(flow: Flow, window: Window, counter: TokenCounter, spare: int = 0) -> list[Costed] | None:
    """The turns of a window, and the one before it as far as it fits, with some `spare` tokens more.

    `None` where the newest does not fit at all.
    """
    turns = list(flow.turns[window.start :])
    if window.border:
        before = window.start - 1
        cut = _cut_to(flow.turns[before], window.border + spare, counter, flow.asked_in(before))
        turns[:0] = [cut] if cut is not None else []
    return turns if turns or not flow.turns else None


def summaries_within(flow: Flow, room: int, share: int, counter: TokenCounter) -> list[Costed]:
    """The newest summaries, in at most `share` tokens, or in all that the turns leave of the room.

    The last one that fits in part has its newest lines: a summary stands for what nothing else in the context says.
    """
    left = share
    if tokens_of(flow.summaries) > share:
        left = max(share, room - tokens_of(flow.turns))
    kept: list[Costed] = []
    for summary in reversed(flow.summaries):
        fitting = summary if summary.tokens <= left else _last_lines(summary, left, counter)
        if fitting is not None:
            kept.append(fitting)
            left -= fitting.tokens
        if fitting is not summary:
            break
    return kept


class Divided(msgspec.Struct, frozen=True):
    """The atoms of a context with recall, in order, and the most tokens that recall may take."""

    chosen: list[Costed]
    recalled: int


def divide_by_policy(flow: Flow, room: int, policy: ContextPolicy, counter: TokenCounter) -> Divided | None:
    """The atoms to include by a policy, in order; `None` where the fixed ones alone do not fit.

    The newest turn is in whole, wherever it fits. Nothing here knows of a question: the atoms follow from the
    log and the budget alone.
    """
    flowing = room - flow.fixed_tokens
    if flowing < 0:
        return None
    turns, at = flow.turns, _newest_turn(flow)
    offered = _room(flow, flowing, at)
    split = _split(policy, offered)
    if offered.newest > flowing:
        return _cut(flow, room, min(split.recalled, int(flowing * SPARED_SHARE)), counter, policy.refill)
    kept = summaries_within(flow, 0, min(split.summary, flowing - offered.newest), counter)
    left = flowing - tokens_of(kept)
    start = min(at, flow.window(min(split.recent, left), policy.refill).start)
    if start == at > 0 and turns[at - 1].tokens <= min(split.previous, left - offered.newest):
        start -= 1
    chosen = _in_order([*flow.fixed, *kept, *turns[start:]])
    return Divided(chosen, min(split.recalled, left - tokens_of(turns[start:])))


def whole(flow: Flow, policy: ContextPolicy) -> Divided:
    """All atoms, where no budget is given: the policy says how much is recalled beside them."""
    flowing = tokens_of(flow.turns) + tokens_of(flow.summaries) + policy.recalled_max
    return Divided(flow.atoms(), _split(policy, _room(flow, flowing, _newest_turn(flow))).recalled)


def _room(flow: Flow, flowing: int, at: int) -> Room:
    return Room(
        flowing=flowing,
        newest=tokens_of(flow.turns[at:]),
        recent=tokens_of(flow.turns),
        summaries=tokens_of(flow.summaries),
    )


def last_spoken(flow: Flow) -> int:
    """The position of the last message of a person or of the agent that leads; -1 if there is none."""
    pieces = (piece for c in (*flow.fixed, *flow.summaries, *flow.turns) for piece in c.pieces)
    return max((piece.position for piece in pieces if piece.chunk.type in SPOKEN), default=-1)


def tokens_of(costed: Iterable[Costed]) -> int:
    """Their tokens together."""
    return sum(c.tokens for c in costed)


def _newest_turn(flow: Flow) -> int:
    """Where in `turns` the newest begins: with the last message of a person, else with the last atom."""
    spoken = last_spoken(flow)
    if spoken >= 0:
        for n, turn in enumerate(flow.turns):
            if turn.atom.positions[0] > spoken or spoken in turn.atom.positions:
                return n
    return max(0, len(flow.turns) - 1)


def _split(policy: ContextPolicy, room: Room) -> Split:
    split = policy(room)
    if not isinstance(split, Split):
        raise TypeError(f"a context policy returns a Split, not {split!r}")
    if min(split.summary, split.recent, split.recalled, split.previous) < 0:
        raise ValueError(f"a context policy gives numbers of tokens, from 0 on, not {split}")
    return split


def _cut(flow: Flow, room: int, spared: int, counter: TokenCounter, refill: float) -> Divided | None:
    """The newest atoms and summaries that fit, with or without some room kept for recall."""
    for least_recalled in (spared, 0):
        chosen = choose_newest(flow, room - least_recalled, counter, refill)
        if chosen is not None:
            return Divided(chosen, least_recalled)
    return None


def _cut_to(costed: Costed, room: int, counter: TokenCounter, asked: frozenset[str] = frozenset()) -> Costed | None:
    """The atom in at most `room` tokens, its longest texts cut where they must be; `None` where that cannot be.

    Of a cut text its beginning and its end stay, and what it says about the terms that were asked.
    """
    if costed.tokens <= room:
        return costed
    pieces = shorten(costed.pieces, room, counter, asked)
    if pieces is None:
        return None
    return replace(costed, pieces=pieces, tokens=sum(message_tokens(m, counter) for m in assemble(pieces)))


def _last_lines(summary: Costed, room: int, counter: TokenCounter) -> Costed | None:
    pieces = tuple(keep_last_lines(piece, room, counter) for piece in summary.pieces)
    if any(str(message.get("content")).endswith(LINES_LEFT_OUT_END) for piece in pieces for message in piece.messages):
        return None  # not even the last line fits
    tokens = sum(message_tokens(m, counter) for m in assemble(pieces))
    return replace(summary, pieces=pieces, tokens=tokens) if tokens <= room else None
