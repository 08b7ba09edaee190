"""The fold: the live exchanges, the summary, the open question."""

from collections.abc import Collection, Iterable, Iterator
from typing import cast

import msgspec

from memory_engine.core.clock import to_us
from memory_engine.core.events.base import Event
from memory_engine.core.events.exchanges import CycleStarted, ExchangeFinished, SummaryRolled
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows, row_of, seq_key
from memory_engine.views.conversation.texts import utf8_bytes


class CycleRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="cycle", gc=False):
    """The open question. `seq` and `event_id` are those of its `cycle_started`; times in microseconds since 1970."""

    seq: int
    event_id: str
    question: str
    asked_us: int
    question_at: int = 0


class ExchangeRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="exchange", gc=False):
    """A live exchange. `seq` is its place: of the `cycle_started`, where there was one.

    `answer` is the short form where `answer_bytes`, the size of the whole, is over the limit: the log keeps
    the whole at `finished_seq` (0: no answer). `event_id` is the event that made the row what it is.
    """

    seq: int
    event_id: str
    question: str
    answer: str = ""
    asked_us: int = 0
    finished_seq: int = 0
    finished_us: int = 0
    answer_bytes: int = 0
    shortened: bool = False
    method: str = ""
    model: str = ""
    question_at: int = 0
    answer_at: int = 0

    @property
    def sources(self) -> tuple[int, ...]:
        """The seqs of all events that it came from."""
        return tuple(seq for seq in (self.seq, self.question_at, self.finished_seq, self.answer_at) if seq)


class SummaryRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="summary", gc=False):
    """The rolling summary of all exchanges up to the event `upto`, and of the snippets up to `insights_upto`.

    `withheld`: part of what it covers was forgotten, so its text is empty until it is made again from the log.
    """

    seq: int
    event_id: str
    text: str
    upto: int = 0
    insights_upto: int = 0
    exchanges: int = 0
    method: str = ""
    model: str = ""
    rolled_us: int = 0
    withheld: bool = False


class TallyRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="tally", gc=False):
    """Counts over the thread. `finished_at` and `forgotten` are the seqs of the last exchange and the last forget."""

    cycles: int = 0
    finished: int = 0
    finished_at: int = 0
    compressions: int = 0
    cuts: int = 0
    forgotten: int = 0


class GoneRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="gone", gc=False):
    """An exchange or a question that was forgotten: an answer that comes late finds nothing to answer.

    All of it was said from `first` to `last`: none of that is a message of its own now.
    """

    seq: int
    first: int = 0
    last: int = 0


ConversationRow = CycleRow | ExchangeRow | SummaryRow | TallyRow | GoneRow

CYCLE = "cycle"
SUMMARY = "summary"
TALLY = "tally"
EXCHANGE = "exchange/"
_GONE = "gone/"
_DIGITS_MAX = 18


def exchange_key(seq: int) -> str:
    """The key of an exchange: keys sort as the questions were asked."""
    return f"{EXCHANGE}{seq_key(seq)}"


class ConversationFold:
    """Keeps live exchanges until a `summary_rolled` covers them."""

    name = "conversation"
    version = 2
    mode: ProjectionMode = "inline"
    lazy = False
    row = cast("type[ConversationRow]", ConversationRow)  # a union, which msgspec takes as well as a class
    events: tuple[type[Event], ...] = (CycleStarted, ExchangeFinished, SummaryRolled, MemoryForget)

    def apply(self, rows: Rows[ConversationRow], event: RecordedEvent) -> None:
        """Change the rows by one event."""
        match event.event:
            case CycleStarted():
                _start(rows, event, event.event)
            case ExchangeFinished():
                _finish(rows, event, event.event)
            case SummaryRolled():
                _roll(rows, event, event.event)
            case MemoryForget():
                _drop_forgotten_exchanges(rows, event, event.event)


def _start(rows: Rows[ConversationRow], event: RecordedEvent, started: CycleStarted) -> None:
    open_cycle = cycle_of(rows)
    if open_cycle is not None:
        unanswered = ExchangeRow(
            seq=open_cycle.seq,
            event_id=open_cycle.event_id,
            question=open_cycle.question,
            asked_us=open_cycle.asked_us,
            question_at=open_cycle.question_at,
        )
        rows.put(exchange_key(open_cycle.seq), unanswered)
    rows.put(
        CYCLE,
        CycleRow(
            seq=event.seq,
            event_id=event.id,
            question=started.question,
            asked_us=to_us(event.recorded_at),
            question_at=resolve_seq(event.seq, started.question_at),
        ),
    )
    tally = tally_of(rows)
    rows.put(TALLY, msgspec.structs.replace(tally, cycles=tally.cycles + 1))


def _finish(rows: Rows[ConversationRow], event: RecordedEvent, finished: ExchangeFinished) -> None:
    tally = tally_of(rows)
    tally = msgspec.structs.replace(tally, finished=tally.finished + 1, finished_at=event.seq)
    if finished.method == "model":
        tally = msgspec.structs.replace(tally, compressions=tally.compressions + 1)
    elif finished.short:
        tally = msgspec.structs.replace(tally, cuts=tally.cuts + 1)
    rows.put(TALLY, tally)
    if finished.cycle and rows.get(f"{_GONE}{seq_key(finished.cycle)}") is not None:
        return
    asked = _question_of(rows, finished)
    row = ExchangeRow(
        seq=asked.seq if asked is not None else event.seq,
        event_id=event.id,
        question=finished.question,
        answer=finished.short or finished.answer,
        asked_us=asked.asked_us if asked is not None else to_us(event.recorded_at),
        finished_seq=event.seq,
        finished_us=to_us(event.recorded_at),
        answer_bytes=utf8_bytes(finished.answer),
        shortened=bool(finished.short),
        method=finished.method,
        model=finished.model,
        question_at=asked.question_at if asked is not None else 0,
        answer_at=resolve_seq(event.seq, finished.answer_at),
    )
    rows.put(exchange_key(row.seq), row)


def _question_of(rows: Rows[ConversationRow], finished: ExchangeFinished) -> CycleRow | ExchangeRow | None:
    """The open cycle that an exchange ends, which then is open no more, or the unanswered one that it answers late."""
    cycle = cycle_of(rows)
    if cycle is not None and (finished.cycle or cycle.seq) == cycle.seq and finished.question == cycle.question:
        rows.drop(CYCLE)
        return cycle
    late = row_of(rows, ExchangeRow, exchange_key(finished.cycle)) if finished.cycle else None
    if late is not None and not late.finished_seq and late.question == finished.question:
        return late
    return None


def _roll(rows: Rows[ConversationRow], event: RecordedEvent, rolled: SummaryRolled) -> None:
    base, tally = summary_of(rows), tally_of(rows)
    live = list(exchanges_of(rows))
    covered = live[: len(rolled.covers)]
    fits = (
        rolled.base == (base.seq if base is not None else 0)
        and rolled.forgotten == tally.forgotten
        and rolled.covers == tuple(row.seq for row in covered)
    )
    if not fits:
        return
    for row in covered:
        rows.drop(exchange_key(row.seq))
    before = base or SummaryRow(seq=0, event_id="", text="")
    rows.put(
        SUMMARY,
        SummaryRow(
            seq=event.seq,
            event_id=event.id,
            text=rolled.content,
            upto=max([before.upto, *(seq for row in covered for seq in row.sources)]),
            insights_upto=max([before.insights_upto, rolled.insights_upto, *seqs_of(rolled.insights)]),
            exchanges=rolled.exchanges or before.exchanges + len(covered),
            method=rolled.method or before.method,
            model=rolled.model or before.model,
            rolled_us=to_us(event.recorded_at),
        ),
    )
    if rolled.method == "model":
        rows.put(TALLY, msgspec.structs.replace(tally, compressions=tally.compressions + 1))
    elif rolled.compressed:
        rows.put(TALLY, msgspec.structs.replace(tally, cuts=tally.cuts + 1))


def _drop_forgotten_exchanges(rows: Rows[ConversationRow], event: RecordedEvent, forget: MemoryForget) -> None:
    seqs = forget.origins()
    for row in list(exchanges_of(rows)):
        if seqs.intersection(row.sources):
            rows.drop(exchange_key(row.seq))
            rows.put(f"{_GONE}{seq_key(row.seq)}", GoneRow(row.seq, min(row.sources), max(row.sources)))
    cycle = cycle_of(rows)
    if cycle is not None and not seqs.isdisjoint((cycle.seq, cycle.question_at)):
        rows.drop(CYCLE)
        first = min(filter(None, (cycle.seq, cycle.question_at)))
        rows.put(f"{_GONE}{seq_key(cycle.seq)}", GoneRow(cycle.seq, first, event.seq))
    summary = summary_of(rows)
    if summary is not None and _reaches(summary, seqs):
        # the row does not show which exchanges the forgotten parts came from, so all of it is withheld; the originals
        # are in the log, and the next summary is drawn from those that remain
        withheld = msgspec.structs.replace(summary, seq=event.seq, event_id=event.id, text="", withheld=True)
        rows.put(SUMMARY, withheld)
    rows.put(TALLY, msgspec.structs.replace(tally_of(rows), forgotten=event.seq))


def _reaches(summary: SummaryRow, seqs: Collection[int]) -> bool:
    most = max(summary.upto, summary.insights_upto)
    return any(seq <= most or seq == summary.seq for seq in seqs)


def seqs_of(chunk_ids: Iterable[str]) -> list[int]:
    """The seqs that chunk ids begin with; other texts are passed over."""
    heads = (chunk_id.partition(".")[0] for chunk_id in chunk_ids)
    return [int(head) for head in heads if head.isdecimal() and len(head) <= _DIGITS_MAX]


def resolve_seq(seq: int, at: int) -> int:
    """A seq, given as itself or (negative) counted back from an event's own."""
    return max(0, seq + at) if at < 0 else at


def exchanges_of(rows: ReadableRows[ConversationRow]) -> Iterator[ExchangeRow]:
    """The live exchanges, oldest first."""
    return (row for _, row in rows.items() if isinstance(row, ExchangeRow))


def gone_of(rows: ReadableRows[ConversationRow]) -> Iterator[GoneRow]:
    """The exchanges and questions that were forgotten, oldest first."""
    return (row for _, row in rows.items() if isinstance(row, GoneRow))


def cycle_of(rows: ReadableRows[ConversationRow]) -> CycleRow | None:
    """The open cycle, if a question waits for its answer."""
    return row_of(rows, CycleRow, CYCLE)


def summary_of(rows: ReadableRows[ConversationRow]) -> SummaryRow | None:
    """The summary, if anything was folded yet."""
    return row_of(rows, SummaryRow, SUMMARY)


def tally_of(rows: ReadableRows[ConversationRow]) -> TallyRow:
    """The counts."""
    return row_of(rows, TallyRow, TALLY) or TallyRow()


CONVERSATION = ConversationFold()
