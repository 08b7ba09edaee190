"""Records to events: of chat-completions, Responses and Anthropic, by their translations."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy

import msgspec
from attrs import evolve

from memory_engine.core.events.base import Event, ToolCall
from memory_engine.core.events.messages import ToolError, ToolResult, UserMessage
from memory_engine.core.recordings import Record
from memory_engine.core.records import NewEvent
from memory_engine.errors import InvalidMessage
from memory_engine.formats import detection
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import without_native
from memory_engine.formats.origin import unwrapped
from memory_engine.formats.translation import Messages
from memory_engine.ingest.events import RecordReading, UnusableRecord, event_id

_FORMATS: Mapping[str, detection.Format] = {
    "openai": "openai.chat",
    "tau": "openai.chat",
    "responses": "openai.responses",
    "anthropic": "anthropic",
    "otlp": "openai.chat",
}
"""The kind of a file's messages, if it is stated."""


class ResponseItems(tuple[object, ...]):
    """The items of one response, which are translated together."""

    __slots__ = ()


class _Lenient(Dialogue):
    """Takes results whose calls are not in the recording, which may begin in the middle, and notes their ids."""

    lost: Collection[str] = ()

    def copy(self) -> "_Lenient":
        copied = super().copy()
        return _Lenient(
            has_instructions=copied.has_instructions, waiting=copied.waiting, hearing=copied.hearing
        )  # the lost ones are of one message

    def asked(self, calls: Iterable[ToolCall], where: str = "$") -> None:
        """Add calls; one that waits already was given up by its tool."""
        self.waiting.update((call.id, call.name) for call in calls)

    def answered(self, call_id: str, where: str = "$", *, named: str = "") -> None:
        """Remove an answered call, or note an answer without a call."""
        if self.waiting.pop(call_id, None) is None:
            self.lost = {*self.lost, call_id}


class ChatReader:
    """Turns the messages of one conversation, in their order, into events.

    It knows which calls wait for their results: if `strict`, it refuses a call made twice while it waits, and a result
    that answers nothing; else such a result is kept as an observation. A call's id may come again once it was answered.
    """

    def __init__(self, thread_id: str, *, format: str = "auto", native: bool = False, strict: bool = True) -> None:
        self._thread_id = thread_id
        self._given = _FORMATS.get(format)
        self._native = native
        self._format = self._given
        self._dialogue = Dialogue() if strict else _Lenient()
        self._before = self._format, self._dialogue

    def refused(self) -> None:
        """Forget the message read last: the engine has not taken its events."""
        self._format, self._dialogue = self._before

    def copy(self, thread_id: str = "") -> "ChatReader":
        """Another one that waits for the same results, in another thread if one is named."""
        copied = copy(self)  # each record is taken with a dialogue of its own
        copied._thread_id = thread_id or self._thread_id
        return copied

    def read(self, value: object, number: int) -> RecordReading:
        """The events of message `number` (from 1), or of the items of a response: a `ResponseItems`.

        Raises `UnusableRecord`, and then has not taken the message.
        """
        return self.take(Record(value, 0, number))

    def take(self, record: Record) -> RecordReading:
        """The events of a record. Raises `UnusableRecord`, and then has not taken it."""
        self._before = self._format, self._dialogue
        self._dialogue = self._dialogue.copy()
        try:
            events = self._events(record)
        except InvalidMessage as error:
            self.refused()
            raise UnusableRecord(error.why) from None
        if not self._native:
            events = list(map(without_native, events))
        place = record.key or record.number
        causes = event_id(self._thread_id, record.parent) if record.parent else ""
        ids = (event_id(self._thread_id, place, part) for part in range(len(events) - 1, -1, -1))
        return RecordReading(
            [NewEvent(event, new_id, record.at, causes) for event, new_id in zip(events, ids, strict=True)]
        )

    def _events(self, record: Record) -> list[Event]:
        value = record.value
        if isinstance(value, Event):
            return [value]
        values = list(value) if isinstance(value, ResponseItems) else [_transcript_message(value)]
        read = self._messages(values, record.format).read(self._dialogue, lambda: f"message-{record.number}")
        events = [event for message in read for event in message.events]
        if isinstance(self._dialogue, _Lenient) and self._dialogue.lost:
            events = list(_observed(events, self._dialogue.lost))
        if record.origin is not None:
            events = [_of_origin(event, record) for event in events]
        return events

    def _messages(self, values: list[object], format: str) -> Messages:
        """The values in the format that was given, or that they or earlier ones show; else chat-completions."""
        if format:
            return Messages(values, format)
        found = self._given or detection.unambiguous_format(values)
        if found is not None and self._format is not None and found != self._format:
            why = f"a message of {found} after one of {self._format}; say which it is with --format"
            raise InvalidMessage("$", why)
        self._format = found or self._format
        return Messages(values, self._format or "openai.chat")


def _observed(events: Sequence[Event], lost: Collection[str]) -> Iterable[Event]:
    """The events, with the results whose calls are not in the recording as observations."""
    for event in events:
        if isinstance(event, ToolResult | ToolError) and event.call_id in lost:
            yield UserMessage(content=event.content, origin="tool")
        else:
            yield event


def _of_origin(event: Event, record: Record) -> Event:
    """The event with the origin that the recording gives, if it is of the user role."""
    if isinstance(event, UserMessage) and event.origin != "tool":
        return msgspec.structs.replace(event, origin=record.origin)
    return event


def _transcript_message(value: object) -> object:
    """Return the message inside a line of a client's transcript; any other value unchanged."""
    return unwrapped(value) if isinstance(value, dict) else value


def joined_items(records: Sequence[Record]) -> Record:
    """The records of a response's items as one, at the place of the first."""
    return evolve(records[0], value=ResponseItems(record.value for record in records))
