"""Model calls of a log and of its rerun: what each was sent, what the provider's cache kept of it, what it cost."""

from collections.abc import Mapping, Sequence

from attrs import define, evolve, field, frozen

from memory_engine.context.builder import FRAME
from memory_engine.context.rendering import Renderer
from memory_engine.core.chunks import Chunk
from memory_engine.core.json_form import JsonForm
from memory_engine.core.operations import Operation
from memory_engine.core.state import State
from memory_engine.core.tokens import TokenCounter, Usage
from memory_engine.errors import ContextBudgetError
from memory_engine.replay.diff import common_prefix, message_bytes
from memory_engine.replay.rolling import Drawn, Rolled, Rolling


@frozen(kw_only=True)
class Prices:
    """What a provider takes, in USD for a million tokens. `cached_input`: what its prompt cache still holds."""

    input: float
    output: float
    cached_input: float | None = None

    def of_call(self, fresh: int, kept: int, output: int) -> float:
        """USD for one call."""
        cached = self.input if self.cached_input is None else self.cached_input
        return (fresh * self.input + kept * cached + output * self.output) / 1_000_000

    def of_usage(self, usage: Usage) -> float:
        """USD for what a compactor's model took: as the provider said, else by its tokens."""
        return usage.cost_usd or self.of_call(usage.input_tokens, 0, usage.output_tokens)


@frozen(kw_only=True)
class Call(JsonForm):
    """One model call: the event before which it was made, and its tokens.

    `kept_tokens` stand at the beginning of the context as they stood in the call before, `fresh_tokens` are the
    rest. `fits`: false where the context needs more than the budget that was asked for.
    """

    seq: int
    tokens: int
    kept_tokens: int
    fresh_tokens: int
    output_tokens: int = 0
    fits: bool = True


@frozen(kw_only=True)
class Turn(JsonForm):
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
    renderers: Mapping[str, Renderer] = field(repr=False)
    counter: TokenCounter = field(repr=False)

    def rolling(self, state: State, drawn: Drawn) -> Rolling:
        """The contexts of a state and of those that follow it."""
        return Rolling(state, self.thread_id, self.max_tokens, drawn)


@define
class CallSeries:
    """The calls of one side, in order, by a key that the calls of both sides share."""

    measure: Measure
    calls: dict[str, Call] = field(factory=dict)
    _drawn: Drawn | None = None
    _rolling: Rolling | None = None
    _before: Rolled | None = None

    def begin(self, state: State, last_call: State | None) -> None:
        """From this state on. The last call before it was made with `last_call`: what a cache then held."""
        self._drawn = Drawn(self.measure.renderers, self.measure.counter)
        if last_call is not None:
            self._before, _ = self._context(self.measure.rolling(last_call, self._drawn))
        self._rolling = self.measure.rolling(state, self._drawn)

    def step(self, operations: Sequence[Operation], chunks: Sequence[Chunk], seq: int) -> None:
        """Go on by what an event did."""
        if self._rolling is not None:
            self._rolling.step(operations, chunks, seq)

    def call(self, key: str, seq: int) -> None:
        """A call is made with the context of the state as it is; the event at `seq` is the first of its response."""
        if self._rolling is None:
            return
        context, needed = self._context(self._rolling)
        kept = self._kept(self._before, context)
        self.calls[key] = Call(
            seq=seq, tokens=needed, kept_tokens=kept, fresh_tokens=needed - kept, fits=context is not None
        )
        self._before = context

    def answer(self, key: str, tokens: int) -> None:
        """A part of the response to a call."""
        call = self.calls.get(key)
        if call is not None:
            self.calls[key] = evolve(call, output_tokens=call.output_tokens + tokens)

    @staticmethod
    def _context(rolling: Rolling) -> tuple[Rolled | None, int]:
        """A context and its tokens; none where it needs more tokens than there may be."""
        try:
            context = rolling.context()
        except ContextBudgetError as error:
            return None, error.needed
        return context, context.tokens

    def _kept(self, old: Rolled | None, new: Rolled | None) -> int:
        """The tokens at the beginning that stayed the same; of the first message that differs, its share."""
        if old is None or new is None or self._drawn is None:
            return 0
        same = common_prefix(old.messages, new.messages)
        behind = [self._drawn.size(message) for message in new.messages[same:]]
        kept = new.tokens - FRAME - sum(size.tokens for size in behind)
        if behind and same < len(old.messages):
            partly = common_prefix(message_bytes(old.messages[same]), message_bytes(new.messages[same]))
            kept += behind[0].tokens * partly // behind[0].bytes
        return kept


def paired(original: CallSeries, fork: CallSeries) -> tuple[Turn, ...]:
    """The calls of both sides, in the order of the log."""
    keys = sorted({*original.calls, *fork.calls}, key=_order)
    return tuple(Turn(original=original.calls.get(key), fork=fork.calls.get(key)) for key in keys)


def _order(key: str) -> tuple[int, ...]:
    return tuple(map(int, key.split(".")))
