"""How a turn gets into the log: once, whoever asks how often, and whatever dies in between."""

from memory_engine.codec import encode_event
from memory_engine.errors import AnotherQuestionOpen, ContentionError, EventTooLarge, IdempotencyConflict
from memory_engine.events.conversation import CycleStarted, ExchangeFinished
from memory_engine.events.input import UserMessage
from memory_engine.events.response import LlmTextResponse
from memory_engine.handle import ThreadHandle
from memory_engine.projections.conversation.folding import (
    CONVERSATION,
    CycleRow,
    ExchangeRow,
    cycle_of,
    exchange_key,
    exchanges_of,
    tally_of,
)
from memory_engine.projections.conversation.values import Exchange, exchange_of_event
from memory_engine.records import NewEvent

TRIES = 8
"""How often a question is put again that others overtook."""


async def opened(thread: ThreadHandle, question: str) -> CycleRow:
    """The open cycle of a question; it is opened now if it is not.

    Ids count the cycles, so of two callers that open one at once with the same question, one does.
    """
    for _ in range(TRIES):
        rows = await thread.rows(CONVERSATION)
        cycle, count = cycle_of(rows), tally_of(rows).cycles
        if cycle is not None and cycle.question == question:
            return cycle
        said = NewEvent(UserMessage(content=question), id=f"conversation:question:{count}")
        started = NewEvent(
            CycleStarted(question=question, question_at=-1), id=f"conversation:cycle:{count}", causation_id=said.id
        )
        try:
            _, receipt = await thread.dispatch_all([said, started])
        except IdempotencyConflict:  # another question was first
            continue
        return CycleRow(
            seq=receipt.seq,
            event_id=receipt.event_id,
            question=question,
            asked_us=receipt.recorded_at_us,
            question_at=receipt.seq - 1,
        )
    raise ContentionError(thread.id, TRIES)


def check_recordable(thread: ThreadHandle, question: str, answer: str) -> None:
    """Raise `InvalidEvent` or `EventTooLarge` for an answer that the log cannot hold.

    Before its question is recorded: that would wait for an answer, and refuse every other, for good.
    """
    payload, recorded = encode_event(ExchangeFinished(question=question, answer=answer, cycle=0), thread.kernel.events)
    if len(payload) > thread.kernel.config.event_bytes_max:
        raise EventTooLarge(recorded.event_type, len(payload), thread.kernel.config.event_bytes_max)


async def asked(thread: ThreadHandle, question: str, answer: str) -> CycleRow | ExchangeRow | Exchange:
    """What an answer belongs to: the open cycle, a question that was overtaken; or the exchange that it made already.

    Where nothing is open, a cycle is opened. Raises `AnotherQuestionOpen`.
    """
    rows = await thread.rows(CONVERSATION)
    cycle, live = cycle_of(rows), list(exchanges_of(rows))
    if cycle is not None and cycle.question == question:
        return cycle
    for row in reversed(live):
        if row.question == question and not row.finished_seq:
            return row
    if live and live[-1].question == question:
        last = live[-1]
        if answer == (await whole_answer(thread, last.finished_seq) if last.shortened else last.answer):
            return Exchange.of(last)
    if cycle is not None:
        raise AnotherQuestionOpen(thread.id, question, cycle.question)
    return await opened(thread, question)


async def finish(thread: ThreadHandle, found: CycleRow | ExchangeRow, finished: ExchangeFinished) -> Exchange:
    """Record the exchange, and the answer too if that was not said, or neither.

    Who comes second with the same answer gets the exchange of the first: a model may have made another
    short form of it. Raises `IdempotencyConflict` for another answer.
    """
    exchange_id = f"conversation:exchange:{found.seq}"
    new = [NewEvent(finished, id=exchange_id, causation_id=found.event_id)]
    if finished.answer_at < 0:
        said = LlmTextResponse(content=finished.answer)
        new.insert(0, NewEvent(said, id=f"conversation:answer:{found.seq}", causation_id=found.event_id))
    conflict: IdempotencyConflict | None = None
    try:
        await thread.dispatch_all(new)
    except IdempotencyConflict as error:
        conflict = error
    row = (await thread.rows(CONVERSATION)).get(exchange_key(found.seq))
    if conflict is None and isinstance(row, ExchangeRow) and row.event_id == exchange_id:
        return Exchange.of(row)
    for stored in await thread.kernel.store.find(thread.id, [exchange_id]):
        recorded = thread.kernel.reader.decode(thread.id, stored)
        if isinstance(recorded.event, ExchangeFinished) and recorded.event.answer == finished.answer:
            return exchange_of_event(recorded, recorded.event)
    raise conflict or ContentionError(thread.id, 1)


async def whole_answer(thread: ThreadHandle, finished_seq: int) -> str:
    """The answer of an exchange as it was given."""
    async for event in thread.events(after=finished_seq - 1, upto=finished_seq):
        if isinstance(event.event, ExchangeFinished):
            return event.event.answer
    return ""
