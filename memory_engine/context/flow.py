"""The flow of a state: its atoms grouped by their part in a budget."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from memory_engine.context.invariants import Atom
from memory_engine.context.rendering import Message, RenderedChunk, assemble, assembled, message_tokens, own_messages
from memory_engine.core.chunks import Category, Chunk, Retention
from memory_engine.core.origins import HEARD, SPOKEN
from memory_engine.core.tokens import TokenCounter

TRAILING = {Category.SCRATCHPAD: 0.2, Category.TASK: 0.3, Category.ENVIRONMENT: 0.15}
"""Categories of chunks that change in place and therefore come last, with the share of a budget that each may take.
They are not part of the flow."""
BORDER_MIN = 48
"""Minimum tokens left over by the window for the turn before it to be shown cut short."""
LONG_RESULT = 400
"""Tokens above which a result is cut to a reference if the window has no room for all turns."""
REFERENCE = 160
"""Tokens of such a reference: the beginning and end of the result, and where to read the rest."""
CUTS_MAX = 64
"""Maximum number of cut atoms that are remembered, also for the flows that extend the one where they were cut."""


class Costed(msgspec.Struct, frozen=True, gc=False):
    """A rendered atom with its messages and their tokens.

    `fixed`: it is always included. `apart`: its chunks are consecutive, and its messages do not depend on the messages
    around them. `spoken` is the position of its last chunk in which a person or the leading agent says something; -1:
    without one. `heard`: it has such a chunk, or a notice of the client. `light` is its token count with its long
    results cut to references.
    """

    atom: Atom
    pieces: tuple[RenderedChunk, ...]
    messages: Sequence[Message]
    tokens: int
    fixed: bool
    apart: bool
    spoken: int
    heard: bool
    light: int

    @property
    def is_summary(self) -> bool:
        """Whether it is a summary, which represents earlier chunks."""
        return self.atom.chunks[0].category is Category.MEMORY


def cost(atom: Atom, render: Callable[[Chunk], Iterable[Message]], size: Callable[[Message], int]) -> Costed:
    """Render an atom and count its tokens; `size` returns the tokens of a message."""
    pieces = tuple(
        RenderedChunk(chunk, tuple(render(chunk)), position)
        for position, chunk in zip(atom.positions, atom.chunks, strict=True)
    )
    messages, apart = assembled(pieces)
    fixed = any(c.retention is Retention.CRITICAL or c.category is Category.SYSTEM for c in atom.chunks)
    in_a_row = atom.positions[-1] - atom.positions[0] < len(pieces)
    spoken = max((piece.position for piece in pieces if piece.chunk.type in SPOKEN), default=-1)
    heard = spoken >= 0 or any(chunk.type in HEARD for chunk in atom.chunks)
    sizes = list(map(size, messages))
    tokens = sum(sizes) + sum(size(message) for piece in pieces for message in own_messages(piece))
    results = (n for one, n in zip(messages, sizes, strict=True) if n > LONG_RESULT and one.get("role") == "tool")
    light = tokens - sum(n - REFERENCE for n in results)
    return Costed(atom, pieces, messages, tokens, fixed, apart and in_a_row, spoken, heard, light)


def cut_to(costed: Costed, pieces: tuple[RenderedChunk, ...], counter: TokenCounter) -> Costed:
    """Return the atom with its pieces replaced by these shorter ones."""
    messages, apart = assembled(pieces)
    tokens = tokens_in(messages, pieces, counter)
    apart = apart and costed.apart
    return replace(
        costed, pieces=pieces, messages=messages, tokens=tokens, light=min(costed.light, tokens), apart=apart
    )


def tokens_in(messages: Iterable[Message], pieces: Iterable[RenderedChunk], counter: TokenCounter) -> int:
    """Return the tokens of messages, and of the providers' own blocks that go back with them."""
    own = (message for piece in pieces for message in own_messages(piece))
    return sum(message_tokens(message, counter) for message in (*messages, *own))


def tokens_of(costed: Iterable[Costed]) -> int:
    """Return the total tokens of these atoms."""
    return sum(c.tokens for c in costed)


class FlowTurns(msgspec.Struct, frozen=True):
    """Turns in order, each with its tokens and the position of its first chunk; a turn itself is made when it is read.

    `heard` are the places of the turns in which the agent hears a person, the leading agent, or the client. `lights`
    are the token counts with long results cut to references.
    """

    sizes: Sequence[int] = ()
    lights: Sequence[int] = ()
    firsts: Sequence[int] = ()
    heard: Sequence[int] = ()
    tokens: int = 0
    read: Callable[[int, int], Sequence[Costed]] = lambda _first, _end: ()
    """Function that returns the turns from one place up to another."""
    began: Callable[[int], int] = lambda _place: 0
    """Function that returns the seq of the event with which a turn began."""

    @classmethod
    def of(cls, costed: Sequence[Costed]) -> "FlowTurns":
        """Create an instance from turns that have already been made."""
        return cls(
            [one.tokens for one in costed],
            [one.light for one in costed],
            [one.atom.positions[0] for one in costed],
            [n for n, one in enumerate(costed) if one.heard],
            tokens_of(costed),
            lambda first, end: costed[first:end],
            lambda place: costed[place].atom.said_at,
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def one(self, place: int) -> Costed:
        """Return the turn at a place."""
        return self.read(place, place + 1)[0]

    def since(self, place: int) -> Sequence[Costed]:
        """Return the turns from a place on."""
        return self.read(place, len(self))

    def tokens_since(self, place: int) -> int:
        """Return the tokens of the turns from a place on."""
        return sum(self.sizes[place:]) if place else self.tokens

    def plus(self, later: "FlowTurns") -> "FlowTurns":
        """Return these turns followed by `later` ones."""
        here = len(self)

        def read(first: int, end: int) -> Sequence[Costed]:
            return [*self.read(first, min(end, here)), *later.read(max(0, first - here), max(0, end - here))]

        return FlowTurns(
            [*self.sizes, *later.sizes],
            [*self.lights, *later.lights],
            [*self.firsts, *later.firsts],
            [*self.heard, *(here + n for n in later.heard)],
            self.tokens + later.tokens,
            read,
            lambda place: self.began(place) if place < here else later.began(place - here),
        )

    def behind(self, place: int) -> "FlowTurns":
        """Return the turns from a place on as turns of their own."""
        return FlowTurns(
            self.sizes[place:],
            self.lights[place:],
            self.firsts[place:],
            [at - place for at in self.heard if at >= place],
            self.tokens_since(place),
            lambda first, end: self.read(first + place, end + place),
            lambda at: self.began(at + place),
        )


class Cuts:
    """Cache of atoms cut to a room: the same atoms are cut in every context until the window moves."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], tuple[tuple[Costed, Costed | None], Costed | None]] = {}

    def known(
        self, one: Costed, other: Costed | None, room: int, counter: TokenCounter, made: Callable[[], Costed | None]
    ) -> Costed | None:
        """Return what `made` returned for these two atoms and this room, calling it at the first time."""
        key = id(one), id(other), room, id(counter)
        if key not in self._known:
            if len(self._known) >= CUTS_MAX:
                self._known.clear()
            self._known[key] = (one, other), made()  # references to both keep their ids from being reused
        return self._known[key][1]


class Flow(msgspec.Struct, frozen=True):
    """Atoms grouped by their part in a budget: fixed atoms, summaries and turns, each in order.

    `spoken` is the position of the last message of a person or of the leading agent (-1 without one), and
    `spoken_in` the place of the turn that contains it.
    """

    fixed: Sequence[Costed] = ()
    summaries: Sequence[Costed] = ()
    turns: FlowTurns = FlowTurns()
    fixed_tokens: int = 0
    spoken: int = -1
    spoken_in: int = -1
    cuts: Cuts = msgspec.field(default_factory=Cuts)

    @classmethod
    def of(cls, costed: Iterable[Costed]) -> "Flow":
        """Group the atoms."""
        fixed: list[Costed] = []
        summaries: list[Costed] = []
        listed: list[Costed] = []
        for one in costed:
            (fixed if one.fixed else summaries if one.is_summary else listed).append(one)
        turns, said = FlowTurns.of(listed), [one.spoken for one in listed if one.heard]
        spoken = max([*said, *(one.spoken for atoms in (fixed, summaries) for one in atoms)], default=-1)
        places = zip(reversed(turns.heard), reversed(said), strict=True)
        spoken_in = next((n for n, at in places if at == spoken >= 0), -1)
        return cls(fixed, summaries, turns, tokens_of(fixed), spoken, spoken_in)

    @property
    def asked(self) -> int:
        """Place among the turns of a person's newest message, which is being worked on; -1 without one."""
        return self.spoken_in

    @property
    def noticed(self) -> int:
        """Place among the turns of the client's last message since `asked`; -1 without one."""
        newest = self.turns.heard[-1] if self.turns.heard else -1
        return newest if newest >= 0 and self.turns.firsts[newest] > self.spoken else -1

    @property
    def newest_turn(self) -> int:
        """Place in `turns` where the newest turn begins: at a person's last message, otherwise at the last atom."""
        if self.spoken_in >= 0:
            return self.spoken_in
        begins = bisect_right(self.turns.firsts, self.spoken) if self.spoken >= 0 else len(self.turns)
        return begins if begins < len(self.turns) else max(0, len(self.turns) - 1)

    def behind(self, covered: Sequence[Costed]) -> "Flow":
        """Return a copy with the turns of covered originals, which are in order, merged into its own.

        Most of the flow's own turns are newer; the few older ones are sorted in.
        """
        if not covered:
            return self
        last = covered[-1].atom.positions[-1]
        older = bisect_right(self.turns.firsts, last)
        before = in_order_of_atoms([*covered, *self.turns.read(0, older)])
        turns = FlowTurns.of(before).plus(self.turns.behind(older))
        spoken = max(self.spoken, *(one.spoken for one in covered))
        spoken_in = next((n for n in reversed(turns.heard) if turns.one(n).spoken == spoken >= 0), -1)
        return replace(self, turns=turns, spoken=spoken, spoken_in=spoken_in)

    def asked_in(self, place: int) -> Costed | None:
        """Return the message that the turn at this place followed, and so responds to, or `None`."""
        before = bisect_left(self.turns.heard, place)
        return self.turns.one(self.turns.heard[before - 1]) if before else None

    def atoms(self) -> list[Costed]:
        """Return all atoms, in the order of the state."""
        return in_order_of_atoms([*self.fixed, *self.summaries, *self.turns.since(0)])


def in_groups(atoms: Iterable[Atom]) -> Iterator[list[Atom]]:
    """Yield atoms in order, grouping those whose chunks are interleaved."""
    group: list[Atom] = []
    reach = -1
    for atom in atoms:
        if group and atom.positions[0] > reach:
            yield group
            group = []
        group.append(atom)
        reach = max(reach, atom.positions[-1])
    if group:
        yield group


def messages_of(costed: Sequence[Costed], behind: Sequence[RenderedChunk] = ()) -> list[Message]:
    """Return the messages of atoms in order, followed by those of the pieces `behind`, as `assemble` gives them."""
    last, apart = assembled(behind)
    if apart and all(one.apart for one in costed) and _are_in_turn(costed):
        return [*(message for one in costed for message in one.messages), *last]
    return assemble([*in_order(costed), *behind])


def _are_in_turn(costed: Sequence[Costed]) -> bool:
    """Return whether each atom ends before the next begins: a response can be split by a message in between."""
    shown = [one.pieces for one in costed if one.pieces]
    return all(former[-1].position < later[0].position for former, later in pairwise(shown))


def in_order(costed: Iterable[Costed]) -> list[RenderedChunk]:
    """Return the pieces of atoms, in the order of the state."""
    return sorted((piece for one in costed for piece in one.pieces), key=lambda piece: piece.position)


def in_order_of_atoms(costed: Iterable[Costed]) -> list[Costed]:
    """Return the atoms sorted by their first chunks."""
    return sorted(costed, key=lambda c: c.atom.positions[0])
