"""How a context with recall divides its budget: policies, and the one that does where none is given."""

from typing import Protocol

import msgspec
from attrs import Attribute, field, frozen

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
