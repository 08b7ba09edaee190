"""A thinking-tool loop stays whole: providers want the reasoning back beside the calls it led to."""

from collections.abc import Iterator, Sequence

from memory_engine.chunks import Chunk
from memory_engine.context.invariants.atoms import Group

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
