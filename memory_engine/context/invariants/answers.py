"""Which result answers which call. Ids are a model's own, and some number their calls anew in each response."""

from collections.abc import Sequence

from memory_engine.chunks import Chunk

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
