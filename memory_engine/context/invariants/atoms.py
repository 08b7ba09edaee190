"""Atoms: the smallest sets of chunks that no invariant forbids to treat apart."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from memory_engine.chunks import Chunk


class Group(msgspec.Struct, frozen=True):
    """Positions of chunks that belong together. `open`: more is to come, so it is to be left alone."""

    members: tuple[int, ...]
    open: bool = False


Invariant = Callable[[Sequence[Chunk]], Iterable[Group]]
"""Finds the groups of one kind among the chunks at the top of a state, in order."""


class Atom(msgspec.Struct, frozen=True):
    """Chunks that stay together, in order, with their positions."""

    positions: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    open: bool

    @property
    def tokens(self) -> int:
        """What they take together, as estimated."""
        return sum(chunk.tokens for chunk in self.chunks)


def atoms_of(chunks: Sequence[Chunk], invariants: Iterable[Invariant]) -> list[Atom]:
    """The atoms, in order of their first chunks: groups that share a chunk are one (union-find)."""
    leader = list(range(len(chunks)))

    def find(position: int) -> int:
        while leader[position] != position:
            leader[position] = leader[leader[position]]
            position = leader[position]
        return position

    opened: set[int] = set()
    for invariant in invariants:
        for group in invariant(chunks):
            first = find(group.members[0])
            for member in group.members[1:]:
                leader[find(member)] = first
            if group.open:
                opened.add(group.members[0])
    members: dict[int, list[int]] = {}
    for position in range(len(chunks)):
        members.setdefault(find(position), []).append(position)
    open_leaders = {find(position) for position in opened}
    return [
        Atom(tuple(at), tuple(chunks[p] for p in at), leader_of in open_leaders) for leader_of, at in members.items()
    ]


def exchange_passed(chunks: Sequence[Chunk], after: int) -> bool:
    """Whether, after a position, a person spoke and the agent answered: what was open then is dead."""
    spoke = False
    for chunk in chunks[after + 1 :]:
        if chunk.type in ("user_message", "parent_message"):
            spoke = True
        elif spoke and chunk.type == "agent_response":
            return True
    return False
