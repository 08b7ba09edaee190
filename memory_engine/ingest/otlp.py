"""Spans of models' calls (OpenTelemetry's GenAI conventions, as OTLP/JSON) to the conversations that they were.

A span holds a whole prompt, which the next one repeats: of each, only the new part is taken. Spans around others, such
as an agent's, repeat these, and are ignored. Messages are in the attributes `gen_ai.input.messages`
and `gen_ai.output.messages`, or are events of the span, one each, as older instrumentation has them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

import msgspec
from attrs import define, field, frozen

from memory_engine.core.limits import ReadingLimits
from memory_engine.core.moments import moment
from memory_engine.core.recordings import Record
from memory_engine.errors import IngestError
from memory_engine.formats.values import compact, kind_of
from memory_engine.ingest.dialects import (
    chat_call,
    objects,
    response,
    result,
    role_message,
    role_of,
    text_under,
    texts,
    usage_of,
)
from memory_engine.ingest.json_stream import BrokenText, parse

Json = dict[str, object]
_INPUT, _OUTPUT, _SYSTEM = "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"
_SAID = frozenset({_INPUT, _OUTPUT, _SYSTEM})
_DETAILS = "gen_ai.client.inference.operation.details"
_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_CHOICE = "gen_ai.choice"
_LOOKED_BACK = 64
"""Messages, in addition to twice its own number, in which a repeated prompt is looked for."""
_EXPORT = ("resourceSpans", "resource_spans")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")


def is_export(value: object) -> bool:
    """Whether a record is spans as OTLP/JSON has them."""
    return isinstance(value, Mapping) and not value.keys().isdisjoint(_EXPORT)


@define
class TracedConversation:
    """The messages of one conversation, those of chat completions; `label` is its id, or that of its trace."""

    label: str
    line: int
    records: list[Record | IngestError] = field(factory=list)


def traced_conversations(
    records: Iterable[Record | IngestError], path: str, limits: ReadingLimits
) -> Iterator[TracedConversation | IngestError]:
    """The conversations of all spans of a file, in the order of their times; first what cannot be read.

    The file is read to its end, as its spans are ordered by when they ended. Of repeated messages one is held.
    """
    spans: list[TracedCall] = []
    pool: dict[bytes, Json] = {}
    for record in records:
        if isinstance(record, IngestError):
            yield record
            continue
        if not is_export(record.value):
            yield IngestError(path, record.line, f"{kind_of(record.value)} that is not an export of spans")
            continue
        for told in _spans_of(record.value):
            try:
                span = _otel_span(told, record.line, limits, pool)
            except (_Unreadable, RecursionError) as error:
                why = "its values are nested too deep" if isinstance(error, RecursionError) else str(error)
                yield IngestError(path, record.line, f"span {_id(told, 'spanId')[:60] or 'without an id'}: {why}")
                continue
            spans.append(span)
    yield from conversations_of(spans)


class _Unreadable(Exception):
    """A span whose messages cannot be read; the text says why."""


@frozen
class TracedCall:
    """The kept part of a span: messages by the keys that show whether two say the same.

    `begun` and `ended` count nanoseconds since 1970. `around` belongs to the answer: its id, model and usage.
    """

    id: str
    parent: str
    trace: str
    conversation: str
    begun: int
    line: int
    asked: Sequence[tuple[bytes, Json]]
    answered: Sequence[tuple[bytes, Json]]
    ended: int = 0
    around: Mapping[str, object] = {}


def conversations_of(spans: Sequence[TracedCall]) -> Iterator[TracedConversation]:
    """The conversations in spans, in the order of their times."""
    around = _enclosing_spans(spans)
    found: dict[str, tuple[TracedConversation, _Merged]] = {}
    named = {span.trace: span.conversation for span in spans if span.conversation}
    for span in sorted(spans, key=lambda one: one.begun):
        if not (span.asked or span.answered) or (span.trace, span.id) in around:
            continue
        label = span.conversation or named.get(span.trace, span.trace)
        if label not in found:
            found[label] = TracedConversation(label, span.line), _Merged()
        conversation, merged = found[label]
        for message, is_answer in merged.new(span):
            number = len(conversation.records) + 1
            value = response(message, span.around) if is_answer else message
            at = moment((span.ended or span.begun) if is_answer else span.begun)
            conversation.records.append(Record(value, span.line, number, at=at))
    for conversation, _ in found.values():
        yield conversation


def _enclosing_spans(spans: Sequence[TracedCall]) -> set[tuple[str, str]]:
    """The spans that have another one with messages in them."""
    parents = {(span.trace, span.id): span.parent for span in spans}
    around: set[tuple[str, str]] = set()
    for span in spans:
        at = span.parent if span.asked or span.answered else ""
        while at and (span.trace, at) not in around:
            around.add((span.trace, at))
            at = parents.get((span.trace, at), "")
    return around


class _Merged:
    """A conversation so far, by the keys of its messages. Instructions are apart: they may come with every prompt."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._instructions: set[bytes] = set()

    def new(self, span: TracedCall) -> Iterator[tuple[Json, bool]]:
        """The messages of a span that go on with it, and whether each is its answer."""
        said = [(key, message) for key, message in span.asked if message["role"] != "system"]
        for key, message in span.asked:
            if message["role"] == "system" and key not in self._instructions:
                self._instructions.add(key)
                yield message, False
        known = self._known([key for key, _ in said])
        for n, (key, message) in enumerate(chain(said[known:], span.answered), known):
            self._keys.append(key)
            yield message, n == len(said)

    def _known(self, asked: Sequence[bytes]) -> int:
        """How many of these messages, from the first on, the conversation has.

        Those up to its end, wherever that is: earlier ones may be a summary. Or all, if it holds them
        one after the other: a prompt that was sent again.
        """
        tail = self._keys[-len(asked) :] if asked else []
        shared = _prefixes([*reversed(tail), b"", *reversed(asked)])
        once = bool(tail) and 1 == tail.count(tail[-1]) == asked.count(tail[-1])
        known = best = 0
        for upto in range(1, len(asked) + 1):
            length = shared[len(tail) + 1 + len(asked) - upto]
            if length >= max(best, 1) and (once or length > 1 or length == upto):  # what is often said may be chance
                known, best = upto, length
        if known:
            return known
        lately = self._keys[-2 * len(asked) - _LOOKED_BACK :]
        return len(asked) if asked and len(asked) in _prefixes([*asked, b"", *lately])[len(asked) + 1 :] else 0


def _prefixes(values: Sequence[bytes]) -> list[int]:
    """For each place, how many values from there on are those from the beginning on. Linear (Gusfield 1997: Z)."""
    found = [0] * len(values)
    left = right = 0
    for n in range(1, len(values)):
        at = min(right - n, found[n - left]) if n < right else 0
        while n + at < len(values) and values[at] == values[n + at]:
            at += 1
        found[n] = at
        if n + at > right:
            left, right = n, n + at
    return found


# spans as OTLP/JSON has them


def _spans_of(export: object) -> Iterator[Mapping[str, object]]:
    for resource in _mappings_under(export, *_EXPORT):
        for scope in _mappings_under(resource, *_SCOPES):
            yield from _mappings_under(scope, "spans")


def _mappings_under(value: object, *names: str) -> Iterator[Mapping[str, object]]:
    for name in names:
        found = value.get(name) if isinstance(value, Mapping) else None
        yield from (one for one in (found if isinstance(found, list) else ()) if isinstance(one, Mapping))


def _id(told: Mapping[str, object], name: str) -> str:
    snake = {"spanId": "span_id", "parentSpanId": "parent_span_id", "traceId": "trace_id"}[name]
    return str(told.get(name) or told.get(snake) or "")


def _otel_span(told: Mapping[str, object], line: int, limits: ReadingLimits, pool: dict[bytes, Json]) -> TracedCall:
    attributes = _attributes(told)
    reading = _Reading(line, limits)
    asked, answered = reading.of_events(list(_mappings_under(told, "events")))
    if not _SAID.isdisjoint(attributes):
        asked, answered = reading.of_attributes(attributes)
    elif not asked and not answered:
        for names in NESTED:
            if any(key.startswith(f"{names[0]}.") for key in attributes):
                asked, answered = of_nested(nested(attributes), names)
    try:
        begun = int(str(told.get("startTimeUnixNano") or told.get("start_time_unix_nano") or 0))
        ended = int(str(told.get("endTimeUnixNano") or told.get("end_time_unix_nano") or 0))
    except ValueError:
        raise _Unreadable("its startTimeUnixNano or endTimeUnixNano is not a number") from None
    return TracedCall(
        id=_id(told, "spanId"),
        parent=_id(told, "parentSpanId"),
        trace=_id(told, "traceId") or "no trace",
        conversation=str(attributes.get("gen_ai.conversation.id") or ""),
        begun=begun,
        line=line,
        asked=pooled(asked, pool),
        answered=pooled(answered, pool),
        ended=ended,
        around=_around_answer(attributes),
    )


def _around_answer(attributes: Mapping[str, object]) -> Json:
    """The id, the model and the usage of an answer, by the names of either convention."""
    fed = attributes.get("gen_ai.usage.input_tokens", attributes.get("gen_ai.usage.prompt_tokens"))
    made = attributes.get("gen_ai.usage.output_tokens", attributes.get("gen_ai.usage.completion_tokens"))
    fed = attributes.get("llm.token_count.prompt") if fed is None else fed
    made = attributes.get("llm.token_count.completion") if made is None else made
    counted = {"prompt_tokens": fed, "completion_tokens": made}
    cached = attributes.get("gen_ai.usage.cache_read.input_tokens") or attributes.get(
        "llm.token_count.prompt_details.cache_read"
    )
    if cached:
        counted["cached_tokens"] = cached
    usage = usage_of(counted)
    if usage is None:
        return {}
    model = attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model")
    return {
        "id": attributes.get("gen_ai.response.id"),
        "model": model or attributes.get("llm.model_name"),
        "usage": usage,
    }


NESTED = (("llm.input_messages", "llm.output_messages"), ("gen_ai.prompt", "gen_ai.completion"))
"""Names of prompt and answer where each part of a message is an attribute: OpenInference's, and traceloop's."""


def nested(attributes: Mapping[str, object]) -> Json:
    """Attributes as the values that their dotted names describe: `a.0.b` is in the first object of the list `a`."""
    root: Json = {}
    for name, value in attributes.items():
        at: Json = root
        *path, last = name.split(".")
        for part in path:
            inner = at.get(part)
            at[part] = at = inner if isinstance(inner, dict) else {}
        at[last] = value
    return {key: _listed_again(value) for key, value in root.items()}


def _listed_again(value: object) -> object:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdigit() for key in value):
        return [_listed_again(value[key]) for key in sorted(value, key=int)]
    return {key: _listed_again(one) for key, one in value.items()}


def of_nested(attributes: Mapping[str, object], names: tuple[str, str]) -> tuple[list[Json], list[Json]]:
    """The prompt and the answer of nested attributes."""
    asked, answered = (objects(attributes, *name.split(".")) for name in names)
    return [_of_parts(one, "user") for one in asked], [_of_parts(one, "assistant") for one in answered[:1]]


def _of_parts(told: Mapping[str, object], role: str) -> Json:
    message = told.get("message")
    within = message if isinstance(message, Mapping) else told
    role = role_of(within.get("role") or role)
    content = within.get("content")
    blocks = [one.get("message_content", one) for one in objects(within, "contents")]
    text = content if isinstance(content, str) else texts(blocks)
    if role == "tool":
        return result(within.get("tool_call_id"), text, name=text_under(within, "name"))
    calls = []
    for n, one in enumerate(objects(within, "tool_calls")):
        inner = one.get("tool_call")
        calls.append(chat_call(inner if isinstance(inner, Mapping) else one, n))
    return role_message(role, text, calls)


def pooled(messages: Iterable[Json], pool: dict[bytes, Json]) -> list[tuple[bytes, Json]]:
    """The messages with their keys; of equal ones, one is held."""
    found = []
    for message in messages:
        key = msgspec.json.encode(message, order="deterministic")
        found.append((key, pool.setdefault(key, message)))
    return found


def _attributes(told: Mapping[str, object]) -> Json:
    return {str(one.get("key")): _otlp_value(one.get("value")) for one in _mappings_under(told, "attributes")}


def _otlp_value(value: object) -> object:
    """A value of OTLP as the JSON value that it encodes."""
    if not isinstance(value, Mapping):
        return None
    for kind, found in value.items():
        match kind.replace("_", "").lower():
            case "arrayvalue":
                return [_otlp_value(one) for one in _mappings_under(found, "values")]
            case "kvlistvalue":
                return {str(one.get("key")): _otlp_value(one.get("value")) for one in _mappings_under(found, "values")}
            case "intvalue":
                return int(found) if isinstance(found, str) and found.lstrip("-").isdecimal() else found
            case _:
                return found
    return None


class _Reading:
    """Reads the messages of a span, as chat completions' messages. Raises `_Unreadable`."""

    def __init__(self, line: int, limits: ReadingLimits) -> None:
        self._line = line
        self._limits = limits

    def of_attributes(self, attributes: Mapping[str, object]) -> tuple[list[Json], list[Json]]:
        """The prompt with its instructions, and the answer."""
        system = self._json(attributes, _SYSTEM)
        parts = [one for one in system if isinstance(one, Mapping)] if isinstance(system, list) else []
        text = system if isinstance(system, str) else _otel_text(parts)
        asked: list[Json] = [{"role": "system", "content": text}] if text else []
        return asked + self._messages(attributes, _INPUT, "user"), self._messages(attributes, _OUTPUT, "assistant")[:1]

    def of_events(self, events: Sequence[Mapping[str, object]]) -> tuple[list[Json], list[Json]]:
        """The same from a span's events."""
        asked: list[Json] = []
        answered: list[Json] = []
        for event in events:
            name, body = str(event.get("name")), _attributes(event)
            if name == _DETAILS:
                return self.of_attributes(body)
            if name in _ROLES:
                asked += self._message({**body, "role": body.get("role") or _ROLES[name]})
            elif name == _CHOICE and not answered:
                said = self._json(body, "message", body)
                said = said if isinstance(said, Mapping) else {"content": said}
                answered += self._message({**body, **said, "role": "assistant"})
        return asked, answered

    def _json(self, attributes: Mapping[str, object], name: str, default: object = None) -> object:
        """The value of an attribute, which may be JSON in a text; a text that does not look like JSON is itself."""
        value = attributes.get(name, default)
        if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
            return value
        try:
            return parse(value, self._line, self._limits)
        except BrokenText as error:
            raise _Unreadable(f"its {name} (cut off by a limit of its exporter?) is {error.why}") from None

    def _messages(self, attributes: Mapping[str, object], name: str, role: str) -> list[Json]:
        value = self._json(attributes, name)
        if isinstance(value, str):
            return [{"role": role, "content": value}] if value else []
        if value is not None and not isinstance(value, list):
            raise _Unreadable(f"its {name} is {kind_of(value)}, not a list of messages")
        found: list[Json] = []
        for message in value or ():
            if not isinstance(message, Mapping):
                raise _Unreadable(f"a message of its {name} is {kind_of(message)}, not an object")
            found += self._message({"role": role, **message})
        return found

    def _message(self, told: Mapping[str, object]) -> list[Json]:
        role = _SAME_ROLES.get(str(told["role"]), str(told["role"]))
        parts = told.get("parts")
        if not isinstance(parts, list):
            return self._older(told, role)
        objects = [part if isinstance(part, Mapping) else {"type": "text", "content": part} for part in parts]
        results = [part for part in objects if part.get("type") == "tool_call_response"]
        found: list[Json] = [_otel_result(part.get("id"), part.get("response", part.get("result"))) for part in results]
        calls = [
            _otel_call(part.get("id"), part.get("name"), part.get("arguments"))
            for part in objects
            if part.get("type") == "tool_call"
        ]
        thoughts = _otel_text(part for part in objects if part.get("type") in ("reasoning", "thinking"))
        content = _otel_content([part for part in objects if part.get("type") in _SHOWN])
        if role == "tool":
            return found
        return found + _otel_message(role, content, calls, thoughts)

    def _older(self, told: Mapping[str, object], role: str) -> list[Json]:
        """A message that has `content` and `tool_calls`, as chat completions have them."""
        content = self._json(told, "content")
        if role == "tool":
            return [_otel_result(told.get("id") or told.get("tool_call_id"), content)]
        calls = []
        for call in _mappings_under({"calls": self._json(told, "tool_calls")}, "calls"):
            function = call.get("function")
            function = function if isinstance(function, Mapping) else call
            calls.append(_otel_call(call.get("id"), function.get("name"), function.get("arguments")))
        if content is not None and not isinstance(content, str | list):
            content = compact(content)
        return _otel_message(role, content, calls, str(told.get("reasoning_content") or ""))


_SAME_ROLES = {"developer": "system", "model": "assistant", "function": "tool"}
_SHOWN = ("text", "uri", "blob", "file")


def _otel_message(role: str, content: object, calls: list[Json], thoughts: str) -> list[Json]:
    message: Json = {"role": role, "content": content or None}
    if calls:
        message["tool_calls"] = calls
    if thoughts:
        message["reasoning_content"] = thoughts
    return [message] if content or calls or thoughts else []


def _otel_call(call_id: object, name: object, arguments: object) -> Json:
    text = arguments if isinstance(arguments, str) else compact(arguments or {})
    with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):  # else as the model wrote it
        text = compact(msgspec.json.decode(text))
    return {"id": str(call_id or ""), "type": "function", "function": {"name": str(name or ""), "arguments": text}}


def _otel_result(call_id: object, response: object) -> Json:
    text = response if isinstance(response, str) else compact(response if response is not None else "")
    return {"role": "tool", "tool_call_id": str(call_id or ""), "content": text}


def _otel_text(parts: Iterable[Mapping[str, object]]) -> str:
    return "\n".join(str(part.get("content", part.get("text", "")) or "") for part in parts)


def _otel_content(parts: Sequence[Mapping[str, object]]) -> object:
    if all(part.get("type") == "text" for part in parts):
        return _otel_text(parts)
    return [_otel_part(part) for part in parts]


def _otel_part(part: Mapping[str, object]) -> Json:
    media = str(part.get("mime_type") or part.get("media_type") or "")
    if part.get("modality") == "image" or media.startswith("image/"):
        url = str(part.get("uri") or f"data:{media};base64,{part.get('content') or part.get('data') or ''}")
        return {"type": "image_url", "image_url": {"url": url}}
    name = part.get("uri") or part.get("file_id") or media
    named = part.get("content") if part.get("type") == "text" else f"[{name}]"
    return {"type": "text", "text": str(named or "")}
