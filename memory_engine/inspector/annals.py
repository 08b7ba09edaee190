"""Time and money in a log's events, collected while they are read: exchanges, tools, models, failures.

An event's time is `occurred_at` if its sender gave it, else `recorded_at`. Upkeep (compactions) has no
sender: its time is that of the event before it, plus the time between their recordings.
"""

from array import array
from collections import Counter
from collections.abc import Iterator

from attrs import define, field

from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.messages import SkillError, SubagentError, SystemFailure, ToolError, UserMessage
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.json_form import JsonForm, named
from memory_engine.core.origins import role_of
from memory_engine.core.records import StoredEvent
from memory_engine.errors import EventDecodeError
from memory_engine.errors.effects import Usage
from memory_engine.formats.native import reported_usages
from memory_engine.replay.cache_breaks import Runs
from memory_engine.replay.what_if.change import Compactions

ANSWERS = "answers"
"""The purpose of usage that a provider's own message reports; else it is the event's type."""
FAILED = frozenset(cls.event_type for cls in (ToolError, SkillError, SubagentError, SystemFailure))
_HAS_ORIGIN = b'"origin":'


@define(kw_only=True)
class TimedExchange(JsonForm):
    """The events from a message to the agent up to the next: seqs, times and durations in microseconds.

    `model_us`, `tool_us` and `other_us` add up to its time, by what ended each wait: a part of a response, a result, or
    anything else.
    """

    json_names = (
        "first last begun_us ended_us model_us tool_us other_us calls tools failures "
        "input_tokens output_tokens cost_usd"
    )
    first: int
    last: int
    begun_us: int
    ended_us: int
    model_us: int = 0
    tool_us: int = 0
    other_us: int = 0
    calls: int = 0
    tools: int = 0
    failures: int = 0
    usage: Usage = Usage()

    @property
    def input_tokens(self) -> int:
        """Tokens sent to models, as far as recorded."""
        return self.usage.input_tokens

    @property
    def output_tokens(self) -> int:
        """Tokens in models' answers, as far as recorded."""
        return self.usage.output_tokens

    @property
    def cost_usd(self) -> float:
        """USD, as far as recorded."""
        return self.usage.cost_usd


@define(kw_only=True)
class ToolTimes:
    """The answered calls of one tool: the duration of each in microseconds, and how many failed."""

    took_us: list[int] = field(factory=list)
    failed: int = 0

    def as_row(self, name: str) -> dict[str, object]:
        """Their number, and the median, maximum and sum of their durations."""
        ordered = sorted(self.took_us)
        middle = ordered[len(ordered) // 2] if ordered else 0
        counts = {"name": name, "calls": len(ordered), "failed": self.failed}
        return {**counts, "median_us": middle, "longest_us": max(ordered, default=0), "total_us": sum(ordered)}


@define(kw_only=True)
class ModelUse(JsonForm):
    """A model's usage for one purpose. `cached_tokens` of the input came from its provider's prompt cache.

    `response_id` is set for the use of a single response that its provider has named.
    """

    model: str
    purpose: str
    calls: int = 0
    cached_tokens: int = 0
    usage: Usage = Usage()
    response_id: str = ""

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return {**named(self, "model purpose calls cached_tokens"), **named(self.usage)}

    def add(self, other: "ModelUse") -> None:
        """Add another one's counts."""
        self.calls += other.calls
        self.cached_tokens += other.cached_tokens
        self.usage = self.usage.plus(other.usage)


class LogClock:
    """The times of a log's events, in order; upkeep counts from the event before it."""

    def __init__(self, registry: EventRegistry) -> None:
        self._registry = registry
        self._behind_us = 0

    def at_us(self, stored: StoredEvent) -> int:
        """When an event was, in microseconds since 1970."""
        if stored.occurred_at_us is not None:
            self._behind_us = stored.recorded_at_us - stored.occurred_at_us
            return stored.occurred_at_us
        if self._registry.is_upkeep(stored.type):
            return stored.recorded_at_us - self._behind_us
        self._behind_us = 0
        return stored.recorded_at_us


class Annals:
    """The times, exchanges, tools, models and failures of a log, up to the last event that was noted."""

    def __init__(self, registry: EventRegistry) -> None:
        self._registry = registry
        self._told = {cls.event_type for cls in registry.classes() if _tells(cls)}
        self._clock = LogClock(registry)
        self._runs = Runs(registry)
        self._open: dict[str, tuple[str, int]] = {}
        self._role = ""
        self._response = ModelUse(model="", purpose="")
        self.times_us = array("q")
        self.exchanges: list[TimedExchange] = []
        self.tools: dict[str, ToolTimes] = {}
        self.models: dict[tuple[str, str], ModelUse] = {}
        self.failures: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.compactions = Compactions()
        self.occurred = 0

    def note(self, stored: StoredEvent) -> None:
        """Take in the next event."""
        at_us = self._clock.at_us(stored)
        role = self._role_of(stored)
        exchange = self._exchange(stored.seq, role, at_us)
        waited_us = max(0, at_us - self.times_us[-1]) if self.times_us and stored.seq != exchange.first else 0
        match role:
            case "assistant":
                exchange.model_us += waited_us
            case "tool":
                exchange.tool_us += waited_us
            case _:
                exchange.other_us += waited_us
        exchange.last, exchange.ended_us = stored.seq, max(exchange.ended_us, at_us)
        self.times_us.append(at_us)
        self.types[stored.type] += 1
        self.occurred += stored.occurred_at_us is not None
        if stored.type in FAILED:
            self.failures[stored.type] += 1
            exchange.failures += 1
        event = self._event(stored)
        _, is_call = self._runs.next(event, str(stored.seq))
        exchange.calls += is_call
        if isinstance(event, Event):
            self._note_event(stored, event, exchange, at_us)
        self._role = role

    def _role_of(self, stored: StoredEvent) -> str:
        """The speaker; of a message of the user role, by its origin."""
        if stored.type != UserMessage.event_type or _HAS_ORIGIN not in stored.payload:
            return self._registry.role(stored.type)
        try:
            event = self._registry.decode(stored.type, stored.version, stored.payload)
        except EventDecodeError:
            return "user"
        return role_of(event) if isinstance(event, Event) else "other"

    def _exchange(self, seq: int, role: str, at_us: int) -> TimedExchange:
        """The exchange that an event belongs to: consecutive messages to the agent begin one together."""
        if not self.exchanges or (role == "user" and self._role != "user"):
            self.exchanges.append(TimedExchange(first=seq, last=seq, begun_us=at_us, ended_us=at_us))
        return self.exchanges[-1]

    def _event(self, stored: StoredEvent) -> Event | UnknownEvent:
        """An event that may matter; of others, and of unreadable ones, only the type."""
        if stored.type in self._told:
            try:
                return self._registry.decode(stored.type, stored.version, stored.payload)
            except EventDecodeError:  # the timeline shows it in its place
                pass
        return UnknownEvent(stored.type, stored.version, b"")

    def _note_event(self, stored: StoredEvent, event: Event, exchange: TimedExchange, at_us: int) -> None:
        failed = self.compactions.failed
        self.compactions = self.compactions.plus(event)
        if self.compactions.failed > failed:
            self.failures[stored.type] += 1
        for call_id, name in calls_of(event):
            self._open[call_id] = name, at_us
        answered = answered_by(event)
        if answered and answered in self._open:
            name, begun_us = self._open.pop(answered)
            times = self.tools.setdefault(name, ToolTimes())
            times.took_us.append(max(0, at_us - begun_us))
            times.failed += stored.type in FAILED
            exchange.tools += 1
        for used in map(self._since_last_part, models_used(event)):
            known = self.models.get((used.model, used.purpose))
            if known is None:
                self.models[used.model, used.purpose] = used
            else:
                known.add(used)
            exchange.usage = exchange.usage.plus(used.usage)

    def _since_last_part(self, used: ModelUse) -> ModelUse:
        """The use that is not counted yet: each part of a response may report what all of it has used so far."""
        if not used.response_id:
            return used
        before, self._response = self._response, used
        if before.response_id != used.response_id:
            return used
        usage = Usage(
            input_tokens=max(0, used.usage.input_tokens - before.usage.input_tokens),
            output_tokens=max(0, used.usage.output_tokens - before.usage.output_tokens),
        )
        cached_tokens = max(0, used.cached_tokens - before.cached_tokens)
        return ModelUse(model=used.model, purpose=used.purpose, cached_tokens=cached_tokens, usage=usage)


def _tells(cls: type[Event]) -> bool:
    fields = {"usage", "calls", "call_id"}
    return cls.event_role in ("assistant", "tool", "compaction") or not fields.isdisjoint(cls.__struct_fields__)


def calls_of(event: Event) -> Iterator[tuple[str, str]]:
    """The ids and names of the calls that an event makes."""
    for call in getattr(event, "calls", ()):
        yield call.id, call.name
    if event.event_role == "assistant" and (call_id := getattr(event, "call_id", "")):
        yield call_id, getattr(event, "name", "") or getattr(event, "agent_id", "")


def answered_by(event: Event) -> str:
    """The id of the call that an event ends, or ""."""
    is_final = event.event_role == "tool" and getattr(event, "final", True)
    return getattr(event, "call_id", "") if is_final else ""


def models_used(event: Event) -> Iterator[ModelUse]:
    """Models' usage for an event: recorded by the engine, or reported in the provider's response."""
    usage = getattr(event, "usage", None)
    model = getattr(event, "model", "")
    if isinstance(usage, Usage) and (model or usage != Usage()):
        yield ModelUse(model=model, purpose=event.event_type, calls=1, usage=usage)
    for one in reported_usages(getattr(event, "native", "")):
        yield ModelUse(
            model=one.model,
            purpose=ANSWERS,
            calls=1,
            cached_tokens=one.cached_tokens,
            usage=one.usage,
            response_id=one.response_id,
        )
