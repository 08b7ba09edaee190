"""Spans of models' calls to threads: all ways to tell messages, repeats, retries, agents around them, broken files."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import memory_engine
from memory_engine import errors
from memory_engine.cli import main
from memory_engine.core.limits import DEFAULT_LIMITS
from memory_engine.errors.effects import Usage
from memory_engine.ingest import Ingestion, IngestOptions, IngestReport
from memory_engine.ingest.otlp import traced_conversations
from memory_engine.ingest.records import read_records
from memory_engine.llm.base import Completion, Message
from memory_engine.telemetry import OpenTelemetry

Json = dict[str, Any]


def told(value: object) -> Json:
    """A value as OTLP has it."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [told(one) for one in value]}}
        case dict():
            return {"kvlistValue": {"values": listed(value)}}
    return {"stringValue": value}


def listed(values: Json) -> list[Json]:
    """Attributes as OTLP has them."""
    return [{"key": key, "value": told(value)} for key, value in values.items()]


def span(
    at: int, name: str = "", *, parent: str = "", trace: str = "t1", events: Sequence[Json] = (), **said: Any
) -> Json:
    """A span that began then; `said` are its attributes, their names with `__` in place of dots."""
    return {
        "traceId": trace,
        "spanId": name or f"s{at}",
        "parentSpanId": parent,
        "startTimeUnixNano": str(at),
        "attributes": listed({f"gen_ai.{key.replace('__', '.')}": value for key, value in said.items()}),
        "events": list(events),
    }


def export(*spans: Json) -> str:
    """A line of a file that a collector writes."""
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}) + "\n"


def text(role: str, said: str) -> Json:
    """A message of the conventions."""
    return {"role": role, "parts": [{"type": "text", "content": said}]}


CALL: Json = {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Rome"}}
CALLED: Json = {"role": "assistant", "parts": [{"type": "reasoning", "content": "I look."}, CALL]}
RESULT: Json = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"sky": "sunny"}}]}
SYSTEM = [{"type": "text", "content": "Be kind."}]


def chat(at: int, asked: list[Json], answer: Json, **said: Any) -> Json:
    """A model's call whose messages stand in JSON."""
    output = json.dumps([{**answer, "finish_reason": "stop"}])
    return span(at, **{"input__messages": json.dumps(asked), "output__messages": output, **said})


TURNS = [text("user", "How is Rome?"), CALLED, RESULT, text("assistant", "Sunny."), text("user", "And Oslo?")]
WHOLE = ["session_started", "user_message", "llm_thinking", "llm_tool_call", "tool_result", "llm_text_response"]


async def ingested(path: Path, engine: memory_engine.Engine, **options: Any) -> IngestReport:
    """A file, ingested."""
    ingestion = Ingestion(engine, IngestOptions(**options))
    await ingestion.file(path)
    return ingestion.report


async def types_of(thread: memory_engine.Thread) -> list[str]:
    """The types of a thread's events."""
    return [event.type async for event in thread.events()]


def put(folder: Path, *lines: str) -> Path:
    """A file of these lines."""
    path = folder / "traces.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return path


async def test_a_conversation_is_taken_once(tmp_path: Path) -> None:
    """Each span repeats the prompt; an agent's around them repeats all; they stand in the file as they ended."""
    said = {"system_instructions": json.dumps(SYSTEM), "conversation__id": "talk"}
    first = chat(1_000_000_000_000_000_001, TURNS[:1], CALLED, parent="agent", **said)
    second = chat(1_000_000_000_000_000_002, TURNS[:3], TURNS[3], parent="tools", trace="t1", **said)
    around = chat(1, TURNS[:1], TURNS[3], name="agent", **said)
    tools = span(5, name="tools", parent="agent", operation__name="execute_tool")
    third = chat(1_000_000_000_000_000_003, TURNS, text("assistant", "Rain."), trace="t2", **said)
    path = put(tmp_path, export(second, third), export(first, tools), export(around))
    async with memory_engine.open(":memory:") as engine:
        report = await ingested(path, engine, user_id="ann")
        assert ([], ["traces/talk"]) == (report.errors, [one.id for one in report.threads])
        thread = engine.thread("traces/talk")
        assert [*WHOLE, "user_message", "llm_text_response"] == await types_of(thread)
        shown = (await thread.context()).messages
        assert ["Be kind.", "How is Rome?"] == [message["content"] for message in shown[:2]]
        assert '{"city":"Rome"}' == shown[2]["tool_calls"][0]["function"]["arguments"]  # type: ignore[index]
        assert ['{"sky":"sunny"}', "Sunny.", "And Oslo?", "Rain."] == [message["content"] for message in shown[3:]]
        again = await ingested(path, engine)
        assert (0, []) == (sum(one.added for one in again.threads), again.errors)
        assert (await thread.replay.verify()).ok


@pytest.mark.parametrize("form", ["values", "details", "events", "choices"])
async def test_every_form_is_the_same_conversation(tmp_path: Path, form: str) -> None:
    """Messages as nested values, on the event of the details, or an event each, as older instrumentation has them."""
    system, prompt = {"role": "system", "content": "Be kind."}, {"content": "How is Rome?"}
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    answer = {"role": "assistant", "tool_calls": [call], "reasoning_content": "I look."}

    def event(kind: str, body: Json) -> Json:
        return {"name": f"gen_ai.{kind}", "timeUnixNano": "1", "attributes": listed(body)}

    asked = [event("system.message", system), event("user.message", prompt)]
    sunny = {"id": "c1", "content": '{"sky":"sunny"}'}
    asked_again = event("assistant.message", {**answer, "tool_calls": json.dumps([call])})
    details = [
        {
            "gen_ai.system_instructions": SYSTEM,
            "gen_ai.input.messages": TURNS[:upto],
            "gen_ai.output.messages": [TURNS[upto]],
        }
        for upto in (1, 3)
    ]
    said: list[Any] = [
        {key.removeprefix("gen_ai.").replace(".", "__"): value for key, value in one.items()} for one in details
    ]
    second = event("choice", {"finish_reason": "stop", "message": {"content": "Sunny."}})
    other = event("choice", {"index": 1, "message": "other"})
    spans = {
        "values": [span(1, "", **said[0]), span(2, "", **said[1])],
        "details": [span(n, events=[event("client.inference.operation.details", details[n])]) for n in range(2)],
        "events": [
            span(1, events=[*asked, event("choice", {"index": 0, "message": answer})]),
            span(2, events=[*asked, asked_again, event("tool.message", sunny), second]),
        ],
        "choices": [
            span(1, events=[*asked, event("choice", {"message": json.dumps(answer)}), other]),
            span(2, events=[event("tool.message", sunny), event("choice", {"content": "Sunny."})]),
        ],
    }
    async with memory_engine.open(":memory:") as engine:
        report = await ingested(put(tmp_path, *map(export, spans[form])), engine, format="otlp")
        assert ([], ["traces/t1"]) == (report.errors, [one.id for one in report.threads])
        assert await types_of(engine.thread("traces/t1")) == WHOLE
        shown = (await engine.thread("traces/t1").context()).messages
        assert ["Be kind.", "How is Rome?", None, '{"sky":"sunny"}', "Sunny."] == [one["content"] for one in shown]


async def test_what_is_sent_again_or_cut_is_known(tmp_path: Path) -> None:
    """A retry, a prompt of the latest messages alone, one that begins with a summary; and an image."""
    turns = [text("user", f"Question {n}") if n % 2 == 0 else text("assistant", f"Answer {n}") for n in range(9)]
    image = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "iVBORw0KGgo="}
    sound = {"type": "uri", "modality": "audio", "uri": "x:y"}
    look = {"role": "user", "parts": [{"type": "text", "content": "Look:"}, image, sound]}
    spans = [
        chat(1, turns[:1], turns[1]),
        chat(2, turns[:3], turns[3]),
        chat(3, turns[:3], text("assistant", "Answer 3 again")),  # the prompt was sent again
        chat(4, [*turns[2:3], text("assistant", "Answer 3 again"), turns[4]], turns[5]),
        chat(5, [text("user", "Summary"), *turns[4:7]], turns[7]),
        chat(6, [look], turns[8]),
    ]
    async with memory_engine.open(":memory:") as engine:
        assert [] == (await ingested(put(tmp_path, export(*spans)), engine)).errors
        shown = [message["content"] for message in (await engine.thread("traces/t1").context()).messages]
    said = ["Question 0", "Answer 1", "Question 2", "Answer 3", "Answer 3 again"]
    said += ["Question 4", "Answer 5", "Question 6", "Answer 7"]
    assert said == shown[:9]
    assert "image_url" in str(shown[9])
    assert "[x:y]" in str(shown[9])


class Parrot:
    """Answers always the same."""

    name = "parrot"

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Two words."""
        return Completion(text="- User: words", model="parrot-2", response_id="r1", usage=Usage(input_tokens=7))

    async def aclose(self) -> None:
        """Nothing to let go of."""


def as_otlp(ended: ReadableSpan) -> Json:
    """A span of the SDK as exporters write it."""
    assert ended.context is not None
    return {
        "traceId": f"{ended.context.trace_id:032x}",
        "spanId": f"{ended.context.span_id:016x}",
        "parentSpanId": f"{ended.parent.span_id:016x}" if ended.parent else "",
        "startTimeUnixNano": str(ended.start_time),
        "attributes": listed(dict(ended.attributes or {})),
    }


async def test_what_this_engine_tells_can_be_read(tmp_path: Path) -> None:
    """The calls of its own models, told with their content."""
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    probe = OpenTelemetry(tracers, content=True)
    async with memory_engine.open(":memory:", compact_model=Parrot(), probe=probe) as engine:
        thread = await engine.create_thread()
        for n in range(12):
            question = {"role": "user", "content": f"Question {n} " + "word " * 60}
            await thread.record([question, {"role": "assistant", "content": "Yes."}])
        with suppress(errors.CompactorFailed):  # words are no summary
            await thread.compact()
    path = put(tmp_path, *(export(as_otlp(one)) for one in exporter.get_finished_spans()))
    async with memory_engine.open(":memory:") as engine:
        report = await ingested(path, engine)
        assert [] == report.errors
        assert report.threads
        assert "- User: words" in str((await engine.thread(report.threads[0].id).context()).messages)


async def test_errors_name_line_and_span(tmp_path: Path) -> None:
    """Cut-off JSON, a wrong type, a result without its call; with `skip_invalid` all the rest is there."""
    lines = [
        export(chat(1, TURNS[:1], CALLED)),
        export(span(2, input__messages='[{"role": "user", "parts": [{"ty')),
        export(span(3, input__messages=7), span(4, input__messages=["x"])),
        '{"x": 1}\n',
        export({**chat(5, TURNS[:1], CALLED), "startTimeUnixNano": "noon"}),
        export(chat(6, [RESULT], TURNS[3], trace="t2")),
        export(chat(7, TURNS[:3], TURNS[3])),
    ]
    async with memory_engine.open(":memory:") as engine:
        report = await ingested(put(tmp_path, *lines), engine, skip_invalid=True)
        assert [2, 3, 3, 4, 5, 6] == [error.line for error in report.errors]
        whys = [error.why for error in report.errors]
        assert "span s2: its gen_ai.input.messages (cut off by a limit of its exporter?) is not JSON" in whys[0]
        assert "span s3: its gen_ai.input.messages is a number, not a list of messages" == whys[1]
        assert "span s4: a message of its gen_ai.input.messages is a text, not an object" == whys[2]
        for part, why in zip(("not an export", "startTimeUnixNano", "without its call"), whys[3:], strict=True):
            assert part in why
        assert WHOLE[1:] == await types_of(engine.thread("traces/t1"))
    async with memory_engine.open(":memory:") as engine:
        assert 2 == (await ingested(put(tmp_path, *lines), engine)).errors[0].line


WORDS = (
    "role parts content type id arguments values key value stringValue arrayValue kvlistValue tool_calls function name"
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS.split()) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY, min_size=1, max_size=3), st.sampled_from(["attributes", "events", "spans", "messages"]))
def test_whatever_stands_in_a_span_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], where: str
) -> None:
    """No file makes it fail otherwise."""
    messages = json.dumps(values)
    names = ("gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message")
    whole: Json = {
        "attributes": {"traceId": "t", "attributes": values},
        "events": {"events": [{"name": name, "attributes": values} for name in names]},
        "spans": values[0],
        "messages": span(1, input__messages=messages, output__messages=values, system_instructions=messages),
    }
    export_of = {"resourceSpans": [{"scopeSpans": [{"spans": [whole[where]]}]}]}
    path = put(tmp_path_factory.mktemp("any"), json.dumps(export_of))
    for found in traced_conversations(read_records(path), str(path), DEFAULT_LIMITS):
        assert found.line == 1


def test_many_repeats_take_time_in_proportion(tmp_path: Path) -> None:
    """A prompt of one message over and over; values nested deep are refused."""
    same = [text("user", "a")] * 3_000
    lines = [export(chat(n, same[: 100 * n], text("assistant", "a"))) for n in range(1, 30)]
    deep = '{"arrayValue": {"values": [' * 300 + "]}}" * 300
    lines.append(export({"spanId": "deep", "attributes": [{"key": "k", "value": "DEEP"}]}).replace('"DEEP"', deep))
    path = put(tmp_path, *lines)
    found = list(traced_conversations(read_records(path), str(path), DEFAULT_LIMITS))
    assert 1 <= len(found) <= 2


def test_the_command_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By their look, and by `--format otlp`."""
    path = put(tmp_path, export(chat(1, TURNS[:1], CALLED)), export(chat(2, TURNS[:3], TURNS[3])))
    for words in ([], ["--format", "otlp"]):
        assert 0 == main(["ingest", str(path), "--db", str(tmp_path / "agents.db"), *words])
    assert "4 messages into 1 thread" in capsys.readouterr().out
