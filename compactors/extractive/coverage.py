"""The choice of the pieces that fit a budget best: greedy coverage with a lazy heap.

The worth of a selection is the sum over its terms of the weight of the term,
discounted each time the term is covered again: a monotone submodular function,
for which greedy selection by gain per cost is the known approximation under a
budget (Lin & Bilmes 2011). Because gains only fall, the heap re-evaluates an
item only when it comes up (Minoux 1978), which keeps the whole near n log n.

A draft is a line in the making, or several. The pieces of a call form a tree: each can be chosen only with its
ancestors, so the words that introduce it (which tool, which record) are paid for by the first piece that needs them.
The pieces of speech stand for themselves; neighbours share a line, and so the name of who spoke.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence

import msgspec

from memory_engine.compactors.extractive.entries import CHARS_PER_TOKEN, GAP, LINE_FRAME_CHARS, Section
from memory_engine.compactors.extractive.words import VALUE_MARK
from memory_engine.core.slices import Steps

WORD_DECAY = 0.8
VALUE_DECAY = 0.05
"""A word met again says something new about it; an identifier written twice does not."""
RATE_MIN = 0.02
"""A piece worth less than this per character (a "fine", a "cool!") only dilutes: a shorter summary is better."""
RATE_SHARE_MIN = 0.1
"""Where even the best piece is worth little, as in one long list of equals, the floor is this share of the best."""
DELAYS_MAX = 12
"""How often a piece may be put back. The limit bounds the work where everything repeats everything."""

Terms = Mapping[str, float]
"""Terms with the worth of covering each. Their order is that in which the worths are added up."""
NO_TERMS: Terms = {}
LOOKS_A_STEP = 64
Place = tuple[int, int]
"""A statement: its entry, and its number in it."""


class LinePiece(msgspec.Struct, frozen=True, gc=False):
    """Part of a line; `parent` is its place in the draft's pieces, -1 for the first."""

    text: str
    terms: Terms
    parent: int = 0
    at: Place = (-1, -1)
    """The statement, for speech."""
    before: str | None = None
    """What parts it from the statement before it, where the two may share a line."""
    needs: Place = (-1, -1)
    """The statement without which this one must not stand."""


class LineDraft(msgspec.Struct, frozen=True, gc=False):
    """A line with everything it could say. `pieces[0]` opens it and is the ancestor of all others.

    With a `speaker` the draft is speech: its pieces have no parents, and each run of neighbours is a line of its own.
    """

    section: Section
    sources: tuple[str, ...]
    pieces: tuple[LinePiece, ...]
    day: str = ""
    """When it was said, for the lines that show it; "" where that is not known."""
    speaker: str | None = None


class _Selection:
    """The state of one greedy run: chosen pieces, what covering a term once more is worth, remaining characters."""

    def __init__(self, budget: float) -> None:
        self.left = budget
        self.costs: list[int] = []
        """By piece: the characters that it adds, with what opens its line where no neighbour has one."""
        self.chosen: list[bool] = []
        self._terms: list[Terms] = []
        self._sizes: list[int] = []
        self._parents: list[int] = []
        self._below: dict[int, list[int]] = {}
        self._neighbours: dict[int, list[int]] = {}
        self._times: dict[str, int] = {}
        self._shares: dict[str, float] = {}
        """By covered term: the share of its worth that covering it once more has."""
        self._places: dict[Place, int] = {}
        self._needs: list[tuple[int, Place]] = []

    def add(self, draft: LineDraft, size: Callable[[str], int]) -> None:
        """The next draft's pieces."""
        base = len(self.costs)
        is_speech = draft.speaker is not None
        # A line of a call says by a sign when it leaves something out, so there must be room for that.
        opening = LINE_FRAME_CHARS + size(f" {GAP}" if draft.speaker is None else draft.speaker)
        last: LinePiece | None = None
        for index, piece in enumerate(draft.pieces, base):
            chars = size(piece.text)
            self.chosen.append(False)
            self._terms.append(piece.terms)
            self._sizes.append(chars)
            self.costs.append(chars + opening if is_speech or piece.parent < 0 else chars)
            self._parents.append(base + piece.parent if piece.parent >= 0 else -1)
            if piece.at[0] >= 0:
                self._places[piece.at] = index
            if piece.needs[0] >= 0:
                self._needs.append((index, piece.needs))
            if last is not None and piece.before is not None and follows(piece, last):
                self._neighbours.setdefault(index, []).append(index - 1)
                self._neighbours.setdefault(index - 1, []).append(index)
            last = piece

    def join(self) -> Steps[None]:
        """Hang each piece below the one that it needs, once all are there."""
        for index, place in self._needs:
            if place in self._places:
                self._parents[index] = self._places[place]
        for index, parent in enumerate(self._parents):
            if parent >= 0:
                self._below.setdefault(parent, []).append(index)
            if not index % LOOKS_A_STEP:
                yield

    def look(self, index: int) -> tuple[float, int]:
        """What choosing the piece, with those of its ancestors that are not chosen yet, gains and costs.

        The gain is the negative of the coverage added by a character, the cost is in characters.
        """
        gain, cost = 0.0, 0
        chosen, shares, costs, terms, parents = self.chosen, self._shares, self.costs, self._terms, self._parents
        while index >= 0 and not chosen[index]:
            cost += costs[index]
            for term, weight in terms[index].items():
                gain += weight * shares[term] if term in shares else weight
            index = parents[index]
        return -gain / (cost or 1), cost

    def choose(self, index: int, cost: int) -> list[int]:
        """Choose a piece with its ancestors. Returns what became cheaper by it: what hangs below, and neighbours."""
        self.left -= cost
        cheaper: list[int] = []
        top = index
        while index >= 0 and not self.chosen[index]:
            self.chosen[index] = True
            for term in self._terms[index]:
                times = self._times[term] = self._times.get(term, 0) + 1
                self._shares[term] = (VALUE_DECAY if term[0] == VALUE_MARK else WORD_DECAY) ** times
            for other in self._neighbours.get(index, ()):
                self.costs[other] = self._sizes[other] + 1
                cheaper.append(other)
            top, index = index, self._parents[index]
        return [index for index in dict.fromkeys([*self._under(top), *cheaper]) if not self.chosen[index]]

    def _under(self, top: int) -> list[int]:
        """Every piece under `top` that is not chosen yet, in a fixed order."""
        found: list[int] = []
        waiting = [top]
        while waiting:
            index = waiting.pop()
            if not self.chosen[index]:
                found.append(index)
            if index in self._below:
                waiting.extend(self._below[index])
        return found


def follows(piece: LinePiece, other: LinePiece) -> bool:
    """Whether a statement stands directly behind another in its text."""
    return other.at[0] >= 0 and piece.at == (other.at[0], other.at[1] + 1)


def selecting(
    drafts: Sequence[LineDraft], budget_tokens: float, size: Callable[[str], int] = len
) -> Steps[list[list[int]]]:
    """For each draft the places of its chosen pieces, in order; together within the budget."""
    run = _Selection(budget_tokens * CHARS_PER_TOKEN)
    for draft in drafts:
        run.add(draft, size)
        yield
    chosen, costs, look = run.chosen, run.costs, run.look
    yield from run.join()
    heap: list[tuple[float, int]] = []
    for index in range(len(costs)):
        heapq.heappush(heap, (look(index)[0], index))
        if not index % LOOKS_A_STEP:
            yield
    floor = min(RATE_MIN, -RATE_SHARE_MIN * heap[0][0]) if heap else 0.0
    delays: dict[int, int] = {}
    known: dict[int, tuple[float, int]] = {}
    """The pieces that were looked at since the last choice: until the next one that holds."""
    looks = 0
    while heap:
        looks += 1
        if not looks % LOOKS_A_STEP:
            yield
        rate, index = heapq.heappop(heap)
        if chosen[index] or costs[index] > run.left:
            continue
        current, cost = known[index] if index in known else look(index)
        if cost > run.left:
            continue
        if heap and current > max(rate, heap[0][0]) and delays.get(index, 0) < DELAYS_MAX:
            delays[index] = delays.get(index, 0) + 1
            known[index] = current, cost
            heapq.heappush(heap, (current, index))
            continue
        if -current < floor or not current:
            break
        known = {index: look(index) for index in run.choose(index, cost)}
        for index, (rate, _) in known.items():
            heapq.heappush(heap, (rate, index))
    return (yield from _by_draft(drafts, chosen))


def _by_draft(drafts: Sequence[LineDraft], chosen: Sequence[bool]) -> Steps[list[list[int]]]:
    found: list[list[int]] = []
    base = 0
    for draft in drafts:
        end = base + len(draft.pieces)
        found.append([place for place, is_chosen in enumerate(chosen[base:end]) if is_chosen])
        base = end
        yield
    return found
