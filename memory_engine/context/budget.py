"""The atoms of a state that a context holds within a budget of tokens.

A context without a query holds the newest turns that fit (`choose_newest`). One with a query also recalls passages:
a policy divides the budget among summaries, turns and recall (`divide_by_policy`; without a budget, `whole`). If the
newest turn alone exceeds the budget, the newest turns that fit are chosen there too. The default policy is here.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from attrs import Attribute, field, frozen

from memory_engine.context.flow import REFILL, Costed, Flow, Window, cut_to, in_order_of_atoms, tokens_of
from memory_engine.context.shortening import LINES_LEFT_OUT_END, keep_last_lines, shorten
from memory_engine.core.origins import SPOKEN
from memory_engine.core.text import terms
from memory_engine.core.tokens import TokenCounter
from memory_engine.errors import InvalidArgument

SUMMARY_LEAST = 60
"""Tokens that summaries may take beside recall even in a small room, but never more than a fifth of it.

Few: they are taken from the originals that answer, and recall finds what a summary stands for.
"""
RECALLED_MAX = 4_000
"""Tokens of recalled originals above which more hardly help (see docs/concepts/contexts.md)."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that a policy divides, once the pinned chunks are in.

    `flowing` is left for everything else. `newest` is the newest turn (a person's last message and what follows it),
    `recent` all turns of the state, the newest included, `summaries` its summaries.
    """

    flowing: int
    newest: int
    recent: int
    summaries: int


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The most that each part may take, in tokens. What one part leaves over goes to the next, in this order.

    The newest turn comes in before all of them, and counts as recent. The atom right before it comes in too, beyond
    `recent`, if it takes no more than `previous`.
    """

    summary: int
    recent: int
    recalled: int
    previous: int = 0


Splitter = Callable[[Room], Split]
"""Divides the room. It sees neither the question nor the hits, so the text before the recalled block is the same for
every question, and a provider's prompt cache holds. Pure; negative numbers raise `ValueError`."""


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
    """What a context holds besides what is always in it, in which order, and with which share of the token budget.

    `blocks` names the standing blocks in order, or maps names to their shares of the budget; `None` takes all that
    plug-ins contribute, `()` none.

    `summary`, `recent` and `previous` are shares of `Room.flowing` in a context with a query: a little for summaries
    and recent turns, the rest for recall, up to `recalled_max` tokens. What a large room leaves over goes first to
    recent turns, then to summaries, then to more recall. If there is no summary and all turns fit, all are in, whatever
    their share. `split` is your own function in place of these shares.

    `refill` is the share of its room that the window of turns is cut to when the oldest no longer fit. A smaller one
    moves the window less often, and each move costs the prompt cache; a larger one uses more of the budget.
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
SUMMARY_SHARE = 0.5
"""The share of the room that summaries may take before turns are dropped in their favour."""
QUESTION_SHARE = 0.5
"""The share of the room that the message being worked on may take once newer turns have pushed it out of the window."""
QUESTION_STEPS = 8
"""As long as newer turns need less, that message has what they leave, in steps of so many to a room: it is cut anew,
and a provider's cache lost, only so often."""
SPARED_SHARE = 0.25
"""The share of a room that is kept for recall even where the newest turn does not fit."""

ASKED_CHARS_MAX = 2_000
"""The characters of a message that say what it asks of the results that follow it."""

DEFAULT_POLICY = ContextPolicy()


def choose_newest(flow: Flow, room: int, counter: TokenCounter, refill: float = REFILL) -> list[Costed] | None:
    """The atoms to include, in order; `None` where the fixed ones and something of the newest do not fit."""
    room -= flow.fixed_tokens
    if room < 0:
        return None
    kept = summaries_within(flow, room, int(room * SUMMARY_SHARE), counter)
    turns = _newest_turns(flow, room - tokens_of(kept), counter, refill)
    if turns is None and kept:
        kept, turns = [], _newest_turns(flow, room, counter, refill)
    return None if turns is None else in_order_of_atoms([*flow.fixed, *kept, *turns])


def _newest_turns(flow: Flow, room: int, counter: TokenCounter, refill: float) -> list[Costed] | None:
    """The newest turns that fit, and the message that is being worked on, however much followed it.

    `None` where not even a part of the newest turn fits.
    """
    window, asked = flow.window(room, refill), flow.asked
    if not 0 <= asked < min(window.start, len(flow.turns) - 1):
        return _shown(flow, window, counter)
    step = max(room // QUESTION_STEPS, 1)
    left = room - -(-flow.turns.tokens_since(asked + 1) // step) * step
    question = _cut_to(flow, flow.turns.one(asked), max(left, int(room * QUESTION_SHARE)), counter)
    if question is None:
        return _shown(flow, window, counter)
    if left >= question.tokens:
        return [question, *flow.turns.since(asked + 1)]
    window = flow.window(room - -(-question.tokens // GRAIN) * GRAIN, refill)
    rest = _shown(flow, window, counter, room - question.tokens - window.room)
    if rest is None:
        return None
    return [question, *(turn for turn in rest if turn.atom is not question.atom)]


def _shown(flow: Flow, window: Window, counter: TokenCounter, spare: int = 0) -> list[Costed] | None:
    """The turns of a window, and the one before it as far as it fits, with some `spare` tokens more.

    `None` where the newest does not fit at all.
    """
    turns = list(flow.turns.since(window.start))
    if window.border:
        before = window.start - 1
        cut = _cut_to(flow, flow.turns.one(before), window.border + spare, counter, flow.asked_in(before))
        turns[:0] = [cut] if cut is not None else []
    return turns if turns or not len(flow.turns) else None


def summaries_within(flow: Flow, room: int, share: int, counter: TokenCounter) -> list[Costed]:
    """The newest summaries, in at most `share` tokens, or in all that the turns leave of the room.

    The last one that fits in part has its newest lines: a summary stands for what nothing else in the context says.
    """
    left = share
    if tokens_of(flow.summaries) > share:
        left = max(share, room - flow.turns.tokens)
    kept: list[Costed] = []
    for summary in reversed(flow.summaries):
        fitting = summary if summary.tokens <= left else _last_lines(flow, summary, left, counter)
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
    turns, at = flow.turns, flow.newest_turn
    offered = _room(flow, flowing, at)
    split = _split(policy, offered)
    if offered.newest > flowing:
        return _cut(flow, room, min(split.recalled, int(flowing * SPARED_SHARE)), counter, policy.refill)
    kept = summaries_within(flow, 0, min(split.summary, flowing - offered.newest), counter)
    left = flowing - tokens_of(kept)
    start = min(at, flow.window(min(split.recent, left), policy.refill).start)
    if start == at > 0 and turns.sizes[at - 1] <= min(split.previous, left - offered.newest):
        start -= 1
    chosen = in_order_of_atoms([*flow.fixed, *kept, *turns.since(start)])
    return Divided(chosen, min(split.recalled, left - turns.tokens_since(start)))


def whole(flow: Flow, policy: ContextPolicy) -> Divided:
    """All atoms, where no budget is given: the policy says how much is recalled beside them."""
    flowing = flow.turns.tokens + tokens_of(flow.summaries) + policy.recalled_max
    return Divided(flow.atoms(), _split(policy, _room(flow, flowing, flow.newest_turn)).recalled)


def _room(flow: Flow, flowing: int, at: int) -> Room:
    return Room(
        flowing=flowing,
        newest=flow.turns.tokens_since(at),
        recent=flow.turns.tokens,
        summaries=tokens_of(flow.summaries),
    )


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


def _cut_to(flow: Flow, one: Costed, room: int, counter: TokenCounter, asked: Costed | None = None) -> Costed | None:
    """The atom in at most `room` tokens, its longest texts cut where they must be; `None` where that cannot be.

    Of a cut text its beginning and its end stay, and what it says about the terms that were asked.
    """
    if one.tokens <= room:
        return one
    return flow.cuts.known(one, asked, room, counter, lambda: _shortened(one, room, counter, _asked_terms(asked)))


def _asked_terms(asked: Costed | None) -> frozenset[str]:
    if asked is None:
        return frozenset()
    text = " ".join(chunk.text for chunk in asked.atom.chunks if chunk.type in SPOKEN)
    return frozenset(terms(text[:ASKED_CHARS_MAX]))


def _shortened(costed: Costed, room: int, counter: TokenCounter, asked: frozenset[str]) -> Costed | None:
    pieces = shorten(costed.pieces, room, counter, asked)
    return cut_to(costed, pieces, counter) if pieces is not None else None


def _last_lines(flow: Flow, summary: Costed, room: int, counter: TokenCounter) -> Costed | None:
    """A summary's newest lines in at most `room` tokens; `None` where not even the last one fits."""
    return flow.cuts.known(summary, summary, room, counter, lambda: _newest_lines(summary, room, counter))


def _newest_lines(summary: Costed, room: int, counter: TokenCounter) -> Costed | None:
    pieces = tuple(keep_last_lines(piece, room, counter) for piece in summary.pieces)
    if any(str(message.get("content")).endswith(LINES_LEFT_OUT_END) for piece in pieces for message in piece.messages):
        return None  # not even the last line fits
    cut = cut_to(summary, pieces, counter)
    return cut if cut.tokens <= room else None
