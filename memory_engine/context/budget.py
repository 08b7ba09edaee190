"""Division of a context's token budget among the atoms of a state, and the default policy.

A context without a query holds the newest turns that fit (`WindowChoice.of`). A context with a query also recalls
passages: a policy divides the budget among summaries, turns and recall (`divide_by_policy`; without a budget, `whole`).
If the newest turn alone exceeds the budget, such a context also holds the newest atoms that fit.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from attrs import Attribute, field, frozen
from msgspec.structs import replace

from memory_engine.core.lazy import lazy_module
from memory_engine.errors import InvalidArgument

if TYPE_CHECKING:
    from memory_engine.context import flow as flows
    from memory_engine.context.choice import Chosen, WindowChoice
    from memory_engine.context.flow import Flow
    from memory_engine.core import origins
else:
    origins = lazy_module("memory_engine.core.origins")
    flows = lazy_module("memory_engine.context.flow")

SUMMARY_LEAST = 60
"""Tokens that summaries may take in a context with recall even in a small room, up to a fifth of it.

The number is small because summaries take room from the originals that answer the question, and recall finds what a
summary represents."""
REFILL = 0.65
"""Share of its room to which a loop's window is cut when its oldest turns no longer fit. The window then moves once in
many calls; each move costs the prompt cache."""
REFERENCES = 0.3
"""Share of a full room in which long results are shown as references."""
RECALLED_MAX = 4_000
"""Tokens of recalled originals above which more hardly help (see docs/concepts/contexts.md)."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that a policy divides, after the pinned chunks have been deducted.

    `flowing` is what remains for everything else. The other fields are the sizes of the parts: `newest` of the newest
    turn (a person's last message and what follows it), `recent` of all turns of the state, including the newest, and
    `summaries` of its summaries.
    """

    flowing: int
    newest: int
    recent: int
    summaries: int


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum tokens of each part. The unused tokens of one part go to the next, in the order of the fields.

    The newest turn is included before all parts, and counts as recent. The atom directly before it is also included,
    beyond `recent`, if it takes at most `previous` tokens.
    """

    summary: int
    recent: int
    recalled: int
    previous: int = 0


Splitter = Callable[[Room], Split]
"""Function that divides the room. It sees neither the question nor the hits, so the text before the recalled block
is the same for every question, and a provider's prompt cache holds. It must be pure; negative numbers raise
`ValueError`."""


def _tokens(_policy: object, attribute: "Attribute[int]", value: int) -> None:
    if value < 0:
        raise ValueError(f"{attribute.name} is a number of tokens, not {value}")


def _check_share(_shares: object, attribute: "Attribute[float]", value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{attribute.name} is a share of the room, from 0 to 1, not {value}")


def _check_block_shares(_policy: object, _attribute: object, value: Sequence[str] | Mapping[str, float] | None) -> None:
    if isinstance(value, str):
        raise TypeError(f"blocks is a list of names, or a mapping of names to shares, not {value!r}")
    for name, share in value.items() if isinstance(value, Mapping) else ():
        if not 0 <= share <= 1:
            raise ValueError(f"the block {name!r} takes a share of the budget, from 0 to 1, not {share}")


def _min_trust(given: str | None) -> "origins.Speaker | None":
    if given is None:
        return None
    try:
        return origins.checked_trust(given)
    except ValueError as error:
        raise InvalidArgument("min_trust", given, f"of `min_trust`: {error}") from None


def _function(_policy: object, _attribute: object, value: Splitter | None) -> None:
    if value is not None and not callable(value):
        raise InvalidArgument(
            "policy", value, f"a context policy is a ContextPolicy, or a function that divides a room, not {value!r}"
        )


@frozen(kw_only=True)
class ContextPolicy:
    """The content of a context besides its fixed part: its order, and its shares of the token budget.

    `blocks` names the standing blocks in order, or maps names to their shares of the budget; `None` takes all that
    plug-ins contribute, `()` none.

    `summary`, `recent` and `previous` are shares of `Room.flowing` in a context with a query: a little for summaries
    and recent turns, the rest for recall, up to `recalled_max` tokens. Unused tokens of a large room go first to
    recent turns, then to summaries, then to more recall. If there is no summary and all turns fit, all turns are
    included, whatever their share. `split` is a custom function that replaces these shares.

    `refill` is the share of its room to which a loop's window is cut when its oldest turns no longer fit. A smaller
    share moves the window less often, and each move costs the prompt cache; a larger share uses more of the budget.

    `references` is the share of a full room in which older long results are reduced to their beginning and end, with a
    reference for reading the whole (`thread.compaction.open`), so that more turns fit. 0: results stay whole.

    `min_trust` is the lowest origin of what comes out of memory: recalled passages and lines of standing blocks with a
    lower one are left out, and counted in `Context.untrusted`. The history itself stays.
    """

    blocks: Sequence[str] | Mapping[str, float] | None = field(default=None, validator=_check_block_shares)
    summary: float = field(default=0.06, validator=_check_share)
    recent: float = field(default=0.12, validator=_check_share)
    previous: float = field(default=0.25, validator=_check_share)
    recalled_max: int = field(default=RECALLED_MAX, validator=_tokens)
    split: Splitter | None = field(default=None, validator=_function)
    refill: float = field(default=REFILL, validator=_check_share)
    references: float = field(default=REFERENCES, validator=_check_share)
    min_trust: "origins.Speaker | None" = field(default=None, converter=_min_trust)

    def __call__(self, room: Room) -> Split:
        """Return the maximum tokens of each part."""
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


SPARED_SHARE = 0.25
"""Share of a room that is reserved for recall even if the newest turn does not fit."""

DEFAULT_POLICY = ContextPolicy()


class Divided(msgspec.Struct, frozen=True):
    """The chosen atoms of a context with recall, and the maximum tokens that recall may take."""

    chosen: "Chosen"
    recalled: int


def divide_by_policy(flow: "Flow", room: int, policy: ContextPolicy, choice: "WindowChoice") -> Divided | None:
    """Return the atoms that a policy includes, in order, or `None` if the fixed atoms alone do not fit.

    The newest turn is included whole if it fits. The result depends on the log and the budget alone, not on the
    question.
    """
    flowing = room - flow.fixed_tokens
    if flowing < 0:
        return None
    turns, at = flow.turns, flow.newest_turn
    offered = _room(flow, flowing, at)
    split = _split(policy, offered)
    if choice.brief is not None:
        choice = replace(choice, brief=choice.brief.beside_recall())
    if offered.newest > flowing:
        return _cut_flow(flow, room, min(split.recalled, int(flowing * SPARED_SHARE)), choice)
    least = offered.newest
    if at > 0 and turns.sizes[at - 1] <= min(split.previous, flowing - offered.newest):
        least += turns.sizes[at - 1]
    summary = min(split.summary, flowing - offered.newest)
    history = min(flowing, max(split.recent, least) + summary)
    chosen = replace(choice, summary=summary, fills=False).of(flow, history + flow.fixed_tokens)
    chosen = chosen if chosen is not None else replace(choice, summary=0).of(flow, room)
    if chosen is None:
        return None
    return Divided(chosen, max(0, min(split.recalled, room - chosen.tokens)))


def whole(flow: "Flow", policy: ContextPolicy, choice: "WindowChoice") -> Divided:
    """Return all atoms, for a context without a budget; the policy determines how much is recalled in addition."""
    flowing = flow.turns.tokens + flows.tokens_of(flow.summaries) + policy.recalled_max
    return Divided(choice.unbounded(flow), _split(policy, _room(flow, flowing, flow.newest_turn)).recalled)


def _room(flow: "Flow", flowing: int, at: int) -> Room:
    return Room(
        flowing=flowing,
        newest=flow.turns.tokens_since(at),
        recent=flow.turns.tokens,
        summaries=flows.tokens_of(flow.summaries),
    )


def _split(policy: ContextPolicy, room: Room) -> Split:
    split = policy(room)
    if not isinstance(split, Split):
        raise TypeError(f"a context policy returns a Split, not {split!r}")
    if min(split.summary, split.recent, split.recalled, split.previous) < 0:
        raise ValueError(f"a context policy gives numbers of tokens, from 0 on, not {split}")
    return split


def _cut_flow(flow: "Flow", room: int, spared: int, choice: "WindowChoice") -> Divided | None:
    """Return the newest atoms and summaries that fit, with some room reserved for recall if possible."""
    for least_recalled in (spared, 0):
        chosen = choice.of(flow, room - least_recalled)
        if chosen is not None:
            return Divided(chosen, least_recalled)
    return None
