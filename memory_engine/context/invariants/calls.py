"""A call stays with its result, and the N parallel calls of one response with all N results."""

from collections.abc import Iterator, Sequence

from memory_engine.chunks import Chunk
from memory_engine.context.invariants.answers import answers_to_calls
from memory_engine.context.invariants.atoms import Group, exchange_passed


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
