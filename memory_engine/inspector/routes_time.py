"""Routes about time and money: tokens over a log, its exchanges, tools and models, and one exchange as a waterfall.

A long log is read piece by piece: `upto` says how far an answer reaches; ask again for more.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from attrs import define, evolve, field

from memory_engine.core.chain import decode_row
from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.compaction import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
)
from memory_engine.core.excerpts import of_event, one_line
from memory_engine.core.json_form import as_data
from memory_engine.core.origins import role_of
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.errors import SeqNotInLog
from memory_engine.inspector.annals import FAILED, LogClock, ModelUse, TimedExchange, ToolTimes, answered_by, calls_of
from memory_engine.inspector.answers import Inspection, Query, Route
from memory_engine.inspector.walks import Walk

WALKED_AT_ONCE = 10_000
"""The most events that one request reads."""
BINS = 400
BINS_MAX = 2_000
EXCHANGES = 50
EXCHANGES_MAX = 500
BARS_MAX = 500
"""How many events of one exchange are drawn."""
SAID_MAX = 120


async def tokens(inspection: Inspection, query: Query) -> object:
    """The tokens of the state over the log, in pieces: last seq, highest, last. `chunks`: the state's."""
    bins = query.number("bins", BINS, least=1, most=BINS_MAX)
    head, walk = await _walked(inspection, query.text("thread"))
    return {
        "head": head,
        "upto": walk.seq,
        "chunks": walk.chunks,
        "highest": max(walk.tokens, default=0),
        "points": walk.curve(bins),
    }


async def _walked(inspection: Inspection, thread_id: str) -> tuple[int, Walk]:
    """The head of a thread, and its walk, advanced by a piece."""
    head = await kernel_of(inspection.engine).store.head(thread_id)
    walks = inspection.states.walks
    return head.seq, await walks.upto(thread_id, head.seq, head=head.seq, events=WALKED_AT_ONCE)


async def time(inspection: Inspection, query: Query) -> object:
    """A thread's durations, usage of models, and exchanges (by default the last page)."""
    head, walk = await _walked(inspection, query.text("thread"))
    annals = walk.annals
    limit = query.number("limit", EXCHANGES, least=1, most=EXCHANGES_MAX)
    offset = query.number_if_given("offset")
    if offset is None:
        offset = max(0, (len(annals.exchanges) - 1) // limit * limit)
    page = annals.exchanges[offset : offset + limit]
    said = await _openings(inspection, query.text("thread"), page)
    return {
        "head": head,
        "upto": walk.seq,
        "occurred": annals.occurred,
        "begun_us": annals.times_us[0] if annals.times_us else None,
        "ended_us": max(annals.times_us, default=None),
        "busy_us": {name: sum(getattr(one, name) for one in annals.exchanges) for name in _WAITS},
        "models": as_data(sorted(annals.models.values(), key=_spent)),
        "tools": [times.as_row(name) for name, times in sorted(annals.tools.items(), key=_longest)],
        "failures": dict(annals.failures),
        "total": len(annals.exchanges),
        "offset": offset,
        "limit": limit,
        "exchanges": [one.as_data() | {"said": said.get(one.first, "")} for one in page],
    }


_WAITS = ("model_us", "tool_us", "other_us")


def _spent(used: ModelUse) -> tuple[float, int]:
    return -used.usage.cost_usd, -(used.usage.input_tokens + used.usage.output_tokens)


def _longest(one: tuple[str, ToolTimes]) -> int:
    return -sum(one[1].took_us)


async def _openings(inspection: Inspection, thread_id: str, page: Sequence[TimedExchange]) -> dict[int, str]:
    """How each exchange began, by its first seq."""
    rows = await kernel_of(inspection.engine).store.read_at(thread_id, [one.first for one in page])
    return {row.seq: _event_summary(inspection, thread_id, row) for row in rows}


def _event_summary(inspection: Inspection, thread_id: str, stored: StoredEvent) -> str:
    event, _ = decode_row(thread_id, stored, kernel_of(inspection.engine).reader.registry)
    return one_line(of_event(event), SAID_MAX)


async def waterfall(inspection: Inspection, query: Query) -> object:
    """The exchange that an event belongs to: its waits, as bars in microseconds from its beginning.

    Beyond `BARS_MAX` events it is cut, and `cut` counts the others.
    """
    past = await inspection.past(query, least=1)
    head, walk = await _walked(inspection, past.id)
    exchanges = walk.annals.exchanges
    if past.seq > walk.seq:
        return {"head": head, "upto": walk.seq, "exchange": None, "bars": [], "cut": 0}
    number = bisect_right(exchanges, past.seq, key=lambda one: one.first) - 1
    exchange = exchanges[number]
    if not exchange.first <= past.seq <= exchange.last:
        raise SeqNotInLog(past.id, past.seq, walk.seq)
    last = min(exchange.last, exchange.first + BARS_MAX - 1)
    rows = await kernel_of(inspection.engine).reader.walk(past.id, after=exchange.first - 1, upto=last).all()
    bars = _Bars(LogClock(inspection.engine.events), exchange.begun_us)
    for row in rows:
        event, reduction = decode_row(past.id, row, kernel_of(inspection.engine).reader.registry)
        bars.put(row, event, sum(chunk.tokens for chunk in reduction.chunks))
    began = to_datetime(exchange.begun_us).isoformat()
    place = {"number": number + 1, "of": len(exchanges), "at": began}
    return {
        "head": head,
        "upto": walk.seq,
        "exchange": exchange.as_data() | place,
        "bars": as_data(list(bars.made())),
        "cut": exchange.last - last,
    }


@define(kw_only=True)
class Bar:
    """One wait: from one time to another (microseconds after the exchange began), between two events.

    `kind`: user, model, tool, compaction, or the role of an event that took no time. A call without a result is `open`.
    """

    kind: str
    label: str
    seq: int
    last: int
    begin_us: int
    end_us: int
    tokens: int = 0
    failed: bool = False
    open: bool = False


@define
class _Bars:
    """The bars of one exchange, built event by event."""

    _clock: LogClock
    _begun_us: int
    _bars: list[Bar] = field(factory=list)
    _calls: dict[str, Bar] = field(factory=dict)
    _compaction: Bar | None = None
    _before_us: int = 0

    def put(self, stored: StoredEvent, event: Event | UnknownEvent, tokens: int) -> None:
        """Take in the next event."""
        at_us = max(0, self._clock.at_us(stored) - self._begun_us)
        if isinstance(event, UnknownEvent):
            self._instant("other", stored, at_us, tokens)
        else:
            self._put(stored, event, at_us, tokens)
        self._before_us = max(self._before_us, at_us)

    def _put(self, stored: StoredEvent, event: Event, at_us: int, tokens: int) -> None:
        if event.event_role == "assistant":
            self._respond(stored, event, at_us, tokens)
        elif (call := self._calls.pop(answered_by(event), None)) is not None:
            self._end(call, stored, at_us, tokens)
        elif isinstance(event, CompactionStarted):
            self._compaction = self._instant("compaction", stored, at_us, 0)
            self._compaction.open = True
            self._compaction.label = one_line(of_event(event), SAID_MAX)
        elif isinstance(event, CompactionCompleted | CompactionFailed | CompactionAbandoned):
            self._end(self._compaction or self._instant("compaction", stored, at_us, 0), stored, at_us, tokens)
            self._compaction = None
        else:
            self._instant(role_of(event), stored, at_us, tokens)

    def _respond(self, stored: StoredEvent, event: Event, at_us: int, tokens: int) -> None:
        """A part of a response extends the bar of the part before; each of its calls starts a bar."""
        last = self._bars[-1] if self._bars else None
        if last is not None and last.kind == "model" and last.last == stored.seq - 1:
            last.last, last.end_us, last.tokens = stored.seq, max(last.end_us, at_us), last.tokens + tokens
            last.label = one_line(of_event(event), SAID_MAX) or last.label
        else:
            bar = self._instant("model", stored, at_us, tokens)
            bar.begin_us = min(self._before_us, at_us)
            bar.label = one_line(of_event(event), SAID_MAX) or bar.label
        for call_id, name in calls_of(event):
            call = Bar(
                kind="tool", label=name, seq=stored.seq, last=stored.seq, begin_us=at_us, end_us=at_us, open=True
            )
            self._calls[call_id] = call
            self._bars.append(call)

    def _end(self, bar: Bar, stored: StoredEvent, at_us: int, tokens: int) -> None:
        bar.last, bar.end_us, bar.open = stored.seq, max(bar.begin_us, at_us), False
        bar.tokens, bar.failed = tokens, stored.type in FAILED or stored.type == CompactionFailed.event_type

    def _instant(self, kind: str, stored: StoredEvent, at_us: int, tokens: int) -> Bar:
        failed = stored.type in FAILED
        bar = Bar(
            kind=kind, label=stored.type, seq=stored.seq, last=stored.seq, begin_us=at_us, end_us=at_us,
            tokens=tokens, failed=failed,
        )  # fmt: skip
        self._bars.append(bar)
        return bar

    def made(self) -> Iterator[Bar]:
        """The bars by their beginnings; an open one lasts to the end."""
        for bar in self._bars:
            yield evolve(bar, end_us=max(self._before_us, bar.end_us)) if bar.open else bar


TIME_ROUTES = (
    Route.of("tokens", "thread bins", tokens),
    Route.of("time", "thread offset limit", time),
    Route.of("waterfall", "thread seq", waterfall),
)
