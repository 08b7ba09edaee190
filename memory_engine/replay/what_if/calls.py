"""Model calls of a log and of its rerun: the tokens of each, those that the provider's cache kept, its cost."""

from collections.abc import Sequence

import msgspec
from attrs import define, field, frozen

from memory_engine.context.builder import ContextBuilder
from memory_engine.context.series import ContextSeries, MeasuredContext, MeasuredMessages
from memory_engine.core.chunks import Chunk
from memory_engine.core.json_form import JsonForm
from memory_engine.core.operations import Operation
from memory_engine.core.state import State
from memory_engine.errors import ContextBudgetError
from memory_engine.errors.effects import Usage
from memory_engine.replay.cache_breaks import kept_of


@frozen(kw_only=True)
class Prices:
    """A provider's prices, in USD for a million tokens. `cached_input`: for tokens in its prompt cache."""

    input: float
    output: float
    cached_input: float | None = None

    def of_call(self, fresh: int, kept: int, output: int) -> float:
        """USD for one call."""
        cached = self.input if self.cached_input is None else self.cached_input
        return (fresh * self.input + kept * cached + output * self.output) / 1_000_000

    def of_usage(self, usage: Usage) -> float:
        """USD for a compactor's model: as the provider said, else by its tokens."""
        return usage.cost_usd or self.of_call(usage.input_tokens, 0, usage.output_tokens)


class Call(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """One model call: the event before which it was made, and its tokens.

    `kept_tokens` are at the beginning of the context, unchanged since the call before, `fresh_tokens` are the
    rest. `fits`: false where the context needs more than the budget that was asked for.
    """

    seq: int
    tokens: int
    kept_tokens: int
    fresh_tokens: int
    output_tokens: int = 0
    fits: bool = True


class Turn(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """One model call of the log, and of the rerun; `None` where it was not made there."""

    original: Call | None
    fork: Call | None

    @property
    def difference(self) -> int:
        """By how many tokens the rerun's context is larger."""
        return (self.fork.tokens if self.fork else 0) - (self.original.tokens if self.original else 0)


@frozen(kw_only=True)
class Spending(JsonForm):
    """Model calls and compactions of one side, summed up. `cost_usd` is `None` without prices."""

    calls: int
    tokens: int
    kept_tokens: int
    fresh_tokens: int
    output_tokens: int
    cost_usd: float | None = None

    @classmethod
    def of(cls, calls: Sequence[Call], usage: Usage, prices: Prices | None) -> "Spending":
        """The sum of calls, with what compactions took in `cost_usd`."""
        cost = None
        if prices is not None:
            cost = prices.of_usage(usage)
            cost += sum(prices.of_call(call.fresh_tokens, call.kept_tokens, call.output_tokens) for call in calls)
        return cls(
            calls=len(calls),
            tokens=sum(call.tokens for call in calls),
            kept_tokens=sum(call.kept_tokens for call in calls),
            fresh_tokens=sum(call.fresh_tokens for call in calls),
            output_tokens=sum(call.output_tokens for call in calls),
            cost_usd=None if cost is None else round(cost, 9),
        )


@frozen(kw_only=True)
class Measure:
    """How contexts are built and counted. `max_tokens`: the budget of each (`None`: all that is in the state)."""

    thread_id: str
    max_tokens: int | None
    builder: ContextBuilder = field(repr=False)

    def series(self, state: State, messages: MeasuredMessages) -> ContextSeries:
        """The contexts of a state and of those that follow it."""
        return ContextSeries(state, self.thread_id, self.max_tokens, messages)


@define
class CallSeries:
    """The calls of one side, in order, by a key that the calls of both sides share."""

    measure: Measure
    calls: dict[str, Call] = field(factory=dict)
    _series: ContextSeries | None = None
    _before: MeasuredContext | None = None

    def begin(self, state: State, last_call: State | None, beside: "CallSeries | None" = None) -> None:
        """From this state on. The call before was made with the state `last_call`, which the cache held then.

        Messages that the series `beside` has are not made again, if it makes them by the same rules.
        """
        other = beside._series.messages if beside is not None and beside._series is not None else None
        builder = self.measure.builder
        messages = MeasuredMessages(builder, other if other is not None and other.builder == builder else None)
        if last_call is not None:
            self._before, _ = self._context(self.measure.series(last_call, messages))
        self._series = self.measure.series(state, messages)

    def step(self, operations: Sequence[Operation], chunks: Sequence[Chunk], seq: int) -> None:
        """Go on by an event's reduction."""
        if self._series is not None:
            self._series.step(operations, chunks, seq)

    def call(self, key: str, seq: int) -> None:
        """A call is made with the context of the present state; the event at `seq` is the first of its response."""
        if self._series is None:
            return
        context, needed = self._context(self._series)
        kept = self._kept(self._before, context)
        self.calls[key] = Call(
            seq=seq, tokens=needed, kept_tokens=kept, fresh_tokens=needed - kept, fits=context is not None
        )
        self._before = context

    def answer(self, key: str, tokens: int) -> None:
        """A part of the response to a call."""
        call = self.calls.get(key)
        if call is not None:
            self.calls[key] = msgspec.structs.replace(call, output_tokens=call.output_tokens + tokens)

    @staticmethod
    def _context(series: ContextSeries) -> tuple[MeasuredContext | None, int]:
        """A context and its tokens; none where it exceeds the budget."""
        try:
            context = series.context()
        except ContextBudgetError as error:
            return None, error.needed
        return context, context.tokens

    def _kept(self, old: MeasuredContext | None, new: MeasuredContext | None) -> int:
        """The tokens at the beginning that stayed the same; of the first message that differs, its share."""
        if old is None or new is None or self._series is None:
            return 0
        return kept_of(old, new, self._series.messages)[0]


def paired(original: CallSeries, fork: CallSeries) -> tuple[Turn, ...]:
    """The calls of both sides, in the order of the log."""
    keys = sorted({*original.calls, *fork.calls}, key=_order)
    return tuple(Turn(original=original.calls.get(key), fork=fork.calls.get(key)) for key in keys)


def _order(key: str) -> tuple[int, ...]:
    return tuple(map(int, key.split(".")))
