"""Start of a context's window: the oldest of the newest turns that fit, together with what represents earlier turns.

In front of the window are the lines of summaries, and of other parts, that represent what it no longer shows. Each line
knows the seq of the oldest event that it refers to, and appears once the window begins after that seq. A part takes at
most its cap, and no cap grows faster than the budget, so a larger budget never makes the window begin later.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from memory_engine.context.flow import FlowTurns

NEVER = 1 << 62
"""Start of a window that shows no turn, as a seq: every line in front of it is needed."""


class Front(msgspec.Struct, frozen=True):
    """Lines in front of a window: the seqs that they refer to, ascending, and the running sums of their tokens.

    Together they take at most `cap` tokens.
    """

    seqs: Sequence[int] = ()
    sums: Sequence[int] = ()
    cap: int = 0

    @classmethod
    def of(cls, sized: Iterable[tuple[int, int]], cap: int) -> "Front":
        """Create an instance from pairs of seq and tokens, in any order."""
        pairs = sorted(sized)
        return cls([seq for seq, _ in pairs], list(accumulate(tokens for _, tokens in pairs)), max(0, cap))

    def tokens(self, begins: int) -> int:
        """Return the tokens in front of a window that begins at this seq."""
        count = bisect_left(self.seqs, begins)
        return min(self.cap, self.sums[count - 1]) if count else 0


class Carried(Front, frozen=True):
    """The thinking that is sent back with a window's turns: only what the window shows takes room."""

    @classmethod
    def by(cls, sized: Iterable[tuple[int, int]]) -> "Carried":
        """Create an instance from pairs of seq and tokens, in any order."""
        pairs = list(sized)
        front = Front.of(pairs, sum(tokens for _, tokens in pairs))
        return cls(front.seqs, front.sums, front.cap)

    def tokens(self, begins: int) -> int:
        """Return the tokens of the thinking in a window that begins at this seq."""
        return self.cap - super().tokens(begins)


def tokens_in_front(fronts: Iterable[Front], begins: int) -> int:
    """Return the tokens of all parts in front of a window that begins at this seq."""
    return sum(front.tokens(begins) for front in fronts)


def first_turn(turns: FlowTurns, room: int, fronts: Sequence[Front], whole: int) -> int:
    """Return the place of the oldest turn from which all turns, with what is in front of them, fit into `room` tokens.

    The newest long results stay whole, as long as references would save at most `whole` tokens; older ones become
    references. Returns `len(turns)` if not even the newest turn fits. O(turns in the window).
    """
    found, total, saved, begins = len(turns), 0, 0, NEVER
    surely = room - sum(front.cap for front in fronts)
    for place in range(len(turns) - 1, -1, -1):
        total += turns.lights[place]
        saved += turns.sizes[place] - turns.lights[place]
        taken = total + min(whole, saved)
        if taken > room:
            break
        begins = min(begins, turns.began(place))
        if taken <= surely or taken + tokens_in_front(fronts, begins) <= room:
            found = place
    return found


def first_whole(turns: FlowTurns, whole: int) -> int:
    """Return the place of the oldest turn from which on all turns keep their long results."""
    saved, place = 0, len(turns)
    while place:
        saved += turns.sizes[place - 1] - turns.lights[place - 1]
        if saved > whole:
            break
        place -= 1
    return place


def turn_at(turns: FlowTurns, begins: int, room: int) -> int | None:
    """Return the place of the first turn of a window that begins at this seq.

    `None` if its turns exceed `room` tokens; they are counted with long results cut to references.
    """
    place, total = len(turns), 0
    while place and turns.began(place - 1) >= begins:
        place -= 1
        total += turns.lights[place]
        if total > room:
            return None
    return place
