"""The flow of a large state, maintained as the state grows: a context reads only what was added, and what it shows.

For each turn the index keeps three numbers: its tokens whole, its tokens with long results cut, and its first position.
The result equals that of reading the whole state (`StateParts.of`).
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Lock

import msgspec

from memory_engine.context.flow import TRAILING, Costed, Cuts, Flow, FlowTurns, cost, in_order_of_atoms
from memory_engine.context.invariants import Bonds
from memory_engine.context.rendering import Message, message_tokens
from memory_engine.core.aside import AT_ONCE_MAX
from memory_engine.core.chunks import Chunk, is_of_request, is_of_session, outdated_instructions
from memory_engine.core.persistent import SortedSequence, Splice
from memory_engine.core.state import Placed, State
from memory_engine.core.tokens import TokenCounter

BEGINNINGS_MAX = 4
"""Number of beginnings whose bonds are kept, so that a change behind one does not read the whole flow again."""


class StateParts(msgspec.Struct, frozen=True):
    """The parts of a state that contexts read: its flow, the flow's chunks, and the trailing chunks, each in order.

    `responded` is the position of the last response in the flow, -1 without one. `changed` is the smallest
    position of the flow whose messages may differ from those of the parts that the same index returned before.
    """

    flow: Flow
    chunks: Sequence[Chunk]
    trailing: Sequence[Chunk]
    responded: int
    changed: int = 0

    @classmethod
    def of(
        cls,
        chunks: Iterable[Chunk],
        messages: Callable[[Chunk], Iterable[Message]],
        counter: TokenCounter,
    ) -> "StateParts":
        """Read all top-level chunks of a state, and keep each rendered."""
        top = list(chunks)
        flowing = in_flow(top)
        made = partial(cost, render=messages, size=partial(message_tokens, counter=counter))
        bonds = Bonds().read(flowing)
        flow = Flow.of(map(made, bonds.atoms()))
        return cls(flow, flowing, [chunk for chunk in top if chunk.category in TRAILING], bonds.responded)


def in_flow(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks that are not trailing, without the instructions of earlier sessions."""
    found = [chunk for chunk in chunks if chunk.category not in TRAILING]
    outdated = outdated_instructions(found)
    return [chunk for chunk in found if chunk.id not in outdated] if outdated else found


class FlowIndex:
    """The flow of one thread's newest state. Hold `lock` while you use the index or anything obtained from it."""

    def __init__(self, messages: Callable[[Chunk], Iterable[Message]], size: Callable[[Message], int]) -> None:
        self.lock = Lock()
        self.messages = messages
        self.size = size
        self._top: SortedSequence[Placed] = SortedSequence()
        self._beside: list[Placed] = []
        """Top-level chunks that are not in the flow: trailing chunks and outdated instructions."""
        self._outdated: frozenset[str] = frozenset()
        self._bonds = Bonds()
        self._beginnings: list[Bonds] = []
        """Bonds of beginnings of the flow that once stayed when it changed, shortest first."""
        self._cuts = Cuts()
        self._fixed: list[Costed] = []
        self._summaries: list[Costed] = []
        self._sizes = array("q")
        self._lights = array("q")
        self._firsts = array("q")
        self._heard: list[int] = []
        self._spoken_first = -1
        self._tokens = 0
        self._made: dict[int, Costed] = {}
        """Turns that were read for this context, by their first positions."""
        self._made_before: dict[int, Costed] = {}
        """Turns that the context before showed, and new ones."""

    def is_near(self, state: State) -> bool:
        """Return whether the state differs from the one read last only by a few chunks at its end."""
        changes = state.top.since(self._top)
        count = sum(len(one.added) + len(one.removed) for one in changes)
        return count <= AT_ONCE_MAX and self._appended(changes) is not None

    def parts(self, state: State) -> StateParts:
        """Return the parts of a state. This invalidates the parts returned by earlier calls."""
        changes = state.top.since(self._top)
        appended = self._appended(changes)
        self._top = state.top
        if self._made:  # otherwise nothing was shown since, so the turns of the last context stay useful
            self._made_before, self._made = self._made, {}
        if appended is None:
            changed = self._read_again()
        else:
            self._note_beside(changes)
            changed = self._read(appended)
        trailing = [placed.chunk for placed in self._beside if placed.chunk.category in TRAILING]
        return StateParts(self._flow(), self._bonds.chunks, trailing, self._bonds.responded, changed)

    def _appended(self, changes: Sequence[Splice[Placed]]) -> list[Chunk] | None:
        """Return the chunks appended to the flow, or `None` if it changed elsewhere than at its end."""
        for change in changes:
            gone, come = self._in_flow(change.removed), self._in_flow(change.added)
            if len(come) < len(gone) or any(one is not other for one, other in zip(gone, come, strict=False)):
                return None
            more = come[len(gone) :]
            if more:
                return more if change.at_end and not any(map(is_of_session, more)) else None
        return []

    def _in_flow(self, placed: Iterable[Placed]) -> list[Chunk]:
        chunks = (one.chunk for one in placed)
        return [chunk for chunk in chunks if chunk.category not in TRAILING and chunk.id not in self._outdated]

    def _note_beside(self, changes: Iterable[Splice[Placed]]) -> None:
        for change in changes:
            gone = {id(placed) for placed in change.removed}
            come = [placed for placed in change.added if placed.chunk.category in TRAILING]
            if come or any(id(placed) in gone for placed in self._beside):
                kept = (placed for placed in self._beside if id(placed) not in gone)
                self._beside = sorted((*kept, *come), key=lambda placed: placed.key)

    def _read(self, appended: Sequence[Chunk]) -> int:
        """Read the chunks appended to the flow, and return the smallest position that they changed."""
        bonds = self._bonds
        bonds.joined = bonds.reach = len(bonds.chunks)
        if appended:
            bonds.read(appended)
            self._cost(bonds.joined)
        return min(bonds.joined, bonds.reach)

    def _read_again(self) -> int:
        """Read the flow again, keeping the turns before the first change; return the smallest position that changed."""
        top = [placed.chunk for placed in self._top]
        flowing, before = in_flow(top), self._bonds
        kept = {chunk.id for chunk in flowing}
        self._beside = [placed for placed in self._top if placed.chunk.id not in kept]
        self._outdated = outdated_instructions(top)
        pairs = zip(before.chunks, flowing, strict=False)
        same = next(
            (n for n, (one, other) in enumerate(pairs) if one is not other), min(len(before.chunks), len(flowing))
        )
        self._bonds = bonds = self._beginning(flowing[:same])
        bonds.reach = same
        bonds.read(flowing[same:])
        joined = (each.first_of(n) for each in (before, bonds) for n in range(same, len(each.chunks)))
        changed = min(joined, default=same)
        self._cost(changed)
        return min(changed, bonds.reach)

    def _beginning(self, chunks: Sequence[Chunk]) -> Bonds:
        """Return the bonds of an unchanged beginning, and keep a copy for the next change behind it."""
        kept = self._beginnings
        while kept and len(kept[-1].chunks) > len(chunks):
            kept.pop()
        bonds = kept[-1].copy() if kept else Bonds()
        bonds.read(chunks[len(bonds.chunks) :])
        if not kept or len(kept[-1].chunks) < len(chunks):
            self._beginnings = [*kept[1 - BEGINNINGS_MAX :], bonds.copy()]
        return bonds

    def _cost(self, since: int) -> None:
        """Render and count the atoms from a position on, keeping what is known of those before it."""
        self._go_back(since)
        for atom in self._bonds.atoms(since):
            self._add(cost(atom, self.messages, self.size))

    def _add(self, one: Costed) -> None:
        first = one.atom.positions[0]
        if self._bonds.spoken in one.atom.positions:
            self._spoken_first = first
        if one.fixed or one.is_summary:
            (self._fixed if one.fixed else self._summaries).append(one)
            return
        if one.heard:
            self._heard.append(len(self._sizes))
        self._sizes.append(one.tokens)
        self._lights.append(one.light)
        self._firsts.append(first)
        self._tokens += one.tokens
        if first >= len(self._bonds.chunks) - AT_ONCE_MAX:
            self._made_before[first] = one  # the next context shows the newest turns

    def _go_back(self, position: int) -> None:
        """Forget the atoms from a position on."""
        kept = bisect_left(self._firsts, position)
        self._tokens -= sum(self._sizes[kept:])
        del self._sizes[kept:], self._lights[kept:], self._firsts[kept:]
        del self._heard[bisect_left(self._heard, kept) :]
        for atoms in (self._fixed, self._summaries):
            del atoms[_place_of(atoms, position) :]
        self._made_before = {first: one for first, one in self._made_before.items() if first < position}

    def _flow(self) -> Flow:
        turn = bisect_left(self._firsts, self._spoken_first) if self._bonds.spoken >= 0 else len(self._firsts)
        is_turn = turn < len(self._firsts) and self._firsts[turn] == self._spoken_first
        return Flow(
            self._fixed,
            self._summaries,
            FlowTurns(self._sizes, self._lights, self._firsts, self._heard, self._tokens, self._turns, self._began),
            sum(one.tokens for one in self._fixed),
            self._bonds.spoken,
            turn if is_turn else -1,
            self._cuts,
        )

    def since(self, position: int) -> list[Costed]:
        """Return the atoms whose first chunks are at this position or later, in order."""
        turns = self._turns(bisect_left(self._firsts, position), len(self._firsts))
        fixed, summaries = (atoms[_place_of(atoms, position) :] for atoms in (self._fixed, self._summaries))
        return in_order_of_atoms([*fixed, *summaries, *turns])

    def _began(self, place: int) -> int:
        chunks, at = self._bonds.chunks, self._firsts[place]
        while is_of_request(chunks[at]) and at + 1 < len(chunks):  # like `Atom.said_at`
            at += 1
        return chunks[at].said_at

    def _turns(self, first: int, end: int) -> list[Costed]:
        """Return the turns from `first` up to `end`, reusing those that the previous context also showed."""
        wanted = self._firsts[first:end]
        for at in wanted:
            if at in self._made_before:
                self._made.setdefault(at, self._made_before[at])
        missing = {at for at in wanted if at not in self._made}
        for atom in self._bonds.atoms(min(missing)) if missing else ():
            if atom.positions[0] in missing:
                self._made[atom.positions[0]] = cost(atom, self.messages, self.size)
        return [self._made[at] for at in wanted]


def _place_of(atoms: Sequence[Costed], position: int) -> int:
    """Return the place of the first atom that begins at this position or later."""
    return bisect_left(atoms, position, key=lambda one: one.atom.positions[0])
