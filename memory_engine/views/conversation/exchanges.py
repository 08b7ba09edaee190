"""The values that readers of a conversation's memory get, built from its rows."""

from datetime import datetime

from attrs import field, frozen

from memory_engine.context.rendering import Message
from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.events.exchanges import ExchangeFinished
from memory_engine.core.records import RecordedEvent
from memory_engine.views.conversation.fold import ExchangeRow, SummaryRow
from memory_engine.views.conversation.texts import utf8_bytes


@frozen(kw_only=True)
class Exchange:
    """A question and its answer, as the memory holds them.

    `answer` is the short form if `is_shortened`; the whole one, of `answer_bytes`, is in the log
    (`Conversation.whole_answer`). `method` says who shortened it: `"model"` or `"cut"`. `seq` is the place among the
    exchanges, `event_id` the event that the exchange came from, `finished_seq` the one that holds the answer.
    """

    seq: int
    event_id: str
    question: str
    answer: str
    is_answered: bool
    is_shortened: bool
    answer_bytes: int
    method: str
    model: str
    asked_at: datetime
    finished_at: datetime | None
    finished_seq: int

    @classmethod
    def of(cls, row: ExchangeRow) -> "Exchange":
        """From a row."""
        return cls(
            seq=row.seq,
            event_id=row.event_id,
            question=row.question,
            answer=row.answer,
            is_answered=bool(row.finished_seq),
            is_shortened=row.shortened,
            answer_bytes=row.answer_bytes,
            method=row.method,
            model=row.model,
            asked_at=to_datetime(row.asked_us),
            finished_at=to_datetime(row.finished_us) if row.finished_seq else None,
            finished_seq=row.finished_seq,
        )


@frozen(kw_only=True)
class Summary:
    """The rolling summary of `exchanges` older exchanges.

    `is_withheld`: part of them was forgotten, so its text is empty until the next turn. `event_id` is the event that
    holds it; `method` and `model` say how it was last compressed, if it was.
    """

    seq: int
    event_id: str
    text: str
    exchanges: int
    method: str
    model: str
    rolled_at: datetime
    is_withheld: bool

    @classmethod
    def of(cls, row: SummaryRow) -> "Summary":
        """From a row."""
        return cls(
            seq=row.seq,
            event_id=row.event_id,
            text=row.text,
            exchanges=row.exchanges,
            method=row.method,
            model=row.model,
            rolled_at=to_datetime(row.rolled_us),
            is_withheld=row.withheld,
        )


@frozen(kw_only=True)
class Cycle:
    """The question that waits for its answer, and the agent's work on it so far.

    `agent_messages` are chat-completions messages. `final_answer` is the agent's last text, if no call follows it: the
    answer left by a process that died before it could finalize.
    """

    seq: int
    event_id: str
    question: str
    asked_at: datetime
    agent_messages: tuple[Message, ...] = field(repr=False)
    final_answer: str | None


def exchange_of_event(recorded: RecordedEvent, finished: ExchangeFinished) -> Exchange:
    """An exchange from the event that finished it, where its row is in the summary already."""
    row = ExchangeRow(
        seq=finished.cycle or recorded.seq,
        event_id=recorded.id,
        question=finished.question,
        answer=finished.short or finished.answer,
        asked_us=to_us(recorded.recorded_at),
        finished_seq=recorded.seq,
        finished_us=to_us(recorded.recorded_at),
        answer_bytes=utf8_bytes(finished.answer),
        shortened=bool(finished.short),
        method=finished.method,
        model=finished.model,
    )
    return Exchange.of(row)
