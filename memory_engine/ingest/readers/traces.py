"""Traces of models' calls as LangSmith, Langfuse and Phoenix (OpenInference) export them.

Each call holds its whole prompt. The conversations are put together as those of OpenTelemetry's spans are.
"""

from collections.abc import Iterator, Mapping

from memory_engine.core.moments import moment
from memory_engine.core.recordings import RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.formats.detection import is_langchain
from memory_engine.formats.values import compact
from memory_engine.ingest.dialects import (
    Json,
    chat_message,
    objects,
    role_message,
    role_of,
    text_under,
    texts,
    under,
    usage_of,
)
from memory_engine.ingest.otlp import NESTED, TracedCall, conversations_of, nested, of_nested, pooled
from memory_engine.ingest.readers.langchain import lc_message

Told = tuple[list[Json], list[Json]]


class TraceExports:
    """Reads runs of LangSmith, observations of Langfuse, spans of OpenInference: a list or lines of them."""

    name = "traces"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first objects are of one of the three."""
        return any(map(_is_call, file.first_objects))

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The conversations of all calls, in the order of their times. The file is read to its end first."""
        pool: dict[bytes, Json] = {}
        spans: list[TracedCall] = []
        for record in file.records:
            if isinstance(record, IngestError):
                yield record
                continue
            told = record.value if isinstance(record.value, Mapping) else {}
            for one in objects(told, "observations") or [told]:
                span = _traced_call(one, record.line, pool)
                if not span.asked and not span.answered:
                    file.left_out[f"{_span_kind(one)} without messages"] += 1
                spans.append(span)
        for found in conversations_of(spans):
            yield RecordedConversation(iter(found.records), label=found.label, line=found.line)


def _is_call(told: Mapping[str, object]) -> bool:
    return _is_langsmith(told) or _is_langfuse(told) or _is_openinference(told)


def _is_langsmith(told: Mapping[str, object]) -> bool:
    return "run_type" in told and ("inputs" in told or "outputs" in told)


def _is_langfuse(told: Mapping[str, object]) -> bool:
    if "observations" in told and ("timestamp" in told or "sessionId" in told):
        return True
    return ("traceId" in told or "trace_id" in told) and ("input" in told or "output" in told) and "type" in told


def _is_openinference(told: Mapping[str, object]) -> bool:
    is_span = isinstance(told.get("attributes"), Mapping) and ("context" in told or "span_id" in told)
    return is_span or any(key.startswith("attributes.") for key in told)


def _span_kind(told: Mapping[str, object]) -> str:
    attributes = _attributes(told) if _is_openinference(told) else {}
    kind = told.get("run_type") or under(attributes, "openinference", "span", "kind") or told.get("type")
    return str(kind or told.get("span_kind") or "span").lower()


def _traced_call(told: Mapping[str, object], line: int, pool: dict[bytes, Json]) -> TracedCall:
    around: Mapping[str, object] = {}
    if _is_langsmith(told):
        asked, answered = _of_langsmith(told)
        around = {"usage": usage_of(under(told, "outputs", "usage_metadata"))}
    elif _is_openinference(told):
        attributes = _attributes(told)
        asked, answered = of_nested(attributes, NESTED[0])
        if not asked and not answered:
            asked, answered = of_nested(attributes, NESTED[1])
        counts = under(attributes, "llm", "token_count")
        around = {"model": under(attributes, "llm", "model_name"), "usage": _counts(counts)}
    else:
        asked, answered = _of_langfuse(told)
        usage = usage_of(told.get("usageDetails")) or usage_of(told.get("usage"))
        around = {"model": told.get("model"), "usage": usage}
    return TracedCall(
        id=_first(told, "id", "span_id", "context.span_id") or text_under(told, "context", "span_id"),
        parent=_first(told, "parent_run_id", "parentObservationId", "parent_observation_id", "parent_id"),
        trace=_first(told, "trace_id", "traceId", "context.trace_id")
        or text_under(told, "context", "trace_id")
        or "trace",
        conversation=_conversation(told),
        begun=_nanoseconds(told, "start_time", "startTime"),
        ended=_nanoseconds(told, "end_time", "endTime"),
        line=line,
        asked=pooled(asked, pool),
        answered=pooled(answered[:1], pool),
        around=around if around.get("usage") else {},
    )


def _first(told: Mapping[str, object], *keys: str) -> str:
    return next((str(found) for key in keys if (found := told.get(key))), "")


def _nanoseconds(told: Mapping[str, object], *keys: str) -> int:
    found = next((at for key in keys if (at := moment(told.get(key))) is not None), None)
    return round(found.timestamp() * 1_000_000) * 1_000 if found is not None else 0


def _conversation(told: Mapping[str, object]) -> str:
    metadata = under(told, "extra", "metadata")
    names = ("session_id", "thread_id", "conversation_id")
    found = next((str(one) for name in names if (one := under(metadata, name))), "")
    attributes = _attributes(told) if _is_openinference(told) else {}
    return found or _first(told, "sessionId", "session_id") or text_under(attributes, "session", "id")


def _attributes(told: Mapping[str, object]) -> Json:
    attributes = told.get("attributes")
    flat = dict(attributes) if isinstance(attributes, Mapping) else {}
    flat |= {key.removeprefix("attributes."): value for key, value in told.items() if key.startswith("attributes.")}
    return nested(flat)


def _counts(counts: object) -> Json | None:
    return usage_of({"prompt_tokens": under(counts, "prompt"), "completion_tokens": under(counts, "completion")})


# prompts and answers


def _of_langsmith(told: Mapping[str, object]) -> Told:
    if told.get("run_type") not in ("llm", "chat_model"):
        return [], []
    inputs = under(told, "inputs", "messages")
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], list):
        inputs = inputs[0]
    asked = _messages_in(inputs, "user") or _messages_in(under(told, "inputs", "input"), "user")
    asked = asked or _messages_in(under(told, "inputs", "prompts"), "user")
    outputs = told.get("outputs")
    generations = under(outputs, "generations")
    if isinstance(generations, list) and generations and isinstance(generations[0], list):
        generations = generations[0]
    for one in objects({"found": generations}, "found")[:1]:
        return asked, _messages_in([one.get("message") or one.get("text")], "assistant")
    return asked, _output_messages(outputs)


def _of_langfuse(told: Mapping[str, object]) -> Told:
    if str(told.get("type", "GENERATION")).upper() not in ("GENERATION", "LLM", "CHAT"):
        return [], []
    given = told.get("input")
    asked = _messages_in(under(given, "messages") or given, "user")
    return asked, _output_messages(told.get("output"))


def _output_messages(outputs: object) -> list[Json]:
    """The message of an output in whichever form: a text, a message, choices, or an object around one."""
    if isinstance(outputs, str | list):
        return _messages_in(outputs, "assistant")
    for choice in objects(outputs, "choices")[:1]:
        return _messages_in([choice.get("message")], "assistant")
    if isinstance(outputs, Mapping):
        for key in ("message", "output", "messages", "completion", "text"):
            if outputs.get(key):
                return _messages_in(
                    outputs[key] if isinstance(outputs[key], str | list) else [outputs[key]], "assistant"
                )
        return _messages_in([outputs], "assistant") if "content" in outputs or "role" in outputs else []
    return []


def _messages_in(value: object, role: str) -> list[Json]:
    if isinstance(value, Mapping):
        value = [value] if "content" in value or "kwargs" in value else [compact(value)]
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [_trace_message(one, role) for one in values if isinstance(one, str | Mapping) and one]


def _trace_message(told: str | Mapping[str, object], role: str) -> Json:
    if isinstance(told, str):
        return role_message(role, told)
    if "role" not in told and (is_langchain(told) or "kwargs" in told or "lc" in told):
        message = lc_message(told)
        found = objects(message, "choices")
        inner = found[0].get("message") if found else None
        return dict(inner) if isinstance(inner, Mapping) else message  # the usage is at the run
    message = chat_message({"content": "", **told, "role": role_of(told.get("role") or role)})
    if not isinstance(message["content"], str | list):
        message["content"] = texts(message["content"]) or compact(message["content"]) if message["content"] else ""
    return {key: one for key, one in message.items() if one is not None or key == "content"}
