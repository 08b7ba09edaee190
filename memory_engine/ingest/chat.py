"""Chat-completions messages to events: one message is one event, with its reasoning before it.

`conversations` finds which threads a file holds, and gives the records of each.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from attrs import frozen

from memory_engine.core.events.base import Content, Event, ImagePart, TextPart, ToolCall
from memory_engine.core.events.memory import ExternalInject, SessionStarted
from memory_engine.core.events.messages import LlmTextResponse, LlmThinking, LlmToolCall, ToolResult, UserMessage
from memory_engine.core.records import NewEvent
from memory_engine.errors import IngestError
from memory_engine.ingest.events import RecordReading, UnusableRecord, event_id, kind_of, text_of
from memory_engine.ingest.records import Format, Record, read_records

_ROLES = "assistant, developer, function, system, tool, user"


class ChatReader:
    """Turns the messages of one conversation, in their order, into events.

    It knows which calls wait for their results: it refuses a call made twice while it
    waits, and a result that answers nothing. A call's id may come again once it was answered.
    """

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._has_instructions = False
        self._open: dict[str, str] = {}
        self._before = (False, self._open)

    def refused(self) -> None:
        """Forget the message read last: the engine has not taken its events."""
        self._has_instructions, self._open = self._before

    def read(self, value: object, number: int) -> RecordReading:
        """The events of message `number` (from 1). Raises `UnusableRecord`, and then has not taken the message."""
        self._before = (self._has_instructions, dict(self._open))
        if not isinstance(value, Mapping):
            raise UnusableRecord(f"a message is an object, this is {kind_of(value)}")
        role = value.get("role")
        match role:
            case "system" | "developer":
                events = [self._instructions(value)]
            case "user":
                events = [UserMessage(content=_said(value), name=text_of(value, "name"))]
            case "assistant":
                events = self._response(value, number)
            case "tool" | "function":
                events = [self._result(value)]
            case _:
                raise UnusableRecord(f"the role {json.dumps(role)[:60]} is not one of {_ROLES}")
        ids = (event_id(self._thread_id, number, part) for part in range(len(events) - 1, -1, -1))
        return RecordReading([NewEvent(event, new_id) for event, new_id in zip(events, ids, strict=True)])

    def _instructions(self, message: Mapping[str, object]) -> Event:
        content = _said(message)
        if self._has_instructions:
            return ExternalInject(content=content, source="system", retention="critical")
        self._has_instructions = True
        return SessionStarted(content=content)

    def _response(self, message: Mapping[str, object], number: int) -> list[Event]:
        reasoning = text_of(message, "reasoning_content") or text_of(message, "reasoning")
        response_id = f"message-{number}" if reasoning else ""
        events: list[Event] = [LlmThinking(content=reasoning, response_id=response_id)] if reasoning else []
        calls = self._calls(message, number)
        content = _content(message) or text_of(message, "refusal")
        if calls:
            text = content if isinstance(content, str) else _joined(content)
            events.append(LlmToolCall(calls=calls, content=text, response_id=response_id))
        elif content or message.get("content") is not None:
            name = text_of(message, "name")
            events.append(LlmTextResponse(content=content, response_id=response_id, name=name))
        elif not events:
            raise UnusableRecord("an assistant's message holds neither content nor tool_calls")
        self._open.update((call.id, call.name) for call in calls)
        return events

    def _calls(self, message: Mapping[str, object], number: int) -> tuple[ToolCall, ...]:
        found = message.get("tool_calls")
        if found is None and message.get("function_call") is not None:
            return (_function_call(_object(message["function_call"], "function_call"), f"function-{number}"),)
        if found is None:
            return ()
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise UnusableRecord(f"tool_calls is a list, this is {kind_of(found)}")
        calls = tuple(_tool_call(_object(call, "a tool call")) for call in found)
        ids = [call.id for call in calls]
        for n, call_id in enumerate(ids):
            if call_id in ids[:n] or call_id in self._open:
                raise UnusableRecord(f"the call id {call_id!r} is used twice before its result")
        return calls

    def _result(self, message: Mapping[str, object]) -> Event:
        name = text_of(message, "name")
        call_id = text_of(message, "tool_call_id")
        if message.get("role") == "function" and not call_id:
            call_id = next((open_id for open_id, open_name in self._open.items() if open_name == name), "")
        elif not call_id:
            raise UnusableRecord("a tool's result has no tool_call_id")
        if call_id not in self._open:
            raise UnusableRecord(f"a result without its call: none that waits has the id {call_id or name!r}")
        event = ToolResult(call_id=call_id, content=_content(message), name=name)
        del self._open[call_id]
        return event


def _tool_call(call: Mapping[str, object]) -> ToolCall:
    if call.get("type", "function") != "function":
        raise UnusableRecord(f"a tool call of type {json.dumps(call['type'])[:60]} is not a call of a function")
    call_id = text_of(call, "id")
    if not call_id:
        raise UnusableRecord("a tool call has no id")
    return _function_call(_object(call.get("function"), "the function of a tool call"), call_id)


def _function_call(function: Mapping[str, object], call_id: str) -> ToolCall:
    name = text_of(function, "name")
    if not name:
        raise UnusableRecord("a tool call names no function")
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, Mapping):
        return ToolCall.create(call_id, name, arguments)
    return ToolCall(id=call_id, name=name, arguments=text_of(function, "arguments") or "{}")


def _said(message: Mapping[str, object]) -> Content:
    """The content of a message that must have one."""
    if message.get("content") is None:
        raise UnusableRecord("the message has no content")
    return _content(message)


def _content(message: Mapping[str, object]) -> Content:
    """Text, or text and images; null is the empty text."""
    value = message.get("content")
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence):
        raise UnusableRecord(f"content is a text or a list of parts, this is {kind_of(value)}")
    return tuple(_part(_object(part, "a part of content")) for part in value)


def _part(part: Mapping[str, object]) -> TextPart | ImagePart:
    match part.get("type"):
        case "text":
            return TextPart(text_of(part, "text"))
        case "refusal":
            return TextPart(text_of(part, "refusal"))
        case "image_url":
            image = part.get("image_url")
            url = image if isinstance(image, str) else text_of(_object(image, "image_url"), "url")
            if not url:
                raise UnusableRecord("an image has no url")
            return ImagePart(url)
    raise UnusableRecord(f"a part of type {json.dumps(part.get('type'))[:60]} is neither text nor image_url")


def _joined(parts: tuple[TextPart | ImagePart, ...]) -> str:
    if any(isinstance(part, ImagePart) for part in parts):
        raise UnusableRecord("a message with tool_calls holds an image")
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise UnusableRecord(f"{what} is an object, this is {kind_of(value)}")
    return value


Shape = Literal["message", "conversation", "event"]


@frozen
class ConversationRecords:
    """The records of one thread, in order. `part` says that the file holds several threads."""

    thread_id: str
    line: int
    records: Iterator[Record | IngestError]
    shape: Literal["message", "event"] = "message"
    part: bool = False


def conversations(path: Path, format: Format, name: str) -> Iterator[ConversationRecords | IngestError]:
    """The threads of a file, under `name`, or under names that begin with it where there are several.

    Its first usable record decides what all of them are. Each conversation's records are
    to be read before the next is asked for.
    """
    records = read_records(path)
    for first in records:
        if isinstance(first, IngestError):
            yield first
            continue
        shape = _shape(first.value, format)
        if shape is None:
            why = f"{kind_of(first.value)} that is neither a message, nor a conversation, nor an event"
            yield IngestError(str(path), first.line, why)
            continue
        everything = itertools.chain([first], records)
        if shape == "conversation":
            yield from _several(everything, path, format, name)
        else:
            yield ConversationRecords(name, first.line, everything, shape)


def holds_a_log(path: Path) -> bool:
    """Whether the first record is an event with its place in a log. A pipe is left unread, and holds none."""
    if not path.is_file():
        return False
    for record in read_records(path):
        if isinstance(record, Record):
            return _shape(record.value, "auto") == "event" and "seq" in _mapping(record.value)
    return False


def _shape(value: object, format: Format) -> Shape | None:
    """The shape of a record: under a given format by its look, under `auto` only if it is certain."""
    keys = _mapping(value)
    match format:
        case "events":
            return "event"
        case "tau":
            return "conversation"
        case "openai":
            return "conversation" if isinstance(value, list) or "messages" in keys else "message"
    if "role" in keys:
        return "message"
    if isinstance(value, list) or "messages" in keys or "traj" in keys:
        return "conversation"
    return "event" if "type" in keys and "payload" in keys else None


def _several(
    records: Iterator[Record | IngestError], path: Path, format: Format, name: str
) -> Iterator[ConversationRecords | IngestError]:
    taken: set[str] = set()
    for record in records:
        if isinstance(record, IngestError):
            yield record
            continue
        messages = _messages(record.value, format)
        thread_id = f"{name}/{_label(record)}"
        if messages is None:
            wanted = "traj" if format == "tau" else "messages"
            yield IngestError(str(path), record.line, f"conversation {record.number} has no list of {wanted}")
        elif thread_id in taken:
            yield IngestError(str(path), record.line, f"a second conversation would be thread {thread_id!r}")
        else:
            taken.add(thread_id)
            parts = (Record(value, record.line, n, False) for n, value in enumerate(messages, 1))
            yield ConversationRecords(thread_id, record.line, parts, part=True)


def _messages(value: object, format: Format) -> list[object] | None:
    keys = _mapping(value)
    wanted = {"tau": ("traj",), "openai": ("messages",)}.get(format, ("messages", "traj"))
    for found in (value, *map(keys.get, wanted)):
        if isinstance(found, list):
            return found
    return None


def _label(record: Record) -> str:
    """`<task_id>-<trial>` for a trajectory that says both, else its number in the file."""
    keys = _mapping(record.value)
    task, trial = keys.get("task_id"), keys.get("trial")
    if isinstance(task, int | str) and isinstance(trial, int | str):
        return f"{task}-{trial}"
    return str(record.number)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
