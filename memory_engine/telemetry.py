"""OpenTelemetry: spans and metrics of what an engine does, by the semantic conventions for generative AI.

    from memory_engine.telemetry import OpenTelemetry

    async with memory_engine.open("agent.db", probe=OpenTelemetry()) as engine: ...

Needs the extra `otel`, which is OpenTelemetry's API alone: the SDK and exporters are your application's. Names of
operations and attributes are those of the conventions in their current draft, and `memory_engine.…` for the
rest.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Self

from memory_engine.core.json_form import as_data
from memory_engine.errors import MissingExtra

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
except ImportError:
    raise MissingExtra("telemetry", "otel") from None

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

CAUSES_KEPT = 4_096
"""Events whose spans are remembered, so that what they cause links to them."""
_OWN = {"compaction": "memory_engine.compaction", "context": "memory_engine.context"}
"""Operations that the conventions have no name for."""
_LEAF = "create_memory"
"""Nothing worth reporting happens inside of a dispatch: it waits for another task's work."""
_NAMES = {
    "thread": "gen_ai.memory.store.id",
    "event": "gen_ai.memory.record.id",
    "events": "gen_ai.memory.record.count",
    "hits": "gen_ai.memory.record.count",
    "type": "memory_engine.event.type",
    "trigger": "memory_engine.compaction.trigger",
    "compactor": "memory_engine.compaction.compactor",
    "before": "memory_engine.compaction.tokens_before",
    "after": "memory_engine.compaction.tokens_after",
    "max_tokens": "gen_ai.request.max_tokens",
    "tokens": "memory_engine.context.tokens",
    "messages": "memory_engine.context.messages",
    "unsaid": "memory_engine.context.unsaid",
    "model": "gen_ai.request.model",
    "temperature": "gen_ai.request.temperature",
    "answered_by": "gen_ai.response.model",
    "response_id": "gen_ai.response.id",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
_CONTENT = {"query": "gen_ai.memory.query.text", "asked": "gen_ai.input.messages", "answer": "gen_ai.output.messages"}


class OpenTelemetry:
    """A probe that reports to OpenTelemetry, to the global providers unless you give others.

    No content (questions, messages, answers) is reported unless `content=True`. The trace of a dispatch
    becomes the correlation id of an event that is given none: its id in hex.
    """

    def __init__(
        self,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        *,
        content: bool = False,
    ) -> None:
        self._names = _NAMES | _CONTENT if content else _NAMES
        self.causes: OrderedDict[str, SpanContext] = OrderedDict()
        self.tracer = trace.get_tracer("memory_engine", tracer_provider=tracer_provider)
        meter = metrics.get_meter("memory_engine", meter_provider=meter_provider)
        self.durations = meter.create_histogram(
            "gen_ai.client.operation.duration", unit="s", description="How long an operation of the memory takes."
        )
        self.compacted = meter.create_counter(
            "memory_engine.compaction.tokens", unit="{token}", description="Tokens that compactions took out."
        )

        self.unsaid = meter.create_counter(
            "memory_engine.context.unsaid", unit="{statement}", description="Standing statements that contexts lacked."
        )

    def span(self, operation: str, said: Mapping[str, object]) -> "OperationSpan":
        """An operation that begins now."""
        return OperationSpan(self, operation, said)

    def name(self, said: Mapping[str, object], attributes: dict[str, str | int | float]) -> None:
        """Report under the names of the conventions, without content unless you asked for it."""
        names = self._names
        for name, value in said.items():
            if value is not None and value != "" and name in names:
                attributes[names[name]] = value if isinstance(value, str | int | float) else _json_text(value)

    def correlation_id(self) -> str:
        """The id of the trace around, in hex; empty for none."""
        around = trace.get_current_span().get_span_context()
        return f"{around.trace_id:032x}" if around.is_valid else ""


class OperationSpan:
    """A span of OpenTelemetry, and the time that it took."""

    __slots__ = ("_begun", "_operation", "_probe", "_span", "_token")

    def __init__(self, probe: OpenTelemetry, operation: str, said: Mapping[str, object]) -> None:
        self._probe = probe
        self._operation = name = _OWN.get(operation, operation)
        self._token: Token[contexts.Context] | None = None
        attributes: dict[str, str | int | float] = {"gen_ai.operation.name": name}
        probe.name(said, attributes)
        model = said.get("model")
        cause = probe.causes.get(caused) if isinstance(caused := said.get("causation"), str) and caused else None
        self._span: Span = probe.tracer.start_span(
            name if model is None else f"{name} {model}",
            kind=SpanKind.INTERNAL if model is None else SpanKind.CLIENT,
            attributes=attributes,
            links=None if cause is None else [Link(cause)],
        )
        event = said.get("event")
        if isinstance(event, str) and self._span.is_recording():
            probe.causes[event] = self._span.get_span_context()
            if len(probe.causes) > CAUSES_KEPT:
                probe.causes.popitem(last=False)
        self._begun = perf_counter()

    def __enter__(self) -> Self:
        if self._operation != _LEAF:
            self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        took = perf_counter() - self._begun
        if self._token is not None:
            contexts.detach(self._token)
        named = {"gen_ai.operation.name": self._operation}
        if error is not None:
            named["error.type"] = type(error).__name__
            self._span.set_attribute("error.type", named["error.type"])
            self._span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        self._span.end()
        self._probe.durations.record(took, named)

    def say(self, said: Mapping[str, object]) -> None:
        """Say something of it."""
        attributes: dict[str, str | int | float] = {}
        self._probe.name(said, attributes)
        self._span.set_attributes(attributes)
        before, after = said.get("before"), said.get("after")
        if isinstance(before, int) and isinstance(after, int):
            self._probe.compacted.add(max(0, before - after))
        unsaid = said.get("unsaid")
        if isinstance(unsaid, int) and unsaid:
            self._probe.unsaid.add(unsaid)


def _json_text(value: object) -> str:
    return json.dumps(as_data(value), ensure_ascii=False, default=str)
