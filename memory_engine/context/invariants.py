"""The invariants that keep chunks together, each once, and the atoms that follow from all of them.

A compaction takes whole atoms, and never an open one; a context includes whole atoms. The invariants read chunks one
after the other and remember those that later chunks may belong with. So the atoms of a state that has grown cost only
the added chunks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, Self

import msgspec
from attrs import define, field

from memory_engine.core.chunks import Chunk, ChunkType, is_of_request
from memory_engine.core.origins import RESULTS, SPOKEN

ANSWERS = frozenset({ChunkType.AGENT_RESPONSE, ChunkType.CLARIFICATION})
"""What a model says to people. Its responses are these, and calls."""
ROUNDS_KEPT = 8
"""The newest rounds of a running loop that no compaction takes. Without this bound, an agent
that works for hours between two messages could never be compacted."""
NOBODY = -1
"""Stands for the position of a call that is not among the chunks."""
_MODELS = ANSWERS | {ChunkType.THINKING, ChunkType.AGENT_ACTION}
"""Types of the chunks that a response is made of."""


class Atom(msgspec.Struct, frozen=True, gc=False):
    """Chunks that stay together, in order, with their positions. `open`: more will follow, so leave them alone."""

    positions: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    open: bool

    @property
    def tokens(self) -> int:
        """Their estimated tokens together."""
        return sum(chunk.tokens for chunk in self.chunks)

    @property
    def said_at(self) -> int:
        """The seq of the event that it began with: of a request its message, not what was recalled for it later."""
        first = self.chunks[0]
        if not is_of_request(first):
            return first.said_at
        return next((chunk.said_at for chunk in self.chunks if not is_of_request(chunk)), first.said_at)


class Invariant(Protocol):
    """One reason why chunks belong together. It reads the chunks at the top of a state, each once, in order."""

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Read the next chunk. Returns the positions that belong together from now on, whatever follows."""
        ...

    def pending(self, passed: int, /) -> Iterable[int]:
        """The positions of chunks whose atoms are open as long as nothing follows.

        After the message at position `passed` a whole exchange followed: a person spoke and the agent answered.
        """
        ...

    def copy(self) -> Self:
        """A copy that can read on without changing this one."""
        ...


@define
class Calls:
    """A call stays with its results, the N parallel calls of one response with all N of them.

    A result belongs to the latest call of its id before it: some models number their calls anew in each response.
    Results of a missing call stay with each other. A call is open until its last result. A call without a result is
    dead once a whole exchange has followed, so that an orphan does not block compactions for ever; a long-running
    call, or one that has reported something, stays open.
    """

    _asked: dict[str, int] = field(factory=dict)
    _first: dict[tuple[int, str], int] = field(factory=dict)
    """By the position of a call (or `NOBODY`) and its id: the first chunk of its group."""
    _open: dict[tuple[int, str], bool] = field(factory=dict)
    """The calls without their last result, and whether they outlive an exchange."""

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """A result belongs with its call."""
        members: Sequence[int] = ()
        if chunk.call_id:
            key = self._asked.get(chunk.call_id, NOBODY), chunk.call_id
            first = self._first.setdefault(key, position)
            members = (first, position)
            if chunk.final:
                self._open.pop(key, None)
            elif key in self._open or first == position:
                self._open[key] = True
        for call in chunk.calls:
            key = position, call.id
            self._asked[call.id] = self._first[key] = position
            self._open[key] = call.long_running or self._open.get(key, False)
        return members

    def pending(self, passed: int, /) -> Iterator[int]:
        """The calls that wait for a result."""
        for key, outlives in self._open.items():
            first = self._first[key]
            if outlives or passed <= first:
                yield first

    def copy(self) -> "Calls":
        """A copy that can read on by itself."""
        return Calls(self._asked.copy(), self._first.copy(), self._open.copy())

    def strays(self, chunk: Chunk) -> Iterator[int]:
        """The positions of results that came before this chunk's call of their id.

        They are atoms of their own, but a context shows them behind the call (see `rendering.assemble`).
        """
        for call in chunk.calls:
            if (NOBODY, call.id) in self._first:
                yield self._first[NOBODY, call.id]


@define
class Responses:
    """The parts of one model response stay together: its thinking, its text, its parallel calls."""

    _first: dict[str, int] = field(factory=dict)

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Chunks with the same response id belong together."""
        if not chunk.response_id:
            return ()
        return self._first.setdefault(chunk.response_id, position), position

    def pending(self, _passed: int, /) -> Iterable[int]:
        """Return nothing: a response is written at once, so none is open."""
        return ()

    def copy(self) -> "Responses":
        """A copy that can read on by itself."""
        return Responses(self._first.copy())


@define
class Questions:
    """A question to a person, or a request for approval, stays with the answer; one that waits is open."""

    _waiting: list[int] = field(factory=list)

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """The next message of a person answers all open questions."""
        if chunk.type == ChunkType.CLARIFICATION:
            self._waiting.append(position)
        elif self._waiting and chunk.type in SPOKEN:
            members = (*self._waiting, position)
            self._waiting = []
            return members
        return ()

    def pending(self, _passed: int, /) -> Iterable[int]:
        """The open questions."""
        return self._waiting

    def copy(self) -> "Questions":
        """A copy that can read on by itself."""
        return Questions(self._waiting.copy())


@define
class Requests:
    """What was recalled for a request stays with the message that it stands before."""

    _recalled: list[int] = field(factory=list)
    """The positions of such chunks, nothing but more of them behind."""

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """A message takes what was recalled for it, directly before it."""
        if is_of_request(chunk):
            self._recalled.append(position)
            return ()
        recalled, self._recalled = self._recalled, [] if self._recalled else self._recalled
        return (*recalled, position) if recalled and chunk.type in SPOKEN else ()

    def pending(self, _passed: int, /) -> Iterable[int]:
        """Return nothing: both are bound once the message is read."""
        return ()

    def copy(self) -> "Requests":
        """A copy that can read on by itself."""
        return Requests(self._recalled.copy())


@define
class Loops:
    """The thinking of a response stays with the words and calls that it led to, and the end of a loop is left alone.

    A round of a loop begins with each response, thinking or not, and takes what answers it. Providers want back the
    thinking beside its own response; of earlier rounds they allow it to go. So each round stands for itself. While a
    loop with thinking runs, which is as long as the model has called since it last only spoke, its `ROUNDS_KEPT`
    newest rounds are open, and the newest one that holds thinking, however old.
    """

    _rounds: list[list[int]] = field(factory=list)
    """Of the newest rounds of the loop the positions of the model's chunks."""
    _thought: Sequence[int] = ()
    """The same of the newest round that holds thinking."""
    _response: str = ""
    _speaks: bool = False
    """Whether the chunk before was the model's."""
    _thinks: bool = False
    """Whether the model's last chunk is thinking."""
    _calls: bool = False
    """Whether the newest round calls."""

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Thinking belongs with what follows it in its response, an observation with the text that it answers.

        A message of a person ends the loop; so does anything that comes between a final answer and the next response.
        """
        if chunk.type in _MODELS or chunk.calls:
            return self._take(position, chunk)
        members = (self._rounds[-1][-1], position) if chunk.type == ChunkType.OBSERVATION and self._speaks else ()
        if chunk.type in SPOKEN or (chunk.type not in RESULTS and not self._calls):
            self._rounds, self._thought = [], ()
        self._speaks = False
        return members

    def _take(self, position: int, chunk: Chunk) -> Sequence[int]:
        """The model's next chunk: it goes on with the newest round, or begins one."""
        is_same = self._rounds and self._goes_on(chunk)
        if not is_same:
            self._rounds = [*self._rounds[1 - ROUNDS_KEPT :], []]
            self._calls = False
        newest = self._rounds[-1]
        newest.append(position)
        self._response = chunk.response_id or (self._response if is_same else "")
        self._speaks, self._calls = True, self._calls or bool(chunk.calls)
        self._thinks = chunk.type == ChunkType.THINKING
        if self._thinks:
            self._thought = newest
        return newest[-2:] if self._thought is newest and len(newest) > 1 else ()

    def _goes_on(self, chunk: Chunk) -> bool:
        """Whether a chunk is of the newest round's response: by its id, else by its place: thoughts, words, calls."""
        if chunk.response_id and self._response:
            return chunk.response_id == self._response
        return self._speaks and not self._calls and (self._thinks or chunk.type != ChunkType.THINKING)

    def pending(self, _passed: int, /) -> Iterable[int]:
        """The rounds at the end of a running loop."""
        runs = self._calls and self._thought
        return {*self._thought, *(at for one in self._rounds for at in one)} if runs else ()

    def copy(self) -> "Loops":
        """A copy that can read on by itself."""
        rounds = [one[:] for one in self._rounds]
        thought = next((new for new, old in zip(rounds, self._rounds, strict=True) if old is self._thought), None)
        kept = self._thought if thought is None else thought
        return Loops(rounds, kept, self._response, self._speaks, self._thinks, self._calls)


@define
class Bonds:
    """The atoms of chunks, kept up as chunks are added (union-find over their positions)."""

    chunks: list[Chunk] = field(factory=list)
    reach: int = 0
    """The position of the first chunk that a newly read chunk joins, or is shown before, since this was last set."""
    joined: int = 0
    """The position of the first chunk of all atoms that a newly read chunk has changed, since this was last set."""
    _leader: list[int] = field(factory=list)
    _calls: Calls = field(factory=Calls)
    _others: tuple[Invariant, ...] = field(factory=lambda: (Responses(), Questions(), Requests(), Loops()))
    _spoken: int = NOBODY
    _passed: int = NOBODY
    responded: int = NOBODY
    """The position of the last response; -1 if there is none."""

    def copy(self) -> "Bonds":
        """A copy that can read on without changing this one."""
        others = tuple([invariant.copy() for invariant in self._others])
        counted = self.reach, self.joined
        return Bonds(self.chunks[:], *counted, self._leader[:], self._calls.copy(), others, self._spoken, self._passed)

    def read(self, chunks: Iterable[Chunk]) -> "Bonds":
        """Read these chunks too."""
        for chunk in chunks:
            position = len(self.chunks)
            self.chunks.append(chunk)
            self._leader.append(position)
            if chunk.calls:
                self.reach = min((self.reach, *self._calls.strays(chunk)))
            if chunk.calls or chunk.type in ANSWERS:
                self.responded = position
            for invariant in (self._calls, *self._others):
                members = invariant.read(position, chunk)
                if members:
                    first = _join(self._leader, members)
                    self.reach, self.joined = min(self.reach, first), min(self.joined, first)
            if chunk.type in SPOKEN:
                self._spoken = position
            elif chunk.type == ChunkType.AGENT_RESPONSE:
                self._passed = self._spoken
        return self

    def pending(self) -> Iterator[int]:
        """The positions of chunks whose atoms are open as long as nothing follows."""
        for invariant in (self._calls, *self._others):
            yield from invariant.pending(self._passed)

    @property
    def spoken(self) -> int:
        """The position of the last message of a person or of the agent that leads; -1 if there is none."""
        return self._spoken

    def first_of(self, position: int) -> int:
        """The position of the first chunk of the atom that a chunk is in, whatever follows."""
        return _found(self._leader, position)

    def atoms(self, since: int = 0) -> Iterator[Atom]:
        """The atoms whose first chunk stands at a position or behind it, in order of their first chunks."""
        leader = self._leader
        opened = {_found(leader, position) for position in self.pending()}
        leading: list[int] = []
        # numbers alone: an object for each atom would make garbage collections long
        after, last = dict[int, int](), dict[int, int]()
        for position in range(since, len(leader)):
            first = _found(leader, position)
            if first == position:
                leading.append(first)
            elif first >= since:
                after[last.get(first, first)] = last[first] = position
        for first in leading:
            at = [first]
            while (position := after.get(at[-1], -1)) >= 0:
                at.append(position)
            yield Atom(tuple(at), tuple([self.chunks[p] for p in at]), first in opened)


def atoms_of(chunks: Iterable[Chunk]) -> list[Atom]:
    """The atoms, the smallest sets of chunks that no invariant forbids to treat apart, in order of their first."""
    return list(Bonds().read(chunks).atoms())


def _found(leader: list[int], position: int) -> int:
    while leader[position] != position:
        leader[position] = leader[leader[position]]
        position = leader[position]
    return position


def _join(leader: list[int], members: Sequence[int]) -> int:
    """Make one atom of those that these chunks are in. Returns its first position, which leads it."""
    firsts = {_found(leader, member) for member in members}
    first = min(firsts)
    for other in firsts:
        leader[other] = first
    return first
