"""The choice of the pieces that fit a budget best: greedy coverage with a lazy heap.

The worth of a selection is the sum over its terms of the weight of the term,
discounted each time the term is covered again: a monotone submodular function,
for which greedy selection by gain per cost is the known approximation under a
budget (Lin & Bilmes 2011). Because gains only fall, the heap re-evaluates an
item only when it comes up (Minoux 1978), which keeps the whole near n log n.

A draft is a line in the making: a tree of pieces. A piece can be chosen only
with its ancestors, so the words that introduce it (who spoke, which tool, which
record) are paid for by the first piece that needs them.
"""

import heapq
from collections.abc import Sequence

import msgspec

from memory_engine.compactors.extractive.entries import CHARS_PER_TOKEN, LINE_FRAME_CHARS, Section
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


class LinePiece(msgspec.Struct, frozen=True):
    """Part of a line; `parent` is its place in the draft's pieces, -1 for the first."""

    text: str
    terms: Terms
    parent: int = 0


class LineDraft(msgspec.Struct, frozen=True):
    """A line with everything it could say. `pieces[0]` opens it and is the ancestor of all others."""

    section: Section
    sources: tuple[str, ...]
    pieces: tuple[LinePiece, ...]
    day: str = ""
    """When it was said, for the lines that show it; "" where that is not known."""


class _Selection:
    """The state of one greedy run: chosen pieces, covered terms, remaining characters."""

    def __init__(self, drafts: Sequence[LineDraft], budget_chars: float) -> None:
        self.left = budget_chars
        self.pieces: list[LinePiece] = []
        self.parents: list[int] = []
        self.children: list[list[int]] = []
        self.covered: dict[str, int] = {}
        for draft in drafts:
            base = len(self.pieces)
            for piece in draft.pieces:
                self.parents.append(base + piece.parent if piece.parent >= 0 else -1)
                self.children.append([])
                if piece.parent >= 0:
                    self.children[base + piece.parent].append(len(self.pieces))
                self.pieces.append(piece)
        self.delays = [0] * len(self.pieces)
        self.chosen = [False] * len(self.pieces)

    def path(self, index: int) -> list[int]:
        """The piece and those of its ancestors that are not chosen yet."""
        found = []
        while index >= 0 and not self.chosen[index]:
            found.append(index)
            index = self.parents[index]
        return found

    def cost(self, path: Sequence[int]) -> int:
        """Characters that choosing the path adds."""
        return sum(
            len(self.pieces[index].text) + (LINE_FRAME_CHARS if self.parents[index] < 0 else 0) for index in path
        )

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
        """Choose the path. Returns the pieces that became cheaper by it: those that hang below it."""
        self.left -= self.cost(path)
        for index in path:
            self.chosen[index] = True
            for term, _ in self.pieces[index].terms:
                self.covered[term] = self.covered.get(term, 0) + 1
        return self._below(path[-1])

    def _below(self, top: int) -> list[int]:
        """Every piece under `top` that is not chosen yet, in a fixed order."""
        found: list[int] = []
        waiting = [top]
        while waiting:
            index = waiting.pop()
            if not self.chosen[index]:
                found.append(index)
            waiting.extend(self.children[index])
        return found


def select(drafts: Sequence[LineDraft], budget_tokens: float) -> list[list[int]]:
    """For each draft the places of its chosen pieces, in order; together within the budget."""
    run = _Selection(drafts, budget_tokens * CHARS_PER_TOKEN)
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
