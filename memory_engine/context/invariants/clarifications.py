"""A question to a person stays with the answer; one that waits is left alone."""

from collections.abc import Iterator, Sequence

from memory_engine.chunks import Chunk
from memory_engine.context.invariants.atoms import Group, exchange_passed


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
