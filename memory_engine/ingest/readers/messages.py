"""Messages of model providers, in the forms in which anybody writes them; events; trajectories; spans as OTLP/JSON.

The first usable record of a file decides what all of them are.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from attrs import evolve

from memory_engine.core.moments import moment_of
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError, InvalidMessage
from memory_engine.formats import detection, openai_responses
from memory_engine.formats.origin import unwrapped
from memory_engine.formats.values import kind_of
from memory_engine.ingest.chat import joined_items
from memory_engine.ingest.dialects import chat_message, is_dialect
from memory_engine.ingest.otlp import TracedConversation, is_export, traced_conversations
from memory_engine.ingest.records import NOT_JSON, read_records
from memory_engine.ingest.refusal import NOT_TEXT, nearest

Shape = Literal["message", "conversation", "event", "spans"]
_WHOLE = frozenset({"response", "chat.completion"})
_ITEMS = openai_responses.CALLS | openai_responses.OUTPUTS | {"reasoning"}
_ROWS = ("messages", "traj")


class ProviderMessages:
    """Reads what no other reader sees."""

    name = "messages"

    def sees(self, file: RecordedFile) -> bool:
        """Return True: what is not usable is refused, with its place."""
        return file.format in _GIVEN or file.format == "auto"

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The threads of a file, under its name, or under names that begin with it where there are several."""
        path, given = str(file.path), file.format
        records = file.live
        if not file.first and file.path.suffix.lower() in NOT_JSON:
            yield IngestError(path, 1, f"a file named {file.path.suffix} that no reader knows{NOT_TEXT}")
            return
        for first in records:
            if isinstance(first, IngestError):
                yield first
                continue
            shape = _shape(first.value, given)
            if shape is None:
                why = f"{kind_of(first.value)} that is neither a message, nor a conversation, nor an event"
                yield IngestError(path, first.line, why + nearest(first.value, file.head))
                continue
            everything = itertools.chain([first], records)
            if shape == "spans":
                yield from _traced(traced_conversations(everything, path, file.limits))
            elif shape == "conversation":
                yield from _several(everything, file)
            elif shape == "event":
                yield RecordedConversation(everything, line=first.line, shape="event", strict=True)
            else:
                said = _with_head(everything, file) if file.head else everything
                yield RecordedConversation(_in_runs(said), line=first.line, strict=True)


_GIVEN = frozenset({"openai", "responses", "anthropic", "tau", "events", "otlp", "messages"})


def holds_a_log(path: Path) -> bool:
    """Whether the first record is an event with its place in a log. A pipe is left unread, and holds none."""
    if not path.is_file():
        return False
    for record in read_records(path):
        if isinstance(record, Record):
            return _shape(record.value, "auto") == "event" and "seq" in _mapping(record.value)
    return False


def _shape(value: object, format: str) -> Shape | None:
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
    if "role" in _mapping(_unwrap(value)) or str(keys.get("object")) in _WHOLE or str(keys.get("type")) in _ITEMS:
        return "message"
    if isinstance(value, list) or not keys.keys().isdisjoint(_ROWS):
        return "conversation"
    return "event" if "type" in keys and "payload" in keys else None


def _traced(found: Iterable[TracedConversation | IngestError]) -> Iterator[RecordedConversation | IngestError]:
    for one in found:
        if isinstance(one, IngestError):
            yield one
        else:
            yield RecordedConversation(iter(one.records), label=one.label, line=one.line, strict=True)


def _several(
    records: Iterator[Record | IngestError], file: RecordedFile
) -> Iterator[RecordedConversation | IngestError]:
    taken: set[str] = set()
    path, given = str(file.path), file.format
    for record in records:
        if isinstance(record, IngestError):
            yield record
            continue
        messages = _message_list(record.value, given)
        label = _trajectory_label(record)
        if messages is None:
            wanted = "traj" if given == "tau" else "messages"
            yield IngestError(path, record.line, f"conversation {record.number} has no list of {wanted}")
        elif label in taken:
            thread_id = f"{file.name}/{label}"
            yield IngestError(path, record.line, f"a second conversation would be thread {thread_id!r}")
        else:
            taken.add(label)
            parts: Iterator[Record | IngestError]
            parts = (Record(value, record.line, n, False) for n, value in enumerate(messages, 1))
            said = _request_and_response(parts, _mapping(record.value), file, record.line)
            yield RecordedConversation(_in_runs(said), label=label, line=record.line, strict=True)


def _with_head(records: Iterator[Record | IngestError], file: RecordedFile) -> Iterator[Record | IngestError]:
    return _request_and_response(records, file.head, file, 1)


_SPOKEN = ("system", "instructions", "response", "choices")
_OF_REQUESTS = frozenset(
    "id model object max_tokens max_completion_tokens temperature top_p top_k stop stop_sequences stream seed user "
    "task_id trial reward created created_at title name type service_tier metadata".split()
)
"""Keys next to messages without content that could be left out."""


def _request_and_response(
    records: Iterator[Record | IngestError], head: Mapping[str, object], file: RecordedFile, line: int
) -> Iterator[Record | IngestError]:
    """The messages of a request, with its instructions before them, and the response to it after them."""
    instructions = head.get("system") or head.get("instructions")
    if instructions:
        yield Record({"role": "system", "content": instructions}, line, 0, format=_of_instructions(instructions))
    number = 0
    for record in records:
        number = record.number if isinstance(record, Record) else number
        yield record
    response = head if isinstance(head.get("choices"), list) else head.get("response")
    told = dict(response) if isinstance(response, Mapping) else {}
    if _is_response(told):
        yield Record(told, line, number + 1, at=moment_of(head) or moment_of(told))
    for key, value in head.items():
        if key not in _SPOKEN + _ROWS and key not in _OF_REQUESTS and isinstance(value, dict | list) and value:
            file.left_out[f"{key} (beside messages)"] += 1


def _of_instructions(value: object) -> str:
    return "anthropic" if isinstance(value, list) else ""


def _is_response(value: Mapping[str, object]) -> bool:
    return str(value.get("object")) in _WHOLE or (value.get("type") == "message" and "stop_reason" in value)


def _in_runs(records: Iterable[Record | IngestError]) -> Iterator[Record | IngestError]:
    """Yield the records with their times, the items of one Responses response joined at the place of the first."""
    for is_item, run in itertools.groupby(records, key=_is_item):
        if not is_item:
            yield from map(_normalised_record, run)
            continue
        items = [record for record in run if isinstance(record, Record)]
        yield joined_items(items)


def _normalised_record(record: Record | IngestError) -> Record | IngestError:
    """The record with the time that its message says, and with its calls as chat-completions has them."""
    if isinstance(record, IngestError) or not isinstance(record.value, dict):
        return record
    at = record.at or moment_of(record.value)
    if "role" in record.value and is_dialect(record.value):
        return evolve(record, value=chat_message(record.value), at=at)
    return evolve(record, at=at) if at is not None else record


def _is_item(record: Record | IngestError) -> bool:
    """Return True if a record is an item of a response, and not a whole response."""
    keys = _mapping(record.value) if isinstance(record, Record) else {}
    try:
        is_of_responses = "object" not in keys and detection.unambiguous_format([keys]) == openai_responses.FORMAT
    except InvalidMessage:
        return False
    return is_of_responses and openai_responses.is_answer(dict(keys))


def _message_list(value: object, format: str) -> list[object] | None:
    keys = _mapping(value)
    wanted = {"auto": _ROWS, "tau": ("traj",)}.get(format, ("messages",))
    for found in (value, *map(keys.get, wanted)):
        if isinstance(found, list):
            return found
    return None


def _trajectory_label(record: Record) -> str:
    """`<task_id>-<trial>` for a trajectory that says both, else its number in the file."""
    keys = _mapping(record.value)
    task, trial = keys.get("task_id"), keys.get("trial")
    if isinstance(task, int | str) and isinstance(trial, int | str):
        return f"{task}-{trial}"
    return str(record.number)


def _unwrap(value: object) -> object:
    return unwrapped(value) if isinstance(value, dict) else value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
