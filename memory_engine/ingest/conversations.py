"""Which threads a file holds, and the records of each."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from attrs import frozen

from memory_engine.errors import IngestError
from memory_engine.ingest.readings import kind_of
from memory_engine.ingest.records import Format, Record, read_records

Shape = Literal["message", "conversation", "event"]


@frozen
class Conversation:
    """The records of one thread, in order. `part` says that the file holds several threads."""

    thread_id: str
    line: int
    records: Iterator[Record | IngestError]
    shape: Literal["message", "event"] = "message"
    part: bool = False


def conversations(path: Path, format: Format, name: str) -> Iterator[Conversation | IngestError]:
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
            yield Conversation(name, first.line, everything, shape)


def holds_a_log(path: Path) -> bool:
    """Whether the first record is an event with its place in a log. A pipe is left unread, and holds none."""
    if not path.is_file():
        return False
    for record in read_records(path):
        if isinstance(record, Record):
            return _shape(record.value, "auto") == "event" and "seq" in _mapping(record.value)
    return False


def _shape(value: object, format: Format) -> Shape | None:
    """What a record is: under a given format by its look, under `auto` only if it is certain."""
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
) -> Iterator[Conversation | IngestError]:
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
            yield Conversation(thread_id, record.line, parts, part=True)


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
