"""Messages of model providers to events: of chat-completions, Responses and Anthropic, by the translation of all three.

`conversations` finds which threads a file holds, and gives the records of each.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from attrs import evolve, frozen

from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.records import NewEvent
from memory_engine.errors import IngestError, InvalidMessage
from memory_engine.formats import detection, openai_responses
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import without_native
from memory_engine.formats.origin import unwrapped
from memory_engine.formats.translation import Messages
from memory_engine.formats.values import kind_of
from memory_engine.ingest.events import RecordReading, UnusableRecord, event_id
from memory_engine.ingest.otlp import TracedConversation, is_export, traced_conversations
from memory_engine.ingest.records import Format, Record, read_records

_FORMATS: Mapping[str, detection.Format] = {
    "openai": "openai.chat",
    "tau": "openai.chat",
    "responses": "openai.responses",
    "anthropic": "anthropic",
    "otlp": "openai.chat",
}
"""What the messages of a file are, where that is said."""


class ResponseItems(tuple[object, ...]):
    """The items of one response, which are translated together."""

    __slots__ = ()


class ChatReader:
    """Turns the messages of one conversation, in their order, into events.

    It knows which calls wait for their results: it refuses a call made twice while it
    waits, and a result that answers nothing. A call's id may come again once it was answered.
    """

    def __init__(self, thread_id: str, *, format: Format = "auto", native: bool = False) -> None:
        self._thread_id = thread_id
        self._given = _FORMATS.get(format)
        self._native = native
        self._format, self._dialogue = self._given, Dialogue()
        self._before = self._format, self._dialogue

    def refused(self) -> None:
        """Forget the message read last: the engine has not taken its events."""
        self._format, self._dialogue = self._before

    def read(self, value: object, number: int) -> RecordReading:
        """The events of message `number` (from 1), or of the items of a response: a `ResponseItems`.

        Raises `UnusableRecord`, and then has not taken the message.
        """
        self._before = self._format, self._dialogue
        self._dialogue = self._dialogue.copy()
        try:
            messages = self._messages(list(value) if isinstance(value, ResponseItems) else [_message(value)])
            read = messages.read(self._dialogue, lambda: f"message-{number}")
            events = [event for message in read for event in message.events]
        except InvalidMessage as error:
            self.refused()
            raise UnusableRecord(error.why) from None
        if not self._native:
            events = list(map(without_native, events))
        ids = (event_id(self._thread_id, number, part) for part in range(len(events) - 1, -1, -1))
        return RecordReading([NewEvent(event, new_id) for event, new_id in zip(events, ids, strict=True)])

    def _messages(self, values: list[object]) -> Messages:
        """The values in the format that was given, or that they or earlier ones show; else chat-completions."""
        found = self._given or detection.told(values)
        if found is not None and self._format is not None and found != self._format:
            why = f"a message of {found} after one of {self._format}; say which it is with --format"
            raise InvalidMessage("$", why)
        self._format = found or self._format
        return Messages(values, self._format or "openai.chat")


Shape = Literal["message", "conversation", "event", "spans"]
_WHOLE = frozenset({"response", "chat.completion"})
_ITEMS = openai_responses.CALLS | openai_responses.OUTPUTS | {"reasoning"}


@frozen
class ConversationRecords:
    """The records of one thread, in order. `part` says that the file holds several threads."""

    thread_id: str
    line: int
    records: Iterator[Record | IngestError]
    shape: Literal["message", "event"] = "message"
    part: bool = False


def conversations(
    path: Path, format: Format, name: str, limits: ReadingLimits = DEFAULT_LIMITS
) -> Iterator[ConversationRecords | IngestError]:
    """The threads of a file, under `name`, or under names that begin with it where there are several.

    Its first usable record decides what all of them are. Each conversation's records are
    to be read before the next is asked for.
    """
    records = read_records(path, limits)
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
        if shape == "spans":
            yield from _traced(traced_conversations(everything, str(path), limits), name)
        elif shape == "conversation":
            yield from _several(everything, path, format, name)
        else:
            yield ConversationRecords(name, first.line, everything if shape == "event" else _in_runs(everything), shape)


def holds_a_log(path: Path) -> bool:
    """Whether the first record is an event with its place in a log. A pipe is left unread, and holds none."""
    if not path.is_file():
        return False
    for record in read_records(path):
        if isinstance(record, Record):
            return _shape(record.value, "auto") == "event" and "seq" in _mapping(record.value)
    return False


def _shape(value: object, format: Format) -> Shape | None:
    """Return a record's shape: by its look if a format is given, under `auto` only if it is certain."""
    keys = _mapping(value)
    match format:
        case "events":
            return "event"
        case "otlp":
            return "spans"
        case "tau":
            return "conversation"
        case "openai" | "responses" | "anthropic":
            return "conversation" if isinstance(value, list) or "messages" in keys else "message"
    if is_export(value):
        return "spans"
    if "role" in _mapping(_message(value)) or str(keys.get("object")) in _WHOLE or str(keys.get("type")) in _ITEMS:
        return "message"
    if isinstance(value, list) or "messages" in keys or "traj" in keys:
        return "conversation"
    return "event" if "type" in keys and "payload" in keys else None


def _traced(
    found: Iterable[TracedConversation | IngestError], name: str
) -> Iterator[ConversationRecords | IngestError]:
    for one in found:
        if isinstance(one, IngestError):
            yield one
        else:
            yield ConversationRecords(f"{name}/{one.label}", one.line, iter(one.records), part=True)


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
            yield ConversationRecords(thread_id, record.line, _in_runs(parts), part=True)


def _in_runs(records: Iterable[Record | IngestError]) -> Iterator[Record | IngestError]:
    """Yield the records, with the items of one Responses response joined into one at the place of the first."""
    for is_item, run in itertools.groupby(records, key=_is_item):
        if not is_item:
            yield from run
            continue
        items = [record for record in run if isinstance(record, Record)]
        yield evolve(items[0], value=ResponseItems(record.value for record in items))


def _is_item(record: Record | IngestError) -> bool:
    """Return True if a record is an item of a response, and not a whole response."""
    keys = _mapping(record.value) if isinstance(record, Record) else {}
    try:
        is_of_responses = "object" not in keys and detection.told([keys]) == openai_responses.FORMAT
    except InvalidMessage:
        return False
    return is_of_responses and openai_responses.is_answer(dict(keys))


def _messages(value: object, format: Format) -> list[object] | None:
    keys = _mapping(value)
    wanted = {"auto": ("messages", "traj"), "tau": ("traj",)}.get(format, ("messages",))
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


def _message(value: object) -> object:
    """Return the message inside a line of a client's transcript; any other value unchanged."""
    return unwrapped(value) if isinstance(value, dict) else value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
