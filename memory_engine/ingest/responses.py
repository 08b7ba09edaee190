"""The records of one response: a client may write a line for each of its blocks, and results of its calls between them.

They are one response for whoever builds on them, so they are dispatched in one commit.
"""

from collections.abc import Iterator, Mapping, Sequence

from memory_engine.core.events.base import Event
from memory_engine.core.recordings import Record
from memory_engine.errors import IngestError
from memory_engine.formats.origin import unwrapped
from memory_engine.ingest.dialects import objects, text_under

RECORDS_MAX = 1_000
"""Maximum number of records that are held for one response: a client may give all of its responses the same id."""
RESULTS = frozenset({"tool", "function"})
"""Roles of messages that are results."""
_ENDS = ("end_turn", "stop_sequence")


def by_response(records: Iterator[Record | IngestError]) -> Iterator[Sequence[Record | IngestError]]:
    """Yield the records, those of one response together with the results between them, any other alone.

    A response is held until another one begins, until a person speaks, until a line says that it ends, or until the
    file holds no more for now.
    """
    held: list[Record | IngestError] = []
    begun, size = "", 0
    for record in records:
        response = response_of(record)
        if held and (response != begun if response else not _is_result(record)):
            yield from _parted(held, size)
            held, begun, size = [], "", 0
        held.append(record)
        if response:
            begun, size = response, len(held)
        if not begun or _is_ended(record) or len(held) >= RECORDS_MAX:
            yield from _parted(held, size)
            held, begun, size = [], "", 0
    yield from _parted(held, size)


def _parted(held: Sequence[Record | IngestError], size: int) -> Iterator[Sequence[Record | IngestError]]:
    """Yield the records of a response together, and the results after its last one alone."""
    if size:
        yield held[:size]
    yield from ([one] for one in held[size:])


def response_of(record: Record | IngestError) -> str:
    """Return the id of the response that a record is of; empty for a record of no response, or without an id."""
    if isinstance(record, IngestError):
        return ""
    if isinstance(record.value, Event):
        return str(getattr(record.value, "response_id", ""))
    said = _message(record)
    is_response = said.get("role") == "assistant" or said.get("object") == "chat.completion"
    return text_under(said, "id") if is_response else ""


def _message(record: Record) -> Mapping[str, object]:
    return unwrapped(record.value) if isinstance(record.value, dict) else {}


def _is_result(record: Record | IngestError) -> bool:
    if isinstance(record, IngestError):
        return True
    if isinstance(record.value, Event):
        return getattr(type(record.value), "event_role", "") == "tool"
    said = _message(record)
    blocks = objects(said, "content")
    return said.get("role") in RESULTS or (bool(blocks) and all(block.get("type") == "tool_result" for block in blocks))


def _is_ended(record: Record | IngestError) -> bool:
    """Return True if a record says that its response ends with it."""
    return isinstance(record, Record) and text_under(_message(record), "stop_reason") in _ENDS
