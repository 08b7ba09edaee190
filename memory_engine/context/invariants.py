"""The invariants that keep chunks together, one class each, and the atoms that result from all of them.

A compaction takes whole atoms, and never an open one; a context includes whole atoms. The invariants read chunks in
order and remember those that later chunks may belong with, so computing the atoms of a state that has grown costs only
the added chunks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, Self

import msgspec

from memory_engine.core.chunks import Chunk, ChunkType, is_of_request
from memory_engine.core.origins import RESULTS, SPOKEN

ANSWERS = frozenset({ChunkType.AGENT_RESPONSE, ChunkType.CLARIFICATION})
"""Types of chunks in which a model speaks to people. A model's responses consist of these and of calls."""
ROUNDS_KEPT = 8
"""Number of newest rounds of a running loop that no compaction takes. Without this bound, an agent that works for hours
between two messages could never be compacted."""
NOBODY = -1
"""Position used for a call that is not among the chunks."""
_MODELS = ANSWERS | {ChunkType.THINKING, ChunkType.AGENT_ACTION}
"""Types of the chunks that make up a response."""


class Atom(msgspec.Struct, frozen=True, gc=False):
    """Chunks that stay together, in order, with their positions. `open`: more chunks will follow, so leave it alone."""

    positions: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    open: bool

    @property
    def tokens(self) -> int:
        """Estimated tokens of all chunks."""
        return sum(chunk.tokens for chunk in self.chunks)

    @property
    def said_at(self) -> int:
        """Seq of the event that began the atom; for a request, the seq of its message, not of later recalled chunks."""
        first = self.chunks[0]
        if not is_of_request(first):
            return first.said_at
        return next((chunk.said_at for chunk in self.chunks if not is_of_request(chunk)), first.said_at)


class Invariant(Protocol):
    """One reason why chunks belong together. It reads the chunks at the top of a state, each once, in order."""

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Read the next chunk and return the positions that belong together from now on, whatever follows."""
        ...

    def pending(self, passed: int, /) -> Iterable[int]:
        """Return the positions of chunks whose atoms are open as long as nothing follows.

        After the message at position `passed`, a whole exchange followed: a person spoke and the agent answered.
        """
        ...

    def copy(self) -> Self:
        """Return a copy that can read on without changing this instance."""
        ...


class Calls(msgspec.Struct):
    """A call stays with its results, and the N parallel calls of one response with the results of all N.

    A result belongs to the latest preceding call with its id, because some models restart the numbering of calls in
    each response. Results of a missing call stay together. A call is open until its last result. A call without a
    result is dead once a whole exchange has followed, so that an orphan does not block compactions for ever; a
    long-running call, or one that has reported something, stays open.
    """

    _asked: dict[str, int] = msgspec.field(default_factory=dict)
    _first: dict[tuple[int, str], int] = msgspec.field(default_factory=dict)
    """First chunk of each call's group, keyed by the call's position (or `NOBODY`) and its id."""
    _open: dict[tuple[int, str], bool] = msgspec.field(default_factory=dict)
    """Calls without their last result, and whether they stay open after an exchange."""

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Read the next chunk: a result belongs with its call."""
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
        """Yield the positions of the calls that wait for a result."""
        for key, outlives in self._open.items():
            first = self._first[key]
            if outlives or passed <= first:
                yield first

    def copy(self) -> "Calls":
        """Return an independent copy."""
        return Calls(self._asked.copy(), self._first.copy(), self._open.copy())

    def strays(self, chunk: Chunk) -> Iterator[int]:
        """Yield the positions of results that precede this chunk's call with their id.

        They are atoms of their own, but a context shows them after the call (see `rendering.assemble`).
        """
        for call in chunk.calls:
            if (NOBODY, call.id) in self._first:
                yield self._first[NOBODY, call.id]


class Responses(msgspec.Struct):
    """The parts of one model response stay together: its thinking, its text, its parallel calls."""

    _first: dict[str, int] = msgspec.field(default_factory=dict)

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Read the next chunk: chunks with the same response id belong together."""
        if not chunk.response_id:
            return ()
        return self._first.setdefault(chunk.response_id, position), position

    def pending(self, _passed: int, /) -> Iterable[int]:
        """Return nothing: a response is written at once, so none is open."""
        return ()

    def copy(self) -> "Responses":
        """Return an independent copy."""
        return Responses(self._first.copy())


class Questions(msgspec.Struct):
    """A question to a person, or a request for approval, stays with its answer; an unanswered one is open."""

    _waiting: list[int] = msgspec.field(default_factory=list)

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Read the next chunk: the next message of a person answers all open questions."""
        if chunk.type == ChunkType.CLARIFICATION:
            self._waiting.append(position)
        elif self._waiting and chunk.type in SPOKEN:
            members = (*self._waiting, position)
            self._waiting = []
            return members
        return ()

    def pending(self, _passed: int, /) -> Iterable[int]:
        """Return the positions of the open questions."""
        return self._waiting

    def copy(self) -> "Questions":
        """Return an independent copy."""
        return Questions(self._waiting.copy())


class Requests(msgspec.Struct):
    """Chunks recalled for a request stay with the message that follows them."""

    _recalled: list[int] = msgspec.field(default_factory=list)
    """Positions of the recalled chunks at the end of what has been read."""

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Read the next chunk: a message belongs with the recalled chunks directly before it."""
        if is_of_request(chunk):
            self._recalled.append(position)
            return ()
        recalled, self._recalled = self._recalled, [] if self._recalled else self._recalled
        return (*recalled, position) if recalled and chunk.type in SPOKEN else ()

    def pending(self, _passed: int, /) -> Iterable[int]:
        """Return nothing: both are bound once the message has been read."""
        return ()

    def copy(self) -> "Requests":
        """Return an independent copy."""
        return Requests(self._recalled.copy())


class Loops(msgspec.Struct):
    """The thinking of a response stays with the text and calls that it led to; the end of a running loop is open.

    A round of a loop begins with each response, with or without thinking, and includes what answers it. Providers
    require the thinking together with its own response; they allow the thinking of earlier rounds to be dropped. So
    each round is treated by itself. A loop runs as long as the model has made calls since its last response without
    calls. While a loop with thinking runs, its `ROUNDS_KEPT` newest rounds are open, and so is the newest round that
    contains thinking, however old.
    """

    _rounds: list[list[int]] = msgspec.field(default_factory=list)
    """Positions of the model's chunks in each of the newest rounds of the loop."""
    _thought: Sequence[int] = ()
    """Positions of the model's chunks in the newest round that contains thinking."""
    _response: str = ""
    _speaks: bool = False
    """Whether the previous chunk was the model's."""
    _thinks: bool = False
    """Whether the model's last chunk is thinking."""
    _calls: bool = False
    """Whether the newest round contains calls."""

    def read(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Read the next chunk.

        Thinking belongs with what follows it in its response, an observation with the text that it answers.

        A message of a person ends the loop, and so does anything between a final answer and the next response.
        """
        if chunk.type in _MODELS or chunk.calls:
            return self._take(position, chunk)
        members = (self._rounds[-1][-1], position) if chunk.type == ChunkType.OBSERVATION and self._speaks else ()
        if chunk.type in SPOKEN or (chunk.type not in RESULTS and not self._calls):
            self._rounds, self._thought = [], ()
        self._speaks = False
        return members

    def _take(self, position: int, chunk: Chunk) -> Sequence[int]:
        """Read the model's next chunk, which continues the newest round or begins a new one."""
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
        """Return whether a chunk belongs to the newest response, by its id or by the order thinking, text, calls."""
        if chunk.response_id and self._response:
            return chunk.response_id == self._response
        return self._speaks and not self._calls and (self._thinks or chunk.type != ChunkType.THINKING)

    def pending(self, _passed: int, /) -> Iterable[int]:
        """Return the positions of the rounds at the end of a running loop."""
        runs = self._calls and self._thought
        return {*self._thought, *(at for one in self._rounds for at in one)} if runs else ()

    def copy(self) -> "Loops":
        """Return an independent copy."""
        rounds = [one[:] for one in self._rounds]
        thought = next((new for new, old in zip(rounds, self._rounds, strict=True) if old is self._thought), None)
        kept = self._thought if thought is None else thought
        return Loops(rounds, kept, self._response, self._speaks, self._thinks, self._calls)


class Bonds(msgspec.Struct):
    """The atoms of chunks, maintained as chunks are added (union-find over their positions)."""

    chunks: list[Chunk] = msgspec.field(default_factory=list)
    reach: int = 0
    """Smallest position of a chunk that newly read chunks join, or are shown before, since this field was last set."""
    joined: int = 0
    """Smallest position of the atoms that newly read chunks have changed, since this field was last set."""
    _leader: list[int] = msgspec.field(default_factory=list)
    _calls: Calls = msgspec.field(default_factory=Calls)
    _others: tuple[Invariant, ...] = msgspec.field(
        default_factory=lambda: (Responses(), Questions(), Requests(), Loops())
    )
    _spoken: int = NOBODY
    _passed: int = NOBODY
    responded: int = NOBODY
    """Position of the last response; -1 without one."""

    def copy(self) -> "Bonds":
        """Return a copy that can read on without changing this instance."""
        others = tuple([invariant.copy() for invariant in self._others])
        counted = self.reach, self.joined
        return Bonds(self.chunks[:], *counted, self._leader[:], self._calls.copy(), others, self._spoken, self._passed)

    def read(self, chunks: Iterable[Chunk]) -> "Bonds":
        """Read more chunks, and return this instance."""
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
        """Yield the positions of chunks whose atoms are open as long as nothing follows."""
        for invariant in (self._calls, *self._others):
            yield from invariant.pending(self._passed)

    @property
    def spoken(self) -> int:
        """Position of the last message of a person or of the leading agent; -1 without one."""
        return self._spoken

    def first_of(self, position: int) -> int:
        """Return the position of the first chunk of the atom that contains a chunk, whatever follows."""
        return _find_root(self._leader, position)

    def atoms(self, since: int = 0) -> Iterator[Atom]:
        """Yield the atoms whose first chunk is at position `since` or later, in order of their first chunks."""
        leader = self._leader
        opened = {_find_root(leader, position) for position in self.pending()}
        leading: list[int] = []
        # plain integers: one object per atom would slow down garbage collection
        after, last = dict[int, int](), dict[int, int]()
        for position in range(since, len(leader)):
            first = _find_root(leader, position)
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
    """Return the smallest sets of chunks that the invariants allow to be separated, in order of their first chunks."""
    return list(Bonds().read(chunks).atoms())


def _find_root(leader: list[int], position: int) -> int:
    while leader[position] != position:
        leader[position] = leader[leader[position]]
        position = leader[position]
    return position


def _join(leader: list[int], members: Sequence[int]) -> int:
    """Merge the atoms that contain these chunks, and return the first position, which leads the merged atom."""
    firsts = {_find_root(leader, member) for member in members}
    first = min(firsts)
    for other in firsts:
        leader[other] = first
    return first
