"""A call stays with its result, and the N parallel calls of one response with all N results."""

from collections.abc import Iterator, Sequence

from memory_engine.chunks import Chunk
from memory_engine.context.invariants.atoms import Group, exchange_passed


def calls_with_results(chunks: Sequence[Chunk]) -> Iterator[Group]:
    """One group for each chunk with calls: itself and every later chunk that answers one of them.

    Open while a call has no answer. A call that a whole exchange has passed by is dead:
    it may go, so that one orphan does not stand in the way for ever. A long-running
    call never dies of that.
    """
    answers: dict[str, list[int]] = {}
    for position, chunk in enumerate(chunks):
        if chunk.call_id:
            answers.setdefault(chunk.call_id, []).append(position)
    for position, chunk in enumerate(chunks):
        if not chunk.calls:
            continue
        members = {p for call in chunk.calls for p in answers.get(call.id, ()) if p > position}
        waiting = [call for call in chunk.calls if not _answered(chunks, position, answers.get(call.id, ()))]
        alive = any(call.long_running for call in waiting) or not exchange_passed(chunks, position)
        yield Group((position, *sorted(members)), open=bool(waiting) and alive)


def _answered(chunks: Sequence[Chunk], call: int, answers: Sequence[int]) -> bool:
    return any(position > call and chunks[position].final for position in answers)
