"""Chat-completions messages to events: one message is one event, with its reasoning before it.

`conversations` finds which threads a file holds, and gives the records of each.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from attrs import frozen

from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.records import NewEvent
from memory_engine.errors import IngestError, InvalidMessage
from memory_engine.formats import openai_chat
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import without_native
from memory_engine.formats.translation import without_needless_ids
from memory_engine.formats.values import as_object, kind_of, plain
from memory_engine.ingest.events import RecordReading, UnusableRecord, event_id
from memory_engine.ingest.records import Format, Record, read_records


class ChatReader:
    """Turns the messages of one conversation, in their order, into events.

    It knows which calls wait for their results: it refuses a call made twice while it
    waits, and a result that answers nothing. A call's id may come again once it was answered.
    """

    def __init__(self, thread_id: str, *, native: bool = False) -> None:
        self._thread_id = thread_id
        self._native = native
        self._dialogue = Dialogue()
        self._before = self._dialogue

    def refused(self) -> None:
        """Forget the message read last: the engine has not taken its events."""
        self._dialogue = self._before

    def read(self, value: object, number: int) -> RecordReading:
        """The events of message `number` (from 1). Raises `UnusableRecord`, and then has not taken the message."""
        self._before, self._dialogue = self._dialogue, self._dialogue.copy()
        try:
            message = as_object(plain(value), "a message", "$")
            events = without_needless_ids(openai_chat.read(message, self._dialogue, f"message-{number}"))
        except InvalidMessage as error:
            self.refused()
            raise UnusableRecord(error.why) from None
        if not self._native:
            events = list(map(without_native, events))
        ids = (event_id(self._thread_id, number, part) for part in range(len(events) - 1, -1, -1))
        return RecordReading([NewEvent(event, new_id) for event, new_id in zip(events, ids, strict=True)])


Shape = Literal["message", "conversation", "event"]


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
