"""What must stay together in a context: the invariants, and the atoms that follow from all of them.

An atom is a smallest set of chunks that no invariant forbids to treat apart. A compaction takes whole atoms, and none
that is open; a context includes whole atoms.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from memory_engine.core.chunks import Chunk


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


def clarifications_with_answers(chunks: Sequence[Chunk]) -> Iterator[Group]:
    """One group for each clarification or approval and the next message of a person."""
    for position, chunk in enumerate(chunks):
        if chunk.type != "clarification":
            continue
        answer = next((p for p in range(position + 1, len(chunks)) if chunks[p].type in _ANSWERS), None)
        if answer is not None:
            yield Group((position, answer))
        else:
            yield Group((position,), open=not exchange_passed(chunks, position))


_ANSWERS = frozenset({"user_message", "parent_message"})


def parts_of_one_response(chunks: Sequence[Chunk]) -> Iterator[Group]:
    """One group for each response id that several chunks bear."""
    parts: dict[str, list[int]] = {}
    for position, chunk in enumerate(chunks):
        if chunk.response_id:
            parts.setdefault(chunk.response_id, []).append(position)
    for members in parts.values():
        if len(members) > 1:
            yield Group(tuple(members))


ROUNDS_KEPT = 8
"""Of a loop that is still going on, the rounds that no compaction takes. Without a bound, an
agent that works for hours between two messages could never be compacted."""

_INSIDE = frozenset({"thinking", "agent_action", "action_result", "error", "subagent_message"})


def thinking_tool_loops(chunks: Sequence[Chunk]) -> Iterator[Group]:
    """One group for each loop of thinking, calls and results between two messages.

    A loop at the end is open. Once it has more than `ROUNDS_KEPT` rounds, each older round
    (thinking, its calls, their results) is a group of its own.
    """
    for loop, ended in _loops(chunks):
        rounds = _rounds(chunks, loop)
        if ended or len(rounds) <= ROUNDS_KEPT:
            yield Group(tuple(loop), open=not ended)
            continue
        for members in rounds[:-ROUNDS_KEPT]:
            yield Group(tuple(members))
        yield Group(tuple(p for members in rounds[-ROUNDS_KEPT:] for p in members), open=True)


def _loops(chunks: Sequence[Chunk]) -> Iterator[tuple[list[int], bool]]:
    """Runs of thinking, calls and results that hold both thinking and a call; and whether each has ended."""
    run: list[int] = []
    for position, chunk in enumerate(chunks):
        if chunk.type in _INSIDE:
            run.append(position)
            continue
        if _is_loop(chunks, run):
            yield run, True
        run = []
    if _is_loop(chunks, run):
        yield run, False


def _is_loop(chunks: Sequence[Chunk], run: Sequence[int]) -> bool:
    return any(chunks[p].type == "thinking" for p in run) and any(chunks[p].calls for p in run)


def _rounds(chunks: Sequence[Chunk], loop: Sequence[int]) -> list[list[int]]:
    """The loop cut before each thinking that follows a result."""
    rounds: list[list[int]] = [[]]
    for position in loop:
        previous = rounds[-1][-1] if rounds[-1] else None
        if chunks[position].type == "thinking" and previous is not None and chunks[previous].type != "thinking":
            rounds.append([])
        rounds[-1].append(position)
    return rounds


NOBODY = -1
"""Stands for the position of a call that is not among the chunks."""


def answers_to_calls(chunks: Sequence[Chunk]) -> dict[tuple[int, str], list[int]]:
    """Positions of the results, by the position of the chunk with the call and the call's id.

    A result belongs to the latest call of its id before it, or to `NOBODY`. Every call is
    there, with an empty list where nothing answers it.
    """
    asking: dict[str, int] = {}
    answers: dict[tuple[int, str], list[int]] = {}
    for position, chunk in enumerate(chunks):
        if chunk.call_id:
            answers.setdefault((asking.get(chunk.call_id, NOBODY), chunk.call_id), []).append(position)
        for call in chunk.calls:
            asking[call.id] = position
            answers[position, call.id] = []
    return answers


def calls_with_results(chunks: Sequence[Chunk]) -> Iterator[Group]:
    """One group for each chunk with calls: itself and every later chunk that answers one of them.

    Open while a call has no answer. A call that a whole exchange has passed by is dead:
    it may go, so that one orphan does not stand in the way for ever. A long-running
    call never dies of that.
    """
    answers = answers_to_calls(chunks)
    for position, chunk in enumerate(chunks):
        if not chunk.calls:
            continue
        members = {p for call in chunk.calls for p in answers[position, call.id]}
        waiting = [c for c in chunk.calls if not any(chunks[p].final for p in answers[position, c.id])]
        alive = any(call.long_running for call in waiting) or not exchange_passed(chunks, position)
        yield Group((position, *sorted(members)), open=bool(waiting) and alive)


def long_running_calls(chunks: Sequence[Chunk]) -> Iterator[Group]:
    """One group for each call that reports in pieces, even where the call itself is no longer there."""
    for members in answers_to_calls(chunks).values():
        if len(members) > 1 or (members and not chunks[members[0]].final):
            yield Group(tuple(members), open=not any(chunks[position].final for position in members))


INVARIANTS: tuple[Invariant, ...] = (
    calls_with_results,
    long_running_calls,
    parts_of_one_response,
    thinking_tool_loops,
    clarifications_with_answers,
)
