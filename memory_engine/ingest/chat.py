"""Chat-completions messages to events: one message is one event, with its reasoning before it."""

import json
from collections.abc import Mapping, Sequence

from memory_engine.events.base import Content, Event, ImagePart, TextPart, ToolCall
from memory_engine.events.external import ExternalInject
from memory_engine.events.input import UserMessage
from memory_engine.events.response import LlmTextResponse, LlmThinking, LlmToolCall
from memory_engine.events.results import ToolResult
from memory_engine.events.session import SessionStarted
from memory_engine.ingest.readings import Reading, Unusable, event_id, kind_of
from memory_engine.records import NewEvent

_ROLES = "assistant, developer, function, system, tool, user"


class ChatReader:
    """Turns the messages of one conversation, in their order, into events.

    Knows which calls wait for their results: one that is made twice while it waits, and a
    result that answers nothing, are refused. A call's id may come again once it was answered.
    """

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._has_instructions = False
        self._open: dict[str, str] = {}
        self._before = (False, self._open)

    def refused(self) -> None:
        """Forget the message read last: the engine has not taken its events."""
        self._has_instructions, self._open = self._before

    def read(self, value: object, number: int) -> Reading:
        """The events of message `number` (from 1). Raises `Unusable`, and then has not taken the message."""
        self._before = (self._has_instructions, dict(self._open))
        if not isinstance(value, Mapping):
            raise Unusable(f"a message is an object, this is {kind_of(value)}")
        role = value.get("role")
        match role:
            case "system" | "developer":
                events = [self._instructions(value)]
            case "user":
                events = [UserMessage(content=_said(value), name=_text(value, "name"))]
            case "assistant":
                events = self._response(value, number)
            case "tool" | "function":
                events = [self._result(value)]
            case _:
                raise Unusable(f"the role {json.dumps(role)[:60]} is none of {_ROLES}")
        ids = (event_id(self._thread_id, number, part) for part in range(len(events) - 1, -1, -1))
        return Reading([NewEvent(event, new_id) for event, new_id in zip(events, ids, strict=True)])

    def _instructions(self, message: Mapping[str, object]) -> Event:
        content = _said(message)
        if self._has_instructions:
            return ExternalInject(content=content, source="system", retention="critical")
        self._has_instructions = True
        return SessionStarted(content=content)

    def _response(self, message: Mapping[str, object], number: int) -> list[Event]:
        reasoning = _text(message, "reasoning_content") or _text(message, "reasoning")
        response_id = f"message-{number}" if reasoning else ""
        events: list[Event] = [LlmThinking(content=reasoning, response_id=response_id)] if reasoning else []
        calls = self._calls(message, number)
        content = _content(message) or _text(message, "refusal")
        if calls:
            text = content if isinstance(content, str) else _joined(content)
            events.append(LlmToolCall(calls=calls, content=text, response_id=response_id))
        elif content or message.get("content") is not None:
            name = _text(message, "name")
            events.append(LlmTextResponse(content=content, response_id=response_id, name=name))
        elif not events:
            raise Unusable("an assistant's message holds neither content nor tool_calls")
        self._open.update((call.id, call.name) for call in calls)
        return events

    def _calls(self, message: Mapping[str, object], number: int) -> tuple[ToolCall, ...]:
        found = message.get("tool_calls")
        if found is None and message.get("function_call") is not None:
            return (_function_call(_object(message["function_call"], "function_call"), f"function-{number}"),)
        if found is None:
            return ()
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise Unusable(f"tool_calls is a list, this is {kind_of(found)}")
        calls = tuple(_tool_call(_object(call, "a tool call")) for call in found)
        ids = [call.id for call in calls]
        for n, call_id in enumerate(ids):
            if call_id in ids[:n] or call_id in self._open:
                raise Unusable(f"the call id {call_id!r} is used twice before its result")
        return calls

    def _result(self, message: Mapping[str, object]) -> Event:
        name = _text(message, "name")
        call_id = _text(message, "tool_call_id")
        if message.get("role") == "function" and not call_id:
            call_id = next((open_id for open_id, open_name in self._open.items() if open_name == name), "")
        elif not call_id:
            raise Unusable("a tool's result has no tool_call_id")
        if call_id not in self._open:
            raise Unusable(f"a result without its call: none that waits has the id {call_id or name!r}")
        event = ToolResult(call_id=call_id, content=_content(message), name=name)
        del self._open[call_id]
        return event


def _tool_call(call: Mapping[str, object]) -> ToolCall:
    if call.get("type", "function") != "function":
        raise Unusable(f"a tool call of type {json.dumps(call['type'])[:60]} is none of a function")
    call_id = _text(call, "id")
    if not call_id:
        raise Unusable("a tool call has no id")
    return _function_call(_object(call.get("function"), "the function of a tool call"), call_id)


def _function_call(function: Mapping[str, object], call_id: str) -> ToolCall:
    name = _text(function, "name")
    if not name:
        raise Unusable("a tool call names no function")
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, Mapping):
        return ToolCall.create(call_id, name, arguments)
    return ToolCall(id=call_id, name=name, arguments=_text(function, "arguments") or "{}")


def _said(message: Mapping[str, object]) -> Content:
    """The content of a message that is nothing without it."""
    if message.get("content") is None:
        raise Unusable("the message has no content")
    return _content(message)


def _content(message: Mapping[str, object]) -> Content:
    """Text, or text and images; null is the empty text."""
    value = message.get("content")
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence):
        raise Unusable(f"content is a text or a list of parts, this is {kind_of(value)}")
    return tuple(_part(_object(part, "a part of content")) for part in value)


def _part(part: Mapping[str, object]) -> TextPart | ImagePart:
    match part.get("type"):
        case "text":
            return TextPart(_text(part, "text"))
        case "refusal":
            return TextPart(_text(part, "refusal"))
        case "image_url":
            image = part.get("image_url")
            url = image if isinstance(image, str) else _text(_object(image, "image_url"), "url")
            if not url:
                raise Unusable("an image has no url")
            return ImagePart(url)
    raise Unusable(f"a part of type {json.dumps(part.get('type'))[:60]} is neither text nor image_url")


def _joined(parts: tuple[TextPart | ImagePart, ...]) -> str:
    if any(isinstance(part, ImagePart) for part in parts):
        raise Unusable("a message with tool_calls holds an image")
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise Unusable(f"{what} is an object, this is {kind_of(value)}")
    return value


def _text(message: Mapping[str, object], key: str) -> str:
    value = message.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unusable(f"{key} is a text, this is {kind_of(value)}")
    return value
