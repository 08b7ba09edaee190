"""The choice of the pieces that fit a budget best: greedy coverage with a lazy heap.

The worth of a selection is the sum over its terms of the weight of the term,
discounted each time the term is covered again: a monotone submodular function,
for which greedy selection by gain per cost is the known approximation under a
budget (Lin & Bilmes 2011). Because gains only fall, the heap re-evaluates an
item only when it comes up (Minoux 1978), which keeps the whole near n log n.

A draft is a line in the making, or several. The pieces of a call form a tree: each can be chosen only with its
ancestors, so the words that introduce it (which tool, which record) are paid for by the first piece that needs them.
The pieces of speech stand for themselves; neighbours share a line, and so the name of who spoke.

Most of a long input is never told. Drafts of calls stand on the heap as a bound of what any piece of theirs gains,
statements as a bound of what they gain. They are made, or weighed, when the bound comes up: the choice is the one that
a heap of all pieces would make, ties included.
"""

import heapq
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from itertools import chain

import msgspec

from memory_engine.compactors.extractive.entries import CHARS_PER_TOKEN, LINE_FRAME_CHARS, Section
from memory_engine.compactors.extractive.words import VALUE_MARK
from memory_engine.core.slices import Steps
from memory_engine.language.sentences import GAP

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
ROUNDING_FACTOR = 1.000_001
"""The most that sums of floats in another order may differ, by far."""
LOOKS_A_STEP = 64
PIECES_MAX = 1 << 32
"""More than a draft has: the order of a piece is so many times its draft's number, and its place in it."""
Place = tuple[int, int]
"""A statement: its entry, and its number in it."""


class LaterTerms(msgspec.Struct, frozen=True, gc=False):
    """Terms that are weighed each time that they are asked for; together they are worth `worth_max` at most."""

    worth_max: float

    def weighed(self) -> Terms:
        """The terms themselves."""
        raise NotImplementedError

    def items(self) -> ItemsView[str, float]:
        """The terms with their worths."""
        return self.weighed().items()

    def values(self) -> ValuesView[float]:
        """The worths."""
        return self.weighed().values()

    def __iter__(self) -> Iterator[str]:
        return iter(self.weighed())


class LinePiece(msgspec.Struct, frozen=True, gc=False):
    """Part of a line; `parent` is its place in the draft's pieces, -1 for the first."""

    text: str
    terms: Terms | LaterTerms
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


class LaterDraft(msgspec.Struct, frozen=True, gc=False):
    """The draft of a call's line: made when its bounds say that one of its pieces may be the best and affordable.

    No piece gains more than `rate_max` a character, or costs fewer than `chars_min` characters with its ancestors if it
    gains anything. None needs a piece of another draft.
    """

    rate_max: float
    chars_min: int
    make: Callable[[], LineDraft]


Look = tuple[float, int, int]
"""What stands on the heap: the negative of a gain by a character, the order of reading, and the piece.

In place of the pieces of a draft that is not made yet: the bound of their gains, the order of the first, and -1.
In place of a piece that is not weighed yet: the bound of its gain, its order, and -1.
"""


class _Selection:
    """The state of one greedy run: chosen pieces, what covering a term once more is worth, remaining characters."""

    def __init__(self, drafts: Sequence[LineDraft | LaterDraft], budget: float, size: Callable[[str], int]) -> None:
        self.left = budget
        self.costs: list[int] = []
        """By piece: the characters that it adds, with what opens its line where no neighbour has one."""
        self._first_costs: list[int] = []
        """The same before anything was chosen."""
        self.chosen: list[bool] = []
        self.heap: list[Look] = []
        self._made: dict[int, LineDraft] = {}
        self._drafts = drafts
        self._size = size
        self._terms: list[Terms | LaterTerms] = []
        self._sizes: list[int] = []
        self._parents: list[int] = []
        self._orders: list[int] = []
        self._taken: list[int] = []
        """The orders of the chosen pieces."""
        self._below: dict[int, list[int]] = {}
        self._neighbours: dict[int, list[int]] = {}
        self._times: dict[str, int] = {}
        self._shares: dict[str, float] = {}
        """By covered term: the share of its worth that covering it once more has."""
        self._places: dict[Place, int] = {}
        self._needs: list[tuple[int, Place]] = []
        self._unweighed: dict[int, int] = {}
        """By order: the pieces of which a bound stands on the heap."""
        self._set_aside: list[int] = []
        """Drafts that were not made, as there was no room for them any more."""
        self._out_of_room: list[int] = []
        """Pieces that were not weighed for the same reason."""
        self._aside: list[tuple[float, int]] = []
        """The first rates and orders of pieces that were set aside."""

    def _add(self, number: int, draft: LineDraft) -> None:
        base, first_order = len(self.costs), number * PIECES_MAX
        self._made[number] = draft
        is_speech = draft.speaker is not None
        # A line of a call says by a sign when it leaves something out, so there must be room for that.
        opening = LINE_FRAME_CHARS + self._size(f" {GAP}" if draft.speaker is None else draft.speaker)
        for place, piece in enumerate(draft.pieces):
            chars = self._size(piece.text)
            self._terms.append(piece.terms)
            self._sizes.append(chars)
            self.costs.append(chars + opening if is_speech or piece.parent < 0 else chars)
            self._parents.append(base + piece.parent if piece.parent >= 0 else -1)
            self._orders.append(first_order + place)
        self.chosen += [False] * len(draft.pieces)
        self._first_costs += self.costs[base:]
        if is_speech:
            self._place(base, draft.pieces)

    def _place(self, base: int, pieces: Sequence[LinePiece]) -> None:
        """Note where statements stand, what they need, and which may share a line."""
        last: LinePiece | None = None
        for index, piece in enumerate(pieces, base):
            if piece.at[0] >= 0:
                self._places[piece.at] = index
            if piece.needs[0] >= 0:
                self._needs.append((index, piece.needs))
            if last is not None and piece.before is not None and follows(piece, last):
                self._neighbours.setdefault(index, []).append(index - 1)
                self._neighbours.setdefault(index - 1, []).append(index)
            last = piece

    def begin(self) -> Steps[None]:
        """Fill the heap: with the pieces, each below the one that it needs, and with the drafts to be made later."""
        for number, draft in enumerate(self._drafts):
            if isinstance(draft, LaterDraft):
                heapq.heappush(self.heap, (-draft.rate_max, number * PIECES_MAX, -1))
            else:
                self._add(number, draft)
            yield
        for index, place in self._needs:
            if place in self._places:
                self._parents[index] = self._places[place]
        for index, terms in enumerate(self._terms):
            self._hang(index)
            if isinstance(terms, LaterTerms):
                self._unweighed[self._orders[index]] = index
                heapq.heappush(self.heap, (self._rate_bound(index), self._orders[index], -1))
            else:
                self.push(self._first_rate(index), index)
            if not index % LOOKS_A_STEP:
                yield
        while self.heap and self.heap[0][2] < 0:  # the best rate must be known, whether there is room for it or not
            self._replace(heapq.heappop(self.heap)[1])
            yield

    def _hang(self, index: int) -> None:
        if self._parents[index] >= 0:
            self._below.setdefault(self._parents[index], []).append(index)

    def make(self, order: int) -> None:
        """Put in place of a bound what it stands for; or set it aside, if there is no room for any of it."""
        index, draft = self._unweighed.get(order, -1), self._drafts[order // PIECES_MAX]
        if index >= 0 and self.costs[index] > self.left:
            self._out_of_room.append(self._unweighed.pop(order))
        elif isinstance(draft, LaterDraft) and draft.chars_min > self.left:
            self._set_aside.append(order // PIECES_MAX)
        else:
            self._replace(order)

    def _replace(self, order: int) -> None:
        if order in self._unweighed:
            self._weigh(self._unweighed.pop(order))
        else:
            self._make(order // PIECES_MAX)

    def _weigh(self, index: int) -> None:
        terms = self._terms[index]
        if isinstance(terms, LaterTerms):
            self._terms[index] = terms.weighed()
        self.push(self._first_rate(index), index)

    def _make(self, number: int) -> None:
        for index in self._added(number):
            self.push(self._first_rate(index), index)

    def _added(self, number: int) -> range:
        """The pieces of a draft that is made now."""
        draft, first = self._drafts[number], len(self.costs)
        self._add(number, draft.make() if isinstance(draft, LaterDraft) else draft)
        added = range(first, len(self.costs))
        for index in added:
            self._hang(index)
        return added

    def push(self, rate: float, index: int) -> None:
        """Put a piece on the heap."""
        heapq.heappush(self.heap, (rate, self._orders[index], index))

    def _first_rate(self, index: int) -> float:
        """The rate of a piece before anything was chosen, also if its draft is made later."""
        gain, cost = 0.0, 0
        costs, terms, parents = self._first_costs, self._terms, self._parents
        while index >= 0:
            cost += costs[index]
            for weight in terms[index].values():
                gain += weight
            index = parents[index]
        return -gain / (cost or 1)

    def _rate_bound(self, index: int) -> float:
        """What `_first_rate` of the piece is at best, without weighing its terms or those of its ancestors."""
        gain, cost = 0.0, 0
        while index >= 0:
            terms = self._terms[index]
            cost += self._first_costs[index]
            gain += terms.worth_max if isinstance(terms, LaterTerms) else sum(terms.values())
            index = self._parents[index]
        return -gain * ROUNDING_FACTOR / (cost or 1)

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

    def is_behind(self, current: float, rate: float, order: int) -> bool:
        """Whether a piece that came up at `rate`, and is worth `current` now, must wait for the next one."""
        while rate < current and self.heap and self.heap[0][0] <= current:
            next_rate, next_order, index = self.heap[0]
            if index >= 0:
                return next_rate < current or (next_order < order and self._is_parted(current, rate, order))
            self.make(heapq.heappop(self.heap)[1])
        return False

    def _is_parted(self, current: float, rate: float, order: int) -> bool:
        """Whether a piece that was set aside stands between the two rates.

        It would delay the piece, so that an earlier one of the same worth goes first.
        """
        aside = [*self._out_of_room, *chain.from_iterable(map(self._added, self._set_aside))]
        self._aside += [(self._first_rate(index), self._orders[index]) for index in aside]
        self._out_of_room.clear()
        self._set_aside.clear()
        return any((rate, order) < one and one[0] < current for one in self._aside)

    def choose(self, index: int, cost: int) -> list[int]:
        """Choose a piece with its ancestors. Returns what became cheaper by it: what hangs below, and neighbours."""
        self.left -= cost
        cheaper: list[int] = []
        top = index
        while index >= 0 and not self.chosen[index]:
            self.chosen[index] = True
            self._taken.append(self._orders[index])
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

    def by_draft(self) -> list[tuple[LineDraft, list[int]]]:
        """The drafts of the chosen pieces, in order, with the places of these."""
        places: dict[int, list[int]] = {}
        for order in sorted(self._taken):
            places.setdefault(order // PIECES_MAX, []).append(order % PIECES_MAX)
        return [(self._made[number], chosen) for number, chosen in places.items()]


def follows(piece: LinePiece, other: LinePiece) -> bool:
    """Whether a statement stands directly behind another in its text."""
    return other.at[0] >= 0 and piece.at == (other.at[0], other.at[1] + 1)


def selecting(
    drafts: Sequence[LineDraft | LaterDraft], budget_tokens: float, size: Callable[[str], int] = len
) -> Steps[list[tuple[LineDraft, list[int]]]]:
    """The drafts of which pieces are chosen, in order, with the places of these; together within the budget."""
    run = _Selection(drafts, budget_tokens * CHARS_PER_TOKEN, size)
    yield from run.begin()
    chosen, costs, look, heap = run.chosen, run.costs, run.look, run.heap
    floor = min(RATE_MIN, -RATE_SHARE_MIN * heap[0][0]) if heap else 0.0
    delays: dict[int, int] = {}
    known: dict[int, tuple[float, int]] = {}
    """The pieces that were looked at since the last choice: until the next one that holds."""
    looks = 0
    while heap:
        looks += 1
        if not looks % LOOKS_A_STEP:
            yield
        rate, order, index = heapq.heappop(heap)
        if index < 0:
            if -rate < floor:
                break
            run.make(order)
            yield
            continue
        if chosen[index] or costs[index] > run.left:
            continue
        current, cost = known[index] if index in known else look(index)
        if cost > run.left:
            continue
        if delays.get(index, 0) < DELAYS_MAX and run.is_behind(current, rate, order):
            delays[index] = delays.get(index, 0) + 1
            known[index] = current, cost
            run.push(current, index)
            continue
        if -current < floor or not current:
            break
        known = {index: look(index) for index in run.choose(index, cost)}
        for index, (rate, _) in known.items():
            run.push(rate, index)
    return run.by_draft()
