"""A long-running call stays with all its intermediate results, and open until the last one."""

from collections.abc import Iterator, Sequence

from memory_engine.chunks import Chunk
from memory_engine.context.invariants.answers import answers_to_calls
from memory_engine.context.invariants.atoms import Group


def long_running_calls(chunks: Sequence[Chunk]) -> Iterator[Group]:
    """One group for each call that reports in pieces, even where the call itself is no longer there."""
    for members in answers_to_calls(chunks).values():
        if len(members) > 1 or (members and not chunks[members[0]].final):
            yield Group(tuple(members), open=not any(chunks[position].final for position in members))
