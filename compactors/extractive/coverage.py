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
from collections.abc import Callable, Sequence

import msgspec

from memory_engine.compactors.extractive.entries import CHARS_PER_TOKEN, GAP, LINE_FRAME_CHARS, Section
from memory_engine.compactors.extractive.words import VALUE_MARK

WORD_DECAY = 0.8
VALUE_DECAY = 0.05
"""A word met again says something new about it; an identifier written twice does not."""
RATE_MIN = 0.02
"""A piece worth less than this per character (a "fine", a "cool!") only dilutes: a shorter summary is better."""
RATE_SHARE_MIN = 0.1
"""Where even the best piece is worth little, as in one long list of equals, the floor is this share of the best."""
DELAYS_MAX = 12
"""How often a piece may be put back. The limit bounds the work where everything repeats everything."""

Terms = tuple[tuple[str, float], ...]
Place = tuple[int, int]
"""A statement: its entry, and its number in it."""


class LinePiece(msgspec.Struct, frozen=True):
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


class LineDraft(msgspec.Struct, frozen=True):
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
    """The state of one greedy run: chosen pieces, covered terms, remaining characters."""

    def __init__(self, drafts: Sequence[LineDraft], budget: float, size: Callable[[str], int]) -> None:
        self.left = budget
        self.pieces: list[LinePiece] = []
        self.parents: list[int] = []
        self.opening: list[int] = []
        self.below: list[list[int]] = []
        self._neighbours: list[list[int]] = []
        self.covered: dict[str, int] = {}
        places: dict[Place, int] = {}
        for draft in drafts:
            base = len(self.pieces)
            # A line of a call says by a sign when it leaves something out, so there must be room for that.
            opening = LINE_FRAME_CHARS + size(f" {GAP}" if draft.speaker is None else draft.speaker)
            for piece in draft.pieces:
                if piece.at[0] >= 0:
                    places[piece.at] = len(self.pieces)
                self.parents.append(base + piece.parent if piece.parent >= 0 else -1)
                self.opening.append(opening if draft.speaker is not None or piece.parent < 0 else 0)
                self.below.append([])
                self._neighbours.append([])
                if len(self.pieces) > base and piece.before is not None and follows(piece, self.pieces[-1]):
                    self._neighbours[-1].append(len(self.pieces) - 1)
                    self._neighbours[-2].append(len(self.pieces))
                self.pieces.append(piece)
        self.sizes = [size(piece.text) for piece in self.pieces]
        for index, piece in enumerate(self.pieces):
            if piece.needs in places:
                self.parents[index] = places[piece.needs]
            if self.parents[index] >= 0:
                self.below[self.parents[index]].append(index)
        self.delays = [0] * len(self.pieces)
        self.chosen = [False] * len(self.pieces)

    def path(self, index: int) -> list[int]:
        """The piece and those of its ancestors that are not chosen yet."""
        found: list[int] = []
        while index >= 0 and not self.chosen[index] and index not in found:
            found.append(index)
            index = self.parents[index]
        return found

    def cost(self, path: Sequence[int]) -> int:
        """Characters that choosing the path adds: what opens a line is paid where no neighbour has a line."""
        total = 0
        for index in path:
            total += self.sizes[index]
            beside = self._neighbours[index]
            if beside and any(self.chosen[other] for other in beside):
                total += 1
            else:
                total += self.opening[index]
        return total

    def gain(self, path: Sequence[int]) -> float:
        """The coverage that choosing the path adds."""
        total = 0.0
        covered = self.covered
        for index in path:
            for term, weight in self.pieces[index].terms:
                times = covered.get(term, 0)
                decay = VALUE_DECAY if term[0] == VALUE_MARK else WORD_DECAY
                total += weight * decay**times if times else weight
        return total

    def choose(self, path: Sequence[int]) -> list[int]:
        """Choose the path. Returns the pieces that became cheaper by it: what hangs below it, and its neighbours."""
        self.left -= self.cost(path)
        cheaper: list[int] = []
        for index in path:
            self.chosen[index] = True
            for term, _ in self.pieces[index].terms:
                self.covered[term] = self.covered.get(term, 0) + 1
            cheaper.extend(self._neighbours[index])
        return [index for index in dict.fromkeys([*self._below(path[-1]), *cheaper]) if not self.chosen[index]]

    def _below(self, top: int) -> list[int]:
        """Every piece under `top` that is not chosen yet, in a fixed order."""
        found: list[int] = []
        waiting = [top]
        while waiting:
            index = waiting.pop()
            if not self.chosen[index]:
                found.append(index)
            waiting.extend(self.below[index])
        return found


def follows(piece: LinePiece, other: LinePiece) -> bool:
    """Whether a statement stands directly behind another in its text."""
    return other.at[0] >= 0 and piece.at == (other.at[0], other.at[1] + 1)


def select(drafts: Sequence[LineDraft], budget_tokens: float, size: Callable[[str], int] = len) -> list[list[int]]:
    """For each draft the places of its chosen pieces, in order; together within the budget."""
    run = _Selection(drafts, budget_tokens * CHARS_PER_TOKEN, size)
    heap: list[tuple[float, int]] = []
    _push(run, heap, range(len(run.pieces)))
    floor = min(RATE_MIN, -RATE_SHARE_MIN * heap[0][0]) if heap else 0.0
    while heap:
        rate, index = heapq.heappop(heap)
        path = run.path(index)
        if not path:
            continue
        cost = run.cost(path)
        if cost > run.left:
            continue
        current = -run.gain(path) / max(1, cost)
        if heap and current > max(rate, heap[0][0]) and run.delays[index] < DELAYS_MAX:
            run.delays[index] += 1
            heapq.heappush(heap, (current, index))
            continue
        if -current < floor or not current:
            break
        _push(run, heap, run.choose(path))
    return _by_draft(drafts, run.chosen)


def _push(run: _Selection, heap: list[tuple[float, int]], indices: Sequence[int]) -> None:
    for index in indices:
        path = run.path(index)
        heapq.heappush(heap, (-run.gain(path) / max(1, run.cost(path)), index))


def _by_draft(drafts: Sequence[LineDraft], chosen: Sequence[bool]) -> list[list[int]]:
    found: list[list[int]] = []
    base = 0
    for draft in drafts:
        found.append([place for place in range(len(draft.pieces)) if chosen[base + place]])
        base += len(draft.pieces)
    return found
