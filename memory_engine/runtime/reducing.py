"""Events reduced onto a commit in the making: those of a request at once, very many of them piece by piece."""

from collections.abc import Callable, Sequence

import msgspec

from memory_engine.core.chain import live_chunk, next_head
from memory_engine.core.codec import checked_record
from memory_engine.core.reduction import ReduceContext, reduce_onto
from memory_engine.core.slices import Steps
from memory_engine.core.state import State
from memory_engine.core.threads import Head, LiveChunk
from memory_engine.projections.outbox import check_destinations
from memory_engine.runtime.commit import Attempt, RecordedLog, Reduced, linked_row
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.notes import DueNote
from memory_engine.runtime.queue import Prepared, Request

PIECE = 8
"""Events of a piece: well under a millisecond's work."""

Joined = tuple[State, Head, list[Reduced], dict[str, LiveChunk | None]]
"""What events make of an attempt: state and head, the events reduced, and the rows of the state that change."""


def reduced_onto(kernel: Kernel, attempt: Attempt, request: Request, before: Sequence[Prepared]) -> Joined:
    """Reduce a request, behind what comes before. Raises what reducing raises; the attempt is as it was."""
    state, head = attempt.state, attempt.head
    thread_id, tenant_id, kind = attempt.record.id, attempt.record.tenant_id, kernel.kind(attempt.record.kind)
    reduced: list[Reduced] = []
    live: dict[str, LiveChunk | None] = {}
    now_us = attempt.now_us or kind.recorded_us(kernel.now_us())
    if request.check is not None:
        request.check(state)
    for sent in (*before, *request.pending) if before else request.pending:
        prepared = kind.admit(sent) if kind.admit is not None else sent
        event = prepared.event
        if event.event_delivers:
            check_destinations(event, tenant_id)
        context = ReduceContext(head.seq + 1, prepared.id, now_us, prepared.tokens_of_text)
        entries = kernel.reducers.of_type(event.event_type)
        state, reduction, places = reduce_onto(state, entries, event, context, thread_id)
        record = checked_record(reduction, event, thread_id=thread_id, reducers=entries)
        stored = linked_row(prepared, record, head, now_us)
        for chunk_id, placed in places.items():
            live[chunk_id] = live_chunk(placed)
        head = next_head(head, stored, state.tally, tracked=event.event_tracked)
        reduced.append(Reduced(stored, event, reduction))
    return state, head, reduced, live


def joined(
    attempt: Attempt,
    request: Request,
    notes: Sequence[DueNote],
    join: Callable[[Attempt, Request, Sequence[DueNote]], None],
    log: RecordedLog,
) -> Steps[None]:
    """Join a request of very many events to an attempt of its own, and make its receipts, piece by piece."""
    pending, check = request.pending, request.check
    for at in range(0, len(pending), PIECE):
        piece = msgspec.structs.replace(
            request, events=pending[at : at + PIECE], has_callers_ids=False, receipts={}, check=check
        )
        join(attempt, piece, notes)
        attempt.make_receipts(log)
        request.receipts.update(piece.receipts)
        attempt.requests, notes, check = [], (), None
        yield
    noted = len(attempt.notes)
    attempt.requests = [(request, attempt.reduced[noted:], attempt.state)]
    attempt.has_receipts = True
