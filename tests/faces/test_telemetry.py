"""OpenTelemetry's own SDK, told of an engine at work."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import memory_engine
from memory_engine import UserMessage, errors
from memory_engine.errors.effects import Usage
from memory_engine.llm.base import Completion, Message
from memory_engine.telemetry import OpenTelemetry


class Told:
    """Everything that was told."""

    def __init__(self, *, content: bool = False) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.probe = OpenTelemetry(self.tracers, MeterProvider([self._reader]), content=content)

    def spans(self, name: str) -> list[ReadableSpan]:
        """The spans of a name that have ended, in order."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def texts(self) -> str:
        """All that is said in them."""
        return repr([dict(span.attributes or {}) for span in self._exporter.get_finished_spans()])

    def metrics(self) -> Mapping[str, object]:
        """The metrics by name."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {one.name: one for of in data.resource_metrics for scope in of.scope_metrics for one in scope.metrics}


class Model:
    """Answers always the same."""

    name = "parrot"

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """The answer."""
        return Completion(text="They go to Rome in May, by train.", model="parrot-1", usage=Usage(input_tokens=7))

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_what_an_engine_does_is_told(tmp_path: Path) -> None:
    """A dispatch, a search, a context, a compaction with a model's answer; causes are links."""
    told = Told()
    async with memory_engine.open(str(tmp_path / "a.db"), probe=told.probe) as engine:
        thread = await engine.create_thread("t")
        with told.tracers.get_tracer("app").start_as_current_span("turn") as turn:
            first = await thread.dispatch(UserMessage(content="We go to Rome in May."))
        await thread.dispatch(UserMessage(content="By train."), causation_id=first.event_id)
        await thread.search("Where do we go?")
        await thread.context(2_000)
        await thread.dispatch_all([UserMessage(content=f"{n}: we pack our bags for the journey") for n in range(40)])
        await thread.compact()
        event = await anext(thread.events())
        assert f"{turn.get_span_context().trace_id:032x}" == event.correlation_id
    dispatched = told.spans("create_memory")
    assert ["t"] * 3 == [(span.attributes or {})["gen_ai.memory.store.id"] for span in dispatched]
    assert turn.get_span_context().span_id == (dispatched[0].parent.span_id if dispatched[0].parent else 0)
    assert [dispatched[0].context] == [link.context for link in dispatched[1].links]
    for name in ("search_memory", "memory_engine.context", "memory_engine.compaction"):
        assert told.spans(name), name
    assert {"gen_ai.client.operation.duration", "memory_engine.compaction.tokens"} <= set(told.metrics())
    assert "Rome" not in told.texts()


async def test_a_models_answers_are_told() -> None:
    """With the tokens that its provider counted; that an answer is of no use here fails the compaction."""
    told = Told()
    async with memory_engine.open(":memory:", probe=told.probe, compact_model=Model()) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"{n}: we pack our bags for the journey") for n in range(40)])
        with pytest.raises(errors.CompactorFailed):
            await thread.compact()
    [answered, *_] = told.spans("chat parrot")
    assert 7 == (answered.attributes or {})["gen_ai.usage.input_tokens"]


async def test_content_is_told_where_it_is_asked_for() -> None:
    """The question of a search, say."""
    told = Told(content=True)
    async with memory_engine.open(":memory:", probe=told.probe) as engine:
        await (await engine.create_thread("t")).search("Where do we go?")
    assert "Where do we go?" in told.texts()


async def test_a_failure_is_told_by_its_name() -> None:
    """And an object that is not a probe is refused."""
    told = Told()
    async with memory_engine.open(":memory:", probe=told.probe) as engine:
        with pytest.raises(errors.ThreadNotFound):
            await engine.thread("nobody").context()
    [span] = told.spans("memory_engine.context")
    assert (StatusCode.ERROR, "ThreadNotFound") == (span.status.status_code, (span.attributes or {})["error.type"])
    with pytest.raises(errors.InvalidArgument, match="probe"):
        await memory_engine.open(":memory:", probe=object())  # type: ignore[arg-type]
