"""The parts of one model response stay together: its thinking, its text, its parallel calls."""

from collections.abc import Iterator, Sequence

from memory_engine.chunks import Chunk
from memory_engine.context.invariants.atoms import Group


def parts_of_one_response(chunks: Sequence[Chunk]) -> Iterator[Group]:
    """One group for each response id that several chunks bear."""
    parts: dict[str, list[int]] = {}
    for position, chunk in enumerate(chunks):
        if chunk.response_id:
            parts.setdefault(chunk.response_id, []).append(position)
    for members in parts.values():
        if len(members) > 1:
            yield Group(tuple(members))
