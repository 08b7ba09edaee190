"""Selection of the pieces that fit a budget best: greedy coverage with a lazy heap.

The worth of a selection is the sum over its terms of the weight of the term, discounted each time the term is covered
again. This is a monotone submodular function, for which greedy selection by gain per cost is the known approximation
under a budget (Lin & Bilmes 2011). Because gains only fall, the heap re-evaluates an item only when it comes up (Minoux
1978), which keeps the whole near n log n.

A draft is a candidate for one line or several. The pieces of a call form a tree: each can be chosen only with its
ancestors, so the first piece that needs the introducing words (which tool, which record) pays for them. The pieces of
speech are independent; neighbours share a line, and so the name of the speaker.

Most of a long input never reaches a summary. The heap therefore contains, for the draft of a call, an upper bound on
the gain of its pieces, and for a statement, an upper bound on its gain. A draft is made, or a statement weighed, when
its bound comes up. The selection is the same as with a heap of all pieces, including ties.
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
"""A repeated word says something new about its topic; a repeated identifier does not."""
RATE_MIN = 0.02
"""Minimum worth per character. A piece below it (a "fine", a "cool!") only dilutes: a shorter summary is better."""
RATE_SHARE_MIN = 0.1
"""Minimum worth as a share of the best piece's, if even that is worth little, as in a long list of equals."""
DELAYS_MAX = 12
"""Maximum number of times a piece may be put back, which bounds the work if everything repeats everything."""

Terms = Mapping[str, float]
"""Maps each term to the worth of covering it. Worths are added up in this order."""
NO_TERMS: Terms = {}
ROUNDING_FACTOR = 1.000_001
"""Factor that safely exceeds the difference between sums of floats in different orders."""
LOOKS_A_STEP = 64
NEVER_CHARS = 1 << 60
"""Cost of a piece that must not appear."""
PIECES_MAX = 1 << 32
"""Upper bound on the pieces of a draft. The order of a piece is its draft's number times this, plus its index."""
Place = tuple[int, int]
"""A statement: the index of its entry, and its number in the entry."""


class LaterTerms(msgspec.Struct, frozen=True, gc=False):
    """Terms that are weighed on each access; their total worth is at most `worth_max`."""

    worth_max: float

    def weighed(self) -> Terms:
        """Return the terms with their worths."""
        raise NotImplementedError

    def items(self) -> ItemsView[str, float]:
        """Return the terms with their worths as items."""
        return self.weighed().items()

    def values(self) -> ValuesView[float]:
        """Return the worths."""
        return self.weighed().values()

    def __iter__(self) -> Iterator[str]:
        return iter(self.weighed())


class LinePiece(msgspec.Struct, frozen=True, gc=False):
    """Part of a line; `parent` is an index in the draft's pieces, -1 for the first piece."""

    text: str
    terms: Terms | LaterTerms
    parent: int = 0
    at: Place = (-1, -1)
    """The statement, for speech."""
    before: str | None = None
    """Separator from the previous statement, if the two may share a line."""
    needs: Place = (-1, -1)
    """The statement without which this one must not appear, if that one may appear at all."""
    leans: bool = False
    """Whether this one must not appear either if that one may not."""


class LineDraft(msgspec.Struct, frozen=True, gc=False):
    """A line with all its possible content. `pieces[0]` opens it and is the ancestor of all others.

    With a `speaker`, the draft is speech: its pieces have no parents, and each run of neighbours is a line of its own.
    """

    section: Section
    sources: tuple[str, ...]
    pieces: tuple[LinePiece, ...]
    day: str = ""
    """When it was said, for lines that show it; `""` if it is not known."""
    speaker: str | None = None


class LaterDraft(msgspec.Struct, frozen=True, gc=False):
    """The draft of a call's line, made when its bounds show that a piece of it may be the best and affordable.

    No piece gains more than `rate_max` per character, or, if it gains anything, costs fewer than `chars_min` characters
    with its ancestors. No piece needs a piece of another draft.
    """

    rate_max: float
    chars_min: int
    make: Callable[[], LineDraft]


Look = tuple[float, int, int]
"""Entry of the heap: the negative of a gain per character, the reading order, and the index of the piece.

For a draft that is not made yet: the bound of its pieces' gains, the order of its first piece, and -1. For a piece that
is not weighed yet: the bound of its gain, its order, and -1.
"""


class _Selection:
    """State of one greedy run: chosen pieces, the worth of covering a term again, and remaining characters."""

    def __init__(self, drafts: Sequence[LineDraft | LaterDraft], budget: float, size: Callable[[str], int]) -> None:
        self.left = budget
        self.costs: list[int] = []
        """Characters that each piece adds, including the opening of its line if no neighbour has one."""
        self._first_costs: list[int] = []
        """Characters that each piece added before anything was chosen."""
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
        """Orders of the chosen pieces."""
        self._below: dict[int, list[int]] = {}
        self._neighbours: dict[int, list[int]] = {}
        self._times: dict[str, int] = {}
        self._shares: dict[str, float] = {}
        """Maps a covered term to the share of its worth that covering it again has."""
        self._places: dict[Place, int] = {}
        self._needs: list[tuple[int, LinePiece]] = []
        self._unweighed: dict[int, int] = {}
        """Maps the orders of pieces with a bound on the heap to these pieces."""
        self._set_aside: list[int] = []
        """Drafts that were not made because there was no room for them."""
        self._out_of_room: list[int] = []
        """Pieces that were not weighed because there was no room for them."""
        self._aside: list[tuple[float, int]] = []
        """Initial rates and orders of pieces that were set aside."""

    def _add(self, number: int, draft: LineDraft) -> None:
        base, first_order = len(self.costs), number * PIECES_MAX
        self._made[number] = draft
        is_speech = draft.speaker is not None
        # A line of a call marks omissions with a sign, so there must be room for it.
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
        """Record the positions of statements, which statements they need, and which may share a line."""
        last: LinePiece | None = None
        for index, piece in enumerate(pieces, base):
            if piece.at[0] >= 0:
                self._places[piece.at] = index
            if piece.needs[0] >= 0:
                self._needs.append((index, piece))
            if last is not None and piece.before is not None and follows(piece, last):
                self._neighbours.setdefault(index, []).append(index - 1)
                self._neighbours.setdefault(index - 1, []).append(index)
            last = piece

    def begin(self) -> Steps[None]:
        """Fill the heap with the pieces, each below the piece that it needs, and with the drafts to make later."""
        for number, draft in enumerate(self._drafts):
            if isinstance(draft, LaterDraft):
                heapq.heappush(self.heap, (-draft.rate_max, number * PIECES_MAX, -1))
            else:
                self._add(number, draft)
            yield
        for index, piece in self._needs:
            parent = self._places.get(piece.needs, -1)
            if parent < 0 and piece.leans:
                self.costs[index] = self._first_costs[index] = NEVER_CHARS
            elif parent >= 0:
                self._parents[index] = parent
                if parent in self._neighbours.get(index, ()):  # they share a line, whenever this one is chosen
                    self.costs[index] = self._first_costs[index] = self._sizes[index] + 1
        for index, terms in enumerate(self._terms):
            self._hang(index)
            if isinstance(terms, LaterTerms):
                self._unweighed[self._orders[index]] = index
                heapq.heappush(self.heap, (self._rate_bound(index), self._orders[index], -1))
            else:
                self.push(self._first_rate(index), index)
            if not index % LOOKS_A_STEP:
                yield
        while self.heap and self.heap[0][2] < 0:  # the best rate must be known, whether or not there is room for it
            self._replace(heapq.heappop(self.heap)[1])
            yield

    def _hang(self, index: int) -> None:
        if self._parents[index] >= 0:
            self._below.setdefault(self._parents[index], []).append(index)

    def make(self, order: int) -> None:
        """Replace a bound with its pieces; or set it aside, if there is no room for any of them."""
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
        """Make a draft now and return the indexes of its pieces."""
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
        """Return the rate of a piece before anything was chosen, also if its draft is made later."""
        gain, cost = 0.0, 0
        costs, terms, parents = self._first_costs, self._terms, self._parents
        while index >= 0:
            cost += costs[index]
            for weight in terms[index].values():
                gain += weight
            index = parents[index]
        return -gain / (cost or 1)

    def _rate_bound(self, index: int) -> float:
        """Return a bound on `_first_rate`, without weighing the terms of the piece or its ancestors."""
        gain, cost = 0.0, 0
        while index >= 0:
            terms = self._terms[index]
            cost += self._first_costs[index]
            gain += terms.worth_max if isinstance(terms, LaterTerms) else sum(terms.values())
            index = self._parents[index]
        return -gain * ROUNDING_FACTOR / (cost or 1)

    def look(self, index: int) -> tuple[float, int]:
        """Return the gain and cost of choosing the piece with its ancestors that are not chosen yet.

        The gain is the negative of the added coverage per character; the cost is in characters.
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
        """Return True if a piece that came up at `rate`, and is now worth `current`, must wait for the next one."""
        while rate < current and self.heap and self.heap[0][0] <= current:
            next_rate, next_order, index = self.heap[0]
            if index >= 0:
                return next_rate < current or (next_order < order and self._is_parted(current, rate, order))
            self.make(heapq.heappop(self.heap)[1])
        return False

    def _is_parted(self, current: float, rate: float, order: int) -> bool:
        """Return True if the rate of a piece that was set aside lies between the two rates.

        Such a piece would delay this one, so that an earlier piece of the same worth goes first.
        """
        aside = [*self._out_of_room, *chain.from_iterable(map(self._added, self._set_aside))]
        self._aside += [(self._first_rate(index), self._orders[index]) for index in aside]
        self._out_of_room.clear()
        self._set_aside.clear()
        return any((rate, order) < one and one[0] < current for one in self._aside)

    def choose(self, index: int, cost: int) -> list[int]:
        """Choose a piece with its ancestors. Return the pieces that became cheaper: descendants and neighbours."""
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
        """Return all pieces under `top` that are not chosen yet, in a fixed order."""
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
        """Return the drafts of the chosen pieces, in order, each with the indexes of its chosen pieces."""
        places: dict[int, list[int]] = {}
        for order in sorted(self._taken):
            places.setdefault(order // PIECES_MAX, []).append(order % PIECES_MAX)
        return [(self._made[number], chosen) for number, chosen in places.items()]


def follows(piece: LinePiece, other: LinePiece) -> bool:
    """Return True if a statement directly follows another in its text."""
    return other.at[0] >= 0 and piece.at == (other.at[0], other.at[1] + 1)


def selecting(
    drafts: Sequence[LineDraft | LaterDraft], budget_tokens: float, size: Callable[[str], int] = len
) -> Steps[list[tuple[LineDraft, list[int]]]]:
    """Return the drafts with chosen pieces, in order, each with the indexes of these, together within the budget."""
    run = _Selection(drafts, budget_tokens * CHARS_PER_TOKEN, size)
    yield from run.begin()
    chosen, costs, look, heap = run.chosen, run.costs, run.look, run.heap
    floor = min(RATE_MIN, -RATE_SHARE_MIN * heap[0][0]) if heap else 0.0
    delays: dict[int, int] = {}
    known: dict[int, tuple[float, int]] = {}
    """Gains and costs of the pieces that were evaluated since the last choice; valid until the next one."""
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
