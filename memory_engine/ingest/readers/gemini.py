"""Gemini: `contents` of its API (also Gemini CLI's checkpoints), and the chat sessions that Gemini CLI keeps."""

from collections.abc import Iterator, Mapping

from attrs import evolve

from memory_engine.core.events.messages import MessageOrigin
from memory_engine.core.moments import moment
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.formats.values import compact
from memory_engine.ingest.dialects import (
    Json,
    call,
    objects,
    parts_of,
    response,
    result,
    role_message,
    text_under,
    texts,
    under,
    usage_of,
    with_value,
)

_FAILED = frozenset({"error", "cancelled", "canceled"})


class Gemini:
    """Reads both."""

    name = "gemini"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the file is a chat session, or holds contents: a role with parts."""
        if _is_session(file.head):
            return True
        return any(_is_session(one) or _is_content(one) or _contents(one) for one in file.first_objects[:1])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The conversation of a file, or of each of its requests."""
        first = file.first_objects[0] if file.first_objects else {}
        if _is_session(file.head) or _is_session(first):
            yield RecordedConversation(_session(file))
        elif _is_content(first):
            yield RecordedConversation(_Contents().records(file.records))
        else:
            for record in file.records:
                if isinstance(record, IngestError):
                    yield record
                else:
                    yield RecordedConversation(
                        _request(record), label=str(record.number) if record.is_line else "", line=record.line
                    )


def _is_session(told: Mapping[str, object]) -> bool:
    return "sessionId" in told and ("projectHash" in told or "startTime" in told)


def _is_content(told: Mapping[str, object]) -> bool:
    return isinstance(told.get("parts"), list) and told.get("role") in ("user", "model", "function", None)


def _contents(told: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = objects(told, "contents") or objects(told, "history")
    return found if found and _is_content(found[0]) else []


def _request(record: Record) -> Iterator[Record | IngestError]:
    told = record.value if isinstance(record.value, Mapping) else {}
    system = told.get("systemInstruction") or told.get("system_instruction") or told.get("config")
    instructions = texts(under(system, "parts") or under(system, "system_instruction") or system)
    values: list[object] = [*_contents(told)]
    answers = objects(told, "response", "candidates") or objects(told, "candidates")
    values += [one.get("content") for one in answers[:1]]
    if instructions:
        yield with_value(evolve(record, number=0, is_line=False), role_message("system", instructions))
    records = (evolve(record, value=value, number=n, is_line=False) for n, value in enumerate(values, 1))
    yield from _Contents().records(records)


class _Contents:
    """Reads contents. Calls without an id are bound to the responses of their name, in their order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str]] = []
        self._asked = 0

    def records(self, records: Iterator[Record | IngestError]) -> Iterator[Record | IngestError]:
        for record in records:
            if isinstance(record, IngestError):
                yield record
                continue
            parts = objects(record.value, "parts")
            is_model = under(record.value, "role") == "model"
            values = [self._asked_by(parts)] if is_model else list(self._answered(parts))
            yield from parts_of(record, values)

    def _asked_by(self, parts: list[Mapping[str, object]]) -> Json:
        calls: list[Json] = []
        for part in parts:
            asked = under(part, "functionCall") or under(part, "function_call")
            if isinstance(asked, Mapping):
                self._asked += 1
                name = text_under(asked, "name")
                call_id = text_under(asked, "id") or f"{name}-{self._asked}"
                self._waiting.append((name, call_id))
                calls.append(call(call_id, name, asked.get("args")))
        thoughts = texts([part for part in parts if part.get("thought") is True])
        return role_message(
            "assistant", _gemini_content([part for part in parts if part.get("thought") is not True]), calls, thoughts
        )

    def _answered(self, parts: list[Mapping[str, object]]) -> Iterator[Json]:
        rest: list[Mapping[str, object]] = []
        for part in parts:
            answer = under(part, "functionResponse") or under(part, "function_response")
            if not isinstance(answer, Mapping):
                rest.append(part)
                continue
            name = text_under(answer, "name")
            call_id = text_under(answer, "id") or next((one for called, one in self._waiting if called == name), name)
            self._waiting = [one for one in self._waiting if one[1] != call_id]
            yield result(
                call_id, _output(answer.get("response")), name=name, failed=_has_failed(answer.get("response"))
            )
        if rest or not parts:
            yield role_message("user", _gemini_content(rest))


def _gemini_content(parts: list[Mapping[str, object]]) -> object:
    media = [part for part in parts if "text" not in part and (part.get("inlineData") or part.get("fileData"))]
    if not media:
        return texts([part for part in parts if "text" in part])
    return [_gemini_chat_part(part) for part in parts if "text" in part or part in media]


def _gemini_chat_part(part: Mapping[str, object]) -> Json:
    if "text" in part:
        return {"type": "text", "text": text_under(part, "text")}
    kind = text_under(part, "inlineData", "mimeType") or text_under(part, "fileData", "mimeType")
    uri = text_under(part, "fileData", "fileUri") or f"data:{kind};base64,{text_under(part, 'inlineData', 'data')}"
    return (
        {"type": "image_url", "image_url": {"url": uri}}
        if kind.startswith("image/")
        else {"type": "text", "text": f"[{kind} {uri[:60]}]"}
    )


def _output(told: object) -> str:
    output = next((found for key in ("output", "result", "error") if (found := under(told, key)) is not None), told)
    return output if isinstance(output, str) else compact(output if output is not None else "")


def _has_failed(told: object) -> bool:
    return isinstance(told, Mapping) and "error" in told and "output" not in told


# Gemini CLI's sessions


def _session(file: RecordedFile) -> Iterator[Record | IngestError]:
    for record in file.records:
        if isinstance(record, IngestError):
            yield record
            continue
        told = record.value if isinstance(record.value, Mapping) else {}
        values = list(_gemini_cli_messages(told))
        if not values:
            if not _is_session(told):
                file.left_out[str(told.get("type") or ", ".join(told) or "an empty object")] += 1
            continue
        at = moment(told.get("timestamp"))
        origin: MessageOrigin | None = "client" if told.get("type") in ("info", "error", "warning") else None
        keyed = evolve(record, at=at, key=text_under(told, "id"))
        yield from parts_of(keyed, values, origin)


def _gemini_cli_messages(told: Mapping[str, object]) -> Iterator[Json]:
    content = texts(told.get("content"))
    match told.get("type"):
        case "user":
            yield role_message("user", content)
        case "gemini":
            asked = objects(told, "toolCalls")
            calls = [call(one.get("id"), one.get("name"), one.get("args")) for one in asked]
            thoughts = "\n".join(
                ": ".join(filter(None, (text_under(one, "subject"), text_under(one, "description"))))
                for one in objects(told, "thoughts")
            )
            around = {"id": told.get("id"), "model": told.get("model"), "usage": usage_of(told.get("tokens"))}
            yield response(role_message("assistant", content, calls, thoughts), around if around["usage"] else {})
            for one in asked:
                if "result" in one or one.get("status"):
                    yield result(
                        one.get("id"),
                        _results(one),
                        name=text_under(one, "name"),
                        failed=text_under(one, "status") in _FAILED,
                    )
        case "info" | "error" | "warning":
            yield role_message("user", content)


def _results(told: Mapping[str, object]) -> str:
    found = [_output(under(one, "functionResponse", "response")) for one in objects(told, "result")]
    return "\n".join(filter(None, found)) or text_under(told, "resultDisplay")
